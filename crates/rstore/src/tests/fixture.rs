//! Partitions of released formats open for ever: pools that earlier versions wrote, as `tests/facade/fixtures.rs`
//! has them of indexes. One was closed, of the other the process was killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex_core::{Pool, PoolOptions};

use crate::{Batch, Options, Partition};

fn options() -> PoolOptions {
    let options = PoolOptions::new().size(192 << 10).zone_bytes(64 << 10).slots(2).slot_bytes(1024);
    options.uuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677).grow(false).write_back(false)
}

fn image_path(version: u32, closed: bool) -> PathBuf {
    let name = if closed { "closed" } else { "killed" };
    let name = format!("rstore-v{version}-{name}.txt");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/images").join(name)
}

fn encode(bytes: &[u8]) -> String {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let mut lines = vec![format!("{:x}\n", bytes.len())];
    for (line, words) in words.chunks(8).enumerate().filter(|(_, w)| w.iter().any(|&w| w != 0)) {
        let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
        lines.push(format!("{:x}: {}\n", line * 64, words.join(" ")));
    }
    lines.concat()
}

fn decode(text: &str) -> Vec<u8> {
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let mut lines = text.lines();
    let mut bytes = vec![0; number(lines.next().expect("a length")) as usize];
    for line in lines {
        let (offset, words) = line.split_once(": ").expect("an offset");
        for (i, word) in words.split(' ').enumerate() {
            let at = number(offset) as usize + 8 * i;
            bytes[at..at + 8].copy_from_slice(&number(word).to_le_bytes());
        }
    }
    bytes
}

/// Key, value (none: removed), expiry.
type Write = (Vec<u8>, Option<Vec<u8>>, Option<u64>);
type Map = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Puts, removals, expiries, a batch, large values, blocks that were collected.
fn writes() -> Vec<Write> {
    let key = |n: u64| format!("{}{n}", "key ".repeat(n as usize % 5)).into_bytes();
    let value = |n: u64| vec![n as u8; (n * n % 130) as usize];
    let mut all = Vec::new();
    for n in 0..400 {
        let of = n * 37 % 60;
        let expiry = (of % 4 == 1).then_some(1_000_000 + of);
        all.push((key(of), (n % 7 > 0).then(|| value(n)), expiry));
    }
    all.extend(
        [(key(3), 3000), (key(4), 9000), (key(3), 5000)]
            .map(|(k, len)| (k, Some((0..len).map(|at: u32| at as u8).collect()), None)),
    );
    all
}

fn make(closed: bool, path: &Path) {
    let pool = Arc::new(Pool::create(path, &options()).expect("created"));
    let small = Options::new().block_bytes(2048).capacity(80 << 10).fill_below(u64::MAX);
    let mut partition = Partition::create(&pool, "p", &small).expect("room");
    for chunk in writes().chunks(3) {
        let mut batch = Batch::new();
        for (key, value, expiry) in chunk {
            match value {
                Some(value) => batch.put(key, value, *expiry),
                None => batch.remove(key),
            };
        }
        partition.write(&batch).expect("room");
        partition.commit().expect("room");
    }
    assert!(partition.stats().filled_bytes > 0, "no record is in a hole");
    if closed {
        partition.close().expect("room");
        Arc::into_inner(pool).expect("the only one").close().expect("closed");
        return;
    }
    let image = fs::read(path).expect("readable");
    drop((partition, pool));
    fs::write(path, image).expect("written");
}

fn opens(version: u32, closed: bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    if !image_path(version, closed).exists() {
        make(closed, &path);
        fs::write(image_path(version, closed), encode(&fs::read(&path).expect("readable")))
            .expect("written");
        panic!("the image is new: check it in, and run this again");
    }
    let image = fs::read_to_string(image_path(version, closed)).expect("an image");
    fs::write(&path, decode(&image)).expect("written");
    let mut map = Map::new();
    for (key, value, expiry) in writes() {
        match value {
            Some(value) => drop(map.insert(key, (value, expiry))),
            None => drop(map.remove(&key)),
        }
    }
    for round in 0..2 {
        let pool = Arc::new(Pool::open(&path, &options()).expect("opened"));
        let (mut partition, recovery) =
            Partition::open(&pool, "p", &Options::new()).expect("opened");
        assert_eq!(recovery.replayed > 0, !closed && round == 0, "{recovery:?}");
        let mut found = Map::new();
        let mut backup = partition.backup().expect("room");
        while partition
            .back_up(&mut backup, &mut |key, value, expiry| {
                found.insert(key.into(), (value.into(), expiry));
            })
            .expect("sound")
        {}
        assert_eq!(found, map);
        partition.check().expect("sound");
        pool.audit(partition.all_blocks().expect("sound").into_iter()).expect("no leaks");
        partition.put(b"another", b"one", None).expect("room");
        map.insert(b"another".to_vec(), (b"one".to_vec(), None));
        partition.close().expect("room");
        Arc::into_inner(pool).expect("the only one").close().expect("closed");
    }
}

#[test]
fn a_closed_partition_of_each_format_opens() {
    opens(1, true);
    opens(2, true);
}

#[test]
fn a_partition_of_each_format_whose_process_was_killed_opens() {
    opens(1, false);
    opens(2, false);
}
