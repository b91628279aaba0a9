//! Allocates blocks of 1 KiB one by one, each into a persistent pointer, and frees them: `cargo xtask peers` compares
//! it with PMDK. Arguments: pool file, threads, rounds. Prints the nanoseconds of an allocation and of a free.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use pmindex_core::{Flushed, Medium, PPtr, PmCell, PmError, PmU64, Pool, PoolOptions, pm_struct};

pm_struct! {
    /// A block.
    #[align(64)]
    struct Block: size 1024 {
        words: [PmU64; 128],
    }

    /// The pointers of a thread.
    #[align(64)]
    struct Places: size 8192 {
        all: [PmCell<PPtr<Block>>; 1024],
    }
}

/// Allocates a block for each pointer and frees them all, `rounds` times; returns the time of both.
fn work(pool: &Pool, places: PPtr<Places>, rounds: u32) -> Result<[Duration; 2], PmError> {
    let (pm, places) = (pool.pm(), &pool.get(places)?.all);
    let mut spent = [Duration::ZERO; 2];
    for _ in 0..rounds {
        let start = Instant::now();
        for place in places {
            pool.alloc_into(place, |block: &Block| {
                pm.store(&block.words[0], 1);
                pm.flush(&block.words[0])
            })?;
        }
        spent[0] += start.elapsed();
        let start = Instant::now();
        for place in places {
            pool.free_from(place)?;
        }
        spent[1] += start.elapsed();
    }
    Ok(spent)
}

fn measure(path: &str, threads: u32, rounds: u32) -> Result<[f64; 2], Box<dyn std::error::Error>> {
    let pool = Pool::create(path, &PoolOptions::new().size(256 << 20).emulate_pm(true))?;
    let mut roots = Vec::new();
    for thread in 0..threads {
        let name = format!("thread {thread}");
        let made = |_: &Places| Flushed::nothing();
        roots.push(pool.create_index::<Places>(&name, *b"peers   ", 1, made)?.root());
    }
    let results: Vec<Result<[Duration; 2], PmError>> = std::thread::scope(|scope| {
        let run = |&root| {
            scope.spawn({
                let pool = &pool;
                move || work(pool, root, rounds)
            })
        };
        let running: Vec<_> = roots.iter().map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut total = [0.0; 2];
    for result in results {
        let spent = result?;
        for (sum, spent) in total.iter_mut().zip(spent) {
            *sum += spent.as_secs_f64() * 1e9 / f64::from(threads * rounds) / 1024.0;
        }
    }
    Ok(total)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, rounds] = arguments.as_slice() else { return ExitCode::from(2) };
    let (Ok(threads), Ok(rounds)) = (threads.parse(), rounds.parse()) else {
        return ExitCode::from(2);
    };
    match measure(path, threads, rounds) {
        Ok([alloc, free]) => {
            println!("{alloc:.0} {free:.0}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
