//! Requests, which are arrays of bulk strings or lines of words, parsed as they arrive.
//!
//! The parser keeps its position between two reads: a value of many megabytes is read once, not once for each
//! packet. Arguments are spans of the input, which are copied only if a command needs that.

use std::ops::Index;

use super::inline;

/// The position of an argument, counted from the start of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    end: usize,
}

/// The arguments of one request; the first is the name of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&'a [u8]> {
        self.spans.get(number).map(|span| &self.bytes[span.start..span.end])
    }

    /// Returns an argument that the arity of the command guarantees; empty if it is missing.
    pub(crate) fn at(&self, number: usize) -> &'a [u8] {
        self.get(number).unwrap_or_default()
    }

    pub(crate) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start..span.end])
    }

    /// Returns the arguments from `number` on.
    pub(crate) fn from(&self, number: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(number..).unwrap_or_default() }
    }

    /// Returns `true` if argument `number` is this word, in upper or lower case.
    pub(crate) fn is(&self, number: usize, word: &str) -> bool {
        self.get(number).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Returns a copy that owns its bytes.
    pub(crate) fn to_request(self) -> Request {
        Request::new(self.iter())
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, number: usize) -> &[u8] {
        self.at(number)
    }
}

/// A request that owns its bytes: queued by `MULTI`, or sent to another partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Request {
    pub(crate) fn new<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut request = Self::default();
        for word in words {
            request.push(word);
        }
        request
    }

    pub(crate) fn push(&mut self, word: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(word);
        self.spans.push(Span { start, end: self.bytes.len() });
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }

    /// Returns the bytes of memory that it occupies.
    pub(crate) fn footprint(&self) -> usize {
        let spans = self.spans.capacity() * size_of::<Span>();
        self.bytes.capacity() + spans + size_of::<Self>()
    }
}

/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The bytes of an argument.
    pub(crate) bulk: usize,
    /// The bytes of a request.
    pub(crate) request: usize,
    /// The arguments of a request.
    pub(crate) arguments: usize,
}

/// The longest line.
const MAX_LINE: usize = 64 << 10;

impl Limits {
    /// The limits before a client has authenticated.
    pub(crate) const UNAUTHENTICATED: Self =
        Self { bulk: 16 << 10, request: 64 << 10, arguments: 10 };
}

/// The result of parsing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A complete request and its length in bytes; [`Parser::args`] returns its arguments.
    Request(usize),
    /// An incomplete request.
    More,
}

/// Parses requests from the start of a buffer that grows at its end.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    spans: Vec<Span>,
    /// The position up to which the request is parsed.
    at: usize,
    /// The number of arguments to come; `None` before the header.
    missing: Option<usize>,
    /// The length of the argument whose header is parsed.
    bulk: Option<usize>,
    /// The words of an inline request, where quotes made them differ from the input.
    words: Vec<u8>,
    is_inline: bool,
}

impl Parser {
    /// Starts the next request.
    pub(crate) fn reset(&mut self) {
        self.spans.clear();
        self.words.clear();
        if self.spans.capacity() > 4096 {
            self.spans = Vec::new();
        }
        (self.at, self.missing, self.bulk, self.is_inline) = (0, None, None, false);
    }

    /// Returns the arguments of the request at the start of `input`, after [`Parsed::Request`].
    pub(crate) fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { bytes: if self.is_inline { &self.words } else { input }, spans: &self.spans }
    }

    /// Continues to parse. An error is the reply to the client; the rest of the input cannot be parsed.
    pub(crate) fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<Parsed, String> {
        if self.missing.is_none() {
            match input.first() {
                None => return Ok(Parsed::More),
                Some(b'*') => {}
                Some(_) => return self.inline(input),
            }
            let Some(line) = self.line(input, "too big mbulk count string")? else {
                return Ok(Parsed::More);
            };
            let count: i64 = super::integer(&line[1..]).ok_or("invalid multibulk length")?;
            if count > limits.arguments as i64 {
                let who = if limits.arguments == Limits::UNAUTHENTICATED.arguments {
                    "unauthenticated multibulk length"
                } else {
                    "invalid multibulk length"
                };
                return Err(who.into());
            }
            self.missing = Some(usize::try_from(count).unwrap_or(0));
        }
        while self.missing.is_some_and(|missing| missing > 0) {
            if !self.argument(input, limits)? {
                return Ok(Parsed::More);
            }
        }
        Ok(Parsed::Request(self.at))
    }

    /// Parses one argument; returns `false` if it is incomplete.
    fn argument(&mut self, input: &[u8], limits: &Limits) -> Result<bool, String> {
        let length = if let Some(length) = self.bulk {
            length
        } else {
            let Some(line) = self.line(input, "too big bulk count string")? else {
                return Ok(false);
            };
            if line.first() != Some(&b'$') {
                let got = line.first().copied().unwrap_or(b'\r');
                return Err(format!("expected '$', got '{}'", char::from(got)));
            }
            let length: usize = super::integer(&line[1..])
                .and_then(|length: i64| usize::try_from(length).ok())
                .filter(|length| *length <= limits.bulk || limits.arguments == 10)
                .ok_or("invalid bulk length")?;
            if length > limits.bulk {
                return Err("unauthenticated bulk length".into());
            }
            if self.at + length > limits.request {
                return Err("too big a request".into());
            }
            self.bulk = Some(length);
            length
        };
        if input.len() < self.at + length + 2 {
            return Ok(false);
        }
        self.spans.push(Span { start: self.at, end: self.at + length });
        // As in Redis, the two bytes after it are skipped, whatever they are.
        self.at += length + 2;
        self.bulk = None;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// Returns the next line without its end, if it is complete.
    fn line<'a>(&mut self, input: &'a [u8], too_big: &str) -> Result<Option<&'a [u8]>, String> {
        let rest = &input[self.at..];
        let window = &rest[..rest.len().min(MAX_LINE)];
        let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
            return if rest.len() >= MAX_LINE { Err(too_big.into()) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        self.at += end + 2;
        Ok(Some(&rest[..end]))
    }

    fn inline(&mut self, input: &[u8]) -> Result<Parsed, String> {
        let window = &input[..input.len().min(MAX_LINE)];
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            let long = input.len() >= MAX_LINE;
            return if long { Err("too big inline request".into()) } else { Ok(Parsed::More) };
        };
        let line = &window[..end];
        let words = inline::split(line.strip_suffix(b"\r").unwrap_or(line));
        let words = words.ok_or("unbalanced quotes in request")?;
        for word in &words {
            let start = self.words.len();
            self.words.extend_from_slice(word);
            self.spans.push(Span { start, end: self.words.len() });
        }
        self.is_inline = true;
        Ok(Parsed::Request(end + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bulk: 1 << 20, request: 2 << 20, arguments: 1 << 10 };

    fn all(mut input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
        let (mut parser, mut requests) = (Parser::default(), Vec::new());
        loop {
            match parser.parse(input, &LIMITS) {
                Ok(Parsed::Request(length)) => {
                    requests.push(parser.args(input).iter().map(<[u8]>::to_vec).collect());
                    input = &input[length..];
                    parser.reset();
                }
                Ok(Parsed::More) => return (requests, None),
                Err(error) => return (requests, Some(error)),
            }
        }
    }

    #[test]
    fn arrays_and_lines_are_requests() {
        let (requests, error) =
            all(b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\nPING\r\n  set a  \"b \\x41\" \n\r\n*0\r\n");
        let expected: [&[&[u8]]; 5] =
            [&[b"GET", b"a\r\nbc"], &[b"PING"], &[b"set", b"a", b"b A"], &[], &[]];
        assert_eq!(error, None);
        assert_eq!(requests, expected);
    }

    #[test]
    fn every_cut_waits_and_then_goes_on() {
        let whole = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nb\r\nc\r\n";
        let mut parser = Parser::default();
        for cut in 0..whole.len() {
            assert_eq!(parser.parse(&whole[..cut], &LIMITS), Ok(Parsed::More), "{cut}");
        }
        assert_eq!(parser.parse(whole, &LIMITS), Ok(Parsed::Request(whole.len())));
        assert_eq!(parser.args(whole).at(2), b"b\r\nc");
    }

    #[test]
    fn nonsense_is_refused_before_memory_is_asked_for() {
        let long = vec![b'x'; MAX_LINE + 10];
        let many = [b"*1\r\n$".as_slice(), &vec![b'1'; MAX_LINE]].concat();
        let bad: [(&[u8], &str); 8] = [
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*1000000\r\n", "invalid multibulk length"),
            (b"*1\r\n+OK\r\n", "expected '$', got '+'"),
            (b"*1\r\n$-5\r\n", "invalid bulk length"),
            (b"*1\r\n$99999999\r\n", "invalid bulk length"),
            (b"set \"a\r\n", "unbalanced quotes in request"),
            (&long, "too big inline request"),
            (&many, "too big bulk count string"),
        ];
        for (bytes, error) in bad {
            assert_eq!(all(bytes).1.as_deref(), Some(error));
        }
    }
}
