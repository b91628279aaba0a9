//! Many short histories under the deterministic scheduler: interleaved by a seed, or with one operation preempted
//! before each of its steps, while others change the structure around its key.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use parking_lot::Mutex;

use super::bed::Simulated;
use super::calls::{everything, perform, record, record_get_many, record_insert_many, record_scan};
use super::ends::ends;
use super::handles::panics_while_opening;
use super::loads::loads;
use super::panics::panics_at_any_access;
use super::sample::{SampleKey, SampleValue};
use super::sequences::scaled;
use super::subject::{IndexOf, Maker, Rig, Subject, Types, maker};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};
use crate::crash::{CrashIndex, Rng, interleave, preempt_once};
use crate::history::{Call, Clock, History, Log, Outcome, Tag};

/// Accesses after which a schedule counts as endless.
const STEPS: u64 = 3_000_000;

/// Operations that are preempted at each of their steps.
const PREEMPTED: u32 = 100;

/// Programs of calls at the ends of the order.
const ENDS: u32 = 30;

/// Bulk loads beside a reader.
const LOADS: u32 = 12;

/// A short program: the records before, and the calls of each thread.
struct Program {
    keys: u64,
    before: BTreeMap<u64, Tag>,
    threads: Vec<Vec<Act>>,
}

enum Act {
    One(u64, Call),
    GetMany(Vec<u64>),
    InsertMany(Vec<(u64, Tag)>),
    Scan { from: u64, limit: usize, downwards: bool },
}

impl Program {
    fn random(rng: &mut Rng) -> Self {
        // Few records, or about as many as one to four leaves hold.
        let records = [0, 1, 3, 6, 9, 15, 31, 60, 62, 64, 66, 130][rng.below(12)];
        let keys = 2 * records + 6;
        let before = (0..records).map(|i| (2 * i + 1, 2 * i + 1)).collect();
        let hot = rng.next_u64() % keys;
        let count = 2 + rng.below(2);
        let threads = (0..count)
            .map(|thread| {
                let acts = 2 + rng.below(3);
                (0..acts)
                    .map(|at| Act::random(rng, keys, hot, 1000 * (10 * thread + at + 1)))
                    .collect()
            })
            .collect();
        Self { keys, before, threads }
    }

    /// One operation, and a thread that fills or empties the leaves around its key.
    fn beside(rng: &mut Rng) -> Self {
        let records = [3, 6, 9, 15, 31][rng.below(5)];
        // Keys that lie close together, and keys that differ in several bytes.
        let (stride, least) = ([1, 3, 11, 37][rng.below(4)], rng.below(20) as u64);
        let key_of = |i: u64| least + stride * i;
        let hot = 2 * (rng.next_u64() % records) + 1;
        let act = match rng.below(8) {
            0..3 => Act::One(key_of(hot), Call::Get),
            3 => Act::GetMany([hot, hot + 2, hot - 1].map(key_of).to_vec()),
            4 => Act::One(key_of(hot), Call::Update(1000)),
            5 => Act::One(key_of(hot), Call::Remove),
            6 => Act::One(key_of(hot - 1), Call::TryInsert(1000)),
            _ => Act::Scan { from: key_of(hot), limit: 1 + rng.below(8), downwards: rng.one_in(2) },
        };
        let (inserts, removes, upwards) = (rng.one_in(2), rng.one_in(2), rng.one_in(2));
        let mut near: Vec<u64> = (hot.saturating_sub(8)..hot + 12).collect();
        if !upwards {
            near.reverse();
        }
        let mut acts = Vec::new();
        for i in near {
            let is_new = i % 2 == 0 || i > 2 * records;
            if is_new && (inserts || !removes) {
                acts.push(Act::One(key_of(i), Call::TryInsert(2000 + i)));
            } else if !is_new && removes && i != hot {
                acts.push(Act::One(key_of(i), Call::Remove));
            }
        }
        let before = (0..records).map(|i| key_of(2 * i + 1)).map(|key| (key, key)).collect();
        Self { keys: key_of(2 * records + 12), before, threads: vec![vec![act], acts] }
    }
}

impl Act {
    fn random(rng: &mut Rng, keys: u64, hot: u64, tag: usize) -> Self {
        let tag = tag as u64;
        let near = |rng: &mut Rng| {
            let reach = if rng.one_in(4) { keys } else { 3.min(keys) };
            (hot + rng.next_u64() % reach) % keys
        };
        let key = near(rng);
        match rng.below(20) {
            0..4 => Self::One(key, Call::Get),
            4 => Self::One(key, Call::Contains),
            5..9 => Self::One(key, Call::TryInsert(tag)),
            9 | 10 => Self::One(key, Call::Update(tag)),
            11 => Self::One(key, Call::Put(tag)),
            12 => Self::One(key, Call::Insert(tag)),
            13 => {
                // A value from before the threads began.
                Self::One(key | 1, Call::RemoveExact(key | 1))
            }
            14..17 => Self::One(key, Call::Remove),
            17 => Self::GetMany((0..4).map(|_| near(rng)).collect()),
            18 => Self::InsertMany((0..4).map(|i| (near(rng), tag + i)).collect()),
            _ => Self::Scan { from: key, limit: 1 + rng.below(8), downwards: rng.one_in(2) },
        }
    }

    fn run<S: Types>(&self, log: &mut Log<'_>, index: &IndexOf<S>, keys: u64) -> Verdict {
        match self {
            Self::One(key, call) => record::<S>(log, index, *key, *call),
            Self::GetMany(keys) => record_get_many::<S>(log, index, keys),
            Self::InsertMany(records) => record_insert_many::<S>(log, index, records),
            Self::Scan { from, limit, downwards } => {
                record_scan::<S>(log, index, (*from, keys), *limit, *downwards)
            }
        }
    }
}

/// Runs a program; `interleaved` runs its threads, and returns the message of each that panicked.
fn run<S: Types<Bed = Simulated>>(
    of: Maker<S>,
    program: &Program,
    interleaved: impl FnOnce(&(dyn Fn(usize) + Sync)) -> Vec<Option<String>>,
) -> Verdict {
    let rig = Rig::with_pool(of, of.simulated_bytes())?;
    for &key in program.before.keys() {
        let done = perform::<S>(rig.index(), key, Call::TryInsert(key))?;
        ensure_eq!(done, Outcome::Done(true), "insert, before the threads start");
    }
    let clock = Clock::default();
    let done = Mutex::new((Vec::new(), None));
    rig.bed.space().limit_steps(STEPS);
    let panics = interleaved(&|thread| {
        let mut log = Log::new(&clock, u32::try_from(thread).unwrap_or(u32::MAX));
        let acts = &program.threads[thread];
        let result =
            acts.iter().try_for_each(|act| act.run::<S>(&mut log, rig.index(), program.keys));
        let mut done = done.lock();
        done.0.extend(log.into_events());
        done.1 = done.1.take().or(result.err());
    });
    rig.bed.space().limit_steps(u64::MAX);
    if let Some(message) = panics.into_iter().flatten().next() {
        return Err(Failure::new(message));
    }
    let (events, failure) = done.into_inner();
    if let Some(failure) = failure {
        return Err(failure);
    }
    let mut history = History::new(program.before.clone());
    history.add(events);
    let left = everything::<S>(rig.index(), program.keys)?;
    ensure_eq!(rig.index().check().within("check")?, left.len() as u64, "check");
    ensure_eq!(rig.index().len()?, left.len() as u64, "len");
    history.ends_with(0..program.keys, &left);
    history.check().map_err(|violation| Failure::new(violation.to_string()))
}

/// `count` short programs of two or three threads, each interleaved in one way; each history must
/// be linearizable. The failure names the seed, which replays it.
pub fn schedules<S: Types<Bed = Simulated>>(of: Maker<S>, count: u32) -> Verdict {
    (0..u64::from(count)).try_for_each(|seed| replay_schedule(of, seed))
}

/// Runs the schedule of one seed.
pub fn replay_schedule<S: Types<Bed = Simulated>>(of: Maker<S>, seed: u64) -> Verdict {
    let program = Program::random(&mut Rng::new(seed));
    let threads = program.threads.len();
    run(of, &program, |body| interleave(threads, seed, body))
        .within(format_args!("schedule {seed}"))
}

/// `count` operations, each preempted before each of its steps in turn: there another thread fills or empties the
/// leaves around its key, and ends. Each history must be linearizable. What a seeded schedule meets by chance, a
/// change of the whole structure between two steps of a lookup, happens here at every one.
pub fn preempted<S: Types<Bed = Simulated>>(of: Maker<S>, count: u32) -> Verdict {
    let mut steps = 0;
    for seed in 0..u64::from(count) {
        let program = Program::beside(&mut Rng::new(seed));
        for step in 1.. {
            let mut reached = false;
            let once = |body: &(dyn Fn(usize) + Sync)| {
                let (panics, ended) = preempt_once(2, step, body);
                reached = ended;
                panics
            };
            run(of, &program, once)
                .within(format_args!("program {seed}, preempted before step {step}"))?;
            if !reached {
                break;
            }
            steps += 1;
        }
    }
    // Even an operation that finds nothing reads several words.
    ensure!(steps >= 2 * count, "{count} operations had {steps} steps in all");
    Ok(())
}

/// Runs all tests of an index under the scheduler: histories, panics in the middle of an operation, panics
/// while opening.
pub fn scheduled<S: Types<Bed = Simulated>>(of: Maker<S>) -> Verdict {
    scheduled_as(of, true)
}

/// [`scheduled`], for a hash index too. That has no first record: a test finds it by reading all, which is of no one
/// moment.
fn scheduled_as<S: Types<Bed = Simulated>>(of: Maker<S>, is_ordered: bool) -> Verdict {
    schedules(of, scaled(400))?;
    preempted(of, scaled(PREEMPTED))?;
    if is_ordered {
        ends(of, scaled(ENDS))?;
        loads(of, scaled(LOADS))?;
    }
    panics_at_any_access(of, 1)?;
    panics_while_opening(of)
}

/// The index of a crash campaign as a subject of the suite.
struct Campaigned<C>(PhantomData<fn() -> C>);

impl<C: CrashIndex> Subject for Campaigned<C>
where
    C::Key: SampleKey,
    C::Value: SampleValue,
{
    type Key = C::Key;
    type Value = C::Value;
    type Bed = Simulated;
    type Index = C::Index;
}

/// [`scheduled`] for the index of a crash campaign: a program that explores its crashes compiles it once.
pub fn scheduled_index<C: CrashIndex>() -> Verdict
where
    C::Key: SampleKey,
    C::Value: SampleValue,
{
    let is_ordered = !std::any::type_name::<C::Index>().contains("Unordered<");
    scheduled_as(maker::<Campaigned<C>>(), is_ordered)
}
