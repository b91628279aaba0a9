//! Reference counts that threads do not share.
//!
//! A transaction keeps its store and its maps alive. With one count for each, every transaction would write
//! it twice, and its line would move between threads. So each lane of threads has its own count.

use std::ops::Deref;
use std::sync::Arc;

use crate::gate::lane_of_thread;

/// The number of counts; threads share one only if there are more threads.
const COUNTS: usize = 16;

/// A count, on lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Counted<T>(Arc<T>);

/// Keeps its target alive.
#[derive(Debug)]
pub(crate) struct Handle<T>(Arc<Counted<T>>);

/// A target that handles keep alive, and the source of these handles.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    whole: Arc<T>,
    counts: Box<[Arc<Counted<T>>]>,
}

impl<T> Handle<T> {
    /// Makes one with a count of its own.
    pub(crate) fn new(whole: &Arc<T>) -> Self {
        Self(Arc::new(Counted(Arc::clone(whole))))
    }

    pub(crate) fn whole(&self) -> &Arc<T> {
        &self.0.0
    }
}

impl<T> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Handles<T> {
    pub(crate) fn new(whole: Arc<T>) -> Self {
        let counts = (0..COUNTS).map(|_| Arc::new(Counted(Arc::clone(&whole)))).collect();
        Self { whole, counts }
    }

    pub(crate) fn whole(&self) -> &Arc<T> {
        &self.whole
    }

    /// Returns a handle, counted by this thread's lane.
    #[inline]
    pub(crate) fn handle(&self) -> Handle<T> {
        Handle(Arc::clone(&self.counts[lane_of_thread() % COUNTS]))
    }

    /// Returns the target, if no handle keeps it alive.
    pub(crate) fn into_inner(self) -> Option<T> {
        drop(self.counts);
        Arc::into_inner(self.whole)
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T> Deref for Handles<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.whole
    }
}
