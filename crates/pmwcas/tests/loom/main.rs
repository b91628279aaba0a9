//! The protocol under a model checker: every interleaving of two or three threads on one to three words,
//! with a bound on preemptions, and every value that a load may return.
//!
//! The files of the protocol (claims, installation, the state machine, helping, settling, hazards, reading)
//! are compiled here over loom's atomics; this test provides their `crate::primitive`, `crate::mwcas` and
//! `crate::session`. [`watch`] asserts at every store:
//!
//! * a pointer goes into a word only when its operation's whole descriptor is durable with its outcome (I6,
//!   I7);
//! * a full pointer goes into a word only while its operation is `Succeeded`, into a claim only while
//!   it is `Undecided` (I4);
//! * an operation succeeds only while its words hold the expected values (I6);
//! * the new value replaces a pointer only when its operation is `Committed`, the old value only if the
//!   pointer is tentative (I1);
//! * a record is shown only by an operation that is durable;
//! * after each fence a crash would leave each word with the value of the last durable operation on it,
//!   wherever the horizon is (I2).
//!
//! And at the end: the successful operations, in the order of their stamps, lead from the first values of the
//! words to the last ones, each from its expected values (I2, atomicity); no word or claim holds a pointer. A
//! crash does not take back a value that a reader returned, and no later read returns an older one.
//!
//! The bounds keep the run to seconds; `LOOM_MAX_PREEMPTIONS` sets another one.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files of the protocol are parts of a library, and have more than is checked here"
)]

#[path = "../../src/claims.rs"]
mod claims;
#[path = "../../src/config.rs"]
mod config;
#[path = "../../src/drive.rs"]
mod drive;
#[path = "../../src/entry.rs"]
mod entry;
#[path = "../../src/help.rs"]
mod help;
#[path = "../../src/install.rs"]
mod install;
#[path = "../../src/layout.rs"]
mod layout;
mod mwcas;
#[path = "../../src/partition.rs"]
mod partition;
mod primitive;
#[path = "../../src/read.rs"]
mod read;
mod session;
#[path = "../../src/settle.rs"]
mod settle;
#[path = "../../src/status.rs"]
mod status;
mod watch;
#[path = "../../src/word.rs"]
mod word;

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use entry::Entry;
use layout::{Carried, Places};
use loom::thread::{self, JoinHandle};
use mwcas::{Mwcas, TARGET_LINES};
use pmindex_core::LINE;
use session::Session;
use settle::SettleScope;
use word::Content;

/// Returns the offset of target word `i`.
const fn target(i: usize) -> u64 {
    (LINE + 8 * i) as u64
}

/// One successful operation: its stamp, and the old and new value of each of its words.
type Done = (u64, Vec<(usize, u64, u64)>);

/// Computes a word's new value from its old one.
type Change = fn(u64) -> u64;

fn read(mwcas: &Mwcas, i: usize) -> u64 {
    let word = mwcas.word_at(target(i)).expect("a word");
    mwcas.read(word).expect("what operations store")
}

/// Attempts once to change these words from these values.
fn change(
    session: &mut Session<'_, primitive::Model>,
    from: &[(usize, u64)],
    to: Change,
) -> Vec<Done> {
    let entry = |&(i, old): &_| Entry { target: target(i), old, new: to(old), ..Entry::EMPTY };
    let entries: Vec<Entry> = from.iter().map(entry).collect();
    let stamp = session.execute(&entries, None).expect("nothing is corrupt");
    let changes = from.iter().map(|&(i, old)| (i, old, to(old))).collect();
    stamp.map(|stamp| (stamp, changes)).into_iter().collect()
}

/// Attempts once to change all of `words` from their current values.
fn attempt(session: &mut Session<'_, primitive::Model>, words: &[usize], to: Change) -> Vec<Done> {
    let from: Vec<_> = words.iter().map(|&i| (i, read(session.mwcas, i))).collect();
    change(session, &from, to)
}

const ADD: Change = |old| old + 1;

/// Attempts until the operation succeeds.
fn insist(session: &mut Session<'_, primitive::Model>, words: &[usize], to: Change) -> Vec<Done> {
    loop {
        let done = attempt(session, words, to);
        if !done.is_empty() {
            return done;
        }
    }
}

/// Runs `work` as thread `me`, with this number of descriptors.
fn run(
    mwcas: &Arc<Mwcas>,
    (me, descriptors): (usize, usize),
    work: impl FnOnce(&mut Session<'_, primitive::Model>) -> Vec<Done> + 'static,
) -> JoinHandle<Vec<Done>> {
    let mwcas = Arc::clone(mwcas);
    thread::spawn(move || work(&mut Session::new(&mwcas, me, descriptors)))
}

/// Checks `threads` in every interleaving with this number of preemptions, and the final state; at least this
/// number of operations must have succeeded.
fn model(
    (preemptions, words, least): (usize, u32, usize),
    threads: impl Fn(&Arc<Mwcas>) -> Vec<JoinHandle<Vec<Done>>> + Send + Sync + 'static,
    number: u32,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions); // unless the environment says otherwise
    builder.max_branches = 10_000;
    builder.check(move || {
        let mwcas = Arc::new(Mwcas::new(number, words));
        let threads = threads(&mwcas);
        assert_eq!(threads.len(), number as usize);
        let mut done: Vec<Done> =
            threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect();
        assert!(done.len() >= least, "{} took place", done.len());
        done.sort();
        let mut values = [0; TARGET_LINES * LINE / 8];
        for (stamp, changes) in done {
            for (i, old, new) in changes {
                assert_eq!(values[i], old, "I2: the operation with stamp {stamp}, word {i}");
                values[i] = new;
            }
        }
        for (i, value) in values.into_iter().enumerate() {
            let word = mwcas.word_at(target(i)).expect("a word");
            let held = primitive::Medium::load(mwcas.pool.pm(), word);
            assert_eq!(Content::of(held), Content::Value(value), "word {i}");
            assert_eq!(watch::recovered(target(i) as usize / 8), value, "word {i} after a crash");
        }
        for cell in 0..(32 * number).next_power_of_two() {
            let claim = mwcas.claims.cell(cell as u16).load(Acquire);
            assert_eq!(Content::of(claim), Content::Value(0), "claim {cell} was not given back");
        }
    });
}

#[test]
fn two_operations_on_one_word() {
    model(
        (2, 2, 2),
        |mwcas| (0..2).map(|i| run(mwcas, (i, 4), |s| insist(s, &[0], ADD))).collect(),
        2,
    );
}

#[test]
fn two_operations_on_two_words() {
    model(
        (1, 2, 2),
        |mwcas| (0..2).map(|i| run(mwcas, (i, 4), |s| insist(s, &[0, 1], ADD))).collect(),
        2,
    );
}

#[test]
fn an_operation_of_one_fence_and_one_of_two() {
    model(
        (1, 3, 1),
        |mwcas| {
            vec![
                run(mwcas, (0, 4), |s| attempt(s, &[1, 2], ADD)),
                run(mwcas, (1, 4), |s| attempt(s, &[0, 1, 2], ADD)),
            ]
        },
        2,
    );
}

#[test]
fn three_operations_in_a_circle() {
    model(
        (0, 2, 1),
        |mwcas| {
            let words = [[(0, 0), (1, 0)], [(1, 0), (2, 0)], [(0, 0), (2, 0)]];
            let thread =
                |(i, from): (_, [_; 2])| run(mwcas, (i, 4), move |s| change(s, &from, ADD));
            words.into_iter().enumerate().map(thread).collect()
        },
        3,
    );
}

/// Two values alternate: each expected value comes back while the descriptor is settled and reused.
#[test]
fn a_descriptor_is_reused_while_another_thread_helps() {
    model(
        (1, 2, 1),
        |mwcas| {
            vec![
                run(mwcas, (0, 1), |s| {
                    let mut done = attempt(s, &[0], |old| old ^ 1);
                    s.move_horizon().expect("nothing is corrupt");
                    s.reclaim();
                    if !s.local.free.is_empty() {
                        done.extend(attempt(s, &[0], |old| old ^ 1));
                    }
                    done
                }),
                run(mwcas, (1, 4), |s| change(s, &[(0, 0)], |old| old ^ 1)),
            ]
        },
        2,
    );
}

/// The horizon advances while another operation is decided.
#[test]
fn the_horizon_moves_beside_an_operation() {
    model(
        (1, 2, 3),
        |mwcas| {
            vec![
                run(mwcas, (0, 4), |s| insist(s, &[0, 1], ADD)),
                run(mwcas, (1, 4), |s| {
                    let mut done = insist(s, &[2], ADD); // in nobody's way
                    s.move_horizon().expect("nothing is corrupt");
                    done.extend(insist(s, &[1], ADD));
                    done
                }),
            ]
        },
        2,
    );
}

/// Advances the horizon as far as other partitions have settled.
fn settle_own(session: &mut Session<'_, primitive::Model>) {
    session.begin_settling(SettleScope::OwnPartition).expect("nothing is corrupt");
    for _ in ["S1", "S2"] {
        session.fence(primitive::Flushed::nothing()).expect("it has no errors");
    }
}

/// Each thread settles its own operation; the horizon follows the slower one, which is at any step meanwhile.
fn two_settle_their_own(words: [usize; 2]) {
    model(
        (1, 2, 2),
        move |mwcas| {
            let work = |i| {
                move |s: &mut Session<'_, primitive::Model>| {
                    let done = insist(s, &[words[i]], ADD);
                    settle_own(s);
                    done
                }
            };
            (0..2).map(|i| run(mwcas, (i, 4), work(i))).collect()
        },
        2,
    );
}

#[test]
fn the_horizon_follows_two_who_settle_their_own_lines() {
    two_settle_their_own([0, LINE / 8]);
}

#[test]
fn the_horizon_follows_two_who_settle_the_same_word() {
    two_settle_their_own([0, 0]);
}

#[test]
fn what_is_read_stays_and_never_goes_back() {
    model(
        (2, 2, 1),
        |mwcas| {
            let reader = |session: &mut Session<'_, primitive::Model>| {
                let mut last = [0; 2];
                for i in [0, 1, 0] {
                    let found = read(session.mwcas, i);
                    let after = watch::recovered(target(i) as usize / 8);
                    assert!(after >= found, "word {i} was {found}, after a crash {after}");
                    assert!(last[i] <= found, "word {i} was {}, then {found}", last[i]);
                    last[i] = found;
                }
                Vec::new()
            };
            vec![run(mwcas, (0, 4), |s| insist(s, &[0, 1], ADD)), run(mwcas, (1, 4), reader)]
        },
        2,
    );
}

/// A leaf's status counts the records, and an entry shows each; the operation carries the record.
#[test]
fn a_record_is_shown_with_the_status_that_counts_it() {
    const STATUS: usize = 0;
    const ENTRY: usize = 1;
    const RECORD: usize = 2;
    let show = |session: &mut Session<'_, primitive::Model>| {
        let old = read(session.mwcas, STATUS);
        let new = 7;
        let carried =
            Carried { shown: target(ENTRY), new, record: target(RECORD), words: [0; 2], len: 2 };
        let status = Entry { target: target(STATUS), old, new: old + 1, ..Entry::EMPTY };
        let places = Places::of(target(STATUS), target(ENTRY), target(RECORD), 2);
        let op = Some((places.expect("near"), carried));
        let stamp = session.execute(&[status], op).expect("nothing is corrupt");
        let changes = vec![(STATUS, old, old + 1), (ENTRY, 0, new)];
        stamp.map(|stamp| (stamp, changes)).into_iter().collect()
    };
    model(
        (1, 2, 1),
        move |mwcas| {
            vec![
                run(mwcas, (0, 4), show),
                run(mwcas, (1, 4), |s| attempt(s, &[STATUS], |old| old + 100)),
                run(mwcas, (2, 4), |s| {
                    let status = read(s.mwcas, STATUS);
                    let entry = read(s.mwcas, ENTRY);
                    assert!(
                        status.is_multiple_of(100) || entry == 7,
                        "status {status}, entry {entry}"
                    );
                    let after = watch::recovered(target(ENTRY) as usize / 8);
                    assert!(entry == after || entry == 0, "what was shown stays: {after}");
                    Vec::new()
                }),
            ]
        },
        3,
    );
}
