//! Scans from both ends, while records come and go.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_hart::Hart;

/// Keys `10 n` for `n` of `1..=RECORDS`, in as many trees as the prefix makes of `spread`.
const RECORDS: u64 = 24;

fn filled<const P: usize>(key: fn(u64) -> u64) -> Hart<u64, u64, Mapped, 4, P> {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Hart::create(&pool, "h").expect("room");
    for n in 1..=RECORDS {
        assert!(hart.try_insert(&key(10 * n), &n).expect("room").is_ok());
    }
    hart
}

/// Records that are inserted between two ends that have met are in neither; an end that moves into the part
/// that the other has read returns nothing twice and nothing out of order.
fn ends_never_cross<const P: usize>(key: fn(u64) -> u64) {
    let hart = filled::<P>(key);
    let found = |record: Result<(u64, u64), _>| record.expect("intact").0;
    let cases = (1..=RECORDS).flat_map(|late| (1..12).map(move |back| (key(10 * late), back)));
    for (late, from_the_back) in cases {
        hart.remove(&late).expect("room");
        for from_the_front in 1..RECORDS as usize - from_the_back {
            let mut scan = hart.range(..);
            let mut back: Vec<u64> = scan.by_ref().rev().take(from_the_back).map(found).collect();
            let mut front: Vec<u64> = scan.by_ref().take(from_the_front).map(found).collect();
            hart.try_insert(&late, &0).expect("room").expect("done");
            if from_the_front % 2 == 0 {
                back.extend(scan.rev().map(found));
            } else {
                front.extend(scan.map(found));
            }
            let all = [front.clone(), back.iter().rev().copied().collect()].concat();
            assert!(all.is_sorted_by(|a, b| a < b), "{late}: {front:?} {back:?}");
            let rest = all.iter().filter(|&&key| key != late).count();
            assert_eq!(rest, RECORDS as usize - 1, "{late}: {front:?} {back:?}");
            hart.remove(&late).expect("room");
        }
        hart.try_insert(&late, &0).expect("room").expect("done");
    }
}

#[test]
fn ends_in_one_tree_never_cross() {
    ends_never_cross::<0>(|n| n);
    ends_never_cross::<2>(|n| n);
}

#[test]
fn ends_in_many_trees_never_cross() {
    ends_never_cross::<1>(|n| (n / 50) << 56 | n);
    ends_never_cross::<2>(|n| n << 48);
}

/// Alternating ends give every record once, whatever the bounds.
#[test]
fn alternating_ends_give_every_record_once() {
    let key = |n: u64| (n / 70) << 56 | n;
    let hart = filled::<1>(key);
    let model: BTreeSet<u64> = (1..=RECORDS).map(|n| key(10 * n)).collect();
    for (from, to) in (0..=250).step_by(5).flat_map(|a| (a..=250).step_by(15).map(move |b| (a, b)))
    {
        let mut scan = hart.range(key(from)..=key(to));
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for turn in 0.. {
            let item = if turn % 3 == 0 { scan.next() } else { scan.next_back() };
            let Some(item) = item else { break };
            let key = item.expect("intact").0;
            if turn % 3 == 0 { front.push(key) } else { back.push(key) }
        }
        assert!(scan.next().is_none() && scan.next_back().is_none());
        front.extend(back.into_iter().rev());
        assert!(front.iter().eq(model.range(key(from)..=key(to))), "{from} {to}: {front:?}");
    }
}
