//! A partition does what an ordered map does, whatever is collected, replaced, opened again meanwhile.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pmindex_core::Pool;
use proptest::prelude::*;

use crate::{Batch, Budget, Error, Millis, Options, Partition};

type Map = BTreeMap<Vec<u8>, (Vec<u8>, Option<Millis>)>;

#[derive(Clone, Debug)]
enum Op {
    Put(u8, usize, Option<Millis>),
    Remove(u8),
    Write(Vec<(u8, Option<usize>)>),
    SetExpiry(u8, Option<Millis>),
    RemoveRange(u8, u8, usize),
    Expire(Millis),
    Collect,
    Commit,
    Clear,
    Backup,
    Reopen { closed: bool },
}

fn key(number: u8) -> Vec<u8> {
    let mut key = vec![b'k'; usize::from(number % 3) * 5];
    key.push(number);
    key
}

fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at + seed) as u8).collect()
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![4 => 0..50usize, 2 => 50..200usize, 1 => 200..4000usize];
    let expiry = prop_oneof![3 => Just(None), 1 => (1..100u64).prop_map(Some)];
    let write = (any::<u8>(), proptest::option::of(0..300usize));
    let op = prop_oneof![
        30 => (0..40u8, len, expiry.clone()).prop_map(|(k, l, e)| Op::Put(k, l, e)),
        10 => (0..40u8).prop_map(Op::Remove),
        3 => proptest::collection::vec(write, 1..8).prop_map(Op::Write),
        2 => (0..40u8, expiry).prop_map(|(k, e)| Op::SetExpiry(k, e)),
        1 => (0..40u8, 0..40u8, 0..6usize).prop_map(|(f, t, l)| Op::RemoveRange(f, t, l)),
        1 => (1..100u64).prop_map(Op::Expire),
        3 => Just(Op::Collect),
        10 => Just(Op::Commit),
        1 => Just(Op::Clear),
        1 => Just(Op::Backup),
        1 => any::<bool>().prop_map(|closed| Op::Reopen { closed }),
    ];
    proptest::collection::vec(op, 1..400)
}

/// Options with which writes fill holes always, or when few blocks are free, and batches have several records of
/// the log, or one.
fn options(fill: bool, in_parts: bool) -> Options {
    let options = Options::new().block_bytes(512).capacity(48 << 10);
    let options = if in_parts { options.logged_words(20) } else { options };
    if fill { options.fill_below(u64::MAX) } else { options }
}

fn compare(partition: &Partition, map: &Map) -> Result<(), Error> {
    let keys: Vec<_> = (0..60).map(key).collect();
    partition.prefetch(keys.iter().map(Vec::as_slice)); // a hint
    let mut all = Map::new();
    let everything = (Bound::Unbounded, Bound::Unbounded);
    partition.scan(everything.0, everything.1, 0, false, &mut |key, value| {
        all.insert(key.into(), (value.into(), None));
        ControlFlow::Continue(())
    })?;
    for (key, (_, expiry)) in &mut all {
        *expiry = partition.expiry(key, 0)?.expect("is there");
    }
    assert_eq!(&all, map);
    let mut back = Vec::new();
    let (from, to) = (key(3), key(20));
    let range = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
    partition.scan(range.0, range.1, 50, true, &mut |key, _| {
        back.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    let inside = if from < to { map.range::<[u8], _>(range).rev().collect() } else { Vec::new() };
    let expected: Vec<_> = inside
        .into_iter()
        .filter(|(_, (_, expiry))| expiry.is_none_or(|at| at > 50))
        .map(|(key, _)| key.clone())
        .collect();
    assert_eq!(back, expected);
    partition.check()?;
    Ok(())
}

/// A put that may be refused, when there is little room.
fn put(partition: &mut Partition, map: &mut Map, k: &[u8], v: &[u8], at: Option<Millis>) {
    match partition.put(k, v, at) {
        Ok(()) => drop(map.insert(k.into(), (v.into(), at))),
        Err(error) => assert!(error.is_full(), "{error}"),
    }
}

fn step(
    mut partition: Partition,
    map: &mut Map,
    op: &Op,
    (seed, options): (usize, &Options),
) -> Result<Partition, Error> {
    match op {
        Op::Put(k, len, at) => put(&mut partition, map, &key(*k), &value(seed, *len), *at),
        Op::Remove(k) => {
            assert_eq!(partition.remove(&key(*k))?, map.remove(&key(*k)).is_some());
        }
        Op::Write(writes) => {
            let (mut batch, mut after) = (Batch::new(), map.clone());
            for (k, len) in writes {
                if let Some(len) = len {
                    batch.put(&key(*k), &value(seed, *len), None);
                    after.insert(key(*k), (value(seed, *len), None));
                } else {
                    batch.remove(&key(*k));
                    after.remove(&key(*k));
                }
            }
            match partition.write(&batch) {
                Ok(()) => *map = after,
                Err(error) => assert!(error.is_full(), "{error}"),
            }
        }
        Op::SetExpiry(k, at) => match partition.set_expiry(&key(*k), *at) {
            Ok(found) => {
                assert_eq!(found, map.contains_key(&key(*k)));
                map.entry(key(*k)).and_modify(|record| record.1 = *at);
            }
            Err(error) => assert!(error.is_full(), "{error}"),
        },
        Op::RemoveRange(from, to, limit) => {
            let (from, to) = (key(*from), key(*to));
            if from < to {
                let range = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
                let keys: Vec<_> =
                    map.range::<[u8], _>(range).take(*limit).map(|(key, _)| key.clone()).collect();
                assert_eq!(partition.remove_range(range.0, range.1, *limit)?, keys.len());
                map.retain(|key, _| !keys.contains(key));
            }
        }
        Op::Expire(now) => {
            let before = map.len();
            let over = |expiry: Option<u64>| expiry.is_some_and(|at| at <= *now);
            let listed = partition.expired(*now)?;
            assert_eq!(listed.is_empty(), map.values().all(|(_, expiry)| !over(*expiry)));
            assert!(listed.iter().all(|key| map.get(key).is_some_and(|(_, expiry)| over(*expiry))));
            map.retain(|_, (_, expiry)| !over(*expiry));
            assert_eq!(partition.expire(*now, Budget::bytes(1 << 30))?, before - map.len());
        }
        Op::Collect => drop(partition.collect(Budget::bytes(700))?),
        Op::Commit => partition.commit()?,
        Op::Clear => {
            partition.clear()?;
            map.clear();
        }
        Op::Backup => back_up(&mut partition, map)?,
        Op::Reopen { closed } => {
            let pool = Arc::clone(partition.pool());
            partition.commit()?;
            if *closed {
                partition.close()?;
            } else {
                drop(partition);
            }
            let (opened, recovery) = Partition::open(&pool, "p", options)?;
            assert!(!closed || recovery.replayed == 0, "{recovery:?}");
            assert_eq!((recovery.records, recovery.damaged), (map.len() as u64, 0));
            let owned = opened.all_blocks()?.into_iter();
            pool.audit(owned).unwrap_or_else(|error| panic!("{error}"));
            partition = opened;
        }
    }
    Ok(partition)
}

/// A backup of this moment, while records are replaced.
fn back_up(partition: &mut Partition, map: &mut Map) -> Result<(), Error> {
    let (moment, mut found) = (map.clone(), Map::new());
    let mut backup = partition.backup()?;
    let mut next = 0;
    loop {
        // Whole blocks, and parts of them: no record more than the budget asks for.
        let budget = Budget::bytes(if next % 2 == 0 { u64::MAX } else { 1 });
        let before = found.len();
        let more = partition.back_up_part(&mut backup, budget, &mut |key, value, expiry| {
            assert!(found.insert(key.into(), (value.into(), expiry)).is_none(), "twice");
        });
        assert!(budget.bytes > 1 || found.len() <= before + 1);
        match more {
            Ok(true) => {}
            Ok(false) => break,
            Err(Error::BackupEnded) => return Ok(()),
            Err(error) => return Err(error),
        }
        for _ in 0..3 {
            put(partition, map, &key(next % 40), &value(7, 70), None);
            next = next.wrapping_add(11);
        }
        partition.collect(Budget::bytes(300))?;
        partition.commit()?;
    }
    assert_eq!(found, moment);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn as_a_map(ops in ops(), fill in any::<bool>(), in_parts in any::<bool>()) {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("a pool"));
        let options = options(fill, in_parts);
        let mut partition = Partition::create(&pool, "p", &options).expect("a partition");
        let mut map = Map::new();
        for (seed, op) in ops.iter().enumerate() {
            let stepped = step(partition, &mut map, op, (seed, &options));
            partition = stepped.unwrap_or_else(|e| panic!("{e}: {op:?}"));
            if seed % 16 == 0 {
                compare(&partition, &map).unwrap_or_else(|e| panic!("{e}: {op:?}"));
            }
        }
        compare(&partition, &map).expect("sound");
        let stats = partition.stats();
        prop_assert!(stats.live_bytes <= stats.capacity);
    }
}
