//! Pools in files: opening and closing, locks, growth.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::cell::PmU64;
use crate::error::{OpenError, PmError};
use crate::media::Medium;
use crate::pool::file::PoolFile;
use crate::pool::path::Backing;
use crate::pool::{Pool, Writer};
use crate::ptr::{PPtr, PmPtr};

use super::{Block, Place, add, tiny, value_of};

#[test]
fn a_pool_file_is_created_closed_and_opened() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    add(&pool, "a", 1).unwrap();
    let (uuid, len) = (pool.uuid(), pool.len());
    assert_ne!(uuid, 0);
    assert_eq!(pool.path(), place.path());
    assert_eq!(fs::metadata(place.path()).unwrap().len(), len);
    pool.close().unwrap();
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    assert!(pool.was_clean() && pool.generation() == 2);
    assert_eq!((pool.uuid(), pool.len()), (uuid, len));
    assert_eq!(value_of(&pool, "a"), Some(1));
    pool.kill();
    let pool = Pool::open_or_create(place.path(), &tiny()).unwrap();
    assert!(!pool.was_clean() && pool.generation() == 3);
    assert_eq!(value_of(&pool, "a"), Some(1));
    let names: Vec<_> = fs::read_dir(place.directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
}

#[test]
fn the_file_is_allocated_private_and_named_only_when_complete() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    let facts = fs::metadata(place.path()).unwrap();
    assert_eq!(facts.permissions().mode() & 0o777, 0o600);
    assert!(facts.blocks() * 512 >= pool.len(), "a full disk must be an error, not a SIGBUS");
    drop(pool);
    let impossible = tiny().flush_instruction(if cfg!(target_arch = "x86_64") {
        crate::FlushInstruction::DcCvap
    } else {
        crate::FlushInstruction::Clwb
    });
    let other = place.directory.path().join("other");
    assert!(Pool::create(&other, &impossible).is_err());
    assert!(!other.exists(), "a creation that fails leaves nothing");
}

#[test]
fn the_writer_of_a_pool_is_found_while_it_has_the_pool_open() {
    let place = Place::new().with_pool();
    assert_eq!(Writer::of(place.path()), None);
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    let writer = Writer::of(place.path()).unwrap();
    assert_eq!(writer.process, std::process::id());
    assert_eq!(writer.to_string(), format!("process {} ({})", writer.process, writer.name));
    let old = fs::metadata(place.path()).unwrap();
    fs::rename(place.path(), place.directory.path().join("away")).unwrap();
    assert_eq!(Writer::of(place.path()), None);
    assert_eq!(Writer::of_file(&old), Some(writer));
    drop(pool);
    assert_eq!(Writer::of_file(&old), None);
    // A reader is no writer.
    let away = place.directory.path().join("away");
    let _reader = Pool::open(&away, &tiny().read_only(true)).unwrap();
    assert_eq!(Writer::of(&away), None);
}

#[test]
fn a_second_opener_is_refused_and_readers_share() {
    let place = Place::new().with_pool();
    let locked = |result: Result<Pool, OpenError>| matches!(result, Err(OpenError::Locked { .. }));
    let reading = tiny().read_only(true);
    let writer = Pool::open(place.path(), &tiny()).unwrap();
    assert!(locked(Pool::open(place.path(), &tiny())));
    assert!(locked(Pool::open(place.path(), &reading)));
    drop(writer);
    let reader = Pool::open(place.path(), &reading).unwrap();
    let other = Pool::open(place.path(), &reading).unwrap();
    assert!(locked(Pool::open(place.path(), &tiny())));
    drop((reader, other));
    assert!(Pool::open(place.path(), &tiny()).is_ok());
}

#[test]
fn reading_only_never_writes_the_file_not_even_to_recover() {
    let place = Place::new().with_pool();
    Pool::open(place.path(), &tiny()).unwrap().kill(); // unclean from now on
    let before = fs::read(place.path()).unwrap();
    let pool = Pool::open(place.path(), &tiny().read_only(true)).unwrap();
    assert!(pool.is_read_only() && !pool.was_clean());
    assert_eq!(value_of(&pool, "a"), Some(1));
    assert_eq!(add(&pool, "b", 2), Err(PmError::ReadOnly));
    assert_eq!(pool.drop_root("a"), Err(PmError::ReadOnly));
    assert_eq!(pool.grow(1 << 20), Err(PmError::ReadOnly));
    assert_eq!(pool.check_writable(), Err(PmError::ReadOnly));
    {
        let _recovering = pool.recovery();
        assert!(pool.pm().fence(crate::Flushed::nothing()).is_ok());
        add(&pool, "b", 2).unwrap(); // in the private copy
        assert_eq!(value_of(&pool, "b"), Some(2));
    }
    assert_eq!(pool.check_writable(), Err(PmError::ReadOnly));
    assert!(pool.pm().fence(crate::Flushed::nothing()).is_err(), "who did not ask is refused");
    pool.close().unwrap();
    assert!(fs::read(place.path()).unwrap() == before, "the file was written");
}

#[test]
fn only_the_thread_that_recovers_may_write_to_a_pool_that_is_open_for_reading() {
    let place = Place::new().with_pool();
    let pool = Pool::open(place.path(), &tiny().read_only(true)).unwrap();
    let other = Pool::open(place.path(), &tiny().read_only(true)).unwrap();
    let refused = |pool: &Pool| {
        assert_eq!(pool.check_writable(), Err(PmError::ReadOnly));
        assert_eq!(add(pool, "b", 2), Err(PmError::ReadOnly));
        assert!(pool.pm().fence(crate::Flushed::nothing()).is_err());
    };
    let recovery = pool.recovery();
    let pass = recovery.pass();
    std::thread::scope(|scope| {
        scope.spawn(|| refused(&pool)).join().unwrap();
        let helper = scope.spawn(|| {
            let recovery = pass.enter();
            assert_eq!(pool.check_writable(), Ok(()));
            assert!(pool.pm().fence(crate::Flushed::nothing()).is_ok());
            drop(recovery);
            refused(&pool);
        });
        helper.join().unwrap();
    });
    refused(&other);
    assert_eq!(pool.check_writable(), Ok(()));
    let inner = pool.recovery();
    drop(recovery);
    assert_eq!(pool.check_writable(), Ok(()), "scopes may overlap");
    drop(inner);
    refused(&pool);
}

#[test]
fn links_are_followed_to_open_and_refused_to_create() {
    let place = Place::new().with_pool();
    let link = place.directory.path().join("link");
    symlink(place.path(), &link).unwrap();
    assert_eq!(value_of(&Pool::open(&link, &tiny()).unwrap(), "a"), Some(1));
    let exists = |path: &std::path::Path| {
        matches!(Pool::create(path, &tiny()), Err(OpenError::AlreadyExists { .. }))
    };
    assert!(exists(&link) && exists(&place.path()));
    let dangling = place.directory.path().join("dangling");
    symlink(place.directory.path().join("elsewhere"), &dangling).unwrap();
    assert!(exists(&dangling) && !place.directory.path().join("elsewhere").exists());
    let nothing = Pool::open(&dangling, &tiny());
    assert!(matches!(nothing, Err(OpenError::NotFound { .. })));
}

#[test]
fn a_file_grows_in_place() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    let entry = add(&pool, "a", 1).unwrap();
    let block = pool.get(PPtr::<Block>::new(entry.block())).unwrap();
    let old = pool.len();
    let new = pool.grow(1 << 20).unwrap();
    assert_eq!((pool.len(), fs::metadata(place.path()).unwrap().len()), (new, new));
    assert_eq!(pool.pm().load(&block[0]), 1, "nothing moved");
    let words = pool.words(old, (new - old) as usize / 8).unwrap();
    assert!(words.iter().all(|word| pool.pm().load(word) == 0));
    pool.pm().store(&words[words.len() - 1], 9);
    pool.kill();
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    assert_eq!((pool.len(), value_of(&pool, "a")), (new, Some(1)));
    assert_eq!(pool.pm().load(&pool.words(new - 8, 1).unwrap()[0]), 9);
}

#[test]
fn growth_that_was_interrupted_is_legal_and_repeated() {
    let place = Place::new().with_pool();
    let mut bytes = fs::read(place.path()).unwrap();
    let old = bytes.len();
    bytes.resize(old + 100_000, 0xaa); // longer than the superblock says, and not zero
    fs::write(place.path(), &bytes).unwrap();
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    assert_eq!(pool.len(), old as u64);
    let new = pool.grow(old as u64 + 1).unwrap();
    let words = pool.words(old as u64, (new as usize - old) / 8).unwrap();
    assert!(words.iter().all(|word| pool.pm().load(word) == 0), "new zones read as zeros");
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn growth_stops_at_the_maximum_and_where_it_is_forbidden() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny().max_size(256 << 10)).unwrap();
    while pool.grow_for(1).unwrap() {}
    assert!(pool.len() <= 256 << 10 && pool.len() > 192 << 10, "{}", pool.len());
    assert!(matches!(pool.grow(300 << 10), Err(PmError::Full { .. })));
    drop(pool);
    let pool = Pool::open(place.path(), &tiny().grow(false)).unwrap();
    assert!(!pool.grow_for(1).unwrap());
    assert!(matches!(pool.grow(300 << 10), Err(PmError::Full { .. })));
}

#[test]
fn who_else_has_the_descriptor_of_a_closed_pool_locks_nobody_out() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    // A child process holds the descriptor until it executes its program.
    let copy = rustix::io::dup(pool.backing.as_ref().and_then(Backing::fd).unwrap()).unwrap();
    pool.close().unwrap();
    Pool::open(place.path(), &tiny()).unwrap();
    drop(copy);
    // An opening that is refused halfway also releases its lock.
    let file = PoolFile::open(&place.path(), false).unwrap();
    let copy = rustix::io::dup(file.fd().unwrap()).unwrap();
    drop(file);
    Pool::open(place.path(), &tiny()).unwrap();
    drop(copy);
}

#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_not_the_pool() {
    let place = Place::new();
    Pool::create(place.path(), &tiny()).unwrap().close().unwrap();
    let replace = || {
        let new = place.directory.path().join("new");
        fs::copy(place.path(), &new).unwrap();
        fs::rename(new, place.path()).unwrap();
    };
    let file = PoolFile::open_unlocked(&place.path(), false).unwrap();
    assert!(file.has_its_name().unwrap());
    replace();
    assert!(!file.has_its_name().unwrap());
    drop(file);
    // One thread replaces the file while it has the lock; the next one that gets the lock has the new file.
    let locked = || loop {
        match PoolFile::open(&place.path(), false) {
            Err(OpenError::Locked { .. }) => std::thread::yield_now(),
            file => return file.unwrap(),
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                let _old = locked();
                replace();
            }
        });
        for _ in 0..300 {
            assert!(locked().has_its_name().unwrap());
        }
    });
}

#[test]
fn a_full_file_system_is_an_error_and_changes_nothing() {
    let Some(place) = Place::tmpfs() else { return };
    let huge = 64 << 40; // 64 TiB: more than any tmpfs has
    let error = Pool::create(place.path(), &tiny().size(32 << 40).zone_bytes(1 << 30)).unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert!(!place.path().exists());
    let opts = tiny().max_size(huge);
    let pool = Pool::create(place.path(), &opts).unwrap();
    if pool.max_size() < 33 << 40 {
        return; // the system does not give that much address space
    }
    let (len, error) = (pool.len(), pool.grow(32 << 40).unwrap_err());
    assert!(matches!(error, PmError::NoSpace { .. }), "{error}");
    assert_eq!((pool.len(), fs::metadata(place.path()).unwrap().len()), (len, len));
    add(&pool, "a", 1).unwrap();
    assert!(pool.grow(len + 1).unwrap() > len);
}

#[test]
fn many_pools_are_open_at_once() {
    let place = Place::new();
    let path = |i: u64| place.directory.path().join(i.to_string());
    let opts = tiny().write_back(false); // independent of the disk
    let pools: Vec<_> = (0..40).map(|i| Pool::create(path(i), &opts).unwrap()).collect();
    for (i, pool) in (0..).zip(&pools) {
        add(pool, "a", i).unwrap();
    }
    drop(pools);
    for i in 0..40 {
        assert_eq!(value_of(&Pool::open(path(i), &opts).unwrap(), "a"), Some(i));
    }
}

#[test]
fn of_many_creators_one_gets_the_pool_and_nobody_a_half_made_one() {
    let place = Place::new();
    let opts = tiny().write_back(false); // independent of the disk
    for _ in 0..20 {
        let winners = std::thread::scope(|scope| {
            let open = || Pool::open_or_create(place.path(), &opts);
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            let (pools, errors): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
            for error in errors.into_iter().filter_map(Result::err) {
                assert!(matches!(error, OpenError::Locked { .. }), "{error}");
            }
            pools.len()
        });
        assert_eq!(winners, 1);
        fs::remove_file(place.path()).unwrap();
    }
}

#[test]
fn a_counting_medium_works_on_a_file() {
    let place = Place::new();
    let opts = tiny().emulate_pm(true);
    let pool = Pool::create_with(place.path(), &opts, crate::Mapped::counting).unwrap();
    assert!(pool.pm().counter().expect("it counts").counts().fences > 0);
    assert_eq!(pool.durability(), crate::Durability::Flush);
}

#[test]
fn the_allocator_grows_the_file_from_many_threads() {
    type Large = [PmU64; 512];
    type Cells = [PmPtr<Large>; 128];
    let place = Place::new();
    let opts = tiny().write_back(false).max_size(8 << 20); // independent of the disk
    let pool = Pool::create(place.path(), &opts).unwrap();
    let cells = pool
        .create_index::<Cells>("cells", *b"cells   ", 0, |cells| {
            for cell in cells {
                pool.pm().store(cell, PPtr::NULL);
            }
            pool.pm().flush(cells)
        })
        .unwrap();
    let (old, cells) = (pool.len(), pool.get(cells.root::<Cells>()).unwrap());
    std::thread::scope(|scope| {
        for part in cells.chunks(32) {
            let pool = &pool;
            scope.spawn(move || {
                for cell in part {
                    let fill = |block: &Large| {
                        pool.pm().store(&block[511], pool.pptr(cell).offset());
                        pool.pm().flush(block)
                    };
                    pool.alloc_into(cell, fill).unwrap();
                }
            });
        }
    });
    let grown = pool.len();
    assert!(grown >= old + 128 * 4096 && grown < old + 3 * 128 * 4096, "{old} -> {grown}");
    pool.kill();
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!(pool.len(), grown);
    let root = pool.open_index("cells").unwrap().unwrap().root::<Cells>();
    for cell in pool.get(root).unwrap() {
        let block = pool.get(pool.pm().load(cell)).unwrap();
        assert_eq!(pool.pm().load(&block[511]), pool.pptr(cell).offset());
    }
}

#[test]
fn a_full_file_system_stops_the_allocator_and_nothing_else() {
    let Some(place) = Place::tmpfs() else { return };
    let small = place.directory.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "none"])
        .arg(&small)
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("skipped: only the superuser can mount a small file system");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let pool = Pool::create(small.join("pool"), &tiny()).unwrap();
        let mut last = 0;
        let error = (0..64).find_map(|i| {
            let name = format!("{i}");
            let filled = pool.create_index::<[PmU64; 1024]>(&name, *b"large   ", 0, |block| {
                pool.pm().flush(block)
            });
            last = i;
            filled.err()
        });
        assert!(matches!(error, Some(PmError::NoSpace { .. })), "{error:?}");
        assert_eq!(pool.indexes().unwrap().len(), last);
        assert!(pool.drop_root("0").unwrap());
        add(&pool, "small", 7).unwrap();
        pool.kill();
        let pool = Pool::open(small.join("pool"), &tiny()).unwrap();
        assert_eq!(value_of(&pool, "small"), Some(7));
        let error = Pool::create(small.join("other"), &tiny().size(1 << 20)).unwrap_err();
        assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    });
    let unmounted = std::process::Command::new("umount").arg(&small).status();
    assert!(outcome.is_ok() && unmounted.is_ok_and(|status| status.success()));
}

#[test]
fn a_pool_in_use_can_be_looked_at() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny().uuid(7)).unwrap();
    add(&pool, "a", 1).unwrap();
    assert!(matches!(
        Pool::open(place.path(), &tiny().read_only(true)),
        Err(OpenError::Locked { .. })
    ));
    let before = fs::read(place.path()).unwrap();
    let peek = Pool::peek(place.path()).unwrap();
    assert_eq!((peek.uuid, peek.generation, peek.clean, peek.len), (7, 1, false, pool.len()));
    assert_eq!(peek.indexes, pool.indexes().unwrap());
    assert_eq!(peek.durability, pool.medium_durability());
    assert!(!peek.superblock_damaged && peek.damaged_entries == 0);
    add(&pool, "b", 2).unwrap();
    pool.grow(1 << 20).unwrap();
    let peek = Pool::peek(place.path()).unwrap();
    assert_eq!((peek.indexes.len(), peek.len), (2, pool.len()));
    assert!(before != fs::read(place.path()).unwrap());
    let nowhere = Pool::peek(place.directory.path().join("none"));
    assert!(matches!(nowhere, Err(OpenError::NotFound { .. })));
    pool.close().unwrap();
    assert!(Pool::peek(place.path()).unwrap().clean);
}

#[test]
fn a_look_beside_a_writer_sees_whole_entries_only() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny().write_back(false)).unwrap();
    add(&pool, "always", 1).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..500 {
                add(&pool, &format!("now and then {round}"), round).unwrap();
                pool.drop_root(&format!("now and then {round}")).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut looks = 0;
        while !done.load(std::sync::atomic::Ordering::Acquire) || looks < 20 {
            let peek = Pool::peek(place.path()).unwrap();
            assert_eq!((peek.damaged_entries, peek.superblock_damaged), (0, false));
            assert_eq!(peek.indexes[0].name, "always");
            looks += 1;
        }
    });
}

#[test]
fn a_lost_copy_of_the_superblock_is_told() {
    for copy in [0, 4096] {
        let place = Place::new().with_pool();
        let mut bytes = fs::read(place.path()).unwrap();
        bytes[copy + 48] ^= 4;
        fs::write(place.path(), &bytes).unwrap();
        assert!(Pool::peek(place.path()).unwrap().superblock_damaged);
        let reader = Pool::open(place.path(), &tiny().read_only(true)).unwrap();
        assert!(reader.superblock_was_damaged());
        drop(reader);
        let pool = Pool::open(place.path(), &tiny()).unwrap();
        assert!(pool.superblock_was_damaged() && value_of(&pool, "a") == Some(1));
        pool.close().unwrap();
        let mended = Pool::open(place.path(), &tiny()).unwrap();
        assert!(!mended.superblock_was_damaged() && mended.was_clean());
    }
}
