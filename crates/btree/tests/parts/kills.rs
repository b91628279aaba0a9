//! A process with a map of ten times its frames, killed at any moment, again and again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;

use pmindex_btree::PagedMap;
use pmindex_buffer::{Buffer, BufferOptions};
use pmindex_core::{Pool, PoolOptions};
use pmindex_wal::sim::mix;
use pmindex_wal::{FileDisk, SyncMethod};

/// The rounds of [`kill_nine_in_a_loop`]; more with `PMINDEX_KILLS`.
const KILLS: u64 = 4;
/// Set in the process that is killed: the folder of its files.
const VICTIM: &str = "PMINDEX_VICTIM";
/// Pages of the disk; the records need ten times as many as there are frames.
const MANY: u64 = 1000;
const FRAMES: u64 = 40;

fn victims_map(folder: &std::path::Path) -> PagedMap<u64, Vec<u8>> {
    let pools = PoolOptions::new().size(2 << 20).grow(false).emulate_pm(true);
    let (file, pages) = (folder.join("pool"), folder.join("pages"));
    let is_new = !file.exists();
    if is_new {
        let file = std::fs::File::create(&pages).expect("a file");
        FileDisk::create(&file, MANY * 4096).expect("room");
    }
    let disk = Arc::new(FileDisk::open(&pages, SyncMethod::Sync).expect("a disk"));
    let options = BufferOptions::new(FRAMES);
    let buffer = if is_new {
        let pool = Arc::new(Pool::create(&file, &pools).expect("a pool"));
        Buffer::create(&pool, "pages", disk, &options).expect("a buffer")
    } else {
        let pool = Arc::new(Pool::open(&file, &pools).expect("the pool"));
        Buffer::open(&pool, "pages", disk, &options).expect("no failure").expect("the buffer")
    };
    PagedMap::open(&Arc::new(buffer), "map").expect("the map")
}

/// The value of a key after this many writes of its owner.
fn value_of(key: u64, write: u64) -> Vec<u8> {
    let mut value = vec![mix(key ^ write) as u8; 200 + (mix(write) % 90) as usize];
    value[..8].copy_from_slice(&write.to_le_bytes());
    value
}

const VICTIM_KEYS: u64 = 5000;

/// Writes until it is killed, and reports each write that was acknowledged.
#[test]
fn victim() {
    let Ok(folder) = std::env::var(VICTIM) else { return };
    let map = victims_map(folder.as_ref());
    let first = map.get(&u64::MAX).unwrap().map_or(1, |last| u64_of(&last) + 1);
    let mut out = std::io::stdout().lock();
    for write in first.. {
        let key = mix(write) % VICTIM_KEYS;
        map.transact(|tx| {
            map.put_in(tx, &u64::MAX, &value_of(u64::MAX, write))?;
            map.put_in(tx, &key, &value_of(key, write))
        })
        .unwrap();
        if write % 256 == 0 {
            map.buffer().checkpoint().unwrap();
        }
        assert!(map.buffer().log_bytes() < 1 << 20, "the log grows");
        writeln!(out, "write {write}").unwrap();
    }
}

fn u64_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("8 bytes"))
}

/// Kills a process that writes ten times as much as its pool has frames for, at any moment, again and again.
/// What it acknowledged is there each time; the log was cut meanwhile, and no file has grown.
#[test]
fn kill_nine_in_a_loop() {
    let rounds = std::env::var("PMINDEX_KILLS").ok().and_then(|rounds| rounds.parse().ok());
    let folder = tempfile::tempdir().unwrap();
    let (mut last, mut model, mut sizes) = (0, BTreeMap::new(), None);
    for round in 0..rounds.unwrap_or(KILLS) {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["kills::victim", "--exact", "--nocapture"])
            .env(VICTIM, folder.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let acknowledged = BufReader::new(child.stdout.take().unwrap()).lines();
        let upto = last + 1500 + mix(round) % 3000;
        for line in acknowledged {
            let Some(write) = line.unwrap().strip_prefix("write ").map(str::parse::<u64>) else {
                continue;
            };
            last = write.unwrap();
            if last >= upto {
                child.kill().unwrap(); // SIGKILL; lines that are still in the pipe are read
            }
        }
        child.wait().unwrap();
        assert!(last >= upto, "the process failed by itself");
        let map = victims_map(folder.path());
        let done = map.get(&u64::MAX).unwrap().map_or(0, |value| u64_of(&value));
        assert!(done == last || done == last + 1, "{last} were acknowledged, {done} are there");
        let known = model.values().max().copied().unwrap_or(0);
        for write in known + 1..=done {
            model.insert(mix(write) % VICTIM_KEYS, write);
        }
        last = done;
        for (key, write) in &model {
            assert_eq!(map.get(key).unwrap(), Some(value_of(*key, *write)), "key {key}");
        }
        assert_eq!(map.check().unwrap(), model.len() as u64 + 1);
        drop(map);
        let bytes = |name| std::fs::metadata(folder.path().join(name)).unwrap().len();
        let now = ["pool", "pages"].map(bytes);
        assert_eq!(*sizes.get_or_insert(now), now, "a file has grown");
    }
}
