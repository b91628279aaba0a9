//! A panic of the medium at each access of a split, a merge, an absorption, a bulk load: the index
//! is whole afterwards, without being opened again, and so is what a later opening finds.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use pmindex_core::trace::{EventKind, Space};
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_index::{Index, Key, PmIndex, Value};

use crate::SpTree;
use crate::layout::Geometry;

/// Panics of the medium print nothing.
fn be_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.to_string().contains("step limit") {
                print(info);
            }
        }));
    });
}

/// An index that is interrupted.
struct Rig<I> {
    space: Space,
    options: PoolOptions,
    index: I,
    pool: Arc<Pool<Traced>>,
}

impl<I> Rig<I> {
    fn new<K: Key, V: Value>() -> Self
    where
        I: PmIndex<K, V, Traced>,
    {
        let options = PoolOptions::new().size(192 << 10).zone_bytes(64 << 10);
        let options = options.slots(4).slot_bytes(1024);
        let bytes = options.created_size().expect("a size") as usize;
        let space = Space::new(bytes, bytes);
        let pool = Arc::new(Pool::create_traced(&space, &options).expect("room"));
        let index = I::create(&pool, "t").expect("room");
        Self { space, options, index, pool }
    }

    /// Interrupts the call at its access number `at`; whether that was before its end.
    fn interrupt(&self, at: u64, call: impl FnOnce(&I)) -> bool {
        be_quiet();
        self.space.limit_steps(at);
        let ended = catch_unwind(AssertUnwindSafe(|| call(&self.index)));
        self.space.limit_steps(u64::MAX);
        ended.is_err()
    }

    /// Verifies the index, which holds `model`, or that with the interrupted change. With buffers the
    /// change may be in the log though the index does not have it, and be found by the next opening,
    /// as any call that never returned may happen later.
    fn verify<K, V>(self, model: &BTreeMap<K, V>, changed: &BTreeMap<K, V>, at: u64)
    where
        K: Key + Debug,
        V: Value + PartialEq + Debug,
        I: PmIndex<K, V, Traced>,
    {
        let buffered = !std::any::type_name::<I>().ends_with(", 0>");
        self.space.limit_steps(3_000_000);
        let held = contents(&self.index);
        assert!(held == *model || held == *changed, "access {at}: {held:?}");
        assert_eq!(self.index.check().expect("sound"), held.len() as u64, "access {at}");
        assert_eq!(self.index.len().expect("sound"), held.len() as u64, "access {at}");
        for (key, value) in &held {
            let found = self.index.get(key.borrowed()).expect("intact");
            assert_eq!(found.as_ref(), Some(value), "access {at}");
        }
        self.pool.audit(self.index.blocks().expect("intact").into_iter()).expect("no leak");
        let Self { space, options, index, pool } = self;
        drop(index);
        drop(pool);
        let pool = Arc::new(Pool::open_traced(&space, &options).expect("a pool"));
        let index = I::open(&pool, "t").expect("intact");
        let again = contents(&index);
        let late = buffered && again == *changed;
        assert!(again == held || late, "access {at}, opened again: {again:?}, {held:?}");
        assert_eq!(index.check().expect("sound"), again.len() as u64, "access {at}, opened again");
        pool.audit(index.blocks().expect("intact").into_iter()).expect("no leak");
    }
}

fn contents<K: Key, V: Value, I: Index<K, V>>(index: &I) -> BTreeMap<K, V> {
    let all = index.range_bounds(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    all.map(|record| record.expect("intact")).collect()
}

/// Interrupts an insert, or a removal, at each of its accesses, in an index of `records` records.
fn at_each_access<K, V, I>(
    records: u64,
    (key, value): (impl Fn(u64) -> K, impl Fn(u64) -> V),
    changed: u64,
) where
    K: Key + Debug,
    V: Value + PartialEq + Debug,
    I: PmIndex<K, V, Traced>,
{
    let mut at = 0;
    loop {
        let rig = Rig::<I>::new();
        let mut model = BTreeMap::new();
        for n in 0..records {
            assert!(
                rig.index.try_insert(key(n).borrowed(), value(n).borrowed()).expect("room").is_ok()
            );
            model.insert(key(n), value(n));
        }
        let mut after = model.clone();
        let removed = after.remove(&key(changed)).is_some();
        if !removed {
            after.insert(key(changed), value(changed));
        }
        let interrupted = rig.interrupt(at, |index| {
            if removed {
                index.remove(key(changed).borrowed()).expect("room");
            } else {
                index
                    .try_insert(key(changed).borrowed(), value(changed).borrowed())
                    .expect("room")
                    .expect("done");
            }
        });
        rig.verify(&model, &after, at);
        if !interrupted {
            assert!(at > 3, "nothing to interrupt");
            return;
        }
        at += 1;
    }
}

fn word(n: u64) -> u64 {
    n
}

fn bytes(n: u64) -> Vec<u8> {
    [b"fingerprint", n.to_be_bytes().as_slice()].concat()
}

#[test]
fn interrupted_splits_and_what_follows_them_are_mended() {
    // The 13th record splits the third Bnode, or the fourth; the backup takes entries, too.
    for records in 9..15 {
        at_each_access::<u64, u64, SpTree<_, _, Traced, 4>>(records, (word, word), records);
        at_each_access::<Vec<u8>, Vec<u8>, SpTree<_, _, Traced, 4>>(
            records,
            (bytes, bytes),
            records,
        );
    }
}

#[test]
fn interrupted_merges_are_mended() {
    // Each removal of the last ones merges, or leaves a Bnode for the next to merge.
    for removed in 0..9 {
        at_each_access::<u64, u64, SpTree<_, _, Traced, 2>>(9, (word, word), removed);
        at_each_access::<Vec<u8>, Vec<u8>, SpTree<_, _, Traced, 2>>(9, (bytes, bytes), removed);
    }
}

#[test]
fn interrupted_absorptions_splits_and_merges_of_buffered_bnodes_are_mended() {
    for records in 9..15 {
        at_each_access::<u64, u64, SpTree<_, _, Traced, 4, 3>>(records, (word, word), records);
    }
    for removed in 0..9 {
        at_each_access::<u64, u64, SpTree<_, _, Traced, 2, 1>>(9, (word, word), removed);
    }
}

/// Wherever a write is interrupted, the piece for its entry belongs to its buffer, or is free.
#[test]
fn interrupted_writes_lose_no_piece_of_a_buffer() {
    type Tree = SpTree<u64, u64, Traced, 8, 6>;
    for there in 0..8 {
        let mut at = 0;
        loop {
            let rig = Rig::<Tree>::new::<u64, u64>();
            for key in 0..there {
                assert!(rig.index.try_insert(&key, &key).expect("room").is_ok());
            }
            let buffers = |rig: &Rig<Tree>| {
                rig.space.limit_steps(3_000_000);
                rig.index.buffers().expect("some").check_pieces()
            };
            let interrupted = rig.interrupt(at, |index| {
                index.try_insert(&there, &there).expect("room").expect("done");
            });
            assert!(buffers(&rig) <= 2, "access {at}");
            for key in 10..20 {
                assert!(rig.index.try_insert(&key, &key).expect("room").is_ok());
                buffers(&rig);
            }
            rig.index.check().expect("sound");
            rig.index.drain().expect("room");
            assert_eq!(buffers(&rig), 0, "access {at}");
            if !interrupted {
                break;
            }
            at += 1;
        }
    }
}

fn bulk_loads_at_each_access<K, V, I>(key: impl Fn(u64) -> K, value: impl Fn(u64) -> V, step: u64)
where
    K: Key + Debug,
    V: Value + PartialEq + Debug,
    I: PmIndex<K, V, Traced>,
{
    let records: BTreeMap<K, V> = (0..15).map(|n| (key(n), value(n))).collect();
    let mut at = 0;
    loop {
        let rig = Rig::<I>::new();
        let interrupted = rig.interrupt(at, |index| {
            index.bulk_load(&mut records.clone().into_iter()).expect("room");
        });
        rig.verify(&BTreeMap::new(), &records, at);
        if !interrupted {
            return;
        }
        at += step;
    }
}

#[test]
fn interrupted_bulk_loads_are_discarded_or_whole() {
    bulk_loads_at_each_access::<u64, u64, SpTree<_, _, Traced, 4>>(word, word, 1);
    bulk_loads_at_each_access::<u64, u64, SpTree<_, _, Traced, 4, 3>>(word, word, 1);
    bulk_loads_at_each_access::<Vec<u8>, Vec<u8>, SpTree<_, _, Traced, 4>>(bytes, bytes, 1);
}

/// Returns the words of which a crash could take back what was recorded.
fn unfenced(space: &Space) -> BTreeMap<u64, bool> {
    let mut pending = BTreeMap::new();
    space.with_trace(|trace| {
        for event in trace {
            let word = u64::from(event.word);
            match event.kind {
                EventKind::Flush => {
                    pending.range_mut(word..word + 8).for_each(|(_, flushed)| *flushed = true);
                }
                EventKind::Fence => pending.retain(|_, flushed| !*flushed),
                kind if kind.writes() => {
                    pending.insert(word, kind == EventKind::Stream);
                }
                _ => {}
            }
        }
    });
    pending
}

/// Interrupts a call at each of its accesses, in an index of `records` records: what it left in a Bnode is
/// durable when the lock is free.
fn leaves_nothing_volatile<const LEAF: usize, const BUFFER: usize>(
    records: u64,
    call: impl Fn(&SpTree<u64, u64, Traced, LEAF, BUFFER>),
) {
    for at in 0.. {
        let rig = Rig::<SpTree<u64, u64, Traced, LEAF, BUFFER>>::new::<u64, u64>();
        rig.space.record(true);
        for key in 0..records {
            assert!(rig.index.try_insert(&key, &key).expect("room").is_ok());
        }
        let interrupted = rig.interrupt(at, &call);
        rig.space.record(false);
        rig.space.limit_steps(3_000_000);
        let unfenced = unfenced(&rig.space);
        let walked = rig.index.walk(|_, bnode, _| {
            let first = bnode.offset() / 8;
            let end = first + Geometry::<u64, u64, LEAF>::BYTES / 8;
            let words: Vec<u64> =
                unfenced.range(first..end).map(|(word, _)| word - first).collect();
            assert!(words.is_empty(), "access {at}: words {words:?} of a Bnode");
            Ok(())
        });
        walked.expect("intact");
        if !interrupted {
            assert!(at > 3, "nothing to interrupt");
            return;
        }
    }
}

/// An insert with one fence tells its record from what a crash leaves in its slot, also in an index that is
/// opened again by the same process, and after the pool was closed.
#[test]
fn interrupted_writes_leave_nothing_in_a_bnode_that_a_crash_could_take_back() {
    for records in [3, 4] {
        leaves_nothing_volatile::<4, 0>(records, |tree| {
            tree.try_insert(&records, &1).expect("room").expect("done");
        });
    }
    leaves_nothing_volatile::<4, 0>(3, |tree| tree.update(&1, &7).expect("room").expect("there"));
    leaves_nothing_volatile::<8, 0>(3, |tree| {
        assert_eq!(tree.try_insert_many(&[(7, 7), (8, 8), (9, 9)]).inserted, [true; 3]);
    });
    leaves_nothing_volatile::<4, 3>(3, |tree| {
        tree.try_insert(&9, &9).expect("room").expect("done");
    });
    leaves_nothing_volatile::<8, 3>(2, |tree| tree.drain().expect("room"));
    leaves_nothing_volatile::<2, 0>(6, |tree| {
        (0..6).for_each(|key| assert!(tree.remove(&key).expect("intact").is_some()));
    });
    leaves_nothing_volatile::<4, 0>(0, |tree| {
        tree.bulk_load(&mut (0..12).map(|key| (key, key))).expect("room");
    });
}
