//! Starting threads of a pool's own.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread; an error if the system refuses it.
pub(super) fn start(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    #[cfg(test)]
    refused::check()?;
    Builder::new().name(name.into()).spawn(work)
}

/// Refuses threads that a test's thread starts.
#[cfg(test)]
pub(crate) mod refused {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        /// The number of threads that are still granted; `None` for any number.
        pub(crate) static GRANTED: Cell<Option<u32>> = const { Cell::new(None) };
    }

    pub(super) fn check() -> io::Result<()> {
        match GRANTED.get() {
            None => Ok(()),
            Some(0) => Err(io::ErrorKind::WouldBlock.into()),
            Some(more) => {
                GRANTED.set(Some(more - 1));
                Ok(())
            }
        }
    }
}
