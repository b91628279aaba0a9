//! Replies that wait for other partitions, in the order of their requests.

use std::collections::VecDeque;

use crate::command::Gather;
use crate::shard::Folder;
use crate::wire::{Protocol, Reply, Shape};

/// The way to combine the parts of a reply.
#[derive(Debug)]
pub(super) enum Then {
    /// Joins them; mostly there is one.
    Join,
    Gather(Gather),
    /// Distributes values; for each part, the positions of its values.
    Values(Vec<Vec<usize>>),
    /// Merges rows of keys and values: how many, in which direction, and how many words belong to a key.
    Merge {
        limit: usize,
        reverse: bool,
        words: usize,
    },
    /// Keeps the versions of keys that are watched now.
    Watch,
    /// Joins lines of text.
    Text,
    /// Replies that all have saved.
    Saved,
    /// Replies that all have flushed, to a client of memcached.
    Flushed,
    /// Completes the folder of a backup with its manifest.
    Backup(Folder),
    /// Replies nothing.
    Quiet,
}

#[derive(Debug)]
enum Slot {
    Ready(Vec<u8>),
    Waiting { parts: Vec<Option<Vec<u8>>>, missing: usize, then: Then },
}

/// The replies that a connection owes.
#[derive(Debug, Default)]
pub(super) struct Slots {
    owed: VecDeque<Slot>,
    /// The number of the first slot.
    first: u64,
    /// The bytes of the replies, and of those parts that are known.
    bytes: usize,
}

/// The outcome of a finished slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finished {
    Reply,
    /// The versions of watched keys, in the order of the requests.
    Versions(Vec<u64>),
}

impl Slots {
    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.owed.len()
    }

    /// Returns the bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes a slot for a reply of several parts; returns its number.
    pub(super) fn wait(&mut self, parts: usize, then: Then) -> u64 {
        self.owed.push_back(Slot::Waiting { parts: vec![None; parts], missing: parts, then });
        self.first + self.owed.len() as u64 - 1
    }

    /// Appends a complete reply behind those that wait.
    pub(super) fn ready(&mut self, reply: Vec<u8>) {
        self.bytes += reply.len();
        if let Some(Slot::Ready(last)) = self.owed.back_mut() {
            last.extend_from_slice(&reply);
        } else {
            self.owed.push_back(Slot::Ready(reply));
        }
    }

    /// Takes a part. Returns the outcome of the slot if it was the last part.
    pub(super) fn done(
        &mut self,
        number: u64,
        part: usize,
        bytes: Vec<u8>,
        protocol: Protocol,
    ) -> Option<Finished> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.owed.get_mut(at)?;
        let Slot::Waiting { parts, missing, then } = slot else { return None };
        self.bytes += bytes.len();
        parts[part] = Some(bytes);
        *missing -= 1;
        if *missing > 0 {
            return None;
        }
        let parts: Vec<_> = parts.drain(..).flatten().collect();
        let mut finished = Finished::Reply;
        let reply = match then {
            Then::Watch => {
                finished = Finished::Versions(parts.iter().map(|part| count(part)).collect());
                b"+OK\r\n".to_vec()
            }
            then => combine(then, &parts, protocol),
        };
        self.bytes -= parts.iter().map(Vec::len).sum::<usize>();
        self.bytes += reply.len();
        *slot = Slot::Ready(reply);
        Some(finished)
    }

    /// Moves the replies that are next into `out`.
    pub(super) fn release(&mut self, out: &mut Vec<u8>) {
        while let Some(Slot::Ready(_)) = self.owed.front() {
            if let Some(Slot::Ready(reply)) = self.owed.pop_front() {
                self.first += 1;
                self.bytes -= reply.len();
                if out.is_empty() {
                    *out = reply;
                } else {
                    out.extend_from_slice(&reply);
                }
            }
        }
    }
}

/// Returns the number in an integer reply.
fn count(reply: &[u8]) -> u64 {
    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Combines several replies; the first error is the reply, if there is one.
fn combine(then: &Then, parts: &[Vec<u8>], protocol: Protocol) -> Vec<u8> {
    if !matches!(then, Then::Join | Then::Text | Then::Quiet)
        && let Some(error) = parts.iter().find(|part| part.starts_with(b"-"))
    {
        return error.clone();
    }
    let mut reply = Reply::new(protocol);
    match then {
        Then::Join => reply.bytes = parts.concat(),
        Then::Text => reply.verbatim(&String::from_utf8_lossy(&parts.concat())),
        Then::Quiet => {}
        Then::Gather(Gather::Sum) | Then::Watch => {
            let sum: u64 = parts.iter().map(|part| count(part)).sum();
            reply.integer(sum.cast_signed());
        }
        Then::Gather(Gather::Ok) | Then::Saved => reply.ok(),
        Then::Flushed => reply.bytes.extend_from_slice(b"OK\r\n"),
        Then::Backup(folder) => match folder.write_manifest() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&format!("ERR backup: {error}")),
        },
        Then::Gather(Gather::Any) => {
            let null: &[&[u8]] = &[b"$-1\r\n", b"_\r\n"];
            let mut found = parts.iter().filter(|part| !null.contains(&part.as_slice()));
            match found.next() {
                Some(part) => reply.bytes.clone_from(part),
                None => reply.null(),
            }
        }
        Then::Gather(_) => {
            let rows: Vec<_> = parts.iter().map(|part| row(part)).collect();
            reply.head(Shape::Array, rows.iter().map(Vec::len).sum());
            for item in rows.iter().flatten() {
                reply.bytes.extend_from_slice(item);
            }
        }
        Then::Values(places) => {
            let mut values: Vec<&[u8]> = vec![b""; places.iter().map(Vec::len).sum()];
            for (places, part) in places.iter().zip(parts) {
                for (place, value) in places.iter().zip(row(part)) {
                    values[*place] = value;
                }
            }
            reply.array(values.len());
            for value in &values {
                reply.bytes.extend_from_slice(value);
            }
        }
        Then::Merge { limit, reverse, words } => {
            let mut all: Vec<Vec<&[u8]>> = Vec::new();
            for part in parts {
                all.extend(row(part).chunks(*words).map(<[&[u8]]>::to_vec));
            }
            all.sort_by(|one, two| key_of(one[0]).cmp(key_of(two[0])));
            if *reverse {
                all.reverse();
            }
            all.truncate(*limit);
            reply.array(all.len() * words);
            for item in all.iter().flatten() {
                reply.bytes.extend_from_slice(item);
            }
        }
    }
    reply.bytes
}

/// Returns the bytes of a bulk string.
fn key_of(item: &[u8]) -> &[u8] {
    let begin = item.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &item[begin..item.len().saturating_sub(2).max(begin)]
}

/// Returns the items of an array of bulk strings and nulls, in their encoded form.
fn row(reply: &[u8]) -> Vec<&[u8]> {
    let (mut items, mut rest) = (Vec::new(), reply);
    let line_end = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    let Some(head) = line_end(rest) else { return items };
    rest = &rest[head..];
    while let Some(header) = line_end(rest) {
        let digits = rest.get(1..header - 2).and_then(|digits| std::str::from_utf8(digits).ok());
        let length = digits.and_then(|digits| digits.parse::<usize>().ok());
        let end = match (rest[0], length) {
            (b'$', Some(length)) => header + length + 2,
            _ => header,
        };
        let Some((item, after)) = rest.split_at_checked(end) else { break };
        items.push(item);
        rest = after;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(then: Then, parts: &[&str]) -> String {
        let mut slots = Slots::default();
        let number = slots.wait(parts.len(), then);
        slots.ready(b"+after\r\n".to_vec());
        for (part, bytes) in parts.iter().enumerate().rev() {
            let mut out = Vec::new();
            slots.release(&mut out);
            assert!(out.is_empty(), "nothing leaves before its turn");
            slots.done(number, part, bytes.as_bytes().to_vec(), Protocol::Resp2);
        }
        let mut out = Vec::new();
        slots.release(&mut out);
        assert!(slots.is_empty());
        String::from_utf8(out).expect("text").replace("\r\n", "|").replace("+after|", "")
    }

    #[test]
    fn parts_become_one_reply() {
        assert_eq!(whole(Then::Gather(Gather::Sum), &[":2\r\n", ":40\r\n"]), ":42|");
        assert_eq!(whole(Then::Gather(Gather::Sum), &[":2\r\n", "-ERR x\r\n"]), "-ERR x|");
        assert_eq!(
            whole(
                Then::Values(vec![vec![0, 2], vec![1]]),
                &["*2\r\n$1\r\na\r\n$-1\r\n", "*1\r\n$2\r\nb\n\r\n"]
            ),
            "*3|$1|a|$2|b\n|$-1|"
        );
        assert_eq!(
            whole(Then::Gather(Gather::Concat), &["*1\r\n$1\r\na\r\n", "*0\r\n"]),
            "*1|$1|a|"
        );
        assert_eq!(
            whole(
                Then::Merge { limit: 2, reverse: true, words: 1 },
                &["*2\r\n$1\r\na\r\n$1\r\nc\r\n", "*1\r\n$1\r\nb\r\n"]
            ),
            "*2|$1|c|$1|b|"
        );
        assert_eq!(whole(Then::Gather(Gather::Any), &["$-1\r\n", "$1\r\nk\r\n"]), "$1|k|");
    }

    #[test]
    fn what_comes_for_a_slot_that_is_over_is_ignored() {
        let mut slots = Slots::default();
        let number = slots.wait(1, Then::Watch);
        let versions = slots.done(number, 0, b":7\r\n".to_vec(), Protocol::Resp2);
        assert_eq!(versions, Some(Finished::Versions(vec![7])));
        slots.release(&mut Vec::new());
        assert_eq!(slots.done(number, 0, Vec::new(), Protocol::Resp2), None);
    }
}
