//! How many fences a second a pool in mode `Journal` does with 1, 8 and 64 threads, beside a loop of write and
//! `fdatasync`, which does nothing but what a fence cannot do without.
//!
//! ```text
//! cargo run --release -p pmindex-core --example fences -- [DIR [FENCES]]
//! ```
//!
//! DIR lies on a disk (default: the build's folder). Each thread stores to a line of its own and fences, FENCES
//! (default 2,000) times in all. Loop and threads take turns, and the median of three is printed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmindex_core::{Medium, Pool, PoolOptions};

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of the blocks that the loop writes.
const BLOCK: usize = 4096;
/// Rounds of measurement.
const ROUNDS: usize = 3;

/// Overwrites a block and synchronises it, so many times.
fn bare(file: &File, count: u64) -> Result<Duration, Fault> {
    let started = Instant::now();
    for n in 0..count {
        file.write_all_at(&[n as u8; BLOCK], n % 1024 * BLOCK as u64)?;
        file.sync_data()?;
    }
    Ok(started.elapsed())
}

/// Fences so many times, by so many threads.
fn fences(pool: &Pool, threads: u64, count: u64) -> Result<Duration, Fault> {
    let each = |thread: u64| -> Result<(), Fault> {
        let word = &pool.words((1 << 20) + thread * 4096, 8)?[0];
        for n in 0..count / threads {
            pool.pm().store(word, n + 1);
            pool.pm().persist(word)?;
        }
        Ok(())
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || each(thread))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("panic".into())))
    })?;
    Ok(started.elapsed())
}

fn prepare(dir: &Path) -> Result<(Pool, File), Fault> {
    let [pool, bare] = ["fences.pool", "fences.bare"].map(|name| dir.join(name));
    let _ = fs::remove_file(&pool); // of a run that was cut short
    let file = File::options().write(true).create(true).truncate(true).open(bare)?;
    file.write_all_at(&vec![0; 1024 * BLOCK], 0)?;
    file.sync_all()?;
    Ok((Pool::create(pool, &PoolOptions::new().size(4 << 20).journal(true))?, file))
}

#[expect(clippy::cast_precision_loss, reason = "a rate is printed with few digits")]
fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "target".into()));
    let count: u64 = arguments.next().map_or(Ok(2000), |count| count.parse())?;
    let (pool, file) = prepare(&dir)?;
    let mut rates = vec![Vec::new(); 4];
    for _ in 0..ROUNDS {
        let times = [
            bare(&file, count)?,
            fences(&pool, 1, count)?,
            fences(&pool, 8, count)?,
            fences(&pool, 64, count)?,
        ];
        for (rates, time) in rates.iter_mut().zip(times) {
            rates.push(count as f64 / time.as_secs_f64());
        }
    }
    let names = ["write and fdatasync", "1 thread", "8 threads", "64 threads"];
    for (name, rates) in names.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        println!("{name}: {:.0} a second", rates[ROUNDS / 2]);
    }
    pool.kill();
    for name in ["fences.pool", "fences.pool.journal", "fences.bare"] {
        fs::remove_file(dir.join(name))?;
    }
    Ok(())
}
