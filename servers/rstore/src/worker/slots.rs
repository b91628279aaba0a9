//! Replies that wait for other partitions, in the order of their requests.

use std::collections::VecDeque;

use crate::command::Gather;
use crate::shard::Folder;
use crate::wire::Protocol;

use super::combine;

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
    /// Puts the counts of listeners in their places among the replies of a transaction: the first part has those
    /// of its commands, and that of each thread has its counts.
    Executed(Vec<usize>),
    /// Keeps the versions of keys that are watched now.
    Watch,
    /// Joins lists of names that may be in several of them.
    Names,
    /// Counts the names in such lists.
    CountNames,
    /// Adds the numbers of the listeners of these channels.
    Listeners(Vec<Vec<u8>>),
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
                finished =
                    Finished::Versions(parts.iter().map(|part| combine::count(part)).collect());
                b"+OK\r\n".to_vec()
            }
            then => combine::combine(then, &parts, protocol),
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
        let executed = |parts: &[&str]| whole(Then::Executed(vec![0, 3]), parts);
        assert_eq!(
            executed(&[
                "*2\r\n*1\r\n%1\r\n$1\r\n*\r\n_\r\n-ERR no\r\n",
                "*2\r\n:1\r\n:0\r\n",
                "*2\r\n:2\r\n:4\r\n"
            ]),
            "*4|:3|*1|%1|$1|*|_|-ERR no|:4|"
        );
        assert_eq!(
            whole(Then::Executed(vec![0]), &["*0\r\n", "*1\r\n:1\r\n", "*1\r\n:2\r\n"]),
            "*1|:3|"
        );
        assert_eq!(whole(Then::Executed(vec![]), &["*1\r\n:7\r\n"]), "*1|:7|");
        assert_eq!(executed(&["*-1\r\n", "", ""]), "*-1|");
        assert_eq!(executed(&["-OOM x\r\n", "", ""]), "-OOM x|");
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
