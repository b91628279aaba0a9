//! Calls that see the order of all keys: no checker of single keys can judge those.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use super::event::Tag;

/// An end of the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The least key.
    First,
    /// The greatest key.
    Last,
}

impl Side {
    /// Returns the record at this end.
    #[must_use]
    pub fn of(self, records: &BTreeMap<u64, Tag>) -> Option<(u64, Tag)> {
        let end = match self {
            Self::First => records.first_key_value(),
            Self::Last => records.last_key_value(),
        };
        end.map(|(&key, &tag)| (key, tag))
    }
}

/// A call and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// `try_insert` of this record, and whether the key was new.
    Inserted(u64, Tag, bool),
    /// `remove` of this key, and the value that it had.
    Removed(u64, Option<Tag>),
    /// `first_key_value` or `last_key_value`.
    Read(Side, Option<(u64, Tag)>),
    /// `pop_first` or `pop_last`: the record was at the end at one moment, and removed at a later one.
    Popped(Side, Option<(u64, Tag)>),
    /// `is_empty`.
    Empty(bool),
}

/// A call, from its invocation to its return.
#[derive(Clone, Copy)]
pub struct Span {
    /// The thread; for messages only.
    pub thread: usize,
    /// The call with its result.
    pub done: Done,
    /// When it was invoked.
    pub start: u64,
    /// When it returned.
    pub end: u64,
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, done, start, end } = self;
        write!(f, "[{start}..{end}] thread {thread}: {done:?}")
    }
}

/// The calls placed so far, as bits: whole, and pops that have read their end; and the records then.
type Configuration = (u64, u64, BTreeMap<u64, Tag>);

/// Searches for an order of at most 64 calls that explains the result of each.
///
/// # Errors
/// The history, if no order does.
///
/// # Panics
/// If there are more calls.
pub fn check_order(initial: &BTreeMap<u64, Tag>, spans: &[Span]) -> Result<(), String> {
    assert!(spans.len() <= 64, "a short history");
    let all = spans.iter().enumerate().fold(0, |all, (i, _)| all | 1 << i);
    let mut seen: HashSet<Configuration> = HashSet::new();
    let mut todo: Vec<Configuration> = vec![(0, 0, initial.clone())];
    while let Some(now) = todo.pop() {
        if now.0 == all {
            return Ok(());
        }
        if !seen.insert(now.clone()) {
            continue;
        }
        let left = || (0..spans.len()).filter(|i| now.0 >> i & 1 == 0);
        let first_end = left().map(|i| spans[i].end).min().unwrap_or(u64::MAX);
        todo.extend(left().filter(|&i| spans[i].start <= first_end).filter_map(|i| {
            let read = now.1 >> i & 1 != 0;
            let (whole, records) = placed(spans[i].done, read, &now.2)?;
            let bit = |set: bool| u64::from(set) << i;
            Some((now.0 | bit(whole), now.1 | bit(!whole), records))
        }));
    }
    let calls: Vec<String> = spans.iter().map(|span| format!("\n  {span:?}")).collect();
    Err(format!("not linearizable: from {initial:?}{}", calls.concat()))
}

/// Returns the records after a call, or after the first half of a pop, if its result fits; and whether the call
/// is whole.
fn placed(
    done: Done,
    read: bool,
    records: &BTreeMap<u64, Tag>,
) -> Option<(bool, BTreeMap<u64, Tag>)> {
    let mut after = records.clone();
    let (whole, fits) = match done {
        Done::Inserted(key, tag, new) => {
            let is_new = !records.contains_key(&key);
            after.entry(key).or_insert(tag);
            (true, is_new == new)
        }
        Done::Removed(key, was) => (true, after.remove(&key) == was),
        Done::Read(side, end) => (true, side.of(records) == end),
        Done::Empty(empty) => (true, records.is_empty() == empty),
        Done::Popped(_, None) => (true, records.is_empty()),
        Done::Popped(side, Some((key, _))) if !read => {
            (false, side.of(records).is_some_and(|end| end.0 == key))
        }
        Done::Popped(_, Some((key, tag))) => (true, after.remove(&key) == Some(tag)),
    };
    fits.then_some((whole, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(thread: usize, (start, end): (u64, u64), done: Done) -> Span {
        Span { thread, done, start, end }
    }

    /// A smaller key comes, and then the least one goes, during a call with this result.
    fn beside(done: Done) -> Result<(), String> {
        let spans = [
            span(0, (0, 9), done),
            span(1, (1, 2), Done::Inserted(5, 50, true)),
            span(1, (3, 4), Done::Removed(10, Some(1))),
        ];
        check_order(&BTreeMap::from([(10, 1), (20, 2)]), &spans)
    }

    #[test]
    fn a_record_that_never_was_the_first_is_found() {
        for seen in [(5, 50), (10, 1)] {
            assert_eq!(beside(Done::Read(Side::First, Some(seen))), Ok(()));
        }
        beside(Done::Popped(Side::First, Some((5, 50)))).expect("popped last of all");
        for wrong in [Some((20, 2)), Some((10, 2)), None] {
            beside(Done::Read(Side::First, wrong)).expect_err("it never was");
            beside(Done::Popped(Side::First, wrong)).expect_err("it never was");
        }
        beside(Done::Popped(Side::First, Some((10, 1)))).expect_err("removed twice");
        beside(Done::Empty(true)).expect_err("it never was");
        beside(Done::Empty(false)).expect("it always was");
        beside(Done::Read(Side::Last, Some((20, 2)))).expect("all the time");
    }

    #[test]
    fn a_popped_record_was_the_first_before() {
        let spans = [
            span(0, (0, 9), Done::Popped(Side::First, Some((10, 1)))),
            span(1, (1, 2), Done::Inserted(5, 50, true)),
        ];
        check_order(&BTreeMap::from([(10, 1)]), &spans).expect("the smaller one came in between");
        let late = [Span { start: 3, ..spans[0] }, spans[1]];
        check_order(&BTreeMap::from([(10, 1)]), &late).expect_err("it was not the first any more");
    }
}
