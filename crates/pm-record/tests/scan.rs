//! Scans of a list of leaves, from both ends.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_core::sync::VersionLock;
use pmindex_core::{Mapped, PmError, Pool};
use pmindex_index::IndexError;
use pmindex_record::{Barren, Bounds, LeafSource, Outside, Scan, Sink, Skipped};
use proptest::prelude::*;

/// Leaves of records, some of them empty. Each read may find that its leaf has changed.
struct Leaves<'p> {
    pool: &'p Pool,
    list: &'p [Vec<(u64, u64)>],
    front: usize,
    back: usize,
    /// Bits: whether a read finds a change.
    changes: u64,
    /// `true` to stop at the wanted number.
    stops: bool,
    /// Reads until one fails.
    fails_after: Option<u32>,
}

impl Leaves<'_> {
    fn begin(&mut self) -> Result<bool, IndexError> {
        if let Some(left) = self.fails_after.as_mut() {
            let next = left.checked_sub(1);
            *left = next.ok_or(PmError::Corrupt { what: "a leaf", offset: 0 })?;
        }
        let changed = self.changes & 1 == 1;
        self.changes >>= 1;
        Ok(changed)
    }

    fn copy(
        &self,
        at: usize,
        bounds: &Bounds<u64>,
        most: usize,
        items: &mut impl Sink<u64, u64>,
    ) -> Outside {
        let (mut outside, before) = (Outside::default(), items.count());
        for record in &self.list[at] {
            let (below, above) = (bounds.is_below(&record.0), bounds.is_above(&record.0));
            outside.below |= below;
            outside.above |= above;
            if below || above {
                continue;
            }
            if items.count() - before == most {
                outside.cut = true;
                break;
            }
            items.push(*record);
        }
        outside
    }
}

impl LeafSource for Leaves<'_> {
    type Key = u64;
    type Value = u64;
    type Medium = Mapped;
    type Bound = u64;

    fn pool(&self) -> &Pool {
        self.pool
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<u64>,
        most: usize,
        items: &mut impl Sink<u64, u64>,
    ) -> Result<bool, IndexError> {
        if self.begin()? {
            return Ok(true);
        }
        if self.front == self.list.len() {
            return Ok(false);
        }
        let (before, most) = (items.count(), if self.stops { most } else { usize::MAX });
        let outside = self.copy(self.front, bounds, most, items);
        bounds.pass_up(&items.records()[before..]);
        self.front += usize::from(!outside.cut);
        Ok(outside.cut || !outside.above)
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<u64>,
        _: usize,
        items: &mut Vec<(u64, u64)>,
    ) -> Result<bool, IndexError> {
        if self.begin()? {
            return Ok(true);
        }
        let Some(at) = self.back.checked_sub(1) else { return Ok(false) };
        self.back = at;
        let outside = self.copy(at, bounds, usize::MAX, items);
        bounds.pass_down(items);
        Ok(!outside.below)
    }
}

fn bound() -> impl Strategy<Value = Bound<u64>> {
    prop_oneof![
        (0..60u64).prop_map(Bound::Included),
        (0..60u64).prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ]
}

fn is_refused(range: &(Bound<u64>, Bound<u64>)) -> bool {
    match *range {
        (Bound::Excluded(s), Bound::Excluded(e)) => s >= e,
        (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => s > e,
        _ => false,
    }
}

/// What a caller does with a scan.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Front,
    Back,
    Append(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![Just(Turn::Front), Just(Turn::Back), (0..9usize).prop_map(Turn::Append)]
}

proptest! {
    #[test]
    fn any_turns_give_every_record_once_and_in_order(
        gaps in prop::collection::vec((1..4u64, any::<bool>()), 0..40),
        range in (bound(), bound()),
        turns in prop::collection::vec(turn(), 0..60),
        changes: u64,
        stops: bool,
    ) {
        prop_assume!(!is_refused(&range));
        let pool = Pool::emulated(1 << 20).unwrap();
        let (mut leaves, mut key, mut model) = (vec![Vec::new()], 0, BTreeMap::new());
        for (gap, begins) in gaps {
            key += gap;
            if begins {
                leaves.push(Vec::new());
            }
            leaves.last_mut().unwrap().push((key, 10 * key));
            model.insert(key, 10 * key);
        }
        let (front, back) = (0, leaves.len());
        let source =
            Leaves { pool: &pool, list: &leaves, front, back, changes, stops, fails_after: None };
        let mut scan = Scan::new(source, Bounds::of(range));
        let mut expected = model.range(range).map(|(k, v)| (*k, *v));
        for turn in turns {
            match turn {
                Turn::Front => prop_assert_eq!(scan.next().transpose()?, expected.next()),
                Turn::Back => prop_assert_eq!(scan.next_back().transpose()?, expected.next_back()),
                Turn::Append(limit) => {
                    let mut out = vec![(0, 0)];
                    scan.append_to(limit, &mut out)?;
                    let all: Vec<_> = [(0, 0)].into_iter().chain(expected.by_ref().take(limit)).collect();
                    prop_assert_eq!(out, all);
                }
            }
        }
        let rest: Vec<_> = scan.collect::<Result<_, _>>()?;
        prop_assert_eq!(rest, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_scan_that_fails_says_so_once_tells_the_pool_and_is_over() {
    let leaves: Vec<Vec<(u64, u64)>> = (0..4).map(|i| vec![(i, i)]).collect();
    for back in [false, true] {
        let pool = Pool::emulated(1 << 20).unwrap();
        let source = Leaves {
            pool: &pool,
            list: &leaves,
            front: 0,
            back: 4,
            changes: 0,
            stops: true,
            fails_after: Some(2),
        };
        let mut scan = Scan::new(source, Bounds::of(..));
        let mut next = || if back { scan.next_back() } else { scan.next() };
        assert!(next().is_some_and(|item| item.is_ok()) && next().is_some_and(|item| item.is_ok()));
        assert!(pool.check_writable().is_ok());
        let failed = next().unwrap().unwrap_err();
        assert!(matches!(failed, IndexError::Pool(PmError::Corrupt { .. })), "{failed}");
        assert!(next().is_none() && next().is_none());
        assert!(pool.check_writable().is_err(), "a damaged pool takes no writes");
    }
}

#[test]
fn as_many_barren_leaves_as_there_can_be_are_no_damage_and_one_more_is() {
    let mut barren = Barren::default();
    for _ in 0..3 {
        barren.count(0, 64, 3).unwrap();
    }
    barren.count(1, 64, 3).unwrap();
    for _ in 0..3 {
        barren.count(0, 64, 3).unwrap();
    }
    assert!(matches!(barren.count(0, 64, 3), Err(PmError::Corrupt { offset: 64, .. })));
}

/// Two leaves under locks; a thread changes both between the reads of the source.
struct Changing<'p> {
    pool: &'p Pool,
    locks: &'p [VersionLock; 2],
    /// How many scans have met the change.
    met: &'p Cell<u32>,
    changes: u32,
    skipped: Skipped<'p>,
    read: usize,
}

impl Changing<'_> {
    fn read(&mut self, up: bool, items: &mut impl Sink<u64, u64>) -> bool {
        let pm = self.pool.pm();
        let at = if up { self.read } else { 1 - self.read };
        let version = self.locks[at].begin_read(pm);
        let change = self.met.get() < self.changes;
        let records: &[u64] = match self.read {
            0 => &[],
            // The first leaf has a record meanwhile, and this one has lost its own.
            _ if change => &[20],
            _ => &[10],
        };
        for &key in records {
            items.push((key, key));
        }
        self.skipped.note(records.len(), &self.locks[at], version);
        if self.read == 0 && change {
            drop(self.locks[at].lock(pm));
        } else if change {
            self.met.set(self.met.get() + 1);
        }
        self.read += 1;
        self.read < 2
    }
}

impl LeafSource for Changing<'_> {
    type Key = u64;
    type Value = u64;
    type Medium = Mapped;
    type Bound = u64;

    fn pool(&self) -> &Pool {
        self.pool
    }

    fn watch(&mut self) {
        self.skipped.watch();
    }

    fn stays(&self) -> bool {
        self.skipped.stay(self.pool.pm())
    }

    fn read_front(
        &mut self,
        _: &mut Bounds<u64>,
        _: usize,
        items: &mut impl Sink<u64, u64>,
    ) -> Result<bool, IndexError> {
        Ok(self.read(true, items))
    }

    fn read_back(
        &mut self,
        _: &mut Bounds<u64>,
        _: usize,
        items: &mut Vec<(u64, u64)>,
    ) -> Result<bool, IndexError> {
        Ok(self.read(false, items))
    }
}

#[test]
fn an_end_is_read_again_while_a_leaf_that_was_skipped_changes() {
    let pool = Pool::emulated(1 << 20).unwrap();
    let locks = [VersionLock::new(), VersionLock::new()];
    for changes in 0..4 {
        for up in [true, false] {
            let met = Cell::new(0);
            let begin = || {
                let (skipped, read) = (Skipped::default(), 0);
                let (pool, locks, met) = (&pool, &locks, &met);
                Scan::new(Changing { pool, locks, met, changes, skipped, read }, Bounds::of(..))
            };
            let end = if up { Scan::least(begin) } else { Scan::greatest(begin) };
            assert_eq!(end, Ok(Some((10, 10))));
            assert_eq!(met.get(), changes);
        }
    }
}
