//! `Pool::sync` in each mode, on a disk that fails on command.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use pmindex_wal::sim::SimDisk;

use super::{Place, add, tiny, value_of};
use crate::error::PmError;
use crate::media::PoolDisk;
use crate::pool::journal::simulated::DISKS;
use crate::pool::{Pool, PoolOptions};

thread_local! {
    /// The number of synchronisations of this thread, and whether the next one fails.
    static SYNCS: Cell<u32> = const { Cell::new(0) };
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Keeps a copy of the last synchronised state beside the file.
#[derive(Debug)]
struct Watched(PathBuf);

impl PoolDisk for Watched {
    fn sync(&self) -> io::Result<()> {
        self.sync_by(&mut || Ok(()))
    }

    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        SYNCS.set(SYNCS.get() + 1);
        if FAILS.replace(false) {
            return Err(io::Error::from_raw_os_error(5));
        }
        sync()?;
        fs::copy(&self.0, durable(&self.0)).map(drop)
    }
}

/// Returns the least state that survives a power failure.
fn durable(path: &std::path::Path) -> PathBuf {
    path.with_file_name("durable")
}

/// Records the synchronisations of `calls`.
fn watched<R>(place: &Place, calls: impl FnOnce() -> R) -> R {
    let path = Rc::new(place.path());
    let disk = move || -> Box<dyn PoolDisk> { Box::new(Watched(path.to_path_buf())) };
    SYNCS.set(0);
    DISKS.set(Some((Box::new(|| Box::new(SimDisk::new(4096, 64 * 4096))), Box::new(disk))));
    let result = calls();
    DISKS.set(None);
    result
}

fn without_write_back() -> PoolOptions {
    tiny().as_on_disk(true).write_back(false)
}

fn is_lost(result: &Result<(), PmError>) -> bool {
    matches!(result, Err(PmError::DurabilityLost(_)))
}

#[test]
fn a_file_that_no_fence_writes_back_is_durable_after_sync() {
    for opts in [without_write_back(), tiny().as_on_disk(true).emulate_pm(true)] {
        let Some(place) = Place::tmpfs() else { return };
        let pool = Pool::create(place.path(), &opts).unwrap();
        for (name, value) in [("a", 1), ("b", 2)] {
            add(&pool, name, value).unwrap();
            watched(&place, || pool.sync()).unwrap();
            let left = Pool::open(durable(&place.path()), &opts).unwrap();
            assert_eq!(value_of(&left, name), Some(value));
            drop(left);
        }
        pool.close().unwrap();
    }
}

/// A pool that was closed may be in the caches alone: a copy, or written by a process that synchronises nothing.
#[test]
fn a_pool_that_was_closed_is_durable_before_it_is_opened_in_a_mode_that_needs_that() {
    let plain = tiny().as_on_disk(true);
    let modes = [
        (plain.clone(), true),
        (plain.clone().journal(true).journal_bytes(1 << 20), true),
        (without_write_back(), false),
        (plain.clone().emulate_pm(true), false),
        (plain.clone().read_only(true), false),
    ];
    for (opts, waits) in modes {
        for earlier in [without_write_back(), plain.clone().emulate_pm(true)] {
            let Some(place) = Place::tmpfs() else { return };
            let pool = Pool::create(place.path(), &earlier).unwrap();
            add(&pool, "a", 1).unwrap();
            pool.close().unwrap();
            let pool = watched(&place, || Pool::open(place.path(), &opts)).unwrap();
            assert!(pool.was_clean());
            assert_eq!(SYNCS.get() > 0, waits, "{opts:?}");
            if waits {
                let left = Pool::open(
                    durable(&place.path()),
                    &without_write_back().accept_journal_loss(true),
                )
                .unwrap();
                assert_eq!(value_of(&left, "a"), Some(1));
            }
        }
    }
}

#[test]
fn a_pool_that_was_closed_and_cannot_be_made_durable_is_not_opened() {
    let Some(place) = Place::tmpfs() else { return };
    let pool = Pool::create(place.path(), &without_write_back()).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.close().unwrap();
    let opened = watched(&place, || {
        FAILS.set(true);
        Pool::open(place.path(), &tiny().as_on_disk(true))
    });
    assert!(opened.unwrap_err().to_string().contains("durable"));
    let pool = Pool::open(place.path(), &tiny().as_on_disk(true)).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn a_sync_that_failed_is_never_followed_by_one_that_succeeds() {
    let Some(place) = Place::tmpfs() else { return };
    for grows in [false, true] {
        let pool = Pool::open_or_create(place.path(), &without_write_back()).unwrap();
        watched(&place, || {
            pool.sync().unwrap();
            FAILS.set(true);
            if grows {
                // Growing reported the failure; it is not reported again.
                assert!(pool.grow(pool.len() + 1).is_err());
            } else {
                assert!(is_lost(&pool.sync()));
            }
            let before = SYNCS.get();
            assert!(is_lost(&pool.sync()) && is_lost(&pool.sync()));
            assert_eq!(SYNCS.get(), before, "nor is it tried");
        });
        // The process sees its own stores.
        add(&pool, &grows.to_string(), 1).unwrap();
        pool.close().unwrap();
    }
}

#[test]
fn where_fences_wait_nothing_is_left_to_do_and_a_lost_disk_is_told() {
    for opts in
        [tiny().as_on_disk(true), tiny().as_on_disk(true).journal(true).journal_bytes(1 << 20)]
    {
        let Some(place) = Place::tmpfs() else { return };
        let pool = Pool::create(place.path(), &opts).unwrap();
        add(&pool, "a", 1).unwrap();
        watched(&place, || pool.sync().unwrap());
        assert_eq!(SYNCS.get(), 0);
        pool.pm().fail_write_back_after(0);
        assert!(is_lost(&add(&pool, "b", 2).map(drop)));
        assert!(is_lost(&pool.sync()));
    }
}

#[test]
fn where_there_is_no_medium_there_is_nothing_to_wait_for() {
    Pool::volatile(1 << 20).unwrap().sync().unwrap();
    Pool::emulated(1 << 20).unwrap().sync().unwrap();
    let place = Place::new().with_pool();
    let pool = Pool::open(place.path(), &tiny().read_only(true)).unwrap();
    watched(&place, || pool.sync().unwrap());
    assert_eq!(SYNCS.get(), 0);
}
