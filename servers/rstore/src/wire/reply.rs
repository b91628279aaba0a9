//! Replies in RESP2 and RESP3, with one writer for both.

use std::io::Write;

use super::{general_17, shortest_double};

/// The version of the protocol, which `HELLO` chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Types that RESP3 distinguishes and RESP2 calls arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Array,
    /// Keys and values, counted in pairs.
    Map,
    Set,
    /// A message of a channel, which answers no request.
    Push,
}

/// A buffer of replies.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) protocol: Protocol,
}

impl Reply {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { bytes: Vec::new(), protocol }
    }

    fn is_3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    fn header(&mut self, kind: u8, number: i64) {
        self.bytes.push(kind);
        self.decimal(number);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes a number without the formatting machinery: nearly every reply has one.
    fn decimal(&mut self, number: i64) {
        let mut digits = [0_u8; 20];
        let (mut at, mut rest) = (digits.len(), number.unsigned_abs());
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }

    pub(crate) fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes an error; `text` begins with its code.
    pub(crate) fn error(&mut self, text: &str) {
        self.bytes.push(b'-');
        // An error must be one line.
        self.bytes.extend(
            text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }),
        );
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// Writes a count.
    pub(crate) fn count(&mut self, number: usize) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(crate) fn boolean(&mut self, yes: bool) {
        self.integer(yes.into());
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.bytes.reserve(bytes.len() + 16);
        self.header(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    pub(crate) fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    pub(crate) fn maybe(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Writes a score.
    pub(crate) fn double(&mut self, number: f64) {
        if self.is_3() {
            let _ = write!(self.bytes, ",{}\r\n", shortest_double(number));
        } else {
            self.bulk(general_17(number).as_bytes());
        }
    }

    /// Writes text for people, which RESP3 marks as such.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.is_3() {
            let _ = write!(self.bytes, "={}\r\ntxt:{text}\r\n", text.len() + 4);
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// Writes the head of an array of `items` replies (of pairs, for a map).
    pub(crate) fn head(&mut self, shape: Shape, items: usize) {
        let count = i64::try_from(items).unwrap_or(i64::MAX);
        match (shape, self.is_3()) {
            (Shape::Map, true) => self.header(b'%', count),
            (Shape::Map, false) => self.header(b'*', count.saturating_mul(2)),
            (Shape::Set, true) => self.header(b'~', count),
            (Shape::Push, true) => self.header(b'>', count),
            _ => self.header(b'*', count),
        }
    }

    pub(crate) fn array(&mut self, items: usize) {
        self.head(Shape::Array, items);
    }

    /// Writes an array of byte strings.
    pub(crate) fn bulks<T: AsRef<[u8]>>(&mut self, items: &[T]) {
        self.array(items.len());
        for item in items {
            self.bulk(item.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(protocol);
        write(&mut reply);
        String::from_utf8(reply.bytes).expect("text")
    }

    #[test]
    fn each_version_has_its_own_words() {
        let all = |reply: &mut Reply| {
            reply.null();
            reply.double(1.5);
            reply.head(Shape::Map, 1);
            reply.bulk(b"k");
            reply.integer(-120);
            reply.error("ERR a\r\nb");
        };
        assert_eq!(
            written(Protocol::Resp2, all),
            "$-1\r\n$3\r\n1.5\r\n*2\r\n$1\r\nk\r\n:-120\r\n-ERR a  b\r\n"
        );
        assert_eq!(
            written(Protocol::Resp3, all),
            "_\r\n,1.5\r\n%1\r\n$1\r\nk\r\n:-120\r\n-ERR a  b\r\n"
        );
    }
}
