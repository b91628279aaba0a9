//! Crash exploration of any index: [`IndexCrash`] makes a [`CrashSubject`] of a [`Subject`].

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Pool, Traced};
use pmindex_index::{Index, IndexError, PmIndex, Storable};
use proptest::prelude::*;

use super::bed::Simulated;
use super::calls::{everything, perform, tag_of};
use super::sample::{SampleKey, SampleValue};
use super::subject::{NAME, Subject};
use super::verdict::{Failure, Verdict, ensure, ensure_eq};
use crate::crash::{
    Config, CrashSubject, Fault, Geometry, Persistency, Report, create_pool, explore, open_pool,
};
use crate::history::{Call, Outcome, Tag};

/// Keys that operations meet on.
const KEYS: u64 = 24;

/// An operation of a crash test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashOp {
    /// One call on one key.
    One(u64, Call),
    /// `insert_many`: independent inserts, so that a crash may leave any of them.
    InsertMany(Vec<(u64, Tag)>),
    /// `bulk_load` of so many records.
    BulkLoad(u64),
}

/// What an operation of a crash test returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrashRet {
    /// Of one call.
    One(Outcome),
    /// Of `insert_many`.
    Inserted(Vec<bool>),
    /// Of `bulk_load`: whether the index was empty.
    Loaded(bool),
    /// Never returned: a crash came first, and part of a batch is there.
    Interrupted,
}

/// A [`Subject`] for the crash explorer. If `THREADED`, threads run at once and operations are on
/// single keys.
pub struct IndexCrash<S: Subject<Bed = Simulated>, const THREADED: bool> {
    // Dropped first.
    index: S::Index,
    pool: Arc<Pool<Traced>>,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self(failure.what().to_owned())
    }
}

/// Calls on one key; with threads mostly on few keys, so that they meet.
fn single_calls(threaded: bool) -> BoxedStrategy<CrashOp> {
    let hot = if threaded { KEYS / 2..KEYS / 2 + 3 } else { 0..KEYS };
    let tag = 0..1000u64;
    let call = prop_oneof![
        2 => Just(Call::Get),
        6 => tag.clone().prop_map(Call::Insert),
        3 => tag.clone().prop_map(Call::Update),
        2 => tag.prop_map(Call::Upsert),
        4 => Just(Call::Remove),
    ];
    (prop_oneof![3 => hot, 1 => 0..KEYS], call)
        .prop_map(|(key, call)| CrashOp::One(key, call))
        .boxed()
}

/// The records of `bulk_load(count)`.
fn loaded(count: u64) -> impl Iterator<Item = (u64, Tag)> {
    (0..count).map(|i| (i, i + 1))
}

impl<S: Subject<Bed = Simulated>, const THREADED: bool> CrashSubject for IndexCrash<S, THREADED> {
    type Op = CrashOp;
    type Ret = CrashRet;
    type Model = BTreeMap<u64, Tag>;

    const NAME: &'static str = S::Index::NAME;

    fn geometry() -> Geometry {
        let len = Simulated::space_bytes(S::SIMULATED_BYTES);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &Simulated::options(S::SIMULATED_BYTES))?;
        Ok(Self { index: S::Index::create(&pool, NAME)?, pool })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let opened = open_pool(space, &Simulated::options(S::SIMULATED_BYTES))?;
        let Some(pool) = opened else { return Ok(None) };
        match S::Index::open(&pool, NAME) {
            Ok(index) => Ok(Some(Self { index, pool })),
            Err(IndexError::NoSuchIndex { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn apply(&self, op: &CrashOp) -> Result<CrashRet, Fault> {
        Ok(match op {
            CrashOp::One(key, call) => CrashRet::One(perform::<S>(&self.index, *key, *call)?),
            CrashOp::InsertMany(records) => {
                let records: Vec<_> =
                    records.iter().map(|&(i, t)| (S::Key::nth(i), S::Value::tagged(t))).collect();
                let done = self.index.insert_many(&records);
                if let Some(why) = done.stopped {
                    return Err(why.into());
                }
                CrashRet::Inserted(done.inserted)
            }
            CrashOp::BulkLoad(count) => {
                let mut records =
                    loaded(*count).map(|(i, tag)| (S::Key::nth(i), S::Value::tagged(tag)));
                CrashRet::Loaded(match self.index.bulk_load(&mut records) {
                    Ok(_) => true,
                    Err(IndexError::NotEmpty) => false,
                    Err(error) => return Err(error.into()),
                })
            }
        })
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        Ok(observe::<S>(&self.index)?)
    }

    fn audit(&self) -> Result<(), Fault> {
        self.pool.audit(self.index.blocks()?.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Self::Model, op: &CrashOp) -> CrashRet {
        match op {
            CrashOp::One(key, call) => {
                let (outcome, state) = call.apply(model.get(key).copied());
                match state {
                    Some(tag) => model.insert(*key, tag),
                    None => model.remove(key),
                };
                CrashRet::One(outcome)
            }
            CrashOp::InsertMany(records) => {
                let insert = |&(key, tag): &(u64, Tag)| {
                    let new = !model.contains_key(&key);
                    model.entry(key).or_insert(tag);
                    new
                };
                CrashRet::Inserted(records.iter().map(insert).collect())
            }
            CrashOp::BulkLoad(count) => {
                let empty = model.is_empty();
                if empty {
                    model.extend(loaded(*count));
                }
                CrashRet::Loaded(empty)
            }
        }
    }

    fn outcomes(model: &Self::Model, op: &CrashOp) -> Vec<(Self::Model, CrashRet)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        let mut all = vec![(after.clone(), ret)];
        if let CrashOp::InsertMany(_) = op {
            let new: Vec<(u64, Tag)> =
                after.into_iter().filter(|(key, _)| !model.contains_key(key)).collect();
            for part in 1..(1u32 << new.len()) - 1 {
                let chosen = new.iter().enumerate().filter(|(bit, _)| part >> bit & 1 == 1);
                let mut some = model.clone();
                some.extend(chosen.map(|(_, record)| *record));
                all.push((some, CrashRet::Interrupted));
            }
        }
        all
    }

    fn ops() -> BoxedStrategy<CrashOp> {
        if THREADED {
            return single_calls(true);
        }
        let batch = proptest::collection::vec((0..KEYS, 0..1000u64), 1..5);
        prop_oneof![
            30 => single_calls(false),
            3 => batch.prop_map(CrashOp::InsertMany),
            1 => (0..KEYS).prop_map(CrashOp::BulkLoad),
        ]
        .boxed()
    }

    fn concurrent() -> bool {
        THREADED
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().split('/').any(|part| part == S::Index::NAME)
    }
}

/// Verifies the structure and reads everything in it, in every way.
fn observe<S: Subject>(index: &S::Index) -> Verdict<BTreeMap<u64, Tag>> {
    let checked = index.check()?;
    let found = everything::<S>(index, KEYS)?;
    ensure_eq!(checked, found.len() as u64, "records that check counts");
    ensure_eq!(index.len()?, found.len() as u64, "len");
    for key in 0..KEYS {
        let value = index.get(S::Key::nth(key).borrowed())?;
        let tag = value.as_ref().map(tag_of).transpose()?;
        ensure_eq!(tag, found.get(&key).copied(), "get of key {key}, against a scan");
    }
    Ok(found)
}

fn explored<S: Subject<Bed = Simulated>, const THREADED: bool>(config: &Config) -> Verdict<Report> {
    let report = explore::<IndexCrash<S, THREADED>>(config)
        .map_err(|failure| Failure::new(failure.to_string()))?;
    ensure!(report.states > 100, "hardly anything explored:\n{report}");
    Ok(report)
}

/// Crash states of one thread's runs: flushed lines, then eADR and msync, together `states`.
/// Every flush and fence of the index that was executed must have been crashed at.
pub fn crashes<S: Subject<Bed = Simulated>>(states: u32) -> Verdict {
    let states = u64::from(states);
    let lines = Config::new().states(states * 3 / 4).setup(40);
    let report = explored::<S, false>(&lines)?;
    let missed: Vec<String> = report.uncovered().map(|step| step.site.to_string()).collect();
    ensure!(missed.is_empty(), "steps without a crash state: {missed:?}");
    for persistency in [Persistency::Eadr, Persistency::Pages] {
        explored::<S, false>(&lines.clone().states(states / 8).persistency(persistency))?;
    }
    Ok(())
}

/// Crash states of two and three threads at once, under the deterministic scheduler: what survives
/// is explained by a linearization that contains every completed operation, reads included.
pub fn concurrent_crashes<S: Subject<Bed = Simulated>>(states: u32) -> Verdict {
    let states = u64::from(states);
    explored::<S, true>(&Config::new().states(states * 2 / 3).setup(40).threads(2))?;
    explored::<S, true>(&Config::new().states(states / 3).setup(40).threads(3)).map(drop)
}
