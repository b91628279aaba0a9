//! A register of two words, and two registers shared by threads.

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{Medium, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry};
use proptest::prelude::*;

use super::cells::{Line, line};

pub(crate) const CORRECT: usize = 0;
pub(crate) const TORN: usize = 1;
pub(crate) const STALE_READ: usize = 2;
pub(crate) const READER_FLUSHES: usize = 3;

/// A 16-byte register: two copies, and a word that selects the valid one.
#[derive(Debug)]
pub(crate) struct Pair<const BUG: usize> {
    space: Space,
    pm: Traced,
}

#[derive(Clone, Debug)]
pub(crate) struct Set(u64);

impl<const BUG: usize> Pair<BUG> {
    fn words(&self) -> Result<&Line, Fault> {
        line(&self.space, 0)
    }
}

impl<const BUG: usize> CrashSubject for Pair<BUG> {
    type Op = Set;
    type Ret = ();
    type Model = (u64, u64);
    const NAME: &'static str = "pair";

    fn geometry() -> Geometry {
        Geometry { len: 4096, capacity: 4096 }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self { space: space.clone(), pm: space.medium() })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        space.medium().written_back();
        Self::create(space).map(Some)
    }

    fn apply(&self, op: &Set) -> Result<(), Fault> {
        let (pm, words) = (&self.pm, self.words()?);
        if BUG == TORN {
            pm.store(&words[0], op.0);
            pm.store(&words[1], op.0 * 2);
            pm.persist(words)?;
            return Ok(());
        }
        let next = 1 - pm.load(&words[7]) as usize;
        pm.store(&words[2 * next], op.0);
        pm.store(&words[2 * next + 1], op.0 * 2);
        // Durable before the selector: they share a line, so the order of ordinary stores suffices.
        pm.store(&words[7], next as u64);
        pm.persist(words)?;
        Ok(())
    }

    fn observe(&self) -> Result<(u64, u64), Fault> {
        let words = self.words()?;
        let at = 2 * self.pm.load(&words[7]) as usize;
        Ok((self.pm.load(&words[at]), self.pm.load(&words[at + 1])))
    }

    fn model(model: &mut (u64, u64), op: &Set) {
        *model = (op.0, op.0 * 2);
    }

    fn ops() -> BoxedStrategy<Set> {
        (1..100u64).prop_map(Set).boxed()
    }
}

/// Two registers on two lines; one operation copies the first to the second.
#[derive(Debug)]
pub(crate) struct Registers<const BUG: usize> {
    space: Space,
    pm: Traced,
    lock: Mutex<()>,
}

#[derive(Clone, Debug)]
pub(crate) enum Move {
    Set(u64),
    Copy,
    Read,
}

impl<const BUG: usize> CrashSubject for Registers<BUG> {
    type Op = Move;
    type Ret = u64;
    type Model = (u64, u64);
    const NAME: &'static str = "registers";

    fn geometry() -> Geometry {
        Geometry { len: 4096, capacity: 4096 }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self { space: space.clone(), pm: space.medium(), lock: Mutex::new(()) })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        space.medium().written_back();
        Self::create(space).map(Some)
    }

    fn apply(&self, op: &Move) -> Result<u64, Fault> {
        let pm = &self.pm;
        let (x, y) = (line(&self.space, 0)?, line(&self.space, 1)?);
        let guard = (BUG == CORRECT).then(|| pm.lock(&self.lock));
        let result = match op {
            Move::Set(value) => {
                pm.store(&x[0], *value);
                pm.persist(&x[0])?;
                0
            }
            Move::Copy => {
                // a single copier needs no lock
                let copier = (BUG != CORRECT).then(|| pm.lock(&self.lock));
                let value = pm.load(&x[0]);
                if BUG == READER_FLUSHES {
                    pm.persist(&x[0])?;
                }
                pm.store(&y[0], value);
                pm.persist(&y[0])?;
                drop(copier);
                value
            }
            Move::Read => {
                let value = pm.load(&x[0]);
                if BUG == READER_FLUSHES {
                    pm.persist(&x[0])?;
                }
                value
            }
        };
        drop(guard);
        Ok(result)
    }

    fn observe(&self) -> Result<(u64, u64), Fault> {
        let (x, y) = (line(&self.space, 0)?, line(&self.space, 1)?);
        Ok((self.pm.load(&x[0]), self.pm.load(&y[0])))
    }

    fn model(model: &mut (u64, u64), op: &Move) -> u64 {
        match op {
            Move::Set(value) => {
                model.0 = *value;
                0
            }
            Move::Copy => {
                model.1 = model.0;
                model.0
            }
            Move::Read => model.0,
        }
    }

    fn ops() -> BoxedStrategy<Move> {
        prop_oneof![(1..100u64).prop_map(Move::Set), Just(Move::Copy), Just(Move::Read)].boxed()
    }

    fn concurrent() -> bool {
        true
    }
}
