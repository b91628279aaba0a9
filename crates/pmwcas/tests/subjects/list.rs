//! The doubly linked list of the examples.

use std::collections::BTreeMap;
use std::panic::Location;

use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_pool, open_pool};
use proptest::prelude::*;

use super::structure::List;
use super::words::owned_by_pool;

/// A removal has five words.
const CONFIG: pmindex_pmwcas::Config =
    pmindex_pmwcas::Config { partitions: 3, per_partition: 4, words: 6 };

pub(crate) struct Linked {
    list: List<Traced>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Insert(u64, u64),
    Remove(u64),
    Update(u64, u64),
    Get(u64),
}

fn options() -> PoolOptions {
    PoolOptions::new().size(64 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512).grow(false)
}

impl Linked {
    fn pool(&self) -> &Pool<Traced> {
        self.list.mwcas().pool()
    }
}

impl CrashSubject for Linked {
    type Op = Op;
    type Ret = Option<u64>;
    type Model = BTreeMap<u64, u64>;

    const NAME: &'static str = "pmwcas-list";

    fn geometry() -> Geometry {
        let len = options().created_size().expect("valid options") as usize;
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &options())?;
        Ok(Self { list: List::create(&pool, "list", CONFIG)? })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        Ok(List::open(&pool, "list", CONFIG)?.map(|list| Self { list }))
    }

    fn apply(&self, op: &Op) -> Result<Option<u64>, Fault> {
        Ok(match *op {
            Op::Insert(key, value) => self.list.insert(key, value)?.then_some(1),
            Op::Remove(key) => self.list.remove(key)?,
            Op::Update(key, value) => self.list.update(key, value)?.then_some(1),
            Op::Get(key) => self.list.get(key)?,
        })
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        let (front, mut back) = (self.list.nodes(true)?, self.list.nodes(false)?);
        back.reverse();
        if front != back || !front.is_sorted_by_key(|&(_, key, _)| key) {
            return Err(Fault::new(format!("forwards {front:?}, backwards {back:?}")));
        }
        Ok(front.into_iter().map(|(_, key, value)| (key, value)).collect())
    }

    fn audit(&self) -> Result<(), Fault> {
        self.list.mwcas().quiesce()?;
        let nodes = self.list.nodes(true)?.into_iter().map(|(node, ..)| node);
        let table = self.list.mwcas().table_offset();
        self.pool().audit(owned_by_pool(self.pool())?.into_iter().chain([table]).chain(nodes))?;
        Ok(())
    }

    fn model(model: &mut Self::Model, op: &Op) -> Option<u64> {
        match *op {
            Op::Insert(key, _) if model.contains_key(&key) => None,
            Op::Insert(key, value) => {
                model.insert(key, value);
                Some(1)
            }
            Op::Remove(key) => model.remove(&key),
            Op::Update(key, value) => model.get_mut(&key).map(|old| {
                *old = value;
                1
            }),
            Op::Get(key) => model.get(&key).copied(),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        let key = || 1u64..6;
        prop_oneof![
            3 => (key(), 10u64..100).prop_map(|(key, value)| Op::Insert(key, value)),
            3 => key().prop_map(Op::Remove),
            1 => (key(), 10u64..100).prop_map(|(key, value)| Op::Update(key, value)),
            1 => key().prop_map(Op::Get),
        ]
        .boxed()
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().ends_with("list/structure.rs")
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[("list/structure.rs", include_str!("../../examples/list/structure.rs"))]
    }
}
