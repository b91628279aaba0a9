//! Compares random sequences of operations and reopenings with a model of all owners.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::alloc::Owner;
use crate::error::PmError;
use crate::media::Flushed;

#[derive(Clone, Debug)]
enum Step {
    Alloc { at: usize, size: u64, align: u64 },
    Free { at: usize },
    Retire { at: usize },
    Replace { at: usize, size: u64 },
    Move { from: usize, to: usize },
    Batch { at: usize, count: usize, size: u64 },
    Abandon { at: usize, prepare: bool, commit: bool },
    Trim,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..60usize;
    let size = || prop_oneof![6 => 1..2000u64, 2 => 1..20_000u64];
    let align = prop_oneof![Just(16u64), Just(64), Just(256)];
    prop_oneof![
        8 => (at(), size(), align).prop_map(|(at, size, align)| Step::Alloc { at, size, align }),
        6 => at().prop_map(|at| Step::Free { at }),
        3 => at().prop_map(|at| Step::Retire { at }),
        4 => (at(), size()).prop_map(|(at, size)| Step::Replace { at, size }),
        2 => (at(), at()).prop_map(|(from, to)| Step::Move { from, to }),
        2 => (at(), 1..20usize, 1..300u64)
            .prop_map(|(at, count, size)| Step::Batch { at, count, size }),
        2 => (at(), any::<bool>(), any::<bool>())
            .prop_map(|(at, prepare, commit)| Step::Abandon { at, prepare, commit }),
        1 => Just(Step::Trim),
        1 => Just(Step::Reopen),
    ]
}

struct World<'p, M: Medium> {
    pool: &'p Pool<M>,
    places: &'p [PmCell<PPtr<PmU64>>; 60],
    /// By place: the offset and the requested bytes.
    model: &'p mut BTreeMap<usize, (u64, u64)>,
}

impl<M: Medium> World<'_, M> {
    /// Frees the blocks of the places in `out` and allocates for those in `put`, in one operation.
    fn change(
        &mut self,
        out: &[usize],
        put: &[(usize, u64, u64)],
        retire: bool,
    ) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let mut op = self.pool.op()?;
        let mut blocks = Vec::new();
        for &at in out {
            let ptr = pm.load(&self.places[at]);
            let owner = Owner::pointer(&self.places[at], ptr);
            if retire { op.retire(ptr, owner) } else { op.free(ptr, owner) }?;
        }
        for &(at, size, align) in put {
            let block = op.reserve_bytes(size, align)?;
            let words = self.pool.words(block.ptr().offset(), (size / 8) as usize)?;
            for word in words {
                pm.store(word, u64::MAX); // garbage everywhere
            }
            op.allocate(&block, Owner::pointer(&self.places[at], block.ptr()))?;
            blocks.push((at, block.ptr(), size));
        }
        op.prepare(Flushed::nothing())?;
        let mut flushed = Flushed::nothing();
        for &at in out {
            pm.store(&self.places[at], PPtr::NULL);
            flushed = flushed.and(pm.flush(&self.places[at]));
            self.model.remove(&at);
        }
        for &(at, ptr, size) in &blocks {
            pm.store(&self.places[at], ptr);
            flushed = flushed.and(pm.flush(&self.places[at]));
            self.model.insert(at, (ptr.offset(), size));
        }
        let flushed = flushed.and(op.seal());
        let durable = pm.fence(flushed)?;
        op.finish(durable);
        Ok(())
    }

    fn run(&mut self, step: &Step) -> Result<(), PmError> {
        let taken = |world: &Self, at: usize| world.model.contains_key(&at);
        match *step {
            Step::Alloc { at, size, align } if !taken(self, at) => {
                self.change(&[], &[(at, size, align)], false)
            }
            Step::Free { at } if taken(self, at) => self.change(&[at], &[], false),
            Step::Retire { at } if taken(self, at) => self.change(&[at], &[], true),
            Step::Replace { at, size } if taken(self, at) => {
                self.change(&[at], &[(at, size, 16)], false)
            }
            Step::Batch { at, count, size } => {
                let mut put: Vec<_> = (at..60).filter(|&at| !taken(self, at)).collect();
                put.truncate(count);
                let put: Vec<_> = put.into_iter().map(|at| (at, size, 16)).collect();
                self.change(&[], &put, false)
            }
            Step::Move { from, to } if taken(self, from) && !taken(self, to) => {
                // A change of named words outside of any operation.
                self.pool.settle(&self.places[from])?;
                self.pool.settle(&self.places[to])?;
                let pm = self.pool.pm();
                pm.store(&self.places[to], pm.load(&self.places[from]));
                pm.store(&self.places[from], PPtr::NULL);
                let entry = self.model.remove(&from);
                self.model.extend(entry.map(|entry| (to, entry)));
                Ok(())
            }
            Step::Abandon { at, prepare, commit } if !taken(self, at) => {
                let mut op = self.pool.op()?;
                let block = op.reserve_bytes(700, 16)?;
                op.allocate(&block, Owner::pointer(&self.places[at], block.ptr()))?;
                if prepare {
                    op.prepare(Flushed::nothing())?;
                    if commit {
                        self.pool.pm().store(&self.places[at], block.ptr());
                        self.model.insert(at, (block.ptr().offset(), 700));
                    }
                }
                Ok(())
            }
            Step::Trim => self.pool.trim(),
            _ => Ok(()),
        }
    }
}

fn run_all(steps: &[Step]) -> Result<(), TestCaseError> {
    let (space, mut pool, root) = traced();
    let mut model = BTreeMap::new();
    for step in steps {
        if matches!(step, Step::Reopen) {
            drop(pool);
            pool = Pool::open_traced(&space, &tiny()).unwrap();
        }
        let places = &pool.get(root).unwrap().places;
        let before = model.clone();
        let result = World { pool: &pool, places, model: &mut model }.run(step);
        match result {
            Ok(()) => {}
            Err(PmError::Full { .. } | PmError::TooManyTickets { .. }) => {
                prop_assert_eq!(&model, &before, "an error changed something");
            }
            Err(error) => return Err(TestCaseError::fail(format!("{step:?}: {error}"))),
        }
        let mut ends = 0;
        let mut by_offset: Vec<_> = model.values().copied().collect();
        by_offset.sort_unstable();
        for (offset, size) in by_offset {
            prop_assert!(offset >= ends, "overlap at {:#x}", offset);
            ends = offset + size;
            prop_assert!(pool.block_size(PPtr::<PmU64>::new(offset)).unwrap() >= size);
        }
        let owned = model.values().map(|&(offset, _)| offset).chain([root.offset()]);
        if let Err(error) = pool.audit(owned) {
            return Err(TestCaseError::fail(format!("{step:?}: {error}")));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_sequence_keeps_blocks_apart_and_leaks_none(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        run_all(&steps)?;
    }
}
