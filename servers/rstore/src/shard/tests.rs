//! A partition under failures and at its limits, on one thread.

use std::path::Path;

use super::{Folder, Shard, Store};
use crate::command::table;
use crate::config::{DurabilityArg, Storage};
use crate::wire::{Protocol, Reply, Request};

const NOW: u64 = 1_000_000;

fn storage(dir: &Path, durability: DurabilityArg, capacity: u64) -> Storage {
    Storage {
        dir: dir.to_owned(),
        partitions: None,
        cluster: false,
        durability,
        twin: None,
        size: 16 << 20,
        capacity: Some(capacity),
        salvage: false,
    }
}

/// Opens the only partition of a folder.
fn open(storage: &Storage) -> Shard {
    let folder = Folder::open(storage).expect("a folder");
    folder.partition(storage, 0, None).expect("it opens").shard
}

/// Runs a command and returns its reply, without the end of the line.
fn run<T: AsRef<[u8]>>(shard: &mut Shard, words: &[T]) -> String {
    let request = Request::new(words.iter().map(AsRef::as_ref));
    let spec = table::find(request.args().at(0)).expect("a command");
    let mut out = Reply::new(Protocol::Resp2);
    shard.run(spec, request.args(), NOW, &mut out);
    String::from_utf8_lossy(&out.bytes).trim_end().to_owned()
}

fn line(shard: &mut Shard, words: &str) -> String {
    run(shard, &words.split(' ').collect::<Vec<_>>())
}

/// Makes the next fence fail.
fn fail_next(shard: &Shard) {
    let Store::Alone(engine) = &shard.store else { panic!("no group") };
    engine.pool().pm().fail_write_back_after(0);
}

#[test]
fn after_a_failed_commit_no_reply_shows_its_writes_and_no_save_hides_it() {
    for saves in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open(&storage(dir.path(), DurabilityArg::Msync, 64 << 20));
        assert_eq!(line(&mut shard, "SET before 1"), "+OK");
        shard.end().expect("a disk");
        fail_next(&shard);
        assert_eq!(line(&mut shard, "SET lost 1"), "+OK");
        if saves {
            shard.sync().expect_err("the disk fails");
        }
        shard.end().expect_err("the replies of this turn must not be sent");
        for words in ["GET lost", "GET before", "EXISTS lost", "STRLEN lost", "KEYS *", "SET b 1"] {
            let reply = line(&mut shard, words);
            assert!(reply.starts_with("-ERR storage"), "{words}: {reply}");
        }
        shard.sync().expect_err("it was not durable");
        shard.end().expect("the replies of this turn are errors, which clients may read");
    }
}
