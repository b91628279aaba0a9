//! Figure 3.6: a binary search in 4 KiB of integers.

use std::hint::black_box;
use std::sync::Arc;

use pmindex_cache::policy::{Lru, TwoQ};
use pmindex_cache::{Hot, Placed};
use pmindex_env::{Env, File};

use crate::common::{Began, Fault, Places, Random, Sheet, chapter, pm_delay, texts};

const INTEGERS: usize = 512;
const BLOCK: usize = 8 * INTEGERS;
/// Why a miss of LRU may cost less than a search in place.
const ORDER_DIFFERS: &str = ". The order of the thesis is another one: there a miss costs more. Here persistent \
    memory is tmpfs, a copy reads a block's lines in a row, and a binary search waits for one line after the other";

/// More than the caches of the processor hold.
const BLOCKS: u64 = 16_384;

fn in_dram(block: &[u64], wanted: u64) -> usize {
    block.partition_point(|&number| number < wanted)
}

/// Searches in place: reads only the integers that it compares.
fn in_pm(file: &File, block: u64, wanted: u64, is_delayed: bool) -> Result<usize, Fault> {
    let (mut low, mut high) = (0, INTEGERS);
    while low < high {
        let middle = low.midpoint(high);
        let mut word = [0; 8];
        // The last steps are in one line.
        pm_delay(is_delayed && high - low > 8, 8);
        file.read_at(block * BLOCK as u64 + 8 * middle as u64, &mut word)?;
        if u64::from_le_bytes(word) < wanted { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

fn copy(file: &File, block: u64, is_delayed: bool) -> Result<Arc<[u64]>, Fault> {
    let mut bytes = [0; BLOCK];
    pm_delay(is_delayed, BLOCK);
    file.read_at(block * BLOCK as u64, &mut bytes)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

pub(crate) fn page(places: &Places, smaller: u64) -> Result<String, Fault> {
    let blocks = (BLOCKS / smaller).max(64);
    let env = Env::open_or_create(
        &places.pool("search", (blocks * BLOCK as u64) * 2 + (16 << 20))?,
        "files",
    )?;
    let file = env.create_file("integers")?;
    let block: Vec<u8> = (0..INTEGERS as u64).flat_map(|n| (2 * n).to_le_bytes()).collect();
    (0..blocks).try_for_each(|_| file.append(&block))?;
    let searches = 400_000 / smaller;
    let dram: Vec<Arc<[u64]>> =
        (0..blocks).map(|n| copy(&file, n, false)).collect::<Result<_, _>>()?;
    let time = |search: &mut dyn FnMut(u64, u64) -> Result<usize, Fault>| {
        let (mut random, began) = (Random::new(1), Began::now());
        for _ in 0..searches {
            let wanted = random.below(2 * INTEGERS as u64);
            black_box(search(random.below(blocks), wanted)?);
        }
        Ok::<_, Fault>(began.elapsed().as_nanos() as f64 / searches as f64)
    };
    let mut sheet = Sheet::new(&texts(["ns a search", "delayed"]));
    let mut all = Vec::new();
    for (name, kind) in [
        ("in DRAM", 0),
        ("in persistent memory, in place", 1),
        ("a miss of LRU: evict, copy, search the copy", 2),
        ("a miss of 2Q that is not admitted: note, search in place", 3),
        ("a miss of 2Q that is admitted: evict, copy, search the copy", 4),
    ] {
        let mut cells = Vec::new();
        for is_delayed in [false, true] {
            // With room for one block, so that every access misses.
            let lru: Hot<u64, Arc<[u64]>, Lru<_, _>> = Hot::new(64, 1);
            let two_q: Hot<u64, Arc<[u64]>, TwoQ<_, _>> = Hot::new(64, 1);
            let mut turn = 0;
            (0..64).try_for_each(|n| {
                two_q.get_or_load(blocks + n, || copy(&file, n, false)).map(drop)
            })?;
            let nanos = time(&mut |at, wanted| match kind {
                0 => Ok(in_dram(&dram[at as usize], wanted)),
                1 => in_pm(&file, at, wanted, is_delayed),
                2 => {
                    turn += 1; // a new id
                    let block = lru.get_or_load(turn, || copy(&file, at, is_delayed))?;
                    Ok(in_dram(&block, wanted))
                }
                _ => {
                    turn += 1;
                    let id = 2 * blocks + turn;
                    if kind == 4 {
                        let _ = two_q.place(id); // accessed before
                    }
                    match two_q.place(id) {
                        Placed::Hit(block) => Ok(in_dram(&block, wanted)),
                        Placed::Below => in_pm(&file, at, wanted, is_delayed),
                        Placed::Admitted(vacant) => {
                            let block = copy(&file, at, is_delayed)?;
                            vacant.fill(Arc::clone(&block));
                            Ok(in_dram(&block, wanted))
                        }
                    }
                }
            })?;
            cells.push(nanos);
        }
        sheet.row(name, &texts(cells.iter().map(|nanos| format!("{nanos:.0}"))));
        all.push(cells);
    }
    let found = format!(
        "**Here** a miss of LRU costs {:.1} times a search in place ({:.1} delayed), a miss of 2Q that is not \
         admitted {:.1} times ({:.1}){}. {} blocks of 4 KiB, {searches} searches.",
        all[2][0] / all[1][0],
        all[2][1] / all[1][1],
        all[3][0] / all[1][0],
        all[3][1] / all[1][1],
        if all[1][0] < all[2][0] { ": the order of the thesis" } else { ORDER_DIFFERS },
        blocks,
    );
    Ok(chapter(
        "Figure 3.6: a search in a block of integers",
        "a search in persistent memory is slower than in DRAM, and far cheaper than a miss of LRU, which evicts \
         and copies a block first; 2Q has a cheap miss and one like LRU's.",
        sheet,
        &found,
    ))
}
