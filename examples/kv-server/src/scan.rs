//! `SCAN`, `KEYS`, `RANGE`: keys in order.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use pmindex::{AnyIndex, Index};

use crate::command::Failure;
use crate::resp::{Replies, number};

type Records = AnyIndex<Vec<u8>, Vec<u8>>;

/// How many scans can be under way; the one that rested longest is forgotten.
const MAX_CURSORS: usize = 4096;

/// Where the scans under way go on: the protocol's cursor is a number, the index's a key.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    rests: VecDeque<(u64, Vec<u8>)>,
}

impl Cursors {
    /// The cursor of a scan that goes on after `key`.
    fn rest(&self, key: Vec<u8>) -> u64 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.last += 1;
        let cursor = table.last;
        table.rests.push_back((cursor, key));
        if table.rests.len() > MAX_CURSORS {
            table.rests.pop_front();
        }
        cursor
    }

    fn resume(&self, cursor: u64) -> Option<Vec<u8>> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = table.rests.binary_search_by_key(&cursor, |(cursor, _)| *cursor).ok()?;
        Some(table.rests[at].1.clone())
    }
}

fn syntax() -> Failure {
    Failure::Request("ERR syntax error".into())
}

/// `SCAN cursor [MATCH pattern] [COUNT n]`: up to n keys are looked at, ascending.
pub(crate) fn scan(
    index: &Records,
    cursors: &Cursors,
    cursor: &[u8],
    options: &[Vec<u8>],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (mut pattern, mut count): (Option<&[u8]>, usize) = (None, 10);
    for option in options.chunks(2) {
        match option {
            [name, value] if name.eq_ignore_ascii_case(b"MATCH") => pattern = Some(value),
            [name, value] if name.eq_ignore_ascii_case(b"COUNT") => {
                count = number(value).filter(|n| (1..=100_000).contains(n)).ok_or_else(syntax)?;
            }
            _ => return Err(syntax()),
        }
    }
    let invalid = || Failure::Request("ERR invalid cursor".into());
    let after = match number(cursor).ok_or_else(invalid)? {
        0 => None,
        cursor => Some(cursors.resume(cursor).ok_or_else(invalid)?),
    };
    let lower = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut last = None;
    let (mut seen, mut found) = (0, Vec::new());
    for record in index.range_bounds(lower, Bound::Unbounded) {
        let (key, _) = record?;
        seen += 1;
        if seen == count {
            last = Some(key.clone());
        }
        if pattern.is_none_or(|pattern| matches(pattern, &key)) {
            found.push(key);
        }
        if last.is_some() {
            break;
        }
    }
    let next = last.map_or(0, |key| cursors.rest(key));
    out.array(2)?;
    out.bulk(next.to_string().as_bytes())?;
    strings(&found, out)
}

/// `KEYS pattern`: all keys that match, ascending. Reads only keys with the pattern's literal start.
pub(crate) fn keys(index: &Records, pattern: &[u8], out: &mut impl Write) -> Result<(), Failure> {
    let literal = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    let prefix = &pattern[..literal.unwrap_or(pattern.len())];
    let mut found = Vec::new();
    for record in index.range_bounds(Bound::Included(prefix), Bound::Unbounded) {
        let (key, _) = record?;
        if !key.starts_with(prefix) {
            break;
        }
        if matches(pattern, &key) {
            found.push(key);
        }
    }
    strings(&found, out)
}

/// `RANGE from to [LIMIT n] [REV]`: keys and values from `from` to before `to`, in order. `-` is
/// before every key and `+` behind every key. Redis has no such command: its keys have no order.
pub(crate) fn range(
    index: &Records,
    from: &[u8],
    to: &[u8],
    options: &[Vec<u8>],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (mut limit, mut reverse) = (1000_usize, false);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"REV") {
            reverse = true;
        } else if option.eq_ignore_ascii_case(b"LIMIT") {
            let value = options.next().ok_or_else(syntax)?;
            limit = number(value).filter(|n| *n <= 100_000).ok_or_else(syntax)?;
        } else {
            return Err(syntax());
        }
    }
    let lower = if from == b"-" { Bound::Unbounded } else { Bound::Included(from) };
    let upper = if to == b"+" { Bound::Unbounded } else { Bound::Excluded(to) };
    let mut found = Vec::new();
    if from == b"-" || to == b"+" || from < to {
        let mut records = index.range_bounds(lower, upper);
        while found.len() < 2 * limit {
            let record = if reverse { records.next_back() } else { records.next() };
            let Some(record) = record else { break };
            let (key, value) = record?;
            found.extend([key, value]);
        }
    }
    strings(&found, out)
}

fn strings(strings: &[Vec<u8>], out: &mut impl Write) -> Result<(), Failure> {
    out.array(strings.len())?;
    for string in strings {
        out.bulk(string)?;
    }
    Ok(())
}

/// Whether a key matches a pattern of `*`, `?`, `[a-z]`, `[^a-z]` and `\`. Linear in the product of
/// the lengths.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut p, mut k) = (0, 0);
    // Where to go on if what follows the last `*` does not match: that `*` takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    while k < key.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, k));
            p += 1;
            continue;
        }
        if let Some(length) = one(&pattern[p..], key[k]) {
            p += length;
            k += 1;
            continue;
        }
        let Some((after, taken)) = star else { return false };
        star = Some((after, taken + 1));
        (p, k) = (after, taken + 1);
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How long the pattern's first element is, if it matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let close = rest.iter().skip(1).position(|byte| *byte == b']')? + 1;
            let (negated, class) = match &rest[..close] {
                [b'^', class @ ..] => (true, class),
                class => (false, class),
            };
            (in_class(class, byte) != negated).then_some(close + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

fn in_class(mut class: &[u8], byte: u8) -> bool {
    loop {
        class = match class {
            [] => return false,
            [from, b'-', to, rest @ ..] => {
                if (*from.min(to)..=*from.max(to)).contains(&byte) {
                    return true;
                }
                rest
            }
            [single, rest @ ..] => {
                if *single == byte {
                    return true;
                }
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes = [
            ("*", ""),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hbllo"),
            ("h[a-b]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("*:*:end", "a:b:c:end"),
            ("", ""),
        ];
        for (pattern, key) in yes {
            assert!(matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
        }
        let no = [
            ("h?llo", "hllo"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("*:end", "a:ends"),
            ("", "a"),
            ("[", "a"),
            ("[a", "a"),
        ];
        for (pattern, key) in no {
            assert!(!matches(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_exponential_time() {
        let pattern = b"*a".repeat(500);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &[b'a'; 2000]));
    }

    #[test]
    fn cursors_rest_and_the_oldest_are_forgotten() {
        let cursors = Cursors::default();
        let first = cursors.rest(b"first".to_vec());
        assert_eq!(cursors.resume(first).as_deref(), Some(&b"first"[..]));
        for _ in 0..MAX_CURSORS {
            cursors.rest(b"other".to_vec());
        }
        assert_eq!(cursors.resume(first), None);
        assert!(cursors.resume(first + 1).is_some());
        assert_eq!(cursors.resume(u64::MAX), None);
    }
}
