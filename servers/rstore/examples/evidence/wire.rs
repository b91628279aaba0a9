//! Requests and replies of the two protocols, as few as the measurements need.

use std::io::Write as _;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Redis's.
    Resp,
    /// memcached's text.
    Memcached,
}

/// A reply at the start of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is not complete yet.
    Part,
    /// It takes this many bytes.
    Reply(usize),
    /// An error, or no record where there should be one.
    Bad,
}

/// The length of a key: the thesis's 4 and 20 bytes.
pub(crate) const KEY: usize = 24;

/// Returns the key with this number.
pub(crate) fn key(number: u64) -> [u8; KEY] {
    let mut key = *b"user00000000000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Appends words as a request of Redis's protocol.
fn words(words: &[&[u8]], out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Wire {
    pub(crate) fn get(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Resp => words(&[b"GET", key], out),
            Self::Memcached => out.extend([b"get ", key, b"\r\n"].concat()),
        }
    }

    pub(crate) fn set(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Resp => words(&[b"SET", key, value], out),
            Self::Memcached => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                let _ = write!(out, " 0 0 {}\r\n", value.len());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Appends the request of a number of records from a key on, which only this server has.
    pub(crate) fn range(key: &[u8], count: u64, out: &mut Vec<u8>) {
        words(&[b"RANGE", key, b"+", b"LIMIT", count.to_string().as_bytes()], out);
    }

    /// Finds the first reply.
    pub(crate) fn reply(self, bytes: &[u8]) -> Found {
        match self {
            Self::Resp => resp(bytes),
            Self::Memcached => memcached(bytes),
        }
    }
}

/// Returns the first line without its end, and the length with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]), end + 1))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns a reply of this length if the buffer has it.
fn whole(bytes: &[u8], length: usize) -> Found {
    if bytes.len() < length { Found::Part } else { Found::Reply(length) }
}

fn resp(bytes: &[u8]) -> Found {
    let Some((line, head)) = line(bytes) else { return Found::Part };
    match line.split_first() {
        Some((b'+' | b':', _)) => Found::Reply(head),
        Some((b'$', length)) => match number(length) {
            Some(length) => whole(bytes, head + length + 2),
            None => Found::Bad,
        },
        Some((b'*', count)) => {
            let Some(count) = number(count) else { return Found::Bad };
            let mut at = head;
            for _ in 0..count {
                match resp(&bytes[at..]) {
                    Found::Reply(length) => at += length,
                    other => return other,
                }
            }
            Found::Reply(at)
        }
        _ => Found::Bad,
    }
}

fn memcached(bytes: &[u8]) -> Found {
    let Some((line, head)) = line(bytes) else { return Found::Part };
    if line == b"STORED" {
        return Found::Reply(head);
    }
    if !line.starts_with(b"VALUE ") {
        return Found::Bad;
    }
    match line.rsplit(|byte| *byte == b' ').next().and_then(number) {
        Some(length) => whole(bytes, head + length + 2 + b"END\r\n".len()),
        None => Found::Bad,
    }
}
