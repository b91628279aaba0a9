//! Commands of a connection: authentication, protocol, and requests to the server as a whole.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::command::table::Session;
use crate::command::table::{COMMANDS, READ, WRITE};
use crate::command::{PARTITION_BITS, Refusal, Spec};
use crate::wire::{Args, Protocol, Reply, Shape, integer};

use super::connection::Connection;
use super::mail::{Task, Ticket};
use super::run::Worker;
use super::slots::Then;

type Outcome = Result<(), Refusal>;

/// Returns the error for an unknown subcommand.
pub(super) fn unknown_subcommand(args: Args<'_>) -> Refusal {
    let [name, sub] = [0, 1].map(|at| String::from_utf8_lossy(args.at(at)).into_owned());
    format!("ERR unknown subcommand '{sub}'. Try {} HELP.", name.to_uppercase()).into()
}

/// Refuses a subcommand with another number of words.
pub(super) fn exactly(args: Args<'_>, words: usize) -> Outcome {
    if args.len() == words {
        return Ok(());
    }
    let [name, sub] = [0, 1].map(|at| String::from_utf8_lossy(args.at(at)).to_lowercase());
    Err(format!("ERR wrong number of arguments for '{name}|{sub}' command").into())
}

impl Worker {
    pub(super) fn session(
        &mut self,
        connection: &mut Connection,
        token: usize,
        spec: &'static Spec,
        command: Session,
        args: Args<'_>,
    ) -> Outcome {
        match command {
            Session::Acl => self.acl(connection, args)?,
            Session::Auth => self.auth(connection, args)?,
            Session::Backup => self.backup(connection, token, args)?,
            Session::Client => self.client(connection, token, args)?,
            Session::Cluster => self.cluster(connection, args)?,
            Session::Command => command_command(connection, args)?,
            Session::Config => self.config(connection, args)?,
            Session::Debug => debug(connection, args)?,
            Session::Discard => self.discard(connection)?,
            Session::Exec => self.exec(connection, token)?,
            Session::Hello => self.hello(connection, args)?,
            Session::Info => {
                let text = self.info(args);
                connection.answer(|reply| reply.verbatim(&text));
            }
            Session::LastSave => {
                let when = self.common.last_save.load(Relaxed);
                connection.answer(|reply| reply.integer(when.cast_signed()));
            }
            Session::Memory => memory(connection, args)?,
            Session::Multi => Self::multi(connection)?,
            Session::Publish => self.publish(connection, token, args),
            Session::Pubsub => self.pubsub(connection, token, args)?,
            Session::Quit => {
                connection.answer(Reply::ok);
                connection.closing = true;
            }
            Session::Reset => self.reset(connection, token),
            Session::Role => connection.answer(|reply| {
                reply.array(3);
                reply.bulk(b"master");
                reply.integer(0);
                reply.array(0);
            }),
            Session::Save => self.save(connection, token, args),
            Session::Scan => return self.scan(connection, token, spec, args),
            Session::Shutdown => {
                tracing::info!(client = connection.id, "a client ends the server");
                connection.closing = true;
                self.common.stop();
            }
            Session::Subscribe => self.subscribe(connection, token, spec.name, args),
            Session::Unwatch => {
                self.unwatch(connection);
                connection.answer(Reply::ok);
            }
            // The reply of a group's leader reports only writes that a majority has.
            Session::Wait => {
                let members = self.shard.group().map_or(1, |group| group.view().members.len());
                connection.answer(|reply| reply.integer((members / 2) as i64));
            }
            Session::Watch => self.watch(connection, token, args)?,
        }
        Ok(())
    }

    /// `SCAN`: its cursor contains the number of the partition that continues.
    fn scan(
        &mut self,
        connection: &mut Connection,
        token: usize,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Outcome {
        let cursor = std::str::from_utf8(args.at(1)).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or(Refusal::of("ERR invalid cursor"))?;
        let partition = if self.common.cluster {
            self.number
        } else {
            (cursor & ((1 << PARTITION_BITS) - 1)) as usize
        };
        if partition >= self.common.partitions() {
            return Err(Refusal::of("ERR invalid cursor"));
        }
        self.run_at(partition, connection, token, spec, args);
        Ok(())
    }

    /// `AUTH [user] password`
    fn auth(&mut self, connection: &mut Connection, args: Args<'_>) -> Outcome {
        let (name, password) = match args.len() {
            2 => (&b"default"[..], args.at(1)),
            3 => (args.at(1), args.at(2)),
            _ => return Err(Refusal::SYNTAX),
        };
        if args.len() == 2 && !self.common.users.has_password() {
            return Err(Refusal::of(
                "ERR AUTH <password> called without any password configured for the default user. Are you \
                 sure your configuration is correct?",
            ));
        }
        self.log_in(connection, name, password)?;
        connection.answer(Reply::ok);
        Ok(())
    }

    fn log_in(&self, connection: &mut Connection, name: &[u8], password: &[u8]) -> Outcome {
        let Some(user) = self.common.users.find(name, password) else {
            let peer = connection.peer.map(|peer| peer.to_string());
            tracing::warn!(peer, user = %String::from_utf8_lossy(name), "a log-in was refused");
            return Err(Refusal::of(
                "WRONGPASS invalid username-password pair or user is disabled.",
            ));
        };
        connection.user = Some(Arc::new(user.clone()));
        Ok(())
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    fn hello(&mut self, connection: &mut Connection, args: Args<'_>) -> Outcome {
        let mut protocol = connection.reply.protocol;
        if let Some(version) = args.get(1) {
            protocol = match integer(version) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return Err(Refusal::of("NOPROTO unsupported protocol version")),
                None => {
                    return Err(Refusal::of(
                        "ERR Protocol version is not an integer or out of range",
                    ));
                }
            };
        }
        let (mut at, mut name) = (2, None);
        while at < args.len() {
            if args.is(at, "AUTH") && at + 2 < args.len() {
                self.log_in(connection, args.at(at + 1), args.at(at + 2))?;
                at += 3;
            } else if args.is(at, "SETNAME") && at + 1 < args.len() {
                name = Some(client_name(args.at(at + 1))?);
                at += 2;
            } else {
                let word = String::from_utf8_lossy(args.at(at)).into_owned();
                return Err(format!("ERR Syntax error in HELLO option '{word}'").into());
            }
        }
        if connection.user.is_none() {
            return Err(Refusal::of(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                 <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                 RESP protocol version at the same time",
            ));
        }
        if let Some(name) = name {
            connection.name = name;
        }
        connection.reply.protocol = protocol;
        let (id, mode) =
            (connection.id, if self.common.cluster { "cluster" } else { "standalone" });
        connection.answer(|reply| {
            reply.head(Shape::Map, 7);
            for (name, value) in
                [("server", "redis"), ("version", super::info::REDIS_VERSION), ("proto", "")]
            {
                reply.bulk(name.as_bytes());
                match value {
                    "" => reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 }),
                    value => reply.bulk(value.as_bytes()),
                }
            }
            reply.bulk(b"id");
            reply.integer(id.cast_signed());
            reply.bulk(b"mode");
            reply.bulk(mode.as_bytes());
            reply.bulk(b"role");
            reply.bulk(b"master");
            reply.bulk(b"modules");
            reply.array(0);
        });
        Ok(())
    }

    fn reset(&mut self, connection: &mut Connection, token: usize) {
        connection.multi = None;
        self.unwatch(connection);
        self.channels.leave(token);
        connection.subscriptions = 0;
        connection.name.clear();
        connection.reply.protocol = Protocol::Resp2;
        connection.user = self.common.users.first().map(|user| Arc::new(user.clone()));
        connection.answer(|reply| reply.simple("RESET"));
    }

    /// `CLIENT subcommand`
    fn client(&mut self, connection: &mut Connection, token: usize, args: Args<'_>) -> Outcome {
        match args.at(1).to_ascii_uppercase().as_slice() {
            b"ID" => {
                exactly(args, 2)?;
                let id = connection.id;
                connection.answer(|reply| reply.integer(id.cast_signed()));
            }
            b"GETNAME" => {
                exactly(args, 2)?;
                let name = connection.name.clone();
                connection
                    .answer(|reply| reply.maybe((!name.is_empty()).then_some(name.as_bytes())));
            }
            b"SETNAME" => {
                exactly(args, 3)?;
                connection.name = client_name(args.at(2))?;
                connection.answer(Reply::ok);
            }
            b"SETINFO" => {
                exactly(args, 4)?;
                let value = client_name(args.at(3))?;
                if args.is(2, "LIB-NAME") {
                    connection.library.0 = value;
                } else if args.is(2, "LIB-VER") {
                    connection.library.1 = value;
                } else {
                    let word = String::from_utf8_lossy(args.at(2)).into_owned();
                    return Err(format!("ERR Unrecognized option '{word}'").into());
                }
                connection.answer(Reply::ok);
            }
            b"INFO" => {
                exactly(args, 2)?;
                let text = connection.describe(self.now);
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"LIST" => self.list_clients(connection, token),
            b"KILL" => return self.kill(connection, token, args),
            b"NO-EVICT" | b"NO-TOUCH" => {
                exactly(args, 3)?;
                connection.answer(Reply::ok);
            }
            _ => return Err(unknown_subcommand(args)),
        }
        Ok(())
    }

    fn list_clients(&mut self, connection: &mut Connection, token: usize) {
        let count = self.common.partitions();
        let slot = connection.slots.wait(count, Then::Text);
        let own = connection.describe(self.now) + &self.describe_connections();
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            if part == self.number {
                let protocol = connection.reply.protocol;
                connection.slots.done(slot, part, own.clone().into_bytes(), protocol);
            } else {
                self.ask(part, ticket, Task::Clients);
            }
        }
    }

    /// Returns the lines of all connections here except the present one.
    pub(super) fn describe_connections(&self) -> String {
        self.connections.iter().flatten().map(|connection| connection.describe(self.now)).collect()
    }

    /// `CLIENT KILL ID number`
    fn kill(&mut self, connection: &mut Connection, token: usize, args: Args<'_>) -> Outcome {
        if args.len() != 4 || !args.is(2, "ID") {
            return Err(Refusal::SYNTAX);
        }
        let id = integer(args.at(3)).and_then(|id| u64::try_from(id).ok());
        let id = id.ok_or(Refusal::of("ERR client-id should be greater than 0"))?;
        let count = self.common.partitions();
        let slot = connection.slots.wait(count, Then::Gather(crate::command::Gather::Sum));
        let own = self.kill_connection(id);
        connection.closing |= connection.id == id;
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            if part == self.number {
                let killed = u8::from(own || connection.id == id);
                let protocol = connection.reply.protocol;
                connection.slots.done(slot, part, format!(":{killed}\r\n").into_bytes(), protocol);
            } else {
                self.ask(part, ticket, Task::Kill(id));
            }
        }
        Ok(())
    }

    pub(super) fn kill_connection(&mut self, id: u64) -> bool {
        let found = self
            .connections
            .iter()
            .position(|connection| connection.as_ref().is_some_and(|found| found.id == id));
        if let Some(token) = found {
            self.close(token);
        }
        found.is_some()
    }

    /// `ACL WHOAMI | USERS | LIST | CAT`
    fn acl(&mut self, connection: &mut Connection, args: Args<'_>) -> Outcome {
        let users = &self.common.users;
        match args.at(1).to_ascii_uppercase().as_slice() {
            b"WHOAMI" => {
                let name = connection.user.as_ref().map_or("", |user| &user.name).to_owned();
                connection.answer(|reply| reply.bulk(name.as_bytes()));
            }
            b"USERS" => {
                let names: Vec<_> = users.iter().map(|user| user.name.clone()).collect();
                connection.answer(|reply| reply.bulks(&names));
            }
            b"LIST" => {
                let all: Vec<_> = users.iter().map(crate::access::User::describe).collect();
                connection.answer(|reply| reply.bulks(&all));
            }
            b"CAT" => connection.answer(|reply| reply.bulks(&["read", "write", "admin", "pubsub"])),
            _ => return Err(unknown_subcommand(args)),
        }
        Ok(())
    }

    /// `SAVE` and `BGSAVE`: acknowledged writes survive as much as the medium can guarantee.
    fn save(&mut self, connection: &mut Connection, token: usize, args: Args<'_>) {
        let in_background = args.is(0, "BGSAVE");
        let count = self.common.partitions();
        let then = if in_background { Then::Quiet } else { Then::Saved };
        if in_background {
            connection.answer(|reply| reply.simple("Background saving started"));
        }
        let slot = connection.slots.wait(count, then);
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            if part == self.number {
                let protocol = connection.reply.protocol;
                let reply = self.small_task(Task::Sync);
                connection.slots.done(slot, part, reply, protocol);
            } else {
                self.ask(part, ticket, Task::Sync);
            }
        }
        self.common.last_save.store(self.now / 1000, Relaxed);
    }

    /// `BACKUP path`: backs up into a folder that does not exist yet.
    fn backup(&mut self, connection: &mut Connection, token: usize, args: Args<'_>) -> Outcome {
        let path = std::str::from_utf8(args.at(1)).ok().map(std::path::PathBuf::from);
        let path = path.ok_or(Refusal::of("ERR backup: the path is not UTF-8"))?;
        if !path.is_absolute() {
            return Err(Refusal::of("ERR backup: the path is not absolute"));
        }
        std::fs::create_dir(&path)
            .map_err(|error| Refusal::from(format!("ERR backup: {}: {error}", path.display())))?;
        let count = self.common.partitions();
        let folder = crate::shard::Folder { path, partitions: count };
        tracing::info!(path = %folder.path.display(), "a backup begins");
        let slot = connection.slots.wait(count, Then::Backup(folder.clone()));
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            if part != self.number {
                self.ask(part, ticket, Task::Backup(folder.clone()));
                continue;
            }
            match self.shard.backup(&folder) {
                Ok(backup) => self.own_backup(ticket, backup),
                Err(error) => {
                    let reply = format!("-ERR backup: {error}\r\n").into_bytes();
                    connection.slots.done(slot, part, reply, connection.reply.protocol);
                }
            }
        }
        Ok(())
    }

    /// Runs a task that needs only this thread.
    pub(super) fn small_task(&mut self, task: Task) -> Vec<u8> {
        match task {
            Task::Sync => match self.shard.sync() {
                Ok(()) => b"+OK\r\n".to_vec(),
                Err(failure) => {
                    let mut reply = Reply::default();
                    reply.error(&Refusal::from(failure).0);
                    reply.bytes
                }
            },
            Task::Publish { channel, message } => {
                format!(":{}\r\n", self.publish_here(&channel, &message)).into_bytes()
            }
            Task::Messages(messages) => self.publish_all(&messages),
            Task::Listeners(question) => self.channels.tell(&question),
            Task::Kill(id) => format!(":{}\r\n", u8::from(self.kill_connection(id))).into_bytes(),
            Task::Clients => self.describe_connections().into_bytes(),
            Task::Work(..) | Task::Transaction(..) | Task::Backup(_) => Vec::new(),
        }
    }
}

fn client_name(name: &[u8]) -> Result<String, Refusal> {
    if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err(Refusal::of(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// `COMMAND [COUNT | DOCS | INFO | LIST | GETKEYS]`
fn command_command(connection: &mut Connection, args: Args<'_>) -> Outcome {
    let named = |from: usize| -> Vec<Option<&'static Spec>> {
        args.from(from).iter().map(crate::command::table::find).collect()
    };
    match args.get(1).map(<[u8]>::to_ascii_uppercase).as_deref() {
        None => connection.answer(|reply| {
            reply.array(COMMANDS.len());
            for spec in COMMANDS {
                describe(reply, spec);
            }
        }),
        Some(b"COUNT") => connection.answer(|reply| reply.count(COMMANDS.len())),
        Some(b"LIST") => {
            let all: Vec<_> = COMMANDS.iter().map(|spec| spec.name).collect();
            connection.answer(|reply| reply.bulks(&all));
        }
        Some(b"INFO") => connection.answer(|reply| {
            let all = named(2);
            reply.array(all.len());
            for spec in all {
                match spec {
                    Some(spec) => describe(reply, spec),
                    None => reply.null_array(),
                }
            }
        }),
        Some(b"DOCS") => connection.answer(|reply| {
            let all: Vec<_> = if args.len() > 2 {
                named(2).into_iter().flatten().collect()
            } else {
                COMMANDS.iter().collect()
            };
            reply.head(Shape::Map, all.len());
            for spec in all {
                reply.bulk(spec.name.as_bytes());
                reply.head(Shape::Map, 1);
                reply.bulk(b"arity");
                reply.integer(spec.arity.into());
            }
        }),
        Some(b"GETKEYS") => {
            let rest = args.from(2);
            let spec = crate::command::table::find(rest.at(0));
            let spec = spec.ok_or(Refusal::of("ERR Invalid command specified"))?;
            if !spec.takes(rest.len()) {
                return Err(Refusal::of("ERR Invalid number of arguments specified for command"));
            }
            let keys: Vec<_> = spec.keys.of(rest.len()).map(|at| rest.at(at)).collect();
            if keys.is_empty() {
                return Err(Refusal::of("ERR The command has no key arguments"));
            }
            connection.answer(|reply| reply.bulks(&keys));
        }
        Some(_) => return Err(unknown_subcommand(args)),
    }
    Ok(())
}

fn describe(reply: &mut Reply, spec: &Spec) {
    reply.array(6);
    reply.bulk(spec.name.as_bytes());
    reply.integer(spec.arity.into());
    let mut flags = Vec::new();
    for (flag, name) in
        [(READ, "readonly"), (WRITE, "write"), (crate::command::table::FAST, "fast")]
    {
        if spec.has(flag) {
            flags.push(name);
        }
    }
    reply.head(Shape::Set, flags.len());
    for flag in &flags {
        reply.simple(flag);
    }
    reply.count(spec.keys.first);
    reply.integer(spec.keys.last);
    reply.count(spec.keys.step);
}

/// `MEMORY USAGE
///  DOCTOR`: replies nothing useful.
fn memory(connection: &mut Connection, args: Args<'_>) -> Outcome {
    match args.at(1).to_ascii_uppercase().as_slice() {
        b"DOCTOR" => connection.answer(|reply| reply.verbatim("See INFO memory")),
        _ => return Err(unknown_subcommand(args)),
    }
    Ok(())
}

/// `DEBUG SLEEP 0
///  JMAP`: never stops a partition.
fn debug(connection: &mut Connection, args: Args<'_>) -> Outcome {
    match args.at(1).to_ascii_uppercase().as_slice() {
        b"SLEEP" if args.at(2) == b"0" => connection.answer(Reply::ok),
        b"SLEEP" => {
            return Err(Refusal::of("ERR DEBUG SLEEP would stop every client of the partition"));
        }
        _ => return Err(unknown_subcommand(args)),
    }
    Ok(())
}
