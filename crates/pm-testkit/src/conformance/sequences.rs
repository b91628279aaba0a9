//! Random sequences of operations against `BTreeMap`, shrunk to a minimal one on failure.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

use pmindex_index::Index;

use super::contents::same_contents;
use super::operation::{Model, Operation, apply, operation, stats_are_sane};
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{Rig, Subject};
use super::verdict::{Failure, Verdict, Within};

/// Multiplies a number of cases by the environment variable `PMINDEX_LONG`, if it is a number: the
/// suite can be made to run longer, never shorter.
#[must_use]
pub fn scaled(cases: u32) -> u32 {
    let factor = std::env::var("PMINDEX_LONG").ok().and_then(|text| text.parse().ok());
    cases.saturating_mul(factor.unwrap_or(1).max(1))
}

/// Runs `test` on `cases` values of the strategy. The seed is fixed, so that every run of the suite
/// is the same; the failure shows the minimal value that fails.
pub(crate) fn for_all<T: Strategy>(
    cases: u32,
    strategy: &T,
    test: impl Fn(T::Value) -> Verdict,
) -> Verdict {
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x706d_696e_6465_7821),
        max_shrink_time: 20_000, // milliseconds
        ..Config::default()
    };
    TestRunner::new(config)
        .run(strategy, |value| test(value).map_err(|f| TestCaseError::fail(f.to_string())))
        .map_err(|error| match error {
            TestError::Fail(why, minimal) => Failure::new(format!("{why}; minimal: {minimal:?}")),
            TestError::Abort(why) => Failure::new(format!("no cases: {why}")),
        })
}

/// A sequence on an index that starts with some of the family's keys.
#[derive(Clone, Debug)]
struct Plan<K, V> {
    start: u64,
    loaded: bool,
    operations: Vec<Operation<K, V>>,
}

fn plan<K: SampleKey, V: SampleValue>() -> impl Strategy<Value = Plan<K, V>> {
    let start = prop_oneof![2 => Just(0), 1 => 0..40u64, 1 => 0..512u64];
    (start, any::<bool>(), proptest::collection::vec(operation(), 1..240))
        .prop_map(|(start, loaded, operations)| Plan { start, loaded, operations })
}

fn run<S: Subject>(plan: &Plan<S::Key, S::Value>) -> Verdict {
    let mut rig = Rig::<S>::new()?;
    let records = family::<S::Key, S::Value>(0..plan.start);
    let mut model = Model::new();
    if plan.loaded {
        rig.index().bulk_load(&mut records.clone().into_iter()).within("bulk_load at first")?;
        model.extend(records);
    } else {
        for (key, value) in records {
            apply(&mut rig, &mut model, &Operation::Insert(key, value)).within("at first")?;
        }
    }
    for (at, operation) in plan.operations.iter().enumerate() {
        apply(&mut rig, &mut model, operation).within(format_args!("operation {at}"))?;
    }
    same_contents(rig.index(), &model).within("at the end")?;
    stats_are_sane(&rig, model.len() as u64).within("at the end")?;
    rig.audit().within("at the end")?;
    rig.drop_and_open()?;
    same_contents(rig.index(), &model).within("at the end, dropped and opened")?;
    rig.audit().within("at the end, dropped and opened")
}

/// `cases` random sequences of up to 240 operations of every kind, each result compared with
/// `BTreeMap`'s, closing or dropping and opening again in between.
pub fn random_sequences<S: Subject>(cases: u32) -> Verdict {
    for_all(cases, &plan::<S::Key, S::Value>(), |plan| run::<S>(&plan))
}
