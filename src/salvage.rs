//! Reads the intact part of a damaged index.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_index::{Index, IndexError, Key, Shape, Storable, Value};
use pmindex_index::{decoded, encoded, same_encoding};

/// The number of keys that are tried in the parts that scans do not reach.
const PROBES: usize = 1 << 14;
/// The number of bytes by which a tried key may be longer than the keys read around it.
const FINER: usize = 2;
/// The length that a tried key may always have.
const LONGEST: usize = 8;

/// A range of keys in which nothing could be read, though it may have held records. The range that held
/// them may be smaller, never larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap<K> {
    /// The last key before the gap that was read; `None` if the gap starts at the least key.
    pub after: Option<K>,
    /// The first key after the gap that was read; `None` if the gap ends at the greatest key.
    pub before: Option<K>,
    /// The error of reading there.
    pub error: IndexError,
}

/// The result of [`salvage`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Salvage<K> {
    /// The error of [`Index::check`]; `None` if the index is whole.
    pub damage: Option<IndexError>,
    /// The number of records that the index claims to have. In a damaged index it may be wrong.
    pub claimed: Option<u64>,
    /// The gaps, in key order.
    pub gaps: Vec<Gap<K>>,
}

impl<K> Salvage<K> {
    /// Returns the same result with other keys.
    pub fn map_keys<L>(self, change: impl Fn(K) -> L) -> Salvage<L> {
        let gap = |gap: Gap<K>| Gap {
            after: gap.after.map(&change),
            before: gap.before.map(&change),
            error: gap.error,
        };
        let gaps = self.gaps.into_iter().map(gap).collect();
        Salvage { damage: self.damage, claimed: self.claimed, gaps }
    }
}

/// Passes every readable record of an index to `each`, until that returns `false`. Of a whole index these
/// are all records, once, in key order. Of a damaged index these are all records that can be reached, some
/// of them twice and out of order: if you collect them, keep the first of equal keys.
///
/// A damaged index is scanned from both ends, and a record counts only if a lookup finds it too. Where both
/// scans fail, keys between them are looked up and scanned from, in both directions, by halving the
/// unreadable ranges up to some thousand times. So records behind a damaged node are found if the index has
/// another path to them. The records of the damaged nodes themselves are lost, and so are records that only
/// these nodes lead to. Damage that leaves the structure intact, such as a changed value, is not detected:
/// values have no checksums.
///
/// The index is not changed.
///
/// # Cost
/// Verifies the index, and reads it once. A damaged index is read twice, and records or nodes are read up
/// to 32,768 times where scans fail.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use pmindex::{FpTree, Pool, salvage};
///
/// let pool = Arc::new(Pool::emulated(4 << 20)?);
/// let index = FpTree::<u64, u64>::create(&pool, "numbers")?;
/// index.insert(&1, &10)?;
/// let mut records = Vec::new();
/// let result = salvage(&index, &mut |key: u64, value: u64| {
///     records.push((key, value));
///     true
/// });
/// assert_eq!((records, result.damage, result.gaps), (vec![(1, 10)], None, vec![]));
/// # Ok(())
/// # }
/// ```
pub fn salvage<K: Key, V: Value>(
    index: &dyn Index<K, V>,
    each: &mut dyn FnMut(K, V) -> bool,
) -> Salvage<K> {
    let mut result =
        Salvage { damage: index.check().err(), claimed: index.len().ok(), gaps: Vec::new() };
    let mut reader = Reader { index, each, damage: result.damage.clone(), stopped: false };
    let forward = reader.walk(Bound::Unbounded, Bound::Unbounded, false);
    if result.damage.is_none() {
        result.damage.clone_from(&forward.error);
    }
    if result.damage.is_none() {
        return result;
    }
    let backward = reader.walk(Bound::Unbounded, Bound::Unbounded, true);
    let (Some(error), Some(_)) = (forward.error, backward.error) else { return result };
    let (after, before) = (forward.last, backward.last);
    if after.as_ref().zip(before.as_ref()).is_some_and(|(after, before)| after >= before) {
        return result;
    }
    let whole = Part::new(Edge::read(after), Edge::read(before), error, LONGEST);
    result.gaps = joined(reader.probe(whole));
    result
}

/// An end of an unreadable part.
#[derive(Clone)]
struct Edge<K> {
    /// The key up to which nothing is known; `None`: the end of all keys.
    key: Option<K>,
    /// The nearest key outside the part that was read.
    nearest: Option<K>,
    /// `true` if the outside has been read up to `nearest`.
    read: bool,
}

impl<K: Clone> Edge<K> {
    /// Returns an edge at a record that was read, or at the end of all keys.
    fn read(key: Option<K>) -> Self {
        Self { nearest: key.clone(), key, read: true }
    }

    /// Returns the edge where a scan from `tried` failed: at its last record. If it read none, the edge
    /// depends on how far the scan to the `other` side came before its `end`.
    fn of(walk: &ScanReach<K>, tried: &K, other: &ScanReach<K>, end: &Self) -> Self {
        if walk.last.is_some() {
            return Self::read(walk.last.clone());
        }
        let nearest = match &other.first {
            Some(first) => Some(first.clone()),
            None => end.nearest.clone(),
        };
        let read = other.first.is_some() || other.error.is_none();
        Self { key: Some(tried.clone()), nearest, read }
    }

    fn bound(&self) -> Bound<&K> {
        self.key.as_ref().map_or(Bound::Unbounded, Bound::Excluded)
    }
}

/// A range between two edges of which nothing could be read yet.
#[derive(Clone)]
struct Part<K> {
    after: Edge<K>,
    before: Edge<K>,
    error: IndexError,
    /// The length of the longest key to try in it, in bytes of its encoding.
    longest: usize,
}

impl<K: Key> Part<K> {
    fn new(after: Edge<K>, before: Edge<K>, error: IndexError, longest: usize) -> Self {
        let len = |edge: &Edge<K>| match &edge.key {
            Some(key) if edge.read => encoded::<K>(key.borrowed()).len() + FINER,
            _ => 0,
        };
        let longest = longest.max(len(&after)).max(len(&before));
        Self { after, before, error, longest }
    }

    /// Returns its priority: near records that were read there are probably more.
    fn promise(&self) -> u8 {
        u8::from(self.after.read) + u8::from(self.before.read)
    }

    /// Returns a key within it, if there is one.
    fn middle(&self) -> Option<K> {
        let (after, before) = (self.after.key.as_ref(), self.before.key.as_ref());
        let bytes_of = |key: &K| encoded::<K>(key.borrowed());
        let low = after.map(bytes_of).unwrap_or_default();
        let high = before.map(bytes_of);
        let width = match K::SHAPE {
            Shape::Inline(words) => 8 * words,
            Shape::Bytes => {
                (low.len().max(high.as_ref().map_or(0, Vec::len)) + 1).min(self.longest.max(1))
            }
        };
        let bytes = mean(&low, high.as_deref(), width);
        let key: K = decoded(&bytes)?;
        let between =
            after.is_none_or(|after| *after < key) && before.is_none_or(|high| key < *high);
        between.then_some(key)
    }
}

/// How far a scan came.
struct ScanReach<K> {
    first: Option<K>,
    last: Option<K>,
    error: Option<IndexError>,
}

struct Reader<'a, K: Key, V: Value> {
    index: &'a dyn Index<K, V>,
    each: &'a mut dyn FnMut(K, V) -> bool,
    /// The damage, if it is known: then a record counts only if a lookup finds it too.
    damage: Option<IndexError>,
    stopped: bool,
}

impl<K: Key, V: Value> Reader<'_, K, V> {
    /// Returns `true` if a lookup finds this record: a value that is not equal to itself, such as NaN, too.
    fn finds(&self, key: &K, value: &V) -> bool {
        let found = self.index.get(key.borrowed()).ok().flatten();
        found.is_some_and(|found| same_encoding::<V>(found.borrowed(), value.borrowed()))
    }

    /// Scans until something cannot be read.
    fn walk(&mut self, lower: Bound<&K>, upper: Bound<&K>, backward: bool) -> ScanReach<K> {
        let mut walk = ScanReach { first: None, last: None, error: None };
        let mut records =
            self.index.range_bounds(lower.map(Storable::borrowed), upper.map(Storable::borrowed));
        while !self.stopped {
            match if backward { records.next_back() } else { records.next() } {
                Some(Ok((key, value))) => {
                    if let Some(damage) = &self.damage
                        && !self.finds(&key, &value)
                    {
                        walk.error = Some(damage.clone());
                        break;
                    }
                    self.stopped = !(self.each)(key.clone(), value);
                    walk.first.get_or_insert_with(|| key.clone());
                    walk.last = Some(key);
                }
                Some(Err(error)) => {
                    walk.error = Some(error);
                    break;
                }
                None => break,
            }
        }
        walk
    }

    /// Halves the parts that cannot be read; returns what remains of them, in no order.
    fn probe(&mut self, whole: Part<K>) -> Vec<Part<K>> {
        let mut open = BTreeMap::from([((Reverse(whole.promise()), 0), whole)]);
        let mut closed = Vec::new();
        for number in 0..PROBES {
            let Some((_, part)) = open.pop_first() else { break };
            let (false, Some(middle)) = (self.stopped, part.middle()) else {
                closed.push(part);
                continue;
            };
            let right = self.walk(Bound::Included(&middle), part.before.bound(), false);
            let left = self.walk(part.after.bound(), Bound::Excluded(&middle), true);
            let before = Edge::of(&left, &middle, &right, &part.before);
            let after = Edge::of(&right, &middle, &left, &part.after);
            let mut halves = Vec::new();
            if let Some(error) = left.error {
                halves.push(Part::new(part.after, before, error, part.longest));
            }
            if let Some(error) = right.error {
                halves.push(Part::new(after, part.before, error, part.longest));
            }
            for (side, half) in halves.into_iter().enumerate() {
                open.insert((Reverse(half.promise()), 2 * number + side + 1), half);
            }
        }
        closed.extend(open.into_values());
        closed
    }
}

/// Sorts parts; joins those between which nothing was read into one gap.
fn joined<K: Key>(mut parts: Vec<Part<K>>) -> Vec<Gap<K>> {
    parts.sort_by(|a, b| a.after.key.cmp(&b.after.key)); // `None`, the least, comes first
    let mut joined: Vec<Part<K>> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if !part.after.read && last.before.key == part.after.key => {
                last.before = part.before;
            }
            _ => joined.push(part),
        }
    }
    let gap = |part: Part<K>| Gap {
        after: part.after.nearest,
        before: part.before.nearest,
        error: part.error,
    };
    joined.into_iter().map(gap).collect()
}

/// Returns the mean of two byte strings as fractions; `None` is 1.
fn mean(low: &[u8], high: Option<&[u8]>, width: usize) -> Vec<u8> {
    let digit = |bytes: &[u8], at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    let mut sum = vec![0; width];
    let mut carry = u16::from(high.is_none());
    for at in (0..width).rev() {
        let high = high.map_or(0xff, |bytes| digit(bytes, at));
        let digits = digit(low, at) + high + carry;
        (sum[at], carry) = ((digits & 0xff) as u8, digits >> 8);
    }
    for byte in &mut sum {
        let digits = carry << 8 | u16::from(*byte);
        (*byte, carry) = ((digits >> 1) as u8, digits & 1);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use pmindex_core::PmError;
    use pmindex_index::{InsertMany, Missing, Occupied, RangeIter, RecoveryReport, Stats};

    use super::*;

    /// An index with ranges of keys that cannot be read.
    struct Broken<K, V = u64> {
        records: BTreeMap<K, V>,
        bad: Vec<std::ops::RangeInclusive<K>>,
    }

    fn lost() -> IndexError {
        PmError::Corrupt { what: "a leaf", offset: 64 }.into()
    }

    impl<K: Key, V: Value + Copy> Index<K, V> for Broken<K, V> {
        fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
            Ok(self.records.get(&K::owned(key)).copied())
        }
        fn insert(&self, _: &K::Ref, _: &V::Ref) -> Result<Option<V>, IndexError> {
            Err(lost())
        }
        fn try_insert(&self, _: &K::Ref, _: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
            Err(lost())
        }
        fn update(&self, _: &K::Ref, _: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
            Err(lost())
        }
        fn remove_exact(&self, _: &K::Ref, _: &V) -> Result<Option<V>, IndexError> {
            Err(lost())
        }
        fn put(&self, _: &K::Ref, _: &V::Ref) -> Result<bool, IndexError> {
            Err(lost())
        }
        fn remove(&self, _: &K::Ref) -> Result<Option<V>, IndexError> {
            Err(lost())
        }
        fn range_bounds(
            &self,
            lower: Bound<&K::Ref>,
            upper: Bound<&K::Ref>,
        ) -> RangeIter<'_, K, V> {
            let (lower, upper) = (lower.map(K::owned), upper.map(K::owned));
            // A lookup or bound inside a bad range descends into it; a scan fails when it reaches one.
            let inside = |bound: &Bound<K>| match bound {
                Bound::Included(key) | Bound::Excluded(key) => {
                    self.bad.iter().any(|bad| bad.contains(key))
                }
                Bound::Unbounded => false,
            };
            let bad_ends = (inside(&lower), inside(&upper));
            let mut items: Vec<Result<(K, V), IndexError>> = Vec::new();
            if bad_ends.0 {
                items.push(Err(lost()));
            }
            for (key, value) in self.records.range((lower, upper)) {
                let bad = self.bad.iter().any(|bad| bad.contains(key));
                items.push(if bad { Err(lost()) } else { Ok((key.clone(), *value)) });
            }
            if bad_ends.1 {
                items.push(Err(lost()));
            }
            Box::new(items.into_iter())
        }
        fn len(&self) -> Result<u64, IndexError> {
            Ok(self.records.len() as u64)
        }
        fn bulk_load(&self, _: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
            Err(lost())
        }
        fn get_many(&self, _: &[K], _: &mut [Option<V>]) -> Result<(), IndexError> {
            Err(lost())
        }
        fn try_insert_many(&self, _: &[(K, V)]) -> InsertMany {
            InsertMany::default()
        }
        fn stats(&self) -> Result<Stats, IndexError> {
            Err(lost())
        }
        fn check(&self) -> Result<u64, IndexError> {
            if self.bad.is_empty() { self.len() } else { Err(lost()) }
        }
        fn recovery_report(&self) -> RecoveryReport {
            RecoveryReport::default()
        }
    }

    fn salvaged<K: Key>(index: &Broken<K>) -> (BTreeSet<K>, Salvage<K>) {
        let mut keys = BTreeSet::new();
        let result = salvage(index, &mut |key: K, _: u64| {
            keys.insert(key);
            true
        });
        (keys, result)
    }

    #[test]
    fn islands_between_damaged_nodes_are_found() {
        let bad = vec![100..=199, 50_000..=50_099, 900_000..=900_999];
        let records = (0..1_000_000).step_by(10).map(|key| (key, !key)).collect();
        let index = Broken::<u64> { records, bad };
        let (keys, result) = salvaged(&index);
        let good = |key: &u64| !index.bad.iter().any(|bad| bad.contains(key));
        assert!(keys.iter().copied().eq(index.records.keys().copied().filter(good)));
        let gaps: Vec<_> = result.gaps.iter().map(|gap| (gap.after, gap.before)).collect();
        let edges =
            [(90, 200), (49_990, 50_100), (899_990, 901_000)].map(|(a, b)| (Some(a), Some(b)));
        assert_eq!(gaps, edges);
        assert_eq!(result.claimed, Some(100_000));
    }

    /// A few small numbers in a large space, and neither end can be read.
    #[test]
    fn small_numbers_are_found_without_either_end() {
        let records = (0..4000).map(|key| (key, 0)).collect();
        let index = Broken::<u64> { records, bad: vec![0..=99, 3900..=u64::MAX] };
        let (keys, result) = salvaged(&index);
        assert!(keys.iter().copied().eq(100..3900), "{result:?}");
        let gaps: Vec<_> = result.gaps.iter().map(|gap| (gap.after, gap.before)).collect();
        assert_eq!(gaps, [(None, Some(100)), (Some(3899), None)]);
    }

    #[test]
    fn values_that_are_not_equal_to_themselves_are_found() {
        let records = (0..1000).map(|key| (key, f64::NAN)).collect();
        let index = Broken::<u64, f64> { records, bad: vec![400..=449] };
        let mut keys = BTreeSet::new();
        let result = salvage(&index, &mut |key: u64, _: f64| {
            keys.insert(key);
            true
        });
        assert_eq!(keys.len(), 950);
        let gaps: Vec<_> = result.gaps.iter().map(|gap| (gap.after, gap.before)).collect();
        assert_eq!(gaps, [(Some(399), Some(450))]);
    }

    #[test]
    fn byte_strings_are_halved_too() {
        let key = |n: u32| format!("user {n:05}").into_bytes();
        let records = (0..10_000).map(|n| (key(n), 0)).collect();
        let bad = vec![key(50)..=key(99), key(5000)..=key(5100), key(9990)..=vec![0xff; 40]];
        let index = Broken { records, bad };
        let (keys, result) = salvaged(&index);
        assert_eq!(keys.len(), 10_000 - 50 - 101 - 10);
        let edges = [(Some(49), Some(100)), (Some(4999), Some(5101)), (Some(9989), None)];
        for (gap, (after, before)) in result.gaps.iter().zip(edges) {
            assert_eq!((&gap.after, &gap.before), (&after.map(key), &before.map(key)));
        }
        assert_eq!(result.gaps.len(), 3);
    }

    #[test]
    fn a_whole_index_is_read_once_and_an_unreadable_one_is_one_gap() {
        let records: BTreeMap<u64, u64> = (0..100).map(|key| (key, key)).collect();
        let mut times = 0;
        let index = Broken { records, bad: Vec::new() };
        let result = salvage(&index, &mut |_: u64, _: u64| {
            times += 1;
            true
        });
        assert_eq!((times, result.damage, result.gaps.len()), (100, None, 0));
        let index = Broken { bad: vec![0..=u64::MAX], ..index };
        let (keys, result) = salvaged(&index);
        assert!(keys.is_empty());
        assert_eq!(result.gaps, [Gap { after: None, before: None, error: lost() }]);
    }

    #[test]
    fn means_lie_between() {
        fn middle<K: Key>(after: Option<K>, before: Option<K>) -> Option<K> {
            Part::new(Edge::read(after), Edge::read(before), lost(), 0).middle()
        }
        assert_eq!(mean(&[0], Some(&[2]), 1), [1]);
        assert_eq!(mean(&[0xff], None, 2), [0xff, 0x80]);
        assert_eq!(mean(b"a", Some(b"b"), 2), [b'a', 0x80]);
        assert_eq!(middle::<u64>(Some(7), Some(8)), None);
        assert_eq!(middle::<u64>(Some(u64::MAX - 2), None), Some(u64::MAX - 1));
        assert_eq!(middle::<u8>(Some(1), None), None, "no u8 has such an encoding");
        assert_eq!(middle::<String>(Some("a".into()), Some("b".into())), None, "no UTF-8");
    }
}
