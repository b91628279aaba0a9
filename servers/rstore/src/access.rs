//! Users, their passwords and permissions.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::Error;
use crate::command::Spec;
use crate::command::table::{ADMIN, NO_AUTH, PUBSUB, READ, WRITE};
use crate::config::{Settings, UserSettings};
use crate::keyspace::glob;
use crate::wire::Args;

/// A user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    /// The SHA-256 of the password; `None` accepts any password.
    password: Option<[u8; 32]>,
    /// The categories of commands, as flags of the table.
    commands: u8,
    keys: Vec<Vec<u8>>,
}

/// Every category.
const ALL: u8 = READ | WRITE | ADMIN | PUBSUB;
const CATEGORIES: [(&str, u8); 4] =
    [("read", READ), ("write", WRITE), ("admin", ADMIN), ("pubsub", PUBSUB)];

impl User {
    fn parse(settings: &UserSettings) -> Result<Self, Error> {
        let mut commands = 0;
        for word in &settings.commands {
            let found = CATEGORIES.iter().find(|(name, _)| name == word);
            let unknown =
                Error::Setting("the commands of a user must be read, write, admin or pubsub");
            commands |= found.ok_or(unknown)?.1;
        }
        let password = match (&settings.password, &settings.password_sha256) {
            (Some(text), None) => hash(text.as_bytes()),
            (None, Some(digits)) => unhex(digits)
                .ok_or(Error::Setting("password-sha256 must have 64 hexadecimal digits"))?,
            _ => {
                return Err(Error::Setting(
                    "a user must have either a password or a password-sha256",
                ));
            }
        };
        if settings.name.is_empty() || settings.name.contains(char::is_whitespace) {
            return Err(Error::Setting("a user must have a name, without spaces"));
        }
        let keys = settings.keys.iter().map(|keys| keys.clone().into_bytes()).collect();
        Ok(Self {
            name: settings.name.clone(),
            password: Some(password),
            commands: if settings.commands.is_empty() { ALL } else { commands },
            keys,
        })
    }

    /// Returns the reason why the user may not run a command; `None` if it may.
    pub(crate) fn refusal(&self, spec: &Spec, args: Args<'_>) -> Option<String> {
        let needed = spec.flags & ALL;
        if needed & !self.commands != 0 && !spec.has(NO_AUTH) && !is_for_all(spec, args) {
            return Some(format!(
                "NOPERM this user has no permissions to run the '{}' command",
                spec.name
            ));
        }
        if self.keys.is_empty() {
            return None;
        }
        let may = |key: &[u8]| self.keys.iter().any(|pattern| glob::matches(pattern, key));
        if spec.keys.of(args.len()).all(|number| may(args.at(number))) && !Self::sees_all(spec) {
            return None;
        }
        Some(
            "NOPERM this user has no permissions to access one of the keys used as arguments"
                .into(),
        )
    }

    /// Returns `true` if a command shows or removes keys that no argument names.
    fn sees_all(spec: &Spec) -> bool {
        matches!(spec.name, "keys" | "scan" | "range" | "randomkey" | "flushall" | "flushdb")
    }

    /// Returns `true` if the user may use the key, for memcached's commands.
    pub(crate) fn may_use(&self, key: &[u8], write: bool) -> bool {
        let needed = if write { WRITE } else { READ };
        self.commands & needed != 0
            && (self.keys.is_empty() || self.keys.iter().any(|keys| glob::matches(keys, key)))
    }

    /// Returns the user as `ACL LIST` shows it, without the password's hash.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("user {} on", self.name);
        text += if self.password.is_some() { " #<hidden>" } else { " nopass" };
        if self.keys.is_empty() {
            text += " ~*";
        }
        for keys in &self.keys {
            let _ = write!(text, " ~{}", String::from_utf8_lossy(keys));
        }
        text += " &*";
        if self.commands == ALL {
            text += " +@all";
        } else {
            text += " -@all";
            for (name, flag) in CATEGORIES {
                if self.commands & flag != 0 {
                    let _ = write!(text, " +@{name}");
                }
            }
        }
        text
    }
}

/// The subcommands that every user may run, of commands that are for administrators otherwise: they show or change
/// the user's own connection, or lead it to the node that has a key.
const FOR_ALL: [(&str, &[&str]); 2] = [
    ("client", &["ID", "GETNAME", "SETNAME", "SETINFO", "INFO", "NO-EVICT", "NO-TOUCH"]),
    ("cluster", &["COUNTKEYSINSLOT", "INFO", "KEYSLOT", "MYID", "NODES", "SHARDS", "SLOTS"]),
];

/// Returns `true` if every user may run this request.
fn is_for_all(spec: &Spec, args: Args<'_>) -> bool {
    FOR_ALL.iter().any(|(name, subs)| spec.name == *name && subs.iter().any(|sub| args.is(1, sub)))
}

/// All users; the first is `default`.
#[derive(Debug)]
pub(crate) struct Users(Vec<User>);

impl Users {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        let password = settings.requirepass.as_ref().map(|text| hash(text.as_bytes()));
        let default = User { name: "default".into(), password, commands: ALL, keys: Vec::new() };
        let mut users = vec![default];
        for user in &settings.user {
            let user = User::parse(user)?;
            match users.iter_mut().find(|known| known.name == user.name) {
                Some(known) if known.name == "default" => *known = user,
                Some(_) => return Err(Error::Setting("two users have the same name")),
                None => users.push(user),
            }
        }
        Ok(Self(users))
    }

    /// Returns the user of a new connection; `None` if it must authenticate first.
    pub(crate) fn first(&self) -> Option<&User> {
        self.0.first().filter(|user| user.password.is_none())
    }

    /// Returns `true` if there is a user for `AUTH` with one argument.
    pub(crate) fn has_password(&self) -> bool {
        self.0.first().is_some_and(|user| user.password.is_some())
    }

    /// Returns the user with this name and password. Takes the same time for any password.
    pub(crate) fn find(&self, name: &[u8], password: &[u8]) -> Option<&User> {
        let given = hash(password);
        self.0.iter().find(|user| {
            user.name.as_bytes() == name
                && user.password.is_none_or(|hash| {
                    hash.iter().zip(&given).fold(0, |all, (one, two)| all | (one ^ two)) == 0
                })
        })
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &User> {
        self.0.iter()
    }
}

fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn unhex(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;
    use crate::wire::Request;

    #[test]
    fn users_do_what_they_may() {
        let settings = Settings {
            user: vec![UserSettings {
                name: "app".into(),
                password: Some("secret".into()),
                commands: vec!["read".into()],
                keys: vec!["app:*".into()],
                ..UserSettings::default()
            }],
            ..Settings::default()
        };
        let users = Users::new(&settings).expect("valid");
        assert!(users.first().is_some() && users.find(b"app", b"wrong").is_none());
        let app = users.find(b"app", b"secret").expect("known");
        let refusal = |line: &str| {
            let request = Request::new(line.split(' ').map(str::as_bytes));
            let spec = table::find(request.args().at(0)).expect("a command");
            app.refusal(spec, request.args()).map(|text| text.chars().take(60).collect::<String>())
        };
        assert_eq!(refusal("get app:1"), None);
        assert_eq!(refusal("ping"), None);
        assert!(refusal("get other").is_some_and(|text| text.contains("access one of the keys")
            || text.contains("no permissions to access")));
        assert!(refusal("set app:1 x").is_some_and(|text| text.contains("run the 'set' command")));
        assert!(refusal("keys app:*").is_some());
        assert!(refusal("config get x").is_some());
        for line in ["cluster join 9 a:1/a:2", "cluster leave 1", "Client kill id 1", "client list"]
        {
            let text = refusal(line);
            assert!(text.is_some_and(|text| text.contains("no permissions to run")), "{line}");
        }
        for line in ["cluster slots", "cluster keyslot a", "CLIENT setname x", "client id"] {
            assert_eq!(refusal(line), None, "{line}");
        }
        assert_eq!(app.describe(), "user app on #<hidden> ~app:* &* -@all +@read");
    }
}
