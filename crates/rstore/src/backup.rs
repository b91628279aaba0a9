//! Backups: a consistent view of a partition, read in slices, while it is written to.
//!
//! Live records are never changed in place, so a copy of the bits that mark them is a snapshot. In blocks
//! that a backup has yet to read no dead record becomes a hole, such blocks are not made void, and large
//! values are not freed, until the backup has read them or ends. If writes need the space, the partition
//! ends the backup instead of refusing them.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use pmindex_core::Medium;

use crate::blocks::{Location, State, first_among, unmark};
use crate::layout::HEADER;
use crate::partition::Partition;
use crate::record::{TOMBSTONE, pull_bytes};
use crate::{Budget, Error, Millis};

/// The callback of [`Partition::back_up`]: key, value and expiry.
pub type VisitAll<'v> = dyn FnMut(&[u8], &[u8], Option<Millis>) + 'v;

/// A backup in progress: see [`Partition::backup`]. Dropping it ends it.
#[derive(Debug)]
pub struct Backup {
    token: Arc<()>,
    /// The blocks that have not been read completely, and their records that were live at the beginning and have not
    /// been read.
    blocks: Vec<(u32, Box<[u64]>, u32)>,
    /// The next word of the last one.
    word: u32,
    lsn: u64,
}

impl Backup {
    /// Returns the LSN of the last write that the backup includes.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Returns the number of blocks that have not been read completely.
    #[must_use]
    pub fn blocks_left(&self) -> usize {
        self.blocks.len()
    }
}

/// The partition's part of a backup.
#[derive(Debug)]
pub(crate) struct Running {
    token: Weak<()>,
    unread: HashSet<u32>,
}

impl<M: Medium> Partition<M> {
    /// Begins a backup of the present state, including staged writes (it commits them). Blocks are kept
    /// until the backup has read them or is dropped. There may be several backups.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    ///
    /// # Cost
    /// A commit, and a copy of the bits: 1 for every 32 bytes of blocks.
    pub fn backup(&mut self) -> Result<Backup, Error> {
        self.commit()?;
        self.running.retain(|running| running.token.strong_count() > 0);
        let token = Arc::new(());
        let has_records =
            |state| matches!(state, State::Open | State::Full | State::Victim | State::Damaged);
        let blocks: Vec<_> = (0..)
            .zip(&self.blocks.list)
            .filter(|(_, block)| has_records(block.state) && first_among(block.bits()).is_some())
            .map(|(place, block)| (place, block.bits().into(), block.used))
            .collect();
        let unread = blocks.iter().map(|(place, ..)| *place).collect();
        self.running.push(Running { token: Arc::downgrade(&token), unread });
        Ok(Backup { token, blocks, word: HEADER as u32, lsn: self.lsn })
    }

    /// Reads a slice of a backup: calls `visit` with key, value and expiry of the records of one block, in
    /// no order, including expired ones. Returns `false` when there is no further block.
    ///
    /// # Errors
    /// [`Error::BackupEnded`]. [`Error::Damaged`]: the backup lacks this record, and those behind it in the block if
    /// lengths are damaged; the next call goes on behind them.
    ///
    /// # Cost
    /// Reads a block, and its large values.
    pub fn back_up(
        &mut self,
        backup: &mut Backup,
        visit: &mut VisitAll<'_>,
    ) -> Result<bool, Error> {
        self.back_up_part(backup, Budget::bytes(u64::MAX), visit)
    }

    /// Reads a slice of a backup like [`back_up`](Self::back_up), but ends it after the record with which
    /// the keys and values have at least the bytes of the budget, or at the end of a block. So a caller
    /// that keeps them has at most the budget, and one more record.
    ///
    /// # Errors
    /// Those of [`back_up`](Self::back_up).
    ///
    /// # Cost
    /// Reads a part of a block, and its large values.
    pub fn back_up_part(
        &mut self,
        backup: &mut Backup,
        budget: Budget,
        visit: &mut VisitAll<'_>,
    ) -> Result<bool, Error> {
        let token = Arc::downgrade(&backup.token);
        let running = self.running.iter().position(|running| running.token.ptr_eq(&token));
        let Some(running) = running else { return Err(Error::BackupEnded) };
        let Some((place, bits, used)) = backup.blocks.last_mut() else { return Ok(false) };
        let (place, used) = (*place, *used);
        let (mut words, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        while backup.word < used && bytes < budget.bytes {
            let at = Location::new(place, backup.word);
            let Ok((head, cells)) = self.blocks.record(at) else {
                backup.word = used; // where the next one begins is not known
                break;
            };
            let is_wanted = unmark(bits, at.word()) && !head.has(TOMBSTONE);
            backup.word += cells.len() as u32; // also if it is damaged
            if is_wanted {
                let parts = self.blocks.read(at, &mut words)?;
                key.clear();
                value.clear();
                parts.push_key(&mut key);
                match parts.large() {
                    Some(large) => self.read_large(large, head.value_len, &mut value)?,
                    None => pull_bytes(parts.value(), head.value_len, &mut value),
                }
                visit(&key, &value, parts.expiry());
                bytes += (key.len() + value.len()) as u64;
            }
        }
        if backup.word < used {
            return Ok(true);
        }
        // A damaged length, of a live record or of a dead one, hides what is behind it.
        if let Some(word) = first_among(bits) {
            bits.fill(0);
            return Err(self.blocks.damaged(Location::new(place, word)));
        }
        backup.blocks.pop();
        backup.word = HEADER as u32;
        self.running[running].unread.remove(&place);
        if backup.blocks.is_empty() {
            self.running.swap_remove(running);
            return Ok(false);
        }
        Ok(true)
    }

    /// Ends a backup, complete or not.
    pub fn end_backup(&mut self, backup: Backup) {
        drop(backup);
        self.running.retain(|running| running.token.strong_count() > 0);
    }

    /// Returns `true` if a backup has yet to read a block.
    pub(crate) fn is_pinned(&self, place: u32) -> bool {
        self.running
            .iter()
            .any(|running| running.token.strong_count() > 0 && running.unread.contains(&place))
    }

    /// Returns `true` if a backup is in progress.
    pub(crate) fn is_backing_up(&self) -> bool {
        self.running.iter().any(|running| running.token.strong_count() > 0)
    }

    /// Ends all backups, to free the space that they hold; returns `true` if there was one.
    pub(crate) fn end_backups(&mut self) -> bool {
        let had = self.is_backing_up();
        self.running.clear();
        had
    }
}
