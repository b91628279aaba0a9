//! Logical threads: which one runs, and the control that stops it.

use core::cell::{Cell, RefCell};
use std::sync::Arc;

/// Decides at each yield point whether another logical thread runs next.
pub trait ThreadControl: Send + Sync {
    /// Called before each access to a cell and each attempt to take a lock.
    fn yield_point(&self, thread: u16);
    /// Called before each fence, and where what an operation held passes to others: a slot, a block, a chain.
    fn handover_point(&self, thread: u16) {
        self.yield_point(thread);
    }
    /// Called in a wait loop: the thread cannot go on before another one did something.
    fn spin(&self, thread: u16);
}

thread_local! {
    static THREAD: Cell<u16> = const { Cell::new(0) };
    static CONTROL: RefCell<Option<Arc<dyn ThreadControl>>> = const { RefCell::new(None) };
}

/// Runs `body` as logical thread `thread`, under the control of `control`.
pub fn run_as<R>(thread: u16, control: Arc<dyn ThreadControl>, body: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            THREAD.set(0);
            CONTROL.with_borrow_mut(|c| *c = None);
        }
    }
    THREAD.set(thread);
    CONTROL.with_borrow_mut(|c| *c = Some(control));
    let _leave = Leave;
    body()
}

/// Runs `body` as logical thread `thread`, without any other beside it, also within [`run_as`]: the fence of one
/// thread does not make another's flushes durable.
pub fn alone_as<R>(thread: u16, body: impl FnOnce() -> R) -> R {
    struct Leave(u16, Option<Arc<dyn ThreadControl>>);
    impl Drop for Leave {
        fn drop(&mut self) {
            THREAD.set(self.0);
            CONTROL.set(self.1.take());
        }
    }
    let _leave = Leave(THREAD.replace(thread), CONTROL.take());
    body()
}

/// Returns the logical thread that is running; 0 outside [`run_as`].
pub(super) fn current() -> u16 {
    THREAD.get()
}

/// Offers the processor to another thread, if one decides about this one ([`run_as`]).
pub fn yield_point() {
    CONTROL.with_borrow(|c| {
        if let Some(control) = c {
            control.yield_point(THREAD.get());
        }
    });
}

/// Offers the processor to another thread, where what an operation held passes to others.
pub(super) fn handover_point() {
    CONTROL.with_borrow(|c| {
        if let Some(control) = c {
            control.handover_point(THREAD.get());
        }
    });
}

/// Waits a turn; returns `false` if no control was given.
pub(super) fn spin() -> bool {
    CONTROL.with_borrow(|c| {
        if let Some(control) = c {
            control.spin(THREAD.get());
        }
        c.is_some()
    })
}
