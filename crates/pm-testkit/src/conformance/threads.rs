//! Real threads: short histories on hot keys, long ones through structure changes, and records that no thread
//! touches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::calls::{
    everything, number_of, perform, record, record_get_many, record_insert_many, record_scan,
    tag_of,
};
use super::contents::borrowed;
use super::sample::SampleKey;
use super::sequences::scaled;
use super::subject::{IndexOf, Maker, Rig, Types};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};
use crate::crash::Rng;
use crate::history::{Call, Clock, History, Log, Outcome, Tag};

/// Ends the process if threads hang: there is no other way to end them.
pub(super) struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub(super) fn new(what: &'static str) -> Self {
        let (alive, ended) = channel();
        let limit = Duration::from_secs(240) * scaled(1);
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: the threads hang; giving up");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

/// Runs `body(thread)` on this many threads; a panic is a failure.
pub(super) fn together<T: Send>(
    threads: u32,
    body: impl Fn(u32) -> Verdict<T> + Sync,
) -> Verdict<Vec<T>> {
    std::thread::scope(|scope| {
        let start = |thread| {
            let body = &body;
            scope.spawn(move || body(thread))
        };
        let handles: Vec<_> = (0..threads).map(start).collect();
        let results = handles.into_iter().enumerate().map(|(thread, handle)| {
            let panicked = || Failure::new(format!("thread {thread} panicked"));
            handle.join().unwrap_or_else(|_| Err(panicked()))
        });
        // All are joined before the first failure returns.
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

/// How a stress test mixes calls.
#[derive(Clone, Copy)]
struct Mix {
    threads: u32,
    calls: u64,
    keys: u64,
    /// One call in this many is a scan, and another a batch.
    wide: usize,
    limit: usize,
    /// The number of allocator operations that the pool has room for at once; `None` means enough.
    slots: Option<u64>,
}

/// Makes a thread's random calls.
fn random_calls<S: Types>(index: &IndexOf<S>, log: &mut Log<'_>, thread: u32, mix: Mix) -> Verdict {
    let mut rng = Rng::new(u64::from(thread) + 1);
    // The last key and value that this thread wrote.
    let mut last = (0, 0);
    for i in 0..mix.calls {
        let mut key = rng.next_u64() % mix.keys;
        let tag = (u64::from(thread) << 40 | i) * 4;
        if rng.one_in(mix.wide) {
            let downwards = rng.one_in(2);
            record_scan::<S>(log, index, (key, mix.keys), 1 + rng.below(mix.limit), downwards)?;
            continue;
        }
        if rng.one_in(mix.wide) {
            let keys: Vec<u64> = (0..4).map(|j| (key + j * j) % mix.keys).collect();
            if rng.one_in(2) {
                record_get_many::<S>(log, index, &keys)?;
            } else {
                let records: Vec<_> = keys.into_iter().zip(tag..).collect();
                record_insert_many::<S>(log, index, &records)?;
            }
            continue;
        }
        let call = match rng.below(16) {
            0..4 => Call::Get,
            4 => Call::Contains,
            5..9 => Call::TryInsert(tag),
            9 | 10 => Call::Update(tag),
            11 => Call::Put(tag),
            12 => Call::Insert(tag),
            13 => {
                key = last.0;
                Call::RemoveExact(last.1)
            }
            _ => Call::Remove,
        };
        if matches!(call, Call::Put(_) | Call::Insert(_) | Call::TryInsert(_)) {
            last = (key, tag);
        }
        record::<S>(log, index, key, call)?;
    }
    Ok(())
}

fn stress<S: Types>(of: Maker<S>, what: &'static str, mix: Mix) -> Verdict {
    let _watchdog = Watchdog::new(what);
    let mut rig = match mix.slots {
        None => Rig::new(of)?,
        Some(slots) => Rig::with_slots(of, slots)?,
    };
    let mut initial = BTreeMap::new();
    for key in (0..mix.keys).step_by(2) {
        let done = perform::<S>(rig.index(), key, Call::TryInsert(key))?;
        ensure_eq!(done, Outcome::Done(true), "insert, before the threads start");
        initial.insert(key, key);
    }
    let mut history = History::new(initial);
    let clock = Clock::default();
    let logs = together(mix.threads, |thread| {
        let mut log = Log::new(&clock, thread);
        random_calls::<S>(rig.index(), &mut log, thread, mix)
            .within(format_args!("thread {thread}"))?;
        Ok(log.into_events())
    })?;
    history.add(logs.into_iter().flatten());
    let left = everything::<S>(rig.index(), mix.keys)?;
    ensure_eq!(rig.index().check().within("check")?, left.len() as u64, "check");
    ensure_eq!(rig.index().len()?, left.len() as u64, "len");
    history.ends_with(0..mix.keys, &left);
    history.check().map_err(|violation| Failure::new(violation.to_string()))?;
    rig.audit()?;
    rig.drop_and_open()?;
    ensure_eq!(everything::<S>(rig.index(), mix.keys)?, left, "after opening");
    Ok(())
}

/// Four threads compete for a few keys; every call is checked for linearizability.
pub fn hot_keys<S: Types>(of: Maker<S>, calls: u64) -> Verdict {
    let mix = Mix { threads: 4, calls, keys: 24, wide: 24, limit: 24, slots: None };
    stress(of, "hot_keys", mix)
}

/// Three threads use enough keys for leaves to split and merge all the time, with scans across them.
pub fn structure_changes<S: Types>(of: Maker<S>, calls: u64) -> Verdict {
    let mix = Mix { threads: 3, calls, keys: 1200, wide: 40, limit: 100, slots: None };
    stress(of, "structure_changes", mix)
}

/// Six threads in pools for one and for two operations of the allocator at once: they wait for each other,
/// and no call fails with a busy pool.
pub fn few_slots<S: Types>(of: Maker<S>, calls: u64) -> Verdict {
    for slots in [1, 2] {
        let slots = Some(slots);
        let mix = Mix { threads: 6, calls, keys: 300, wide: 40, limit: 40, slots };
        stress(of, "few_slots", mix)?;
    }
    Ok(())
}

/// Keys of the family in [`untouched_records`].
const KEYS: u64 = 1000;

/// Every fourth key stays; writers insert and remove all the others. Readers find each record that stays, and
/// scans in either direction show all of them, in order, and nothing that was never written. Lasts for at
/// least `rounds` of the writers and as many scans.
pub fn untouched_records<S: Types>(of: Maker<S>, rounds: u64) -> Verdict {
    let _watchdog = Watchdog::new("untouched_records");
    let rig = Rig::new(of)?;
    for key in (0..KEYS).step_by(4) {
        perform::<S>(rig.index(), key, Call::TryInsert(key))?;
    }
    let (writing, scans) = (AtomicBool::new(true), AtomicU64::new(0));
    together(4, |thread| {
        let result = match thread {
            0 | 1 => {
                let _done = Done(&writing);
                let mut round = 0;
                let enough = |round| round >= rounds && scans.load(Relaxed) >= rounds;
                while writing.load(Relaxed) && !enough(round) {
                    wave::<S>(&rig, thread, round).within(format_args!("thread {thread}"))?;
                    round += 1;
                }
                Ok(())
            }
            2 => reads_of_untouched::<S>(&rig, &writing),
            _ => {
                let _done = Done(&writing);
                scans_of_untouched::<S>(&rig, &writing, &scans)
            }
        };
        result.within(format_args!("thread {thread}"))
    })?;
    let left = everything::<S>(rig.index(), KEYS)?;
    ensure_eq!(left.len() as u64, KEYS / 4, "records left");
    ensure_eq!(rig.index().check().within("check")?, KEYS / 4, "check");
    rig.audit()
}

/// Marks the test as over, even if its thread panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Inserts the keys of one thread, and removes them.
fn wave<S: Types>(rig: &Rig<S>, thread: u32, round: u64) -> Verdict {
    let mine = |i: u64| i % 4 == 1 + u64::from(thread);
    for step in 0..KEYS {
        let key = (step * 7919 + round * 131) % KEYS;
        if mine(key) {
            let done = perform::<S>(rig.index(), key, Call::TryInsert(key + round * KEYS))?;
            ensure_eq!(done, Outcome::Done(true), "insert {key}");
        }
    }
    for step in 0..KEYS {
        let key = if round.is_multiple_of(2) { step } else { KEYS - 1 - step };
        if mine(key) {
            let done = perform::<S>(rig.index(), key, Call::Remove)?;
            ensure_eq!(done, Outcome::Value(Some(key + round * KEYS)), "remove {key}");
        }
    }
    Ok(())
}

fn reads_of_untouched<S: Types>(rig: &Rig<S>, writing: &AtomicBool) -> Verdict {
    let mut rng = Rng::new(2);
    while writing.load(Relaxed) {
        let key = rng.next_u64() % (KEYS / 4) * 4;
        let found = perform::<S>(rig.index(), key, Call::Get)?;
        ensure_eq!(found, Outcome::Value(Some(key)), "get {key}");
        let never = perform::<S>(rig.index(), key + 3, Call::Contains)?;
        ensure_eq!(never, Outcome::Done(false), "contains_key {}", key + 3);
    }
    Ok(())
}

fn scans_of_untouched<S: Types>(rig: &Rig<S>, writing: &AtomicBool, scans: &AtomicU64) -> Verdict {
    let mut rng = Rng::new(3);
    while writing.load(Relaxed) {
        scans.fetch_add(1, Relaxed);
        let low = rng.next_u64() % KEYS;
        let high = low + rng.next_u64() % (KEYS - low);
        let bounds = (Bound::Included(S::Key::nth(low)), Bound::Excluded(S::Key::nth(high)));
        let items = rig.index().range_bounds(borrowed(&bounds.0), borrowed(&bounds.1));
        let items: Result<Vec<_>, _> =
            if rng.one_in(2) { items.collect() } else { items.rev().collect() };
        let mut numbers = Vec::new();
        for (key, value) in items? {
            numbers.push((number_of(&key, KEYS)?, tag_of(&value)?));
        }
        if numbers.first() > numbers.last() {
            numbers.reverse();
        }
        judge_scan(&numbers, low..high)?;
    }
    Ok(())
}

fn judge_scan(items: &[(u64, Tag)], bounds: std::ops::Range<u64>) -> Verdict {
    ensure!(items.is_sorted_by(|a, b| a.0 < b.0), "a scan out of order, or a duplicate");
    let possible = |&(key, tag): &(u64, Tag)| {
        bounds.contains(&key) && key % 4 != 3 && tag % KEYS == key && (key % 4 != 0 || tag == key)
    };
    let strange = items.iter().find(|item| !possible(item));
    ensure!(strange.is_none(), "a scan of {bounds:?} shows {strange:?}, which never was");
    let untouched = items.iter().filter(|item| item.0 % 4 == 0).count() as u64;
    let wanted = bounds.end.div_ceil(4) - bounds.start.div_ceil(4);
    ensure_eq!(untouched, wanted, "untouched records in a scan of {bounds:?}");
    Ok(())
}
