//! Putting the records of interrupted commits again.
//!
//! A commit that a crash interrupted needs its record until all its maps were opened, which may be never. A lane frees its
//! segments from the oldest one on, so it would keep all entries behind the record. When these are many, the record is
//! written again, as it is, at the end of the lane, with what was said about it:
//!
//! ```text
//! step  store                                              durable before
//! P1    settled, of no map                                 P2
//! P2    the record, with the same number                   P3
//! P3    settled, for each map whose changes are made       the old record is no longer needed (LIN, DUR)
//! ```
//!
//! One fence is for all; entries of a lane become durable in their order. A crash leaves the old record, and a part of
//! these. An incomplete record is none (P1 keeps it apart from a further one of the same number), and of two records of a
//! commit the first one counts. When the last map is opened, *applied* ends both. The watches find the same commit.

use pmindex_core::Medium;
use pmindex_index::IndexError;
use pmindex_log::{LINE_BYTES, Log, Position, usual_lines};

use crate::layout::SETTLED;
use crate::reading::{Logged, Reading, Recorded, Said};
use crate::record::{Group, Record, corrupt};
use crate::redo::{Redo, free_abandoned, words_of_name};

/// A lane may have this many segments behind the records in any case.
const SEGMENTS: u64 = 2;
/// The entries behind the records may take this many times their bytes.
const TIMES: u64 = 4;
/// Records of a greater part of the log are not written again.
const PART: u64 = 4;

impl<M: Medium> Redo<M> {
    /// Writes the records of the interrupted commits of a lane again, if there is much behind them.
    #[cold]
    pub(crate) fn renew(&self, log: &Log<M>, lane: usize) -> Result<(), IndexError> {
        // Or another thread has them, or this one settles them.
        let Some(mut interrupted) = self.interrupted.try_lock() else { return Ok(()) };
        let mut all: Vec<_> =
            interrupted.iter_mut().filter(|commit| commit.logged.lane == lane).collect();
        let Some(first) = all.iter().map(|commit| commit.logged.position).min() else {
            return Ok(());
        };
        let mut renewed = self.renewed.lock();
        let from = first.max(renewed[lane]).sequence();
        let behind =
            log.segments().iter().filter(|known| known.lane == lane && known.sequence >= from);
        let behind: u64 = behind.map(|known| LINE_BYTES * u64::from(known.lines)).sum();
        let segment = LINE_BYTES * u64::from(usual_lines(log.pool()));
        let most = segment * u64::from(log.segments().capacity());
        let bytes: u64 = all.iter().map(|commit| commit.bytes).sum();
        if bytes > most / PART || behind < (TIMES * bytes + SEGMENTS * segment).min(most / 2) {
            return Ok(());
        }
        renewed[lane] = log.tail(lane); // also if it fails: the next time is as far away
        drop(renewed);
        let put = self.put_again(log, lane, &all);
        if put.is_err() {
            free_abandoned(log, lane)?;
        }
        for (commit, position) in all.iter_mut().zip(put?) {
            commit.logged = Logged { position, ..commit.logged };
            self.pending.insert(commit.logged); // instead of the old one
        }
        Ok(())
    }

    /// Writes these records at the end of their lane; returns their positions.
    fn put_again(
        &self,
        log: &Log<M>,
        number: usize,
        all: &[&mut Recorded],
    ) -> Result<Vec<Position>, IndexError> {
        let mut lane = log.lane_at(number);
        let mut positions = Vec::with_capacity(all.len());
        for commit in all {
            let (number, groups) = (commit.logged.number, all_groups(log, commit.logged)?);
            let mut record = Record::default();
            for group in &groups {
                group.write(&mut record);
            }
            lane.push(SETTLED, [&[number], &words_of_name("")])?; // P1
            let (words, bytes) = (record.words(), record.len() as u64);
            positions.push(self.push(&mut lane, number, (&words, bytes), &mut false)?); // P2
            for group in groups {
                if commit.groups.iter().all(|left| left.name != group.name) {
                    lane.push(SETTLED, [&[number], &words_of_name(&group.name)])?; // P3
                }
            }
        }
        lane.commit()?;
        Ok(positions)
    }
}

/// Reads a record from the log.
fn all_groups<M: Medium>(log: &Log<M>, logged: Logged) -> Result<Vec<Group>, IndexError> {
    let mut reading = Reading::default();
    for entry in log.read(logged.lane, logged.position) {
        match reading.read(log.pool().pm(), &entry?)? {
            (number, Said::Commit(commit)) if number == logged.number => {
                return Ok(commit.groups);
            }
            _ => {}
        }
    }
    Err(corrupt().into())
}
