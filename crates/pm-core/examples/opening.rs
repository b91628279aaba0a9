//! How fast a pool is opened after a power failure, beside how fast the disk reads.
//!
//! ```text
//! cargo run --release -p pmindex-core --example opening -- [DIR [MIB]]
//! ```
//!
//! DIR lies on a disk (default: the build's folder). A pool in memory with a twin there is filled, so that its
//! base holds half of it and its log the other half as far as it has room; then the memory is lost. A pool
//! with a journal is filled until its journal is nearly half full, as far as it ever is. What each has on the
//! disk is put out of the system's caches before it is opened. The yardstick reads the same file, in pieces of
//! 1 MiB, past the caches' contents too. An opening that replays a journal reads all of its file, and writes what was
//! in use to the pool's file and synchronises that: so does its yardstick, with a file of that size.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pmindex_core::{Medium, Pool, PoolOptions};
use rustix::fs::{Advice, fadvise};

type Fault = Box<dyn std::error::Error>;

/// Puts a file out of the system's caches.
fn forget(path: &Path) -> Result<(), Fault> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Reads so many bytes of a file in pieces of 1 MiB.
fn read(path: &Path, bytes: u64) -> Result<Duration, Fault> {
    let (mut file, mut piece) = (File::open(path)?, vec![0; 1 << 20]);
    let (started, mut left) = (Instant::now(), bytes);
    while left > 0 {
        let wanted = piece.len().min(usize::try_from(left)?);
        match file.read(&mut piece[..wanted])? {
            0 => break,
            count => left -= count as u64,
        }
    }
    Ok(started.elapsed())
}

/// Overwrites so many bytes of a file, and synchronises it.
fn write(path: &Path, bytes: u64) -> Result<Duration, Fault> {
    let (mut took, piece) = (Duration::ZERO, vec![1; 1 << 20]);
    // The first time they are allocated.
    for _ in 0..2 {
        let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
        let started = Instant::now();
        for _ in 0..bytes.div_ceil(1 << 20) {
            file.write_all(&piece)?;
        }
        file.sync_data()?;
        took = started.elapsed();
    }
    fs::remove_file(path)?;
    Ok(took)
}

/// Stores to so many bytes from `first` on, durably, `fence` of them together.
fn fill(pool: &Pool, first: u64, bytes: u64, fence: u64) -> Result<(), Fault> {
    let mut random = first | 1;
    for start in (first..first + bytes).step_by(usize::try_from(fence)?) {
        let words = pool.words(start, usize::try_from(fence / 8)?)?;
        for word in words {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            pool.pm().store(word, random);
        }
        let flushed = pool.pm().flush_words(words);
        pool.pm().fence(flushed)?;
    }
    Ok(())
}

/// Opens, and prints how fast; whether it is half as fast as reading `bytes` bytes of the file, and what else the
/// disk has to do in the time `besides`.
#[expect(clippy::cast_precision_loss, reason = "a rate is printed with few digits")]
fn compare(
    what: &str,
    file: &Path,
    bytes: u64,
    besides: Duration,
    open: impl Fn() -> Result<(), Fault>,
) -> Result<bool, Fault> {
    forget(file)?;
    let reading = read(file, bytes)?;
    forget(file)?;
    let started = Instant::now();
    open()?;
    let opening = started.elapsed();
    let speed = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    let share = (reading + besides).as_secs_f64() / opening.as_secs_f64();
    let (reading, opening) = (speed(reading), speed(opening));
    let (mib, besides) = (bytes >> 20, besides.as_millis());
    println!(
        "{what}: {mib} MiB, read at {reading:.0} MB/s, {besides} ms besides, opened at {opening:.0} MB/s, \
         {share:.2}"
    );
    Ok(share >= 0.5)
}

fn periodic(dir: &Path, mib: u64) -> Result<bool, Fault> {
    let memory = PathBuf::from(format!("/dev/shm/pmindex-opening-{}", std::process::id()));
    let twin = dir.join("opening.twin");
    let _ = fs::remove_file(&twin); // of a run that was cut short
    let options = PoolOptions::new().size(mib << 20).twin(&twin);
    let pool = Pool::create(&memory, &options)?;
    let (start, half) = (1 << 20, (mib << 19) - (2 << 20));
    fill(&pool, start, half, 4096)?;
    pool.checkpoint()?;
    let capacity = pool.twin().map_or(0, |twin| twin.capacity);
    fill(&pool, start + half, half.min(capacity / 5 * 2), 4096)?;
    pool.sync()?;
    let log = pool.twin().map_or(0, |twin| twin.used);
    pool.kill();
    fs::remove_file(&memory)?;
    // The base, and what of the log is read.
    let bytes = (mib << 20) + log;
    let opens = compare("Periodic", &twin, bytes, Duration::ZERO, || {
        Pool::open(&memory, &options)?.kill();
        Ok(fs::remove_file(&memory)?)
    });
    fs::remove_file(&twin)?;
    opens
}

fn journal(dir: &Path, mib: u64) -> Result<bool, Fault> {
    let path = dir.join("opening.pool");
    let journal = dir.join("opening.pool.journal");
    for left in [&path, &journal] {
        let _ = fs::remove_file(left); // of a run that was cut short
    }
    let options = PoolOptions::new().size(mib << 20).journal(true).journal_bytes(mib << 20);
    let pool = Pool::create(&path, &options)?;
    fill(&pool, 1 << 20, mib << 18, 64 << 10)?;
    let used = pool.journal().map_or(0, |journal| journal.used);
    pool.kill();
    forget(&path)?;
    let plain = PoolOptions::new().write_back(false);
    let writing = write(&dir.join("opening.yardstick"), used)?;
    let opens = compare("Journal", &journal, mib << 20, writing, || {
        Pool::open(&path, &plain)?.kill();
        Ok(())
    });
    fs::remove_file(&path)?;
    fs::remove_file(&journal)?;
    opens
}

fn main() -> Result<ExitCode, Fault> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "target".into()));
    let mib = arguments.next().map_or(Ok(512), |mib| mib.parse())?;
    let all = [periodic(&dir, mib)?, journal(&dir, mib)?];
    Ok(if all == [true; 2] { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
