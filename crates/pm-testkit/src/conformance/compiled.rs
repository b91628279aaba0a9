//! The suite, compiled for the types that indexes are tested with.
//!
//! At the optimisation level of tests, crates share the generic code that their dependencies have
//! instantiated: what is named here is compiled once, not once for each index. Other types work too, but
//! their tests take longer to compile.

use std::hint::black_box;

use super::bed::{Emulated, InFiles, Simulated};
use super::fuse::Fuse;
use super::subject::{Maker, Types};
use super::verdict::Verdict;

/// A property without a parameter.
type Plain<S> = fn(Maker<S>) -> Verdict;

/// Names the properties that need any bed, so that they are compiled.
fn anywhere<S: Types>() {
    let plain: [Plain<S>; 6] = [
        super::refused_names,
        super::neighbours,
        super::opened_often,
        super::deletes_give_back,
        super::churn_reaches_a_plateau,
        |of| super::random_sequences(of, 1).and_then(|()| super::checked_sequences(of, 1)),
    ];
    black_box(plain);
}

/// Names those that need the pools of [`Emulated`], or take long on other beds.
fn in_memory<S: Types<Bed = Emulated>>() {
    let plain: [Plain<S>; 16] = [
        super::empty,
        super::sizes,
        super::extreme_keys,
        super::extreme_values,
        super::limits,
        super::all_bounds,
        super::panicking_bounds,
        super::changes_during_iteration,
        super::bulk_load_sizes,
        super::bulk_load_refusals,
        super::damage_beside_a_load,
        super::batches,
        super::full_at_every_allocation,
        super::full_at_creation_and_load,
        super::filled_to_the_brim,
        super::full_then_emptied,
    ];
    let counted: [fn(Maker<S>, u64) -> Verdict; 5] = [
        super::scarce_room,
        super::hot_keys,
        super::structure_changes,
        super::untouched_records,
        super::ends_among_threads,
    ];
    black_box((plain, counted));
    anywhere::<S>();
}

/// Names those of simulated pools.
fn in_simulation<S: Types<Bed = Simulated>>() {
    black_box::<Plain<S>>(super::scheduled);
}

/// Compiles the suite for the usual types; there is no need to call it.
#[doc(hidden)]
pub fn compiled() {
    in_memory::<(u64, u64, Emulated)>();
    in_memory::<(u64, Vec<u8>, Emulated)>();
    in_memory::<(Vec<u8>, u64, Emulated)>();
    in_memory::<(Vec<u8>, Vec<u8>, Emulated)>();
    in_memory::<([u8; 16], [u8; 16], Emulated)>();
    in_memory::<((u64, [u8; 12]), [u8; 16], Emulated)>();
    anywhere::<(Vec<u8>, Vec<u8>, InFiles)>();
    in_simulation::<(u64, u64, Simulated)>();
    in_simulation::<(Vec<u8>, Vec<u8>, Simulated)>();
    black_box::<Plain<(Fuse, Fuse, Emulated)>>(super::panics_in_conversions);
}
