//! From a configuration to trials, and from a failing trial to a minimal one.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config as RunnerConfig, RngAlgorithm, TestRng, TestRunner};

use super::config::Config;
use super::erased::{AnyOp, AnySubject};
use super::explore::{AnyExplorer, Directed};
use super::failure::Failure;
use super::report::Report;
use super::rng::Rng;
use super::run::{Plan, Turns};
use super::site::Site;

/// The number of consecutive runs without a new state after which a search counts as exhausted.
const IDLE_TRIALS: u64 = 80;
/// The smallest number of runs: when the states are used up, further runs are crashed only at new steps.
const MIN_TRIALS: u64 = 80;
/// The smallest number of states of which directed runs get a part, except for mutants.
const DIRECTED_STATES: u64 = 40_000;
/// The same for several threads, whose faults depend on schedules, with few states each.
const DIRECTED_STATES_CONCURRENT: u64 = 8_000;
/// The number of crashes of a directed run.
const DIRECTED_RUNS: u64 = 4;
/// The same for several threads, with schedules by seeds: most schedules are harmless.
const DIRECTED_SCHEDULES: u64 = 32;
/// The largest number of runs of a directed plan in which a thread is preempted at one handover point, for
/// each thread.
const PREEMPTIONS: u64 = 32;
/// The largest number of reductions tried on a failure.
const SHRINKS: usize = 400;

/// Explores until `config.states` different crash states were checked.
///
/// # Errors
/// The first failure, reduced to a minimal sequence of operations if `config.shrink`.
pub(crate) fn explore(subject: AnySubject, config: &Config) -> Result<Report, Box<Failure>> {
    let mut explorer = AnyExplorer::new(subject, config.clone());
    explore_directed(&mut explorer, subject, config)?;
    let (mut trial, mut idle) = (0, 0);
    let unfinished = |report: &Report| report.states < config.states || report.trials < MIN_TRIALS;
    while unfinished(explorer.report()) && idle < IDLE_TRIALS {
        let seed = config.seed.wrapping_add(trial);
        let mut tree = tree(subject, config, seed);
        let before = explorer.report().states;
        if let Err(failure) = explorer.explore(&tree.current(), seed) {
            return Err(if config.shrink {
                shrink(subject, config, seed, &mut *tree, failure)
            } else {
                failure
            });
        }
        trial += 1;
        idle = if explorer.report().states == before { idle + 1 } else { 0 };
    }
    Ok(explorer.into_report())
}

/// Explores the directed plans: of several threads first with one preemption each, so that no plan comes after the
/// states are used up, then with schedules by seeds.
fn explore_directed(
    explorer: &mut AnyExplorer,
    subject: AnySubject,
    config: &Config,
) -> Result<(), Box<Failure>> {
    let concurrent = config.threads > 1;
    let least = if concurrent { DIRECTED_STATES_CONCURRENT } else { DIRECTED_STATES };
    if config.mutation.is_none() && config.states < least {
        return Ok(()); // they would take too much of so few
    }
    let all = subject.directed();
    let fits = |plan: &&Plan<AnyOp>| plan.threads.len() == config.threads;
    let plans: Vec<_> = (0..).zip(&all).filter(|(_, plan)| fits(plan)).collect();
    let schedules = concurrent && config.mutation.is_none();
    let runs_of_plan = match config.mutation {
        None if concurrent => DIRECTED_SCHEDULES,
        _ if concurrent => 4 * DIRECTED_RUNS,
        _ => DIRECTED_RUNS,
    };
    let runs = runs_of_plan * plans.len() as u64;
    if concurrent {
        for (nth, &(i, plan)) in plans.iter().enumerate() {
            let mut seeds = (0..).map(|run| directed_seed(config, i, 3 * run));
            for thread in 0..config.threads {
                let threads = (plans.len() - nth) * config.threads - thread;
                let mut runs = threads as u64 * (1 + PREEMPTIONS);
                let mut explore = |at| {
                    let directed = Directed { runs, turns: Some(Turns::HandOver { thread, at }) };
                    runs -= 1;
                    explorer.explore_directed(plan, seeds.next().unwrap_or_default(), directed)
                };
                let points = explore(u64::MAX)?[thread]; // without preemption
                for at in preemptions(points, config.seed) {
                    explore(at)?;
                }
            }
        }
    }
    for &(i, plan) in &plans {
        for run in 0..runs_of_plan {
            let seed = directed_seed(config, i, if schedules { 3 * run + 2 } else { run });
            explorer.explore_directed(plan, seed, Directed { runs, turns: None })?;
        }
    }
    Ok(())
}

/// Explores each directed plan once, with few states.
pub(crate) fn explore_plans(subject: AnySubject, config: &Config) -> Result<Report, Box<Failure>> {
    let mut explorer = AnyExplorer::new(subject, config.clone());
    let fits = |plan: &&Plan<AnyOp>| plan.threads.len() == config.threads;
    let all = subject.directed();
    let plans: Vec<_> = (0..).zip(&all).filter(|(_, plan)| fits(plan)).collect();
    for &(i, plan) in &plans {
        let directed = Directed { runs: plans.len() as u64, turns: None };
        explorer.explore_directed(plan, directed_seed(config, i, 0), directed)?;
    }
    Ok(explorer.into_report())
}

/// Returns at which of its handover points a thread is preempted, of each in a run of its own: at all, or at some of
/// them, evenly spaced, if there are many.
fn preemptions(points: u64, seed: u64) -> impl Iterator<Item = u64> {
    let stride = points.div_ceil(PREEMPTIONS).max(1);
    (1 + seed % stride..=points).step_by(stride as usize)
}

/// Returns the seed of a run of the directed plan `i`. It avoids crashes in creation and, with one thread, a
/// late start: modulo 4 it is 1 or 2; with several threads, every third run starts late.
fn directed_seed(config: &Config, i: u64, run: u64) -> u64 {
    let kinds = if config.threads > 1 { 3 } else { 2 };
    4 * (config.seed.wrapping_add(i << 8 | run)) + 1 + run % kinds
}

/// The plans that execute each step, which are tried first on a mutant of it.
#[derive(Debug)]
pub(crate) struct Scouted {
    /// For each step, seeds of trials that execute it.
    seeds: BTreeMap<Site, Vec<u64>>,
    /// For each step, the directed plans that execute it after their setup, by their places.
    directed: BTreeMap<Site, Vec<usize>>,
}

/// The number of trials that are run, without crashes, to see which steps they execute.
const SCOUTS: u64 = 400;
/// The largest number of these that are kept for a step.
const KEPT: usize = 16;
/// Crash states explored after the step, in each.
const FOCUSED_STATES: u64 = 1200;
/// The number of crashes of each directed run, anywhere, for a step that none of these executed.
const RECOVERIES: u64 = 16;
/// Crash states explored in each.
const RECOVERY_STATES: u64 = 400;

/// Finds the steps that the first trials execute.
pub(crate) fn scout(subject: AnySubject, config: &Config) -> Scouted {
    let mut explorer = AnyExplorer::new(subject, config.clone());
    let mut seeds: BTreeMap<Site, Vec<u64>> = BTreeMap::new();
    for trial in 0..SCOUTS {
        let seed = config.seed.wrapping_add(trial);
        for site in explorer.scout(&tree(subject, config, seed).current(), seed) {
            let found = seeds.entry(site).or_default();
            if found.len() < KEPT {
                found.push(seed);
            }
        }
    }
    let mut directed: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
    for (i, plan) in subject.directed().iter().enumerate() {
        if plan.threads.len() == config.threads {
            for site in explorer.scout_after_setup(plan, directed_seed(config, i as u64, 0)) {
                directed.entry(site).or_default().push(i);
            }
        }
    }
    Scouted { seeds, directed }
}

/// Explores a mutant in runs that execute its step. `config` has the mutation.
pub(crate) fn explore_mutant(
    subject: AnySubject,
    config: &Config,
    site: Site,
    scouted: &Scouted,
) -> Result<(), Box<Failure>> {
    let mut explorer = AnyExplorer::new(subject, config.clone());
    if let Some(executing) = scouted.directed.get(&site) {
        // The purpose of a directed plan often needs its own operations after the crash, too.
        let plans = subject.directed();
        for run in 0..DIRECTED_RUNS {
            for &i in executing {
                let seed = directed_seed(config, i as u64, run);
                explorer.explore_mutant(&plans[i], seed, FOCUSED_STATES, false)?;
            }
        }
    }
    if let Some(seeds) = scouted.seeds.get(&site) {
        for &seed in seeds {
            let plan = tree(subject, config, seed).current();
            explorer.explore_mutant(&plan, seed, FOCUSED_STATES, true)?;
        }
    }
    // Perhaps a step of recovery too: it is not known which crashes lead to it, and most of those that do are deep
    // in a run.
    let plans: Vec<_> = subject
        .directed()
        .into_iter()
        .filter(|plan| plan.threads.len() == config.threads)
        .collect();
    for run in 0..RECOVERIES {
        for (i, plan) in plans.iter().enumerate() {
            let seed = config.seed.wrapping_add((i as u64) << 8 | run);
            explorer.explore_recoveries(plan, seed, RECOVERY_STATES)?;
        }
    }
    Ok(())
}

type Tree = Box<dyn ValueTree<Value = Plan<AnyOp>>>;

fn tree(subject: AnySubject, config: &Config, seed: u64) -> Tree {
    let mut bytes = [0u8; 32];
    let mut rng = Rng::new(seed);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    let source = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(RunnerConfig::default(), source);
    let setup = rng.below(config.setup + 1);
    let plan = plans(subject, setup, config.ops, config.threads);
    match plan.new_tree(&mut runner) {
        Ok(tree) => tree,
        Err(why) => panic!("the subject's strategy gives no operations: {why}"),
    }
}

fn plans(
    subject: AnySubject,
    setup: usize,
    ops: usize,
    threads: usize,
) -> BoxedStrategy<Plan<AnyOp>> {
    let op = || subject.ops_for(threads);
    let thread = vec(op(), 0..=ops).prop_filter("no operation", |ops| !ops.is_empty());
    (vec(op(), 0..=setup), vec(thread, threads), vec(op(), 8))
        .prop_map(|(setup, threads, tail)| Plan { setup, threads, tail })
        .boxed()
}

/// Reduces a failing plan; each candidate is explored anew with the same seed.
fn shrink(
    subject: AnySubject,
    config: &Config,
    seed: u64,
    tree: &mut dyn ValueTree<Value = Plan<AnyOp>>,
    mut failure: Box<Failure>,
) -> Box<Failure> {
    let mut tries = 0;
    while tries < SHRINKS && tree.simplify() {
        loop {
            tries += 1;
            let mut explorer = AnyExplorer::new(subject, config.clone());
            match explorer.explore(&tree.current(), seed) {
                Err(smaller) => {
                    failure = smaller;
                    break;
                }
                Ok(_) if tries >= SHRINKS || !tree.complicate() => return failure,
                Ok(_) => {}
            }
        }
    }
    failure
}
