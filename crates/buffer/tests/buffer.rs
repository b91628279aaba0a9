//! Crashes of pool, log and disk together, with one and two threads; and the faults of the text, which must
//! be noticed. `cargo xtask crash --index buffer` explores more.

#[path = "parts/archive.rs"]
mod archive;
#[path = "parts/costs.rs"]
mod costs;
#[path = "parts/opacity.rs"]
mod opacity;
#[path = "subject/pages.rs"]
mod pages;
#[path = "subject/pool_disk.rs"]
mod pool_disk;
#[path = "parts/repair.rs"]
mod repair;
#[path = "subject/warm.rs"]
mod warm;

use std::sync::atomic::Ordering::Relaxed;

use pages::{ARCHIVED, FOUND, HOT, MANY, NONE, Pages};
use pmindex_testkit::crash::{Config, Persistency, explore};
use warm::Warm;

#[track_caller]
fn passes<const PARTITIONS: u32>(config: &Config) {
    match explore::<Pages<NONE, PARTITIONS>>(config) {
        Ok(report) => assert!(report.states > 100, "hardly anything explored:\n{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn one_thread_meets_every_state_of_a_frame() {
    passes::<0>(&Config::new().states(6000));
    let found = &FOUND[NONE];
    for (name, count) in [
        ("valid", &found.valid),
        ("outdated", &found.outdated),
        ("corrupted", &found.corrupted),
        ("restored from the staging area", &found.restored),
    ] {
        assert!(count.load(Relaxed) > 0, "no frame was {name}");
    }
    assert_eq!(found.ahead.load(Relaxed), 0);
}

#[test]
fn two_threads() {
    // Enough for the directed plans, of which fewer states have none.
    passes::<0>(&Config::new().states(12_000).threads(2).ops(4).setup(12));
}

#[test]
fn partitions() {
    passes::<4>(&Config::new().states(3000));
}

#[test]
fn copies_in_dram() {
    passes::<HOT>(&Config::new().states(3000));
    passes::<HOT>(&Config::new().states(2000).threads(2).ops(4).setup(12));
    assert!(FOUND[NONE].promoted.load(Relaxed) > 0, "no page got a copy");
}

#[test]
fn frames_that_are_emptied_together() {
    passes::<MANY>(&Config::new().states(3000));
}

#[test]
fn with_an_archive_a_page_that_rots_is_always_read_as_it_was() {
    passes::<ARCHIVED>(&Config::new().states(6000));
    passes::<ARCHIVED>(&Config::new().states(4000).threads(2).ops(4).setup(12));
    assert!(FOUND[NONE].rebuilt.load(Relaxed) > 0, "no page was built from the archive");
}

#[test]
fn a_page_with_an_entry_is_in_its_frame_after_a_power_failure() {
    match explore::<Warm>(&Config::new().states(3000)) {
        Ok(report) => assert!(report.states > 100, "hardly anything explored:\n{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn persistent_caches() {
    passes::<0>(&Config::new().states(1500).persistency(Persistency::Eadr));
}

#[test]
fn pages_written_back() {
    passes::<0>(&Config::new().states(1500).persistency(Persistency::Pages));
}

/// A fault of the thesis's text, by its number among those of [`Pages`].
#[track_caller]
fn is_caught<const MUTANT: usize, const PARTITIONS: u32>() {
    let tries = [Config::new(), Config { exhaustive: 16, random: 6, ..Config::new() }];
    let caught = tries.into_iter().any(|config| {
        let config = Config { shrink: false, ..config.states(40_000) };
        explore::<Pages<MUTANT, PARTITIONS>>(&config).is_err()
    });
    assert!(caught, "nothing notices the fault");
}

#[test]
fn changes_in_place_before_their_record_are_caught() {
    is_caught::<1, 0>();
}

#[test]
fn a_horizon_that_passes_unflushed_frames_is_caught() {
    is_caught::<2, 0>();
}

#[test]
fn lsns_that_are_drawn_again_are_caught() {
    is_caught::<3, 0>();
    assert!(FOUND[3].ahead.load(Relaxed) > 0, "no frame was ahead");
}

#[test]
fn a_root_that_is_not_over_the_partitions_is_caught() {
    is_caught::<4, 4>();
}

#[test]
fn a_page_number_that_is_not_compared_is_caught() {
    is_caught::<5, 0>();
}

#[test]
fn a_torn_page_of_the_disk_without_a_copy_is_caught() {
    is_caught::<6, 0>();
}

#[test]
fn records_that_reach_the_archive_after_the_log_was_cut_are_caught() {
    is_caught::<7, ARCHIVED>();
}

#[test]
fn an_archive_that_names_a_run_before_it_is_durable_is_caught() {
    is_caught::<8, ARCHIVED>();
}

#[test]
fn a_tag_that_reaches_the_root_after_the_archive_is_caught() {
    is_caught::<9, ARCHIVED>();
}

#[test]
fn a_root_that_forgets_the_tag_of_the_archive_before_is_caught() {
    is_caught::<10, ARCHIVED>();
}
