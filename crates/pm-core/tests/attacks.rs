//! Attacks the public interface from safe code: every size, count, offset and alignment that a caller can
//! pass, with values that overflow, wrap, end beyond the end, or mean nothing. An attack gets an error or,
//! where the documentation says so, a panic; never an access outside the memory.
//!
//! `cargo xtask sanitize` runs these tests under `AddressSanitizer`, and those that Miri supports under Miri.
//! Code that must not compile is in `tests/compile/words`.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::trace::Space;
use pmindex_core::{
    Arena, Mapped, Medium, Owner, PPtr, PmError, PmType, PmU64, Pool, PoolOptions, Rmw, pm_struct,
    words_of,
};

/// Returns the numbers at which additions, multiplications and roundings overflow.
fn numbers() -> Vec<u64> {
    let near = |edge: u64| [edge.wrapping_sub(1), edge, edge.wrapping_add(1)];
    let powers = [3, 6, 12, 16, 20, 31, 32, 47, 52, 56, 61, 62, 63];
    let edges = powers.into_iter().map(|power| 1 << power);
    let mut all: Vec<u64> = edges.flat_map(near).chain([0, 1, 2, 7]).collect();
    all.extend((0..10).map(|less| u64::MAX - less));
    all.extend([u64::MAX - 63, u64::MAX - 4095, u64::MAX - 4096, u64::MAX - (2 << 20)]);
    all
}

/// Reads and writes the first and the last word that a reference claims to refer to.
fn touch<T: PmType>(target: &T) {
    let (pm, words) = (Mapped::dram(), words_of(target));
    for cell in [words.first(), words.last()].into_iter().flatten() {
        pm.store(cell, pm.load(cell).wrapping_add(1));
    }
}

/// Returns `true` if `body` panics.
fn panics<R>(body: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(body()))).is_err()
}

/// An arena is refused, or has as many elements as it says.
fn attack_arenas<const N: usize>() {
    // Products with the size that wrap to about 0, a page, or a region of the heap.
    let wraps = [0, 4096, 65536].map(|least| (1u128 << 64 | least) / (8 * N as u128));
    let wraps = wraps.into_iter().flat_map(|n| [n, n + 1]).filter_map(|n| u32::try_from(n).ok());
    let counts = [0, 1, 2, 3, 1 << 16, 1 << 30, 1 << 31, u32::MAX - 1, u32::MAX];
    for count in wraps.chain(counts) {
        let Ok(arena) = Arena::<[PmU64; N]>::new(count) else { continue };
        assert_eq!(arena.capacity(), count);
        for index in [0, 1, count / 2, count.saturating_sub(2), count.wrapping_sub(1)] {
            if index < count {
                touch(arena.get(index));
            }
        }
        for index in [count, u32::MAX - 1, u32::MAX].into_iter().filter(|&index| index >= count) {
            arena.prefetch(index);
            assert!(panics(|| touch(arena.get(index))), "{index} of {count}");
        }
        assert!(arena.alloc().is_ok() || count == 0);
        assert!(matches!(arena.alloc_fresh(u32::MAX), Err(PmError::Full { .. })));
    }
}

#[test]
fn arenas_have_what_they_say() {
    attack_arenas::<1>();
    attack_arenas::<512>();
    attack_arenas::<{ 1 << 20 }>();
    attack_arenas::<{ 1 << 30 }>();
    attack_arenas::<{ 1 << 40 }>();
    attack_arenas::<{ 1 << 57 }>();
}

#[test]
fn indices_that_nobody_was_given_may_be_given_back() {
    let arena: Arena<PmU64> = Arena::new(10).expect("memory");
    arena.free_all(&[u32::MAX, 10, 3, 3]);
    assert_eq!((arena.len(), arena.used()), (0, 0));
    for taken in std::iter::repeat_with(|| arena.alloc()).map_while(Result::ok).take(20) {
        assert_eq!(taken >= 10, panics(|| touch(arena.get(taken))));
    }
}

fn attack_pool<M: Medium>(pool: &Pool<M>) {
    let len = pool.len();
    let edges = [len, len / 2, len - 4096].into_iter();
    let near = edges.flat_map(|edge| [edge - 64, edge - 8, edge - 1, edge, edge + 8]);
    for offset in numbers().into_iter().chain(near) {
        pool.prefetch(PPtr::<PmU64>::new(offset));
        for bytes in [0, 1, 4096, len, u64::MAX, u64::MAX - offset] {
            pool.prefetch_pages(offset, bytes);
        }
        let is_in = |size: u64, align: u64| {
            let fits = offset.checked_add(size).is_some_and(|end| end <= len);
            offset != 0 && fits && offset.is_multiple_of(align)
        };
        macro_rules! attack_get {
            ($($type:ty),*) => {$(
                let found = pool.get(PPtr::<$type>::new(offset));
                let (size, align) = (size_of::<$type>() as u64, align_of::<$type>() as u64);
                assert_eq!(found.is_ok(), is_in(size, align), "{offset:#x} of {len:#x}");
                if let Ok(found) = found {
                    assert!(core::ptr::from_ref(found).is_aligned());
                    let words = words_of(found);
                    assert!(words.is_empty() || pool.pptr(found).offset() == offset);
                    for cell in words {
                        pool.pm().load(cell);
                    }
                }
            )*};
        }
        attack_get!(
            PmU64,
            [PmU64; 9],
            Aligned,
            [Aligned; 3],
            Page,
            Pair,
            [PmU64; 1 << 28],
            [PmU64; 0]
        );
        for count in numbers() {
            let found = pool.words(offset, count as usize);
            if let Ok(words) = found {
                assert!(count.checked_mul(8).is_some_and(|size| is_in(size, 8)));
                assert_eq!(words.len() as u64, count);
                words.last().map(|cell| pool.pm().load(cell));
            }
        }
        let mut bytes = [0; 72];
        for n in [0, 1, 8, 64, 72] {
            assert!(
                pool.read_image(offset, &mut bytes[..n]).is_err()
                    || is_in(n as u64, 8)
                    || offset == 0
            );
        }
        let _ = pool.block_size(PPtr::<PmU64>::new(offset));
    }
}

pm_struct! {
    /// One line.
    #[align(64)]
    struct Aligned: size 64 { words: [PmU64; 8] }

    /// The strongest alignment.
    #[align(4096)]
    struct Page: size 4096 { words: [PmU64; 512] }

    /// Two parts.
    #[align(16)]
    struct Pair: size 16 { first: PmU64, second: PmU64 }
}

#[test]
fn offsets_lead_into_the_pool_or_nowhere() {
    // Memory from the heap, from the system, and of a length that is no power of two.
    attack_pool(&Pool::volatile(0).expect("memory"));
    attack_pool(&Pool::emulated(5 << 20).expect("memory"));
    let space = Space::new(200 << 10, 300 << 10);
    let opts = PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512);
    let pool = Pool::create_traced(&space, &opts).expect("room");
    attack_pool(&pool);
    for offset in numbers().into_iter().chain([200 << 10, (200 << 10) - 64]) {
        if let Ok(line) = space.get(PPtr::<Aligned>::new(offset)) {
            assert!(offset + 64 <= space.file_len() && offset.is_multiple_of(64));
            touch(line);
        }
    }
    for word in numbers() {
        let is_in = word < (300 << 10) / 8;
        assert_eq!(panics(|| space.peek(word as usize)), !is_in);
        assert_eq!(panics(|| space.poke(word as usize, 0)), !is_in);
        assert_eq!(panics(|| space.set_file_len(word)), word > 300 << 10);
    }
}

#[test]
fn options_make_a_pool_or_an_error() {
    let base = || PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512);
    let attack = |opts: PoolOptions| {
        // Create the pool unless it is too large for a test.
        if opts.created_size().is_ok_and(|size| size > 1 << 32) {
            return;
        }
        if let Ok(pool) = Pool::create_in_memory(&opts, |mapped| mapped) {
            let last = pool.words(pool.len() - 8, 1).expect("within");
            pool.pm().store(&last[0], 1);
            assert!(pool.op().and_then(|mut op| op.reserve::<Aligned>().map(drop)).is_ok());
        }
    };
    for n in numbers() {
        attack(base().size(n));
        attack(base().zone_bytes(n));
        attack(base().slots(n));
        attack(base().slot_bytes(n));
        attack(base().size(n).zone_bytes(n));
        attack(base().slots(n).slot_bytes(n));
        attack(base().max_size(n));
        attack(PoolOptions::new().size(n).max_size(n));
    }
    assert!(Pool::volatile(usize::MAX).is_err() && Pool::emulated(usize::MAX).is_err());
}

#[test]
fn a_pool_may_be_allowed_any_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let opts = PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512);
    for (i, n) in numbers().into_iter().enumerate() {
        let (path, opts) = (folder.path().join(i.to_string()), opts.clone().max_size(n));
        let pool =
            Pool::create(&path, &opts).expect("a pool of a size that is no matter of `max_size`");
        assert!(pool.max_size() >= pool.len());
        let _ = pool.grow(pool.len() + 1);
        drop(pool);
        let pool = Pool::open(&path, &opts).expect("the same pool");
        for wanted in numbers().into_iter().filter(|&wanted| wanted > pool.max_size()) {
            assert!(pool.grow(wanted).is_err(), "{wanted} of {n}");
        }
        drop(pool);
        std::fs::remove_file(&path).expect("the pool's file");
        let memory = Pool::create_in_memory(&opts, |mapped| mapped).expect("memory");
        assert!(memory.max_size() >= memory.len());
        let _ = memory.grow(memory.len() + 1);
    }
}

#[test]
fn requests_get_a_block_as_large_and_aligned_as_asked_for() {
    let pool = Pool::volatile(1 << 20).expect("memory");
    let mut op = pool.op().expect("a slot");
    for size in numbers() {
        for align in numbers() {
            let Ok(block) = op.reserve_bytes(size, align) else { continue };
            let offset = block.ptr().offset();
            assert!(offset.is_multiple_of(align), "{offset:#x} at a multiple of {align}");
            pool.words(offset, size.div_ceil(8) as usize).expect("as long as asked for");
        }
    }
    assert!(matches!(
        op.reserve_group::<[PmU64; 1 << 20]>(usize::MAX),
        Err(PmError::TooLarge { .. })
    ));
    // A block of another pool, and an owner outside of the pool.
    let other = Pool::volatile(1 << 20).expect("memory");
    let (mut elsewhere, lock) = (other.op().expect("a slot"), VersionLock::new());
    let block = elsewhere.reserve::<PmU64>().expect("room");
    let word = &words_of(&lock)[0];
    let owner = Owner { word, mask: 1, expect: 1 };
    assert!(panics(|| op.allocate(&block, owner)) || op.allocate(&block, owner).is_err());
    assert!(panics(|| pool.pptr(word)));
}

/// Makes bulk accesses to two runs of words of any two lengths: none touches words beyond the shorter one.
fn attack_bulk<M: Medium>(pool: &Pool<M>) {
    let pm = pool.pm();
    let words = pool.words(pool.len() - 8 * 160, 160).expect("the end of the pool");
    let lengths = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 80];
    for &n in &lengths {
        for (start, &m) in lengths.iter().enumerate() {
            let start = 80 - start % 9;
            let run = &words[start..start + n];
            for cell in words {
                pm.store(cell, 7);
            }
            let mut copy = vec![1; m];
            pm.read_words(run, &mut copy);
            assert_eq!(copy.iter().filter(|&&word| word == 7).count(), n.min(m));
            let source = vec![9; m];
            pm.write_words(run, &source);
            let flushed = pm.stream_words(run, &source).and(pm.flush_words(run));
            pm.fence(flushed).expect("no disk");
            let written = words.iter().filter(|cell| pm.load(cell) == 9).count();
            assert_eq!(written, n.min(m), "{m} words into {n}");
            let probe = vec![9; 8 * m];
            let _ = (pm.match_byte(run, 9), pm.match_word(run, 9), pm.match_less(run, 9));
            assert_eq!(pm.count_less(run, 9), n - n.min(m));
            let _ = (pm.cmp_bytes(run, 8 * m, &probe), pm.eq_bytes(run, 8 * m, &probe));
            let _ = (pm.cmp_bytes(run, usize::MAX, &probe), pm.eq_bytes(run, m, &probe));
            assert_eq!(pm.read_vec(run, 8 * m).len(), 8 * n.min(m));
            assert_eq!(pm.read_vec(run, usize::MAX).len(), 8 * n);
            pm.write_bytes(run, &vec![5; 8 * m + 3]);
            assert!(
                words[start + n..].iter().chain(&words[..start]).all(|cell| pm.load(cell) == 7)
            );
            let mut bytes = vec![0; 8 * m];
            assert!(
                panics(|| pm.read_bytes(run, &mut bytes)) || bytes.len() <= 8 * n || n % 32 == 0
            );
        }
    }
    assert_eq!(pm.rmw_word(&words[159], Rmw::Add(u64::MAX)), 7);
}

#[test]
fn bulk_accesses_of_unequal_lengths_touch_what_both_have() {
    attack_bulk(&Pool::volatile(1 << 20).expect("memory"));
    attack_bulk(&Pool::emulated(1 << 20).expect("memory"));
    attack_bulk(&Pool::counting(1 << 20).expect("memory"));
    let space = Space::new(1 << 20, 1 << 20);
    attack_bulk(&Pool::create_traced(&space, &PoolOptions::new().size(1 << 19)).expect("room"));
}

#[test]
fn a_lock_may_be_written_as_the_word_it_is() {
    let pm = Mapped::dram();
    let lock = VersionLock::new();
    for word in numbers() {
        pm.store(&words_of(&lock)[0], word & !1);
        let version = lock.begin_read(&pm);
        drop(lock.try_upgrade(&pm, version).expect("nobody else is there"));
        assert!(!lock.validate(&pm, version));
    }
    for bits in [0, 1, 7, 20] {
        let table = VersionTable::new(bits);
        assert!(numbers().into_iter().all(|offset| table.index_of(offset) < table.len()));
        for offset in numbers() {
            drop(table.of(offset).lock(&pm));
        }
    }
}

pm_struct! {
    /// Seven eighths of it are padding.
    #[align(64)]
    struct Padded { lock: VersionLock }

    /// More padding than a line.
    #[align(256)]
    struct Sparse { lock: VersionLock, other: VersionLock }
}

#[test]
fn padding_of_what_was_built_on_the_stack_is_no_word() {
    let padded = Padded { lock: VersionLock::new() };
    let sparse = Sparse { lock: VersionLock::new(), other: VersionLock::new() };
    assert_eq!((words_of(&padded).len(), words_of(&sparse).len()), (1, 2));
    let pool = Pool::emulated(1 << 20).expect("memory");
    let flushed = pool.pm().flush(&padded).and(pool.pm().flush(&sparse));
    pool.pm().fence(flushed).expect("no disk");
    let words = words_of(&padded).iter().chain(words_of(&sparse));
    assert!(words.map(|cell| pool.pm().load(cell)).all(|word| word == 0));
}

/// Opens bytes that are no pool, and the bytes of a pool truncated at any length.
#[test]
fn copies_of_anything_open_or_are_refused() {
    let space = Space::new(96 << 10, 96 << 10);
    let opts = PoolOptions::new().size(64 << 10).zone_bytes(32 << 10).slots(1).slot_bytes(256);
    Pool::create_traced(&space, &opts).expect("room").close().expect("closing");
    let image: Vec<u8> = space.snapshot().into_iter().flat_map(u64::to_le_bytes).collect();
    let mut opened = 0;
    for len in [0, 1, 7, 8, 4095, 4096, 8192, 40_000, 65_536, image.len() - 1, image.len()] {
        let Ok(pool) = Pool::open_copy(&image[..len], &opts) else { continue };
        opened += 1;
        assert!(pool.len() <= len as u64);
        touch(pool.get(PPtr::<Aligned>::new(pool.len() - 64)).expect("within"));
    }
    assert!(opened > 0);
}
