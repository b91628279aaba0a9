//! `bulk_load` beside calls of another thread: it is one operation, so once a call has seen one of its records, that
//! call and all later ones see every record.

use std::ops::Bound;

use parking_lot::Mutex;
use pmindex_index::{IndexError, Storable};

use super::bed::Simulated;
use super::sample::{SampleKey, SampleValue};
use super::subject::{IndexOf, Maker, Rig, Types};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};
use crate::crash::{Rng, interleave, preempt_once};

/// Accesses after which a schedule counts as endless.
const STEPS: u64 = 3_000_000;

/// The longest key of a program, encoded: pools are small.
const MOST_BYTES: usize = 64;

/// Programs whose load is preempted before each of its steps; of the others the reader is.
const WHOLE: u32 = 2;

/// A call on a record that the load brings, by its place in the order.
#[derive(Clone, Copy, Debug)]
enum Act {
    Contains(usize),
    Get(usize),
    GetMany,
    TryInsert(usize),
    InsertMany(usize),
    Update(usize),
    First,
    Last,
    IsEmpty,
    Scan { upwards: bool },
}

/// What a call has seen of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Part,
    Loaded,
}

impl Seen {
    fn some(is_there: bool) -> Self {
        if is_there { Self::Loaded } else { Self::Nothing }
    }

    fn of(found: usize, all: usize) -> Self {
        match found {
            0 => Self::Nothing,
            _ if found == all => Self::Loaded,
            _ => Self::Part,
        }
    }
}

/// The records of a load, and the calls of a reader.
struct Program<K> {
    keys: Vec<K>,
    acts: Vec<Act>,
}

impl<K: SampleKey> Program<K> {
    fn random(rng: &mut Rng) -> Self {
        let keys: Vec<K> = if rng.one_in(3) {
            let stride = [1, 11, 90][rng.below(3)];
            (0..2 + rng.below(8) as u64).map(|i| K::nth(stride * i)).collect()
        } else {
            // Far apart: in several trees of an index that has some.
            let bytes = |key: &K| <K as Storable>::to_bytes(key.borrowed()).len();
            let short = |key: &K| !K::SHAPE.is_bytes() || bytes(key) <= MOST_BYTES;
            K::edges().into_iter().filter(short).filter(|_| rng.one_in(2)).take(12).collect()
        };
        let count = keys.len().max(1);
        let acts = (0..3 + rng.below(4)).map(|_| Act::random(rng, count)).collect();
        Self { keys, acts }
    }

    fn records<V: SampleValue>(&self) -> Vec<(K, V)> {
        (0..).zip(&self.keys).map(|(tag, key)| (key.clone(), V::tagged(tag))).collect()
    }
}

impl Act {
    fn random(rng: &mut Rng, count: usize) -> Self {
        // The last records, often: a load that shows its records in order shows them last.
        let at = if rng.one_in(2) { count - 1 } else { rng.below(count) };
        match rng.below(16) {
            0..4 => Self::Contains(at),
            4 | 5 => Self::Get(at),
            6 => Self::GetMany,
            7 | 8 => Self::TryInsert(at),
            9 => Self::InsertMany(at),
            10 => Self::Update(at),
            11 => Self::First,
            12 => Self::Last,
            13 => Self::IsEmpty,
            _ => Self::Scan { upwards: rng.one_in(2) },
        }
    }

    /// Runs the call. A record that it adds is not one of the load: there was none.
    fn run<S: Types>(self, index: &IndexOf<S>, keys: &[S::Key]) -> Verdict<Seen> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let value = S::Value::tagged(77);
        let is_at = |found: Option<(S::Key, S::Value)>, wanted: Option<&S::Key>| match found {
            None => Seen::Nothing,
            Some((key, _)) if Some(&key) == wanted => Seen::Loaded,
            Some(_) => Seen::Part,
        };
        Ok(match self {
            Self::Contains(at) => Seen::some(index.contains_key(keys[at].borrowed())?),
            Self::Get(at) => Seen::some(index.get(keys[at].borrowed())?.is_some()),
            Self::GetMany => {
                let mut found = vec![None; keys.len()];
                index.get_many(keys, &mut found)?;
                // Each key by itself, so a part of them may be there; the last one was looked up during the call.
                let found = found.iter().flatten().count();
                if found == keys.len() { Seen::Loaded } else { Seen::Nothing }
            }
            Self::TryInsert(at) => {
                Seen::some(index.try_insert(keys[at].borrowed(), value.borrowed())?.is_err())
            }
            Self::InsertMany(at) => {
                let done = index.try_insert_many(&[(keys[at].clone(), value)]);
                done.stopped.map_or(Ok(()), Err)?;
                Seen::some(done.inserted == [false])
            }
            Self::Update(at) => {
                Seen::some(index.update(keys[at].borrowed(), value.borrowed())?.is_ok())
            }
            Self::First => is_at(index.first_key_value()?, keys.first()),
            Self::Last => is_at(index.last_key_value()?, keys.last()),
            Self::IsEmpty => Seen::some(!index.is_empty()?),
            Self::Scan { upwards } => {
                let items = index.range_bounds(all.0, all.1);
                let found: Result<Vec<_>, IndexError> =
                    if upwards { items.collect() } else { items.rev().collect() };
                Seen::of(found?.len(), keys.len())
            }
        })
    }

    /// Returns whether it adds a record if there is none.
    fn adds(self) -> bool {
        matches!(self, Self::TryInsert(_) | Self::InsertMany(_))
    }
}

/// Runs the load, which is thread `loader`, and the calls, which are the other one; `interleaved` runs the threads,
/// and returns the message of each that panicked.
fn run<S: Types<Bed = Simulated>>(
    of: Maker<S>,
    program: &Program<S::Key>,
    loader: usize,
    interleaved: impl FnOnce(&(dyn Fn(usize) + Sync)) -> Vec<Option<String>>,
) -> Verdict {
    let rig = Rig::with_pool(of, of.simulated_bytes())?;
    let (count, calls) = (Mutex::new(None), Mutex::new(Vec::new()));
    rig.bed.space().limit_steps(STEPS);
    let panics = interleaved(&|thread| {
        if thread == loader {
            let mut records = program.records::<S::Value>().into_iter();
            *count.lock() = Some(rig.index().bulk_load(&mut records));
            return;
        }
        for &act in &program.acts {
            let seen = act.run::<S>(rig.index(), &program.keys);
            calls.lock().push((act, seen));
        }
    });
    rig.bed.space().limit_steps(u64::MAX);
    if let Some(message) = panics.into_iter().flatten().next() {
        return Err(Failure::new(message));
    }
    match count.into_inner() {
        Some(Ok(count)) => ensure_eq!(count, program.keys.len() as u64, "bulk_load"),
        // A record was there before.
        Some(Err(IndexError::NotEmpty)) if program.acts.iter().any(|act| act.adds()) => {
            return Ok(());
        }
        other => return Err(Failure::new(format!("bulk_load: {other:?}"))),
    }
    let mut before = Seen::Nothing;
    for (act, seen) in calls.into_inner() {
        let seen = seen?;
        ensure!(seen != Seen::Part, "{act:?} saw a part of a load");
        ensure!(!(act.adds() && seen == Seen::Nothing), "{act:?} added a record that a load has");
        ensure!(
            (before, seen) != (Seen::Loaded, Seen::Nothing),
            "{act:?} saw nothing of a load that an earlier call saw"
        );
        before = seen;
    }
    ensure_eq!(rig.index().check().within("check")?, program.keys.len() as u64, "check");
    Ok(())
}

/// `count` loads beside a reader: of the first ones the load, of the others the reader is preempted before each of its
/// steps in turn; then each interleaved by a seed.
pub fn loads<S: Types<Bed = Simulated>>(of: Maker<S>, count: u32) -> Verdict {
    for seed in 0..u64::from(count) {
        let mut program = Program::random(&mut Rng::new(seed));
        if program.keys.is_empty() {
            program.keys.push(S::Key::nth(1));
        }
        let loader = usize::from(seed >= u64::from(WHOLE));
        for step in 1.. {
            let mut reached = false;
            let once = |body: &(dyn Fn(usize) + Sync)| {
                let (panics, ended) = preempt_once(2, step, body);
                reached = ended;
                panics
            };
            run(of, &program, loader, once).within(format_args!(
                "loads, program {seed}, thread 0 preempted before step {step}, loader {loader}"
            ))?;
            if !reached {
                break;
            }
        }
        run(of, &program, 0, |body| interleave(2, seed, body))
            .within(format_args!("loads, program {seed}, interleaved"))?;
    }
    Ok(())
}
