//! The traced medium records what happened, in the order it happened.

use super::*;
use crate::cell::words_of;
use crate::ptr::PPtr;

type Words = [PmU64; 16];

fn space() -> Space {
    let space = Space::new(8192, 8192);
    space.record(true);
    space
}

fn kinds(space: &Space) -> Vec<(EventKind, u32, u64)> {
    space.with_trace(|t| t.iter().map(|e| (e.kind, e.word, e.value)).collect())
}

#[test]
fn every_kind_of_access_is_recorded_with_its_word_and_value() {
    let space = space();
    let pm = space.medium();
    let w = space.get(PPtr::<Words>::new(4096)).unwrap();
    pm.store(&w[0], 7);
    assert_eq!(pm.cas(&w[0], 8, 9), Err(7));
    assert_eq!(pm.cas(&w[0], 7, 9), Ok(7));
    assert_eq!(pm.rmw_word(&w[1], Rmw::Or(4)), 0);
    pm.write_words(&w[2..4], &[1, 2]);
    let f = pm.stream_words(&w[8..9], &[3]);
    let f = f.and(pm.flush_words(words_of(w)));
    pm.fence(f).unwrap();
    assert_eq!(
        kinds(&space),
        [
            (EventKind::Store, 512, 7),
            (EventKind::Rmw, 512, 9),
            (EventKind::Rmw, 513, 4),
            (EventKind::Bulk, 514, 1),
            (EventKind::Bulk, 515, 2),
            (EventKind::Stream, 520, 3),
            (EventKind::Flush, 512, 0),
            (EventKind::Flush, 520, 0),
            (EventKind::Fence, 0, 0),
        ]
    );
    assert!(space.with_trace(|t| t.iter().all(|e| e.site.file().ends_with("tests.rs"))));
}

#[test]
fn undo_takes_back_every_change_newest_first() {
    let space = space();
    let pm = space.medium();
    let before = space.snapshot();
    let w = space.get(PPtr::<Words>::new(64)).unwrap();
    for i in 0..5 {
        pm.store(&w[0], i);
        pm.write_words(&w[1..3], &[i, i]);
    }
    assert_ne!(space.snapshot(), before);
    space.undo();
    assert_eq!(space.snapshot(), before);
    assert_eq!(space.trace_len(), 0);
}

#[test]
fn cells_in_dram_leave_no_event() {
    let (space, dram) = (space(), Space::new(4096, 4096));
    let pm = space.medium();
    let w = dram.get(PPtr::<Words>::new(64)).unwrap();
    pm.store(&w[0], 1);
    pm.persist(w).unwrap();
    assert_eq!(pm.load(&w[0]), 1);
    assert_eq!(kinds(&space), [(EventKind::Fence, 0, 0)]);
}

#[test]
#[should_panic(expected = "step limit exceeded")]
fn a_loop_without_end_is_stopped() {
    let space = space();
    space.limit_steps(1000);
    let pm = space.medium();
    let w = space.get(PPtr::<Words>::new(64)).unwrap();
    while pm.load(&w[0]) == 0 {
        pm.spin();
    }
}

#[test]
fn a_failed_fence_poisons_the_medium() {
    let space = space();
    let pm = space.medium();
    space.fail_fences_after(Some(1));
    assert!(pm.fence(Flushed::nothing()).is_ok());
    assert!(pm.fence(Flushed::nothing()).is_err());
    assert!(pm.fence(Flushed::nothing()).is_err());
    assert_eq!(kinds(&space).len(), 1);
}
