//! Several threads in one tree: an order of all calls must explain each result; with the system's threads,
//! and with every wait and version check scheduled by a seed.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_art::{Direction, KeyBuf, LeafPath, Nodes, Root, Tree};
use pmindex_core::trace::Space;
use pmindex_core::{Arena, Medium, PmError, Pool};
use pmindex_testkit::crash::interleave;
use pmindex_testkit::history::{Call, Clock, History, Log, Outcome};

const THREADS: u64 = 4;
/// From this number on each key is a prefix of the next.
const CHAIN: u64 = 240;
const KEYS: u64 = CHAIN + 40;

/// Returns key number `n`: in nodes of all sizes, some prefixes of others, some with long common parts, and a
/// chain.
fn key(n: u64) -> Vec<u8> {
    match n % 6 {
        _ if n >= CHAIN => vec![0xf0; (n - CHAIN) as usize + 1],
        0 | 1 => vec![b'k', n as u8],
        2 => vec![b'k', n as u8 - 2, 1],
        3 => [vec![b'k'; 21], vec![n as u8]].concat(),
        4 => [vec![b'k'; 21], vec![n as u8 - 1; 2]].concat(),
        _ => vec![n as u8],
    }
}

/// A leaf's number says which key it has, and which thread made it.
#[allow(clippy::unnecessary_wraps, reason = "what the tree calls")]
fn load(leaf: u64, out: &mut KeyBuf) -> Result<(), PmError> {
    out.push(&key(leaf % KEYS));
    Ok(())
}

struct Rng(u64);

impl Rng {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

type Loader = fn(u64, &mut KeyBuf) -> Result<(), PmError>;

/// Executes a call on key number `n`, or a scan.
fn one_call(
    tree: &Tree<'_, Loader>,
    pm: &impl Medium,
    log: &mut Log<'_>,
    rng: &mut Rng,
    (n, tag): (u64, u64),
) {
    let bytes = key(n);
    let leaf = tag * KEYS + n;
    let value = |leaf: Option<u64>| Outcome::Value(leaf.map(|leaf| leaf / KEYS));
    match rng.next(16) {
        0..=4 => {
            log.call(n, Call::TryInsert(tag), || {
                tree.insert(pm, &bytes, leaf).map(|old| Outcome::Done(old.is_none()))
            })
            .unwrap();
        }
        5 => {
            log.call(n, Call::Put(tag), || {
                tree.upsert(pm, &bytes, leaf).map(|old| Outcome::Done(old.is_none()))
            })
            .unwrap();
        }
        6..=10 => {
            log.call(n, Call::Remove, || {
                if tag.is_multiple_of(2) {
                    return tree.remove(pm, &bytes).map(value);
                }
                // The actions of other threads while the nodes are locked.
                let mut path = LeafPath::default();
                loop {
                    let Some(place) = tree.find_path(pm, &bytes, &mut path) else {
                        return Ok(value(None));
                    };
                    let same = key(place.leaf % KEYS) == bytes;
                    if place.validate(pm) {
                        let commit = || {
                            (0..3).for_each(|_| pm.yield_point());
                            Ok(())
                        };
                        if !same {
                            return Ok(value(None));
                        } else if tree.remove_path(pm, &path, commit)?.is_some() {
                            return Ok(value(Some(place.leaf)));
                        }
                    }
                    pm.spin();
                }
            })
            .unwrap();
        }
        11..=14 => {
            log.call(n, Call::Get, || tree.get(pm, &bytes).map(value)).unwrap();
        }
        _ => {
            let direction =
                if tag.is_multiple_of(2) { Direction::Ascending } else { Direction::Descending };
            log.scan(0..KEYS, || scan(tree, pm, direction)).unwrap();
        }
    }
}

/// Walks all leaves, a few at a time: they must be ordered, each once.
fn scan(
    tree: &Tree<'_, Loader>,
    pm: &impl Medium,
    direction: Direction,
) -> Result<BTreeMap<u64, u64>, PmError> {
    let mut seen = BTreeMap::new();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let bound = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut places = Vec::new();
        let more = tree.walk(pm, bound, direction, 7, &mut places)?;
        for place in &places {
            let n = place.leaf % KEYS;
            let next = key(n);
            if let Some(last) = &last {
                let ascends = next > *last;
                assert!(next != *last && ascends == (direction == Direction::Ascending));
            }
            assert!(seen.insert(n, place.leaf / KEYS).is_none(), "twice");
            last = Some(next);
        }
        if !more {
            return Ok(seen);
        }
    }
}

fn round(seed: u64, calls: u64) {
    let pool = Pool::volatile(1 << 16).unwrap();
    let roots: Arena<Root> = Arena::new(1).unwrap();
    let root = roots.get(roots.alloc().unwrap());
    let nodes = Nodes::new(1000).unwrap();
    let leaves: Loader = load;
    let tree = Tree::new(&nodes, root, &leaves);
    let clock = Clock::default();
    let logs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (pool, tree, clock) = (&pool, &tree, &clock);
                scope.spawn(move || {
                    let mut log = Log::new(clock, thread as u32);
                    let mut rng =
                        Rng((seed * THREADS + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    for i in 0..calls {
                        let tag = (seed * calls + i) * THREADS + thread;
                        // Half of the calls compete for few keys.
                        let n = if rng.next(2) == 0 { rng.next(24) } else { rng.next(KEYS) };
                        one_call(tree, pool.pm(), &mut log, &mut rng, (n, tag));
                    }
                    log.into_events()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut history = History::default();
    history.add(logs.into_iter().flatten());
    let left = scan(&tree, pool.pm(), Direction::Ascending).unwrap();
    assert_eq!(tree.check().unwrap(), left.len() as u64);
    history.ends_with(0..KEYS, &left);
    if let Err(violation) = history.check() {
        panic!("seed {seed}: {violation}");
    }
    for n in left.keys() {
        assert!(tree.remove(pool.pm(), &key(*n)).unwrap().is_some());
    }
    assert!(tree.is_empty(pool.pm()));
    assert_eq!(nodes.counts(), [0; 4], "every node was given back, once");
}

#[test]
fn concurrent_calls_are_linearizable() {
    for seed in 0..30 {
        round(seed, 2_000);
    }
}

/// Runs a short program of two or three threads beside a node that is about to grow or to shrink.
fn scheduled(seed: u64) {
    let mut rng = Rng((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let space = Space::new(4096, 4096);
    let pm = space.medium();
    let roots: Arena<Root> = Arena::new(1).unwrap();
    let nodes = Nodes::new(1000).unwrap();
    let leaves: Loader = load;
    let tree = Tree::new(&nodes, roots.get(roots.alloc().unwrap()), &leaves);
    // Children of the node behind `k`, about as many as make it grow or shrink.
    let children: Vec<u64> = (0..CHAIN).filter(|n| n % 6 < 2).collect();
    let fanout = [0usize, 1, 2, 3, 4, 5, 12, 13, 16, 17, 37, 38, 48, 49][rng.next(14) as usize];
    let mut near = children[fanout.saturating_sub(2)..fanout + 2].to_vec();
    let others: Vec<u64> = (0..CHAIN).filter(|n| n % 6 >= 2 && rng.next(40) == 0).collect();
    let mut chain = Vec::new();
    if seed % 3 == 2 {
        // Beside nodes of a chain, most of which a search passes.
        chain = (CHAIN..KEYS).filter(|_| rng.next(12) > 0).collect();
        near = (0..4).map(|_| CHAIN + 15 + rng.next(KEYS - CHAIN - 15)).collect();
    }
    let mut before = BTreeMap::new();
    for &n in children[..fanout].iter().chain(&others).chain(&chain) {
        assert_eq!(tree.insert(&pm, &key(n), n).unwrap(), None);
        before.insert(n, 0);
    }
    let clock = Clock::default();
    let events = parking_lot::Mutex::new(Vec::new());
    space.limit_steps(1_000_000);
    let panics = interleave(2 + rng.next(2) as usize, seed, |thread| {
        let mut rng = Rng((seed * 3 + thread as u64 + 1).wrapping_mul(0xd605_1f7a_2d8c_5e11));
        let mut log = Log::new(&clock, thread as u32);
        for i in 0..2 + rng.next(3) {
            let n = match rng.next(8) {
                0 => rng.next(KEYS),
                1 if !others.is_empty() => others[rng.next(others.len() as u64) as usize],
                _ => near[rng.next(near.len() as u64) as usize],
            };
            one_call(&tree, &pm, &mut log, &mut rng, (n, 100 * (thread as u64 + 1) + i));
        }
        events.lock().extend(log.into_events());
    });
    assert!(panics.iter().all(Option::is_none), "seed {seed}: {panics:?}");
    space.limit_steps(u64::MAX);
    let mut history = History::new(before);
    history.add(events.into_inner());
    let left = scan(&tree, &pm, Direction::Ascending).unwrap();
    assert_eq!(tree.check().unwrap(), left.len() as u64, "seed {seed}");
    history.ends_with(0..KEYS, &left);
    if let Err(violation) = history.check() {
        panic!("seed {seed}: {violation}");
    }
    for n in left.keys() {
        assert!(tree.remove(&pm, &key(*n)).unwrap().is_some());
    }
    assert_eq!(nodes.counts(), [0; 4], "seed {seed}: every node was given back, once");
}

#[test]
fn every_schedule_is_linearizable() {
    for seed in 0..6_000 {
        scheduled(seed);
    }
}

/// A reader that looks for a leaf while its removal is being made durable finds it, or waits: for every kind
/// of removal, by the node that it changes.
#[test]
fn nobody_sees_a_leaf_gone_before_its_commit_has_ended() {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    let pool = Pool::volatile(1 << 16).unwrap();
    let pm = pool.pm();
    let roots: Arena<Root> = Arena::new(1).unwrap();
    let root = roots.get(roots.alloc().unwrap());
    let nodes = Nodes::new(1000).unwrap();
    let leaves: Loader = load;
    let tree = Tree::new(&nodes, root, &leaves);
    for n in 0..KEYS {
        assert_eq!(tree.insert(pm, &key(n), n).unwrap(), None);
    }
    let mut seen = [0; 4];
    for n in 0..KEYS {
        seen.iter_mut().zip(nodes.counts()).for_each(|(seen, count)| *seen += count);
        let (key, committed) = (key(n), AtomicBool::new(false));
        let mut path = LeafPath::default();
        assert_eq!(tree.find_path(pm, &key, &mut path).unwrap().leaf, n);
        std::thread::scope(|scope| {
            let commit = || {
                scope.spawn(|| {
                    let (found, ended) = (tree.get(pm, &key).unwrap(), committed.load(SeqCst));
                    assert!(found == Some(n) || ended, "{n} is gone too early");
                });
                std::thread::sleep(std::time::Duration::from_micros(300));
                committed.store(true, SeqCst);
                Ok(())
            };
            assert_eq!(tree.remove_path(pm, &path, commit), Ok(Some(())));
        });
        assert_eq!(tree.check().unwrap(), KEYS - n - 1);
    }
    assert!(seen.iter().all(|&seen| seen > 0), "nodes of all sizes: {seen:?}");
}
