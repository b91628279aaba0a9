//! Tests the suite itself: each fault that an index may have is found by the property for it, and the failure
//! says what is wrong.

mod faulty;

use faulty::Faulty;
use pmindex_testkit::conformance::{
    self as suite, Bed, Emulated, SampleKey, SampleValue, Simulated, Subject, Verdict,
};
use std::cell::Cell;
use std::marker::PhantomData;

/// A fault of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    StaleGet,
    GetSeesPrefixOnly,
    GetIntoKeepsTheBuffer,
    GetIntoTears,
    ContainsAll,
    DuplicateAccepted,
    RefusedInsertOverwrites,
    GreatestKeyIsSentinel,
    LongKeyTruncated,
    LongValueTruncated,
    LostUpdate,
    UpdateInserts,
    InsertKeepsOld,
    InsertReturnsNew,
    InsertInTwoSteps,
    RemoveExactRemovesAny,
    RemoveExactInTwoSteps,
    UpsertKeepsOld,
    UpsertAlwaysNew,
    RemoveOnlyHides,
    RemoveSaysMissing,
    LowerBoundIncluded,
    UpperBoundExcluded,
    InvertedRangeIsEmpty,
    BackwardsSkips,
    EndsPassEachOther,
    ChangeEndsIteration,
    ChangeRepeatsItem,
    ScanClearsOutput,
    ScanOneTooMany,
    ScanIntoKeepsTheTail,
    ScanIntoPassesItsEnd,
    FirstSkipsLeast,
    FirstIsStale,
    LastIsFirst,
    LastIsStale,
    EmptyDuringAMove,
    PopIsStale,
    LenCountsUpserts,
    BulkLoadSorts,
    BulkLoadMerges,
    BulkLoadKeepsPrefix,
    GetManyKeepsOldPlaces,
    GetManyMissesTheTail,
    BatchIgnoresItsDuplicates,
    BatchLastDuplicateWins,
    StatsOverstateMemory,
    BlockOwnedTwice,
    CreateOpens,
    OpensTwice,
    NeighboursShareRecords,
    AnyTypeOpens,
    AnyLayoutOpens,
    OpenCreates,
    OpenLosesARecord,
    CloseLosesARecord,
    CheckThenAct,
    UpdateInTwoSteps,
    ScanByPosition,
    PanicLeavesLock,
    PanicLeavesRefusals,
}

thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
}

/// Returns the fault of the indexes that this thread creates and opens. A type parameter would compile the
/// suite once for each fault.
pub(crate) fn fault() -> Fault {
    FAULT.get()
}

/// A faulty index as the suite's subject.
struct Broken<K, V, B = Emulated>(PhantomData<(K, V, B)>);

impl<K: SampleKey, V: SampleValue, B: Bed> Subject for Broken<K, V, B> {
    type Key = K;
    type Value = V;
    type Bed = B;
    type Index = Faulty<K, V, B::Medium>;
}

/// The number of runs of a property: those with real threads do not find a fault each time on a busy machine.
const LOOKS: usize = 50;

#[track_caller]
fn assert_found(mut look: impl FnMut() -> Verdict, says: &str) {
    match (0..LOOKS).find_map(|_| look().err()) {
        None => panic!("the fault was not found"),
        Some(failure) => assert!(failure.what().contains(says), "{says:?} not in: {failure}"),
    }
}

macro_rules! found {
    ($( $test:ident: $fault:ident, $property:ident($($cases:literal)?) says $says:literal
        $(, keys $key:ty)? $(, values $value:ty)? $(, on $bed:ty)?; )*) => { $(
        #[test]
        fn $test() {
            type Key = found!(@or $($key)?);
            type Value = found!(@or $($value)?);
            type On = found!(@bed $($bed)?);
            FAULT.set(Fault::$fault);
            let look = || suite::$property(suite::maker::<Broken<Key, Value, On>>() $(, $cases)?);
            assert_found(look, $says);
        }
    )* };
    (@bed) => { Emulated };
    (@bed $type:ty) => { $type };
    (@or) => { u64 };
    (@or $type:ty) => { $type };
}

#[test]
fn the_wrapper_without_a_fault_passes() {
    suite::random_sequences(suite::maker::<Broken<u64, u64>>(), 20).expect("no fault");
    suite::ends(suite::maker::<Broken<u64, u64, Simulated>>(), 20).expect("no fault");
    suite::ends_among_threads(suite::maker::<Broken<u64, u64>>(), 100).expect("no fault");
}

// Faults that random sequences find.
found! {
    sequences_find_a_stale_get: StaleGet, random_sequences(40) says "get";
    sequences_find_prefix_comparison: GetSeesPrefixOnly, random_sequences(40) says "wanted",
        keys Vec<u8>;
    sequences_find_contains_all: ContainsAll, random_sequences(40) says "contains_key";
    sequences_find_an_accepted_duplicate: DuplicateAccepted, random_sequences(40) says "insert";
    sequences_find_a_refused_insert_that_overwrites: RefusedInsertOverwrites,
        random_sequences(40) says "wanted";
    sequences_find_a_lost_update: LostUpdate, random_sequences(40) says "wanted";
    sequences_find_an_update_that_inserts: UpdateInserts, random_sequences(40) says "wanted";
    sequences_find_an_insert_that_keeps_the_old: InsertKeepsOld, random_sequences(40) says "wanted";
    sequences_find_an_insert_that_returns_the_new: InsertReturnsNew,
        random_sequences(40) says "insert";
    sequences_find_a_remove_exact_that_removes_any: RemoveExactRemovesAny,
        random_sequences(40) says "remove_exact";
    sequences_find_an_upsert_that_keeps_the_old: UpsertKeepsOld, random_sequences(40) says "wanted";
    sequences_find_an_upsert_that_is_always_new: UpsertAlwaysNew,
        random_sequences(40) says "put";
    sequences_find_a_remove_that_keeps: RemoveOnlyHides, random_sequences(40) says "removed";
    sequences_find_a_remove_that_says_missing: RemoveSaysMissing,
        random_sequences(40) says "wanted";
    sequences_find_a_lower_bound_off_by_one: LowerBoundIncluded, random_sequences(40) says "range";
    sequences_find_an_upper_bound_off_by_one: UpperBoundExcluded, random_sequences(40) says "range";
    sequences_find_ends_that_pass_each_other: EndsPassEachOther, random_sequences(40) says "range";
    sequences_find_a_skip_backwards: BackwardsSkips, random_sequences(40) says "next_back";
    sequences_find_a_scan_that_clears: ScanClearsOutput, random_sequences(40) says "scan";
    sequences_find_a_scan_of_one_too_many: ScanOneTooMany, random_sequences(40) says "scan";
    sequences_find_a_get_into_that_keeps_the_buffer: GetIntoKeepsTheBuffer,
        random_sequences(40) says "get_into";
    sequences_find_a_scan_into_that_keeps_the_tail: ScanIntoKeepsTheTail,
        random_sequences(40) says "scan_into";
    sequences_find_a_scan_into_that_passes_its_end: ScanIntoPassesItsEnd,
        random_sequences(40) says "scan_into";
    sequences_find_a_wrong_first: FirstSkipsLeast, random_sequences(40) says "first";
    sequences_find_a_wrong_last: LastIsFirst, random_sequences(40) says "last";
    sequences_find_a_len_that_drifts: LenCountsUpserts, random_sequences(40) says "len";
    sequences_find_a_bulk_load_that_merges: BulkLoadMerges, random_sequences(40) says "bulk_load";
    sequences_find_places_that_get_many_keeps: GetManyKeepsOldPlaces,
        random_sequences(40) says "get_many";
    // Removals of many look them up together.
    sequences_find_a_tail_that_get_many_misses: GetManyMissesTheTail,
        random_sequences(40) says "_many";
    sequences_find_duplicates_in_a_batch: BatchIgnoresItsDuplicates,
        random_sequences(40) says "_many";
    sequences_find_the_last_duplicate_of_a_batch: BatchLastDuplicateWins,
        random_sequences(40) says "insert_many";
    sequences_find_overstated_memory: StatsOverstateMemory, random_sequences(40) says "pm_bytes";
    sequences_find_a_block_owned_twice: BlockOwnedTwice, random_sequences(40) says "blocks";
    sequences_find_a_loss_at_open: OpenLosesARecord, random_sequences(40) says "open";
    sequences_find_a_loss_at_close: CloseLosesARecord, random_sequences(40) says "close";
}

// Faults that the properties at the edges find.
found! {
    empty_finds_an_update_that_inserts: UpdateInserts, empty() says "wanted";
    sizes_find_an_accepted_duplicate: DuplicateAccepted, sizes() says "growing";
    sizes_find_a_remove_that_keeps: RemoveOnlyHides, sizes() says "shrinking";
    extreme_keys_find_a_sentinel: GreatestKeyIsSentinel, extreme_keys() says "wanted";
    extreme_keys_find_prefix_comparison: GetSeesPrefixOnly, extreme_keys() says "get",
        keys Vec<u8>;
    extreme_values_find_truncation: LongValueTruncated, extreme_values() says "extreme values",
        values Vec<u8>;
    extreme_values_find_a_lost_update: LostUpdate, extreme_values() says "shifted";
    limits_find_truncation: LongKeyTruncated, limits() says "insert", keys Vec<u8>;
    bounds_find_a_lower_bound_off_by_one: LowerBoundIncluded, all_bounds() says "range";
    bounds_find_an_upper_bound_off_by_one: UpperBoundExcluded, all_bounds() says "range";
    bounds_find_ends_that_pass_each_other: EndsPassEachOther, all_bounds() says "range";
    bounds_find_a_scan_of_one_too_many: ScanOneTooMany, all_bounds() says "scan";
    bounds_find_a_scan_into_that_passes_its_end: ScanIntoPassesItsEnd,
        all_bounds() says "scan_into";
    panics_find_an_inverted_range_that_is_empty: InvertedRangeIsEmpty,
        panicking_bounds() says "does not panic";
    changes_find_an_iterator_that_ends: ChangeEndsIteration,
        changes_during_iteration() says "misses";
    changes_find_an_item_twice: ChangeRepeatsItem, changes_during_iteration() says "duplicate";
    loads_find_a_loss_at_open: OpenLosesARecord, bulk_load_sizes() says "wanted";
    refusals_find_a_load_that_sorts: BulkLoadSorts, bulk_load_refusals() says "out of order";
    loads_find_a_load_that_shows_its_records_one_by_one: BulkLoadMerges,
        loads(3) says "a load", on Simulated;
    refusals_find_a_load_that_keeps_its_prefix: BulkLoadKeepsPrefix,
        bulk_load_refusals() says "after a refused";
    refusals_find_a_load_that_merges: BulkLoadMerges, bulk_load_refusals() says "bulk_load";
    batches_find_duplicates_in_a_batch: BatchIgnoresItsDuplicates,
        batches() says "try_insert_many";
    batches_find_the_last_duplicate: BatchLastDuplicateWins, batches() says "try_insert_many";
    batches_find_a_tail_that_get_many_misses: GetManyMissesTheTail, batches() says "get_many";
}

// Faults that the properties of names find.
found! {
    names_find_a_create_that_opens: CreateOpens, refused_names() says "create";
    names_find_an_open_that_creates: OpenCreates, refused_names() says "open of a missing name";
    names_find_another_type: AnyTypeOpens, refused_names() says "open of another type";
    names_find_another_layout: AnyLayoutOpens, refused_names() says "open of another layout";
    neighbours_find_shared_records: NeighboursShareRecords, neighbours() says "wanted";
    a_second_opening_finds_two_handles: OpensTwice, one_handle() says "there are two handles";
    opening_often_finds_a_loss_at_close: CloseLosesARecord, opened_often() says "opened";
}

// Faults that real threads find.
found! {
    threads_find_a_check_that_is_not_atomic: CheckThenAct, hot_keys(4000) says "linearizable";
    threads_find_an_update_that_is_not_atomic: UpdateInTwoSteps,
        hot_keys(4000) says "linearizable";
    threads_find_an_insert_that_is_not_atomic: InsertInTwoSteps,
        hot_keys(4000) says "linearizable";
    threads_find_a_remove_exact_that_is_not_atomic: RemoveExactInTwoSteps,
        hot_keys(4000) says "linearizable";
    threads_find_a_torn_get_into: GetIntoTears, hot_keys(4000) says "a value that no thread wrote",
        values Vec<u8>;
    threads_find_a_stale_get: StaleGet, structure_changes(500) says "linearizable";
    threads_find_a_scan_by_position: ScanByPosition, untouched_records(40) says "scan";
    threads_find_a_len_that_drifts: LenCountsUpserts, hot_keys(500) says "len";
    threads_find_a_stale_first: FirstIsStale, ends_among_threads(20_000) says "Read(First";
    threads_find_a_stale_last: LastIsStale, ends_among_threads(20_000) says "Read(Last";
    threads_find_an_index_that_is_empty_during_a_move: EmptyDuringAMove,
        ends_among_threads(20_000) says "Empty(true)";
}

// Faults that the deterministic scheduler finds.
found! {
    schedules_find_a_check_that_is_not_atomic: CheckThenAct,
        schedules(200) says "linearizable", on Simulated;
    schedules_find_an_update_that_is_not_atomic: UpdateInTwoSteps,
        schedules(200) says "linearizable", on Simulated;
    schedules_find_an_insert_that_is_not_atomic: InsertInTwoSteps,
        schedules(200) says "linearizable", on Simulated;
    schedules_find_a_remove_exact_that_is_not_atomic: RemoveExactInTwoSteps,
        schedules(2000) says "linearizable", on Simulated;
    schedules_find_a_torn_get_into: GetIntoTears,
        schedules(2000) says "a value that no thread wrote", values Vec<u8>, on Simulated;
    schedules_find_a_scan_by_position: ScanByPosition,
        schedules(200) says "linearizable", on Simulated;
    schedules_find_a_stale_first: FirstIsStale, ends(40) says "Read(First", on Simulated;
    schedules_find_a_stale_last: LastIsStale, ends(40) says "Read(Last", on Simulated;
    schedules_find_an_index_that_is_empty_during_a_move: EmptyDuringAMove,
        ends(40) says "Empty(true)", on Simulated;
    schedules_find_a_stale_pop: PopIsStale, ends(200) says "Popped(", on Simulated;
    panics_find_a_lock_left_behind: PanicLeavesLock,
        panics_at_any_access(1) says "the next thread", on Simulated;
    panics_find_a_refusal_ever_after: PanicLeavesRefusals,
        panics_at_any_access(1) says "slot", on Simulated;
    panics_find_an_update_that_is_not_atomic: UpdateInTwoSteps,
        panics_at_any_access(1) says "linearizable", on Simulated;
}

/// A schedule that failed fails again in the same way.
#[test]
fn schedules_replay() {
    let of = suite::maker::<Broken<u64, u64, Simulated>>();
    FAULT.set(Fault::CheckThenAct);
    let failure = suite::schedules(of, 200).expect_err("the fault is found");
    let seed = failure.what().strip_prefix("schedule ").and_then(|t| t.split(':').next());
    let seed = seed.and_then(|seed| seed.parse().ok()).expect("the failure names its seed");
    for _ in 0..3 {
        assert_eq!(suite::replay_schedule(of, seed), Err(failure.clone()));
    }
}
