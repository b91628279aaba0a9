//! Runs the simulator on programs with deliberate bugs. Each bug has a correct twin that differs in nothing
//! else: the bug must be caught, and the twin must pass.

mod broken {
    pub(crate) mod allocator;
    pub(crate) mod cells;
    pub(crate) mod log;
    pub(crate) mod redo;
    pub(crate) mod registers;
    pub(crate) mod stream;
    pub(crate) mod window;
}

use pmindex_testkit::crash::{
    Campaign, Config, CrashSubject, Failure, Persistency, explore, mutants,
};

use broken::allocator::{self, Slots};
use broken::log::{self, Log};
use broken::redo::{self, Counter};
use broken::registers::{self, Pair, Registers};
use broken::stream::{self, Stream};
use broken::window::{self, Window};

fn small() -> Config {
    Config::new().states(3000).ops(4).setup(4)
}

#[track_caller]
fn passes<S: CrashSubject>(config: &Config) {
    match explore::<S>(config) {
        Ok(report) => assert!(report.states > 30, "hardly anything explored:\n{report}"),
        Err(failure) => panic!("the correct twin failed:\n{failure}"),
    }
}

#[track_caller]
fn caught<S: CrashSubject>(config: &Config) -> Box<Failure> {
    match explore::<S>(config) {
        Ok(report) => panic!("the bug went unnoticed:\n{report}"),
        Err(failure) => failure,
    }
}

#[test]
fn correct_log_passes_on_every_medium() {
    passes::<Log<{ log::CORRECT }>>(&small());
    passes::<Log<{ log::CORRECT }>>(&small().persistency(Persistency::Eadr));
    passes::<Log<{ log::CORRECT }>>(&small().persistency(Persistency::Pages));
}

#[test]
fn missing_flush_is_caught() {
    caught::<Log<{ log::NO_RECORD_FLUSH }>>(&small());
    caught::<Log<{ log::NO_COMMIT_FLUSH }>>(&small());
}

#[test]
fn missing_fence_is_caught() {
    caught::<Log<{ log::NO_RECORD_FENCE }>>(&small());
    let failure = caught::<Log<{ log::NO_COMMIT_FENCE }>>(&small());
    assert!(failure.what.contains("surviving state"), "{failure}");
}

#[test]
fn wrong_order_is_caught() {
    caught::<Log<{ log::COMMIT_FIRST }>>(&small());
    caught::<Log<{ log::COMMIT_FIRST }>>(&small().persistency(Persistency::Eadr));
    caught::<Log<{ log::COMMIT_FIRST }>>(&small().persistency(Persistency::Pages));
}

#[test]
fn a_read_modify_write_is_not_a_fence() {
    caught::<Log<{ log::RMW_FOR_FENCE }>>(&small());
}

#[test]
fn eadr_needs_fences_but_no_flushes() {
    let eadr = small().persistency(Persistency::Eadr);
    passes::<Log<{ log::NO_RECORD_FLUSH }>>(&eadr);
    passes::<Log<{ log::NO_COMMIT_FLUSH }>>(&eadr);
    // stores persist in order there, so only the last fence counts
    passes::<Log<{ log::NO_RECORD_FENCE }>>(&eadr);
    caught::<Log<{ log::NO_COMMIT_FENCE }>>(&eadr);
}

#[test]
fn msync_needs_both() {
    let pages = small().persistency(Persistency::Pages);
    caught::<Log<{ log::NO_RECORD_FLUSH }>>(&pages);
    caught::<Log<{ log::NO_COMMIT_FENCE }>>(&pages);
}

#[test]
fn torn_16_byte_store_is_caught() {
    caught::<Pair<{ registers::TORN }>>(&small());
    passes::<Pair<{ registers::CORRECT }>>(&small());
}

#[test]
fn acting_on_another_threads_undurable_value_is_caught() {
    let two = Config::new().states(20_000).threads(2).ops(3).setup(2);
    let failure = caught::<Registers<{ registers::STALE_READ }>>(&two);
    assert!(failure.what.contains("linearization"), "{failure}");
    passes::<Registers<{ registers::CORRECT }>>(&two);
    passes::<Registers<{ registers::READER_FLUSHES }>>(&two);
    let eadr = two.persistency(Persistency::Eadr);
    passes::<Registers<{ registers::READER_FLUSHES }>>(&eadr);
}

#[test]
fn leaked_block_is_caught() {
    let failure = caught::<Slots<{ allocator::LEAK }>>(&small());
    assert!(failure.what.contains("leaked"), "{failure}");
    passes::<Slots<{ allocator::CORRECT }>>(&small());
}

#[test]
fn double_ownership_is_caught() {
    let failure = caught::<Slots<{ allocator::EARLY_FREE }>>(&small());
    assert!(failure.what.contains("free but linked"), "{failure}");
}

#[test]
fn double_free_is_caught() {
    let failure = caught::<Slots<{ allocator::FREED_TWICE }>>(&small());
    assert!(failure.what.contains("freed twice"), "{failure}");
}

#[test]
fn pointer_before_target_is_caught() {
    caught::<Slots<{ allocator::POINTER_FIRST }>>(&small());
}

#[test]
fn unfenced_non_temporal_data_is_caught_even_with_eadr() {
    caught::<Stream<{ stream::NO_FENCE }>>(&small());
    caught::<Stream<{ stream::NO_FENCE }>>(&small().persistency(Persistency::Eadr));
    passes::<Stream<{ stream::CORRECT }>>(&small());
    passes::<Stream<{ stream::CORRECT }>>(&small().persistency(Persistency::Eadr));
}

#[test]
fn bulk_copies_persist_out_of_order_even_with_eadr() {
    caught::<Stream<{ stream::BULK_IN_ORDER }>>(&small());
    caught::<Stream<{ stream::BULK_IN_ORDER }>>(&small().persistency(Persistency::Eadr));
}

#[test]
fn ordinary_store_to_a_line_with_non_temporal_data_pending_is_caught() {
    let failure = caught::<Stream<{ stream::STORE_TO_PENDING_LINE }>>(&small());
    assert!(failure.what.contains("non-temporal data pending"), "{failure}");
}

#[test]
fn lock_that_survives_a_crash_is_caught() {
    let failure = caught::<Counter<{ redo::LOCK_SURVIVES }>>(&small());
    assert!(failure.what.contains("step limit"), "{failure}");
    passes::<Counter<{ redo::CORRECT }>>(&small());
}

#[test]
fn recovery_that_is_not_idempotent_is_caught() {
    let failure = caught::<Counter<{ redo::REDO_TWICE }>>(&small());
    assert!(failure.path.iter().any(|p| p.contains("crash of recovery")), "{failure}");
}

#[test]
fn recovery_that_does_not_persist_is_caught() {
    caught::<Counter<{ redo::UNPERSISTED_RECOVERY }>>(&small());
}

#[test]
fn acting_on_what_a_dead_process_left_in_the_caches_is_caught() {
    let failure = caught::<Counter<{ redo::ACTS_ON_CACHES }>>(&small());
    assert!(failure.path.iter().any(|p| p.contains("its caches lived on")), "{failure}");
    for persistency in [Persistency::Lines, Persistency::Pages] {
        passes::<Counter<{ redo::CORRECT }>>(&small().persistency(persistency));
        passes::<Counter<{ redo::FLUSHES_CACHES }>>(&small().persistency(persistency));
    }
    // Persistent caches keep the stores of the dead process.
    passes::<Counter<{ redo::ACTS_ON_CACHES }>>(&small().persistency(Persistency::Eadr));
}

/// The last of many directed plans shows the fault only if one thread is preempted at one place, and only if it
/// crashes there. The states would not suffice for seeded schedules of all plans before it.
#[test]
fn every_directed_plan_is_preempted_before_the_states_are_used_up() {
    let two = Config::new().states(8000).threads(2);
    let failure = caught::<Window<{ window::STALE_READ }>>(&two);
    assert!(failure.plan.iter().any(|line| line.contains("Set(7)")), "{failure}");
    let report = explore::<Window<{ window::CORRECT }>>(&two).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(report.preempted, window::PREEMPTED, "{report}");
    assert!(report.summary().contains("539 with at most one preemption"), "{report}");
}

#[test]
fn failures_replay_and_are_small() {
    let failure = caught::<Log<{ log::NO_COMMIT_FENCE }>>(&small().ops(6).setup(12));
    let again = small().ops(6).setup(12).seed(failure.seed);
    let replayed = caught::<Log<{ log::NO_COMMIT_FENCE }>>(&again);
    assert_eq!(failure.to_string(), {
        let mut same = replayed.clone();
        same.config.seed = failure.config.seed;
        same.to_string()
    });
    // one append is enough to show it
    assert_eq!(failure.plan[0], "setup:    []", "{failure}");
    assert_eq!(failure.plan[1].matches("Append").count(), 1, "{failure}");
}

#[test]
fn every_mutant_of_a_correct_program_is_caught() {
    fn check<S: CrashSubject>() {
        let config = small();
        let report = explore::<S>(&config).unwrap_or_else(|f| panic!("{f}"));
        let mutants = mutants::<S>(&[config], &[report]);
        assert!(mutants.all.len() >= 4, "{mutants}");
        assert_eq!(mutants.survivors().count(), 0, "{mutants}");
    }
    check::<Log<{ log::CORRECT }>>();
    check::<Stream<{ stream::CORRECT }>>();
}

#[test]
fn a_redundant_flush_survives_as_a_mutant() {
    let config = small();
    let report = explore::<Log<{ log::FLUSH_TWICE }>>(&config).unwrap_or_else(|f| panic!("{f}"));
    let mutants = mutants::<Log<{ log::FLUSH_TWICE }>>(&[config], &[report]);
    let survivors: Vec<String> = mutants.survivors().map(ToString::to_string).collect();
    assert!(survivors.iter().any(|s| s.contains("flush at") && s.contains("dropped")), "{mutants}");
}

#[test]
fn a_campaign_covers_every_step_of_the_source() {
    let campaign = Campaign { states: 4000, seed: 1, mutate: false, slots: None };
    let findings = campaign.run::<Slots<{ allocator::CORRECT }>>();
    assert!(findings.hold(), "{findings}");
    assert!(findings.reports.iter().all(|r| r.nested > 0), "{findings}");
    // some steps of the log exist only in the broken variants
    let findings = campaign.run::<Log<{ log::CORRECT }>>();
    assert!(!findings.unreached.is_empty() && !findings.hold(), "{findings}");
}
