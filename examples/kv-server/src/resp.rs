//! The protocol: requests (arrays of bulk strings, or a line of words) in, replies out.

use std::io::{self, BufRead, Read, Write};

use pmindex::MAX_VALUE_BYTES;

/// The longest argument.
const MAX_ARGUMENT: usize = MAX_VALUE_BYTES;
/// The most arguments of one request.
const MAX_ARGUMENTS: usize = 1 << 16;
/// The most bytes of one request.
const MAX_REQUEST: usize = 64 << 20;
/// The longest line.
const MAX_LINE: usize = 64 << 10;

/// What the other side sent is not the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(pub(crate) String);

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A command with its arguments; empty for an empty line.
    Request(Vec<Vec<u8>>),
    /// The connection ended, between two requests or within one.
    End,
    /// Not the protocol; nothing after it can be understood.
    Invalid(ProtocolError),
}

fn invalid(what: &str) -> ProtocolError {
    ProtocolError(what.into())
}

/// Why no request could be read.
enum Stop {
    End,
    Invalid(ProtocolError),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::End } else { Self::Io(error) }
    }
}

impl From<ProtocolError> for Stop {
    fn from(error: ProtocolError) -> Self {
        Self::Invalid(error)
    }
}

/// Reads the next request.
pub(crate) fn read_request(from: &mut impl BufRead) -> io::Result<Incoming> {
    match request(from) {
        Ok(words) => Ok(Incoming::Request(words)),
        Err(Stop::End) => Ok(Incoming::End),
        Err(Stop::Invalid(error)) => Ok(Incoming::Invalid(error)),
        Err(Stop::Io(error)) => Err(error),
    }
}

fn request(from: &mut impl BufRead) -> Result<Vec<Vec<u8>>, Stop> {
    let line = line(from)?;
    let Some(count) = line.strip_prefix(b"*") else {
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return Ok(words.map(<[u8]>::to_vec).collect());
    };
    let count = number::<usize>(count).filter(|count| *count <= MAX_ARGUMENTS);
    let count = count.ok_or_else(|| invalid("invalid multibulk length"))?;
    let (mut words, mut room) = (Vec::with_capacity(count.min(16)), MAX_REQUEST);
    for _ in 0..count {
        let word = bulk(from)?;
        room = room.checked_sub(word.len()).ok_or_else(|| invalid("too big a request"))?;
        words.push(word);
    }
    Ok(words)
}

/// A bulk string: `$LEN`, the bytes, an end of line.
fn bulk(from: &mut impl BufRead) -> Result<Vec<u8>, Stop> {
    let header = line(from)?;
    let length = header.strip_prefix(b"$").ok_or_else(|| invalid("expected '$'"))?;
    let length = number::<usize>(length).filter(|length| *length <= MAX_ARGUMENT);
    let length = length.ok_or_else(|| invalid("invalid bulk length"))?;
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    if bytes.split_off(length) != b"\r\n" {
        return Err(invalid("a bulk string without its end").into());
    }
    Ok(bytes)
}

/// A line without its end.
fn line(from: &mut impl BufRead) -> Result<Vec<u8>, Stop> {
    let mut line = Vec::new();
    from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(if line.len() + 1 < MAX_LINE {
            Stop::End
        } else {
            invalid("too big an inline request").into()
        });
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}

/// A number as the protocol and its commands write it.
pub(crate) fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Replies, each in one call.
pub(crate) trait Replies: Write {
    fn simple(&mut self, text: &str) -> io::Result<()> {
        write!(self, "+{text}\r\n")
    }

    fn error(&mut self, text: &str) -> io::Result<()> {
        // An error is one line.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        write!(self, "-{text}\r\n")
    }

    fn integer(&mut self, number: u64) -> io::Result<()> {
        write!(self, ":{number}\r\n")
    }

    fn bulk(&mut self, bytes: &[u8]) -> io::Result<()> {
        write!(self, "${}\r\n", bytes.len())?;
        self.write_all(bytes)?;
        self.write_all(b"\r\n")
    }

    fn maybe(&mut self, bytes: Option<&[u8]>) -> io::Result<()> {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.write_all(b"$-1\r\n"),
        }
    }

    /// The head of an array of so many replies.
    fn array(&mut self, items: usize) -> io::Result<()> {
        write!(self, "*{items}\r\n")
    }
}

impl<W: Write> Replies for W {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Vec<Incoming> {
        let mut all = Vec::new();
        loop {
            let incoming = read_request(&mut bytes).expect("memory");
            let more = matches!(incoming, Incoming::Request(_));
            all.push(incoming);
            if !more {
                return all;
            }
        }
    }

    fn words(words: &[&str]) -> Incoming {
        Incoming::Request(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    #[test]
    fn arrays_and_lines_are_requests() {
        let all = read(b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\nPING\r\n  set a  b \n\r\n");
        assert_eq!(
            all,
            [
                words(&["GET", "a\r\nbc"]),
                words(&["PING"]),
                words(&["set", "a", "b"]),
                words(&[]),
                Incoming::End
            ]
        );
    }

    #[test]
    fn every_cut_ends_quietly() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), [Incoming::End], "{cut}");
        }
    }

    #[test]
    fn nonsense_is_refused_before_memory_is_asked_for() {
        let huge = format!("*1\r\n${}\r\n", MAX_ARGUMENT + 1);
        let long = vec![b'x'; MAX_LINE + 10];
        let bad: [&[u8]; 7] = [
            b"*-1\r\n",
            b"*99999999999999999999\r\n",
            b"*1\r\n+OK\r\n",
            b"*1\r\n$-5\r\n",
            b"*1\r\n$1\r\nabc\r\n",
            huge.as_bytes(),
            &long,
        ];
        for bytes in bad {
            let all = read(bytes);
            assert!(matches!(all[..], [Incoming::Invalid(_)]), "{all:?}");
        }
    }
}
