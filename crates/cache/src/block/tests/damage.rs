//! Damages pools after a kill: lookups miss, or opening fails, but no block is wrong.

use super::*;
use crate::hash::mix;

/// The number of flipped bits unless [`MORE`] is set.
const FLIPS: u64 = 100_000;
/// Sets the number for a longer run, which also uses other seeds.
const MORE: &str = "PMINDEX_FLIPS";
const AT_ONCE: [u64; 4] = [10, 30, 60, 100];

const BLOCKS: u64 = 120;

/// Returns a pool of a cache with every kind of entry: in segments that were reused, replaced, invalidated,
/// and in one that is not sealed.
fn image() -> (Vec<u8>, Vec<(u64, u64)>) {
    let pool = Arc::new(Pool::emulated(96 << 10).unwrap());
    let cache = cache(&pool, 8);
    for n in 0..BLOCKS {
        put(&cache, n, 150);
        has(&cache, n / 2, 150);
    }
    for n in (0..BLOCKS).step_by(7) {
        cache.insert(&key(n), 3, &bytes(&key(n), 1, 150)).unwrap();
    }
    cache.invalidate(Prefix::File(1, 1)).unwrap();
    for n in BLOCKS..BLOCKS + 5 {
        cache.insert(&key(n), 3, &bytes(&key(n), 2, 150)).unwrap();
    }
    // The blocks of the cache, where half of the flips are.
    let mut parts: Vec<(u64, u64)> =
        cache.blocks().unwrap().iter().map(|&at| (at, SEGMENT)).collect();
    parts[0].1 = 64;
    parts[1].1 = 64 + 8 * 32;
    (killed(&pool), parts)
}

fn version(n: u64) -> u64 {
    if n >= BLOCKS { 2 } else { u64::from(n.is_multiple_of(7)) }
}

#[test]
fn flipped_bits_give_misses_only() {
    let (image, parts) = image();
    let more = std::env::var(MORE).ok().map(|flips| flips.parse::<u64>().unwrap());
    let first = more.map_or(0, |_| FLIPS);
    let (mut flips, last) = (first, first + more.unwrap_or(FLIPS));
    let (mut opened, mut refused, mut hits, mut corrupt) = (0u64, 0u64, 0u64, 0u64);
    for round in 0.. {
        if flips >= last {
            break;
        }
        let mut image = image.clone();
        for _ in 0..AT_ONCE[round % AT_ONCE.len()] {
            flips += 1;
            let random = mix(flips);
            let bit = if random.is_multiple_of(16) {
                (random >> 8) % (8 * image.len() as u64)
            } else {
                let mut at = (random >> 8) % (8 * parts.iter().map(|&(_, len)| len).sum::<u64>());
                let in_part = |&(start, len): &(u64, u64)| {
                    let found = (at < 8 * len).then_some(8 * start + at);
                    at = at.wrapping_sub(8 * len);
                    found
                };
                parts.iter().find_map(in_part).unwrap()
            };
            image[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let pool = Pool::open_copy(&image, &PoolOptions::new()).ok().map(Arc::new);
        let cache =
            pool.and_then(|pool| BlockCache::open(&pool, "cache", &options(0)).ok().flatten());
        let Some(cache) = cache else {
            refused += 1;
            continue;
        };
        opened += 1;
        for n in 0..BLOCKS + 5 {
            if let Some(block) = cache.get(&key(n)) {
                hits += 1;
                assert_eq!(block.bytes, bytes(&key(n), version(n), 150), "block {n}, flip {flips}");
                assert!(block.kind == 3 && !(100..BLOCKS).contains(&n), "block {n}, flip {flips}");
            }
        }
        corrupt += cache.metrics().corrupt;
        // The cache continues: new blocks are found, or refused because the pool is damaged.
        let fresh = key(BLOCKS + 50);
        if let Ok(Inserted::Stored) = cache.insert(&fresh, 0, b"fresh") {
            assert_eq!(cache.get(&fresh).unwrap().bytes, b"fresh");
        }
    }
    println!(
        "{} flips: {opened} opened, {refused} refused, {hits} hits, {corrupt} corrupt",
        flips - first
    );
    assert!(opened > 100 && hits > 1000 && corrupt > 1000);
}

/// One damaged entry does not hide others, except in the segment that was not sealed, which is read up to the
/// first entry that is not intact.
#[test]
fn a_damaged_entry_costs_one_block() {
    let (image, parts) = image();
    let found =
        |cache: &BlockCache| (0..BLOCKS + 5).filter(|&n| cache.get(&key(n)).is_some()).count();
    let all = found(&open(&reopened(&image)));
    let lost = |part: &(u64, u64)| {
        let mut image = image.clone();
        image[part.0 as usize + 100] ^= 4; // in the block of the first entry
        all - found(&open(&reopened(&image)))
    };
    let lost: Vec<usize> = parts[2..].iter().map(lost).collect();
    assert_eq!(lost.len(), 8);
    assert!(lost.iter().filter(|&&lost| lost > 1).count() <= 1, "{lost:?}");
    assert!(lost.iter().sum::<usize>() >= 2, "{lost:?}");
}
