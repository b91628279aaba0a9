//! Two counters that change together by a redo log, and a lock word in persistent memory.

use pmindex_core::trace::Space;
use pmindex_core::{Medium, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry};
use proptest::prelude::*;

use super::cells::line;

pub(crate) const CORRECT: usize = 0;
/// Opening does not release the lock of the dead process.
pub(crate) const LOCK_SURVIVES: usize = 1;
/// The log holds an increment, so replaying it twice adds twice.
pub(crate) const REDO_TWICE: usize = 2;
/// Recovery repairs in the caches only.
pub(crate) const UNPERSISTED_RECOVERY: usize = 3;
/// Opening acts on the caches of a dead process, durable or not.
pub(crate) const ACTS_ON_CACHES: usize = 4;
/// Not a bug: opening flushes the words that it acts on, if no earlier flush did.
pub(crate) const FLUSHES_CACHES: usize = 5;

/// Line 0: the log (state, amount, first counter's new value, second's). Lines 1 and 2: the
/// counters. Line 3: the lock.
#[derive(Debug)]
pub(crate) struct Counter<const BUG: usize> {
    space: Space,
    pm: Traced,
}

#[derive(Clone, Debug)]
pub(crate) struct Add(u64);

impl<const BUG: usize> Counter<BUG> {
    fn redo(&self) -> Result<(), Fault> {
        let pm = &self.pm;
        let log = line(&self.space, 0)?;
        for i in 0..2u64 {
            let counter = &line(&self.space, 1 + i)?[0];
            let value = if BUG == REDO_TWICE {
                pm.load(counter) + pm.load(&log[1])
            } else {
                pm.load(&log[2 + i as usize])
            };
            pm.store(counter, value);
            pm.persist(counter)?;
        }
        pm.store(&log[0], 0);
        pm.persist(log)?;
        Ok(())
    }

    fn counters(&self) -> Result<(u64, u64), Fault> {
        let pm = &self.pm;
        Ok((pm.load(&line(&self.space, 1)?[0]), pm.load(&line(&self.space, 2)?[0])))
    }

    fn recover(&self) -> Result<(), Fault> {
        let pm = &self.pm;
        let lock = &line(&self.space, 3)?[0];
        if BUG != LOCK_SURVIVES && pm.load(lock) != 0 {
            pm.store(lock, 0);
            pm.persist(lock)?;
        }
        let log = line(&self.space, 0)?;
        if pm.load(&log[0]) == 0 {
            return Ok(());
        }
        if BUG == UNPERSISTED_RECOVERY {
            // the counters are set, but only the end of the log is made durable
            for i in 0..2 {
                pm.store(&line(&self.space, 1 + i)?[0], pm.load(&log[2 + i as usize]));
            }
            pm.store(&log[0], 0);
            pm.persist(log)?;
            return Ok(());
        }
        self.redo()
    }
}

impl<const BUG: usize> CrashSubject for Counter<BUG> {
    type Op = Add;
    type Ret = ();
    type Model = u64;
    const NAME: &'static str = "counter";

    fn geometry() -> Geometry {
        Geometry { len: 4096, capacity: 4096 }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self { space: space.clone(), pm: space.medium() })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let this = Self::create(space)?;
        match BUG {
            ACTS_ON_CACHES => {}
            FLUSHES_CACHES => {
                for i in 0..4 {
                    this.pm.persist(line(space, i)?)?;
                }
            }
            _ => this.pm.written_back(),
        }
        this.recover()?;
        Ok(Some(this))
    }

    fn apply(&self, op: &Add) -> Result<(), Fault> {
        let pm = &self.pm;
        let lock = &line(&self.space, 3)?[0];
        while pm.cas(lock, 0, 1).is_err() {
            pm.spin();
        }
        let log = line(&self.space, 0)?;
        let (a, b) = self.counters()?;
        pm.store(&log[1], op.0);
        pm.store(&log[2], a + op.0);
        pm.store(&log[3], b + op.0);
        pm.store(&log[0], 1); // same line: the state persists last
        pm.persist(log)?;
        self.redo()?;
        pm.store(lock, 0);
        Ok(())
    }

    fn observe(&self) -> Result<u64, Fault> {
        let (a, b) = self.counters()?;
        if a == b { Ok(a) } else { Err(Fault::new(format!("{a} != {b}"))) }
    }

    fn model(model: &mut u64, op: &Add) {
        *model += op.0;
    }

    fn ops() -> BoxedStrategy<Add> {
        (1..100u64).prop_map(Add).boxed()
    }
}
