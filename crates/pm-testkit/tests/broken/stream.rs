//! A register of one line that is written by a copy: two buffers, and a word that selects the valid one.

use pmindex_core::trace::Space;
use pmindex_core::{Medium, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry};
use proptest::prelude::*;

use super::cells::{Line, line};

pub(crate) const CORRECT: usize = 0;
/// Writes the selector while the non-temporal data is pending.
pub(crate) const NO_FENCE: usize = 1;
/// Stores to a line with pending non-temporal data.
pub(crate) const STORE_TO_PENDING_LINE: usize = 2;
/// Assumes that the words of a bulk copy persist in order, the selector last.
pub(crate) const BULK_IN_ORDER: usize = 3;

#[derive(Debug)]
pub(crate) struct Stream<const BUG: usize> {
    space: Space,
    pm: Traced,
}

#[derive(Clone, Debug)]
pub(crate) struct Fill(u64);

impl<const BUG: usize> CrashSubject for Stream<BUG> {
    type Op = Fill;
    type Ret = ();
    type Model = u64;
    const NAME: &'static str = "stream";

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

    fn apply(&self, op: &Fill) -> Result<(), Fault> {
        let pm = &self.pm;
        let root = line(&self.space, 0)?;
        let value = op.0;
        let next = 1 - pm.load(&root[7]);
        if BUG == BULK_IN_ORDER {
            // three words of each buffer and the selector, in one copy within one line
            let mut words = root.each_ref().map(|cell| pm.load(cell));
            words[3 * next as usize..][..3].fill(value);
            words[7] = next;
            pm.write_words(root, &words);
            pm.persist(root)?;
            return Ok(());
        }
        let buffer: &Line = line(&self.space, 1 + next)?;
        let flushed = pm.stream_words(buffer, &[value; 8]);
        if BUG == STORE_TO_PENDING_LINE {
            pm.store(&buffer[0], value);
        }
        let flushed = if BUG == NO_FENCE {
            flushed
        } else {
            pm.fence(flushed)?;
            pmindex_core::Flushed::nothing()
        };
        pm.store(&root[7], next);
        pm.fence(flushed.and(pm.flush(root)))?;
        Ok(())
    }

    fn observe(&self) -> Result<u64, Fault> {
        let root = line(&self.space, 0)?;
        let at = self.pm.load(&root[7]);
        let words: Vec<u64> = if BUG == BULK_IN_ORDER {
            root[3 * at as usize..][..3].iter().map(|cell| self.pm.load(cell)).collect()
        } else {
            line(&self.space, 1 + at)?.iter().map(|cell| self.pm.load(cell)).collect()
        };
        if words.iter().any(|&w| w != words[0]) {
            return Err(Fault::new(format!("torn value {words:?}")));
        }
        Ok(words[0])
    }

    fn model(model: &mut u64, op: &Fill) {
        *model = op.0;
    }

    fn ops() -> BoxedStrategy<Fill> {
        (1..100u64).prop_map(Fill).boxed()
    }
}
