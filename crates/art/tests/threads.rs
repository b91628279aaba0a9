//! Several threads in one tree: what each call returned is explained by an order of all.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_art::{Direction, KeyBuf, Nodes, Root, Tree};
use pmindex_core::{Arena, Mapped, PmError, Pool};
use pmindex_testkit::history::{Call, Clock, History, Log, Outcome};

const THREADS: u64 = 4;
const KEYS: u64 = 96;

/// Key number `n`: in nodes of all sizes, some the beginning of others, some with long common parts.
fn key(n: u64) -> Vec<u8> {
    match n % 6 {
        0 | 1 => vec![b'k', n as u8],
        2 => vec![b'k', n as u8 - 2, 1],
        3 => [vec![b'k'; 21], vec![n as u8]].concat(),
        4 => [vec![b'k'; 21], vec![n as u8 - 1; 2]].concat(),
        _ => vec![n as u8],
    }
}

/// A leaf's number says which key it is of, and who made it.
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

fn one_call(tree: &Tree<'_, Loader>, pm: &Mapped, log: &mut Log<'_>, rng: &mut Rng, tag: u64) {
    let n = rng.next(KEYS);
    let bytes = key(n);
    let leaf = tag * KEYS + n;
    let value = |leaf: Option<u64>| Outcome::Value(leaf.map(|leaf| leaf / KEYS));
    match rng.next(16) {
        0..=4 => {
            log.call(n, Call::Insert(tag), || {
                tree.insert(pm, &bytes, leaf).map(|old| Outcome::Done(old.is_none()))
            })
            .unwrap();
        }
        5 => {
            log.call(n, Call::Upsert(tag), || {
                tree.upsert(pm, &bytes, leaf).map(|old| Outcome::Done(old.is_none()))
            })
            .unwrap();
        }
        6..=10 => {
            log.call(n, Call::Remove, || tree.remove(pm, &bytes).map(value)).unwrap();
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

/// All leaves, a few at a time: ordered, each once.
fn scan(
    tree: &Tree<'_, Loader>,
    pm: &Mapped,
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
                        one_call(tree, pool.pm(), &mut log, &mut rng, tag);
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
