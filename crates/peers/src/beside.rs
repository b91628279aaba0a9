//! What a disk that is written costs a thread that computes: a machine of virtual processors may take them for
//! its disk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pmindex_pibench::Fault;
use pmindex_wal::{Buffer, Disk, FileDisk, SyncMethod};

/// Bytes of a write.
const WRITE: usize = 4 << 20;
/// The writes before the first place is written again.
const PLACES: u64 = 32;
/// Steps of a computation, which takes about as long as an `insert_many` of 100 records.
const STEPS: u64 = 16_000;

/// A thread that computes, alone and beside one that writes to the disk.
pub(crate) struct Beside {
    /// Its rate beside the writes, as a part of the rate alone.
    pub(crate) part: f64,
    /// The most microseconds of 99.9 % of its computations, alone and beside the writes.
    pub(crate) micros: [f64; 2],
    /// MB written a second.
    pub(crate) written: f64,
}

/// Measures a thread that computes and touches no memory, for `time` alone, and for `time` beside a thread that
/// writes to a file in `folder` without the kernel's cache, as a twin's log is written.
pub(crate) fn measure(folder: &Path, time: Duration) -> Result<Beside, Fault> {
    let (rate_alone, alone) = compute(time);
    let path = folder.join("beside");
    FileDisk::create(&std::fs::File::create(&path)?, WRITE as u64 * PLACES)?;
    let disk = FileDisk::open(&path, SyncMethod::Measured)?;
    let stop = AtomicBool::new(false);
    let ((rate, beside), written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> std::io::Result<f64> {
            let (block, started, mut writes) = (Buffer::zeros(WRITE), Instant::now(), 0);
            while !stop.load(Ordering::Relaxed) {
                disk.write_durably(writes % PLACES * WRITE as u64, block.as_slice())?;
                writes += 1;
            }
            Ok((writes * WRITE as u64) as f64 / 1e6 / started.elapsed().as_secs_f64())
        });
        let computed = compute(time);
        stop.store(true, Ordering::Relaxed);
        (computed, writer.join())
    });
    let written = written.map_err(|_| Fault::from("a thread panicked"))??;
    Ok(Beside { part: rate / rate_alone, micros: [alone, beside], written })
}

/// Computes for `time`; returns the computations a second, and the most microseconds of 99.9 % of them.
fn compute(time: Duration) -> (f64, f64) {
    let (started, mut taken, mut x) = (Instant::now(), Vec::new(), 1);
    let mut before = started;
    while before - started < time {
        x = (0..STEPS).fold(x, |x, step| crate::durable::mix(x ^ step));
        let now = Instant::now();
        taken.push((now - before).as_nanos() as f64 / 1e3);
        before = now;
    }
    std::hint::black_box(x);
    taken.sort_unstable_by(f64::total_cmp);
    let at = (taken.len() as f64 * 0.999) as usize;
    (taken.len() as f64 / (before - started).as_secs_f64(), taken[at.min(taken.len() - 1)])
}
