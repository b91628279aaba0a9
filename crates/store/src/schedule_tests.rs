//! Short programs under the deterministic scheduler: a thread is preempted before each of its steps, or threads are
//! interleaved by a seed. Each history has an order that explains it, whether writes are watched or not, and however
//! that changes meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_index::Index;
use pmindex_testkit::crash::{Rng, create_pool, interleave, open_pool, preempt_once};
use pmindex_testkit::history::Clock;

use crate::tests::store::SmallStore;
use crate::{Map, Snapshot, Store, StoreError, StoreOptions, Watch};

const KEYS: u64 = 4;
/// Accesses after which a schedule counts as endless.
const STEPS: u64 = 1_000_000;

type Records = BTreeMap<u64, u64>;
type Seen = Vec<Option<u64>>;

/// An operation; the number is the value that it writes.
#[derive(Clone, Debug)]
enum Act {
    Get(u64),
    GetMany(Vec<u64>),
    First,
    Last,
    IsEmpty,
    Put(u64, u64),
    Insert(u64, u64),
    TryInsert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    InsertMany(Vec<u64>, u64),
    /// A transaction that reads a record and replaces it.
    Replace(u64, u64),
    /// A transaction that writes records without reading any.
    Write(Vec<u64>, u64),
    /// A transaction that removes the first record and adds the second.
    Move(u64, u64, u64),
    /// Takes a snapshot, which is read when it ends.
    Look,
    /// Ends the thread's oldest snapshot.
    End,
    /// Follows the commits from here on.
    Follow,
}

use Act::{
    End, First, Follow, Get, GetMany, Insert, InsertMany, IsEmpty, Last, Look, Move, Put, Remove,
    Replace, TryInsert, Update, Write,
};

/// A record at an end of the map.
fn at_end<K: Into<u64>, V: Into<u64>>(record: Option<(K, V)>) -> Seen {
    let (key, value) = record.map(|(key, value)| (key.into(), value.into())).unzip();
    vec![key, value]
}

fn flag(is_so: bool) -> Option<u64> {
    is_so.then_some(1)
}

impl Act {
    /// What it does to records, and sees of them, if it is alone.
    fn alone(&self, records: &mut Records) -> Seen {
        let mut try_insert = |key: u64, value: u64| {
            let is_new = !records.contains_key(&key);
            records.entry(key).or_insert(value);
            flag(is_new)
        };
        match self {
            Get(key) => vec![records.get(key).copied()],
            GetMany(keys) => keys.iter().map(|key| records.get(key).copied()).collect(),
            First => at_end(records.first_key_value().map(|(key, value)| (*key, *value))),
            Last => at_end(records.last_key_value().map(|(key, value)| (*key, *value))),
            IsEmpty => vec![flag(records.is_empty())],
            Move(from, to, value) => {
                let was = records.remove(from);
                records.insert(*to, *value);
                vec![was]
            }
            Put(key, value) => vec![flag(records.insert(*key, *value).is_none())],
            Insert(key, value) | Replace(key, value) => vec![records.insert(*key, *value)],
            TryInsert(key, value) => vec![try_insert(*key, *value)],
            InsertMany(keys, value) => keys.iter().map(|key| try_insert(*key, *value)).collect(),
            Update(key, value) => {
                vec![flag(records.get_mut(key).map(|there| *there = *value).is_some())]
            }
            Remove(key) => vec![records.remove(key)],
            Write(keys, value) => {
                records.extend(keys.iter().map(|key| (*key, *value)));
                Vec::new()
            }
            Look => (0..KEYS).map(|key| records.get(&key).copied()).collect(),
            End | Follow => Vec::new(),
        }
    }

    /// An operation of one record.
    fn single(rng: &mut Rng, key: u64, value: u64) -> Self {
        match rng.below(6) {
            0 => Put(key, value),
            1 => Insert(key, value),
            2 => TryInsert(key, value),
            3 => Update(key, value),
            4 => Remove(key),
            _ => Get(key),
        }
    }

    /// Reads and commits, and perhaps single writes.
    fn random(rng: &mut Rng, has_single: bool, value: u64) -> Self {
        let key = rng.below(2) as u64;
        match rng.below(if has_single { 16 } else { 9 }) {
            0 => GetMany(vec![key, 1 - key]),
            7 => [First, Last, IsEmpty][rng.below(3)].clone(),
            8 => Move(key, 1 - key, value),
            1 => Replace(key, value),
            2 | 3 => Write(vec![0, 1], value),
            4 => Look,
            5 | 6 => End,
            9 => InsertMany(vec![key, 1 - key], value),
            _ => Self::single(rng, key, value),
        }
    }
}

/// An operation that took place: the stamps between which it did, and what it saw.
#[derive(Clone, Debug)]
struct Done {
    span: (u64, u64),
    act: Act,
    seen: Seen,
}

impl Done {
    /// Reads of many records, each at a moment of its own: single writes may come between them.
    fn one_by_one(self) -> Vec<Self> {
        let Self { span, act: GetMany(keys), seen } = &self else { return vec![self] };
        let get = |(key, seen): (&u64, &Option<u64>)| Self {
            span: *span,
            act: Get(*key),
            seen: vec![*seen],
        };
        keys.iter().zip(seen).map(get).collect()
    }
}

/// Returns `true` if an order of the operations, which has those that ended before others began first, explains what
/// they saw.
fn is_explained(records: &Records, left: &[Done]) -> bool {
    let Some(least) = left.iter().map(|done| done.span.1).min() else { return true };
    (0..left.len()).filter(|at| left[*at].span.0 <= least).any(|at| {
        let mut records = records.clone();
        let mut rest = left.to_vec();
        let done = rest.remove(at);
        done.act.alone(&mut records) == done.seen && is_explained(&records, &rest)
    })
}

/// A store in the simulator's memory, which programs use one after another.
struct Scene {
    space: Space,
    options: PoolOptions,
    store: SmallStore,
    map: Map<u64, u64, Traced>,
}

/// What a thread holds.
#[derive(Default)]
struct Held {
    /// Snapshots, each with the stamp before it was taken and the one after it.
    views: Vec<((u64, u64), Snapshot<Traced>)>,
    follows: Vec<(Records, Watch<Traced>)>,
}

/// The records before, the thread that has a snapshot then, and the operations of each thread.
#[derive(Clone, Debug)]
struct Program {
    before: Records,
    viewer: Option<usize>,
    threads: Vec<Vec<Act>>,
}

impl Program {
    fn random(rng: &mut Rng) -> Self {
        let (has_single, mut value) = (rng.one_in(2), 1);
        let mut act = || {
            value += 1;
            Act::random(rng, has_single, value)
        };
        let threads = (0..3).map(|thread| (0..2 + thread % 2).map(|_| act()).collect()).collect();
        let viewer = rng.one_in(2).then(|| rng.below(3));
        Self { before: befores()[rng.below(2)].clone(), viewer, threads }
    }

    /// Returns `true` if all writes are commits of transactions.
    fn has_commits_only(&self) -> bool {
        let mut all = self.threads.iter().flatten();
        let is_one = |act: &Act| {
            matches!(
                act,
                Get(_)
                    | GetMany(_)
                    | First
                    | Last
                    | IsEmpty
                    | Replace(..)
                    | Write(..)
                    | Move(..)
                    | Look
                    | End
            )
        };
        all.all(is_one)
    }
}

impl Scene {
    fn new() -> Self {
        let options =
            PoolOptions::new().size(1 << 20).zone_bytes(32 << 10).slots(8).slot_bytes(1024);
        let bytes = options.created_size().unwrap() as usize;
        let space = Space::new(bytes, bytes);
        let pool = create_pool(&space, &options).unwrap();
        Self::of(space, options, &pool)
    }

    fn of(space: Space, options: PoolOptions, pool: &Arc<Pool<Traced>>) -> Self {
        let store = Store::in_pool(pool, &StoreOptions::new().tries(1000)).unwrap();
        let map = store.map("map").unwrap();
        Self { space, options, store, map }
    }

    /// Ends the process, and opens the store again.
    fn reopened(self) -> Self {
        let Self { space, options, store, map } = self;
        drop((map, store));
        let pool = open_pool(&space, &options).unwrap().unwrap();
        Self::of(space, options, &pool)
    }

    fn all(&self, view: &Snapshot<Traced>) -> Result<Records, StoreError> {
        self.map.at(view).range(..).collect()
    }

    /// Reads what a snapshot has, key by key and as a range.
    fn end(&self, (span, view): ((u64, u64), Snapshot<Traced>)) -> Result<Done, StoreError> {
        let seen: Result<Seen, _> = (0..KEYS).map(|key| self.map.at(&view).get(&key)).collect();
        let (seen, all) = (seen?, self.all(&view)?);
        let of_all: Seen = (0..KEYS).map(|key| all.get(&key).copied()).collect();
        assert_eq!(seen, of_all, "single reads and the range of a snapshot");
        Ok(Done { span, act: Look, seen })
    }

    /// Executes one operation; returns it, unless it is seen later.
    fn act(&self, clock: &Clock, held: &mut Held, act: &Act) -> Result<Option<Done>, StoreError> {
        let (map, start) = (&self.map, clock.tick());
        let seen = match act {
            Get(key) => vec![map.get(key)?],
            GetMany(keys) => {
                let mut found = vec![None; keys.len()];
                map.get_many(keys, &mut found)?;
                found
            }
            First => at_end(map.first_key_value()?),
            Last => at_end(map.last_key_value()?),
            IsEmpty => vec![flag(map.is_empty()?)],
            Move(from, to, value) => self.store.transaction(|tx| {
                let was = tx.remove(map, from)?;
                tx.put(map, to, value)?;
                Ok::<_, StoreError>(vec![was])
            })?,
            Put(key, value) => vec![flag(map.put(key, value)?)],
            Insert(key, value) => vec![map.insert(key, value)?],
            TryInsert(key, value) => vec![flag(map.try_insert(key, value)?.is_ok())],
            Update(key, value) => vec![flag(map.update(key, value)?.is_ok())],
            Remove(key) => vec![map.remove(key)?],
            InsertMany(keys, value) => {
                let records: Vec<_> = keys.iter().map(|key| (*key, *value)).collect();
                let done = map.try_insert_many(&records);
                assert!(done.stopped.is_none());
                done.inserted.into_iter().map(flag).collect()
            }
            Replace(key, value) => self.store.transaction(|tx| {
                let was = tx.get(map, key)?;
                tx.put(map, key, value)?;
                Ok::<_, StoreError>(vec![was])
            })?,
            Write(keys, value) => {
                self.store
                    .transaction(|tx| keys.iter().try_for_each(|key| tx.put(map, key, value)))?;
                Vec::new()
            }
            Look => {
                let view = self.store.snapshot()?;
                held.views.push(((start, clock.tick()), view));
                return Ok(None);
            }
            End if held.views.is_empty() => return Ok(None),
            End => return self.end(held.views.remove(0)).map(Some),
            Follow => {
                let watch = self.store.watch()?;
                let first = self.all(&self.store.snapshot()?)?;
                held.follows.push((first, watch));
                return Ok(None);
            }
        };
        Ok(Some(Done { span: (start, clock.tick()), act: act.clone(), seen }))
    }

    /// Runs a program; `interleaved` runs its threads, and returns the message of each that panicked.
    fn run(
        &self,
        program: &Program,
        interleaved: impl FnOnce(&(dyn Fn(usize) + Sync)) -> Vec<Option<String>>,
    ) -> Result<(), String> {
        for key in 0..KEYS {
            match program.before.get(&key) {
                Some(value) => drop(self.map.put(&key, value).unwrap()),
                None => drop(self.map.remove(&key).unwrap()),
            }
        }
        let clock = Clock::default();
        let held: Vec<_> = program.threads.iter().map(|_| Mutex::new(Held::default())).collect();
        if let Some(viewer) = program.viewer {
            self.act(&clock, &mut held[viewer].lock(), &Look).unwrap();
        }
        let all = Mutex::new(Vec::new());
        self.space.limit_steps(STEPS);
        let panics = interleaved(&|thread| {
            let mut held = held[thread].lock();
            for act in &program.threads[thread] {
                let done = self.act(&clock, &mut held, act).unwrap();
                all.lock().extend(done);
            }
            for view in std::mem::take(&mut held.views) {
                let done = self.end(view).unwrap();
                all.lock().push(done);
            }
        });
        self.space.limit_steps(u64::MAX);
        if let Some(message) = panics.into_iter().flatten().next() {
            return Err(message);
        }
        self.act(&clock, &mut held[0].lock(), &Look).unwrap();
        let last = self.end(held[0].lock().views.remove(0)).unwrap();
        let mut all = all.into_inner();
        all.push(last);
        let left: Records = self.map.range(..).map(Result::unwrap).collect();
        for (mut records, mut watch) in held.into_iter().flat_map(|held| held.into_inner().follows)
        {
            while let Some(commit) = watch.try_next().unwrap() {
                for (key, value) in commit.changes(&self.map).unwrap() {
                    match value {
                        Some(value) => records.insert(key, value),
                        None => records.remove(&key),
                    };
                }
            }
            if records != left {
                return Err(format!("followed: {records:?}, left: {left:?}; {all:?}"));
            }
        }
        if !program.has_commits_only() {
            all = all.into_iter().flat_map(Done::one_by_one).collect();
        }
        let explained = is_explained(&program.before, &all);
        if explained { Ok(()) } else { Err(format!("left: {left:?}; {all:?}")) }
    }

    /// Preempts the first thread at each of its steps; returns their number.
    fn preempted(&self, program: &Program) -> u64 {
        for at in 1.. {
            let mut is_reached = false;
            let once = |body: &(dyn Fn(usize) + Sync)| {
                let (panics, reached) = preempt_once(program.threads.len(), at, body);
                is_reached = reached;
                panics
            };
            if let Err(message) = self.run(program, once) {
                panic!("preempted before step {at} of {program:?}: {message}");
            }
            if !is_reached {
                return at - 1;
            }
        }
        0
    }
}

/// The states of the first key before a program.
fn befores() -> [Records; 2] {
    [Records::from([(1, 1)]), Records::from([(0, 1), (1, 1)])]
}

/// All writes of single records, with one value.
fn writes(value: u64) -> [Act; 6] {
    let many = InsertMany(vec![0, 2], value);
    [Put(0, value), Insert(0, value), TryInsert(0, value), Update(0, value), Remove(0), many]
}

/// The snapshot because of which a write is watched ends at any moment of it. Then another thread writes, and begins to
/// read, or to follow, what the write is about to change.
#[test]
fn a_watched_write_is_whole_whenever_the_last_reader_ends() {
    let scene = Scene::new();
    let mut steps = 0;
    for before in befores() {
        for write in writes(7) {
            for next in [Remove(0), Put(0, 2), TryInsert(0, 2)] {
                let ends =
                    [vec![Replace(0, 9)], vec![Look, Get(0), End], vec![Follow], vec![Get(0)]];
                for end in ends {
                    let other = [vec![End, next.clone()], end].concat();
                    let threads = vec![vec![write.clone()], other];
                    let program = Program { before: before.clone(), viewer: Some(1), threads };
                    steps += scene.preempted(&program);
                }
            }
        }
    }
    assert!(steps > 3_000, "{steps}");
}

/// Commits that change both records come and end at any moment of reading them, and the other way round.
#[test]
fn many_records_are_read_at_one_moment() {
    let scene = Scene::new();
    let (keys, mut steps) = (vec![0, 1], 0);
    for before in befores() {
        for viewer in [None, Some(0), Some(1)] {
            let writes = vec![Write(keys.clone(), 5), Write(keys.clone(), 6)];
            let reads = vec![GetMany(keys.clone()), GetMany(vec![1, 0])];
            for threads in [[reads.clone(), writes.clone()], [writes.clone(), reads.clone()]] {
                let program = Program { before: before.clone(), viewer, threads: threads.to_vec() };
                steps += scene.preempted(&program);
            }
        }
    }
    assert!(steps > 500, "{steps}");
}

/// Commits that move a record come and end at any moment of reading an end of the map, and the other way round.
#[test]
fn the_ends_of_a_map_are_read_at_one_moment() {
    let (scene, mut steps) = (Scene::new(), 0);
    for before in befores() {
        for viewer in [None, Some(0), Some(1)] {
            let writes = vec![Move(1, 3, 5), Move(3, 0, 6), Move(0, 1, 7)];
            for read in [First, Last, IsEmpty] {
                let reads = vec![read.clone(), read];
                for threads in [[reads.clone(), writes.clone()], [writes.clone(), reads.clone()]] {
                    let threads = threads.to_vec();
                    let program = Program { before: before.clone(), viewer, threads };
                    steps += scene.preempted(&program);
                }
            }
        }
    }
    assert!(steps > 500, "{steps}");
}

/// Random programs of three threads: a reader that waits for one writer while another one goes on needs as many.
#[test]
fn interleaved_programs_have_an_order() {
    let scene = Scene::new();
    for seed in 0..3_000 {
        let program = Program::random(&mut Rng::new(seed));
        let run = scene.run(&program, |body| interleave(3, seed, body));
        run.unwrap_or_else(|message| panic!("seed {seed}: {program:?}: {message}"));
    }
}

/// A panic at any access of a commit. Then it has taken place or not, also for snapshots, and after writes that come
/// later and a crash. Returns the number of places.
fn panic_anywhere(act: &Act, viewed: bool, followed: bool) -> u64 {
    for at in 0.. {
        let scene = Scene::new();
        (0..2).for_each(|key| assert!(scene.map.put(&key, &1).unwrap()));
        let clock = Clock::default();
        let view = viewed.then(|| scene.store.snapshot().unwrap());
        let watch = followed.then(|| scene.store.watch().unwrap());
        scene.space.limit_steps(at);
        let run = |_| drop(scene.act(&clock, &mut Held::default(), act).unwrap());
        let is_over = interleave(1, at, run) == [None];
        scene.space.limit_steps(STEPS);
        let mut after = Records::from([(0, 1), (1, 1)]);
        let nothing = after.clone();
        act.alone(&mut after);
        let now = scene.all(&scene.store.snapshot().unwrap()).unwrap();
        assert!(now == after || now == nothing && !is_over, "{act:?}, {at}: {now:?}");
        if let Some(view) = view {
            assert_eq!(scene.all(&view).unwrap(), nothing, "{act:?}, {at}");
        }
        drop(watch);
        scene.map.put(&0, &9).unwrap();
        let scene = scene.reopened();
        let left: Records = scene.map.range(..).map(Result::unwrap).collect();
        let mut wanted = now;
        wanted.insert(0, 9);
        assert_eq!(left, wanted, "{act:?}, {at}, after a crash");
        assert_eq!(scene.store.unfinished_commits(), 0, "{act:?}, {at}");
        if is_over {
            return at;
        }
    }
    0
}

#[test]
fn a_panic_in_a_commit_leaves_all_of_it_or_nothing() {
    let write = Write(vec![0, 1], 5);
    for (act, viewed, followed) in [
        (&write, false, false),
        (&write, true, false),
        (&Replace(1, 5), false, true),
        (&Put(0, 5), false, true),
        (&Remove(0), false, true),
        (&TryInsert(2, 5), true, true),
    ] {
        let places = panic_anywhere(act, viewed, followed);
        assert!(places > 10, "{act:?}: {places}");
    }
}
