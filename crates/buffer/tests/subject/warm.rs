//! Which pages the next opening finds in their frames, without reading the disk.
//!
//! The entry of a frame, and the image before it, are no condition of durability: without them a page comes from
//! the disk and the log. They are what makes an opening warm, also after a power failure. There are more frames
//! than pages, so no page loses its frame, and so few pages that only a checkpoint stores entries.

use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_buffer::{Buffer, BufferError, BufferOptions};
use pmindex_core::trace::Space;
use pmindex_core::{PoolOptions, Traced};
use pmindex_testkit::crash::{
    CrashSubject, Fault, Geometry, Plan, create_pool, open_pool, use_memory,
};
use proptest::prelude::*;

use super::pool_disk::{self, PoolDisk};

const PAGE_BYTES: u64 = 256;
const PAGES: u64 = 3;
const DISK: u64 = (PAGES + 1) * PAGE_BYTES;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Creates a page, unless it exists.
    Create(u64),
    /// Pages with a frame get their entries.
    Checkpoint,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Done,
    /// Never returned: the operation did a part.
    Cut,
}

/// The pages that exist, and those that the next opening finds in their frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    pages: BTreeSet<u64>,
    warm: BTreeSet<u64>,
}

/// A buffer; `None` while it is opened again.
pub(crate) struct Warm {
    space: Space,
    buffer: Mutex<Option<Buffer<Traced>>>,
}

fn options() -> BufferOptions {
    BufferOptions::new(32).page_bytes(PAGE_BYTES).staging(2).identity(0x1d)
}

fn pool_options() -> PoolOptions {
    PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(3).slot_bytes(512)
}

fn opened(space: &Space) -> Result<Option<Buffer<Traced>>, Fault> {
    let Some(pool) = open_pool(space, &pool_options())? else { return Ok(None) };
    let Some(disk) = PoolDisk::open(&pool, DISK)? else { return Ok(None) };
    Ok(Buffer::open(&pool, "pages", Arc::new(disk), &options())?)
}

impl Warm {
    fn over(space: &Space, buffer: Buffer<Traced>) -> Self {
        Self { space: space.clone(), buffer: Mutex::new(Some(buffer)) }
    }

    fn with<R>(&self, body: impl FnOnce(&Buffer<Traced>) -> Result<R, Fault>) -> Result<R, Fault> {
        self.buffer.lock().as_ref().map_or_else(|| Err(Fault::new("closed")), body)
    }
}

/// Reads every page, and returns those that exist, and those that needed no read of the disk.
fn look(buffer: &Buffer<Traced>) -> Result<Known, Fault> {
    let mut known = Known::default();
    for page in 1..=PAGES {
        let has_frame = buffer.frame_offset(page).is_some();
        let before = buffer.metrics().fetched;
        match buffer.read(page, |view| view.word(0)) {
            Ok(found) if found != page => return Err(Fault::new("of another page")),
            Ok(_) => known.pages.insert(page),
            Err(BufferError::NoPage { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if has_frame && buffer.metrics().fetched == before {
            known.warm.insert(page);
        }
    }
    Ok(known)
}

impl CrashSubject for Warm {
    type Op = Op;
    type Ret = Ret;
    type Model = Known;
    const NAME: &'static str = "buffer-warm";

    fn geometry() -> Geometry {
        let len = pool_options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    /// What is read is warm.
    fn used_unseen() -> bool {
        false
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &pool_options())?;
        let disk = PoolDisk::create(&pool, DISK)?;
        use_memory(space, &pool)?;
        let buffer = Buffer::create(&pool, "pages", Arc::new(disk), &options())?;
        Ok(Self::over(space, buffer))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(opened(space)?.map(|buffer| Self::over(space, buffer)))
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        self.with(|buffer| {
            match *op {
                Op::Create(page) => {
                    if let Err(BufferError::NoPage { .. }) = buffer.read(page, |_| ()) {
                        let mut tx = buffer.begin();
                        tx.create(page)?.set(0, page);
                        tx.commit()?;
                    }
                }
                Op::Checkpoint => buffer.checkpoint()?,
            }
            Ok(Ret::Done)
        })
    }

    /// Opens the buffer again, and looks at what that finds.
    fn observe(&self) -> Result<Known, Fault> {
        {
            let mut open = self.buffer.lock();
            let Some(buffer) = open.take() else { return Err(Fault::new("closed")) };
            let pool = Arc::clone(buffer.pool());
            drop(buffer);
            if let Some(pool) = Arc::into_inner(pool) {
                pool.kill();
            }
            *open = opened(&self.space)?;
        }
        self.with(look)
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|buffer| {
            let disk = pool_disk::block(buffer.pool())?;
            buffer.pool().audit(buffer.blocks()?.into_iter().chain(disk))?;
            Ok(())
        })
    }

    fn model(known: &mut Known, op: &Op) -> Ret {
        match *op {
            Op::Create(page) => drop(known.pages.insert(page)),
            Op::Checkpoint => known.warm.clone_from(&known.pages),
        }
        Ret::Done
    }

    /// A crash in a checkpoint leaves any of the pages warm.
    fn outcomes(known: &Known, op: &Op) -> Vec<(Known, Ret)> {
        let mut after = known.clone();
        let ret = Self::model(&mut after, op);
        let mut outcomes = vec![(after.clone(), ret)];
        if matches!(op, Op::Checkpoint) {
            let cold: Vec<u64> = after.warm.difference(&known.warm).copied().collect();
            for some in 1..(1u32 << cold.len()).saturating_sub(1) {
                let mut part = known.clone();
                part.warm
                    .extend((0..).zip(&cold).filter(|(nth, _)| some >> nth & 1 == 1).map(|c| *c.1));
                outcomes.push((part, Ret::Cut));
            }
        }
        outcomes
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![3 => (1..=PAGES).prop_map(Op::Create), 2 => Just(Op::Checkpoint)].boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        vec![Plan {
            setup: (1..=PAGES).map(Op::Create).collect(),
            threads: vec![vec![Op::Checkpoint]],
            tail: vec![Op::Create(1)],
        }]
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().ends_with("crates/buffer/src/entries.rs")
    }
}
