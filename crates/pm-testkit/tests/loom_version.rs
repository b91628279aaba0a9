//! The version lock's protocol under a model checker: every interleaving of two or three threads,
//! every value a relaxed load may return.
//!
//! The protocol's source file is compiled here over loom's atomics. Durability is no matter of this
//! test: the crash simulator's is.

/// What the protocol finds as `super::primitive`.
mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU64, fence};
}

#[path = "../../pm-core/src/sync/protocol.rs"]
mod protocol;

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::thread;
use primitive::{AtomicU64, fence};
use protocol::VersionWord;

/// A lock and two words that writers keep equal.
struct Node {
    lock: VersionWord,
    data: [AtomicU64; 2],
}

impl Node {
    fn new() -> Arc<Self> {
        let data = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self { lock: VersionWord(AtomicU64::new(0)), data })
    }

    /// One attempt to add 1 to both words, with stores of `order` behind a release fence or not.
    fn try_add(&self, order: Ordering, fenced: bool) -> bool {
        let Some(version) = self.lock.version() else { return false };
        if !self.lock.try_lock(version) {
            return false;
        }
        let next = self.data[0].load(Relaxed) + 1;
        if fenced {
            fence(Release);
        }
        for word in &self.data {
            word.store(next, order);
        }
        self.lock.unlock(version | 1);
        true
    }

    /// One attempt to read both words.
    fn try_read(&self, order: Ordering) -> Option<[u64; 2]> {
        let version = self.lock.version()?;
        let read = [self.data[0].load(order), self.data[1].load(order)];
        self.lock.is_still(version).then_some(read)
    }
}

/// One writer, one reader: whatever validates is whole.
fn reads_are_whole(store: Ordering, fenced: bool, load: Ordering) {
    loom::model(move || {
        let node = Node::new();
        let writer = {
            let node = Arc::clone(&node);
            thread::spawn(move || assert!(node.try_add(store, fenced), "nobody else locks"))
        };
        if let Some([a, b]) = node.try_read(load) {
            assert_eq!(a, b, "a torn read was validated");
        }
        writer.join().expect("the writer ends");
        assert_eq!(node.try_read(load), Some([1, 1]));
    });
}

#[test]
fn single_stores_are_never_read_torn() {
    reads_are_whole(Release, false, Acquire);
}

#[test]
fn bulk_writes_are_never_read_torn_by_bulk_reads() {
    reads_are_whole(Relaxed, true, Relaxed);
}

#[test]
#[should_panic(expected = "a torn read was validated")]
fn without_the_release_fence_a_bulk_write_could_be_read_torn() {
    reads_are_whole(Relaxed, false, Relaxed);
}

#[test]
fn writers_exclude_each_other_and_see_each_others_data() {
    loom::model(|| {
        let node = Node::new();
        let add = |node: &Arc<Node>| {
            let node = Arc::clone(node);
            thread::spawn(move || u64::from(node.try_add(Relaxed, true)))
        };
        let writers = [add(&node), add(&node)];
        let added: u64 = writers.map(|w| w.join().expect("a writer ends")).iter().sum();
        assert!(added >= 1, "one of two succeeds");
        assert_eq!(node.try_read(Relaxed), Some([added; 2]));
    });
}
