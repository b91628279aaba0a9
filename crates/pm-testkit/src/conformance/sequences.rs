//! Random sequences of operations against `BTreeMap`, shrunk to a minimal one on failure.

use std::ops::Bound;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

use super::contents::same_contents;
use super::operation::{Model, Operation, apply, operation, stats_are_sane};
use super::sample::{SampleKey, SampleValue, family, one_of};
use super::subject::{Maker, Rig, Types};
use super::verdict::{Failure, Verdict, Within, expect_eq};

/// Multiplies a number of cases by the environment variable `PMINDEX_LONG`, if it is a number: the suite can
/// run longer, never shorter.
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

fn plan<K: SampleKey, V: SampleValue>() -> BoxedStrategy<Plan<K, V>> {
    let start = one_of([(2, Just(0).boxed()), (1, (0..40u64).boxed()), (1, (0..512u64).boxed())]);
    (start, any::<bool>(), proptest::collection::vec(operation(), 1..240))
        .prop_map(|(start, loaded, operations)| Plan { start, loaded, operations })
        .boxed()
}

fn run<S: Types>(of: Maker<S>, plan: &Plan<S::Key, S::Value>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let records = family::<S::Key, S::Value>(0..plan.start);
    let mut model = Model::new();
    if plan.loaded {
        rig.index().bulk_load(&mut records.clone().into_iter()).within("bulk_load at first")?;
        model.extend(records);
    } else {
        for (key, value) in records {
            apply(&mut rig, &mut model, &Operation::TryInsert(key, value)).within("at first")?;
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
pub fn random_sequences<S: Types>(of: Maker<S>, cases: u32) -> Verdict {
    for_all(cases, &plan::<S::Key, S::Value>(), |plan| run(of, &plan))
}

/// `cases` random sequences of up to 200 operations on a handful of keys, so that nodes fill, split
/// and empty all the time, with the whole structure verified after every operation.
pub fn checked_sequences<S: Types>(of: Maker<S>, cases: u32) -> Verdict {
    for_all(cases, &dense::<S::Key, S::Value>(), |operations| {
        let mut rig = Rig::new(of)?;
        let mut model = Model::new();
        for (at, operation) in operations.iter().enumerate() {
            apply(&mut rig, &mut model, operation)
                .and_then(|()| Ok(rig.index().check()?))
                .and_then(|count| expect_eq(&"check", &count, &(model.len() as u64)))
                .within(format_args!("operation {at}"))?;
        }
        same_contents(rig.index(), &model).within("at the end")
    })
}

/// Operations on 60 keys; every range is taken from its start, from its end, and from both in turn.
fn dense<K: SampleKey, V: SampleValue>() -> BoxedStrategy<Vec<Operation<K, V>>> {
    use proptest::collection::vec;
    let edges = proptest::sample::select(K::edges());
    let key = one_of([(20, (0..60u64).prop_map(K::nth).boxed()), (1, edges.boxed())]);
    let record = (key.clone(), V::sample()).boxed();
    let on_key = |make: fn(K) -> Operation<K, V>| key.clone().prop_map(make).boxed();
    let on_record = |make: fn((K, V)) -> Operation<K, V>| record.clone().prop_map(make).boxed();
    let turns = prop_oneof![Just(0), Just(u64::MAX), Just(0xaaaa_aaaa_aaaa_aaaa)];
    let range = (0..60u64, 0..60u64, turns).prop_map(|(a, b, turns)| Operation::Range {
        lower: Bound::Included(K::nth(a.min(b))),
        upper: Bound::Included(K::nth(a.max(b))),
        turns,
    });
    let operation = one_of([
        (6, on_record(|(k, v)| Operation::TryInsert(k, v))),
        (1, on_record(|(k, v)| Operation::Update(k, v))),
        (1, on_record(|(k, v)| Operation::Put(k, v))),
        (1, vec(record.clone(), 0..30).prop_map(Operation::TryInsertMany).boxed()),
        (1, vec(key.clone(), 0..30).prop_map(Operation::GetMany).boxed()),
        (5, on_key(Operation::Remove)),
        (1, on_key(Operation::Get)),
        (1, on_key(Operation::Contains)),
        (2, range.boxed()),
        (
            1,
            one_of([
                (1, Just(Operation::CloseAndOpen).boxed()),
                (1, Just(Operation::DropAndOpen).boxed()),
            ]),
        ),
    ]);
    vec(operation, 1..200).boxed()
}
