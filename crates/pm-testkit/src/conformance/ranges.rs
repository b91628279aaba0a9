//! Ranges: every kind of bound, both directions, what panics, and changes during iteration.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pmindex_index::{RangeIter, Storable};

use crate::crash::quietly;

use super::contents::{borrowed, same_range, same_scan_into};
use super::operation::{Model, ModelOf, panics};
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{Maker, Rig, Types};
use super::verdict::{Verdict, Within, brief, ensure, ensure_eq};

/// Makes an index with every second key of the family, and the extreme keys.
fn sparse<S: Types>(of: Maker<S>, count: u64) -> Verdict<(Rig<S>, ModelOf<S>)> {
    let rig = Rig::new(of)?;
    let mut model: Model<_, _> =
        family::<S::Key, S::Value>((0..count).map(|i| 2 * i)).into_iter().collect();
    let edges = S::Key::edges();
    let step = edges.len().div_ceil(16);
    for (i, key) in edges.into_iter().step_by(step).enumerate() {
        model.insert(key, S::Value::tagged(i as u64));
    }
    for (key, value) in &model {
        rig.index().try_insert(key.borrowed(), value.borrowed())??;
    }
    Ok((rig, model))
}

/// Each kind of lower bound with each kind of upper bound, at present and absent keys, between
/// the extreme keys and in the middle of nodes, forwards, backwards and from both ends.
pub fn all_bounds<S: Types>(of: Maker<S>) -> Verdict {
    let (rig, model) = sparse(of, 100)?;
    let mut probes: BTreeSet<_> = (0..14).map(|i| S::Key::nth(i * 15)).collect();
    probes.extend([0, 1, 2, 99, 198, 199, 200].map(S::Key::nth));
    let edges = S::Key::edges();
    let step = edges.len().div_ceil(12);
    probes.extend(edges.iter().step_by(step).cloned());
    probes.extend([edges[0].clone(), edges[edges.len() - 1].clone()]);
    probes.extend(S::Key::too_long()); // a bound may be longer than any key
    let bounds: Vec<Bound<_>> = probes
        .iter()
        .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key.clone())])
        .chain([Bound::Unbounded])
        .collect();
    for (i, lower) in bounds.iter().enumerate() {
        for (j, upper) in bounds.iter().enumerate() {
            if !panics(lower, upper) {
                let turns = [0, u64::MAX, 0x5555_5555_5555_5555, 0xf0f0_3c3c_9999_0ff0];
                same_range(rig.index(), &model, lower, upper, turns[(i + j) % 4])?;
                let limit = [usize::MAX, 0, 3, 64, 65][(i + j) % 5];
                same_scan_into(rig.index(), &model, (lower, upper), limit)?;
            }
        }
    }
    for from in &probes {
        for limit in [0, 1, 2, 63, 64, 65, 1000] {
            let mut found = Vec::new();
            rig.index().scan(from.borrowed(), limit, &mut found)?;
            let wanted = model.range(from..).take(limit);
            ensure!(
                found.iter().map(|(k, v)| (k, v)).eq(wanted),
                "scan from {} of {limit}: {}",
                brief(from),
                brief(&found)
            );
        }
    }
    Ok(())
}

/// Bounds on which `BTreeMap::range` panics make the index panic, and the index stays usable.
pub fn panicking_bounds<S: Types>(of: Maker<S>) -> Verdict {
    let (rig, model) = sparse(of, 20)?;
    let keys = [3, 4, 10, 11, 500].map(S::Key::nth);
    let mut tried = 0;
    for a in &keys {
        for b in &keys {
            for lower in [Bound::Included(a.clone()), Bound::Excluded(a.clone())] {
                for upper in [Bound::Included(b.clone()), Bound::Excluded(b.clone())] {
                    if !panics(&lower, &upper) {
                        continue;
                    }
                    tried += 1;
                    let range = || {
                        let items = rig.index().range_bounds(borrowed(&lower), borrowed(&upper));
                        drop(items);
                    };
                    let panicked = quietly(|| catch_unwind(AssertUnwindSafe(range)).is_err());
                    ensure!(panicked, "range {} does not panic", brief(&(&lower, &upper)));
                }
            }
        }
    }
    ensure_eq!(tried, 10 * 4 + 5, "inverted bounds tried"); // a > b: all four; a == b: one
    let mut short = vec![None; 2];
    let get_many = || rig.index().get_many(&keys, &mut short);
    let panicked = quietly(|| catch_unwind(AssertUnwindSafe(get_many)).is_err());
    ensure!(panicked, "get_many of unequal slices does not panic");
    same_range(rig.index(), &model, &Bound::Unbounded, &Bound::Unbounded, 0)?;
    let (key, value) = (S::Key::nth(3), S::Value::tagged(3));
    ensure_eq!(
        rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(),
        true,
        "insert, afterwards"
    );
    Ok(())
}

/// A record that a scan may show: its key, the values it had during the scan, and whether it existed all the
/// time.
struct Shown<V> {
    values: Vec<V>,
    always: bool,
}

/// The records that a scan may and must show while they change.
struct Film<S: Types> {
    records: std::collections::BTreeMap<S::Key, Shown<S::Value>>,
}

impl<S: Types> Film<S> {
    fn new(model: &Model<S::Key, S::Value>) -> Self {
        let shown = |value: &S::Value| Shown { values: vec![value.clone()], always: true };
        Self { records: model.iter().map(|(k, v)| (k.clone(), shown(v))).collect() }
    }

    fn put(&mut self, key: &S::Key, value: S::Value) {
        let empty = || Shown { values: Vec::new(), always: false };
        self.records.entry(key.clone()).or_insert_with(empty).values.push(value);
    }

    fn remove(&mut self, key: &S::Key) {
        if let Some(shown) = self.records.get_mut(key) {
            shown.always = false;
        }
    }

    /// Checks the items of a scan of everything, in key order.
    fn explains(&self, items: &[(S::Key, S::Value)]) -> Verdict {
        ensure!(items.is_sorted_by(|a, b| a.0 < b.0), "a scan out of order, or a duplicate");
        for (key, value) in items {
            let possible = self.records.get(key).is_some_and(|s| s.values.contains(value));
            ensure!(possible, "a scan shows {}, which never was", brief(&(key, value)));
        }
        let seen: BTreeSet<_> = items.iter().map(|(key, _)| key).collect();
        for (key, shown) in &self.records {
            ensure!(!shown.always || seen.contains(key), "a scan misses {}", brief(key));
        }
        Ok(())
    }
}

/// An iterator continues while its own thread changes records: those that exist all the time appear once, in
/// order; others appear only with a value they had.
pub fn changes_during_iteration<S: Types>(of: Maker<S>) -> Verdict {
    for round in 0..12u64 {
        let (rig, model) = sparse(of, 150)?;
        let mut film = Film::<S>::new(&model);
        let mut items = rig.index().range_bounds(Bound::Unbounded, Bound::Unbounded);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for turn in 0u64.. {
            let reverse = [false, true, turn % 2 == 1, turn % 5 == 0][(round % 4) as usize];
            match next(&mut items, reverse)? {
                Some(item) if reverse => back.push(item),
                Some(item) => front.push(item),
                None => break,
            }
            ensure!(turn < 10_000, "a scan that never ends");
            change(&rig, &mut film, round * 1000 + turn)
                .within(format_args!("round {round}, after item {turn}"))?;
        }
        drop(items);
        front.extend(back.into_iter().rev());
        film.explains(&front).within(format_args!("round {round}"))?;
        rig.index().check().within("check")?;
    }
    Ok(())
}

fn next<K: super::SampleKey, V: SampleValue>(
    items: &mut RangeIter<'_, K, V>,
    reverse: bool,
) -> Verdict<Option<(K, V)>> {
    let item = if reverse { items.next_back() } else { items.next() };
    Ok(item.transpose()?)
}

/// Makes one or a few changes that depend on `seed`.
fn change<S: Types>(rig: &Rig<S>, film: &mut Film<S>, seed: u64) -> Verdict {
    let index = rig.index();
    for i in 0..seed % 4 {
        let mixed = (seed * 4 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = S::Key::nth((mixed >> 40) % 320);
        let value = S::Value::tagged(mixed >> 20);
        match (mixed >> 8) % 4 {
            0 => {
                film.remove(&key);
                index.remove(key.borrowed())?;
            }
            1 => {
                if index.update(key.borrowed(), value.borrowed())?.is_ok() {
                    film.put(&key, value);
                }
            }
            _ => {
                if index.try_insert(key.borrowed(), value.borrowed())?.is_ok() {
                    film.put(&key, value);
                }
            }
        }
    }
    Ok(())
}
