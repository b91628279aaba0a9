//! A concurrent ordered map without persistence: a BzTree in volatile memory.
//!
//! The tree is the same as in a persistent pool, but nothing is flushed. Writers never wait for each other,
//! readers take no lock, and a scan continues while others write. Here threads count words, and one meanwhile
//! reads the counts of a part of the alphabet.
//!
//! ```console
//! cargo run --release --example volatile_map
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex::{BzTree, IndexError, Pool};

const TEXT: &str = "the quick brown fox jumps over the lazy dog and the dog sleeps on";
const THREADS: u64 = 4;
const ROUNDS: u64 = 500;

/// Counts a use of a word by one thread. Each thread has its own records: (word, thread).
fn count(map: &BzTree<(String, u64), u64>, word: &str, thread: u64) -> Result<(), IndexError> {
    let key = (word.to_owned(), thread);
    let uses = map.get(&key)?.unwrap_or(0);
    map.put(&key, &(uses + 1))?;
    Ok(())
}

/// Returns the number of uses of a word by all threads.
fn uses(map: &BzTree<(String, u64), u64>, word: &str) -> Result<u64, IndexError> {
    let of_word = (word.to_owned(), 0)..(word.to_owned(), THREADS);
    map.range(of_word).map(|record| Ok(record?.1)).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Arc::new(Pool::volatile(16 << 20)?);
    let map = BzTree::<(String, u64), u64>::create(&pool, "words")?;
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| -> Result<(), Box<dyn Error>> {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let map = &map;
                threads.spawn(move || {
                    let words = TEXT.split(' ').cycle().take(ROUNDS as usize * 14);
                    words.into_iter().try_for_each(|word| count(map, word, thread))
                })
            })
            .collect();
        let reader = threads.spawn(|| -> Result<u64, IndexError> {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                // A scan beside the writers returns records in order, with counts that never decrease.
                let now = uses(&map, "the")?;
                assert!(now >= last, "counts only grow");
                last = now;
            }
            Ok(last)
        });
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        done.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| "the reader panicked")??;
        Ok(())
    })?;

    assert_eq!(uses(&map, "the")?, 3 * ROUNDS * THREADS);
    assert_eq!(uses(&map, "fox")?, ROUNDS * THREADS);
    let first = map.first_key_value()?.map(|((word, _), _)| word);
    println!("{first:?} comes first; \"the\" was used {} times", uses(&map, "the")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_count_together() {
        super::main().expect("it works");
    }
}
