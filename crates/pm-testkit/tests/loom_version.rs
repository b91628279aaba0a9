//! Checks the protocol of the version lock with a model checker: every interleaving of two or three threads,
//! and every value that a relaxed load may return.
//!
//! The source file of the protocol is compiled here with loom's atomics. Durability is not checked here, but
//! by the crash simulator.

/// The module that the protocol imports as `super::primitive`.
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

    /// Tries once to add 1 to both words, with stores of `order`, after a release fence if `fenced`.
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

    /// Tries once to read both words.
    fn try_read(&self, order: Ordering) -> Option<[u64; 2]> {
        let version = self.lock.version()?;
        let read = [self.data[0].load(order), self.data[1].load(order)];
        self.lock.is_still(version).then_some(read)
    }
}

/// One writer and one reader: a read that validates is consistent.
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

/// A node of a tree whose memory is zeroed and becomes a node again, and the lock of its parent.
struct Reused {
    above: VersionWord,
    /// The child of the parent; 0: none.
    child: AtomicU64,
    node: Node,
}

impl Reused {
    /// Makes a parent whose child is the node, with data 5 and a lock of this version.
    fn new(version: u64) -> Arc<Self> {
        let node = Node {
            lock: VersionWord(AtomicU64::new(version)),
            data: [AtomicU64::new(5), AtomicU64::new(5)],
        };
        let above = VersionWord(AtomicU64::new(0));
        Arc::new(Self { above, child: AtomicU64::new(1), node })
    }

    /// Changes the parent's child under the parent's lock, with or without the node's own.
    fn change(&self, child: u64, node: bool) {
        let version = self.above.version().expect("nobody else locks");
        assert!(self.above.try_lock(version));
        let own = node.then(|| {
            let version = self.node.lock.version().expect("nobody else locks");
            assert!(self.node.lock.try_lock(version));
            version
        });
        self.child.store(child, Release);
        if let Some(version) = own {
            self.node.lock.unlock(version | 1);
        }
        self.above.unlock(version | 1);
    }

    /// Unlinks the node, gives its memory back, takes it again for other data and links it.
    fn reuse(&self, floor: impl Fn(u64) -> u64) {
        self.change(0, true);
        let floor = floor(self.node.lock.above()); // F1
        // F2: the system zeroes pages in any order, but after all earlier stores to them.
        fence(Release);
        self.node.data[0].store(0, Relaxed);
        self.node.lock.0.store(0, Relaxed);
        self.node.data[1].store(0, Relaxed);
        self.node.lock.begin_at(floor); // F3
        for word in &self.node.data {
            word.store(7, Release); // F4
        }
        self.change(1, false);
    }

    /// Tries once to read the node's data, starting at the parent.
    fn try_read(&self) -> Option<[u64; 2]> {
        let version = self.above.version()?;
        if self.child.load(Acquire) == 0 {
            return None;
        }
        let own = self.node.lock.version()?;
        if !self.above.is_still(version) {
            return None;
        }
        let read = [self.node.data[0].load(Acquire), self.node.data[1].load(Acquire)];
        self.node.lock.is_still(own).then_some(read)
    }
}

/// Reads beside a node that is freed and reused: a read that validates is of one use.
fn reuse_is_seen(version: u64, floor: fn(u64) -> u64) {
    loom::model(move || {
        let tree = Reused::new(version);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || tree.reuse(floor))
        };
        if let Some(read) = tree.try_read() {
            assert!(matches!(read, [5, 5] | [7, 7]), "a read of what is gone was validated");
        }
        writer.join().expect("the writer ends");
        assert_eq!(tree.try_read(), Some([7, 7]));
    });
}

#[test]
fn memory_that_goes_and_comes_back_is_never_taken_for_what_it_was() {
    reuse_is_seen(2, |above| above);
}

#[test]
#[should_panic(expected = "a read of what is gone was validated")]
fn without_the_floor_memory_that_comes_back_would_be_taken_for_what_it_was() {
    reuse_is_seen(2, |_| 2);
}
