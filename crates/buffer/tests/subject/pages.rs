//! The buffer with its log and its disk in one space: all three crash together.
//!
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::RwLock;
use pmindex_buffer::{Buffer, BufferError, BufferOptions, Metrics, Mutant, Sums, Tx};
use pmindex_core::trace::{Space, alone_as};
use pmindex_core::{Medium, PmError, PmU64, PoolOptions, Traced};
use pmindex_testkit::crash::{
    CrashSubject, Fault, Geometry, Plan, create_pool, open_pool, use_memory,
};
use proptest::prelude::*;

use super::pool_disk::{self, DEVICE, PoolDisk};

const PAGE_WORDS: usize = 32;
/// The user's words that are used, each in a line of its own.
const CELLS: [usize; 3] = [0, 8, 16];

/// What all buffers of this process found in frames, by the states of figure 4.7.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) valid: AtomicU64,
    pub(crate) outdated: AtomicU64,
    pub(crate) corrupted: AtomicU64,
    pub(crate) ahead: AtomicU64,
    pub(crate) restored: AtomicU64,
    pub(crate) promoted: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
}

impl Found {
    fn add(&self, metrics: &Metrics) {
        self.valid.fetch_add(metrics.valid, Relaxed);
        self.outdated.fetch_add(metrics.outdated, Relaxed);
        self.corrupted.fetch_add(metrics.corrupted, Relaxed);
        self.ahead.fetch_add(metrics.ahead, Relaxed);
        self.restored.fetch_add(metrics.restored, Relaxed);
        self.promoted.fetch_add(metrics.promoted, Relaxed);
        self.rebuilt.fetch_add(metrics.rebuilt, Relaxed);
    }
}

/// With [`Mutant`] as a number.
pub(crate) static FOUND: [Found; MUTANTS.len()] = [const {
    Found {
        valid: AtomicU64::new(0),
        outdated: AtomicU64::new(0),
        corrupted: AtomicU64::new(0),
        ahead: AtomicU64::new(0),
        restored: AtomicU64::new(0),
        promoted: AtomicU64::new(0),
        rebuilt: AtomicU64::new(0),
    }
}; MUTANTS.len()];

pub(crate) const NONE: usize = 0;
const MUTANTS: [Mutant; 11] = [
    Mutant::None,
    Mutant::InPlace,
    Mutant::NoRuleH,
    Mutant::ReusedLsn,
    Mutant::SumsApart,
    Mutant::NoPageNumber,
    Mutant::NoStaging,
    Mutant::LateArchive,
    Mutant::RunAfterHead,
    Mutant::LateTag,
    Mutant::OneTag,
];

type Cells = [u64; 3];
/// A page, a cell, and its new value.
type Change = (u64, usize, u64);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Changes of one transaction.
    Change(Vec<Change>),
    /// Changes of a transaction each, in one group: a crash leaves the first so many.
    Group(Vec<Change>),
    /// A page anew, with this in its first cell.
    Renew(u64, u64),
    /// The first cell of one page plus one becomes the last cell of another.
    Add(u64, u64),
    /// The first and last cells of two pages, at one moment: by a transaction that commits.
    Both(u64, u64),
    /// The same by a transaction that is dropped: what it has read is of one moment too.
    Glance(u64, u64),
    Get(u64),
    Checkpoint,
    /// A slice of a checkpoint.
    Slice,
    /// Makes whole what waits.
    Recover,
    /// The process dies, and another one opens.
    Reopen,
    /// A page rots, on the disk, in its frame, or both.
    Rot(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Done,
    Got(Option<Cells>),
    Read(Vec<u64>),
    /// Never returned: the operation did a part.
    Cut,
}

/// In the place of a number of partitions: one sum, and a page may have a copy in DRAM.
pub(crate) const HOT: u32 = 1;
/// In the place of a number of partitions: one sum, and so many frames that several are emptied, or get their
/// entries, together.
pub(crate) const MANY: u32 = 2;

/// In the place of a number of partitions: one sum, and an archive. Pages rot, and each is always read as it was.
pub(crate) const ARCHIVED: u32 = 3;
/// The bytes of the archive's disk.
const ARCHIVE_BYTES: u64 = 8192;

/// The number of frames.
const fn frames(partitions: u32) -> u64 {
    if partitions == MANY { 16 } else { 3 }
}

/// The number of pages that are used.
const fn used(partitions: u32) -> u64 {
    frames(partitions) + 1
}

/// The bytes of the disk.
const fn disk_bytes(partitions: u32) -> u64 {
    (used(partitions) + 2) * 8 * PAGE_WORDS as u64
}

/// Pages over which transactions work. `PARTITIONS` is 0 for one sum.
pub(crate) struct Pages<const MUTANT: usize, const PARTITIONS: u32> {
    space: Space,
    buffer: RwLock<Option<Buffer<Traced>>>,
}

fn cells_of(word: impl Fn(usize) -> u64) -> Cells {
    CELLS.map(word)
}

fn again<M: Medium>(pm: &M, error: BufferError) -> Result<(), Fault> {
    match error {
        BufferError::Conflict | BufferError::NoFrames => {
            pm.spin();
            Ok(())
        }
        other => Err(other.into()),
    }
}

/// Runs a transaction until nobody comes between; makes room in the log if it is full.
fn transact<R>(
    buffer: &Buffer<Traced>,
    mut body: impl FnMut(&mut Tx<'_, Traced>) -> Result<R, BufferError>,
) -> Result<R, Fault> {
    for _ in 0..1000 {
        let mut tx = buffer.begin();
        match body(&mut tx).and_then(|found| tx.commit().map(|_| found)) {
            Ok(found) => return Ok(found),
            Err(BufferError::Pool(PmError::Full { .. })) => buffer.checkpoint()?,
            Err(error) => again(buffer.pool().pm(), error)?,
        }
    }
    Err(Fault::new("a transaction never gets through"))
}

fn change(tx: &mut Tx<'_, Traced>, &(page, cell, value): &Change) -> Result<(), BufferError> {
    match tx.write(page) {
        Ok(draft) => draft.set(CELLS[cell], value),
        Err(BufferError::NoPage { .. }) => tx.create(page)?.set(CELLS[cell], value),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn first_cell(tx: &mut Tx<'_, Traced>, page: u64, cell: usize) -> Result<u64, BufferError> {
    match tx.read(page, |view| view.word(CELLS[cell])) {
        Err(BufferError::NoPage { .. }) => Ok(0),
        other => other,
    }
}

fn cells_of_both(tx: &mut Tx<'_, Traced>, one: u64, other: u64) -> Result<Vec<u64>, BufferError> {
    let cells = [(one, 0), (one, 2), (other, 0), (other, 2)];
    cells.iter().map(|&(page, cell)| first_cell(tx, page, cell)).collect()
}

fn get(buffer: &Buffer<Traced>, page: u64) -> Result<Option<Cells>, Fault> {
    for _ in 0..1000 {
        match buffer.read(page, |view| cells_of(|at| view.word(at))) {
            Ok(found) => return Ok(Some(found)),
            Err(BufferError::NoPage { .. }) => return Ok(None),
            Err(error) => again(buffer.pool().pm(), error)?,
        }
    }
    Err(Fault::new("a page is never read"))
}

impl<const MUTANT: usize, const PARTITIONS: u32> Pages<MUTANT, PARTITIONS> {
    fn options() -> BufferOptions {
        let sums = if matches!(PARTITIONS, 0 | HOT | MANY | ARCHIVED) {
            Sums::Incremental
        } else {
            Sums::Partitioned(PARTITIONS)
        };
        BufferOptions::new(frames(PARTITIONS))
            .page_bytes(8 * PAGE_WORDS as u64)
            .sums(sums)
            .staging(2)
            .dram_pages(usize::from(PARTITIONS == HOT))
            .identity(0x1d)
            .verify_reads(PARTITIONS == ARCHIVED)
            .mutant(MUTANTS[MUTANT])
    }

    fn over(space: &Space, buffer: Buffer<Traced>) -> Self {
        Self { space: space.clone(), buffer: RwLock::new(Some(buffer)) }
    }

    fn with<R>(&self, body: impl FnOnce(&Buffer<Traced>) -> Result<R, Fault>) -> Result<R, Fault> {
        match &*self.buffer.read_recursive() {
            Some(buffer) => body(buffer),
            None => Err(Fault::new("closed")),
        }
    }

    fn opened(space: &Space) -> Result<Option<Buffer<Traced>>, Fault> {
        let Some(pool) = open_pool(space, &pool_options())? else { return Ok(None) };
        let Some(disk) = PoolDisk::open(&pool, disk_bytes(PARTITIONS))? else { return Ok(None) };
        let mut options = Self::options();
        if PARTITIONS == ARCHIVED {
            let archive = PoolDisk::open_as(&pool, "archive", ARCHIVE_BYTES)?;
            let Some(archive) = archive else { return Ok(None) };
            options = options.archive(Arc::new(archive));
        }
        Ok(Buffer::open(&pool, "pages", Arc::new(disk), &options)?)
    }

    fn reopen(&self) -> Result<(), Fault> {
        let mut open = self.buffer.write();
        let Some(buffer) = open.take() else { return Err(Fault::new("closed")) };
        FOUND[MUTANT].add(&buffer.metrics());
        let pool = Arc::clone(buffer.pool());
        drop(buffer);
        if let Some(pool) = Arc::into_inner(pool) {
            pool.kill();
        }
        *open = Self::opened(&self.space)?;
        Ok(())
    }

    fn execute(buffer: &Buffer<Traced>, op: &Op) -> Result<Ret, Fault> {
        match op {
            Op::Change(changes) => {
                transact(buffer, |tx| changes.iter().try_for_each(|one| change(tx, one)))?;
            }
            Op::Group(changes) => return group(buffer, changes),
            &Op::Renew(page, value) => {
                transact(buffer, |tx| tx.create(page).map(|draft| draft.set(CELLS[0], value)))?;
            }
            &Op::Add(from, to) => {
                let read = transact(buffer, |tx| {
                    let read = first_cell(tx, from, 0)?;
                    change(tx, &(to, 2, read + 1)).map(|()| read)
                })?;
                return Ok(Ret::Read(vec![read]));
            }
            &Op::Both(one, other) => {
                return Ok(Ret::Read(transact(buffer, |tx| cells_of_both(tx, one, other))?));
            }
            &Op::Glance(one, other) => {
                for _ in 0..1000 {
                    match cells_of_both(&mut buffer.begin(), one, other) {
                        Ok(read) => return Ok(Ret::Read(read)),
                        Err(error) => again(buffer.pool().pm(), error)?,
                    }
                }
                return Err(Fault::new("pages are never read together"));
            }
            &Op::Get(page) => return Ok(Ret::Got(get(buffer, page)?)),
            Op::Checkpoint => buffer.checkpoint()?,
            Op::Slice => {
                let _ = buffer.checkpoint_step()?;
            }
            Op::Recover => {
                let _ = buffer.recover_step()?;
            }
            &Op::Rot(page) => rot(buffer, page, page)?,
            Op::Reopen => {}
        }
        Ok(Ret::Done)
    }
}

/// Damages a page on the disk, or its frame, or both: a bit, or all that the disk has.
fn rot(buffer: &Buffer<Traced>, page: u64, seed: u64) -> Result<(), Fault> {
    let (pool, random) = (buffer.pool(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let random = random ^ random >> 32;
    let Some(disk) = pool_disk::block(pool)? else { return Err(Fault::new("no disk")) };
    let on_disk = pool.words(disk + 8 * PAGE_WORDS as u64 * page, PAGE_WORDS)?;
    let at = (random >> 8) as usize % PAGE_WORDS;
    let flip = |words: &[PmU64]| {
        let pm = pool.pm();
        pm.store(&words[at], pm.load(&words[at]) ^ (1 << ((random >> 16) % 64)));
    };
    alone_as(DEVICE, || {
        match random % 4 {
            0 => {}
            1 => pool.pm().write_words(on_disk, &[0; PAGE_WORDS]),
            _ => flip(on_disk),
        }
        if let Some(frame) =
            buffer.frame_offset(page).filter(|_| random % 4 == 0 || random & 64 == 0)
        {
            flip(pool.words(frame, PAGE_WORDS)?);
        }
        Ok(())
    })
}

fn group(buffer: &Buffer<Traced>, changes: &[Change]) -> Result<Ret, Fault> {
    let mut left: Vec<Change> = changes.to_vec();
    for _ in 0..1000 {
        let mut group = Vec::new();
        let made = left.iter().try_for_each(|one| {
            let mut tx = buffer.begin();
            change(&mut tx, one).map(|()| group.push(tx))
        });
        match made.and_then(|()| buffer.commit_all(group)) {
            Ok(outcome) => {
                // The first one that is refused and all after it are made again.
                let refused = outcome.iter().position(Result::is_err).unwrap_or(left.len());
                if outcome[refused..].iter().any(Result::is_ok) {
                    return Err(Fault::new("a group of other pages was cut in the middle"));
                }
                left.drain(..refused);
                if left.is_empty() {
                    return Ok(Ret::Done);
                }
                buffer.pool().pm().spin();
            }
            Err(BufferError::Pool(PmError::Full { .. })) => buffer.checkpoint()?,
            Err(error) => again(buffer.pool().pm(), error)?,
        }
    }
    Err(Fault::new("a group never gets through"))
}

impl<const MUTANT: usize, const PARTITIONS: u32> CrashSubject for Pages<MUTANT, PARTITIONS> {
    type Op = Op;
    type Ret = Ret;
    type Model = BTreeMap<u64, Cells>;
    const NAME: &'static str = match PARTITIONS {
        0 => "buffer",
        HOT => "buffer-dram",
        MANY => "buffer-many",
        ARCHIVED => "buffer-archived",
        _ => "buffer-partitioned",
    };

    fn geometry() -> Geometry {
        let len = pool_options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &pool_options())?;
        let disk = PoolDisk::create(&pool, disk_bytes(PARTITIONS))?;
        let mut options = Self::options();
        if PARTITIONS == ARCHIVED {
            let archive = PoolDisk::create_as(&pool, "archive", ARCHIVE_BYTES)?;
            options = options.archive(Arc::new(archive));
        }
        use_memory(space, &pool)?;
        let buffer = Buffer::create(&pool, "pages", Arc::new(disk), &options)?;
        Ok(Self::over(space, buffer))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(Self::opened(space)?.map(|buffer| Self::over(space, buffer)))
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        if matches!(op, Op::Reopen) {
            self.reopen()?;
            return Ok(Ret::Done);
        }
        self.with(|buffer| Self::execute(buffer, op))
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        self.with(|buffer| {
            let mut found = BTreeMap::new();
            if PARTITIONS == ARCHIVED {
                let seed = buffer.metrics().valid + 10 * buffer.metrics().corrupted;
                for page in 1..=used(PARTITIONS) {
                    rot(buffer, page, seed << 8 | page)?;
                }
            }
            // First those that the opening found in frames: the others take their frames away.
            let mut pages: Vec<u64> = (1..=used(PARTITIONS)).collect();
            pages.sort_by_key(|&page| buffer.frame_offset(page).is_none());
            for page in pages {
                if let Some(cells) = get(buffer, page)? {
                    found.insert(page, cells);
                }
            }
            let ahead = buffer.metrics().ahead;
            if MUTANT == NONE && ahead > 0 {
                return Err(Fault::new("a frame is ahead of the log"));
            }
            Ok(found)
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|buffer| {
            let pool = buffer.pool();
            let archive = pool.find_index("archive")?.map(|archive| archive.block());
            let disks = pool_disk::block(pool)?.into_iter().chain(archive);
            pool.audit(buffer.blocks()?.into_iter().chain(disks))?;
            Ok(())
        })
    }

    fn model(model: &mut Self::Model, op: &Op) -> Ret {
        let cell = |model: &Self::Model, page, cell: usize| model.get(&page).map_or(0, |c| c[cell]);
        match op {
            Op::Change(changes) | Op::Group(changes) => {
                for &(page, cell, value) in changes {
                    model.entry(page).or_default()[cell] = value;
                }
            }
            &Op::Renew(page, value) => drop(model.insert(page, [value, 0, 0])),
            &Op::Add(from, to) => {
                let read = cell(model, from, 0);
                model.entry(to).or_default()[2] = read + 1;
                return Ret::Read(vec![read]);
            }
            &(Op::Both(one, other) | Op::Glance(one, other)) => {
                let cells = [(one, 0), (one, 2), (other, 0), (other, 2)];
                return Ret::Read(cells.map(|(page, at)| cell(model, page, at)).to_vec());
            }
            Op::Get(page) => return Ret::Got(model.get(page).copied()),
            Op::Checkpoint | Op::Slice | Op::Recover | Op::Reopen | Op::Rot(_) => {}
        }
        Ret::Done
    }

    fn outcomes(model: &Self::Model, op: &Op) -> Vec<(Self::Model, Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        let mut outcomes = vec![(after, ret)];
        if let Op::Group(changes) = op {
            for cut in 1..changes.len() {
                let mut part = model.clone();
                Self::model(&mut part, &Op::Change(changes[..cut].to_vec()));
                outcomes.push((part, Ret::Cut));
            }
        }
        outcomes
    }

    fn ops() -> BoxedStrategy<Op> {
        <Self as CrashSubject>::ops_for(1)
    }

    fn ops_for(threads: usize) -> BoxedStrategy<Op> {
        let ops = ops_for(threads, used(PARTITIONS));
        if PARTITIONS == ARCHIVED {
            return prop_oneof![6 => ops, 1 => (1..=used(PARTITIONS)).prop_map(Op::Rot)].boxed();
        }
        ops
    }

    fn directed() -> Vec<Plan<Op>> {
        match PARTITIONS {
            MANY => directed_many(),
            ARCHIVED => [directed_archived(), directed_one(), directed_two()].concat(),
            _ => [directed_one(), directed_two()].concat(),
        }
    }

    fn concurrent() -> bool {
        true
    }

    /// The steps of entries are no condition of durability: `buffer-warm` has them.
    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("crates/buffer/src/") && !site.file().ends_with("entries.rs")
    }
}

impl<const MUTANT: usize, const PARTITIONS: u32> Drop for Pages<MUTANT, PARTITIONS> {
    fn drop(&mut self) {
        if let Some(buffer) = &*self.buffer.get_mut() {
            FOUND[MUTANT].add(&buffer.metrics());
        }
    }
}

fn ops_for(threads: usize, used: u64) -> BoxedStrategy<Op> {
    let page = move || 1..=used;
    let changes = prop::collection::vec((page(), 0..3usize, 1..200u64), 1..4);
    let one = prop_oneof![
        10 => changes.clone().prop_map(Op::Change),
        1 => (page(), 1..200u64).prop_map(|(page, value)| Op::Renew(page, value)),
        4 => (page(), page()).prop_map(|(from, to)| Op::Add(from, to)),
        3 => (page(), page()).prop_map(|(one, other)| Op::Both(one, other)),
        2 => (page(), page()).prop_map(|(one, other)| Op::Glance(one, other)),
        4 => page().prop_map(Op::Get),
        2 => Just(Op::Checkpoint),
        2 => Just(Op::Slice),
        1 => Just(Op::Recover),
    ];
    if threads > 1 {
        return one.boxed();
    }
    let group = changes.prop_map(|mut changes| {
        changes.sort_unstable();
        changes.dedup_by_key(|change| change.0);
        Op::Group(changes)
    });
    prop_oneof![14 => one, 2 => group, 1 => Just(Op::Reopen)].boxed()
}

/// Changes as many pages as there are frames.
fn all(value: u64) -> Op {
    Op::Change((1..=frames(0)).map(|page| (page, 1, value)).collect())
}

fn gets() -> Vec<Op> {
    (1..=used(0)).map(Op::Get).collect()
}

/// The plans of one thread.
fn directed_one() -> Vec<Plan<Op>> {
    vec![
        // A page that was flushed, changed, evicted, and fetched again into its old frame; then the log is
        // cut: its older image must not come back.
        Plan {
            setup: vec![all(1), Op::Checkpoint, all(2), Op::Get(4), Op::Change(vec![(4, 0, 9)])],
            threads: vec![vec![
                Op::Get(1),
                Op::Get(2),
                Op::Get(3),
                Op::Checkpoint,
                Op::Get(4),
                Op::Get(1),
                Op::Checkpoint,
            ]],
            tail: gets(),
        },
        // A change after a checkpoint, then eviction while it is on the way to the disk.
        Plan {
            setup: vec![all(1), Op::Checkpoint],
            threads: vec![vec![all(2), Op::Change(vec![(4, 2, 7)]), Op::Get(1), Op::Get(2)]],
            tail: gets(),
        },
        // Changes of several pages after a restart that has not looked at any.
        Plan {
            setup: vec![all(1), Op::Checkpoint, all(2), all(3)],
            threads: vec![vec![
                Op::Reopen,
                all(4),
                Op::Slice,
                Op::Slice,
                Op::Reopen,
                Op::Checkpoint,
            ]],
            tail: gets(),
        },
        // Pages that begin anew, of which a crash leaves the frames as they were: opening makes them anew,
        // and may be interrupted.
        Plan {
            setup: vec![all(1), Op::Checkpoint],
            threads: vec![vec![Op::Renew(1, 57), Op::Renew(2, 58), Op::Change(vec![(1, 1, 3)])]],
            tail: gets(),
        },
        // The second place of the staging area has an old copy of page 1, which was written since from the first
        // place. Then it gets the copy of another page.
        Plan {
            setup: vec![
                Op::Change(vec![(1, 0, 10), (2, 0, 20)]),
                Op::Checkpoint,
                Op::Change(vec![(1, 0, 11)]),
                Op::Checkpoint,
            ],
            threads: vec![vec![Op::Change(vec![(3, 0, 30), (4, 0, 40)]), Op::Checkpoint]],
            tail: [gets(), gets()].concat(),
        },
        // The last step of a checkpoint, which moves the horizon: the frames are durable before.
        Plan {
            setup: vec![all(1), Op::Checkpoint, all(2), Op::Slice, Op::Slice, Op::Slice],
            threads: vec![vec![Op::Slice]],
            tail: gets(),
        },
        // A checkpoint that frees the segment of the log with the last updates of pages 2 and 3.
        Plan {
            setup: vec![all(1), Op::Checkpoint, all(2), Op::Change(vec![(1, 0, 5)])],
            threads: vec![vec![Op::Checkpoint]],
            tail: gets(),
        },
    ]
}

/// The plans for an archive.
fn directed_archived() -> Vec<Plan<Op>> {
    let rots = || (1..=used(0)).map(Op::Rot).collect::<Vec<_>>();
    vec![
        // Records go to the archive, run after run.
        Plan {
            setup: vec![all(1), Op::Change(vec![(4, 0, 9)])],
            threads: vec![vec![Op::Checkpoint, all(2), Op::Checkpoint, all(3), Op::Checkpoint]],
            tail: [rots(), gets()].concat(),
        },
        // Pages are built from it, and written to the disk.
        Plan {
            setup: vec![all(1), Op::Checkpoint, all(2), Op::Checkpoint, all(3)],
            threads: vec![[rots(), gets(), vec![Op::Checkpoint], gets()].concat()],
            tail: gets(),
        },
    ]
}

/// The plans for many frames.
fn directed_many() -> Vec<Plan<Op>> {
    let all = |value| Op::Change((1..=frames(MANY)).map(|page| (page, 1, value)).collect());
    let gets = || (1..=used(MANY)).map(Op::Get).collect::<Vec<_>>();
    vec![
        // Two frames are emptied for page 17: those of pages 16 and 1. Page 17 gets the frame of page 1, so the
        // other one durably has an image of page 16 from before the horizon. Then it gets page 16 again, and its
        // entry must not be durable before the present image is.
        Plan {
            setup: vec![
                Op::Change(vec![(17, 0, 1)]),
                all(1),
                Op::Checkpoint,
                all(2),
                Op::Get(17),
                Op::Checkpoint,
                Op::Get(16),
            ],
            threads: vec![vec![Op::Checkpoint]],
            tail: gets(),
        },
    ]
}

/// The plans of two threads.
fn directed_two() -> Vec<Plan<Op>> {
    vec![
        // A checkpoint while another thread changes the same pages.
        Plan {
            setup: vec![all(1), Op::Checkpoint, all(2)],
            threads: vec![
                vec![Op::Checkpoint, Op::Change(vec![(1, 0, 5)])],
                vec![all(3), Op::Change(vec![(2, 2, 6), (4, 0, 1)]), Op::Get(1)],
            ],
            tail: gets(),
        },
        // A checkpoint while another thread writes the only page that is due, to reuse its frame.
        Plan {
            setup: vec![
                Op::Change(vec![(4, 0, 1)]),
                all(1),
                Op::Checkpoint,
                Op::Change(vec![(2, 0, 7)]),
            ],
            threads: vec![
                vec![Op::Checkpoint],
                vec![Op::Change(vec![(1, 0, 5), (3, 0, 6)]), Op::Get(4)],
            ],
            tail: gets(),
        },
        // A checkpoint while another thread empties a frame: it has written the page, but the frame, which has
        // an older image durably, still belongs to the page.
        Plan {
            setup: vec![Op::Change(vec![(4, 0, 1)]), all(1), Op::Checkpoint, all(2)],
            threads: vec![vec![Op::Get(4)], vec![Op::Checkpoint]],
            tail: gets(),
        },
        // Two transactions that each read what the other one writes.
        Plan {
            setup: vec![Op::Change(vec![(1, 0, 10), (2, 0, 20)])],
            threads: vec![
                vec![Op::Add(1, 2), Op::Change(vec![(1, 0, 11)]), Op::Both(1, 2)],
                vec![Op::Add(2, 1), Op::Change(vec![(2, 0, 21)]), Op::Both(2, 1)],
            ],
            tail: gets(),
        },
        // A transaction that reads two pages while others change both.
        Plan {
            setup: vec![Op::Change(vec![(1, 0, 10), (2, 0, 20)])],
            threads: vec![
                vec![Op::Glance(1, 2), Op::Glance(2, 1)],
                vec![
                    Op::Change(vec![(1, 0, 11), (2, 0, 21)]),
                    Op::Change(vec![(1, 0, 12), (2, 0, 22)]),
                ],
            ],
            tail: gets(),
        },
    ]
}

fn pool_options() -> PoolOptions {
    PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(3).slot_bytes(512)
}
