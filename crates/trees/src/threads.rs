//! Work that opening an index shares among threads.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

/// The maximum number of threads that open an index.
const MOST: usize = 8;
/// Fewer parts are no work for several threads.
const FEW: usize = 16;

/// Returns the number of threads for opening, if there are `parts` parts of about a thousand leaves each.
pub(crate) fn threads_for(parts: usize) -> usize {
    if parts < FEW {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, |threads| threads.get().min(MOST))
}

/// Does job 0 to job `count - 1` on this thread and on up to `threads - 1` others, which help as
/// far as the system lets them; results in order. A job's panic is this function's.
#[cfg(any(feature = "fptree", test))]
pub(crate) fn on_threads<R: Send>(
    threads: usize,
    count: usize,
    job: impl Fn(usize) -> R + Sync,
) -> Vec<R> {
    on_threads_with(threads, count, || (), |(), at| job(at))
}

/// As [`on_threads`], with room that each thread makes for itself and keeps from job to job: memory
/// that is mapped and unmapped for each job would keep the other threads waiting.
pub(crate) fn on_threads_with<S, R: Send>(
    threads: usize,
    count: usize,
    room: impl Fn() -> S + Sync,
    job: impl Fn(&mut S, usize) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 || count <= 1 {
        let mut room = room();
        return (0..count).map(|at| job(&mut room, at)).collect();
    }
    let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut room = room();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(result) = results.get(at) else { return };
            *result.lock() = Some(job(&mut room, at));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // Without another thread this one does all of it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    results.into_iter().filter_map(Mutex::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_and_results_are_in_order() {
        for threads in [0, 1, 2, 5] {
            for count in [0, 1, 2, 40] {
                let done = AtomicUsize::new(0);
                let results = on_threads(threads, count, |at| {
                    done.fetch_add(1, Relaxed);
                    3 * at
                });
                assert_eq!(results, (0..count).map(|at| 3 * at).collect::<Vec<_>>());
                assert_eq!(done.into_inner(), count);
            }
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_elsewhere_is_not_lost() {
        let main = std::thread::current().id();
        let panics = std::sync::Barrier::new(2);
        on_threads(2, 2, |_| {
            panics.wait(); // one job each
            assert_eq!(std::thread::current().id(), main, "a job panics");
        });
    }
}
