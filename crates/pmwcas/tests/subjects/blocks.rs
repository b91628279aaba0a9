//! Four slots that point to nodes, each with or without a child of its own: operations allocate, swap and
//! free them, under every recycling policy and with a recycler that frees the children.

use std::panic::Location;
use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Medium, PPtr, PmError, PmPtr, PmU64, Pool, PoolOptions, Traced, pm_struct};
use pmindex_pmwcas::{Memory, Mwcas, MwcasError, Policy, Recycler, RecyclerId, Session};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_pool, open_pool};
use proptest::prelude::*;

use super::words::{CONFIG, is_in, owned_by_pool};

/// The number of slots.
const SLOTS: usize = 4;

pm_struct! {
    /// The root block: the slots, each on a line of its own, then the descriptors.
    #[align(64)]
    pub(crate) struct Root: size 320 {
        slots: [[PmPtr<Node>; 8]; SLOTS],
        table: PmPtr<u64>,
        reserved: [PmU64; 7],
    }

    /// | value | child | reserved |
    #[align(16)]
    pub(crate) struct Node: size 32 {
        value: PmU64,
        child: PmPtr<Node>,
        reserved: [PmU64; 2],
    }
}

/// Frees a node together with its child.
struct WithChild;

impl Recycler<Traced> for WithChild {
    fn blocks(
        &self,
        memory: &Memory<'_, Traced>,
        value: u64,
        blocks: &mut Vec<u64>,
    ) -> Result<(), PmError> {
        blocks.push(value);
        let node = memory.pool().get(PPtr::<Node>::new(value))?;
        let child = memory.read(&node.child)?;
        blocks.extend((!child.is_null()).then_some(child.offset()));
        Ok(())
    }
}

pub(crate) struct Blocks {
    mwcas: Mwcas<Traced>,
    root: PPtr<Root>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Puts a new node, with a child or without, into a slot and frees the old one.
    Put(u8, u64, bool),
    /// Empties a slot.
    Clear(u8),
    /// Exchanges two slots.
    Swap(u8, u8),
    /// New nodes in two slots at once.
    PutTwo(u8, u8, u64),
    /// Empties one slot and moves its node to another, whose old node is freed.
    Move(u8, u8),
    /// The same, and frees a third slot's node: more words than a descriptor's first line has, blocks to
    /// free, none allocated.
    Collapse(u8, u8, u8),
    Read(u8),
    Quiesce,
    /// Exchanges two empty slots this many times, which uses descriptors.
    Wear(u32),
}

/// The content of a slot: the value of its node, and that of the child.
type Content = Option<(u64, Option<u64>)>;

fn options() -> PoolOptions {
    PoolOptions::new().size(64 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(640).grow(false)
}

fn ret(content: Content) -> u64 {
    content
        .map_or(0, |(value, child)| value.wrapping_mul(1_000_000).wrapping_add(child.unwrap_or(0)))
}

impl Blocks {
    fn slot(&self, i: u8) -> Result<&PmPtr<Node>, Fault> {
        Ok(&self.mwcas.pool().get(self.root)?.slots[usize::from(i)][0])
    }

    fn content(&self, node: PPtr<Node>) -> Result<Content, Fault> {
        if node.is_null() {
            return Ok(None);
        }
        let pool = self.mwcas.pool();
        let node = pool.get(node)?;
        let child = pool.pm().load(&node.child);
        let child =
            if child.is_null() { None } else { Some(pool.pm().load(&pool.get(child)?.value)) };
        Ok(Some((pool.pm().load(&node.value), child)))
    }

    /// Repeats `attempt` until it succeeds; `attempt` returns the operation's result and whether it
    /// succeeded.
    fn until_done(
        &self,
        attempt: impl Fn(&mut Session<'_, Traced>) -> Result<(Content, bool), Fault>,
    ) -> Result<Content, Fault> {
        loop {
            let (content, done) = attempt(&mut self.mwcas.session()?)?;
            if done {
                return Ok(content);
            }
        }
    }

    fn fill(&self, node: &Node, value: u64, child: PPtr<Node>) {
        let pm = self.mwcas.pool().pm();
        pm.store(&node.value, value);
        pm.store(&node.child, child);
    }

    fn put(&self, i: u8, value: u64, with_child: bool) -> Result<Content, Fault> {
        self.until_done(|session| {
            let old = self.mwcas.read(self.slot(i)?)?;
            let before = self.content(old)?;
            let mut change = session.descriptor_with(RecyclerId::custom(0));
            let mut child = PPtr::NULL;
            if with_child {
                child = change.allocate_extra(|node| self.fill(node, value + 500, PPtr::NULL))?;
            }
            change.reserve_entry(self.slot(i)?, old, Policy::FreeOne)?;
            change.allocate(self.slot(i)?, |node| self.fill(node, value, child))?;
            Ok((before, change.execute()?))
        })
    }

    fn put_two(&self, i: u8, j: u8, value: u64) -> Result<Content, Fault> {
        self.until_done(|session| {
            let (a, b) = (self.slot(i)?, self.slot(j)?);
            let (old_a, old_b) = (self.mwcas.read(a)?, self.mwcas.read(b)?);
            let before = self.content(old_a)?;
            let mut change = session.descriptor_with(RecyclerId::custom(0));
            let child = change.allocate_extra(|node| self.fill(node, value + 500, PPtr::NULL))?;
            change.reserve_entry(a, old_a, Policy::FreeOne)?;
            change.allocate(a, |node| self.fill(node, value, child))?;
            if i != j {
                change.reserve_entry(b, old_b, Policy::FreeOne)?;
                change.allocate(b, |node| self.fill(node, value + 1, PPtr::NULL))?;
            }
            Ok((before, change.execute()?))
        })
    }

    fn clear(&self, i: u8) -> Result<Content, Fault> {
        self.until_done(|session| {
            let old = self.mwcas.read(self.slot(i)?)?;
            let before = self.content(old)?;
            let mut change = session.descriptor_with(RecyclerId::custom(0));
            change.reserve_entry(self.slot(i)?, old, Policy::FreeOldOnSuccess)?;
            change.set(self.slot(i)?, PPtr::NULL)?;
            Ok((before, change.execute()?))
        })
    }

    fn exchange(&self, i: u8, j: u8) -> Result<Content, Fault> {
        self.until_done(|session| {
            let (a, b) = (self.mwcas.read(self.slot(i)?)?, self.mwcas.read(self.slot(j)?)?);
            let before = self.content(a)?;
            let mut change = session.descriptor();
            change.add_word(self.slot(i)?, a, b)?;
            match change.add_word(self.slot(j)?, b, a) {
                Err(MwcasError::Duplicate { .. }) if i == j => {}
                other => other?,
            }
            // A swap of a slot with itself: a comparison, which fails if another thread changed the slot.
            Ok((before, (i != j || a == b) && change.execute()?))
        })
    }

    fn shift(&self, i: u8, j: u8) -> Result<Content, Fault> {
        self.until_done(|session| {
            let (a, b) = (self.mwcas.read(self.slot(i)?)?, self.mwcas.read(self.slot(j)?)?);
            let before = self.content(a)?;
            let mut change = session.descriptor_with(RecyclerId::custom(0));
            if i == j {
                change.add_word(self.slot(i)?, a, a)?;
            } else {
                change.add_word(self.slot(i)?, a, PPtr::NULL)?;
                change.reserve_entry(self.slot(j)?, b, Policy::FreeOldOnSuccess)?;
                change.set(self.slot(j)?, a)?;
            }
            Ok((before, change.execute()?))
        })
    }

    fn collapse(&self, from: u8, to: u8, other: u8) -> Result<Content, Fault> {
        if from == to || to == other || from == other {
            return self.shift(from, to);
        }
        let [from, to, other] = [self.slot(from)?, self.slot(to)?, self.slot(other)?];
        self.until_done(|session| {
            let moved = self.mwcas.read(from)?;
            let before = self.content(moved)?;
            let mut change = session.descriptor_with(RecyclerId::custom(0));
            change.add_word(from, moved, PPtr::NULL)?;
            for (slot, new) in [(to, moved), (other, PPtr::NULL)] {
                change.reserve_entry(slot, self.mwcas.read(slot)?, Policy::FreeOldOnSuccess)?;
                change.set(slot, new)?;
            }
            Ok((before, change.execute()?))
        })
    }

    fn read(&self, i: u8) -> Result<Content, Fault> {
        let _pinned = self.mwcas.pool().pin();
        self.content(self.mwcas.read(self.slot(i)?)?)
    }
}

impl CrashSubject for Blocks {
    type Op = Op;
    type Ret = u64;
    type Model = [Content; SLOTS];

    const NAME: &'static str = "pmwcas-blocks";

    fn geometry() -> Geometry {
        let len = options().created_size().expect("valid options") as usize;
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &options())?;
        let entry = pool.create_index::<Root>("blocks", *b"blocks  ", 0, |root| {
            let pm = pool.pm();
            for slot in &root.slots {
                pm.store(&slot[0], PPtr::NULL);
            }
            pm.store(&root.table, PPtr::NULL);
            pm.flush(root)
        })?;
        Self::with_table(&pool, entry.root::<Root>())
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let Some(entry) = pool.open_index("blocks")? else { return Ok(None) };
        Self::with_table(&pool, entry.root::<Root>()).map(Some)
    }

    fn apply(&self, op: &Op) -> Result<u64, Fault> {
        match *op {
            Op::Put(i, value, child) => self.put(i, value, child),
            Op::Clear(i) => self.clear(i),
            Op::Swap(i, j) => self.exchange(i, j),
            Op::PutTwo(i, j, value) => self.put_two(i, j, value),
            Op::Move(i, j) => self.shift(i, j),
            Op::Collapse(i, j, k) => self.collapse(i, j, k),
            Op::Read(i) => self.read(i),
            Op::Quiesce => {
                self.mwcas.quiesce()?;
                Ok(None)
            }
            Op::Wear(uses) => (0..uses).try_fold(None, |_, _| self.exchange(2, 3)),
        }
        .map(ret)
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        let mut model = [None; SLOTS];
        for (i, content) in model.iter_mut().enumerate() {
            *content = self.read(i as u8)?;
        }
        Ok(model)
    }

    fn audit(&self) -> Result<(), Fault> {
        self.mwcas.quiesce()?;
        let pool = self.mwcas.pool();
        let mut owned = owned_by_pool(pool)?;
        owned.push(self.mwcas.table_offset());
        for i in 0..SLOTS as u8 {
            let node = pool.pm().load(self.slot(i)?);
            if !node.is_null() {
                owned.push(node.offset());
                let child = pool.pm().load(&pool.get(node)?.child);
                owned.extend((!child.is_null()).then_some(child.offset()));
            }
        }
        pool.audit(owned.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Self::Model, op: &Op) -> u64 {
        let slot = |i: u8| usize::from(i);
        let before = |model: &Self::Model, i: u8| model[slot(i)];
        ret(match *op {
            Op::Put(i, value, child) => {
                let old = before(model, i);
                model[slot(i)] = Some((value, child.then_some(value + 500)));
                old
            }
            Op::Clear(i) => model[slot(i)].take(),
            Op::Swap(i, j) => {
                let old = before(model, i);
                model.swap(slot(i), slot(j));
                old
            }
            Op::PutTwo(i, j, value) => {
                let old = before(model, i);
                model[slot(i)] = Some((value, Some(value + 500)));
                if i != j {
                    model[slot(j)] = Some((value + 1, None));
                }
                old
            }
            Op::Move(i, j) => {
                let old = before(model, i);
                if i != j {
                    model[slot(j)] = model[slot(i)].take();
                }
                old
            }
            Op::Collapse(i, j, k) => {
                let old = before(model, i);
                if i != j {
                    model[slot(j)] = model[slot(i)].take();
                }
                if i != j && j != k && i != k {
                    model[slot(k)] = None;
                }
                old
            }
            Op::Read(i) => before(model, i),
            Op::Quiesce | Op::Wear(_) => None,
        })
    }

    fn ops() -> BoxedStrategy<Op> {
        let slot = || 0..SLOTS as u8;
        prop_oneof![
            4 => (slot(), 1u64..400, any::<bool>()).prop_map(|(i, v, c)| Op::Put(i, v, c)),
            2 => slot().prop_map(Op::Clear),
            2 => (slot(), slot()).prop_map(|(i, j)| Op::Swap(i, j)),
            2 => (slot(), slot(), 1u64..400).prop_map(|(i, j, v)| Op::PutTwo(i, j, v)),
            2 => (slot(), slot()).prop_map(|(i, j)| Op::Move(i, j)),
            1 => (slot(), slot(), slot()).prop_map(|(i, j, k)| Op::Collapse(i, j, k)),
            2 => slot().prop_map(Op::Read),
            1 => Just(Op::Quiesce),
        ]
        .boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        let mut plans = vec![used_again(Op::PutTwo(0, 1, 5)), used_again(Op::Put(0, 5, true))];
        plans.extend((0..2 * CONFIG.per_partition).map(owner_bits_come_back));
        plans
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        is_in(site, "publish.rs") || is_in(site, "reclaim.rs")
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[
            ("pmwcas/src/publish.rs", include_str!("../../src/publish.rs")),
            ("pmwcas/src/reclaim.rs", include_str!("../../src/reclaim.rs")),
        ]
    }
}

/// A descriptor whose publication was interrupted is used again, by an operation that allocates nothing
/// and is interrupted too: lines of two incarnations with the same number may meet.
fn used_again(op: Op) -> Plan<Op> {
    let after = vec![Op::Collapse(2, 3, 1), Op::Put(0, 7, true), Op::Collapse(0, 1, 2)];
    Plan { setup: Vec::new(), threads: vec![vec![op]], tail: after }
}

/// A descriptor gives up the block that its operation replaced, and its ticket is void in the cache only. Then all
/// descriptors are used until, after `more` uses, it has the same owner bits again, for an operation that frees a block
/// and allocates none.
fn owner_bits_come_back(more: u32) -> Plan<Op> {
    const INCARNATIONS: u32 = 256;
    let uses = (INCARNATIONS - 1) * CONFIG.per_partition + more;
    let blocks = [Op::Put(1, 3, false), Op::Put(0, 1, false), Op::Put(0, 2, false)];
    let setup = blocks.into_iter().chain([Op::Wear(uses)]).collect();
    let threads = vec![vec![Op::Clear(1)], vec![Op::Read(0)]];
    Plan { setup, threads, tail: vec![Op::Put(2, 4, true)] }
}

impl Blocks {
    /// Opens the descriptors, which are allocated on first use.
    fn with_table(pool: &Arc<Pool<Traced>>, root: PPtr<Root>) -> Result<Self, Fault> {
        let table = &pool.get(root)?.table;
        if pool.pm().load(table).is_null() {
            Mwcas::allocate_table(pool, table, CONFIG)?;
        }
        let offset = pool.pm().load(table).offset();
        let mwcas = Mwcas::open_at(pool, offset, vec![Box::new(WithChild)])?.with_patience(0);
        Ok(Self { mwcas, root })
    }
}
