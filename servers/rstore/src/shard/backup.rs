//! A backup while the partition serves: a folder that a server can be started on.
//!
//! It holds the state of the partition at one moment, and is written in slices between the turns of the event
//! loop.

use std::path::PathBuf;

use pmindex_rstore::Partition;

use super::{Folder, Shard};

/// A backup of one partition in progress.
#[derive(Debug)]
pub(crate) struct Backup {
    /// `None` when it has ended.
    source: Option<pmindex_rstore::Backup>,
    target: Option<Partition>,
    path: PathBuf,
    records: u64,
}

impl Shard {
    /// Begins a backup of the present state into a folder.
    pub(crate) fn backup(&mut self, folder: &Folder) -> Result<Backup, String> {
        self.store.alone()?;
        let target = folder.copy(self.place.number)?;
        let source = self.store.alone()?.backup().map_err(|error| error.to_string())?;
        self.staged = false;
        let path = folder.pool(self.place.number);
        Ok(Backup { source: Some(source), target: Some(target), path, records: 0 })
    }

    /// Writes a slice; returns `true` after the last one.
    pub(crate) fn back_up(&mut self, backup: &mut Backup) -> Result<bool, String> {
        let (Some(source), Some(target)) = (&mut backup.source, &mut backup.target) else {
            return Err("the backup is over".into());
        };
        let (mut written, mut records) = (Ok(()), 0);
        let engine = self.store.alone()?;
        let more = engine.back_up(source, &mut |key, value, expires| {
            if written.is_ok() {
                written = target.put(key, value, expires);
                records += 1;
            }
        });
        let more = more.map_err(|error| error.to_string())?;
        written.and_then(|()| target.commit()).map_err(|error| error.to_string())?;
        backup.records += records;
        if !more {
            self.end_backup(backup);
        }
        Ok(!more)
    }

    /// Ends a backup, complete or not.
    pub(crate) fn end_backup(&mut self, backup: &mut Backup) {
        if let Some(source) = backup.source.take()
            && let Ok(engine) = self.store.alone()
        {
            engine.end_backup(source);
        }
    }
}

impl Backup {
    /// Closes the copy and waits until it is durable; returns the number of its records.
    pub(crate) fn seal(mut self) -> Result<u64, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        if let Some(target) = self.target.take() {
            let pool = std::sync::Arc::clone(target.pool());
            target.close().map_err(|error| text(&error))?;
            if let Some(pool) = std::sync::Arc::into_inner(pool) {
                pool.close().map_err(|error| text(&error))?;
            }
        }
        let synced = std::fs::File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(|error| format!("{}: {error}", self.path.display()))?;
        Ok(self.records)
    }
}
