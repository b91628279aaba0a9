//! Words that a scan copies a leaf to, which its thread uses again for the next scan.

use std::cell::Cell;

thread_local! {
    /// Those of the last scan of this thread.
    static LAST: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// Room for a private copy of a leaf: taken from the thread when it is first needed, and given back.
#[derive(Debug, Default)]
pub struct Scratch(Vec<u64>);

impl Scratch {
    /// The vector, with whatever is in it.
    #[inline]
    pub fn words(&mut self) -> &mut Vec<u64> {
        if self.0.capacity() == 0 {
            self.0 = LAST.try_with(Cell::take).unwrap_or_default();
        }
        &mut self.0
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > 0 {
            // When the thread ends there is nothing to keep it for.
            let _ = LAST.try_with(|last| last.set(std::mem::take(&mut self.0)));
        }
    }
}
