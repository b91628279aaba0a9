//! Reads the entries of the log.

use std::collections::BTreeMap;

use pmindex_core::{Medium, PmError};
use pmindex_log::{Found, Position};

use crate::layout::{APPLIED, NONE, RECORD, SETTLED};
use crate::record::{Group, corrupt, groups_of};

/// The position of the record of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    pub(crate) number: u64,
    pub(crate) lane: usize,
    pub(crate) position: Position,
}

/// A record that was found and is read later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) logged: Logged,
    pub(crate) bytes: u64,
}

/// The record of a commit.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) logged: Logged,
    /// Its changes, or those that are not made yet.
    pub(crate) groups: Vec<Group>,
    /// The bytes of all its changes.
    pub(crate) bytes: u64,
}

/// The meaning of an entry of a lane.
#[derive(Debug)]
pub(crate) enum Said {
    /// A part of a record other than the last, or an entry without meaning here.
    Nothing,
    /// A commit, which took place unless a later entry denies it.
    Commit(Recorded),
    /// All changes of this commit are made.
    Applied(u64),
    /// The changes of this commit in a map are made.
    Settled(u64, Vec<u8>),
    /// This commit did not take place.
    None(u64),
}

/// Reads the entries of a lane, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// A record with missing parts. If the lane continues with something else, it is not a record.
    begun: Option<(Logged, Vec<u8>)>,
}

impl Reading {
    /// Returns `true` if no record is incomplete, so that reading can continue from here.
    pub(crate) fn is_between(&self) -> bool {
        self.begun.is_none()
    }

    /// Reads an entry: its commit, and its meaning.
    pub(crate) fn read<M: Medium>(
        &mut self,
        pm: &M,
        found: &Found<'_>,
    ) -> Result<(u64, Said), PmError> {
        let mut words = found.entry.payload.iter().map(|word| pm.load(word));
        let mut next = || words.next().ok_or(corrupt());
        let number = next()?;
        let begun = self.begun.take();
        let said = match found.entry.tag {
            RECORD => {
                let bytes = next()? as usize;
                let anew = || {
                    let logged = Logged { number, lane: found.lane, position: found.position };
                    (logged, Vec::new())
                };
                let same = begun.filter(|(logged, _)| logged.number == number);
                let (logged, mut record) = same.unwrap_or_else(anew);
                words.for_each(|word| record.extend_from_slice(&word.to_le_bytes()));
                if record.len() < bytes {
                    self.begun = Some((logged, record));
                    Said::Nothing
                } else {
                    record.truncate(bytes); // drops the rest of the last line
                    let (groups, bytes) = (groups_of(&record)?, bytes as u64);
                    Said::Commit(Recorded { logged, groups, bytes })
                }
            }
            APPLIED => Said::Applied(number),
            NONE => Said::None(number),
            SETTLED => {
                let len = next()? as usize;
                let mut name: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                name.truncate(len);
                Said::Settled(number, name)
            }
            _ => return Err(corrupt()),
        };
        Ok((number, said))
    }
}

/// The commits of a lane whose changes may have to be made.
#[derive(Debug, Default)]
pub(crate) struct Unmade(pub(crate) BTreeMap<u64, Recorded>);

impl Unmade {
    /// Processes the next entry of the lane.
    pub(crate) fn follow(&mut self, said: Said) {
        let open = &mut self.0;
        match said {
            Said::Nothing => {}
            // A record that was put again has the same number. The first one stays, as what is said behind the second
            // one may be missing.
            Said::Commit(commit) => _ = open.entry(commit.logged.number).or_insert(commit),
            Said::Applied(number) | Said::None(number) => drop(open.remove(&number)),
            Said::Settled(number, name) => {
                if let Some(commit) = open.get_mut(&number) {
                    commit.groups.retain(|group| group.name.as_bytes() != name);
                    if commit.groups.is_empty() {
                        open.remove(&number);
                    }
                }
            }
        }
    }
}
