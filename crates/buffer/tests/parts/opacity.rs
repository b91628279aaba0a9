//! Transactions read states of one moment, also those that will not commit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_buffer::{Buffer, BufferError, BufferOptions, Tx};
use pmindex_core::{Mapped, Pool};
use pmindex_wal::sim::SimDisk;

fn buffer() -> Buffer {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let disk = Arc::new(SimDisk::new(512, 100 * 4096));
    Buffer::create(&pool, "pages", disk, &BufferOptions::new(16)).expect("a buffer")
}

/// Sets word 0 of pages, in one transaction.
fn set(buffer: &Buffer, words: &[(u64, u64)]) {
    let mut tx = buffer.begin();
    for &(page, word) in words {
        tx.create(page).expect("a page").set(0, word);
    }
    tx.commit().expect("no conflict");
}

fn get(tx: &mut Tx<'_, Mapped>, page: u64) -> Result<u64, BufferError> {
    tx.read(page, |view| view.word(0))
}

#[track_caller]
fn conflicts(read: &Result<(), BufferError>) {
    assert!(matches!(read, Err(BufferError::Conflict)), "{read:?}");
}

#[test]
fn a_read_that_does_not_fit_the_earlier_ones_is_refused() {
    let buffer = buffer();
    set(&buffer, &[(1, 10), (2, 20), (3, 30)]);
    // The first page changes, then the second is read, or written.
    for write in [false, true] {
        let mut tx = buffer.begin();
        get(&mut tx, 1).unwrap();
        set(&buffer, &[(1, 11), (2, 21)]);
        conflicts(&if write { tx.write(2).map(drop) } else { get(&mut tx, 2).map(drop) });
    }
    // The same page, twice.
    let mut tx = buffer.begin();
    get(&mut tx, 1).unwrap();
    set(&buffer, &[(1, 12)]);
    conflicts(&get(&mut tx, 1).map(drop));
    // A page that did not exist.
    let mut tx = buffer.begin();
    assert!(matches!(get(&mut tx, 9), Err(BufferError::NoPage { page: 9 })));
    set(&buffer, &[(9, 90), (2, 22)]);
    conflicts(&get(&mut tx, 2).map(drop));
    // A page that this transaction changes.
    let mut tx = buffer.begin();
    tx.write(1).unwrap().set(1, 1);
    set(&buffer, &[(1, 13), (2, 23)]);
    conflicts(&get(&mut tx, 2).map(drop));
}

#[test]
fn a_commit_of_other_pages_is_no_conflict() {
    let buffer = buffer();
    set(&buffer, &[(1, 10), (2, 20), (3, 30)]);
    let mut tx = buffer.begin();
    assert_eq!(get(&mut tx, 1).unwrap(), 10);
    set(&buffer, &[(2, 21), (3, 31)]);
    assert_eq!(get(&mut tx, 2).unwrap(), 21); // the state after that commit
    tx.write(1).unwrap().set(0, 11);
    assert!(tx.commit().unwrap() > 0);
}

#[test]
fn reads_that_are_verified_at_the_end_are_of_the_moment_of_the_last_one() {
    let buffer = buffer();
    set(&buffer, &[(1, 10), (2, 20), (3, 30)]);
    let unverified = |tx: &mut Tx<'_, _>, page| tx.read_unverified(page, |view| view.word(0));
    let mut tx = buffer.begin();
    assert_eq!(unverified(&mut tx, 1).unwrap(), 10);
    set(&buffer, &[(2, 21), (3, 31)]);
    assert_eq!(unverified(&mut tx, 2).unwrap(), 21);
    tx.verify().unwrap();
    set(&buffer, &[(1, 11), (3, 32)]);
    assert_eq!(unverified(&mut tx, 3).unwrap(), 32, "of another moment than 10");
    assert!(matches!(tx.verify(), Err(BufferError::Conflict)));
    assert!(matches!(unverified(&mut tx, 1), Err(BufferError::Conflict)), "it was another one");
}

#[test]
fn threads_never_see_a_state_between_two_commits() {
    let buffer = buffer();
    set(&buffer, &[(1, 500), (2, 500)]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for step in 1..3 {
            let (buffer, stop) = (&buffer, &stop);
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let mut tx = buffer.begin();
                    let (Ok(one), Ok(other)) = (get(&mut tx, 1), get(&mut tx, 2)) else { continue };
                    assert_eq!(one + other, 1000, "of two moments");
                    let moved = if one > 100 { step } else { 0u64.wrapping_sub(step) };
                    let changed = tx.write(1).map(|draft| draft.set(0, one.wrapping_sub(moved)));
                    let changed = changed.and_then(|()| tx.write(2));
                    if changed.map(|draft| draft.set(0, other.wrapping_add(moved))).is_ok() {
                        match tx.commit() {
                            Ok(_) | Err(BufferError::Conflict) => {}
                            // The log is full.
                            Err(_) => buffer.checkpoint().unwrap(),
                        }
                    }
                }
                stop.store(true, Relaxed);
            });
        }
        scope.spawn(|| {
            let mut seen = 0;
            while !stop.load(Relaxed) || seen == 0 {
                let mut tx = buffer.begin();
                if let (Ok(one), Ok(other)) = (get(&mut tx, 1), get(&mut tx, 2)) {
                    assert_eq!(one + other, 1000, "of two moments");
                    seen += 1;
                }
            }
        });
    });
}

#[test]
fn a_page_that_another_of_the_group_found_absent_is_looked_at() {
    let buffer = buffer();
    let mut stale = buffer.begin();
    let absent = get(&mut stale, 1);
    assert!(matches!(absent, Err(BufferError::NoPage { .. })), "{absent:?}");
    stale.create(2).expect("a page").set(0, 1);
    set(&buffer, &[(1, 7)]);
    let mut blind = buffer.begin();
    blind.create(1).expect("a page").set(0, 8);
    let outcome = buffer.commit_all(vec![stale, blind]).expect("room");
    assert!(matches!(outcome[..], [Err(BufferError::Conflict), Ok(_)]), "{outcome:?}");
}
