//! Background work on a thread of its own.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use pmindex_core::Medium;
use pmindex_index::{IndexError, Key, Value};

use crate::tree::SpTree;

/// How long a worker sleeps when it has done what there was: so long that a dozen buffers fill
/// meanwhile, whose absorptions share their fences.
const NAP: Duration = Duration::from_micros(100);
/// How long it sleeps when there was nothing for a while.
const SLEEP: Duration = Duration::from_millis(10);

/// Takes the background work of an index over, while it lives: writers leave it what can wait.
///
/// Without one, writers do everything themselves. With one, a write through a buffer costs one line and
/// one fence, and no more; full buffers, splits after them, the sweep and checkpoints of the log, and
/// the entries of the backup are the worker's. It is never waited for: a writer that finds too much
/// undone does it. Several are allowed.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use pmindex_core::Pool;
/// use pmindex_sptree::BufferedSpTree;
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
    /// Takes the background work over. See [`Worker`].
    pub fn worker(&self) -> Worker<'_, K, V, M, LEAF, BUFFER> {
        if let Some(buffering) = self.buffering() {
            buffering.handoff.begin(self.pm());
        }
        Worker { tree: self }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Worker<'_, K, V, M, LEAF, BUFFER>
{
    /// Does what there is to do, and what comes, until `stop`, which is looked at every few
    /// milliseconds.
    ///
    /// # Errors
    /// Those of [`step`](Self::step), at the first of which it ends: writers do the work themselves then.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        let mut pause = NAP;
        while !stop.load(Acquire) {
            pause = if self.step()? { NAP } else { (2 * pause).min(SLEEP) };
            if !self.tree.has_much_to_do() {
                std::thread::sleep(pause);
            }
        }
        Ok(())
    }

    /// A bounded part of the work: see [`SpTree::step`]. Returns whether there was any.
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
        if let Some(buffering) = self.tree.buffering() {
            buffering.handoff.end(self.tree.pm());
        }
    }
}
