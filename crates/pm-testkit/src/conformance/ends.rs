//! Calls at the two ends of the order, `first_key_value`, `last_key_value`, `is_empty`, `pop_first` and `pop_last`,
//! beside writes of the records there: each result must be true of one moment, of all leaves and trees that the
//! call has read.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pmindex_index::Storable;

use super::bed::Simulated;
use super::calls::tag_of;
use super::sample::{SampleKey, SampleValue};
use super::subject::{IndexOf, Maker, Rig, Types};
use super::threads::{Watchdog, together};
use super::verdict::{Failure, Verdict, Within, brief, ensure_eq};
use crate::crash::{Rng, interleave, preempt_nested, preempt_once};
use crate::history::{Clock, Done, Side, Span, Tag, check_order};

/// Accesses after which a schedule counts as endless.
const STEPS: u64 = 3_000_000;

/// The longest key of a program, encoded: pools are small.
const MOST_BYTES: usize = 64;

/// Pairs of places at which two threads of a program are preempted.
const PLACES: u32 = 40;

/// A call.
#[derive(Clone, Copy, Debug)]
enum Act {
    Insert(u64, Tag),
    Remove(u64),
    Read(Side),
    Pop(Side),
    IsEmpty,
}

/// Returns one of some items.
fn pick<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    items[rng.below(items.len())]
}

/// A short program: keys, which it calls by their places in the order, the ones removed before, and the calls of
/// each thread.
struct Program<K> {
    keys: Vec<K>,
    left: BTreeMap<u64, Tag>,
    threads: Vec<Vec<Act>>,
}

impl<K: SampleKey> Program<K> {
    fn keys(rng: &mut Rng) -> Vec<K> {
        if rng.one_in(2) {
            // They differ in all parts of a key.
            let bytes = |key: &K| <K as Storable>::to_bytes(key.borrowed()).len();
            let short = |key: &K| !K::SHAPE.is_bytes() || bytes(key) <= MOST_BYTES;
            return K::edges().into_iter().filter(short).collect();
        }
        let (count, stride) = (pick(rng, &[4, 6, 9, 14, 24]), pick(rng, &[1, 1, 11, 37, 90]));
        (0..count).map(|i| K::nth(stride * i)).collect()
    }

    /// Few records at one end of the keys, or one at each side of many that are gone; a call that looks for them;
    /// and a thread that changes which is the first. With `nested`, another one that removes the first before.
    fn at_an_end(rng: &mut Rng, nested: bool) -> Self {
        let keys = Self::keys(rng);
        let (side, count) = (pick(rng, &[Side::First, Side::Last]), keys.len() as u64);
        // Places counted from that side.
        let place = |i: u64| {
            let i = i.min(count - 1);
            if side == Side::First { i } else { count - 1 - i }
        };
        let gone = if nested { 0 } else { rng.below(keys.len()) as u64 };
        let mut left: BTreeMap<u64, Tag> = (gone..count).map(|i| (place(i), i)).collect();
        let shape = if nested { 2 + rng.below(2) } else { rng.below(4) };
        let gap = 1 + rng.below(5) as u64;
        match shape {
            // Few records are left.
            0 => left.retain(|&key, _| (gone..gone + 2).any(|i| place(i) == key)),
            1 => left.retain(|&key, _| key == place(gone)),
            // The first one is alone in its leaf.
            2 => left
                .retain(|&key, _| key == place(gone) || (1..gap).all(|i| place(gone + i) != key)),
            _ => {}
        }
        let ends = left.keys().copied().collect::<Vec<_>>();
        let end = |i: usize| {
            let i = i.min(ends.len() - 1);
            if side == Side::First { ends[i] } else { ends[ends.len() - 1 - i] }
        };
        let call = match rng.below(4) {
            0 if !nested => Act::IsEmpty,
            1 => Act::Pop(side),
            _ => Act::Read(side),
        };
        if nested {
            let changes = vec![Act::Insert(end(0), 1000), Act::Remove(end(1))];
            return Self {
                keys,
                left,
                threads: vec![vec![Act::Remove(end(0))], vec![call], changes],
            };
        }
        let mut changes = Vec::new();
        if gone > 0 {
            changes.push(Act::Insert(place(rng.below(gone as usize) as u64), 1000));
        }
        changes.push(Act::Remove(end(0)));
        for tag in 0..rng.below(4) as u64 {
            let key = place(rng.below(keys.len()) as u64);
            changes.push(if rng.one_in(2) {
                Act::Insert(key, 2000 + tag)
            } else {
                Act::Remove(key)
            });
        }
        Self { keys, left, threads: vec![vec![call], changes] }
    }
}

/// Runs a call, and returns it with its result.
fn perform<S: Types>(index: &IndexOf<S>, keys: &[S::Key], act: Act) -> Verdict<Done> {
    let number = |key: &S::Key| {
        let place = keys.binary_search(key);
        place.map_err(|_| Failure::new(format!("a key that no thread wrote: {}", brief(key))))
    };
    let record = |found: Option<(S::Key, S::Value)>| {
        let known = |(key, value)| Ok::<_, Failure>((number(&key)? as u64, tag_of(&value)?));
        found.map(known).transpose()
    };
    let key = |at: u64| keys[at as usize].borrowed();
    Ok(match act {
        Act::Insert(at, tag) => {
            let new = index.try_insert(key(at), S::Value::tagged(tag).borrowed())?.is_ok();
            Done::Inserted(at, tag, new)
        }
        Act::Remove(at) => {
            let was = index.remove(key(at))?;
            Done::Removed(at, was.as_ref().map(tag_of).transpose()?)
        }
        Act::Read(Side::First) => Done::Read(Side::First, record(index.first_key_value()?)?),
        Act::Read(Side::Last) => Done::Read(Side::Last, record(index.last_key_value()?)?),
        Act::Pop(Side::First) => Done::Popped(Side::First, record(index.pop_first()?)?),
        Act::Pop(Side::Last) => Done::Popped(Side::Last, record(index.pop_last()?)?),
        Act::IsEmpty => Done::Empty(index.is_empty()?),
    })
}

/// Runs the calls of one thread.
fn perform_all<S: Types>(
    index: &IndexOf<S>,
    keys: &[S::Key],
    clock: &Clock,
    (thread, acts): (usize, &[Act]),
) -> Verdict<Vec<Span>> {
    let run = |&act: &Act| {
        let start = clock.tick();
        let done = perform::<S>(index, keys, act)?;
        Ok(Span { thread, done, start, end: clock.tick() })
    };
    acts.iter().map(run).collect()
}

/// Inserts all keys of a program, each with its place from one side as its tag, and removes those that are not left.
fn prepare<S: Types>(rig: &Rig<S>, program: &Program<S::Key>) -> Verdict {
    for (at, key) in (0..).zip(&program.keys) {
        let tag = program.left.get(&at).copied().unwrap_or(5000);
        let new = rig.index().try_insert(key.borrowed(), S::Value::tagged(tag).borrowed())?;
        ensure_eq!(new.is_ok(), true, "insert, before the threads start");
    }
    for (_, key) in (0..).zip(&program.keys).filter(|(at, _)| !program.left.contains_key(at)) {
        rig.index().remove(key.borrowed())?;
    }
    Ok(())
}

/// Checks what calls have returned, and what they have left.
fn judge<S: Types>(rig: &Rig<S>, program: &Program<S::Key>, mut spans: Vec<Span>) -> Verdict {
    let end = spans.iter().map(|span| span.end).max().unwrap_or(0) + 1;
    let mut records = program.left.clone();
    for (at, key) in (0..).zip(&program.keys) {
        let was = rig.index().remove(key.borrowed())?;
        let was = was.as_ref().map(tag_of).transpose()?;
        if was.is_some() || records.remove(&at).is_some() {
            // One after the other.
            let (start, end) = (end + 2 * at, end + 2 * at + 1);
            spans.push(Span {
                thread: program.threads.len(),
                done: Done::Removed(at, was),
                start,
                end,
            });
        }
    }
    check_order(&program.left, &spans).map_err(Failure::new)
}

/// Runs a program; `interleaved` runs its threads, and returns the message of each that panicked.
fn run<S: Types<Bed = Simulated>>(
    of: Maker<S>,
    program: &Program<S::Key>,
    interleaved: impl FnOnce(&(dyn Fn(usize) + Sync)) -> Vec<Option<String>>,
) -> Verdict {
    let rig = Rig::with_pool(of, of.simulated_bytes())?;
    prepare(&rig, program)?;
    let clock = Clock::default();
    let done = Mutex::new(Vec::new());
    rig.bed.space().limit_steps(STEPS);
    let panics = interleaved(&|thread| {
        let acts = (thread, &*program.threads[thread]);
        let result = perform_all::<S>(rig.index(), &program.keys, &clock, acts);
        done.lock().push(result);
    });
    rig.bed.space().limit_steps(u64::MAX);
    if let Some(message) = panics.into_iter().flatten().next() {
        return Err(Failure::new(message));
    }
    let spans: Verdict<Vec<Vec<Span>>> = done.into_inner().into_iter().collect();
    judge(&rig, program, spans?.concat())
}

/// Calls at the ends, each preempted before each of its steps in turn, where another thread changes which record
/// is the first; or at some of them while a removal of the first one is not finished. Then as many programs
/// interleaved by a seed. Each history must be linearizable.
pub fn ends<S: Types<Bed = Simulated>>(of: Maker<S>, count: u32) -> Verdict {
    for seed in 0..u64::from(count) {
        let program = Program::at_an_end(&mut Rng::new(seed), false);
        for step in 1.. {
            let mut reached = false;
            let once = |body: &(dyn Fn(usize) + Sync)| {
                let (panics, ended) = preempt_once(2, step, body);
                reached = ended;
                panics
            };
            run(of, &program, once)
                .within(format_args!("ends, program {seed}, preempted before step {step}"))?;
            if !reached {
                break;
            }
        }
        run(of, &program, |body| interleave(2, seed, body))
            .within(format_args!("ends, program {seed}, interleaved"))?;
        during_a_removal(of, seed)?;
    }
    Ok(())
}

/// Preempts the removal of the first record, and in it a call that looks for the first.
fn during_a_removal<S: Types<Bed = Simulated>>(of: Maker<S>, seed: u64) -> Verdict {
    let mut rng = Rng::new(seed);
    let program = Program::at_an_end(&mut rng, true);
    // How many steps they have.
    let mut steps = Vec::new();
    run(of, &program, |body| {
        let (panics, points) = preempt_nested([u64::MAX; 2], body);
        steps = points;
        panics
    })?;
    for _ in 0..PLACES {
        let at = [0, 1].map(|thread| 1 + rng.next_u64() % steps[thread]);
        run(of, &program, |body| preempt_nested(at, body).0)
            .within(format_args!("ends, program {seed}, preempted before steps {at:?}"))?;
    }
    Ok(())
}

/// As [`ends`], with real threads: short programs of three threads at a few keys.
pub fn ends_among_threads<S: Types>(of: Maker<S>, count: u64) -> Verdict {
    let _watchdog = Watchdog::new("ends_among_threads");
    let rig = Rig::new(of)?;
    for seed in 0..count {
        let mut rng = Rng::new(seed);
        let program = Program::<S::Key>::among_threads(&mut rng);
        prepare(&rig, &program)?;
        let clock = Clock::default();
        let spans = together(program.threads.len() as u32, |thread| {
            let acts = (thread as usize, &*program.threads[thread as usize]);
            perform_all::<S>(rig.index(), &program.keys, &clock, acts)
        })?;
        judge(&rig, &program, spans.concat()).within(format_args!("ends, program {seed}"))?;
    }
    Ok(())
}

impl<K: SampleKey> Program<K> {
    fn among_threads(rng: &mut Rng) -> Self {
        let keys = Self::keys(rng);
        let records = 1 + rng.below(3);
        let left = (0..records).map(|tag| (rng.below(keys.len()) as u64, tag as u64)).collect();
        let threads = (0..3)
            .map(|thread| {
                let act = |at: u64| {
                    let key = rng.below(keys.len()) as u64;
                    let side = pick(rng, &[Side::First, Side::Last]);
                    match rng.below(8) {
                        0..3 => Act::Insert(key, 1000 * (thread + 1) + at),
                        3 => Act::Remove(key),
                        4 => Act::Pop(side),
                        5 => Act::IsEmpty,
                        _ => Act::Read(side),
                    }
                };
                (0..5).map(act).collect()
            })
            .collect();
        Self { keys, left, threads }
    }
}
