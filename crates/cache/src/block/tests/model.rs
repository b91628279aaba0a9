//! Compares a cache with a map, and runs several threads.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64, usize),
    Get(u64),
    Remove(u64),
    Invalidate(u64),
    Seal,
    Reopen,
    Kill,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let n = 0..30u64;
    let op = prop_oneof![
        8 => (n.clone(), 0..5u64, 0..900usize).prop_map(|(n, version, len)| Op::Insert(n, version, len)),
        6 => n.clone().prop_map(Op::Get),
        1 => n.prop_map(Op::Remove),
        1 => (0..3u64).prop_map(Op::Invalidate),
        1 => Just(Op::Seal),
        1 => Just(Op::Reopen),
        1 => Just(Op::Kill),
    ];
    proptest::collection::vec(op, 1..150)
}

fn key(n: u64) -> Key {
    Key { instance: 1 + u128::from(n % 2), file: n % 3, offset: n }
}

fn run(ops: &[Op]) {
    let mut pool = pool();
    let mut cache = Some(cache(&pool, 4));
    let mut model: HashMap<u64, (u64, usize)> = HashMap::new();
    for op in ops {
        let now = cache.as_ref().unwrap();
        let found = |cache: &BlockCache, model: &HashMap<u64, (u64, usize)>, n: u64| {
            let block = cache.get(&key(n));
            if let Some(block) = &block {
                let (version, len) = model[&n];
                assert_eq!(block.bytes, bytes(&key(n), version, len));
            }
            block.is_some()
        };
        match *op {
            Op::Insert(n, version, len) => {
                model.insert(n, (version, len));
                now.insert(&key(n), 0, &bytes(&key(n), version, len)).unwrap();
                assert!(found(now, &model, n));
            }
            Op::Get(n) => drop(found(now, &model, n)),
            Op::Remove(n) => {
                assert_eq!(found(now, &model, n), now.remove(&key(n)).unwrap());
                model.remove(&n);
            }
            Op::Invalidate(file) => {
                now.invalidate(Prefix::File(1, file)).unwrap();
                model.retain(|&n, _| key(n).instance != 1 || key(n).file != file);
            }
            Op::Seal => now.seal().unwrap(),
            Op::Reopen | Op::Kill => {
                let before: Vec<u64> = (0..30).filter(|&n| found(now, &model, n)).collect();
                // Blocks that are allocated in the copy are not on its medium.
                if matches!(op, Op::Kill) && !pool.pm().is_volatile() {
                    pool = reopened(&killed(&pool));
                }
                drop(cache.take());
                let again = open(&pool);
                // Nothing is lost.
                assert!((0..30).filter(|&n| found(&again, &model, n)).eq(before));
                assert!(again.metrics().unsealed <= 1 && again.metrics().corrupt == 0);
                cache = Some(again);
            }
        }
        let cache = cache.as_ref().unwrap();
        cache.check().unwrap();
        audit(&pool, cache);
    }
}

proptest! {
    #[test]
    fn a_hit_is_what_was_last_inserted(ops in ops()) {
        run(&ops);
    }
}

/// Each thread inserts versions of its own blocks, and all threads read them: each block found is intact, and
/// a thread's own blocks are the last versions.
#[test]
fn threads_find_whole_blocks() {
    let pool = pool();
    let cache = cache(&pool, 8);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut buffer = Vec::new();
                for round in 0..4000u64 {
                    let random = crate::hash::mix(round * 4 + thread);
                    let mine = Key { instance: thread.into(), file: 0, offset: random % 7 };
                    let len = 100 + (random >> 8) as usize % 300;
                    let block = [&round.to_le_bytes()[..], &bytes(&mine, round, len)].concat();
                    cache.insert(&mine, 0, &block).unwrap();
                    if cache.get_into(&mine, &mut buffer).is_some() {
                        assert_eq!(buffer, block);
                    }
                    if round % 50 == 0 {
                        cache.remove(&mine).unwrap();
                        assert_eq!(cache.get(&mine), None);
                    }
                    let other = u128::from(random >> 20) % 4;
                    let theirs = Key { instance: other, file: 0, offset: (random >> 30) % 7 };
                    if cache.get_into(&theirs, &mut buffer).is_some() {
                        let (round, rest) = buffer.split_first_chunk::<8>().unwrap();
                        let round = u64::from_le_bytes(*round);
                        assert_eq!(rest, bytes(&theirs, round, rest.len()));
                    }
                }
            });
        }
    });
    cache.check().unwrap();
    audit(&pool, &cache);
    assert_eq!(cache.metrics().corrupt, 0);
}
