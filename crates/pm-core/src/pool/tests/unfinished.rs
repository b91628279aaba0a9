//! Openings, creations and operations that fail midway: what they leave behind, and that they return.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::twin::twin_at;
use super::{Place, add, tiny, value_of};
use crate::alloc::MicroLog;
use crate::error::{OpenError, PmError};
use crate::media::GRANTED;
use crate::pool::{Pool, PoolOptions};

/// The modes of a pool in a file.
const MODES: [fn(&Place) -> PoolOptions; 4] = [
    |_| tiny().write_back(false),
    |_| tiny().as_on_disk(true),
    |_| tiny().as_on_disk(true).journal(true).journal_bytes(1 << 20),
    |place| tiny().journal_bytes(1 << 20).twin(twin_at(place)),
];

/// Returns what `call` returns on a thread of its own; panics if it never does.
fn returns<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(call()));
    told.recv_timeout(Duration::from_secs(60)).expect("the call returns")
}

/// Returns the error of an opening to which `granted` threads are granted.
fn refused(opts: &PoolOptions, place: &Place, granted: u32, creates: bool) -> OpenError {
    let (opts, path) = (opts.clone(), place.path());
    returns(move || {
        GRANTED.set(Some(granted));
        let open = if creates { Pool::create } else { Pool::open };
        open(path, &opts).expect_err("a thread is missing")
    })
}

#[test]
fn an_opening_that_fails_in_recovery_leaves_a_pool_that_was_not_closed() {
    for (mode, options) in MODES.into_iter().enumerate() {
        let Some(place) = Place::tmpfs() else { return };
        let opts = options(&place);
        let pool = Pool::create(place.path(), &opts).unwrap();
        add(&pool, "a", 1).unwrap();
        let slots = pool.heap.geometry();
        let at = slots.slots_offset + (slots.slot_count - 1) * slots.slot_bytes;
        pool.kill();
        let file = fs::OpenOptions::new().write(true).open(place.path()).unwrap();
        file.write_all_at(&3u64.to_le_bytes(), at + size_of::<MicroLog>() as u64).unwrap();
        for round in 0..2 {
            let (path, opts) = (place.path(), opts.clone());
            let error = returns(move || Pool::open(path, &opts).unwrap_err());
            assert!(error.to_string().contains("a ticket"), "{error}");
            assert!(!Pool::peek(place.path()).unwrap().clean, "mode {mode}, round {round}");
        }
    }
}

#[test]
fn an_opening_without_its_threads_fails_and_leaves_the_pool_as_after_a_crash() {
    for (mode, threads) in [(2, 1), (3, 3)] {
        for granted in 0..threads {
            let Some(place) = Place::tmpfs() else { return };
            let opts = MODES[mode](&place);
            let pool = Pool::create(place.path(), &opts).unwrap();
            add(&pool, "a", 1).unwrap();
            pool.close().unwrap();
            let error = refused(&opts, &place, granted, false);
            assert!(error.to_string().contains("starting the"), "{error}");
            assert!(!Pool::peek(place.path()).unwrap().clean, "mode {mode}");
            let pool = Pool::open(place.path(), &opts).unwrap();
            assert_eq!(value_of(&pool, "a"), Some(1));
            pool.close().unwrap();
        }
    }
}

#[test]
fn a_creation_without_its_threads_fails_and_leaves_no_pool() {
    for (mode, threads) in [(2, 1), (3, 3)] {
        for granted in 0..threads {
            let Some(place) = Place::tmpfs() else { return };
            let opts = MODES[mode](&place);
            let error = refused(&opts, &place, granted, true);
            assert!(error.to_string().contains("starting the"), "{error}");
            assert!(!place.path().exists() && !twin_at(&place).exists(), "mode {mode}");
            Pool::create(place.path(), &opts).unwrap().close().unwrap();
        }
    }
}

#[test]
fn a_creation_whose_name_is_taken_meanwhile_fails_and_leaves_that_file_alone() {
    for options in MODES {
        let Some(place) = Place::tmpfs() else { return };
        let (opts, path) = (options(&place), place.path());
        let error = returns(move || {
            Pool::create_with(&path, &opts, |mapped| {
                fs::write(&path, "another's").unwrap();
                mapped
            })
            .unwrap_err()
        });
        assert!(matches!(error, OpenError::AlreadyExists { .. }), "{error}");
        assert_eq!(fs::read(place.path()).unwrap(), b"another's");
        assert!(!twin_at(&place).exists());
    }
}

/// Each operation whose fence failed keeps its slot.
#[test]
fn changes_are_completed_in_memory_although_every_slot_has_a_failed_operation() {
    for mode in [1, 2] {
        for succeed in 0.. {
            let Some(place) = Place::tmpfs() else { return };
            let opts = MODES[mode](&place).slots(1);
            let pool = Pool::create(place.path(), &opts).unwrap();
            add(&pool, "a", 1).unwrap();
            pool.pm().fail_write_back_after(succeed);
            if add(&pool, "b", 2).is_ok() {
                assert!(succeed > 0, "no write-back failed");
                break;
            }
            let began = Instant::now();
            for (name, value) in [("c", 3), ("d", 4)] {
                let done = pool.complete(|| add(&pool, name, value).map(drop));
                assert!(matches!(done, Err(PmError::DurabilityLost(_))), "{done:?}");
                assert_eq!(value_of(&pool, name), Some(value));
            }
            assert!(began.elapsed() < Duration::from_secs(1), "it waited for a slot");
            assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), None));
            drop(pool);
            let pool = Pool::open(place.path(), &opts).unwrap();
            assert_eq!((value_of(&pool, "a"), value_of(&pool, "c")), (Some(1), None));
        }
    }
}
