//! BzTree in its volatile mode: the same code on a volatile pool.

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_testkit::conformance::{Bed, Verdict};
use pmindex_trees::BzTree;

/// Pools in anonymous memory where nothing is flushed.
#[derive(Debug)]
struct Volatile(Arc<Pool<Mapped>>);

impl Bed for Volatile {
    type Medium = Mapped;

    fn new(bytes: u64) -> Verdict<Self> {
        Ok(Self(Arc::new(Pool::volatile(usize::try_from(bytes).unwrap_or(usize::MAX))?)))
    }

    fn pool(&self) -> &Arc<Pool<Mapped>> {
        &self.0
    }

    fn cycle(&mut self, _clean: bool) -> Verdict {
        Ok(())
    }
}

type Tiny<K, V> = BzTree<K, V, Mapped, 4, 3>;

pmindex_testkit::conformance! {
    volatile_words: Tiny<u64, u64>, keys u64, values u64, on Volatile;
    volatile_bytes: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>, on Volatile;
    volatile_full: BzTree<u64, u64>, keys u64, values u64, on Volatile;
}
