//! A durable sorted list: the smallest structure that uses everything an index uses.
//!
//! One pool block per record, linked by 8-byte offsets in the order of the keys.
//!
//! ```text
//! insert
//! step  store                                             durable before
//! P1    the new node, its link included; its ticket       P2
//! P2    the predecessor's link (LIN); allocation bits     return (DUR)
//!
//! remove
//! P1    the node's ticket                                 P2
//! P2    the predecessor's link (LIN); allocation bits     return (DUR)
//!
//! update
//! P1    the value, 8 bytes in place (LIN)                 return (DUR)
//! ```
//!
//! Writers hold the list's version lock until their commit is durable; readers validate it, so
//! no thread sees a write that a crash could take back. The lock is in DRAM and vanishes with a crash.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use pmindex::core::trace::Space;
use pmindex::core::{
    Medium, Owner, PPtr, PmError, PmPtr, PmU64, Pool, PoolOptions, Traced, pm_struct,
    sync::VersionLock,
};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_used_pool, open_pool};
use proptest::prelude::*;

pm_struct! {
    /// The root block: | first | seal |
    #[align(16)]
    pub(crate) struct Root: size 16 {
        first: PmPtr<Node>,
        /// [`SEAL`] once the root is initialized.
        seal: PmU64,
    }

    /// A record: | next | key | value | reserved |. Half a line; the link commits.
    #[align(32)]
    pub(crate) struct Node: size 32 {
        next: PmPtr<Node>,
        key: PmU64,
        value: PmU64,
        reserved: PmU64,
    }
}

/// The list.
pub(crate) struct List {
    pool: Arc<Pool<Traced>>,
    root: PPtr<Root>,
    lock: VersionLock,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Insert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    Get(u64),
}

/// Marks a root block as valid.
const SEAL: u64 = u64::from_le_bytes(*b"listroot");

/// Links followed before a list counts as a cycle.
const MAX_LINKS: usize = 10_000;

/// Where a key is or would be.
struct Place<'a> {
    link: &'a PmPtr<Node>,
    at: PPtr<Node>,
    node: Option<&'a Node>,
}

impl List {
    fn new(pool: Arc<Pool<Traced>>, root: PPtr<Root>) -> Self {
        Self { pool, root, lock: VersionLock::new() }
    }

    fn find(&self, key: u64) -> Result<Place<'_>, PmError> {
        let pm = self.pool.pm();
        let mut link = &self.pool.get(self.root)?.first;
        for _ in 0..MAX_LINKS {
            let at = pm.load(link);
            if at.is_null() {
                return Ok(Place { link, at, node: None });
            }
            let node = self.pool.get(at)?;
            let found = pm.load(&node.key);
            if found >= key {
                let node = (found == key).then_some(node);
                return Ok(Place { link, at, node });
            }
            link = &node.next;
        }
        Err(PmError::Corrupt { what: "a list without end", offset: self.root.offset() })
    }

    fn insert(&self, key: u64, value: u64) -> Result<bool, PmError> {
        let pm = self.pool.pm();
        let guard = self.lock.lock(pm);
        let place = self.find(key)?;
        if place.node.is_some() {
            return Ok(false);
        }
        let mut op = self.pool.op()?;
        let block = op.reserve::<Node>()?;
        let node = self.pool.get(block.ptr())?;
        pm.store(&node.next, place.at);
        pm.store(&node.key, key);
        pm.store(&node.value, value);
        let filled = pm.flush(node);
        op.allocate(&block, Owner::pointer(place.link, block.ptr()))?;
        op.prepare(filled)?; // P1, durable before: P2
        pm.store(place.link, block.ptr()); // P2, LIN(insert)
        let linked = op.seal().and(pm.flush(place.link));
        let durable = pm.fence(linked)?; // DUR(insert)
        op.finish(durable);
        drop(guard);
        Ok(true)
    }

    fn remove(&self, key: u64) -> Result<Option<u64>, PmError> {
        let pm = self.pool.pm();
        let guard = self.lock.lock(pm);
        let place = self.find(key)?;
        let Some(node) = place.node else { return Ok(None) };
        let (value, next) = (pm.load(&node.value), pm.load(&node.next));
        let mut op = self.pool.op()?;
        op.free(place.at, Owner::pointer(place.link, place.at))?;
        op.prepare(pmindex::core::Flushed::nothing())?; // P1, durable before: P2
        pm.store(place.link, next); // P2, LIN(remove)
        let unlinked = op.seal().and(pm.flush(place.link));
        let durable = pm.fence(unlinked)?; // DUR(remove)
        op.finish(durable);
        drop(guard);
        Ok(Some(value))
    }

    fn update(&self, key: u64, value: u64) -> Result<bool, PmError> {
        let pm = self.pool.pm();
        let guard = self.lock.lock(pm);
        let Some(node) = self.find(key)?.node else { return Ok(false) };
        pm.store(&node.value, value); // LIN(update)
        pm.persist(&node.value)?; // DUR(update)
        drop(guard);
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>, PmError> {
        let pm = self.pool.pm();
        loop {
            let version = self.lock.begin_read(pm);
            let value = self.find(key).map(|place| place.node.map(|node| pm.load(&node.value)));
            if self.lock.validate(pm, version) {
                return value;
            }
        }
    }

    /// The root and the nodes, in order.
    fn nodes(&self) -> Result<Vec<PPtr<Node>>, PmError> {
        let pm = self.pool.pm();
        let mut nodes = Vec::new();
        let mut at = pm.load(&self.pool.get(self.root)?.first);
        while !at.is_null() {
            if nodes.len() == MAX_LINKS {
                return Err(PmError::Corrupt { what: "a list without end", offset: at.offset() });
            }
            nodes.push(at);
            at = pm.load(&self.pool.get(at)?.next);
        }
        Ok(nodes)
    }
}

impl CrashSubject for List {
    type Op = Op;
    type Ret = Option<u64>;
    type Model = BTreeMap<u64, u64>;
    const NAME: &'static str = "list";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options())?;
        let entry = pool.create_index::<Root>("list", *b"list    ", 1, |root| {
            pool.pm().store(&root.first, PPtr::NULL);
            pool.pm().store(&root.seal, SEAL);
            pool.pm().flush(root)
        })?;
        Ok(Self::new(pool, entry.root()))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let Some(entry) = pool.open_index("list")? else { return Ok(None) };
        if pool.pm().load(&pool.get(entry.root::<Root>())?.seal) != SEAL {
            return Err(Fault::new("the root block was never initialized"));
        }
        Ok(Some(Self::new(pool, entry.root())))
    }

    fn apply(&self, op: &Op) -> Result<Option<u64>, Fault> {
        Ok(match *op {
            Op::Insert(key, value) => self.insert(key, value)?.then_some(1),
            Op::Update(key, value) => self.update(key, value)?.then_some(1),
            Op::Remove(key) => self.remove(key)?,
            Op::Get(key) => self.get(key)?,
        })
    }

    fn observe(&self) -> Result<BTreeMap<u64, u64>, Fault> {
        let pm = self.pool.pm();
        let mut records = BTreeMap::new();
        let mut last = None;
        for at in self.nodes()? {
            let node = self.pool.get(at)?;
            let key = pm.load(&node.key);
            if last.is_some_and(|last| last >= key) {
                return Err(Fault::new(format!("{key} follows {last:?}")));
            }
            last = Some(key);
            records.insert(key, pm.load(&node.value));
        }
        Ok(records)
    }

    fn audit(&self) -> Result<(), Fault> {
        let nodes = self.nodes()?;
        let owned = nodes.iter().map(|at| at.offset()).chain([self.root.offset()]);
        self.pool.audit(owned)?;
        Ok(())
    }

    fn model(model: &mut BTreeMap<u64, u64>, op: &Op) -> Option<u64> {
        match *op {
            Op::Insert(key, _) if model.contains_key(&key) => None,
            Op::Insert(key, value) => {
                model.insert(key, value);
                Some(1)
            }
            Op::Update(key, value) => model.get_mut(&key).map(|old| {
                *old = value;
                1
            }),
            Op::Remove(key) => model.remove(&key),
            Op::Get(key) => model.get(&key).copied(),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        let key = 1..12u64;
        prop_oneof![
            4 => (key.clone(), 100..1000u64).prop_map(|(k, v)| Op::Insert(k, v)),
            1 => (key.clone(), 100..1000u64).prop_map(|(k, v)| Op::Update(k, v)),
            3 => key.clone().prop_map(Op::Remove),
            1 => key.prop_map(Op::Get),
        ]
        .boxed()
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().ends_with("crash/list.rs")
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[("tests/crash/list.rs", include_str!("list.rs"))]
    }
}

fn options() -> PoolOptions {
    PoolOptions::new().size(64 << 10).zone_bytes(16 << 10).slots(4).slot_bytes(512)
}
