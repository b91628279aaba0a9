//! Space comes back: what records that stay take after most were removed, or after all were replaced by
//! others, is at most twice what a fresh load of them takes.

use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_index::{Index, PmIndex};
use pmindex_record::hash_bytes;

#[derive(Clone, Copy, Debug)]
struct Space {
    /// Bytes in live blocks, of a thousand records.
    live: u64,
    /// Inner nodes.
    inners: u64,
}

/// An index, of which space is measured.
struct Churned<I> {
    index: I,
    pool: Arc<Pool>,
}

impl<I> Churned<I> {
    fn new(create: impl FnOnce(&Arc<Pool>) -> I) -> Self {
        let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
        Self { index: create(&pool), pool }
    }
}

/// Keys in no order, of which the n-th is always the same.
fn word(n: u64) -> u64 {
    hash_bytes(&n.to_le_bytes())
}

fn text(n: u64) -> Vec<u8> {
    format!("{:016x}{}", word(n), &"a tail of any length"[..(n % 20) as usize]).into_bytes()
}

macro_rules! churn {
    ($($name:ident: $index:ty, $key:expr, $value:expr;)*) => { $(
        #[test]
        fn $name() {
            const RECORDS: u64 = 40_000;
            let create = |pool: &Arc<Pool>| <$index>::create(pool, "churned").expect("room");
            let (key, value) = ($key, $value);
            let tree = Churned::new(create);
            let insert = |tree: &$index, n: u64| {
                assert!(tree.try_insert(&key(n), &value(n)).expect("room").is_ok());
            };
            let remove = |n: u64| assert!(tree.index.remove(&key(n)).expect("room").is_some());
            let space = |tree: &Churned<$index>| {
                let stats = tree.index.stats().expect("intact");
                assert_eq!(tree.index.check().expect("intact"), stats.records);
                let blocks = tree.index.blocks().expect("intact").into_iter();
                tree.pool.audit(blocks).expect("no leak");
                let live = tree.pool.live_blocks().expect("intact");
                Space {
                    live: 1000 * live.iter().map(|(_, bytes)| bytes).sum::<u64>() / stats.records,
                    inners: stats.inners,
                }
            };
            let holds = |what: &str, now: Space, fresh: Space| {
                println!("{what}: {now:?}, fresh {fresh:?}");
                assert!(now.live <= 2 * fresh.live, "{what}: {now:?}, fresh {fresh:?}");
                // Some nodes wait for the next rebuild to be free.
                assert!(now.inners <= 2 * fresh.inners + 24, "{what}: {now:?}, fresh {fresh:?}");
            };
            let fresh_of = |records: std::ops::Range<u64>| {
                let tree = Churned::new(create);
                records.for_each(|n| insert(&tree.index, n));
                space(&tree)
            };
            (0..RECORDS).for_each(|n| insert(&tree.index, n));
            let loaded = space(&tree);
            // Most go at random.
            (0..RECORDS / 20 * 19).for_each(remove);
            holds("5 % stay", space(&tree), fresh_of(RECORDS / 20 * 19..RECORDS));
            // Others come.
            (RECORDS..RECORDS / 20 * 39).for_each(|n| insert(&tree.index, n));
            let refilled = space(&tree);
            holds("others", refilled, loaded);
            assert!(4 * refilled.live <= 5 * loaded.live, "{refilled:?}, {loaded:?}");
            // A window: the oldest goes, another comes.
            for n in 0..RECORDS {
                remove(RECORDS / 20 * 19 + n);
                insert(&tree.index, RECORDS / 20 * 39 + n);
            }
            holds("a window", space(&tree), loaded);
            // Neighbours stay together: a range is what remains.
            let all = tree.index.range_bounds(Bound::Unbounded, Bound::Unbounded);
            let mut all: Vec<_> = all.map(|record| record.expect("intact").0).collect();
            all.drain(RECORDS as usize / 2..RECORDS as usize / 2 + 2000);
            for key in &all {
                assert!(tree.index.remove(key).expect("room").is_some());
            }
            holds("a range", space(&tree), fresh_of(0..2000));
        }
    )* };
}

churn! {
    fptree_words: crate::FpTree<u64, u64>, word, |n: u64| n;
    fptree_texts: crate::FpTree<Vec<u8>, Vec<u8>>, text, text;
    nvtree_words: crate::NvTree<u64, u64>, word, |n: u64| n;
    nvtree_texts: crate::NvTree<Vec<u8>, Vec<u8>>, text, text;
    wbtree_words: crate::SharedWbTree<u64, u64>, word, |n: u64| n;
    wbtree_texts: crate::SharedWbTree<Vec<u8>, Vec<u8>>, text, text;
}
