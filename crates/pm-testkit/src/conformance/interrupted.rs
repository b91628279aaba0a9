//! Crash states of an index whose operations are interrupted by panics in the user's conversions.
//!
//! The panic is caught, and the process goes on with the same handle, opens another one, or dies: an
//! interrupted operation happened or did not, from then on and after every crash; of many records it may be any
//! part. What was acknowledged before or after stays.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use pmindex_core::trace::Space;
use pmindex_index::PmIndex;
use proptest::prelude::*;

use super::bed::Simulated;
use super::crashes::CrashOf;
use super::fuse::{BURNT, Fuse};
use super::sequences::scaled;
use super::subject::Subject;
use super::verdict::{Failure, Verdict, ensure};
use crate::crash::{
    Config, CrashIndex, CrashSubject, Explorer, Fault, Geometry, IndexOp, IndexRet, IndexSubject,
    Plan, explore,
};

/// An operation, and the number of conversions after which it is interrupted, if it is.
#[derive(Clone, Debug)]
pub struct Burning {
    op: IndexOp,
    after: Option<u64>,
}

/// An index in a pool of its own, with operations that are interrupted: the subject made from a [`CrashIndex`] whose
/// keys and values are [`Fuse`]s.
pub struct Interrupted<C: CrashIndex>(IndexSubject<C>);

impl<C: CrashIndex> fmt::Debug for Interrupted<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, interrupted", self.0)
    }
}

impl<C: CrashIndex> CrashSubject for Interrupted<C> {
    type Op = Burning;
    /// `None`: it was interrupted.
    type Ret = Option<IndexRet<C::Key, C::Value>>;
    type Model = <IndexSubject<C> as CrashSubject>::Model;
    const NAME: &'static str = C::NAME;

    fn geometry() -> Geometry {
        IndexSubject::<C>::geometry()
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        IndexSubject::create(space).map(Self)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(IndexSubject::open(space)?.map(Self))
    }

    fn apply(&self, Burning { op, after }: &Burning) -> Result<Self::Ret, Fault> {
        Fuse::burn_after(*after);
        let ended = catch_unwind(AssertUnwindSafe(|| self.0.apply(op)));
        Fuse::burn_after(None);
        match ended {
            Ok(ret) => ret.map(Some),
            Err(panic) if panic.downcast_ref::<&str>() == Some(&BURNT) => {
                if !self.0.is_open() {
                    self.0.apply(&IndexOp::OpenAgain)?;
                }
                Ok(None)
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        self.0.observe()
    }

    fn audit(&self) -> Result<(), Fault> {
        self.0.audit()
    }

    fn model(model: &mut Self::Model, burning: &Burning) -> Self::Ret {
        Some(IndexSubject::<C>::model(model, &burning.op))
    }

    fn outcomes(
        model: &Self::Model,
        Burning { op, after }: &Burning,
    ) -> Vec<(Self::Model, Self::Ret)> {
        let mut all = IndexSubject::<C>::outcomes(model, op);
        let mut interrupted = Vec::new();
        if after.is_some() {
            let ends = all.iter().map(|(after, _)| after.clone());
            interrupted = ends.chain([model.clone()]).map(|after| (after, None)).collect();
        }
        let ended = all.drain(..).map(|(after, ret)| (after, Some(ret)));
        ended.chain(interrupted).collect()
    }

    fn ops() -> BoxedStrategy<Burning> {
        let op = prop_oneof![
            12 => IndexSubject::<C>::ops_for(1),
            1 => Just(IndexOp::OpenAgain),
        ];
        let after = prop_oneof![3 => 0..8u64, 2 => 0..40u64];
        (op, proptest::option::of(after)).prop_map(|(op, after)| Burning { op, after }).boxed()
    }

    fn owns(site: &Location<'static>) -> bool {
        C::owns(site)
    }
}

/// Explores `states` crash states of random runs in which a panic of a conversion interrupts about every second
/// operation, batch, load, closing or opening; then, for each operation and each of its conversions, the crash states
/// of what comes next.
pub fn crashes_after_panics<S: Subject<Bed = Simulated>>(states: u32) -> Verdict {
    let before = Fuse::times();
    let config = Config::new().states(states.into()).setup(40);
    let report = explore::<Interrupted<CrashOf<S>>>(&config)
        .map_err(|failure| Failure::new(failure.to_string()))?;
    ensure!(report.states > 100, "hardly anything explored:\n{report}");
    // One explorer for all, and no limit of states: creation is crashed once, and what comes after each panic to its
    // end. A limit for each panic would be used up by its creation.
    let config = Config::new().states(u64::MAX);
    let config = Config {
        exhaustive: IMAGES,
        random: 2,
        brief_stores: true,
        nested_states: 1,
        kill_every: 0,
        ..config
    };
    let mut explorer = Explorer::<Interrupted<CrashOf<S>>>::new(config);
    let next = next(S::Index::LOADS_AT_ONCE);
    for setup in setups() {
        let mut effects = HashSet::new();
        for op in interrupted(S::Index::LOADS_AT_ONCE) {
            at_each_conversion(&mut explorer, &setup, &op, &next, &mut effects)?;
        }
    }
    let burnt = Fuse::times() - before;
    ensure!(burnt > 50, "{burnt} panics: are keys and values fuses?");
    Ok(())
}

/// Contents before an interrupted operation: none, a node with free places that had records, several nodes.
fn setups() -> [Vec<IndexOp>; 3] {
    let inserts =
        |keys: &[u64]| keys.iter().map(|&k| IndexOp::Insert(k, k + 1)).collect::<Vec<_>>();
    let removes = |keys: &[u64]| keys.iter().map(|&k| IndexOp::Remove(k)).collect::<Vec<_>>();
    let all: Vec<u64> = (0..16).collect();
    [
        Vec::new(),
        [inserts(&[0, 4, 6]), removes(&[4, 6])].concat(),
        [inserts(&all), removes(&[1, 2, 5, 7, 9, 10])].concat(),
    ]
}

/// The operations that are interrupted.
fn interrupted(loads: bool) -> Vec<IndexOp> {
    let mut all = vec![
        IndexOp::Insert(5, 50),
        IndexOp::Update(0, 51),
        IndexOp::Upsert(0, 52),
        IndexOp::Upsert(7, 53),
        IndexOp::Remove(0),
        IndexOp::InsertMany(vec![(5, 54), (2, 55), (7, 56)]),
        IndexOp::InsertMany(vec![(1, 57), (2, 58)]),
        IndexOp::PutMany(vec![(9, 59), (0, 60), (2, 61)]),
        IndexOp::OpenAgain,
        IndexOp::Reopen,
    ];
    if loads {
        all.extend([IndexOp::BulkLoad(11), IndexOp::BulkRefused(11)]);
    }
    all
}

/// What comes next: the power fails in it, or after it.
fn next(loads: bool) -> Vec<Vec<IndexOp>> {
    let inserts = (1..8).map(|k| vec![IndexOp::Insert(k, 70 + k)]);
    let load = loads.then(|| vec![IndexOp::BulkLoad(9)]);
    let others = [
        vec![IndexOp::OpenAgain, IndexOp::Insert(2, 80)],
        vec![IndexOp::OpenAgain, IndexOp::Insert(3, 80)],
        vec![IndexOp::Remove(0), IndexOp::Insert(0, 81)],
        vec![IndexOp::InsertMany(vec![(3, 82), (6, 83)])],
        vec![IndexOp::Reopen, IndexOp::Upsert(5, 84)],
    ];
    inserts.chain(others).chain(load).collect()
}

/// The images of a crash point: first those in which one granule is missing, or is there alone.
const IMAGES: usize = 8;
/// A seed with which no step of the run is left out, and creation is.
const EVERY_STEP: u64 = 2;

/// Interrupts `op` at each of its conversions in turn (some of them, when there are many). `next` comes after those that
/// did something new to the medium, which `effects` has all of with this setup: what an operation left there, not
/// flushed perhaps, is what a crash of the next one can show. After the others comes one of `next`, in turn (all, if the
/// suite is to run longer).
fn at_each_conversion<C: CrashIndex>(
    explorer: &mut Explorer<Interrupted<C>>,
    setup: &[IndexOp],
    op: &IndexOp,
    next: &[Vec<IndexOp>],
    effects: &mut HashSet<u64>,
) -> Verdict {
    let whole = |op: &IndexOp| Burning { op: op.clone(), after: None };
    let mut at = 0;
    loop {
        let before = Fuse::times();
        let mut setup: Vec<Burning> = setup.iter().map(whole).collect();
        setup.push(Burning { op: op.clone(), after: Some(at) });
        let tail = vec![whole(&IndexOp::Insert(3, 90)), whole(&IndexOp::Remove(2))];
        let mut plan = Plan { setup, threads: vec![Vec::new()], tail };
        let is_new = effects.insert(explorer.effect(&plan, EVERY_STEP)) || scaled(1) > 1;
        let (from, count) = if is_new { (0, next.len()) } else { (at as usize % next.len(), 1) };
        for (nth, next) in next.iter().enumerate().skip(from).take(count) {
            plan.threads = vec![next.iter().map(whole).collect()];
            explorer
                .explore(&plan, EVERY_STEP + 4 * (at * 16 + nth as u64))
                .map_err(|failure| Failure::new(failure.to_string()))?;
        }
        if Fuse::times() == before {
            return Ok(());
        }
        at += 1 + at / 8;
    }
}
