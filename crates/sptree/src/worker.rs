//! Background work on a thread of its own.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};

use crate::tree::SpTree;

/// The sleep of a worker after work: long enough for a dozen buffers to fill, whose absorptions then share
/// their fences.
const NAP: Duration = Duration::from_micros(100);
/// The longest sleep of a worker without work.
const SLEEP: Duration = Duration::from_millis(10);

/// Does the background work of an index, while it lives: writers leave it what can wait.
///
/// Without a worker, writers do everything themselves. With one, a write through a buffer costs one line
/// and one fence; the worker absorbs full buffers, splits leaves after that, sweeps, makes checkpoints of
/// the log, and inserts the entries of the backup. No writer waits for a worker: one that finds too much
/// undone does it. Several workers are allowed.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_sptree::BufferedSpTree; }
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use pmindex::{BufferedSpTree, Pool};
///
/// # fn main() -> Result<(), pmindex_index::IndexError> {
/// let pool = Arc::new(Pool::emulated(4 << 20)?);
/// let tree = BufferedSpTree::<u64, u64>::create(&pool, "squares")?;
/// let stop = AtomicBool::new(false);
/// std::thread::scope(|threads| {
///     let worker = threads.spawn(|| tree.worker().run(&stop));
///     let written = (0..10_000).try_for_each(|n| tree.insert(&n, &(n * n)).map(drop));
///     stop.store(true, Ordering::Release);
///     worker.join().expect("it does not panic")?;
///     written
/// })?;
/// assert_eq!(tree.len()?, 10_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the work is done by `run` or `step`"]
pub struct Worker<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Makes a worker, which takes over the background work. See [`Worker`].
    pub fn worker(&self) -> Worker<'_, K, V, M, LEAF, BUFFER> {
        if let Some(buffers) = self.buffers() {
            buffers.add_worker(self.pm());
        }
        Worker { tree: self }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Worker<'_, K, V, M, LEAF, BUFFER>
{
    /// Works until `stop` is set and no work is left. Reads `stop` every few milliseconds, and when the
    /// thread is [unparked](std::thread::Thread::unpark). Leaves to writers what a full pool has no room for.
    ///
    /// # Errors
    /// Those of [`step`](Self::step); the first ends it, and writers do the work themselves then.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        let mut pause = NAP;
        loop {
            let worked = match self.step() {
                Err(IndexError::Pool(error)) if error.is_full() => false,
                other => other?,
            };
            let stopping = stop.load(Acquire);
            if stopping && !worked {
                return Ok(());
            }
            pause = if worked { NAP } else { (2 * pause).min(SLEEP) };
            if !(stopping || worked && self.tree.needs_worker()) {
                std::thread::park_timeout(pause);
            }
        }
    }

    /// Does a bounded part of the work: see [`SpTree::step`]. Returns whether there was any.
    ///
    /// # Errors
    /// Those of [`SpTree::step`].
    pub fn step(&self) -> Result<bool, IndexError> {
        self.tree.step()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Drop
    for Worker<'_, K, V, M, LEAF, BUFFER>
{
    fn drop(&mut self) {
        if let Some(buffers) = self.tree.buffers() {
            buffers.remove_worker(self.tree.pm());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Release;

    use pmindex_core::{Mapped, PmError, Pool};

    use super::*;

    type Tree<M> = SpTree<u64, u64, M, 8, 4>;

    /// Keys in an order that is not theirs.
    fn scattered(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Buffers with something that their Bnodes do not have.
    fn unabsorbed<M: Medium>(tree: &Tree<M>) -> usize {
        tree.buffers().expect("some").unabsorbed().count()
    }

    /// The write that fills a buffer costs a line and a fence, as any write; the worker absorbs it.
    #[test]
    fn a_writer_leaves_a_full_buffer_to_the_worker() {
        let pool = Arc::new(Pool::counting(8 << 20).expect("memory"));
        let tree = Tree::<Mapped>::create(&pool, "t").expect("room");
        let worker = tree.worker();
        assert!(tree.try_insert(&0, &0).expect("room").is_ok(), "makes a segment");
        pool.pm().counter().expect("it counts").reset();
        for key in 1..4u64 {
            assert!(tree.try_insert(&key, &key).expect("room").is_ok());
        }
        let counts = pool.pm().counter().expect("it counts").counts();
        assert_eq!((counts.lines, counts.nt_lines, counts.fences), (3, 3, 3));
        assert_eq!(unabsorbed(&tree), 1);
        assert!(worker.step().expect("room"));
        assert_eq!(unabsorbed(&tree), 0);
        assert_eq!(pool.pm().counter().expect("it counts").counts().fences, 3 + 2);
        assert!(!worker.step().expect("room"));
        drop(worker);
        // And without one, absorbs it with the record that fills it.
        for key in 4..7u64 {
            assert!(tree.try_insert(&key, &key).expect("room").is_ok());
        }
        pool.pm().counter().expect("it counts").reset();
        assert!(tree.try_insert(&7, &7).expect("room").is_ok());
        assert_eq!(pool.pm().counter().expect("it counts").counts().fences, 2);
        assert_eq!(tree.check().expect("sound"), 8);
    }

    /// So does a batch.
    #[test]
    fn a_batch_leaves_full_buffers_to_the_worker() {
        let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
        let tree = Tree::<Mapped>::create(&pool, "t").expect("room");
        let worker = tree.worker();
        let waiting = || tree.buffers().expect("some").waiting(tree.pm());
        assert_eq!(tree.try_insert_many(&[(0, 0), (1, 1), (2, 2)]).inserted, [true; 3]);
        assert_eq!((waiting(), unabsorbed(&tree)), (0, 1), "there is room for one more");
        assert_eq!(tree.try_insert_many(&[(3, 3)]).inserted, [true]);
        assert_eq!((waiting(), unabsorbed(&tree)), (1, 1));
        assert!(worker.step().expect("room"));
        assert_eq!((waiting(), unabsorbed(&tree)), (0, 0));
        assert_eq!(tree.check().expect("sound"), 4);
    }

    /// A worker that does nothing stops no writer: one that finds a buffer without room absorbs it.
    #[test]
    fn no_writer_waits_for_a_worker() {
        let pool = Arc::new(Pool::emulated(16 << 20).expect("memory"));
        let tree = Tree::<Mapped>::create(&pool, "t").expect("room");
        let worker = tree.worker();
        for key in scattered(30_000) {
            assert!(tree.try_insert(&key, &!key).expect("room").is_ok());
        }
        let buffers = tree.buffers().expect("some");
        assert!(buffers.waiting(tree.pm()) > 1000 && !buffers.has_worker(), "it is far behind");
        while worker.step().expect("room") {}
        assert!(buffers.waiting(tree.pm()) == 0 && buffers.has_worker());
        for key in scattered(30_000) {
            assert_eq!(tree.remove(&key).expect("intact"), Some(!key));
        }
        while worker.step().expect("room") {}
        assert_eq!(tree.check().expect("sound"), 0);
        tree.try_insert(&1, &1).expect("room").expect("done");
        drop(worker);
        assert!(!buffers.has_worker());
    }

    /// Bnodes are as full by ascending keys as without a worker, which could have split them in half.
    #[test]
    fn ascending_keys_fill_bnodes() {
        let leaves = |assisted: bool| {
            let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
            let tree = Tree::<Mapped>::create(&pool, "t").expect("room");
            let worker = assisted.then(|| tree.worker());
            for key in 0..800u64 {
                assert!(tree.try_insert(&key, &key).expect("room").is_ok());
                if let Some(worker) = &worker {
                    worker.step().expect("room");
                }
            }
            tree.stats().expect("sound").leaves
        };
        let (with, without) = (leaves(true), leaves(false));
        assert!(with <= without && without < 2 * 800 / 8, "{with}, {without} without");
    }

    /// A full pool ends no worker: when there is room again, it goes on.
    #[test]
    fn a_worker_outlasts_a_full_pool() {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let tree = Tree::<Mapped>::create(&pool, "t").expect("room");
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let worker = threads.spawn(|| tree.worker().run(&stop));
            let open = || tree.buffers().expect("some").has_worker();
            while !open() {
                std::thread::yield_now();
            }
            let mut keys = Vec::new();
            for key in scattered(1 << 20) {
                match tree.try_insert(&key, &key) {
                    Ok(new) => assert!(new.is_ok()),
                    Err(IndexError::Pool(PmError::Full { .. })) => break,
                    Err(error) => panic!("{error}"),
                }
                keys.push(key);
            }
            assert!(keys.len() > 1000, "{}", keys.len());
            for key in &keys {
                assert_eq!(tree.remove(key).expect("intact"), Some(*key));
            }
            assert!(open() && !worker.is_finished());
            stop.store(true, Release);
            worker.join().expect("no panic").expect("a full pool is no error of it");
        });
        assert_eq!(tree.check().expect("sound"), 0);
    }

    /// Writers, and a worker beside them; afterwards nothing is left to be done, and after a crash
    /// nothing is lost.
    #[test]
    fn writers_and_a_worker_race() {
        const EACH: u64 = 20_000;
        let pool = Arc::new(Pool::emulated(32 << 20).expect("memory"));
        let tree = Tree::<Mapped>::create(&pool, "t").expect("room");
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let workers = [(); 2].map(|()| threads.spawn(|| tree.worker().run(&stop)));
            let writers = [0, 1].map(|half| {
                let tree = &tree;
                threads.spawn(move || {
                    for (n, key) in scattered(2 * EACH).enumerate().skip(half).step_by(2) {
                        assert!(tree.try_insert(&key, &0).expect("room").is_ok());
                        assert!(tree.update(&key, &key).expect("room").is_ok());
                        if n % 5 == 0 {
                            assert_eq!(tree.remove(&key).expect("intact"), Some(key));
                        }
                    }
                })
            });
            for writer in writers {
                writer.join().expect("no panic");
            }
            stop.store(true, Release);
            for worker in workers {
                worker.join().expect("no panic").expect("room");
            }
        });
        let check = |tree: &Tree<Mapped>| {
            assert_eq!(tree.check().expect("sound"), 2 * EACH / 5 * 4);
            for (n, key) in scattered(2 * EACH).enumerate() {
                let there = (n % 5 != 0).then_some(key);
                assert_eq!(tree.get(&key).expect("intact"), there, "{n}");
            }
        };
        check(&tree);
        drop(tree);
        check(&Tree::<Mapped>::open(&pool, "t").expect("intact"));
    }
}
