//! The allocator with the simplest owners: pointer words, and bits of a word.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use pmindex_core::trace::Space;
use pmindex_core::{
    Flushed, Medium, Op, Owner, PPtr, PmCell, PmError, PmU64, Pool, PoolOptions, Reserved, Traced,
    pm_struct,
};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_pool, open_pool};
use proptest::prelude::*;

const POINTERS: usize = 3;
const BITS: usize = 5;
/// The tag of a block that an abandoned operation committed.
const ABANDONED: u64 = 5000;
/// From slabs of many blocks to extents of several pages. A zone has 15 pages, whose words of the page table
/// take two lines.
const SIZES: [u64; 6] = [16, 100, 1152, 2000, 9000, 20_000];

pm_struct! {
    /// Owners. Block `i` of `cells` is live while bit `i` or bit `i + 8` of `bits` is set. Never both are
    /// set; one store moves the block from one to the other.
    #[align(64)]
    struct Root: size 256 {
        pointers: [PmCell<PPtr<PmU64>>; 4],
        bits: PmU64,
        spare: [PmU64; 3],
        cells: [PmCell<PPtr<PmU64>>; 16],
        more: [PmU64; 8],
    }
}

pub(crate) struct Blocks {
    space: Space,
    /// Written by [`Step::Die`] only.
    process: RwLock<Process>,
    locks: [Mutex<()>; POINTERS + 1],
}

/// The state that ends with the process.
struct Process {
    pool: Arc<Pool<Traced>>,
    root: PPtr<Root>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Allocates, or replaces the block.
    Put {
        at: usize,
        size: usize,
        tag: u64,
    },
    Take {
        at: usize,
        retire: bool,
    },
    /// Allocates for all free places of the mask, or for none.
    Batch {
        mask: u64,
        size: usize,
        tag: u64,
    },
    Drop {
        mask: u64,
    },
    Shift {
        at: usize,
    },
    /// Starts to put a block and stops in the middle: the operation is dropped.
    Abandon {
        at: usize,
        size: usize,
        how_far: u8,
    },
    /// Does the same, and the process dies, its caches survive, and a new one continues. (Unless another
    /// thread is working.)
    Die {
        at: usize,
        size: usize,
        how_far: u8,
        tag: u64,
    },
    /// Starts to free the block of a pointer, and withdraws that, staged or not.
    Withdraw {
        at: usize,
        staged: bool,
    },
    Trim,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Done(Vec<u64>),
    Full,
}

fn options() -> PoolOptions {
    let zone = 64 << 10;
    PoolOptions::new().size(20 << 10).zone_bytes(zone).slots(3).slot_bytes(320).max_size(150 << 10)
}

impl Process {
    fn at(pool: Arc<Pool<Traced>>) -> Result<Option<Self>, Fault> {
        let Some(entry) = pool.open_index("blocks")? else { return Ok(None) };
        Ok(Some(Self { root: entry.root(), pool }))
    }

    fn start_in(space: &Space) -> Result<Option<Self>, Fault> {
        match open_pool(space, &options())? {
            Some(pool) => Self::at(pool),
            None => Ok(None),
        }
    }

    fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.root)
    }

    /// Returns the first word and, of a large block, the last.
    fn tags(&self, ptr: PPtr<PmU64>) -> Result<[&PmU64; 2], PmError> {
        let bytes = self.pool.block_size(ptr)?;
        let words = self.pool.words(ptr.offset(), (bytes / 8) as usize)?;
        Ok([&words[0], &words[words.len() - 1]])
    }

    fn fill(&self, ptr: PPtr<PmU64>, tag: u64) -> Result<Flushed, PmError> {
        let mut flushed = Flushed::nothing();
        for word in self.tags(ptr)? {
            self.pool.pm().store(word, tag);
            flushed = flushed.and(self.pool.pm().flush(word));
        }
        Ok(flushed)
    }

    fn read(&self, ptr: PPtr<PmU64>) -> Result<u64, Fault> {
        let [first, last] = self.tags(ptr)?.map(|word| self.pool.pm().load(word));
        if first == last { Ok(first) } else { Err(Fault::new("a block was not filled")) }
    }

    fn reserve(
        &self,
        op: &mut Op<'_, Traced>,
        size: usize,
        tag: u64,
    ) -> Result<(Reserved<PmU64>, Flushed), PmError> {
        let block = op.reserve_bytes(SIZES[size], 16)?;
        let filled = self.fill(block.ptr(), tag)?;
        Ok((block, filled))
    }

    fn put(&self, at: usize, size: usize, tag: u64) -> Result<Vec<u64>, Fault> {
        let (pm, cell) = (self.pool.pm(), &self.root()?.pointers[at]);
        let old = pm.load(cell);
        if old.is_null() && SIZES[size] == 1152 {
            type Leaf = [PmU64; 144];
            let cell: &PmCell<PPtr<Leaf>> = self.pool.get(self.pool.pptr(cell).cast())?;
            self.pool.alloc_into(cell, |leaf| {
                pm.store(&leaf[0], tag);
                pm.store(&leaf[143], tag);
                pm.flush(&leaf[0]).and(pm.flush(&leaf[143]))
            })?;
            return Ok(vec![]);
        }
        let mut gone = Vec::new();
        let mut op = self.pool.op()?;
        let (block, filled) = self.reserve(&mut op, size, tag)?;
        op.allocate(&block, Owner::pointer(cell, block.ptr()))?;
        if !old.is_null() {
            gone.push(self.read(old)?);
            op.free(old, Owner::pointer(cell, old))?;
        }
        op.prepare(filled)?;
        pm.store(cell, block.ptr());
        let flushed = pm.flush(cell);
        let flushed = flushed.and(op.seal());
        let durable = pm.fence(flushed)?;
        op.finish(durable);
        Ok(gone)
    }

    fn take(&self, at: usize, retire: bool) -> Result<Vec<u64>, Fault> {
        let (pm, cell) = (self.pool.pm(), &self.root()?.pointers[at]);
        let old = pm.load(cell);
        if old.is_null() {
            return Ok(vec![]);
        }
        let gone = vec![self.read(old)?];
        if retire {
            let mut op = self.pool.op()?;
            op.retire(old, Owner::pointer(cell, old))?;
            let staged = op.stage();
            pm.fence(staged)?;
            pm.store(cell, PPtr::NULL);
            let flushed = pm.flush(cell);
            let flushed = flushed.and(op.seal());
            let durable = pm.fence(flushed)?;
            op.finish(durable);
        } else {
            self.pool.free_from(cell)?;
        }
        Ok(gone)
    }

    fn batch(&self, mask: u64, size: usize, tag: u64) -> Result<Vec<u64>, Fault> {
        let (pm, root) = (self.pool.pm(), self.root()?);
        let bits = pm.load(&root.bits);
        let wanted = mask & !(bits | bits >> 8);
        let mut op = self.pool.op()?;
        let mut filled = Flushed::nothing();
        for at in (0..BITS).filter(|at| wanted & 1 << at != 0) {
            let (block, flushed) = self.reserve(&mut op, size, tag)?;
            pm.store(&root.cells[at], block.ptr());
            let cell = pm.flush(&root.cells[at]);
            filled = filled.and(flushed).and(cell);
            op.allocate(&block, Owner::bit(&root.bits, at as u32))?;
        }
        self.commit(op, filled, bits | wanted)?;
        Ok(vec![])
    }

    fn drop_all(&self, mask: u64) -> Result<Vec<u64>, Fault> {
        let (pm, root) = (self.pool.pm(), self.root()?);
        let bits = pm.load(&root.bits);
        let gone = bits & (mask | mask << 8);
        let mut op = self.pool.op()?;
        let mut tags = Vec::new();
        for at in (0..16).filter(|at| gone & 1 << at != 0) {
            let ptr = pm.load(&root.cells[at % 8]);
            tags.push(self.read(ptr)?);
            op.free(ptr, Owner::bit(&root.bits, at as u32))?;
        }
        self.commit(op, Flushed::nothing(), bits & !gone)?;
        tags.sort_unstable();
        Ok(tags)
    }

    fn commit(&self, mut op: Op<'_, Traced>, filled: Flushed, bits: u64) -> Result<(), Fault> {
        let (pm, root) = (self.pool.pm(), self.root()?);
        op.prepare(filled)?;
        pm.store(&root.bits, bits);
        let flushed = pm.flush(&root.bits);
        let flushed = flushed.and(op.seal());
        let durable = pm.fence(flushed)?;
        op.finish(durable);
        Ok(())
    }

    /// Changes a word that tickets name, outside of any operation.
    fn shift(&self, at: usize) -> Result<Vec<u64>, Fault> {
        let (pm, root) = (self.pool.pm(), self.root()?);
        let bits = pm.load(&root.bits);
        let (low, high) = (1 << at, 1 << (at + 8));
        if bits & (low | high) == 0 {
            return Ok(vec![]);
        }
        self.pool.settle(&root.bits)?;
        pm.store(&root.bits, bits ^ (low | high));
        pm.persist(&root.bits)?;
        Ok(vec![])
    }

    /// Returns the owned blocks: (place, block).
    fn owned(&self) -> Result<Vec<(usize, PPtr<PmU64>)>, Fault> {
        let (pm, root) = (self.pool.pm(), self.root()?);
        let pointers = root.pointers.iter().map(|cell| pm.load(cell)).enumerate();
        let mut owned: Vec<_> = pointers.filter(|(_, ptr)| !ptr.is_null()).collect();
        let bits = pm.load(&root.bits);
        for at in (0..16).filter(|at| bits & 1 << at != 0) {
            owned.push((100 + at, pm.load(&root.cells[at % 8])));
        }
        Ok(owned)
    }

    // An operation that stops in the middle needs no flush: no step below this line is the subject's.
    const STEPS_END: u32 = line!();

    /// Starts a batch of one block for a free place.
    fn start(
        &self,
        at: usize,
        size: usize,
        how_far: u8,
        tag: u64,
    ) -> Result<Option<Op<'_, Traced>>, Fault> {
        let (pm, root) = (self.pool.pm(), self.root()?);
        let bits = pm.load(&root.bits);
        if bits & (1 << at | 1 << (at + 8)) != 0 {
            return Ok(None);
        }
        let mut op = self.pool.op()?;
        let (block, filled) = self.reserve(&mut op, size, tag)?;
        pm.store(&root.cells[at], block.ptr());
        let cell = pm.flush(&root.cells[at]);
        op.allocate(&block, Owner::bit(&root.bits, at as u32))?;
        if how_far == 1 {
            let _ = op.stage();
        }
        if how_far > 1 {
            op.prepare(filled.and(cell))?;
        }
        if how_far > 2 {
            pm.store(&root.bits, bits | 1 << at);
        }
        if how_far > 3 {
            let _ = op.seal();
        }
        Ok(Some(op))
    }

    fn withdraw(&self, at: usize, staged: bool) -> Result<Vec<u64>, Fault> {
        let cell = &self.root()?.pointers[at];
        let old = self.pool.pm().load(cell);
        if !old.is_null() {
            let mut op = self.pool.op()?;
            op.free(old, Owner::pointer(cell, old))?;
            if staged {
                let _ = op.stage();
            }
            op.withdraw();
        }
        Ok(vec![])
    }
}

impl Blocks {
    fn new(space: &Space, process: Process) -> Self {
        let locks = core::array::from_fn(|_| Mutex::new(()));
        Self { space: space.clone(), process: RwLock::new(process), locks }
    }

    /// Returns the running process; waits while another thread starts a new one.
    fn process(&self) -> RwLockReadGuard<'_, Process> {
        loop {
            match self.process.try_read() {
                Some(process) => return process,
                None => self.space.medium().spin(),
            }
        }
    }

    /// Dies in the middle of an operation and continues as a new process.
    fn die(&self, at: usize, size: usize, how_far: u8, tag: u64) -> Result<Vec<u64>, Fault> {
        let Some(mut process) = self.process.try_write() else {
            // Other threads are working: the process does not die, and the operation is committed.
            let process = self.process();
            let _lock = process.pool.pm().lock(&self.locks[POINTERS]);
            if how_far > 2 {
                drop(process.start(at, size, how_far, tag)?);
            }
            return Ok(vec![]);
        };
        if let Some(op) = process.start(at, size, how_far, tag)? {
            core::mem::forget(op);
        }
        let pool = Arc::clone(&process.pool);
        let next = Process::start_in(&self.space)?.ok_or(Fault::new("the pool is gone"))?;
        *process = next;
        Arc::into_inner(pool).ok_or(Fault::new("the pool is in use"))?.kill();
        Ok(vec![])
    }

    fn run(&self, step: &Step) -> Result<Vec<u64>, Fault> {
        if let Step::Die { at, size, how_far, tag } = *step {
            return self.die(at, size, how_far, tag);
        }
        let process = self.process();
        let lock = |at: usize| process.pool.pm().lock(&self.locks[at]);
        match *step {
            Step::Put { at, size, tag } => {
                let _lock = lock(at);
                process.put(at, size, tag)
            }
            Step::Take { at, retire } => {
                let _lock = lock(at);
                process.take(at, retire)
            }
            Step::Batch { mask, size, tag } => {
                let _lock = lock(POINTERS);
                process.batch(mask, size, tag)
            }
            Step::Drop { mask } => {
                let _lock = lock(POINTERS);
                process.drop_all(mask)
            }
            Step::Shift { at } => {
                let _lock = lock(POINTERS);
                process.shift(at)
            }
            Step::Abandon { at, size, how_far } => {
                let _lock = lock(POINTERS);
                drop(process.start(at, size, how_far, ABANDONED)?);
                Ok(vec![])
            }
            Step::Withdraw { at, staged } => {
                let _lock = lock(at);
                process.withdraw(at, staged)
            }
            Step::Trim | Step::Die { .. } => {
                process.pool.trim()?;
                Ok(vec![])
            }
        }
    }
}

/// Models an operation that stops at `how_far`: all or nothing.
fn start(model: &mut BTreeMap<usize, u64>, at: usize, how_far: u8, tag: u64) {
    if how_far > 2 && !model.contains_key(&(108 + at)) {
        model.entry(100 + at).or_insert(tag);
    }
}

impl CrashSubject for Blocks {
    type Op = Step;
    type Ret = Answer;
    type Model = BTreeMap<usize, u64>;
    const NAME: &'static str = "alloc";

    fn geometry() -> Geometry {
        let len = options().created_size().expect("a valid size") as usize;
        Geometry { len, capacity: len + (64 << 10) }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &options())?;
        // A fresh zone is zero, so the root is zero too.
        pool.create_index::<Root>("blocks", *b"blocks  ", 1, |_| Flushed::nothing())?;
        let process = Process::at(pool)?.ok_or(Fault::new("the index is gone"))?;
        Ok(Self::new(space, process))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(Process::start_in(space)?.map(|process| Self::new(space, process)))
    }

    fn apply(&self, step: &Step) -> Result<Answer, Fault> {
        match self.run(step) {
            Ok(tags) => Ok(Answer::Done(tags)),
            Err(Fault(what)) if what.contains("pool full") => Ok(Answer::Full),
            Err(fault) => Err(fault),
        }
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        let process = self.process();
        process.owned()?.into_iter().map(|(at, ptr)| Ok((at, process.read(ptr)?))).collect()
    }

    fn audit(&self) -> Result<(), Fault> {
        let process = self.process();
        let owned = process.owned()?.into_iter().map(|(_, ptr)| ptr.offset());
        process.pool.audit(owned.chain([process.root.offset()]))?;
        Ok(())
    }

    fn model(model: &mut Self::Model, step: &Step) -> Answer {
        Answer::Done(match *step {
            Step::Put { at, tag, .. } => model.insert(at, tag).into_iter().collect(),
            Step::Take { at, .. } => model.remove(&at).into_iter().collect(),
            Step::Batch { mask, tag, .. } => {
                for at in (0..BITS).filter(|at| mask & 1 << at != 0) {
                    if !model.contains_key(&(108 + at)) {
                        model.entry(100 + at).or_insert(tag);
                    }
                }
                vec![]
            }
            Step::Drop { mask } => {
                let places = (0..16).filter(|at| (mask | mask << 8) & 1 << at != 0);
                let mut tags: Vec<_> = places.filter_map(|at| model.remove(&(100 + at))).collect();
                tags.sort_unstable();
                tags
            }
            Step::Shift { at } => {
                let (low, high) = (100 + at, 108 + at);
                if let Some(tag) = model.remove(&low) {
                    model.insert(high, tag);
                } else if let Some(tag) = model.remove(&high) {
                    model.insert(low, tag);
                }
                vec![]
            }
            Step::Abandon { at, how_far, .. } => {
                start(model, at, how_far, ABANDONED);
                vec![]
            }
            Step::Die { at, how_far, tag, .. } => {
                start(model, at, how_far, tag);
                vec![]
            }
            Step::Withdraw { .. } | Step::Trim => vec![],
        })
    }

    fn outcomes(model: &Self::Model, step: &Step) -> Vec<(Self::Model, Answer)> {
        let mut after = model.clone();
        let answer = Self::model(&mut after, step);
        let mut all = vec![(after, answer)];
        let may_be_full = matches!(
            step,
            Step::Put { .. } | Step::Batch { .. } | Step::Abandon { .. } | Step::Die { .. }
        );
        if may_be_full {
            all.push((model.clone(), Answer::Full));
        }
        all
    }

    fn ops_for(threads: usize) -> BoxedStrategy<Step> {
        // Conflicts of tickets, which take several threads, are rarer if some operations are withdrawn.
        if threads > 1 {
            return Self::ops();
        }
        let withdraw =
            (0..POINTERS, any::<bool>()).prop_map(|(at, staged)| Step::Withdraw { at, staged });
        prop_oneof![9 => Self::ops(), 1 => withdraw].boxed()
    }

    fn ops() -> BoxedStrategy<Step> {
        let (at, bit, size, tag) = (0..POINTERS, 0..2usize, 0..SIZES.len(), 1..1000u64);
        // Mostly the same two places, so that operations meet; all five take three lines of tickets.
        let mask = prop_oneof![5 => 1..4u64, 1 => 1..1u64 << BITS];
        prop_oneof![
            5 => (at.clone(), size.clone(), tag.clone())
                .prop_map(|(at, size, tag)| Step::Put { at, size, tag }),
            3 => (at, any::<bool>()).prop_map(|(at, retire)| Step::Take { at, retire }),
            5 => (mask.clone(), size.clone(), tag.clone())
                .prop_map(|(mask, size, tag)| Step::Batch { mask, size, tag }),
            4 => mask.prop_map(|mask| Step::Drop { mask }),
            4 => bit.clone().prop_map(|at| Step::Shift { at }),
            1 => (bit.clone(), size.clone(), 0..5u8)
                .prop_map(|(at, size, how_far)| Step::Abandon { at, size, how_far }),
            2 => (bit, size, 0..5u8, tag)
                .prop_map(|(at, size, how_far, tag)| Step::Die { at, size, how_far, tag }),
            2 => Just(Step::Trim),
        ]
        .boxed()
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        let here = site.file().ends_with("blocks.rs") && site.line() < Process::STEPS_END;
        here || site.file().contains("pm-core/src/alloc")
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[
            (
                "crates/pm-core/src/alloc/commit.rs",
                include_str!("../../../pm-core/src/alloc/commit.rs"),
            ),
            (
                "crates/pm-core/src/alloc/reclaim.rs",
                include_str!("../../../pm-core/src/alloc/reclaim.rs"),
            ),
            (
                "crates/pm-core/src/alloc/recover.rs",
                include_str!("../../../pm-core/src/alloc/recover.rs"),
            ),
            (
                "crates/pm-core/src/alloc/slot.rs",
                include_str!("../../../pm-core/src/alloc/slot.rs"),
            ),
        ]
    }
}
