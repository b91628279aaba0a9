//! Measures operations on two words while threads compete: for many words, for few, and for the same two.
//!
//! `cargo run --release -p pmindex-pmwcas --example contention`
//!
//! Prints thousands of operations a second and the share of attempts that failed. Flushes are executed
//! (emulated persistent memory); the last column is a volatile pool.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use pmindex_core::{Medium, PmU64, Pool};
use pmindex_pmwcas::{Config, Mwcas, MwcasError};

const WORDS: usize = 8 * 4096;
const ROUNDS: usize = 1_000_000;

fn bump(
    mwcas: &Mwcas,
    words: &[PmU64],
    a: usize,
    b: usize,
    failed: &AtomicU64,
) -> Result<(), MwcasError> {
    loop {
        let (x, y) = (mwcas.read(&words[a])?, mwcas.read(&words[b])?);
        let mut session = mwcas.session()?;
        let mut change = session.descriptor();
        change.add_word(&words[a], x, x + 1)?;
        change.add_word(&words[b], y, y + 1)?;
        if change.execute()? {
            return Ok(());
        }
        failed.fetch_add(1, Relaxed);
    }
}

/// Returns thousands of operations a second, and the share of attempts that failed.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn run(pool: Pool, threads: usize, lines: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let pool = Arc::new(pool);
    let entry = pool.create_index::<[PmU64; WORDS]>("words", *b"words   ", 0, |words| {
        for word in words {
            pool.pm().store(word, 0);
        }
        pool.pm().flush(words)
    })?;
    let words = pool.get(entry.root::<[PmU64; WORDS]>())?;
    let mwcas = Mwcas::create(&pool, "mwcas", Config::default())?;
    let failed = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (mwcas, failed) = (&mwcas, &failed);
            scope.spawn(move || {
                let mut state = thread as u64 + 1;
                for _ in 0..ROUNDS {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let a = (state >> 40) as usize % lines;
                    let b = (a + 1) % lines;
                    bump(mwcas, words, 8 * a, 8 * b, failed).expect("intact");
                }
            });
        }
    });
    let operations = (threads * ROUNDS) as f64;
    let failed = failed.into_inner() as f64;
    Ok((operations / start.elapsed().as_secs_f64() / 1e3, failed / (operations + failed)))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("lines threads   durable K/s (failed)   volatile K/s (failed)");
    for lines in [4096, 16, 2] {
        for threads in [1, 2, 4] {
            let (durable, lost) = run(Pool::emulated(8 << 20)?, threads, lines)?;
            let (volatile, lost_too) = run(Pool::volatile(8 << 20)?, threads, lines)?;
            println!(
                "{lines:5} {threads:7} {durable:13.0} ({:5.2}%) {volatile:14.0} ({:5.2}%)",
                100.0 * lost,
                100.0 * lost_too
            );
        }
    }
    Ok(())
}
