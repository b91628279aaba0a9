//! Space is reused: after most records were removed, or all were replaced by others, the remaining records
//! take at most twice the space of a fresh load. Tested for the kinds of index that promise it, except HART with
//! byte strings out of line, whose chunks of objects are given back only when they are empty.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use pmindex::{AnyIndex, Index, Key, Kind, Pool, Value};

const RECORDS: u64 = 40_000;
/// The number of removed records; 5 % remain.
const MOST: u64 = RECORDS / 20 * 19;

#[derive(Clone, Copy, Debug)]
struct Space {
    /// Bytes in live blocks, of a thousand records.
    live: u64,
    /// Inner nodes.
    inners: u64,
}

/// An index whose space is measured, and the function that makes its n-th record.
struct Churned<K: Key, V: Value> {
    index: AnyIndex<K, V>,
    pool: Arc<Pool>,
    kind: Kind,
    key: fn(u64) -> K,
    value: fn(u64) -> V,
}

impl<K: Key + Ord + Hash, V: Value> Churned<K, V> {
    fn new(kind: Kind, key: fn(u64) -> K, value: fn(u64) -> V) -> Self {
        let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
        let index = AnyIndex::create(&pool, "churned", kind).expect("room");
        Self { index, pool, kind, key, value }
    }

    fn insert(&self, n: u64) {
        let (key, value) = ((self.key)(n), (self.value)(n));
        let added = self.index.try_insert(key.borrowed(), value.borrowed());
        assert!(added.expect("room").is_ok());
    }

    fn remove(&self, key: &K) {
        assert!(self.index.remove(key.borrowed()).expect("room").is_some());
    }

    fn space(&self) -> Space {
        let stats = self.index.stats().expect("intact");
        assert_eq!(self.index.check().expect("intact"), stats.records);
        let blocks = self.index.blocks().expect("intact").into_iter();
        self.pool.audit(blocks).expect("no leak");
        let live = self.pool.live_blocks().expect("intact");
        Space {
            live: 1000 * live.iter().map(|(_, bytes)| bytes).sum::<u64>() / stats.records,
            inners: stats.inners,
        }
    }

    /// That of a fresh load.
    fn fresh(&self, records: impl Iterator<Item = u64>) -> Space {
        let fresh = Self::new(self.kind, self.key, self.value);
        records.for_each(|n| fresh.insert(n));
        fresh.space()
    }

    /// Returns the bytes that it may take besides: segments of the write buffers' log that the next checkpoint
    /// gives back.
    fn slack(&self) -> u64 {
        if self.kind == Kind::BufferedSpTree { 128 << 10 } else { 0 }
    }

    /// Checks that it takes at most twice as much as a fresh load.
    fn holds(&self, what: &str, fresh: Space) -> Space {
        let now = self.space();
        println!("{}, {what}: {now:?}, fresh {fresh:?}", self.kind);
        let slack = 1000 * self.slack() / self.index.len().expect("intact");
        assert!(now.live <= 2 * fresh.live + slack, "{what}: {now:?}, fresh {fresh:?}");
        // Some nodes wait for the next rebuild to be free.
        assert!(now.inners <= 2 * fresh.inners + 24, "{what}: {now:?}, fresh {fresh:?}");
        now
    }

    fn churn(&self) {
        (0..RECORDS).for_each(|n| self.insert(n));
        let loaded = self.space();
        // Most go at random.
        (0..MOST).for_each(|n| self.remove(&(self.key)(n)));
        self.holds("5 % stay", self.fresh(MOST..RECORDS));
        // Others come.
        (RECORDS..RECORDS + MOST).for_each(|n| self.insert(n));
        let refilled = self.holds("others", loaded);
        assert!(4 * refilled.live <= 5 * loaded.live, "{refilled:?}, {loaded:?}");
        // A window: the oldest goes, another comes.
        for n in 0..RECORDS {
            self.remove(&(self.key)(MOST + n));
            self.insert(RECORDS + MOST + n);
        }
        self.holds("a window", loaded);
        // Neighbours stay together: the remaining records are a range.
        let all = self.index.range(..).map(|record| record.expect("intact").0);
        let mut all: Vec<_> = all.collect();
        let stay: HashSet<_> =
            all.drain(RECORDS as usize / 2..RECORDS as usize / 2 + 2000).collect();
        for key in &all {
            self.remove(key);
        }
        let in_order_of_insertion =
            (0..2 * (RECORDS + MOST)).filter(|&n| stay.contains(&(self.key)(n)));
        self.holds("a range", self.fresh(in_order_of_insertion));
    }
}

/// Returns words in random order, of which the n-th is always the same (splitmix64).
fn word(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Byte strings in no order, of several sizes.
fn text(n: u64) -> Vec<u8> {
    format!("{:016x}{}", word(n), &"a tail of any length"[..(n % 20) as usize]).into_bytes()
}

macro_rules! churn {
    ($($name:ident: $kind:ident, $key:expr, $value:expr;)*) => { $(
        #[test]
        fn $name() {
            Churned::new(Kind::$kind, $key, $value).churn();
        }
    )* };
}

churn! {
    fptree_words: FpTree, word, |n| n;
    fptree_texts: FpTree, text, text;
    nvtree_words: NvTree, word, |n| n;
    nvtree_texts: NvTree, text, text;
    wbtree_words: WbTree, word, |n| n;
    wbtree_texts: WbTree, text, text;
    fastfair_words: FastFair, word, |n| n;
    fastfair_texts: FastFair, text, text;
    sptree_texts: SpTree, text, text;
    sptree_words: SpTree, word, |n| n;
    buffered_words: BufferedSpTree, word, |n| n;
    buffered_texts: BufferedSpTree, text, text;
    hart_words: Hart, word, |n| n;
    hart_texts: Hart, text, text;
    bztree_words: BzTree, word, |n| n;
    bztree_texts: BzTree, text, text;
}
