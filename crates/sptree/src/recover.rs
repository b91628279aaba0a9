//! Creating and opening; rebuilding the layers in DRAM from the list of Bnodes, in steps.
//!
//! Opening reads the root and opens the backup: constant time. From then on point reads are
//! [served](crate::serve). Each step rebuilds the layers above a few Bnodes of the list, which it fetches
//! ahead by the backup's entries: an Mnode, an entry of the radix tree, and the backup's entry if it is
//! missing. A Bnode tells what a crash left undone: if its `next` has the ghosts bit, it may hold records of
//! the next one, and they are [cleared](crate::ghosts); if its last insert became durable in part, it is
//! [finished](crate::unfinished). All that may be interrupted and done again. Nothing else changes, and
//! nothing is freed, while readers are served from the list.
//!
//! Locks and versions were in DRAM and are gone; the allocator has decided its tickets before.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use pmindex_core::{LINE, Medium, OpenIndex, Owner, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};
use pmindex_record::{Route, Separator, Tail};

use crate::backup::Backup;
use crate::buffer::WriteBuffers;
use crate::bulk::discard_unfinished;
use crate::image::Image;
use crate::layout::{BUFFERED_KIND, BnodePtr, Geometry, KIND, MAX_LEAF, Next, Root, Taken};
use crate::leaf::{Bnode, finish};
use crate::leaves::Leaves;
use crate::low::Low;
use crate::middle::{NONE, Range, exact};
use crate::tree::SpTree;

/// The progress of the rebuilding.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    /// The next Bnode; 0 if there is none.
    next: u64,
    /// The last Mnode; [`NONE`] before the first.
    last: u32,
    /// Its low key.
    low: Option<Vec<u8>>,
    /// Bnodes read.
    walked: u64,
    /// Why the buffer of the last one was not restored: its Mnode is there, so this is no place to go on from.
    broken: Option<PmError>,
    pub(crate) report: RecoveryReport,
}

/// The Bnodes of a step.
const STEP: usize = 32;
/// The greatest number of Bnodes in a pool for which opening rebuilds the layers at once.
const INLINE: u64 = 4096;

/// No key: the low key of the first Mnode, and the high key of the last.
const NO_KEY: Separator = Separator { prefix: 0, tail: Tail::NONE };

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    const fn kind() -> [u8; 8] {
        if BUFFER == 0 { KIND } else { BUFFERED_KIND }
    }

    fn wanted() -> String {
        format!("sptree<{}, {}, {LEAF}, {BUFFER}>", K::type_name(), V::type_name())
    }

    /// Returns the index's type in the pool's directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: Self::kind(),
            layout: Geometry::<K, V, LEAF>::id(BUFFER),
            layout_of: |key, value| Geometry::<K, V, LEAF>::id_of(BUFFER, key, value),
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Self::index_format().create(pool, name, |root: &Root| {
            let pm = pool.pm();
            pm.store(&root.head, PPtr::NULL);
            pm.store(&root.bulk_load, 0);
            pm.store(&root.backup, PPtr::NULL);
            pm.store(&root.log, PPtr::NULL);
            for word in &root.reserved {
                pm.store(word, 0);
            }
            pm.flush(root)
        })?;
        let created = Self::start(pool, index).and_then(|tree| {
            tree.make_ready()?;
            Ok(tree)
        });
        if created.is_err() {
            // No room for the first Bnode: no index either.
            pool.undo_create_index(name, |index| {
                let root = pool.get(index.root::<Root>())?;
                if !pool.pm().load(&root.head).is_null() {
                    return Ok(false);
                }
                pool.free_from(&root.log)?;
                Ok(true)
            })?;
        }
        created
    }

    /// Opens the index `name`, and recovers it: at once if it is small, else in steps, while point reads are
    /// served.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the
    /// pool's.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let tree = Self::open_serving(pool, name)?;
        if Leaves::<K, V, M, LEAF>::limit(pool) <= INLINE {
            let _recovery = pool.recovery();
            tree.make_ready().noted(pool)?;
        }
        Ok(tree)
    }

    /// Opens the index `name` and rebuilds nothing. The backup serves point reads, [`step`](Self::step)
    /// rebuilds a part, and the first other operation rebuilds the rest.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cost
    /// Constant: some lines, one fence.
    pub fn open_serving(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::start(pool, Self::index_format().open(pool, name)?).noted(pool)
    }

    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let root = pool.get(entry.root::<Root>())?;
        let capacity = Leaves::<K, V, M, LEAF>::capacity(pool);
        let buffers = if WriteBuffers::<K, V, M, LEAF, BUFFER>::ENABLED {
            Some(Box::new(WriteBuffers::open(pool, root, capacity)?))
        } else {
            None
        };
        let head = Self::make_head(pool, root)?;
        let first = Bnode::<K, V, LEAF>::at(pool, head)?;
        let discarded =
            discard_unfinished(pool, root, &first, Leaves::<K, V, M, LEAF>::limit(pool))?;
        let backup = Backup::open::<K>(pool, &entry, &root.backup)?;
        let repaired = u64::from(discarded.is_some());
        if let Some(unmarked) = discarded
            && backup.is_missing()
        {
            pool.pm().fence(unmarked)?; // else the backup's opening has fenced
        }
        let report = RecoveryReport {
            clean: pool.was_clean(),
            threads: 1,
            repaired,
            elapsed: started.elapsed(),
            ..RecoveryReport::default()
        };
        let rebuild = Rebuild { next: head, report, ..Rebuild::default() };
        Ok(Self::new(Leaves::new(pool)?, entry, backup, buffers, rebuild)?)
    }

    /// Returns the first Bnode; makes it where a crash in `create` left none.
    fn make_head(pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
        let pm = pool.pm();
        let head = pm.load(&root.head);
        if !head.is_null() {
            return Ok(head.offset());
        }
        pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        // P1: an empty Bnode.
        let mut image = Image::<K, V, LEAF>::new();
        image.finish(Next::to(0), &[0; 4]);
        let bnode = Bnode::<K, V, LEAF>::at(pool, block.ptr().offset())?;
        let filled = pm.stream_words(bnode.words(), &image.words);
        op.allocate(&block, Owner::pointer(&root.head, block.ptr()))?;
        op.prepare(filled)?;
        // P2: the link.
        pm.store(&root.head, block.ptr());
        finish(pool, op, || pm.flush(&root.head))?; // DUR
        Ok(block.ptr().offset())
    }

    /// Completes the layers in DRAM, if they are not.
    #[inline(always)]
    pub(crate) fn make_ready(&self) -> Result<(), IndexError> {
        if self.is_ready() { Ok(()) } else { self.rebuild_all() }
    }

    #[cold]
    #[inline(never)]
    fn rebuild_all(&self) -> Result<(), IndexError> {
        let _recovery = self.pool.recovery();
        while self.rebuild_step()? {}
        while self.backup.step(self.pm()) {}
        Ok(())
    }

    /// One step of the rebuilding; returns whether there may be more.
    pub(crate) fn rebuild_step(&self) -> Result<bool, IndexError> {
        let mut rebuild = self.pm().lock(&self.rebuild);
        self.advance(&mut rebuild)
    }

    /// As [`rebuild_step`](Self::rebuild_step), unless another thread is at it.
    pub(crate) fn help_rebuild(&self) {
        if let Some(mut rebuild) = self.rebuild.try_lock() {
            // An error is returned again to the operation that needs the layers.
            let _ = self.advance(&mut rebuild);
        }
    }

    fn advance(&self, rebuild: &mut Rebuild) -> Result<bool, IndexError> {
        if self.is_ready() {
            return Ok(false);
        }
        let _recovery = self.pool.recovery();
        let started = Instant::now();
        if self.buffers().is_some_and(WriteBuffers::recover_step) {
            rebuild.report.elapsed += started.elapsed();
            return Ok(true);
        }
        let mut entries = Vec::with_capacity(STEP);
        let known = self.backup.entries_after(rebuild.low.as_deref(), STEP)?;
        for &(_, bnode) in &known {
            // All at once: the list would name them one after the other.
            self.pool.prefetch(BnodePtr::new(bnode));
            self.pool.prefetch(BnodePtr::new(bnode.wrapping_add(LINE as u64)));
        }
        for bnode in known.iter().filter_map(|&(_, bnode)| self.leaves.bnode(bnode).ok()) {
            if let Some(slot) = bnode.last_inserted(self.pm()) {
                self.leaves.prefetch_slot(bnode.offset(), slot);
            }
        }
        if let Some(buffers) = self.buffers() {
            buffers.prefetch_chains(known.iter().map(|&(_, bnode)| bnode));
        }
        for _ in 0..STEP {
            if rebuild.next == 0 {
                break;
            }
            self.take(rebuild, &mut entries)?;
        }
        self.backup.confirm(self.pm(), entries, &known)?;
        let done = rebuild.next == 0;
        rebuild.report.elapsed += started.elapsed();
        if done {
            if let Some(buffers) = self.buffers() {
                buffers.end_recovery();
            }
            self.leaves.count(self.head, rebuild.report.records);
            self.ready.store(true, Release);
        }
        Ok(!done)
    }

    /// Repairs the next Bnode and adds it to the layers.
    fn take(
        &self,
        rebuild: &mut Rebuild,
        entries: &mut Vec<(Vec<u8>, u64)>,
    ) -> Result<(), IndexError> {
        let (pool, pm, middle) = (&*self.pool, self.pm(), &self.leaves.middle);
        if let Some(error) = &rebuild.broken {
            return Err(error.clone().into());
        }
        let bnode = self.leaves.bnode(rebuild.next)?;
        let offset = bnode.offset();
        rebuild.walked += 1;
        if rebuild.walked > Leaves::<K, V, M, LEAF>::limit(pool) {
            return Err(corrupt("the list of Bnodes has no end", offset).into());
        }
        let (mut taken, next) = (bnode.taken(pm), bnode.next(pm));
        if !taken.is_valid(LEAF) || !next.is_valid() {
            return Err(corrupt("a Bnode's bitmap or link", offset).into());
        }
        rebuild.report.repaired += u64::from(self.leaves.finish_insert(&bnode)?);
        taken = bnode.taken(pm);
        if next.ghosts() {
            taken = self.leaves.clear_ghosts(&bnode, taken, next)?;
            rebuild.report.repaired += 1;
        }
        let mut tags = [0; MAX_LEAF / 8];
        pm.read_words(bnode.tag_cells(), &mut tags);
        let tags = exact(tags, taken);
        if slots_of_tags(&tags) != taken {
            return Err(corrupt("a tag of 0 of a record", offset).into());
        }
        if rebuild.last == NONE {
            let range = Range { low: NO_KEY, high: NO_KEY };
            drop(middle.fill(pm, self.head, offset, &range, (NONE, NONE), &tags));
            rebuild.last = self.head;
        } else {
            let bytes = bnode.low(pool)?;
            if rebuild.low.as_ref().is_some_and(|last| *last >= bytes) {
                return Err(corrupt("the low keys of the Bnodes are out of order", offset).into());
            }
            let low = Low::of_bytes::<K>(bytes.clone());
            let route = low.route::<K>();
            rebuild.last = self.append_mnode(rebuild.last, &route, offset, &tags)?;
            self.top.insert(pm, middle, &route, rebuild.last);
            self.guide.add(route.prefix);
            rebuild.low = Some(bytes.clone());
            entries.push((bytes, offset));
        }
        rebuild.report.leaves += 1;
        let gained = match self.buffers() {
            Some(buffers) => buffers
                .restore(&self.leaves, rebuild.last, &bnode)
                .inspect_err(|error| rebuild.broken = Some(error.clone()))?,
            None => 0,
        };
        let records = rebuild.report.records.wrapping_add(taken.len() as u64);
        rebuild.report.records = records.wrapping_add(gained);
        rebuild.next = next.offset();
        Ok(())
    }

    /// Appends an Mnode to the list, which no other thread changes or can reach. Another may know the number
    /// from an earlier use: with a `bnode` of 0 it finds an Mnode that has ended.
    pub(crate) fn append_mnode(
        &self,
        last: u32,
        low: &Route<'_>,
        bnode: u64,
        tags: &[u64; MAX_LEAF / 8],
    ) -> Result<u32, PmError> {
        let (pm, middle) = (self.pm(), &self.leaves.middle);
        let separator = middle.tails.store::<K>(&middle.dram, low)?;
        let index = middle.alloc()?;
        let range = Range { low: separator, high: NO_KEY };
        drop(middle.fill(pm, index, bnode, &range, (last, NONE), tags));
        let left = middle.get(last);
        middle.put_high(left, separator);
        middle.dram.store(&left.right, middle.dram.load(&left.right).with_next(index));
        Ok(index)
    }

    /// Saves what makes the next opening fast, and closes the index.
    ///
    /// # Errors
    /// The medium's.
    pub fn close(mut self) -> Result<(), IndexError> {
        if self.pool.is_read_only() {
            return Ok(());
        }
        self.pool.check_writable()?;
        self.make_ready()?;
        self.close_buffers()?;
        self.backup.close(self.pool.pm())
    }
}

/// Returns the slots whose tags are not 0.
fn slots_of_tags(tags: &[u64; MAX_LEAF / 8]) -> Taken {
    let bytes = tags.iter().flat_map(|word| word.to_le_bytes()).enumerate();
    Taken::of(bytes.fold(0, |slots, (i, tag)| slots | u64::from(tag != 0) << i))
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
