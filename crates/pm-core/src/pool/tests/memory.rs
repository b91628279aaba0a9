//! Formatting, opening and the directory, in memory.

use crate::cell::words_of;
use crate::error::{OpenError, OpenFault, PmError};
use crate::media::{Medium, Traced};
use crate::pool::create::PoolParts;
use crate::pool::{Pool, PoolOptions};
use crate::ptr::PPtr;
use crate::trace::Space;

use super::{Block, add, space, tiny};

fn create(space: &Space) -> Pool<Traced> {
    Pool::create_traced(space, &tiny()).unwrap()
}

fn open(space: &Space) -> Pool<Traced> {
    Pool::open_traced(space, &tiny()).unwrap()
}

#[test]
fn a_tiny_pool_is_created_closed_and_opened() {
    let space = space();
    let pool = create(&space);
    assert!(pool.len() <= 96 << 10);
    assert!(pool.was_clean() && pool.generation() == 1 && pool.is_emulated());
    pool.close().unwrap();
    let pool = open(&space);
    assert!(pool.was_clean() && pool.generation() == 2);
    pool.kill();
    let pool = open(&space);
    assert!(!pool.was_clean() && pool.generation() == 3);
    drop(pool); // closes
    assert!(open(&space).was_clean());
}

#[test]
fn zero_memory_is_not_a_pool() {
    let error = Pool::open_traced(&space(), &tiny()).unwrap_err();
    assert!(matches!(error, OpenError::NotAPool { .. }), "{error}");
}

#[test]
fn indexes_are_found_again_by_name() {
    let space = space();
    let pool = create(&space);
    let (a, b) = (add(&pool, "a", 1).unwrap(), add(&pool, &"b".repeat(64), 2).unwrap());
    assert_eq!(pool.find_index("a").unwrap(), Some(a.clone()));
    pool.close().unwrap();
    let pool = open(&space);
    assert_eq!(pool.indexes().unwrap(), [a.clone(), b.clone()]);
    let block = pool.get(PPtr::<Block>::new(b.block())).unwrap();
    assert_eq!(pool.pm().load(&block[0]), 2);
    assert_eq!(pool.find_index("c").unwrap(), None);
    assert!(pool.drop_root("a").unwrap());
    assert!(!pool.drop_root("a").unwrap());
    assert_eq!(pool.find_index("a").unwrap(), None);
    let again = add(&pool, "a", 3).unwrap();
    assert_eq!(again.id, a.id, "the place is used again");
    pool.close().unwrap();
    assert_eq!(open(&space).indexes().unwrap(), [again, b]);
}

#[test]
fn names_are_checked_and_the_directory_fills_up() {
    let pool = create(&space());
    add(&pool, "0", 0).unwrap();
    assert_eq!(add(&pool, "0", 0), Err(PmError::NameTaken { name: "0".into() }));
    assert_eq!(add(&pool, "", 0), Err(PmError::BadName { len: 0, max: 64 }));
    assert_eq!(add(&pool, &"n".repeat(65), 0), Err(PmError::BadName { len: 65, max: 64 }));
    for i in 1..64 {
        add(&pool, &i.to_string(), i).unwrap();
    }
    assert_eq!(add(&pool, "64", 0), Err(PmError::DirectoryFull { entries: 64 }));
    assert_eq!(pool.indexes().unwrap().len(), 64);
}

#[test]
fn a_damaged_entry_hides_no_other_and_is_never_mistaken_for_absence() {
    let space = space();
    let pool = create(&space);
    let (a, b) = (add(&pool, "a", 1).unwrap(), add(&pool, "b", 2).unwrap());
    pool.close().unwrap();
    let image = space.snapshot();
    for word in 0..13 {
        for bit in 0..64 {
            let at = 8192 / 8 + word; // entry 0
            space.poke(at, image[at] ^ 1 << bit);
            let pool = open(&space);
            assert_eq!(pool.find_index("b").unwrap(), Some(b.clone()));
            let lost = pool.find_index("a");
            assert!(matches!(lost, Err(PmError::Corrupt { offset: 8192, .. })), "{word}.{bit}");
            assert!(pool.indexes().is_err() && add(&pool, "c", 3).is_err());
            pool.kill();
            space.restore(&image);
        }
    }
    assert_eq!(open(&space).find_index("a").unwrap(), Some(a));
}

#[test]
fn every_bit_of_one_superblock_copy_may_rot() {
    let space = space();
    create(&space).close().unwrap();
    let image = space.snapshot();
    for copy in [0, 4096 / 8] {
        for word in 0..16 {
            for bit in 0..64 {
                space.poke(copy + word, image[copy + word] ^ 1 << bit);
                let pool = open(&space);
                assert_eq!(pool.generation(), 2);
                assert!(!pool.was_clean(), "a damaged copy counts as an unclean shutdown");
                pool.close().unwrap();
                assert!(open(&space).was_clean(), "closing repaired the damaged copy");
                space.restore(&image);
            }
        }
    }
}

#[test]
fn both_superblock_copies_damaged_is_an_error_that_says_so() {
    let space = space();
    create(&space).close().unwrap();
    let image = space.snapshot();
    for word in 0..16 {
        for bit in 0..64 {
            for copy in [0, 4096 / 8] {
                space.poke(copy + word, image[copy + word] ^ 1 << bit);
            }
            let error = Pool::open_traced(&space, &tiny()).unwrap_err();
            let right = match word {
                0 => matches!(error, OpenError::NotAPool { .. }),
                1 if bit > 0 => matches!(error, OpenError::UnsupportedVersion { .. }),
                _ => matches!(error, OpenError::Damaged { .. }),
            };
            assert!(right, "{word}.{bit}: {error}");
            space.restore(&image);
        }
    }
}

#[test]
fn a_pool_longer_than_its_memory_is_truncated() {
    let space = space();
    create(&space).close().unwrap();
    space.set_file_len(space.file_len() - 8);
    let error = Pool::open_traced(&space, &tiny()).unwrap_err();
    assert!(matches!(error, OpenError::Truncated { .. }), "{error}");
}

#[test]
fn growth_keeps_addresses_and_contents_and_survives_reopening() {
    let space = space();
    let pool = create(&space);
    let entry = add(&pool, "a", 5).unwrap();
    let block = pool.get(PPtr::<Block>::new(entry.block())).unwrap();
    let (old, address) = (pool.len(), words_of(block).as_ptr());
    let new = pool.grow(old + 1).unwrap();
    assert_eq!((new, pool.len()), (old + (32 << 10), new));
    assert_eq!(words_of(pool.get(PPtr::<Block>::new(entry.block())).unwrap()).as_ptr(), address);
    assert!(pool.words(old, (new - old) as usize / 8).is_ok());
    assert!(pool.words(old, (new - old) as usize / 8 + 1).is_err());
    assert_eq!(pool.grow(old).unwrap(), new, "never shrinks");
    let too_large = pool.grow(1 << 30).unwrap_err();
    assert!(matches!(too_large, PmError::Full { .. }), "{too_large}");
    pool.kill();
    assert_eq!(open(&space).len(), new);
}

#[test]
fn memory_pools_grow_by_themselves_up_to_their_maximum() {
    let opts = tiny().max_size(1 << 20);
    let pool = Pool::create_in_memory(&opts, |mapped| mapped).unwrap();
    let old = pool.len();
    assert!(pool.grow_for(1).unwrap() && pool.len() > old);
    while pool.grow_for(1).unwrap() {}
    assert!(pool.len() <= 1 << 20 && pool.len() > (1 << 20) - (64 << 10), "{}", pool.len());
    let fixed = Pool::volatile(64 << 10).unwrap();
    assert!(!fixed.grow_for(1).unwrap());
}

#[test]
fn options_no_pool_can_have_are_refused() {
    for opts in [
        tiny().zone_bytes(1000),
        tiny().zone_bytes(4 << 30),
        tiny().slots(0),
        tiny().slots(1 << 20),
        tiny().slot_bytes(100),
        tiny().size(u64::MAX),
    ] {
        let error = Pool::create_in_memory(&opts, |mapped| mapped).unwrap_err();
        assert!(matches!(error, PmError::BadOption { .. }), "{error}");
    }
}

#[test]
fn a_dirty_shutdown_of_a_pool_in_use_is_refused_unless_accepted() {
    let space = space();
    let counted = |dirty_shutdowns, opts: &PoolOptions| {
        let parts = PoolParts { dirty_shutdowns, ..PoolParts::memory(space.region(), true) };
        Pool::open_on(parts, space.medium(), opts)
    };
    create(&space).close().unwrap();
    counted(3, &tiny()).unwrap().close().unwrap(); // closed before the power failed: harmless
    counted(4, &tiny()).unwrap().kill();
    counted(4, &tiny()).unwrap().kill(); // no power failure
    let refused = counted(5, &tiny());
    assert!(matches!(refused, Err(OpenFault::DirtyShutdown { recorded: 4, found: 5 })));
    counted(5, &tiny().accept_dirty_shutdown(true)).unwrap().kill();
    counted(5, &tiny()).unwrap().kill();
}

#[test]
fn an_index_is_open_once() {
    let pool = create(&space());
    let entry = add(&pool, "a", 1).unwrap();
    add(&pool, "b", 2).unwrap();
    let open = pool.open_index("a").unwrap().unwrap();
    assert_eq!((open.root::<Block>().offset(), open.id), (entry.block(), entry.id));
    let refused = PmError::AlreadyOpen { what: "index \"a\"".into() };
    assert_eq!(pool.open_index("a").map(drop), Err(refused.clone()));
    assert_eq!(pool.drop_root("a"), Err(refused.clone()));
    let undone = pool.undo_create_index("a", |_| panic!("it is somebody else's"));
    assert_eq!(undone, Ok(false));
    assert!(pool.open_index("c").unwrap().is_none() && pool.open_index("b").unwrap().is_some());

    // A part of an index has a root of its own, and is likewise open only once.
    let part = PPtr::<Block>::new(entry.block() + 64);
    let claimed = open.part(part).unwrap();
    assert_eq!(claimed.root::<Block>(), part);
    let again = PmError::AlreadyOpen { what: "a part of index \"a\"".into() };
    assert_eq!(open.part(part).map(drop), Err(again));
    let what = "a log at offset 0x4000".into();
    let claim = pool.claim_block(0x4000, "a log").unwrap();
    assert_eq!(pool.claim_block(0x4000, "a log").map(drop), Err(PmError::AlreadyOpen { what }));
    drop((claimed, claim));
    drop(pool.claim_block(part.offset(), "a part").unwrap());

    drop(open);
    assert_eq!(pool.undo_create_index("a", |_| Ok(false)), Ok(false));
    assert_eq!(pool.undo_create_index("a", |_| Ok(true)), Ok(true));
    assert!(pool.drop_root("b").unwrap() && pool.indexes().unwrap().is_empty());
    let created = pool.create_index::<Block>("a", *b"blocks  ", 7, |block| pool.pm().flush(block));
    assert_eq!(pool.open_index("a").map(drop), Err(refused), "open from its creation on");
    drop(created.unwrap());
    assert!(pool.open_index("a").unwrap().is_some());
}
