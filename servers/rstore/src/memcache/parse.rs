//! The parser of the lines and data blocks of memcached's clients.

use super::meta::{Meta, Verb};
use super::{Command, Mode};

/// The longest key.
const MAX_KEY: usize = 250;
/// The longest line: a `get` of many keys.
const MAX_LINE: usize = 64 << 10;

/// The outcome of parsing.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The input is incomplete.
    More,
    /// Commands to run one after the other, and the reply after them.
    Commands {
        commands: Vec<Command>,
        quiet: bool,
        end: &'static str,
    },
    /// A reply that needs no record.
    Reply(String),
    Stats,
    Flush {
        quiet: bool,
    },
    Quit,
    /// The connection must be closed.
    Broken(&'static str),
}

/// A command whose data block follows.
#[derive(Debug)]
struct Header {
    command: Result<Command, String>,
    length: usize,
    quiet: bool,
}

/// Parses commands from the start of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    header: Option<Header>,
    /// The bytes of a refused data block to skip.
    skip: usize,
}

impl Parser {
    /// Parses the next command; returns it with the number of bytes it took.
    pub(crate) fn parse(&mut self, input: &[u8], most: usize) -> (Incoming, usize) {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len());
            self.skip -= skipped;
            return (
                if self.skip > 0 { Incoming::More } else { Incoming::Reply(String::new()) },
                skipped,
            );
        }
        let mut used = 0;
        if self.header.is_none() {
            let window = &input[..input.len().min(MAX_LINE)];
            let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
                let long = input.len() >= MAX_LINE;
                let what = Incoming::Broken("CLIENT_ERROR line too long\r\n");
                return (if long { what } else { Incoming::More }, 0);
            };
            used = end + 1;
            let line = &window[..end];
            match self.line(line.strip_suffix(b"\r").unwrap_or(line), most) {
                Some(incoming) => return (incoming, used),
                None if self.skip > 0 => return (self.refused(), used),
                None => {}
            }
        }
        let (incoming, data) = self.data(&input[used..]);
        (incoming, used + data)
    }

    /// Returns the reply to a data block that is too long, which will be skipped.
    fn refused(&mut self) -> Incoming {
        let quiet = self.header.take().is_some_and(|header| header.quiet);
        let text = if quiet { "" } else { "SERVER_ERROR object too large for cache\r\n" };
        Incoming::Reply(text.into())
    }

    /// Reads the data block of the header.
    fn data(&mut self, input: &[u8]) -> (Incoming, usize) {
        let Some(length) = self.header.as_ref().map(|header| header.length) else {
            return (Incoming::More, 0);
        };
        if input.len() < length + 2 {
            return (Incoming::More, 0);
        }
        let Some(Header { command, quiet, .. }) = self.header.take() else {
            return (Incoming::More, 0);
        };
        if &input[length..length + 2] != b"\r\n" {
            // Continue after the next line end, as memcached does.
            let end = input[length..].iter().position(|byte| *byte == b'\n');
            let used = end.map_or(input.len(), |end| length + end + 1);
            return (Incoming::Reply("CLIENT_ERROR bad data chunk\r\n".into()), used);
        }
        let incoming = match command {
            Ok(mut command) => {
                match &mut command {
                    Command::Store { data, .. } => *data = input[..length].to_vec(),
                    Command::Meta(meta) => meta.data = input[..length].to_vec(),
                    _ => {}
                }
                Incoming::Commands { commands: vec![command], quiet, end: "" }
            }
            Err(error) => Incoming::Reply(error),
        };
        (incoming, length + 2)
    }

    /// Parses a line; returns `None` if a data block follows.
    fn line(&mut self, line: &[u8], most: usize) -> Option<Incoming> {
        let words: Vec<&[u8]> =
            line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let Some((name, words)) = words.split_first() else { return Some(error()) };
        let quiet = words.last().is_some_and(|word| *word == b"noreply");
        let mode = match *name {
            b"set" | b"cas" => Some(Mode::Set),
            b"add" => Some(Mode::Add),
            b"replace" => Some(Mode::Replace),
            b"append" => Some(Mode::Append),
            b"prepend" => Some(Mode::Prepend),
            _ => None,
        };
        if let Some(mode) = mode {
            return self.storage(words, mode, *name == b"cas", quiet, most);
        }
        match *name {
            b"ms" => self.meta_set(words, most),
            b"mg" => Some(meta(Verb::Get, words)),
            b"md" => Some(meta(Verb::Delete, words)),
            b"ma" => Some(meta(Verb::Arithmetic, words)),
            b"mn" => Some(Incoming::Reply("MN\r\n".into())),
            _ => Some(plain(name, words, quiet)),
        }
    }

    /// Parses `set key flags exptime bytes [noreply]` and similar commands; `cas` has a number after the
    /// bytes.
    fn storage(
        &mut self,
        words: &[&[u8]],
        mode: Mode,
        is_cas: bool,
        quiet: bool,
        most: usize,
    ) -> Option<Incoming> {
        let fields = 4 + usize::from(is_cas);
        if words.len() < fields || words.len() > fields + 1 {
            return Some(error());
        }
        let parsed = (|| {
            let (flags, expiry) = (number(words[1])?, number(words[2])?);
            let length: usize = number(words[3])?;
            let unique = if is_cas { Some(number(words[4])?) } else { None };
            let key = Some(words[0]).filter(|key| key.len() <= MAX_KEY)?.to_vec();
            Some((Command::Store { key, mode, flags, expiry, unique, data: Vec::new() }, length))
        })();
        let Some((command, length)) = parsed else {
            return Some(Incoming::Reply("CLIENT_ERROR bad command line format\r\n".into()));
        };
        self.expect(command, length, quiet, most);
        None
    }

    /// Waits for a data block, or skips it if it is too long.
    fn expect(&mut self, command: Command, length: usize, quiet: bool, most: usize) {
        if length > most {
            self.skip = length.saturating_add(2);
        }
        self.header = Some(Header { command: Ok(command), length, quiet });
    }

    /// `ms key length flags*`
    fn meta_set(&mut self, words: &[&[u8]], most: usize) -> Option<Incoming> {
        let bad = || Some(Incoming::Reply("CLIENT_ERROR bad data chunk\r\n".into()));
        let (Some(key), Some(length)) = (words.first(), words.get(1)) else {
            return Some(Incoming::Reply("CLIENT_ERROR bad command line format\r\n".into()));
        };
        let Some(length) = number::<usize>(length) else { return bad() };
        match new_meta(Verb::Set, key, &words[2..]) {
            Ok(meta) => self.expect(Command::Meta(meta), length, false, most),
            Err(error) => {
                self.expect(Command::Delete { key: Vec::new() }, length, false, most);
                if let Some(header) = &mut self.header {
                    header.command = Err(format!("{error}\r\n"));
                }
            }
        }
        None
    }
}

fn error() -> Incoming {
    Incoming::Reply("ERROR\r\n".into())
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn one(command: Command, quiet: bool) -> Incoming {
    Incoming::Commands { commands: vec![command], quiet, end: "" }
}

fn client_error(what: &str) -> Incoming {
    Incoming::Reply(format!("CLIENT_ERROR {what}\r\n"))
}

/// Parses a command of one line.
fn plain(name: &[u8], words: &[&[u8]], quiet: bool) -> Incoming {
    let key = words.first().copied().unwrap_or_default();
    let bad_line = || client_error("bad command line format");
    if words.iter().any(|word| word.len() > MAX_KEY) {
        return bad_line();
    }
    match (name, words.len() - usize::from(quiet)) {
        (b"get" | b"gets", 1..) => gets(words, name == b"gets", None),
        (b"gat" | b"gats", 2..) => match number(key) {
            Some(expiry) => gets(&words[1..], name == b"gats", Some(expiry)),
            None => client_error("invalid exptime argument"),
        },
        (b"delete", 1) => one(Command::Delete { key: key.into() }, quiet),
        (b"delete", 2) if words[1] == b"0" => one(Command::Delete { key: key.into() }, quiet),
        (b"delete", 2..) => client_error("bad command line format.  Usage: delete <key> [noreply]"),
        (b"incr" | b"decr", 2) => match number(words[1]) {
            Some(by) => one(Command::Count { key: key.into(), up: name == b"incr", by }, quiet),
            None => client_error("invalid numeric delta argument"),
        },
        (b"touch", 2) => match number(words[1]) {
            Some(expiry) => one(Command::Touch { key: key.into(), expiry }, quiet),
            None => client_error("invalid exptime argument"),
        },
        (b"flush_all", 0) => Incoming::Flush { quiet },
        (b"flush_all", 1) => match number::<i64>(key) {
            Some(0) => Incoming::Flush { quiet },
            Some(_) => {
                Incoming::Reply("SERVER_ERROR flush_all with a delay is not supported\r\n".into())
            }
            None => bad_line(),
        },
        (b"stats", 0) => Incoming::Stats,
        (b"stats", _) if key == b"reset" => Incoming::Reply("RESET\r\n".into()),
        (b"stats", _) => Incoming::Reply("END\r\n".into()),
        (b"version", _) => {
            Incoming::Reply(format!("VERSION rstore-{}\r\n", env!("CARGO_PKG_VERSION")))
        }
        (b"verbosity", 1..) => Incoming::Reply(if quiet { String::new() } else { "OK\r\n".into() }),
        (b"quit", _) => Incoming::Quit,
        _ => error(),
    }
}

fn gets(keys: &[&[u8]], with_unique: bool, touch: Option<i64>) -> Incoming {
    let command = |key: &&[u8]| Command::Get { key: key.to_vec(), with_unique, touch };
    let commands = keys.iter().map(command).collect();
    Incoming::Commands { commands, quiet: false, end: "END\r\n" }
}

fn meta(verb: Verb, words: &[&[u8]]) -> Incoming {
    let Some((key, flags)) = words.split_first() else {
        return client_error("bad command line format");
    };
    match new_meta(verb, key, flags) {
        Ok(meta) => one(Command::Meta(meta), false),
        Err(error) => Incoming::Reply(format!("{error}\r\n")),
    }
}

fn new_meta(verb: Verb, written: &[u8], flags: &[&[u8]]) -> Result<Meta, &'static str> {
    let is_base64 = flags.iter().any(|flag| *flag == b"b");
    let key = if is_base64 {
        base64(written).ok_or("CLIENT_ERROR error decoding key")?
    } else {
        written.to_vec()
    };
    if written.len() > MAX_KEY || key.is_empty() {
        return Err("CLIENT_ERROR bad command line format");
    }
    let flags = flags.iter().map(|flag| flag.to_vec()).collect();
    let meta = Meta { verb, key, written_key: written.to_vec(), flags, data: Vec::new() };
    meta.check()?;
    Ok(meta)
}

/// Decodes base64.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.iter().take_while(|byte| **byte != b'=').count();
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in &text[..digits] {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (text.len().is_multiple_of(4) && text.len() - digits <= 2).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(mut input: &[u8]) -> Vec<String> {
        let (mut parser, mut seen) = (Parser::default(), Vec::new());
        loop {
            let (incoming, used) = parser.parse(input, 100);
            input = &input[used..];
            match incoming {
                Incoming::More => return seen,
                Incoming::Reply(text) => seen.push(text.trim_end().into()),
                other => seen.push(format!("{other:?}").chars().take(24).collect()),
            }
        }
    }

    #[test]
    fn lines_with_and_without_data() {
        let seen =
            replies(b"set a 1 0 3\r\na\nb\r\nget a b\r\nnonsense\r\nset a x 0 3\r\nversion\r\n");
        assert!(seen[0].starts_with("Commands { commands: [St"), "{seen:?}");
        assert!(seen[1].starts_with("Commands { commands: [Ge"), "{seen:?}");
        assert_eq!(seen[2..4], ["ERROR", "CLIENT_ERROR bad command line format"]);
        assert!(seen[4].starts_with("VERSION"));
    }

    #[test]
    fn what_is_too_long_is_skipped() {
        let input = [b"set a 0 0 200\r\n".as_slice(), &[b'x'; 200], b"\r\nmn\r\n"].concat();
        assert_eq!(replies(&input), ["SERVER_ERROR object too large for cache", "", "MN"]);
        assert_eq!(replies(b"set a 0 0 1\r\nabc\r\nmn\r\n"), ["CLIENT_ERROR bad data chunk", "MN"]);
        assert_eq!(base64(b"Zm9vYg=="), Some(b"foob".to_vec()));
        assert_eq!(base64(b"Zm9"), None);
    }
}
