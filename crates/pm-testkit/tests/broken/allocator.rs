//! A stack of nodes with a toy allocator: a bitmap of slots, and an audit that compares it with the linked
//! nodes.

use pmindex_core::trace::Space;
use pmindex_core::{Medium, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry};
use proptest::prelude::*;

use super::cells::{Line, line};

pub(crate) const CORRECT: usize = 0;
/// Allocates durably, then links; recovery does not repair it.
pub(crate) const LEAK: usize = 1;
/// Frees durably, then unlinks; recovery does not repair it.
pub(crate) const EARLY_FREE: usize = 2;
/// Recovery frees the unfinished node twice.
pub(crate) const FREED_TWICE: usize = 3;
/// Links a node before it is durable.
pub(crate) const POINTER_FIRST: usize = 4;

const SLOTS: u64 = 12;

/// A node is a line: value, next. Line 0: head, bitmap of slots in use, slot being freed.
#[derive(Debug)]
pub(crate) struct Slots<const BUG: usize> {
    space: Space,
    pm: Traced,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Push(u64),
    Pop,
}

impl<const BUG: usize> Slots<BUG> {
    fn root(&self) -> Result<&Line, Fault> {
        line(&self.space, 0)
    }

    /// Slots are numbered from 1; 0 is null.
    fn node(&self, slot: u64) -> Result<&Line, Fault> {
        if slot > SLOTS {
            return Err(Fault::new(format!("slot {slot} does not exist")));
        }
        line(&self.space, slot)
    }

    fn linked(&self) -> Result<Vec<u64>, Fault> {
        let mut slots = Vec::new();
        let mut at = self.pm.load(&self.root()?[0]);
        while at != 0 {
            if slots.len() as u64 > SLOTS {
                return Err(Fault::new("the stack is a cycle"));
            }
            slots.push(at);
            at = self.pm.load(&self.node(at)?[1]);
        }
        Ok(slots)
    }

    fn set_bitmap(&self, bits: u64) -> Result<(), Fault> {
        self.pm.store(&self.root()?[1], bits);
        self.pm.persist(self.root()?)?;
        Ok(())
    }

    fn free(&self, slot: u64) -> Result<(), Fault> {
        let bits = self.pm.load(&self.root()?[1]);
        if bits >> slot & 1 == 0 {
            return Err(Fault::new(format!("slot {slot} freed twice")));
        }
        self.set_bitmap(bits & !(1 << slot))
    }

    fn recover(&self) -> Result<(), Fault> {
        let pm = &self.pm;
        match BUG {
            LEAK | EARLY_FREE => {}
            FREED_TWICE => {
                // the log says which slot was being freed, but not which steps were done
                let root = self.root()?;
                let slot = pm.load(&root[2]);
                if slot != 0 {
                    self.free(slot)?;
                    pm.store(&root[2], 0);
                    pm.persist(root)?;
                }
                self.rebuild()?;
            }
            _ => self.rebuild()?,
        }
        Ok(())
    }

    /// Rebuilds the bitmap: linked nodes are in use.
    fn rebuild(&self) -> Result<(), Fault> {
        let bits = self.linked()?.iter().fold(0, |bits, slot| bits | 1 << slot);
        if bits != self.pm.load(&self.root()?[1]) {
            self.set_bitmap(bits)?;
        }
        Ok(())
    }

    fn push(&self, value: u64) -> Result<Option<u64>, Fault> {
        let (pm, root) = (&self.pm, self.root()?);
        let bits = pm.load(&root[1]);
        let Some(slot) = (1..=SLOTS).find(|s| bits >> s & 1 == 0) else {
            return Ok(None);
        };
        if BUG == LEAK {
            self.set_bitmap(bits | 1 << slot)?;
        }
        let node = self.node(slot)?;
        pm.store(&node[0], value);
        pm.store(&node[1], pm.load(&root[0]));
        let flushed = pm.flush(node);
        if BUG == POINTER_FIRST {
            pm.store(&root[0], slot);
            pm.store(&root[1], bits | 1 << slot);
            pm.fence(flushed.and(pm.flush(root)))?;
        } else {
            pm.fence(flushed)?;
            pm.store(&root[0], slot);
            pm.store(&root[1], bits | 1 << slot);
            pm.persist(root)?;
        }
        Ok(Some(value))
    }

    fn pop(&self) -> Result<Option<u64>, Fault> {
        let (pm, root) = (&self.pm, self.root()?);
        let slot = pm.load(&root[0]);
        if slot == 0 {
            return Ok(None);
        }
        let node = self.node(slot)?;
        let (value, next) = (pm.load(&node[0]), pm.load(&node[1]));
        if BUG == EARLY_FREE {
            self.free(slot)?;
        }
        if BUG == FREED_TWICE {
            pm.store(&root[2], slot);
            pm.persist(root)?;
        }
        pm.store(&root[0], next);
        pm.persist(root)?;
        if BUG != EARLY_FREE {
            self.free(slot)?;
        }
        if BUG == FREED_TWICE {
            pm.store(&root[2], 0);
            pm.persist(root)?;
        }
        Ok(Some(value))
    }
}

impl<const BUG: usize> CrashSubject for Slots<BUG> {
    type Op = Op;
    type Ret = Option<u64>;
    type Model = Vec<u64>;
    const NAME: &'static str = "slots";

    fn geometry() -> Geometry {
        Geometry { len: 4096, capacity: 4096 }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self { space: space.clone(), pm: space.medium() })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let this = Self::create(space)?;
        this.pm.written_back();
        this.recover()?;
        Ok(Some(this))
    }

    fn apply(&self, op: &Op) -> Result<Option<u64>, Fault> {
        match op {
            Op::Push(value) => self.push(*value),
            Op::Pop => self.pop(),
        }
    }

    fn observe(&self) -> Result<Vec<u64>, Fault> {
        let mut values = Vec::new();
        for slot in self.linked()? {
            values.push(self.pm.load(&self.node(slot)?[0]));
        }
        values.reverse();
        Ok(values)
    }

    fn audit(&self) -> Result<(), Fault> {
        let bits = self.pm.load(&self.root()?[1]);
        let linked = self.linked()?;
        for slot in 1..=SLOTS {
            let used = bits >> slot & 1 == 1;
            match (used, linked.contains(&slot)) {
                (true, false) => return Err(Fault::new(format!("slot {slot} is leaked"))),
                (false, true) => return Err(Fault::new(format!("slot {slot} is free but linked"))),
                _ => {}
            }
        }
        Ok(())
    }

    fn model(model: &mut Vec<u64>, op: &Op) -> Option<u64> {
        match op {
            Op::Push(_) if model.len() as u64 == SLOTS => None,
            Op::Push(value) => {
                model.push(*value);
                Some(*value)
            }
            Op::Pop => model.pop(),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![(1..100u64).prop_map(Op::Push), Just(Op::Pop)].boxed()
    }
}
