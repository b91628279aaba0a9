//! The words that a scan copies a leaf to, which its thread reuses for the next scan.

use std::cell::Cell;

thread_local! {
    /// The words of this thread's last scan.
    static LAST: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// Memory for a private copy of a leaf: taken from the thread when it is first needed, and given back.
#[derive(Debug, Default)]
pub struct Scratch(Vec<u64>);

impl Scratch {
    /// Returns the vector, with its present contents.
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
            // A thread that is ending needs no memory for later scans.
            let _ = LAST.try_with(|last| last.set(std::mem::take(&mut self.0)));
        }
    }
}
