//! Backups: one moment of a partition, in slices, while it is written to.
//!
//! Records are never changed where they are, so a moment is which of them were live: a copy of the bits.
//! Blocks that a backup has not read are not made void, and large values are not freed, until it has, or
//! has ended. A partition that needs the space ends the backup instead of refusing a write.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use pmindex_core::Medium;

use crate::blocks::{Location, State, is_among};
use crate::layout::HEADER;
use crate::partition::Partition;
use crate::record::{TOMBSTONE, pull_bytes};
use crate::{Error, Millis};

/// What [`Partition::back_up`] calls with key, value and expiry.
pub type VisitAll<'v> = dyn FnMut(&[u8], &[u8], Option<Millis>) + 'v;

/// A backup under way: see [`Partition::backup`]. Dropping it ends it.
#[derive(Debug)]
pub struct Backup {
    token: Arc<()>,
    /// Blocks that are not read yet, and which of their records were live.
    blocks: Vec<(u32, Box<[u64]>, u32)>,
    lsn: u64,
}

impl Backup {
    /// The last write that the backup has.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Blocks that are not read yet.
    #[must_use]
    pub fn blocks_left(&self) -> usize {
        self.blocks.len()
    }
}

/// What a partition knows of a backup.
#[derive(Debug)]
pub(crate) struct Running {
    token: Weak<()>,
    unread: HashSet<u32>,
}

impl<M: Medium> Partition<M> {
    /// Begins a backup of this moment, what is staged included (it commits). Blocks are kept until the
    /// backup has read them or is dropped. There may be several.
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
            .filter(|(_, block)| has_records(block.state) && block.live > 0)
            .map(|(place, block)| (place, block.bits().into(), block.used))
            .collect();
        let unread = blocks.iter().map(|(place, ..)| *place).collect();
        self.running.push(Running { token: Arc::downgrade(&token), unread });
        Ok(Backup { token, blocks, lsn: self.lsn })
    }

    /// A slice of a backup: calls `visit` with key, value and expiry of the records of one block, in no
    /// order; `false` if there are no more. Expired records are among them.
    ///
    /// # Errors
    /// [`Error::BackupEnded`], [`Error::Damaged`].
    ///
    /// # Cost
    /// Reads a block, and its large values.
    pub fn back_up(
        &mut self,
        backup: &mut Backup,
        visit: &mut VisitAll<'_>,
    ) -> Result<bool, Error> {
        let token = Arc::downgrade(&backup.token);
        let running = self.running.iter().position(|running| running.token.ptr_eq(&token));
        let Some(running) = running else { return Err(Error::BackupEnded) };
        let Some((place, bits, used)) = backup.blocks.pop() else { return Ok(false) };
        let (mut words, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let mut word = HEADER as u32;
        while word < used {
            let at = Location::new(place, word);
            let (head, cells) = self.blocks.record(at)?;
            let next = word + cells.len() as u32;
            if is_among(&bits, word) && !head.has(TOMBSTONE) {
                let parts = self.blocks.read(at, &mut words)?;
                key.clear();
                value.clear();
                parts.push_key(&mut key);
                match parts.large() {
                    Some(large) => self.read_large(large, head.value_len, &mut value)?,
                    None => pull_bytes(parts.value(), head.value_len, &mut value),
                }
                visit(&key, &value, parts.expiry());
            }
            word = next;
        }
        self.running[running].unread.remove(&place);
        if backup.blocks.is_empty() {
            self.running.swap_remove(running);
            return Ok(false);
        }
        Ok(true)
    }

    /// Ends a backup, whole or not.
    pub fn end_backup(&mut self, backup: Backup) {
        drop(backup);
        self.running.retain(|running| running.token.strong_count() > 0);
    }

    /// Whether a backup has a block to read.
    pub(crate) fn is_pinned(&self, place: u32) -> bool {
        self.running
            .iter()
            .any(|running| running.token.strong_count() > 0 && running.unread.contains(&place))
    }

    /// Whether there is a backup.
    pub(crate) fn is_backing_up(&self) -> bool {
        self.running.iter().any(|running| running.token.strong_count() > 0)
    }

    /// Ends all backups, for the space that they hold; whether there was one.
    pub(crate) fn end_backups(&mut self) -> bool {
        let had = self.is_backing_up();
        self.running.clear();
        had
    }
}
