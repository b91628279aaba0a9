//! A pool grows while keys that were made alike split a segment as often as the pool allows: after a crash the pool
//! may have its former length, for which no segment may be too deep.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_index::IndexError;
use pmindex_testkit::crash::{
    Config, CrashSubject, Fault, Geometry as Size, Plan, create_pool, explore, open_pool,
};
use proptest::prelude::*;

use crate::index::Cceh;
use crate::layout::{Geometry, position};
use crate::segment::Segment;

type Index = Cceh<u64, u64, Traced, 3, 2>;

/// As many as have room in two lines, and one more.
const ALIKE: u8 = 9;
const ZONE: u64 = 16 << 10;

struct Growing {
    pool: Arc<Pool<Traced>>,
    index: Index,
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u8),
    /// To a length that allows deeper segments.
    Grow,
}

#[derive(Clone, Debug, PartialEq)]
enum Ret {
    Done,
    Refused,
}

fn options() -> PoolOptions {
    PoolOptions::new().size(40 << 10).zone_bytes(ZONE).slots(3).slot_bytes(512)
}

fn len() -> u64 {
    options().created_size().expect("a size")
}

fn grown() -> u64 {
    len().next_power_of_two() + ZONE
}

/// Keys that only a split beyond the depth that the pool allows at first can tell apart.
fn key(n: u8) -> u64 {
    static KEYS: OnceLock<Vec<u64>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let depth = Geometry::<u64, u64, 3, 2>::max_depth(len());
        assert!(depth < Geometry::<u64, u64, 3, 2>::max_depth(grown()));
        let is_alike = |key: &u64| {
            let position = position(*key);
            position >> (64 - depth) == 0x51_2345 >> (23 - depth)
                && Segment::<3, 2>::home(position) == 0
        };
        (0..).filter(is_alike).take(ALIKE.into()).collect()
    });
    keys[usize::from(n)]
}

impl CrashSubject for Growing {
    type Op = Op;
    type Ret = Ret;
    type Model = BTreeSet<u8>;
    const NAME: &'static str = "cceh-growing";

    fn geometry() -> Size {
        Size { len: len() as usize, capacity: (grown() + ZONE) as usize }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &options().max_size(grown() + ZONE))?;
        let index = Index::create(&pool, "index")?;
        Ok(Self { pool, index })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options().max_size(grown() + ZONE))? else {
            return Ok(None);
        };
        match Index::open(&pool, "index") {
            Ok(index) => Ok(Some(Self { pool, index })),
            Err(IndexError::NoSuchIndex { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        match *op {
            Op::Insert(n) => match self.index.put(&key(n), &u64::from(n)) {
                Ok(_) => Ok(Ret::Done),
                Err(IndexError::TooManyAlike { .. }) => Ok(Ret::Refused),
                Err(error) => Err(error.into()),
            },
            Op::Grow => {
                self.pool.grow(grown())?;
                Ok(Ret::Done)
            }
        }
    }

    fn observe(&self) -> Result<BTreeSet<u8>, Fault> {
        let mut found = BTreeSet::new();
        for n in 0..ALIKE {
            if let Some(value) = self.index.get(&key(n))? {
                assert_eq!(value, u64::from(n));
                found.insert(n);
            }
        }
        if self.index.check()? != found.len() as u64 {
            return Err(Fault::new("other records"));
        }
        Ok(found)
    }

    fn model(model: &mut BTreeSet<u8>, op: &Op) -> Ret {
        if let Op::Insert(n) = *op {
            model.insert(n);
        }
        Ret::Done
    }

    /// Whether the pool has grown is not among what a user sees.
    fn outcomes(model: &BTreeSet<u8>, op: &Op) -> Vec<(BTreeSet<u8>, Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        let mut outcomes = vec![(after, ret)];
        if matches!(op, Op::Insert(_)) && model.len() + 1 >= usize::from(ALIKE) {
            outcomes.push((model.clone(), Ret::Refused));
        }
        outcomes
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![5 => (0..ALIKE).prop_map(Op::Insert), 1 => Just(Op::Grow)].boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        vec![Plan {
            setup: (0..ALIKE - 1).map(Op::Insert).collect(),
            threads: vec![vec![Op::Grow], vec![Op::Insert(ALIKE - 1)]],
            tail: vec![Op::Insert(ALIKE - 1), Op::Grow, Op::Insert(ALIKE - 1)],
        }]
    }

    fn concurrent() -> bool {
        true
    }
}

#[test]
fn a_segment_is_no_deeper_than_the_durable_length_of_its_pool_allows() {
    let config = Config::new().states(20_000).threads(2);
    let explored = explore::<Growing>(&config);
    let report = explored.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states > 1000, "{report}");
}
