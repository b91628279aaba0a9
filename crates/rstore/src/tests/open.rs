//! Opening: keys that are alike over many bytes, and many versions of few keys.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pmindex_core::Pool;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::{Budget, Millis, Options, Partition};

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<Millis>)>;

fn pool(bytes: usize) -> Arc<Pool> {
    Arc::new(Pool::emulated(bytes).expect("memory"))
}

/// Opens a partition that was closed, or whose process was killed.
fn reopen(partition: Partition, closed: bool) -> Partition {
    let pool = Arc::clone(partition.pool());
    if closed {
        partition.close().expect("room");
    } else {
        drop(partition);
    }
    Partition::open(&pool, "p", &Options::new()).expect("sound").0
}

/// Compares all records, searches, and what the partition counts.
fn compare(partition: &Partition, model: &Model) {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    partition.scan(Bound::Unbounded, Bound::Unbounded, 0, false, visit).expect("sound");
    assert!(
        found
            .iter()
            .map(|(key, value)| (key, value))
            .eq(model.iter().map(|(key, (value, _))| (key, value)))
    );
    let mut value = Vec::new();
    for key in model.keys() {
        assert!(partition.get_into(key, 0, &mut value).expect("sound"), "{key:?}");
    }
    let checked = partition.check().expect("sound");
    assert_eq!((checked.records, partition.len()), (model.len() as u64, model.len() as u64));
}

/// Keys that share beginnings longer than any word, begin each other, and differ only in zeros behind their ends.
fn key() -> impl Strategy<Value = Vec<u8>> {
    const PARTS: [&[u8]; 6] =
        [b"a", b"\0", b"\0\0\0\0\0\0\0\0", b"user:", b"12345678", b"zzzzzzzzzzzzzzzzzz"];
    let part = (0..PARTS.len()).prop_map(|at| PARTS[at]);
    vec(part, 0..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn every_key_is_there_after_an_opening(
        writes in vec((key(), 0u8..8), 1..120),
        few in vec(key(), 1..8),
        closed in any::<bool>(),
    ) {
        let options = Options::new().block_bytes(512).capacity(1 << 20);
        let mut partition = Partition::create(&pool(8 << 20), "p", &options).expect("room");
        let mut model = Model::new();
        let again = few.iter().cycle().take(40).map(|key| (key, 1));
        for (turn, (key, what)) in writes.iter().map(|(key, what)| (key, *what)).chain(again).enumerate() {
            let value = vec![turn as u8; turn % 30];
            if what == 0 {
                partition.remove(key).expect("room");
                model.remove(key);
            } else {
                let expiry = (what == 2).then_some(1 + turn as u64 % 7);
                partition.put(key, &value, expiry).expect("room");
                model.insert(key.clone(), (value, expiry));
            }
            partition.commit().expect("room");
        }
        let mut partition = reopen(partition, closed);
        compare(&partition, &model);
        let expired = partition.expire(4, Budget { bytes: u64::MAX }).expect("room");
        let before = model.len();
        model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > 4));
        assert_eq!(expired, before - model.len());
        partition.commit().expect("room");
        compare(&reopen(partition, !closed), &model);
    }
}

#[test]
fn older_versions_are_dropped_while_blocks_are_read() {
    let options = Options::new().capacity(64 << 20);
    let mut partition = Partition::create(&pool(128 << 20), "p", &options).expect("room");
    let mut model = Model::new();
    for turn in 0..200_000_u64 {
        // Keys that a window distinguishes, and keys that need more.
        let number = turn * turn % 97;
        let key = if turn % 3 == 0 {
            format!("{number}")
        } else {
            format!("a long beginning of {number:030}")
        };
        partition.put(key.as_bytes(), &turn.to_le_bytes(), None).expect("room");
        if turn % 64 == 0 {
            partition.commit().expect("room");
        }
        model.insert(key.into_bytes(), (turn.to_le_bytes().to_vec(), None));
    }
    partition.commit().expect("room");
    assert!(partition.check().expect("sound").dead > 150_000, "the blocks have older versions");
    compare(&reopen(partition, false), &model);
}

#[test]
fn keys_that_begin_each_other_need_little_of_the_stack() {
    let open = || {
        let options = Options::new().capacity(64 << 20);
        let mut partition = Partition::create(&pool(128 << 20), "p", &options).expect("room");
        let mut model = Model::new();
        for len in (0..=partition.max_key()).step_by(8) {
            let key = vec![b'k'; len];
            for _ in 0..2 {
                partition.put(&key, b"v", None).expect("room");
                partition.commit().expect("room");
            }
            model.insert(key, (b"v".to_vec(), None));
        }
        compare(&reopen(partition, false), &model);
    };
    // A server's thread has four times as much.
    let small = std::thread::Builder::new().stack_size(512 << 10);
    small.spawn(open).expect("a thread").join().expect("no panic");
}

#[test]
fn few_keys_may_begin_otherwise_than_all_others() {
    let most = || (0..2000).map(|number| format!("a beginning of many bytes: {number:06}"));
    // Alone, and all together.
    let others = ["a beginna", "a beginnz", "a beginning", "a beginning of zebras", "a", "z", ""];
    for some in others.chunks(1).chain([&others[..]]) {
        let options = Options::new().capacity(4 << 20);
        let mut partition = Partition::create(&pool(8 << 20), "p", &options).expect("room");
        let mut model = Model::new();
        for key in most().chain(some.iter().map(|key| (*key).to_owned())) {
            partition.put(key.as_bytes(), b"value", None).expect("room");
            partition.commit().expect("room");
            model.insert(key.into_bytes(), (b"value".to_vec(), None));
        }
        compare(&reopen(partition, true), &model);
    }
}
