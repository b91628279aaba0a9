//! Tests outside of the crash explorer: errors, streams, damage, threads.

use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use pmindex_core::{PmError, Pool, PoolOptions};

use super::*;

fn env(bytes: usize) -> Env {
    let pool = Arc::new(Pool::emulated(bytes).unwrap());
    Env::open_or_create(&pool, "files").unwrap()
}

fn audit(env: &Env) {
    env.pool().audit(env.blocks().into_iter()).unwrap();
}

#[test]
fn a_file_has_what_was_appended_to_it_and_any_part_of_it_can_be_read() {
    let env = env(16 << 20);
    let file = env.create_file("numbers").unwrap();
    let mut all = Vec::new();
    for n in 0..400_usize {
        let piece: Vec<u8> = (0..n * 3 % 701).map(|at| (at + n) as u8).collect();
        file.append(&piece).unwrap();
        all.extend(piece);
    }
    assert_eq!((file.len(), file.read_all().unwrap()), (all.len() as u64, all.clone()));
    for from in (0..all.len()).step_by(997) {
        let mut piece = vec![0; 1 + from % 5000];
        let read = file.read_at(from as u64, &mut piece).unwrap();
        assert_eq!(piece[..read], all[from..(from + piece.len()).min(all.len())], "from {from}");
    }
    assert_eq!(file.read_at(all.len() as u64 + 9, &mut [0; 4]).unwrap(), 0);
    audit(&env);
}

#[test]
fn a_file_is_a_stream() {
    let env = env(8 << 20);
    let mut writer = BufWriter::new(env.create_file("text").unwrap());
    for n in 0..1000 {
        writeln!(writer, "line {n}").unwrap();
    }
    writer.flush().unwrap();
    let mut reader = env.open_file("text").unwrap().reader();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!((text.lines().count(), text.lines().last()), (1000, Some("line 999")));
    reader.seek(SeekFrom::End(-4)).unwrap();
    text.clear();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "999\n");
    assert!(reader.seek(SeekFrom::Current(-9999)).is_err());
}

#[test]
fn each_mistake_has_its_error() {
    let env = env(8 << 20);
    let long = "x".repeat(NAME_MAX + 1);
    assert_eq!(env.create_file(&long).unwrap_err(), EnvError::BadName { len: NAME_MAX + 1 });
    assert_eq!(env.create_file("").unwrap_err(), EnvError::BadName { len: 0 });
    let missing = EnvError::NoSuchFile { name: "a".into() };
    assert_eq!(env.open_file("a").unwrap_err(), missing);
    assert_eq!(env.delete("a").unwrap_err(), missing);
    assert_eq!(env.rename("a", "b").unwrap_err(), missing);
    let longest = &long[..NAME_MAX];
    env.create_file(longest).unwrap().append(b"1").unwrap();
    env.rename(longest, "b").unwrap();
    assert_eq!(env.list(""), ["b"]);
    let locked = env.lock("LOCK").unwrap();
    assert_eq!(env.lock("LOCK").unwrap_err(), EnvError::Locked { name: "LOCK".into() });
    drop(locked);
    let _locked = env.lock("LOCK").unwrap();
    let taken = Env::create(env.pool(), "files", &EnvOptions::new()).unwrap_err();
    assert_eq!(taken, EnvError::Pool(PmError::NameTaken { name: "files".into() }));
}

#[test]
fn a_full_pool_refuses_and_a_delete_makes_room() {
    let env = env(2 << 20);
    let first = env.create_file("first").unwrap();
    first.append(&vec![1; 300_000]).unwrap();
    let second = env.create_file("second").unwrap();
    let mut appended = 0;
    let error = loop {
        match second.append(&[2; 5000]) {
            Ok(()) => appended += 5000,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, EnvError::Pool(PmError::Full { .. })), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(second.read_all().unwrap(), vec![2; appended]);
    audit(&env);
    env.delete("first").unwrap();
    assert!(second.append(&[2; 5000]).is_err(), "somebody has it open");
    assert_eq!(first.read_all().unwrap(), vec![1; 300_000]);
    drop(first);
    second.append(&[2; 5000]).unwrap();
    audit(&env);
}

#[test]
fn files_are_there_again_and_many_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let options = PoolOptions::new().size(8 << 20);
    let pool = Arc::new(Pool::create(&path, &options).unwrap());
    let env = Env::open_or_create(&pool, "files").unwrap();
    let open = env.create_file("file 7").unwrap();
    for n in 0..200 {
        let file = env.open_or_create_file(&format!("file {n}")).unwrap();
        file.append(format!("this is {n}").as_bytes()).unwrap();
    }
    for n in (0..200).step_by(3) {
        env.delete(&format!("file {n}")).unwrap();
    }
    env.delete("file 7").unwrap();
    // A process was killed while it had a deleted file open.
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    drop((open, env, pool));
    let pool = Arc::new(Pool::open(&copy, &options).unwrap());
    let env = Env::open(&pool, "files", &EnvOptions::new()).unwrap().unwrap();
    let left = (0..200).filter(|n| n % 3 != 0 && *n != 7);
    let mut names: Vec<String> = left.clone().map(|n| format!("file {n}")).collect();
    names.sort();
    assert_eq!(env.list("file "), names);
    for n in left {
        let file = env.open_file(&format!("file {n}")).unwrap();
        assert_eq!(file.read_all().unwrap(), format!("this is {n}").into_bytes());
    }
    env.check().unwrap();
    audit(&env);
}

/// A flipped bit anywhere in the environment's metadata is reported, or changes nothing.
#[test]
fn damage_is_told_and_never_read() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let options = EnvOptions::new().extents(128..=256);
    let env = Env::create(&pool, "files", &options).unwrap();
    for name in ["one", "a name of more than one word", "three"] {
        env.create_file(name).unwrap().append(&[7; 600]).unwrap();
    }
    let blocks = env.blocks();
    drop(env);
    let mut told = 0;
    for block in blocks {
        let size = pool.block_size(pmindex_core::PPtr::<pmindex_core::PmU64>::new(block)).unwrap();
        // The heads of blocks; the rest is the contents of files.
        for cell in pool.words(block, size.min(64) as usize / 8).unwrap() {
            use pmindex_core::Medium;
            let word = pool.pm().load_word(cell);
            for bit in [0, 3, 17, 40, 63] {
                pool.pm().store_word(cell, word ^ 1 << bit);
                let opened = Env::open(&pool, "files", &options);
                told += u32::from(match opened.map(Option::unwrap) {
                    Err(EnvError::Pool(PmError::Corrupt { .. })) => true,
                    Err(error) => panic!("{error}"),
                    Ok(env) => env.list("").iter().any(|name| match env.open_file(name) {
                        Err(EnvError::Pool(PmError::Corrupt { .. })) => true,
                        Err(error) => panic!("{name}: {error}"),
                        Ok(file) => {
                            assert_eq!(file.read_all().unwrap(), [7; 600], "{name}");
                            false
                        }
                    }),
                });
                pool.pm().store_word(cell, word);
            }
        }
    }
    assert!(told > 100, "{told}");
}

#[test]
fn who_reads_sees_whole_appends() {
    let env = env(16 << 20);
    let file = env.create_file("log").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..5000_u64 {
                let record: Vec<u8> = n.to_le_bytes().iter().copied().cycle().take(24).collect();
                file.append(&record).unwrap();
            }
            is_over.store(true, Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut next, mut record) = (0, [0; 24]);
                while !(is_over.load(Acquire) && next * 24 == file.len()) {
                    let read = file.read_at(next * 24, &mut record).unwrap();
                    assert!(read.is_multiple_of(24), "half a record");
                    if read == 24 {
                        assert!(record.chunks(8).all(|word| word == next.to_le_bytes()));
                        next += 1;
                    }
                }
                assert_eq!(next, 5000);
            });
        }
    });
    audit(&env);
}
