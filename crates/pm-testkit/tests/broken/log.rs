//! An append-only log: entries, one per line, and a word that counts them.

use pmindex_core::trace::Space;
use pmindex_core::{Flushed, Medium, Rmw, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry};
use proptest::prelude::*;

use super::cells::{Line, line};

pub(crate) const CORRECT: usize = 0;
pub(crate) const NO_RECORD_FLUSH: usize = 1;
pub(crate) const NO_RECORD_FENCE: usize = 2;
pub(crate) const NO_COMMIT_FLUSH: usize = 3;
pub(crate) const NO_COMMIT_FENCE: usize = 4;
pub(crate) const COMMIT_FIRST: usize = 5;
pub(crate) const RMW_FOR_FENCE: usize = 6;
/// Not a bug: a redundant flush.
pub(crate) const FLUSH_TWICE: usize = 7;

#[derive(Debug)]
pub(crate) struct Log<const BUG: usize> {
    space: Space,
    pm: Traced,
}

#[derive(Clone, Debug)]
pub(crate) struct Append(u64);

impl<const BUG: usize> Log<BUG> {
    fn count(&self) -> Result<&Line, Fault> {
        line(&self.space, 0)
    }

    /// Returns an entry, which is a page away from the count so that msync separates them too.
    fn entry(&self, n: u64) -> Result<&Line, Fault> {
        line(&self.space, 64 + n)
    }

    fn new(space: &Space) -> Self {
        Self { space: space.clone(), pm: space.medium() }
    }
}

impl<const BUG: usize> CrashSubject for Log<BUG> {
    type Op = Append;
    type Ret = ();
    type Model = Vec<u64>;
    const NAME: &'static str = "log";

    fn geometry() -> Geometry {
        Geometry { len: 16 << 10, capacity: 16 << 10 }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self::new(space)) // zeroes are an empty log
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        space.medium().written_back();
        Ok(Some(Self::new(space)))
    }

    fn apply(&self, op: &Append) -> Result<(), Fault> {
        let (pm, count) = (&self.pm, &self.count()?[0]);
        let n = pm.load(count);
        let entry = self.entry(n)?;
        if BUG == COMMIT_FIRST {
            pm.store(count, n + 1);
            pm.persist(count)?;
        }
        for cell in entry {
            pm.store(cell, op.0);
        }
        let flushed = if BUG == NO_RECORD_FLUSH { Flushed::nothing() } else { pm.flush(entry) };
        if BUG == FLUSH_TWICE {
            pm.fence(pm.flush(entry))?;
        }
        match BUG {
            NO_RECORD_FENCE => {}
            RMW_FOR_FENCE => {
                pm.rmw_word(&self.count()?[7], Rmw::Add(1));
            }
            _ => {
                pm.fence(flushed)?;
            }
        }
        if BUG != COMMIT_FIRST {
            pm.store(count, n + 1);
            let flushed = if BUG == NO_COMMIT_FLUSH { Flushed::nothing() } else { pm.flush(count) };
            if BUG != NO_COMMIT_FENCE {
                pm.fence(flushed)?;
            }
        }
        Ok(())
    }

    fn observe(&self) -> Result<Vec<u64>, Fault> {
        let count = self.pm.load(&self.count()?[0]);
        (0..count)
            .map(|n| {
                let words = self.entry(n)?.each_ref().map(|cell| self.pm.load(cell));
                if words.iter().any(|&w| w != words[0]) {
                    return Err(Fault::new(format!("torn entry {n}: {words:?}")));
                }
                Ok(words[0])
            })
            .collect()
    }

    fn model(model: &mut Vec<u64>, op: &Append) {
        model.push(op.0);
    }

    fn ops() -> BoxedStrategy<Append> {
        (1..100u64).prop_map(Append).boxed()
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[("tests/broken/log.rs", include_str!("log.rs"))]
    }
}
