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

/// A place whose block is damaged is not used; what its word names may be another index's.
#[test]
fn destroying_a_damaged_cache_frees_no_block_of_another_index() {
    for damaged in [0, 1] {
        let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
        let (first, other) = (cache(&pool, 4), "other");
        let second = BlockCache::create(&pool, other, &options(4)).unwrap();
        for n in 0..40 {
            put(&first, n, 150);
            put(&second, n, 150);
        }
        let its: Vec<u64> = second.blocks().unwrap();
        let to = *its.last().unwrap();
        let cell = first.cell(damaged).unwrap();
        let lost = pool.pm().load(&cell.block);
        assert!(lost != 0 && lost != to);
        pool.pm().store(&cell.block, to);
        drop((first, second));
        assert!(BlockCache::destroy(&pool, "cache").unwrap());
        let second = BlockCache::open(&pool, other, &options(0)).unwrap().unwrap();
        // Only the segment that the place had is left over.
        pool.audit(second.blocks().unwrap().into_iter()).unwrap_err();
        pool.audit(second.blocks().unwrap().into_iter().chain([lost])).unwrap();
        assert!((0..40).any(|n| has(&second, n, 150)));
    }
}

/// Its checksum has no secret, so a file may have a summary of any contents.
#[test]
fn a_summary_with_lines_beyond_its_segment_is_damaged() {
    for (line, len) in [(70_000, 10), (u32::MAX, 10), (60, 4000), (5, u32::MAX)] {
        let pool = pool();
        let cache = cache(&pool, 8);
        (0..200).for_each(|n| assert_eq!(put(&cache, n, 150), Inserted::Stored));
        for place in 0..4 {
            let seed = cache.seed(cache.generation_of(place));
            let words = summary::encode(seed, &[summary::Record { key: key(1), line, len }]);
            let segment = cache.segment(place).unwrap();
            let cells = &segment[segment.len() - words.len()..];
            cells.iter().zip(words).for_each(|(cell, word)| pool.pm().store(cell, word));
        }
        drop(cache);
        let cache = open(&pool);
        cache.check().unwrap();
        (0..200).for_each(|n| _ = has(&cache, n, 150));
        assert_eq!(put(&cache, 500, 150), Inserted::Stored);
    }
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

/// Instead of wrong bits: the word reads as 0.
const ZERO: u64 = 1 << 63 | 1;

/// How the blocks of a cache end.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Invalidated,
    Removed,
    Replaced,
}

/// A read of a line of the table fails at one opening, or has wrong bits, and is right at the next. What was
/// invalidated meanwhile, when its segment was not known, does not return; nor does the process need to die: the same
/// one may open the cache again.
#[test]
fn what_is_invalidated_while_its_place_is_misread_never_returns() {
    let pool = pool();
    let filled = cache(&pool, 8);
    (0..60).for_each(|n| assert_eq!(put(&filled, n, 150), Inserted::Stored));
    filled.seal().unwrap();
    let cells: Vec<u64> =
        (0..8).map(|place| pool.pptr(filled.cell(place).unwrap()).offset()).collect();
    let has_any = |place: usize| filled.generation_of(place as u16) != 0;
    let used: Vec<usize> = (0..8).filter(|place| has_any(*place)).collect();
    assert!(used.len() > 2);
    drop(filled);
    let image = killed(&pool);
    // Of each word: the bits that are wrong, or that it reads as 0.
    let masks: [[u64; 4]; 12] = [
        [1 << 13, 0, 0, 0],
        [0, 4, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1 << 60],
        [1 << 20, 7, 1 << 33, 1],
        [u64::MAX; 4],
        [ZERO, 0, 0, 0],
        [0, 0, ZERO, 0],
        [ZERO, 0, ZERO, 0],
        [ZERO, ZERO, ZERO, 0],
        [ZERO, 0, ZERO, ZERO],
        [0, ZERO, ZERO, 0],
    ];
    for (mask, ends) in masks.iter().flat_map(|mask| {
        [Ends::Invalidated, Ends::Removed, Ends::Replaced].map(|ends| (mask, ends))
    }) {
        for &place in &used {
            let at = cells[place] as usize;
            let word = |image: &[u8], nth: usize| {
                u64::from_le_bytes(image[at + 8 * nth..][..8].try_into().unwrap())
            };
            let wrong: Vec<u64> = (0..4)
                .map(|nth| match mask[nth] {
                    ZERO => 0,
                    bits => word(&image, nth) ^ bits,
                })
                .collect();
            let mut misread = image.clone();
            for nth in 0..4 {
                misread[at + 8 * nth..][..8].copy_from_slice(&wrong[nth].to_le_bytes());
            }
            let pool = reopened(&misread);
            let cache = open(&pool);
            let lost: Vec<u64> = (0..60).filter(|n| !has(&cache, *n, 150)).collect();
            assert!(!lost.is_empty(), "{place}, {mask:x?}");
            for n in 0..60 {
                match ends {
                    Ends::Invalidated => _ = cache.invalidate(Prefix::File(1, 0)).unwrap(),
                    Ends::Removed => _ = cache.remove(&key(n)).unwrap(),
                    Ends::Replaced => {
                        _ = cache.insert(&key(n), 3, &bytes(&key(n), 1, 2000)).unwrap();
                    }
                }
            }
            drop(cache);
            // The cause passes: what was not written since is as it was.
            let mut later = killed(&pool);
            for nth in 0..4 {
                if word(&later, nth) == wrong[nth] {
                    let right = word(&image, nth).to_le_bytes();
                    later[at + 8 * nth..][..8].copy_from_slice(&right);
                }
            }
            let cache = open(&reopened(&later));
            for n in 0..60 {
                let found = cache.get(&key(n));
                assert!(found.is_none(), "{n} is back: {place}, {mask:x?}, {ends:?}");
            }
            // The place is used again, and none of the old entries is taken for a new one.
            for n in 0..200 {
                cache.insert(&key(n), 3, &bytes(&key(n), 2, 150)).unwrap();
                assert_eq!(cache.get(&key(n)).unwrap().bytes, bytes(&key(n), 2, 150));
            }
            cache.check().unwrap();
        }
    }
}

/// Whatever a crash leaves of voiding a place, it is void, or nothing was invalidated yet.
#[test]
fn a_place_that_is_half_voided_is_void() {
    let pool = pool();
    let filled = cache(&pool, 4);
    (0..20).for_each(|n| assert_eq!(put(&filled, n, 150), Inserted::Stored));
    filled.seal().unwrap();
    drop(filled);
    let image = killed(&pool);
    for (generation, checksum) in [(true, false), (false, true), (true, true)] {
        let pool = reopened(&image);
        let cache = open(&pool);
        for place in (0..4).filter(|place| cache.generation_of(*place) != 0) {
            let cell = cache.cell(place).unwrap();
            if generation {
                pool.pm().store(&cell.generation, cache.log.lock().generation + 7);
            }
            if checksum {
                pool.pm().store(&cell.generation_checksum, 0);
            }
        }
        drop(cache);
        let cache = open(&pool);
        assert!((0..20).all(|n| !has(&cache, n, 150)));
        assert_eq!(put(&cache, 0, 150), Inserted::Stored);
    }
}
