//! Checks the counters of a tally with a model checker: every interleaving of a writer and a reader, and every value
//! that a load may return.
//!
//! The source files of the counter and of the version lock are compiled here with loom's atomics.

/// The module that both import as `super::primitive`.
mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU64, fence};
}

#[path = "../../pm-record/src/count.rs"]
mod count;
#[expect(dead_code, reason = "of the lock this takes a part")]
#[path = "../../pm-core/src/sync/protocol.rs"]
mod protocol;

use std::sync::atomic::Ordering::{Relaxed, Release};

use count::Count;
use loom::sync::Arc;
use loom::thread;
use primitive::AtomicU64;
use protocol::VersionWord;

/// A node: its lock, its number of records, and its counter.
struct Node {
    lock: VersionWord,
    records: AtomicU64,
    count: Count,
}

impl Node {
    /// Adds records under the lock.
    fn insert(&self, change: u64) {
        let Some(version) = self.lock.version() else { return };
        if self.lock.try_lock(version) {
            self.records.store(self.records.load(Relaxed).wrapping_add(change), Release);
            self.count.add(change);
            self.lock.unlock(version | 1);
        }
    }

    /// Counts the records, unless a writer has the lock.
    fn recount(&self) -> Option<u64> {
        let version = self.lock.version()?;
        let records = self.records.load(Relaxed);
        self.lock.is_still(version).then_some(records)
    }
}

/// Beside writers, a reader keeps a base only if it is that of what these gain.
fn the_base_is_right(changes: &'static [u64]) {
    loom::model(move || {
        let node = Arc::new(Node {
            lock: VersionWord(AtomicU64::new(0)),
            records: AtomicU64::new(5),
            count: Count::default(),
        });
        // The reader is the second thread: a writer's own loads would hide from loom that others had loaded before.
        let reader = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                // As the tally does it.
                let before = node.count.load();
                let records = node.recount()?;
                let unchanged = node.count.load().0 == before.0;
                unchanged.then(|| records.wrapping_sub(before.1))
            })
        };
        for &change in changes {
            node.insert(change);
        }
        let base = reader.join().expect("the reader ends");
        if let Some(base) = base {
            assert_eq!(base, 5, "the records before");
            assert_eq!(base.wrapping_add(node.count.load().1), node.records.load(Relaxed));
        }
    });
}

#[test]
fn a_base_counted_beside_a_writer_is_right() {
    the_base_is_right(&[1]);
    the_base_is_right(&[u64::MAX]);
    the_base_is_right(&[1, 1]);
}
