//! Crashes at every step of the allocator: one block, batches, frees, retired blocks, the begin and end of
//! slabs, extents, a full pool, a growing pool, operations that are dropped in the middle, and processes that
//! die there; with nested recoveries, and two and three threads. Every flush and fence is needed.

mod blocks;

use std::collections::BTreeSet;

use blocks::{Blocks, Step};
use pmindex_testkit::crash::{
    Change, Config, CrashSubject, Explorer, Mutation, Persistency, Plan, Report, Site, StepKind,
    explore,
};

#[track_caller]
fn passes<S: CrashSubject>(config: &Config) -> Report {
    match explore::<S>(config) {
        Ok(report) => {
            assert!(report.states > 1000, "hardly anything explored:\n{report}");
            report
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn allocator_with_persistent_caches() {
    passes::<Blocks>(&Config::new().states(10_000).persistency(Persistency::Eadr));
}

#[test]
fn allocator_written_back_by_pages() {
    passes::<Blocks>(&Config::new().states(10_000).persistency(Persistency::Pages));
}

#[test]
fn allocator_three_threads() {
    passes::<Blocks>(&Config::new().states(20_000).threads(3).ops(2));
}

/// Sequences that random ones seldom produce: a word that tickets name changes outside of operations, and
/// only settling made the tickets durably void; a slab ends, and one of another class begins in its pages.
fn directed() -> Vec<Plan<Step>> {
    let batch = |mask| Step::Batch { mask, size: 0, tag: 7 };
    let put = |size| Step::Put { at: 0, size, tag: 8 };
    let take = Step::Take { at: 0, retire: false };
    let die = |how_far| Step::Die { at: 1, size: 0, how_far, tag: 9 };
    let sequences = [
        vec![batch(1), Step::Shift { at: 0 }],
        vec![batch(3), Step::Trim, Step::Shift { at: 0 }],
        vec![batch(1), die(0), Step::Shift { at: 0 }],
        vec![die(2), batch(2), Step::Shift { at: 1 }],
        vec![die(4), Step::Shift { at: 1 }],
        vec![put(1), take, Step::Trim, put(3)],
    ];
    let plan = |ops| Plan { setup: vec![], threads: vec![ops], tail: vec![] };
    let mut plans: Vec<_> = sequences.into_iter().map(plan).collect();
    // Of five tickets, on three lines, the last alone becomes durable; then its word changes.
    plans.push(Plan {
        setup: vec![],
        threads: vec![vec![batch(31)]],
        tail: vec![batch(7), batch(16)],
    });
    plans
}

/// Returns `true` if some crash state reveals the mutant (or the program, if `None`). The need for a barrier
/// shows only where stores to a line are ordered by nothing else.
fn is_caught(random: &[Config], mutation: Option<Mutation>) -> bool {
    let model = match mutation {
        Some(Mutation { site: Site { kind: StepKind::Barrier, .. }, .. }) => Persistency::Barriers,
        _ => Persistency::Lines,
    };
    let with =
        |config: &Config| Config { mutation, shrink: false, ..config.clone() }.persistency(model);
    let mut explorer = Explorer::<Blocks>::new(with(&Config::new().states(50_000)));
    directed().iter().any(|plan| explorer.explore(plan, 0).is_err())
        || random.iter().any(|config| explore::<Blocks>(&with(config)).is_err())
}

#[test]
fn directed_sequences_hold() {
    let mut config = Config::new().states(30_000);
    config.nest_every = 4;
    config.nested_states = 1000;
    let mut explorer = Explorer::<Blocks>::new(config);
    for plan in directed() {
        if let Err(failure) = explorer.explore(&plan, 0) {
            panic!("{failure}");
        }
    }
}

#[test]
fn every_flush_and_fence_of_the_allocator_is_needed() {
    let random = [Config::new().states(40_000), Config::new().states(40_000).threads(2).ops(3)];
    let reports = random.each_ref().map(passes::<Blocks>);
    assert!(!is_caught(&[], None), "a directed sequence breaks without any mutation");
    let sites: BTreeSet<_> = reports.iter().flat_map(|r| &r.steps).map(|step| step.site).collect();
    assert!(sites.len() > 30, "the steps are there: {sites:?}");
    let mut survivors = Vec::new();
    for site in sites {
        for &change in Change::of(site.kind) {
            let mutation = Mutation { site, change };
            if !is_caught(&random, Some(mutation)) {
                survivors.push(mutation.to_string());
            }
        }
    }
    assert!(survivors.is_empty(), "redundant, or not tested:\n{}", survivors.join("\n"));
}
