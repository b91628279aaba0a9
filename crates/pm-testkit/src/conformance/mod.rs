//! The conformance suite: the tests of every index, for any types and any medium.
//!
//! [`conformance!`](crate::conformance!) instantiates it, one `#[test]` for each property, in
//! groups:
//!
//! | group | what | needs |
//! | --- | --- | --- |
//! | `model` | random sequences of every operation against `BTreeMap`, shrunk on failure | |
//! | `checked` | random sequences on few keys, everything verified after each operation | |
//! | `edges` | sizes around node boundaries, extreme keys and values, limits, ranges, batches | |
//! | `naming` | names, types, layouts, neighbours in a pool, opening often, and not twice | |
//! | `space` | what deletes give back, churn | memory in the pool |
//! | `full` | pool full at every allocation, and really full | memory in the pool |
//! | `disk` | the disk fails at every write-back: what was acknowledged, and nothing else, is seen and kept | [`OnDisk`] |
//! | `counts` | reads change nothing, refused writes flush nothing, no write returns without a fence | [`Counted`] |
//! | `conversions` | conversions of keys and values that panic | keys and values [`Fuse`] |
//! | `fickle` | values whose encoding changes from call to call | values [`Fickle`] |
//! | `threads` | real threads, histories checked for linearizability | |
//! | `schedules` | short histories under the deterministic scheduler; panics in mid-operation and while opening | [`Simulated`] |
//! | `loads` | a bulk load beside a reader: seen as a whole | [`Simulated`] |
//! | `crashes` | crash states of one thread, judged by the model; the allocator audited | [`Simulated`] |
//! | `concurrent_crashes` | crash states of several threads | [`Simulated`] |
//! | `unwinding` | panics of the medium at any access: no conversion runs while one unwinds | [`Simulated`], keys and values [`Fuse`] |
//! | `panics_and_crashes` | crash states after conversions that panicked in operations, batches, loads and openings | [`Simulated`], keys and values [`Fuse`] |
//!
//! Each property is also a function here that takes the [`Maker`] of a [`Subject`]'s indexes (crash
//! exploration: the subject itself) and returns a [`Verdict`]: the suite's own tests run them on a correct
//! index ([`ModelIndex`](crate::ModelIndex)) and on faulty ones. Everything is bounded: a whole suite takes
//! seconds. Random cases have a fixed seed; the environment variable `PMINDEX_LONG=n` multiplies their
//! number.

mod batches;
mod bed;
mod calls;
mod compiled;
mod contents;
mod counts;
mod crashes;
mod disk;
mod edges;
mod ends;
mod fickle;
mod full;
mod fuse;
mod handles;
mod interrupted;
mod loads;
mod naming;
mod operation;
mod panics;
mod ranges;
mod sample;
mod schedules;
mod sequences;
mod space;
mod subject;
mod threads;
mod verdict;

pub use batches::{batches, bulk_load_refusals, bulk_load_sizes, damage_beside_a_load};
pub use bed::{Bed, Counted, Emulated, InFiles, OnDisk, Simulated};
pub use compiled::compiled;
pub use counts::{reads_change_nothing, refused_writes_flush_nothing, writes_fence};
pub use crashes::{CrashOf, concurrent_crashes, crashes};
pub use disk::{failing_disk, failing_disk_among_threads};
pub use edges::{empty, extreme_keys, extreme_values, limits, sizes};
pub use ends::{ends, ends_among_threads};
pub use fickle::{Fickle, changing_encodings};
pub use full::{
    filled_to_the_brim, full_at_creation_and_load, full_at_every_allocation, full_then_emptied,
    removals_need_no_room, scarce_room,
};
pub use fuse::Fuse;
pub use handles::{one_handle, panics_while_opening};
pub use interrupted::{Burning, Interrupted, crashes_after_panics};
pub use loads::loads;
pub use naming::{neighbours, opened_often, refused_names};
pub use operation::{Model, Operation, operation};
pub use panics::{panics_at_any_access, panics_in_conversions};
pub use ranges::{all_bounds, changes_during_iteration, panicking_bounds};
pub use sample::{SampleKey, SampleValue};
pub use schedules::{preempted, replay_schedule, scheduled, scheduled_index, schedules};
pub use sequences::{checked_sequences, random_sequences, scaled};
pub use space::{churn_reaches_a_plateau, deletes_give_back};
pub use subject::{IndexOf, Maker, MediumOf, Opened, Subject, Types, TypesOf, maker};
pub use threads::{few_slots, hot_keys, structure_changes, untouched_records};
pub use verdict::{Failure, Verdict};

/// The number of random sequences that each instance of the suite runs; see [`scaled`].
pub const SEQUENCES: u32 = 96;

/// Instantiates the suite for index types; see [the module](mod@crate::conformance).
///
/// ```
/// use pmindex_testkit::ModelIndex;
///
/// pmindex_testkit::conformance! {
///     /// The reference index with byte-string keys.
///     model_bytes: ModelIndex<Vec<u8>, u64>, keys Vec<u8>, values u64,
///         on pmindex_testkit::conformance::Emulated, groups [model, edges, naming];
/// }
/// # fn main() {}
/// ```
///
/// Each line makes a module of tests. Without `groups [..]` it has all groups, without `on ..` its
/// pools are [`Emulated`]. The index type must be for the bed's medium.
#[macro_export]
macro_rules! conformance {
    ($(
        $(#[$attribute:meta])*
        $name:ident: $index:ty, keys $key:ty, values $value:ty
        $(, on $bed:ty)? $(, groups [$($group:ident),* $(,)?])?;
    )*) => { $(
        $(#[$attribute])*
        mod $name {
            #[allow(unused_imports, reason = "the types may be written with any path")]
            use super::*;

            struct Tested;
            impl $crate::conformance::Subject for Tested {
                type Key = $key;
                type Value = $value;
                type Bed = $crate::conformance!(@bed $($bed)?);
                type Index = $index;
            }
            $crate::conformance!(@groups $($($group)*)?);
        }
    )* };

    (@bed) => { $crate::conformance::Emulated };
    (@bed $bed:ty) => { $bed };

    (@groups) => { $crate::conformance!(@groups model edges naming space full threads); };
    (@groups $($group:ident)+) => { $( $crate::conformance!(@group $group); )+ };

    (@group model) => {
        $crate::conformance!(@tests {
            random_sequences($crate::conformance::scaled($crate::conformance::SEQUENCES));
        });
    };
    (@group checked) => {
        $crate::conformance!(@tests { checked_sequences($crate::conformance::scaled(64)); });
    };
    (@group edges) => {
        $crate::conformance!(@tests {
            empty(); sizes(); extreme_keys(); extreme_values(); limits();
            all_bounds(); panicking_bounds(); changes_during_iteration();
            bulk_load_sizes(); bulk_load_refusals(); damage_beside_a_load(); batches();
        });
    };
    (@group naming) => {
        $crate::conformance!(@tests { refused_names(); neighbours(); opened_often(); one_handle(); });
    };
    (@group space) => {
        $crate::conformance!(@tests { deletes_give_back(); churn_reaches_a_plateau(); });
    };

    (@group full) => {
        $crate::conformance!(@tests {
            full_at_every_allocation(); full_at_creation_and_load(); filled_to_the_brim();
            full_then_emptied(); removals_need_no_room();
            scarce_room($crate::conformance::scaled(12).into());
        });
    };
    (@group disk) => {
        $crate::conformance!(@tests {
            failing_disk(); failing_disk_among_threads($crate::conformance::scaled(40).into());
        });
    };
    (@group counts) => {
        $crate::conformance!(@tests {
            reads_change_nothing(); refused_writes_flush_nothing(); writes_fence();
        });
    };
    (@group conversions) => {
        $crate::conformance!(@tests { panics_in_conversions(); });
    };
    (@group fickle) => {
        $crate::conformance!(@tests { changing_encodings(); });
    };
    (@group threads) => {
        $crate::conformance!(@tests {
            hot_keys($crate::conformance::scaled(8000).into());
            structure_changes($crate::conformance::scaled(12_000).into());
            untouched_records($crate::conformance::scaled(40).into());
            few_slots($crate::conformance::scaled(1500).into());
            ends_among_threads($crate::conformance::scaled(300).into());
        });
    };

    (@group schedules) => {
        $crate::conformance!(@tests {
            schedules($crate::conformance::scaled(400));
            ends($crate::conformance::scaled(40));
            panics_at_any_access(1);
            panics_while_opening();
        });
    };
    (@group loads) => {
        $crate::conformance!(@tests { loads($crate::conformance::scaled(20)); });
    };
    (@group crashes) => {
        $crate::conformance!(@explored { crashes($crate::conformance::scaled(20_000)); });
    };
    (@group concurrent_crashes) => {
        $crate::conformance!(@explored {
            concurrent_crashes($crate::conformance::scaled(4000));
        });
    };
    (@group unwinding) => {
        $crate::conformance!(@tests { panics_at_any_access(5); });
    };
    (@group panics_and_crashes) => {
        $crate::conformance!(@explored {
            crashes_after_panics($crate::conformance::scaled(8000));
        });
    };

    (@tests { $( $property:ident($($argument:expr)?); )* }) => { $(
        #[test]
        fn $property() {
            let of = $crate::conformance::maker::<Tested>();
            if let Err(failure) = $crate::conformance::$property(of $(, $argument)?) {
                panic!("{failure}");
            }
        }
    )* };

    (@explored { $( $property:ident($argument:expr); )* }) => { $(
        #[test]
        fn $property() {
            if let Err(failure) = $crate::conformance::$property::<Tested>($argument) {
                panic!("{failure}");
            }
        }
    )* };
}
