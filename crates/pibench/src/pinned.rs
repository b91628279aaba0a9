//! Keeps a thread on one core for a while.

use std::marker::PhantomData;
use std::sync::OnceLock;

use core_affinity::CoreId;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the thread that created it on one core, until it is dropped.
///
/// Then the thread may again run on the cores where it could run before. Otherwise the threads that it
/// starts later would all share its core.
#[derive(Debug)]
#[must_use]
pub struct Pinned {
    #[cfg(target_os = "linux")]
    before: Option<CpuSet>,
    /// Must be dropped by the thread that created it.
    thread: PhantomData<*const ()>,
}

/// Returns the cores on which the program's first pinned thread could run before.
fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

impl Pinned {
    /// Returns `true` if a thread of this number can have a core of its own.
    #[must_use]
    pub fn is_possible(number: usize) -> bool {
        number < cores().len()
    }

    /// Pins the thread to a core; the number wraps around the cores on which the program's first pinned
    /// thread could run before. If the system refuses, figures are only noisier.
    pub fn to_core(number: usize) -> Self {
        let pinned = Self {
            #[cfg(target_os = "linux")]
            before: sched_getaffinity(None).ok(),
            thread: PhantomData,
        };
        // Not those of this thread: a thread that was started by a pinned one has only one.
        let cores = cores();
        if let Some(core) = cores.get(number % cores.len().max(1)) {
            core_affinity::set_for_current(*core);
        }
        pinned
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(None).expect("Linux tells");
        (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
    }

    #[test]
    fn a_thread_that_was_pinned_leaves_later_ones_all_allowed() {
        let before = allowed();
        for (number, core) in before.iter().enumerate() {
            let pinned = Pinned::to_core(number);
            assert_eq!(allowed(), [*core]);
            drop(pinned);
            assert_eq!(allowed(), before);
        }
        let round = Pinned::to_core(before.len());
        assert_eq!(allowed(), before[..1]);
        drop(round);
        let first = Pinned::to_core(0);
        let beside = std::thread::spawn(|| {
            let _pinned = Pinned::to_core(1);
            allowed()
        });
        assert_eq!(beside.join().expect("it does not panic"), [before[1 % before.len()]]);
        drop(first);
        let of_another = std::thread::spawn(allowed).join().expect("it does not panic");
        assert_eq!(of_another, before);
    }
}
