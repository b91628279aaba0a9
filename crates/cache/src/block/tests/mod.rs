//! Tests of a cache in memory. `tests/crash/block_cache.rs` explores crashes at every step.

mod damage;
mod loads;
mod model;

use std::sync::Arc;

use pmindex_core::{Mapped, Pool, PoolOptions};

use super::*;

const SEGMENT: u64 = 4096;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::emulated(1 << 20).unwrap())
}

/// Returns options for this number of segments.
fn options(segments: u64) -> CacheOptions {
    CacheOptions::new(segments * SEGMENT).segment_bytes(SEGMENT).shards(2)
}

fn cache(pool: &Arc<Pool>, segments: u64) -> BlockCache {
    BlockCache::create(pool, "cache", &options(segments)).unwrap()
}

fn open(pool: &Arc<Pool>) -> BlockCache {
    BlockCache::open(pool, "cache", &options(0)).unwrap().unwrap()
}

fn key(n: u64) -> Key {
    Key { instance: 1, file: n / 100, offset: n % 100 }
}

/// Returns a block that identifies its key and version.
fn bytes(key: &Key, version: u64, len: usize) -> Vec<u8> {
    let seed = crate::hash::mix(key.hash() ^ version);
    (0..len as u64)
        .map(|at| crate::hash::mix(seed ^ (at / 8)).to_le_bytes()[at as usize % 8])
        .collect()
}

fn put(cache: &BlockCache, n: u64, len: usize) -> Inserted {
    cache.insert(&key(n), 3, &bytes(&key(n), 0, len)).unwrap()
}

fn has(cache: &BlockCache, n: u64, len: usize) -> bool {
    match cache.get(&key(n)) {
        Some(block) => {
            assert_eq!(block, Block { kind: 3, bytes: bytes(&key(n), 0, len) }, "block {n}");
            true
        }
        None => false,
    }
}

/// Checks that every allocated block has an owner.
fn audit(pool: &Pool, cache: &BlockCache) {
    if !pool.pm().is_volatile() {
        pool.audit(cache.blocks().unwrap().into_iter()).unwrap();
    }
}

/// Returns the pool as the next process finds it after a kill.
fn killed(pool: &Pool) -> Vec<u8> {
    let mut image = vec![0; pool.len() as usize];
    pool.read_image(0, &mut image).unwrap();
    image
}

fn reopened(image: &[u8]) -> Arc<Pool<Mapped>> {
    Arc::new(Pool::open_copy(image, &PoolOptions::new()).unwrap())
}

#[test]
fn blocks_of_any_length_are_found_as_they_were() {
    let pool = pool();
    let cache = cache(&pool, 16);
    let lens = [0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1000, 1800];
    for (n, &len) in (0..).zip(&lens) {
        assert_eq!(put(&cache, n, len), Inserted::Stored);
        assert_eq!(put(&cache, n, len), Inserted::Present);
    }
    for (n, &len) in (0..).zip(&lens) {
        assert!(has(&cache, n, len) && has(&cache, n, len));
    }
    assert_eq!(cache.get(&key(99)), None);
    assert_eq!(put(&cache, 50, 2000), Inserted::Refused(Refusal::TooLarge));
    let metrics = cache.metrics();
    assert_eq!((metrics.hits, metrics.misses, metrics.verified), (26, 1, 13));
    assert_eq!((metrics.admitted, metrics.refused, metrics.corrupt), (13, 1, 0));
    assert_eq!(cache.check().unwrap().entries, 13);
    audit(&pool, &cache);
    drop(cache);
    let cache = open(&pool);
    assert!((0..).zip(&lens).all(|(n, &len)| has(&cache, n, len)));
}

#[test]
fn a_block_is_replaced_by_other_bytes_and_ended_by_its_removal() {
    let pool = pool();
    let cache = cache(&pool, 4);
    let one = key(1);
    for version in 0..200u64 {
        cache.insert(&one, 0, &bytes(&one, version, 100)).unwrap();
        assert_eq!(cache.get(&one).unwrap().bytes, bytes(&one, version, 100));
    }
    assert!(cache.remove(&one).unwrap() && !cache.remove(&one).unwrap());
    assert_eq!(cache.get(&one), None);
    assert_eq!((cache.len(), cache.usage(1)), (0, 0));
    // A block that is too large to be stored still replaces the former one.
    cache.insert(&one, 0, b"old").unwrap();
    assert!(matches!(cache.insert(&one, 0, &[7; 3000]).unwrap(), Inserted::Refused(_)));
    assert_eq!(cache.get(&one), None);
    audit(&pool, &cache);
}

#[test]
fn segments_are_used_anew_and_what_was_hit_has_a_second_chance() {
    let pool = pool();
    let cache = cache(&pool, 8); // about 88 blocks
    (0..5).for_each(|n| assert_eq!(put(&cache, n, 256), Inserted::Stored));
    for n in 5..2000 {
        (0..4).for_each(|hot| assert!(has(&cache, hot, 256), "{hot} at {n}"));
        assert!(cache.touch(&key(4)), "touched, not read, at {n}");
        assert_eq!(put(&cache, n, 256), Inserted::Stored);
    }
    let metrics = cache.metrics();
    assert!(metrics.reclaimed > 100 && metrics.copied > 50 && metrics.evicted > 1000);
    // A new segment takes two more fences, which are not counted.
    assert_eq!(metrics.fences, metrics.reclaimed + 8, "one a segment");
    assert!((1960..2000).all(|n| has(&cache, n, 256)));
    assert!(has(&cache, 4, 256) && !has(&cache, 100, 256) && !cache.touch(&key(100)));
    let checked = cache.check().unwrap();
    assert_eq!((checked.entries, checked.segments), (cache.len(), 8));
    assert!(cache.len() >= 70);
    audit(&pool, &cache);
}

#[test]
fn a_cache_whose_blocks_are_all_hit_goes_on_taking_others() {
    let pool = pool();
    let cache = cache(&pool, 2);
    for n in 0..500 {
        assert_eq!(put(&cache, n, 200), Inserted::Stored);
        (0..=n).rev().take(40).for_each(|n| {
            has(&cache, n, 200);
        });
        assert!(has(&cache, n, 200));
    }
    cache.check().unwrap();
}

#[test]
fn what_is_pinned_stays_and_if_all_is_pinned_nothing_is_stored() {
    let pool = pool();
    let cache = cache(&pool, 3);
    put(&cache, 0, 300);
    let pinned = cache.pin(&key(0)).unwrap();
    assert!(cache.pin(&key(1)).is_none());
    (1..200).for_each(|n| assert_eq!(put(&cache, n, 300), Inserted::Stored));
    assert!(has(&cache, 0, 300), "pinned, so not used anew, hit or not");
    let others: Vec<_> = (1..200).filter_map(|n| cache.pin(&key(n))).collect();
    assert!(others.len() > 10);
    let refused = (200..230).find(|&n| put(&cache, n, 300) != Inserted::Stored).unwrap();
    assert_eq!(put(&cache, refused, 300), Inserted::Refused(Refusal::NoRoom));
    cache.invalidate(Prefix::File(1, 0)).unwrap();
    assert!(!has(&cache, 0, 300));
    assert_eq!((pinned.bytes(), pinned.kind(), pinned.len()), (bytes(&key(0), 0, 300), 3, 300));
    drop((pinned, others));
    assert_eq!(put(&cache, refused, 300), Inserted::Stored);
    cache.check().unwrap();
}

#[test]
fn an_invalidation_ends_the_blocks_of_a_file_or_an_instance_for_good() {
    let pool = pool();
    let cache = cache(&pool, 32);
    let all = |instance| (0..40u64).map(move |n| Key { instance, file: n % 4, offset: n });
    for key in all(1).chain(all(2)) {
        cache.insert(&key, 0, &bytes(&key, 0, 90)).unwrap();
    }
    assert_eq!(cache.invalidate(Prefix::File(1, 3)).unwrap(), 10);
    assert_eq!(cache.invalidate(Prefix::File(1, 3)).unwrap(), 0);
    assert_eq!(cache.invalidate(Prefix::Instance(2)).unwrap(), 40);
    let left = |cache: &BlockCache| {
        let found =
            |key: &Key| cache.get(key).map(|block| assert_eq!(block.bytes, bytes(key, 0, 90)));
        all(1).chain(all(2)).filter(|key| found(key).is_some()).collect::<Vec<_>>()
    };
    let expected: Vec<Key> = all(1).filter(|key| key.file != 3).collect();
    assert_eq!(left(&cache), expected);
    assert_eq!((cache.usage(1), cache.usage(2)), (30 * 3 * 64, 0));
    let image = killed(&pool);
    let cache = open(&reopened(&image));
    assert_eq!(left(&cache), expected);
    // A file number that is reused: only newly inserted blocks are found.
    let again = Key { instance: 1, file: 3, offset: 3 };
    cache.insert(&again, 0, b"another file").unwrap();
    assert_eq!(cache.get(&again).unwrap().bytes, b"another file");
    // A database that was restored has another instance, and finds nothing.
    assert!(all(3).all(|key| cache.get(&key).is_none()));
}

#[test]
fn an_instance_keeps_its_quota_by_giving_up_its_oldest_blocks() {
    let pool = pool();
    let cache = cache(&pool, 64);
    let of = |instance, n| Key { instance, file: 0, offset: n };
    for n in 0..50 {
        cache.insert(&of(2, n), 0, &[2; 64]).unwrap();
    }
    cache.set_quota(1, Some(4096)); // 32 blocks
    for n in 0..300u64 {
        assert_eq!(cache.insert(&of(1, n), 0, &[n as u8; 64]).unwrap(), Inserted::Stored);
        assert!(cache.usage(1) <= 4096);
        assert!(cache.get(&of(1, n)).is_some());
    }
    assert!((280..300).all(|n| cache.get(&of(1, n)).is_some()));
    assert!((0..50).all(|n| cache.get(&of(2, n)).is_some()), "others keep theirs");
    assert_eq!(cache.insert(&of(3, 0), 0, &[0; 64]).unwrap(), Inserted::Stored);
    cache.set_quota(3, Some(100));
    assert_eq!(cache.insert(&of(3, 1), 0, &[0; 64]).unwrap(), Inserted::Refused(Refusal::Quota));
    let fences = cache.metrics().fences;
    cache.set_quota(1, None);
    for n in 300..340 {
        cache.insert(&of(1, n), 0, &[1; 64]).unwrap();
    }
    assert!(cache.usage(1) > 4096 && cache.metrics().fences < fences + 10);
    cache.check().unwrap();
    // Entries that a restart finds count.
    let usage = cache.usage(2);
    let cache = open(&reopened(&killed(&pool)));
    assert_eq!(cache.usage(2), usage);
    assert!((280..300).all(|n| cache.get(&of(1, n)).is_some()));
    assert!((0..200).all(|n| cache.get(&of(1, n)).is_none()));
}

/// Segments of the usual size, blocks of 4 KiB, twice as many as fit, some of them hot.
#[test]
fn a_killed_cache_has_what_it_had() {
    let pool = Arc::new(Pool::emulated(64 << 20).unwrap());
    let cache = BlockCache::create(&pool, "cache", &CacheOptions::new(16 << 20)).unwrap();
    for n in 0..8000u64 {
        put(&cache, n, 4096);
        has(&cache, crate::hash::mix(n) % (n + 1).min(500), 4096);
    }
    let found = |cache: &BlockCache| (0..8000).filter(|&n| has(cache, n, 4096)).count();
    let image = killed(&pool);
    let before = found(&cache);
    assert!(before > 3000);
    let warm = open(&reopened(&image));
    assert_eq!(warm.metrics().unsealed, 1);
    assert_eq!(found(&warm), before);
    assert_eq!(warm.metrics().corrupt, 0);
    let bytes = warm.index_bytes();
    assert!(bytes <= 32 * before as u64, "{bytes} bytes for {before} entries");
}

#[test]
fn a_destroyed_cache_leaves_nothing() {
    let pool = pool();
    let cache = cache(&pool, 8);
    (0..300).for_each(|n| assert_eq!(put(&cache, n, 200), Inserted::Stored));
    assert!(BlockCache::destroy(&pool, "cache").is_err(), "it is open");
    drop(cache);
    assert!(BlockCache::destroy(&pool, "cache").unwrap());
    assert!(!BlockCache::destroy(&pool, "cache").unwrap());
    pool.audit(std::iter::empty()).unwrap();
    let cache = self::cache(&pool, 8);
    assert!((0..300).all(|n| !has(&cache, n, 200)));
}

#[test]
fn a_pool_without_room_for_more_segments_uses_those_there_are() {
    let pool = Arc::new(Pool::emulated(128 << 10).unwrap());
    let cache = cache(&pool, 1000);
    (0..2000).for_each(|n| assert_eq!(put(&cache, n, 200), Inserted::Stored));
    assert!(cache.metrics().reclaimed > 0 && has(&cache, 1999, 200));
    audit(&pool, &cache);
    let none = Arc::new(Pool::emulated(64 << 10).unwrap());
    let largest = none.largest_block();
    let error = BlockCache::create(&none, "cache", &CacheOptions::new(1 << 30)).unwrap_err();
    assert_eq!(error, PmError::TooLarge { wanted: 2 << 20, max: largest });
    let odd = CacheOptions::new(1 << 20).segment_bytes(4100);
    assert!(matches!(BlockCache::create(&none, "cache", &odd), Err(PmError::BadOption { .. })));
}

#[test]
fn compressed_blocks_are_found_as_they_were_and_more_of_them_fit() {
    let text = |n: u64| format!("record {n} of many; ").repeat(80).into_bytes();
    let pool = pool();
    let options = options(8).compress(true);
    let cache = BlockCache::create(&pool, "cache", &options).unwrap();
    let random = bytes(&key(900), 0, 1000);
    assert_eq!(cache.insert(&key(900), 1, &random).unwrap(), Inserted::Stored);
    for n in 0..60 {
        assert_eq!(cache.insert(&key(n), 9, &text(n)).unwrap(), Inserted::Stored);
        assert_eq!(cache.insert(&key(n), 9, &text(n)).unwrap(), Inserted::Present);
    }
    let raw: usize = (0..60).map(|n| text(n).len()).sum();
    assert!(raw > 2 * 8 * SEGMENT as usize, "more than there is room for");
    let metrics = cache.metrics();
    assert_eq!((metrics.admitted, metrics.packed, metrics.evicted), (61, 60, 0));
    // A block may be larger than half a segment if its stored form is not.
    assert_eq!(cache.insert(&key(500), 0, &[5; 10_000]).unwrap(), Inserted::Stored);
    let pinned = cache.pin(&key(7)).unwrap();
    assert_eq!((pinned.len(), pinned.bytes()), (text(7).len(), text(7)));
    drop(pinned);
    let all = |cache: &BlockCache| {
        let is_whole = |n| cache.get(&key(n)) == Some(Block { kind: 9, bytes: text(n) });
        assert_eq!((0..60).find(|&n| !is_whole(n)), None);
        assert_eq!(cache.get(&key(500)).unwrap().bytes, [5; 10_000]);
        assert_eq!(cache.get(&key(900)).unwrap().bytes, random);
    };
    all(&cache);
    // An opener without compression finds them too, and stores its own blocks uncompressed.
    let plain = open(&reopened(&killed(&pool)));
    all(&plain);
    assert_eq!(plain.insert(&key(7), 9, &text(7)).unwrap(), Inserted::Stored);
    all(&plain);
    assert_eq!((plain.metrics().packed, plain.metrics().corrupt), (0, 0));
    plain.check().unwrap();
}
