//! A pool that has its name only when it is complete.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::OpenError;
use crate::newfile::{Temporary, folder_of};
use crate::sys;

use super::{Pool, PoolOptions};

/// The bytes of a zone in which the largest values have room: twice the default.
const LARGE_ZONE: u64 = 8 << 20;

/// A pool in the making, for a program that fills one and then ends: it is durable before it has its name. If
/// it is dropped before that, it is removed, except by a forked child of the process that made it.
///
/// Until then its name is `target` with `.partial` behind it. A kill leaves this file behind, and the next
/// attempt fails because it exists.
#[derive(Debug)]
pub struct FreshPool {
    pool: Arc<Pool>,
    // Dropped after the pool.
    partial: Temporary,
    target: PathBuf,
    replaces: bool,
}

impl FreshPool {
    /// Creates a pool that will be `target`, which must not exist. Nothing is written back while it is
    /// filled.
    ///
    /// # Errors
    /// [`OpenError::AlreadyExists`]; those of [`Pool::create`].
    pub fn create(target: &Path) -> Result<Self, OpenError> {
        if target.exists() {
            return Err(OpenError::AlreadyExists { path: target.into() });
        }
        Self::begin(target, PoolOptions::new(), LARGE_ZONE, false)
    }

    /// Creates a pool that will replace `old`, whose file is `target`, at first with one zone. It takes as many
    /// writers, and blocks as large as the old pool does up to those of the largest values. The old pool, which the
    /// caller keeps open until this one is finished, so that no process writes to it, is there until then, whatever
    /// happens.
    ///
    /// # Errors
    /// Those of [`Pool::create`].
    pub fn replacing(target: &Path, old: &Pool) -> Result<Self, OpenError> {
        let geometry = old.heap.geometry();
        let zone_bytes = geometry.zone_bytes.min(LARGE_ZONE);
        let slots = PoolOptions::new().slots(geometry.slot_count).slot_bytes(geometry.slot_bytes);
        Self::begin(target, slots, zone_bytes, true)
    }

    fn begin(
        target: &Path,
        options: PoolOptions,
        zone_bytes: u64,
        replaces: bool,
    ) -> Result<Self, OpenError> {
        let mut partial = target.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        // One zone to begin with.
        let options = options.size(zone_bytes).zone_bytes(zone_bytes).write_back(false);
        let pool = Arc::new(Pool::create(&partial, &options)?);
        Ok(Self { pool, partial: Temporary::new(partial), target: target.into(), replaces })
    }

    /// Returns the pool, to be filled.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the temporary name.
    #[must_use]
    pub fn partial(&self) -> &Path {
        self.partial.name()
    }

    /// Closes the pool, makes it durable, and gives it its name, durably. A crash leaves the pool that it
    /// replaces, or this one.
    ///
    /// # Errors
    /// `ResourceBusy` if the pool is still in use, `AlreadyExists` if the name is taken; the system's.
    pub fn finish(self) -> io::Result<()> {
        let Self { pool, partial, target, replaces } = self;
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "the new pool is still in use");
        let pool = Arc::into_inner(pool).ok_or_else(busy)?;
        pool.close().map_err(io::Error::other)?;
        File::open(partial.name())?.sync_all()?; // durable before: the name
        if replaces {
            std::fs::rename(partial.name(), &target)?;
        } else {
            sys::rename_new(partial.name(), &target)?;
        }
        partial.end();
        File::open(folder_of(&target))?.sync_all()
    }
}
