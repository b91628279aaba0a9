//! Hit ratios on synthetic traces. The bounds are properties of the traces, with some margin, that a wrong
//! policy does not reach.

use super::{Access, Lru, Policy, S3Fifo, TinyLfu, TwoQ};
use crate::hash::mix;

const IDS: u64 = 10_000;
const CAPACITY: usize = 1_000;
const ACCESSES: u64 = 200_000;

/// Returns a number below `bound`, the `at`-th of a sequence.
fn random(at: u64, bound: u64) -> u64 {
    ((u128::from(mix(at + 1)) * u128::from(bound)) >> 64) as u64
}

/// Returns ids with a Zipf distribution of exponent 1, the first ones most often.
#[expect(clippy::cast_precision_loss, reason = "a distribution for a test")]
fn zipfian() -> impl Fn(u64) -> u64 {
    let mut sums = vec![0.0f64];
    for rank in 1..=IDS {
        sums.push(sums[rank as usize - 1] + 1.0 / rank as f64);
    }
    move |at| {
        let point = random(at, 1 << 53) as f64 / (1u64 << 53) as f64 * sums[IDS as usize];
        sums.partition_point(|&sum| sum <= point) as u64
    }
}

/// Returns the hits, and the copies into the cache, in percent of the accesses of the second half.
fn measure(policy: &mut dyn Policy<u64>, trace: impl Fn(u64) -> u64) -> (u64, u64) {
    let (mut hits, mut copies) = (0, 0);
    for at in 0..ACCESSES {
        let access = policy.access(trace(at));
        if at >= ACCESSES / 2 {
            hits += u64::from(access == Access::Hit);
            copies += u64::from(matches!(access, Access::Admitted { .. }));
        }
    }
    (hits * 200 / ACCESSES, copies * 200 / ACCESSES)
}

/// Measures LRU, 2Q, S3-FIFO and W-TinyLFU.
fn all(trace: impl Fn(u64) -> u64) -> [(u64, u64); 4] {
    let all = [
        measure(&mut Lru::new(CAPACITY), &trace),
        measure(&mut TwoQ::new(CAPACITY), &trace),
        measure(&mut S3Fifo::new(CAPACITY), &trace),
        measure(&mut TinyLfu::new(CAPACITY), &trace),
    ];
    println!("{all:?}");
    all
}

/// A tenth of the ids is kept, so a tenth of the accesses hits, whatever is kept. 2Q copies hardly anything.
#[test]
fn uniform() {
    let [lru, two_q, s3, tiny] = all(|at| random(at, IDS));
    for (hits, _) in [lru, two_q, s3, tiny] {
        assert!((8..=12).contains(&hits));
    }
    assert!(lru.1 >= 85 && two_q.1 <= 2);
}

#[test]
fn skewed() {
    let zipfian = zipfian();
    let [lru, two_q, s3, tiny] = all(zipfian);
    assert!(two_q.0 >= lru.0 && s3.0 >= lru.0 && tiny.0 > s3.0);
    assert!(two_q.1 * 4 <= lru.1, "2Q copies less than a quarter as often");
}

/// Between every two accesses of a skewed trace there is one of a scan that never returns.
#[test]
fn skewed_with_a_scan() {
    let zipfian = zipfian();
    let trace = |at: u64| if at.is_multiple_of(2) { zipfian(at) } else { IDS + 1 + at };
    let [lru, two_q, s3, tiny] = all(trace);
    assert!(two_q.0 >= lru.0 + 3 && s3.0 >= lru.0 + 3 && tiny.0 >= s3.0);
    assert!(two_q.1 * 8 <= lru.1);
}

/// A loop over somewhat more than is kept: LRU evicts each block just before its next use.
#[test]
fn loop_over_too_much() {
    let [lru, two_q, _, tiny] = all(|at| at % (CAPACITY as u64 * 5 / 4));
    assert_eq!(lru, (0, 100));
    assert!(two_q.0 >= 75 && two_q.1 == 0);
    assert!(tiny.0 >= 70);
}

/// Each id returns soon or never: counts are useless, and W-TinyLFU's window grows until it is nearly LRU.
#[test]
fn what_came_last() {
    let trace = |at: u64| {
        let back = (0..8).map(|n| random(at * 8 + n, CAPACITY as u64 / 8)).sum::<u64>();
        (at / 2).saturating_sub(back)
    };
    let [lru, _, s3, tiny] = all(trace);
    assert!(tiny.0 + 4 >= lru.0 && tiny.0 > s3.0);
}
