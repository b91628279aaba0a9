//! Scans of byte strings that are prefixes of each other and share long parts, most of them removed again: in
//! both directions, from any bound, in every index.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use pmindex::{AnyIndex, Index, Kind, Pool};

/// A generator of numbers (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// A key of a family: the family's name, a member that other members share a long part with, or a
    /// member of a member.
    fn key(&mut self, families: u64, members: u64) -> Vec<u8> {
        let family = vec![b'a' + self.below(families) as u8; 5];
        let member = self.below(members) as u8;
        let rest = match self.below(8) {
            0 => vec![],
            1 => vec![member],
            2 => vec![family[0]; usize::from(member)],
            _ => [vec![member; 20], vec![self.below(2) as u8]].concat(),
        };
        [family, rest].concat()
    }
}

type Model = BTreeMap<Vec<u8>, u64>;

fn compare(index: &AnyIndex<Vec<u8>, u64>, model: &Model, bound: &[u8], kind: Kind) {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    let below = (Bound::Unbounded, Bound::Excluded(bound));
    let above = (Bound::Excluded(bound), Bound::Unbounded);
    for range in [whole, below, above] {
        let want: Vec<(Vec<u8>, u64)> =
            model.range::<[u8], _>(range).map(|(key, value)| (key.clone(), *value)).collect();
        let up: Result<Vec<_>, _> = index.range(range).collect();
        assert!(up.expect("sound") == want, "{kind}, upwards, {range:?}");
        let down: Result<Vec<_>, _> = index.range(range).rev().collect();
        assert!(down.expect("sound").iter().rev().eq(&want), "{kind}, downwards, {range:?}");
        // Like a program that stops and continues from its last key.
        let (mut pages, mut end) = (Vec::new(), range.1.map(<[u8]>::to_vec));
        loop {
            let page: Vec<_> =
                index.range((range.0, end.as_ref().map(Vec::as_slice))).rev().take(7).collect();
            let Some(Ok((last, _))) = page.last() else { break };
            end = Bound::Excluded(last.clone());
            pages.extend(page.into_iter().map(|item| item.expect("sound")));
        }
        assert!(pages.iter().rev().eq(&want), "{kind}, downwards in pages, {range:?}");
    }
}

#[test]
fn scans_leave_nothing_out_where_most_keys_have_gone() {
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::emulated(16 << 20).expect("memory"));
        let index: AnyIndex<Vec<u8>, u64> = AnyIndex::create(&pool, "index", kind).expect("room");
        for (round, (families, members)) in [(2, 40), (1, 120), (12, 12)].into_iter().enumerate() {
            let mut rng = Rng(0x9e37_79b9 + round as u64);
            let mut model = Model::new();
            for step in 0..1200 {
                let key = rng.key(families, members);
                // Inserts first, then removals; then both.
                let removes = if step < 500 { 1 } else { 6 };
                if rng.below(10) < removes {
                    assert_eq!(index.remove(&key), Ok(model.remove(&key)), "{kind}");
                } else {
                    assert_eq!(index.insert(&key, &step), Ok(model.insert(key, step)), "{kind}");
                }
                if step % 25 == 0 {
                    compare(&index, &model, &rng.key(families, members), kind);
                }
            }
            index.clear().expect("sound");
        }
    }
}
