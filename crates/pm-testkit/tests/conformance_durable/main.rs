//! Runs the suite on the simplest durable index: it passes everything, on every bed. With a flaw in its
//! persistence, or in its use of the allocator, the suite says what is wrong.

mod slots;

use std::cell::Cell;

use pmindex_core::{Mapped, Traced};
use pmindex_testkit::conformance;
use pmindex_testkit::conformance::{
    self as suite, Counted, Emulated, Fuse, InFiles, Simulated, Subject,
};
use slots::SlotIndex;

/// A flaw of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    UpdateNotFlushed,
    UpdateNotFenced,
    UpdateFreesFirst,
    RemoveLeaks,
    VisibleBeforeDurable,
    RefusedInsertStays,
    ReadsStore,
}

thread_local! {
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

/// The flaw of the indexes that this thread creates and opens.
pub(crate) fn flaw() -> Flaw {
    FLAW.get()
}

conformance! {
    /// Room for every test.
    durable: SlotIndex<u64, u64, 4096>, keys u64, values u64,
        groups [model, edges, naming, space];
    /// A small pool.
    durable_small: SlotIndex<u64, u64, 3500>, keys u64, values u64, groups [full];
    /// Files that grow, are closed, killed and opened.
    durable_in_files: SlotIndex<u64, u64, 4000>, keys u64, values u64, on InFiles,
        groups [model, naming, space];
    /// Simulated memory.
    durable_simulated: SlotIndex<u64, u64, 160, Traced>, keys u64, values u64, on Simulated,
        groups [schedules, crashes, concurrent_crashes];
    /// Every store, flush and fence is counted.
    durable_counted: SlotIndex<u64, u64, 4096, Mapped>, keys u64, values u64,
        on Counted, groups [model, naming, threads, counts];
    /// Conversions that panic.
    durable_fused: SlotIndex<Fuse, Fuse, 160>, keys Fuse, values Fuse, groups [conversions];
}

/// An index with flaws, in ordinary memory.
struct Plain;

impl Subject for Plain {
    type Key = u64;
    type Value = u64;
    type Bed = Emulated;
    type Index = SlotIndex<u64, u64, 4096>;
}

/// An index with flaws, on a counting medium.
struct Metered;

impl Subject for Metered {
    type Key = u64;
    type Value = u64;
    type Bed = Counted;
    type Index = SlotIndex<u64, u64, 4096, Mapped>;
}

/// An index with flaws, in simulated memory.
struct Crashed;

impl Subject for Crashed {
    type Key = u64;
    type Value = u64;
    type Bed = Simulated;
    type Index = SlotIndex<u64, u64, 160, Traced>;
}

macro_rules! found {
    ($( $test:ident: $flaw:ident, $($property:ident)::+ of $subject:ty $(, cases $cases:literal)?,
        says $says:literal; )*) => { $(
        #[test]
        fn $test() {
            FLAW.set(Flaw::$flaw);
            let verdict = found!(@run $($property)::+, $subject $(, $cases)?);
            let failure = verdict.expect_err("the flaw was not found");
            assert!(failure.what().contains($says), "{:?} not in: {failure}", $says);
        }
    )* };
    (@run explored::$property:ident, $subject:ty, $states:literal) => {
        suite::$property::<$subject>($states)
    };
    (@run $property:ident, $subject:ty $(, $cases:literal)?) => {
        suite::$property(suite::maker::<$subject>() $(, $cases)?)
    };
}

found! {
    crashes_find_a_missing_flush: UpdateNotFlushed, explored::crashes of Crashed, cases 4000, says "surviving state";
    crashes_find_a_missing_fence: UpdateNotFenced, explored::crashes of Crashed, cases 4000, says "surviving state";
    crashes_find_two_steps: UpdateFreesFirst, explored::crashes of Crashed, cases 4000, says "surviving state";
    crashes_find_a_leak: RemoveLeaks, explored::crashes of Crashed, cases 4000, says "leaked";
    concurrent_crashes_find_an_effect_seen_before_it_is_durable: VisibleBeforeDurable,
        explored::concurrent_crashes of Crashed, cases 20_000, says "surviving state";
    sequences_find_a_leak: RemoveLeaks, random_sequences of Plain, cases 20, says "leaked";
    deletes_find_a_leak: RemoveLeaks, deletes_give_back of Plain, says "still in use";
    churn_finds_a_leak: RemoveLeaks, churn_reaches_a_plateau of Plain, says "in use after";
    a_full_pool_finds_an_insert_that_stays: RefusedInsertStays,
        full_at_every_allocation of Plain, says "after it was refused";
    a_full_pool_finds_a_lost_record: UpdateFreesFirst,
        full_at_every_allocation of Plain, says "refused";
    a_full_pool_finds_a_leak: RemoveLeaks, filled_to_the_brim of Crashed, says "leaked";
    counts_find_a_read_that_stores: ReadsStore,
        reads_change_nothing of Metered, says "words stored by get";
    counts_find_a_missing_flush: UpdateNotFlushed,
        writes_fence of Metered, says "returned without a flush";
    counts_find_a_missing_fence: UpdateNotFenced,
        writes_fence of Metered, says "returned without a fence";
    counts_find_a_refused_write_that_flushes: ReadsStore,
        refused_writes_flush_nothing of Metered, says "lines flushed";
}
