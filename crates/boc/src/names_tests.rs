//! The base of a logged index is never without the index to which it belongs: creations and removals, with a crash at
//! each of their steps, and indexes of the user's that have such a name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{Mapped, Medium, Pool, PoolOptions, Traced};
use pmindex_fastfair::FastFair;
use pmindex_index::{Index, IndexError, PmIndex};
use pmindex_testkit::crash::{
    Config, CrashSubject, Fault, Geometry, create_used_pool, explore, open_pool,
};
use proptest::prelude::*;

use crate::{Buffered, ByKey};

type Tree<M = Mapped> = FastFair<u64, u64, M, 4, 4>;
type Small<M = Mapped> = Buffered<ByKey<Tree<M>>, M, true, 2>;

fn names<M: Medium>(pool: &Pool<M>) -> Vec<String> {
    let mut names: Vec<_> =
        pool.indexes().expect("sound").into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

#[test]
fn another_index_with_the_name_of_a_base_stays() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let others = Tree::create(&pool, "i.base").expect("room");
    others.put(&7, &8).expect("room");
    for is_open in [true, false] {
        let refused = Small::create(&pool, "i").map(drop);
        assert_eq!(refused, Err(IndexError::IndexExists { name: "i.base".into() }), "{is_open}");
        assert!(matches!(Small::open(&pool, "i"), Err(IndexError::NoSuchIndex { .. })));
        assert_eq!(Small::destroy(&pool, "i"), Ok(false), "{is_open}");
        assert_eq!(others.get(&7), Ok(Some(8)));
        if is_open {
            continue;
        }
        // It has another kind than the base of an index would have, and the index's own name.
        Tree::create(&pool, "i").expect("room");
        assert!(matches!(Small::destroy(&pool, "i"), Err(IndexError::WrongType { .. })));
    }
    assert_eq!(names(&pool), ["i", "i.base"]);
    drop(others);
    assert_eq!(Tree::open(&pool, "i.base").expect("sound").get(&7), Ok(Some(8)));
}

/// What a crash in the middle of a removal leaves does not open, and the next index has no record of it.
#[test]
fn an_index_that_was_removed_in_part_is_gone() {
    for is_created in [false, true] {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let index = Small::create(&pool, "i").expect("room");
        for key in 0..21 {
            index.put(&key, &key).expect("room");
        }
        drop(index);
        assert_eq!(Tree::destroy(&pool, "i.base"), Ok(true));
        let opened = Small::open(&pool, "i").map(drop);
        assert_eq!(opened, Err(IndexError::NoSuchIndex { name: "i".into() }));
        if is_created {
            let index = Small::create(&pool, "i").expect("room");
            assert_eq!((index.get(&3), index.len()), (Ok(None), Ok(0)));
        } else {
            assert_eq!(Small::destroy(&pool, "i"), Ok(true));
            assert_eq!(names(&pool), [""; 0]);
            pool.audit(std::iter::empty()).expect("nothing is left");
        }
    }
}

#[test]
fn a_creation_that_finds_no_room_leaves_nothing() {
    for bytes in (64 << 10..128 << 10).step_by(1024) {
        let options = PoolOptions::new().size(bytes).grow(false).emulate_pm(true);
        let Ok(pool) = Pool::create_in_memory(&options, |mapped| mapped) else { continue };
        let pool = Arc::new(pool);
        let mut held = Vec::new();
        while let Ok(other) = Tree::create(&pool, &format!("{}", held.len())) {
            held.push(other);
        }
        for _ in 0..4 {
            let all = names(&pool);
            // There is no room for a block, or for an entry of the directory.
            let Err(error) = Small::create(&pool, "i") else { break };
            assert!(matches!(error, IndexError::Pool(_)), "{error}");
            assert_eq!(names(&pool), all);
            let Some(last) = held.pop() else { break };
            drop(last);
            Tree::destroy(&pool, &format!("{}", held.len())).expect("sound");
        }
    }
}

/// An index that comes and goes.
struct Coming {
    index: Mutex<Option<Small<Traced>>>,
    pool: Arc<Pool<Traced>>,
}

#[derive(Clone, Debug)]
enum Op {
    Create,
    Put(u64, u64),
    Destroy,
}

fn options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
}

impl Coming {
    fn with(pool: Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let index = match Small::open(&pool, "i") {
            Err(IndexError::NoSuchIndex { .. }) => {
                Small::<Traced>::destroy(&pool, "i")?; // the rest of an interrupted removal
                None
            }
            index => Some(index?),
        };
        Ok(Self { index: Mutex::new(index), pool })
    }
}

impl CrashSubject for Coming {
    type Op = Op;
    type Ret = bool;
    type Model = Option<BTreeMap<u64, u64>>;
    const NAME: &'static str = "boc-names";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Self::with(create_used_pool(space, &options())?)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        open_pool(space, &options())?.map(Self::with).transpose()
    }

    fn apply(&self, op: &Op) -> Result<bool, Fault> {
        let mut index = self.index.lock();
        Ok(match (op, &*index) {
            (Op::Create, Some(_)) | (Op::Put(..) | Op::Destroy, None) => false,
            (Op::Create, None) => {
                *index = Some(Small::create(&self.pool, "i")?);
                true
            }
            (Op::Put(key, value), Some(index)) => Index::put(index, key, value)?,
            (Op::Destroy, Some(_)) => {
                *index = None;
                Small::<Traced>::destroy(&self.pool, "i")?
            }
        })
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        let index = self.index.lock();
        let wanted: &[&str] = if index.is_some() { &["i", "i.base"] } else { &[] };
        if names(&self.pool) != wanted {
            return Err(Fault::new(format!("there are {:?}", names(&self.pool))));
        }
        let all = index.as_ref().map(|index| {
            let all = index.range_bounds(Bound::Unbounded, Bound::Unbounded);
            all.collect::<Result<BTreeMap<_, _>, _>>()
        });
        Ok(all.transpose()?)
    }

    fn audit(&self) -> Result<(), Fault> {
        let index = self.index.lock();
        let blocks = index.as_ref().map_or(Ok(Vec::new()), PmIndex::blocks)?;
        self.pool.audit(blocks.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Self::Model, op: &Op) -> bool {
        match (op, &mut *model) {
            (Op::Create, None) => *model = Some(BTreeMap::new()),
            (Op::Put(key, value), Some(records)) => return records.insert(*key, *value).is_none(),
            (Op::Destroy, Some(_)) => *model = None,
            _ => return false,
        }
        true
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![
            2 => Just(Op::Create),
            3 => (0..6u64, 0..9u64).prop_map(|(key, value)| Op::Put(key, value)),
            2 => Just(Op::Destroy),
        ]
        .boxed()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("boc/src/")
    }
}

#[test]
fn a_crash_leaves_an_index_with_its_base_or_neither() {
    let config = Config::new().seed(1).states(20_000).threads(1);
    let report = explore::<Coming>(&config).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states >= 5_000, "{}", report.states);
}
