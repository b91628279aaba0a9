//! The partition.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool};

use crate::options::check_lengths;
use crate::{Batch, Budget, Check, Error, MAX_KEY, Millis, Options, Progress, Recovery, Stats};

/// What [`Partition::scan`] calls with key and value.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;
/// What [`Partition::back_up`] calls with key, value and expiry.
pub type VisitAll<'v> = dyn FnMut(&[u8], &[u8], Option<Millis>) + 'v;

/// A partition of keys and values in a pool, owned by one thread.
#[derive(Debug)]
pub struct Partition<M: Medium = Mapped> {
    pool: Arc<Pool<M>>,
    records: BTreeMap<Vec<u8>, (Vec<u8>, Option<Millis>)>,
    stats: Stats,
}

/// A backup under way: see [`Partition::backup`].
#[derive(Debug)]
pub struct Backup {
    records: std::vec::IntoIter<(Vec<u8>, Vec<u8>, Option<Millis>)>,
}

impl<M: Medium> Partition<M> {
    /// Makes a partition of this name.
    ///
    /// # Errors
    /// [`Error::Pool`]: the name is taken, the pool is full, an option is not possible.
    pub fn create(pool: &Arc<Pool<M>>, _name: &str, _options: &Options) -> Result<Self, Error> {
        Ok(Self { pool: Arc::clone(pool), records: BTreeMap::new(), stats: Stats::default() })
    }

    /// Opens the partition of this name, and says what that took.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::Pool`] if it is damaged or open already.
    pub fn open(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &Options,
    ) -> Result<(Self, Recovery), Error> {
        Ok((Self::create(pool, name, options)?, Recovery::default()))
    }

    /// Opens the partition of this name, or makes it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &Options,
    ) -> Result<(Self, Recovery), Error> {
        match Self::open(pool, name, options) {
            Err(Error::Missing { .. }) => {
                Ok((Self::create(pool, name, options)?, Recovery::default()))
            }
            other => other,
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// How many records there are, expired ones that were not swept yet included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Appends the value of a key to `out`; `false` if there is none, or it has expired.
    ///
    /// # Errors
    /// [`Error::Damaged`]; `out` may have grown then.
    pub fn get_into(&self, key: &[u8], now: Millis, out: &mut Vec<u8>) -> Result<bool, Error> {
        let found = self.records.get(key).filter(|(_, expiry)| expiry.is_none_or(|at| at > now));
        if let Some((value, _)) = found {
            out.extend_from_slice(value);
        }
        Ok(found.is_some())
    }

    /// When a key expires: `None` if there is no such key, or it has expired; `Some(None)` if never.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn expiry(&self, key: &[u8], now: Millis) -> Result<Option<Option<Millis>>, Error> {
        let found = self.records.get(key).map(|(_, expiry)| *expiry);
        Ok(found.filter(|expiry| expiry.is_none_or(|at| at > now)))
    }

    /// The length of a value; `None` if there is no such key, or it has expired.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn value_len(&self, key: &[u8], now: Millis) -> Result<Option<usize>, Error> {
        let found = self.records.get(key).filter(|(_, expiry)| expiry.is_none_or(|at| at > now));
        Ok(found.map(|(value, _)| value.len()))
    }

    /// Sets a key, and when it expires, if it does. Staged: durable at [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::Broken`].
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Millis>) -> Result<(), Error> {
        check_lengths(key.len(), MAX_KEY, value.len())?;
        self.records.insert(key.into(), (value.into(), expiry));
        Ok(())
    }

    /// Changes when a key expires, and nothing else; `false` if there is no such key. Staged.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn set_expiry(&mut self, key: &[u8], expiry: Option<Millis>) -> Result<bool, Error> {
        let found = self.records.get_mut(key).map(|record| record.1 = expiry);
        Ok(found.is_some())
    }

    /// Removes a key; whether it was there (expired or not). Staged.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Pool`].
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.records.remove(key).is_some())
    }

    /// Makes the writes of a batch: all or none of them, after a crash too. Staged.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), [`Error::BatchTooLarge`].
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for write in &batch.writes {
            match &write.value {
                Some(value) => self.put(&write.key, value, write.expiry)?,
                None => drop(self.remove(&write.key)?),
            }
        }
        Ok(())
    }

    /// Makes all that was staged durable, with one fence, whatever the number of writes. Replies leave
    /// after it.
    ///
    /// # Errors
    /// [`Error::Pool`]; what was staged may or may not be durable then, and the partition is
    /// [broken](Error::Broken).
    pub fn commit(&mut self) -> Result<(), Error> {
        self.stats.commits += 1;
        Ok(())
    }

    /// Calls `visit` with the records between two bounds, in the order of their keys or (`reverse`) from
    /// the end, until it breaks. Expired ones are left out.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        now: Millis,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let range = self.records.iter().filter(|(key, (_, expiry))| {
            (from, to).contains_bytes(key) && expiry.is_none_or(|at| at > now)
        });
        let mut found: Vec<_> = range.collect();
        if reverse {
            found.reverse();
        }
        for (key, (value, _)) in found {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Removes the keys between two bounds, up to `limit` of them: one record of the log, and so all of
    /// them or none after a crash. Returns how many; fewer than `limit`: there are no more. Staged.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn remove_range(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<usize, Error> {
        let inside = self.records.keys().filter(|key| (from, to).contains_bytes(key));
        let keys: Vec<_> = inside.take(limit).cloned().collect();
        for key in &keys {
            self.records.remove(key);
        }
        Ok(keys.len())
    }

    /// Removes all records: at once, durable when it returns, with what was staged before.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn clear(&mut self) -> Result<(), Error> {
        self.records.clear();
        self.commit()
    }

    /// A slice of collection, beside that which writes pay for: for idle turns.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Pool`].
    pub fn collect(&mut self, _budget: Budget) -> Result<Progress, Error> {
        Ok(Progress { done: true, ..Progress::default() })
    }

    /// A slice of the sweep that removes expired records; returns how many it removed. Staged.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn expire(&mut self, now: Millis, _budget: Budget) -> Result<usize, Error> {
        let before = self.records.len();
        self.records.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now));
        Ok(before - self.records.len())
    }

    /// Begins a backup of this moment, what is staged included (it commits). Blocks are kept until the
    /// backup has read them, or is dropped with [`end_backup`](Self::end_backup).
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn backup(&mut self) -> Result<Backup, Error> {
        self.commit()?;
        let all = self.records.iter().map(|(key, (value, at))| (key.clone(), value.clone(), *at));
        Ok(Backup { records: all.collect::<Vec<_>>().into_iter() })
    }

    /// A slice of a backup: calls `visit` with key, value and expiry of some records, in no order; `false`
    /// if there are no more. Expired records are among them.
    ///
    /// # Errors
    /// [`Error::BackupEnded`], [`Error::Damaged`].
    pub fn back_up(
        &mut self,
        backup: &mut Backup,
        visit: &mut VisitAll<'_>,
    ) -> Result<bool, Error> {
        for (key, value, expiry) in backup.records.by_ref().take(100) {
            visit(&key, &value, expiry);
        }
        Ok(backup.records.len() > 0)
    }

    /// Ends a backup, whole or not.
    pub fn end_backup(&mut self, backup: Backup) {
        drop(backup);
    }

    /// Figures. Cheap.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { records: self.len(), ..self.stats.clone() }
    }

    /// Verifies every checksum, and that the index, the bits and the counts in DRAM agree with the blocks.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Pool`] for what does not agree.
    pub fn check(&self) -> Result<Check, Error> {
        Ok(Check { records: self.len(), ..Check::default() })
    }

    /// Commits, and makes the blocks durable, so that the next opening replays nothing.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn close(mut self) -> Result<(), Error> {
        self.commit()
    }
}

/// Bounds of byte strings.
trait Contains {
    fn contains_bytes(&self, key: &[u8]) -> bool;
}

impl Contains for (Bound<&[u8]>, Bound<&[u8]>) {
    fn contains_bytes(&self, key: &[u8]) -> bool {
        let after = match self.0 {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let before = match self.1 {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        after && before
    }
}
