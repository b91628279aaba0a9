//! The distributions against their theory.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use pmindex_pibench::{Chooser, Distribution, Integers, KeySpace, Records};

const RANKS: u64 = 1000;
const DRAWS: u32 = 1_000_000;

/// How often each rank is chosen.
fn counts(distribution: Distribution) -> Vec<u32> {
    let (mut chooser, mut random) = (Chooser::new(distribution), KeySpace::new(11));
    let mut counts = vec![0; 1000];
    for _ in 0..DRAWS {
        let rank = chooser.rank(RANKS, &mut random);
        counts[usize::try_from(rank).expect("small")] += 1;
    }
    counts
}

/// The part of all draws that fell on the first `ranks`.
fn first(counts: &[u32], ranks: usize) -> f64 {
    f64::from(counts[..ranks].iter().sum::<u32>()) / f64::from(DRAWS)
}

#[test]
fn uniform_passes_the_chi_square_test() {
    let counts = counts(Distribution::Uniform);
    let expected = f64::from(DRAWS) / 1000.0;
    let chi: f64 = counts.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
    // 999 degrees of freedom: mean 999, standard deviation 44.7; five of them.
    assert!((chi - 999.0).abs() < 5.0 * 44.7, "{chi}");
}

#[test]
fn zipfian_has_the_frequencies_of_its_law() {
    for theta in [0.5, 0.8, 0.99] {
        let counts = counts(Distribution::Zipfian { theta });
        let weight = |rank: u32| f64::from(rank + 1).powf(-theta);
        let zeta: f64 = (0..1000).map(weight).sum();
        // The first two ranks are exact in Gray's method.
        for rank in 0..2 {
            let expected = weight(rank) / zeta;
            let found = f64::from(counts[rank as usize]) / f64::from(DRAWS);
            let deviation = (expected * (1.0 - expected) / f64::from(DRAWS)).sqrt();
            assert!(
                (found - expected).abs() < 5.0 * deviation,
                "{theta} {rank}: {found} {expected}"
            );
        }
        // The others come from a continuous curve: their sums are near the law's.
        for ranks in [5_u32, 10, 50, 100, 500] {
            let expected: f64 = (0..ranks).map(weight).sum::<f64>() / zeta;
            let found = first(&counts, ranks as usize);
            assert!((found - expected).abs() < 0.02, "{theta} {ranks}: {found} {expected}");
        }
    }
}

#[test]
fn zipfian_follows_a_bound_that_moves() {
    let distribution = Distribution::Zipfian { theta: 0.99 };
    let (mut moved, mut fresh) = (Chooser::new(distribution), Chooser::new(distribution));
    let (mut one, mut two) = (KeySpace::new(5), KeySpace::new(5));
    for bound in [1000, 2000, 1500, 1501, 10, 1000] {
        moved.rank(bound, &mut one);
    }
    let _ = (0..6).map(|_| two.random()).count();
    for _ in 0..1000 {
        let (a, b) = (moved.rank(1000, &mut one), fresh.rank(1000, &mut two));
        assert!(a < 1000 && a.abs_diff(b) <= 1, "{a} {b}");
    }
}

/// The rank next to a number that is none.
fn place(rank: f64) -> usize {
    (0..1000_u32).find(|at| f64::from(*at) >= rank - 0.5).map_or(1000, |at| at as usize)
}

#[test]
fn self_similar_is_so_at_every_scale() {
    for skew in [0.1, 0.2, 0.4, 0.5] {
        let counts = counts(Distribution::SelfSimilar { skew });
        // A fraction 1 - h falls on the first h, of that again 1 - h on the first h, and so on.
        let (mut ranks, mut expected) = (1.0, 1.0);
        for _ in 0..2 {
            (ranks, expected) = (ranks * skew, expected * (1.0 - skew));
            let found = first(&counts, place(ranks * 1000.0));
            assert!((found - expected).abs() < 0.005, "{skew} {ranks}: {found} {expected}");
        }
    }
}

#[test]
fn monotonic_takes_each_once_in_order_and_starts_again() {
    let (mut chooser, mut random) = (Chooser::new(Distribution::Monotonic), KeySpace::new(1));
    let ranks: Vec<u64> = (0..7).map(|_| chooser.rank(3, &mut random)).collect();
    assert_eq!(ranks, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn ranks_chosen_often_are_no_neighbours_in_key_order() {
    let records = Integers::new(3, false);
    let mut sorted: Vec<(u64, u64)> = (0..10_000).map(|i| (records.key(i), i)).collect();
    sorted.sort_unstable();
    let hot: Vec<usize> = (0..10_000).filter(|at| sorted[*at].1 < 100).collect();
    let together = hot.windows(2).filter(|pair| pair[1] - pair[0] == 1).count();
    assert!(together < 8, "{together} of the 100 hottest keys have a hot neighbour");
    let tenths: BTreeSet<u64> = (0..100).map(|i| records.key(i) / (u64::MAX / 10)).collect();
    assert!(tenths.len() >= 10, "they lie in all tenths of the domain");
}

#[test]
fn names_and_skews_are_checked() {
    for name in Distribution::NAMES {
        let distribution = Distribution::named(name, None).expect(name);
        assert_eq!(distribution.name(), name);
    }
    let named = |name, skew| Distribution::named(name, Some(skew));
    assert_eq!(named("zipfian", 0.5).ok().and_then(Distribution::skew), Some(0.5));
    for (name, skew) in [
        ("zipfian", 1.0),
        ("zipfian", 0.0),
        ("self-similar", 0.6),
        ("uniform", 0.5),
        ("normal", 0.5),
    ] {
        assert!(named(name, skew).is_err(), "{name} {skew}");
    }
    assert!(named("zipfian", f64::NAN).is_err());
}
