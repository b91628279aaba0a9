//! memcached's text and meta commands, over the same keys as the strings of Redis.
//!
//! A value that a client of memcached wrote has its flags and a unique number for `cas`; one that a client of
//! Redis wrote has flags 0 and a number derived from its bytes. Not supported: `flush_all` with a delay, and
//! the meta flags of stale values and access times (`h`, `l`, `I`, `N` of `mg`, `R`).

mod meta;
mod parse;
mod text;

pub(crate) use parse::{Incoming, Parser};

use crate::command::{Call, Refusal};
use crate::keyspace::item::{Item, Tag, tagged};
use crate::keyspace::{Draft, NEVER, Place};
use crate::wire::{Reply, Request};

/// The way to store a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

/// A command of one key, with its data.
#[derive(Debug)]
pub(crate) enum Command {
    /// One key of `get`, `gets`, `gat` or `gats`.
    Get {
        key: Vec<u8>,
        with_unique: bool,
        touch: Option<i64>,
    },
    Store {
        key: Vec<u8>,
        mode: Mode,
        flags: u32,
        expiry: i64,
        unique: Option<u64>,
        data: Vec<u8>,
    },
    Delete {
        key: Vec<u8>,
    },
    Count {
        key: Vec<u8>,
        up: bool,
        by: u64,
    },
    Touch {
        key: Vec<u8>,
        expiry: i64,
    },
    Meta(meta::Meta),
}

impl Command {
    /// Returns the key, which determines the partition.
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Get { key, .. }
            | Self::Store { key, .. }
            | Self::Delete { key }
            | Self::Count { key, .. }
            | Self::Touch { key, .. } => key,
            Self::Meta(meta) => &meta.key,
        }
    }

    /// Returns `true` if the command may write.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Self::Get { touch, .. } => touch.is_some(),
            Self::Meta(meta) => meta.writes(),
            _ => true,
        }
    }
}

/// A time of expiry above this number of seconds is absolute, since 1970.
const MONTH: i64 = 60 * 60 * 24 * 30;

/// Returns the expiry of a value with this time, in milliseconds since 1970.
fn expires(time: i64, now: u64) -> u64 {
    let millis = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
    match time {
        0 => NEVER,
        i64::MIN..0 => 1,
        1..=MONTH => now.saturating_add(millis(time)),
        _ => millis(time),
    }
}

/// Returns the number for `cas`.
fn unique(found: &Item) -> u64 {
    let hash = || {
        // FNV-1a: equal bytes have equal numbers.
        let bytes = found.text().unwrap_or_default();
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    found.tag().map_or_else(hash, |tag| tag.unique)
}

fn flags(found: &Item) -> u32 {
    found.tag().map_or(0, |tag| tag.flags)
}

/// Runs a command on a draft and writes its reply.
pub(crate) fn run(
    command: &Command,
    draft: &mut Draft<'_>,
    place: &mut Place,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let (none, mut unused) = (Request::default(), Reply::default());
    let mut call = Call { name: "memcached", args: none.args(), draft, place, out: &mut unused };
    match command {
        Command::Meta(meta) => meta::run(&mut call, meta, out),
        other => text::run(&mut call, other, out),
    }
}

/// Writes the reply to a command that failed.
pub(crate) fn refuse(refusal: &Refusal, out: &mut Vec<u8>) {
    let text = match &refusal.0 {
        full if full.starts_with("OOM") => "SERVER_ERROR out of memory storing object",
        long if long.contains("a value of") => "SERVER_ERROR object too large for cache",
        other => {
            out.extend_from_slice(b"SERVER_ERROR ");
            other.as_ref()
        }
    };
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The outcome of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Done,
    Refused,
    Exists,
    NotFound,
}

/// A value to store.
struct Value<'v> {
    key: &'v [u8],
    mode: Mode,
    flags: u32,
    expiry: i64,
    unique: Option<u64>,
    data: &'v [u8],
}

/// Stores a value according to its mode.
fn store(call: &mut Call<'_, '_>, value: &Value<'_>) -> Result<Stored, Refusal> {
    let old = call.text(value.key)?;
    if let Some(wanted) = value.unique {
        match &old {
            None => return Ok(Stored::NotFound),
            Some(old) if unique(old) != wanted => return Ok(Stored::Exists),
            Some(_) => {}
        }
    }
    let joined = match (value.mode, &old) {
        (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => None,
        (Mode::Append, Some(old)) => Some([old.text().unwrap_or_default(), value.data].concat()),
        (Mode::Prepend, Some(old)) => Some([value.data, old.text().unwrap_or_default()].concat()),
        _ => return Ok(Stored::Refused),
    };
    let unique = call.place.new_unique(call.now());
    let (flags, data, time) = match (&joined, &old) {
        (Some(joined), Some(old)) => (flags(old), &joined[..], old.expires),
        _ => (value.flags, value.data, expires(value.expiry, call.now())),
    };
    call.put_record(value.key, tagged(Tag { flags, unique }, data), time)?;
    Ok(Stored::Done)
}

/// The outcome of counting.
enum Counted {
    Number(u64),
    NotFound,
    NotNumeric,
}

/// Increments, wrapping around at 64 bits, or decrements down to 0.
fn count(call: &mut Call<'_, '_>, key: &[u8], up: bool, by: u64) -> Result<Counted, Refusal> {
    let Some(old) = call.text(key)? else { return Ok(Counted::NotFound) };
    let text = old.text().unwrap_or_default();
    // As in memcached, the number ends at the first space.
    let number = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let number = Some(number).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
    let Some(number) = number.and_then(|text| text.parse::<u64>().ok()) else {
        return Ok(Counted::NotNumeric);
    };
    let number = if up { number.wrapping_add(by) } else { number.saturating_sub(by) };
    // As in memcached, a number that became shorter is padded.
    let width = text.len();
    let text = format!("{number:<width$}");
    let tag = Tag { flags: flags(&old), unique: call.place.new_unique(call.now()) };
    call.put_record(key, tagged(tag, text.as_bytes()), old.expires)?;
    Ok(Counted::Number(number))
}

/// Changes the expiry of a value.
fn touch(call: &mut Call<'_, '_>, key: &[u8], found: &Item, expiry: i64) -> Result<(), Refusal> {
    call.put_record(key, found.record.clone(), expires(expiry, call.now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::tests::Memory;

    /// Runs lines on one partition, and compares each reply.
    fn expect(lines: &[(&str, &str)]) {
        let mut memory = Memory::default();
        let mut place = Place::open(&memory, 1).expect("memory");
        let mut parser = Parser::default();
        for (line, expected) in lines {
            let input = line.replace('|', "\r\n") + "\r\n";
            let (incoming, used) = parser.parse(input.as_bytes(), 1000);
            assert_eq!(used, input.len(), "{line}");
            let mut out = Vec::new();
            match incoming {
                Incoming::Commands { commands, end, .. } => {
                    for command in commands {
                        let mut draft = Draft::new(&memory, 1_000_000);
                        run(&command, &mut draft, &mut place, &mut out).expect("it may");
                        memory.apply(draft.into_changes());
                    }
                    out.extend_from_slice(end.as_bytes());
                }
                Incoming::Reply(text) => out = text.into_bytes(),
                other => panic!("{line}: {other:?}"),
            }
            let text = String::from_utf8(out).expect("text").replace("\r\n", "|");
            assert_eq!(text, *expected, "{line}");
        }
    }

    #[test]
    fn values_keep_flags_and_change_under_their_number() {
        let first = 1_000_000_u64 << 16;
        let lines = [
            ("set a 7 0 2|hi".to_owned(), "STORED|".to_owned()),
            ("gets a none".into(), format!("VALUE a 7 2 {first}|hi|END|")),
            ("cas a 1 0 1 1|x".into(), "EXISTS|".into()),
            (format!("cas a 1 0 1 {first}|x"), "STORED|".into()),
            ("append a 0 0 1|y".into(), "STORED|".into()),
            ("get a".into(), "VALUE a 1 2|xy|END|".into()),
            ("add a 0 0 1|z".into(), "NOT_STORED|".into()),
            (
                "incr a 1".into(),
                "CLIENT_ERROR cannot increment or decrement non-numeric value|".into(),
            ),
            ("set n 0 0 2|10".into(), "STORED|".into()),
            ("decr n 1".into(), "9|".into()),
            ("get n".into(), "VALUE n 0 2|9 |END|".into()),
            ("incr n 18446744073709551615".into(), "8|".into()),
            ("set n 0 -1 1|1".into(), "STORED|".into()),
            ("touch n 10".into(), "NOT_FOUND|".into()),
            ("delete a".into(), "DELETED|".into()),
            ("get a n".into(), "END|".into()),
        ];
        expect(&lines.iter().map(|(line, reply)| (&line[..], &reply[..])).collect::<Vec<_>>());
    }

    #[test]
    fn meta_flags_are_answered_in_their_order() {
        expect(&[
            ("ms a 2 F5 T60|hi", "HD|"),
            ("mg a s v f t k Oq7", "VA 2 s2 f5 t60 ka Oq7|hi|"),
            ("mg YQ== b k v", "VA 2 b kYQ==|hi|"),
            ("mg none v", "EN|"),
            ("mg none v q", ""),
            ("ms a 1 ME|x", "NS|"),
            ("ms a 1 MA|!", "HD|"),
            ("mg a v", "VA 3|hi!|"),
            ("ms a 1 C1|x", "EX|"),
            ("ma n", "NF|"),
            ("ma n N0 J13 v", "VA 2|13|"),
            ("ma n D3 v MD", "VA 2|10|"),
            ("md n q", ""),
            ("md n", "NF|"),
            ("mg a z", "CLIENT_ERROR invalid flag|"),
            ("ms a 1 Tx|x", "CLIENT_ERROR bad token in command line format|"),
        ]);
    }
}
