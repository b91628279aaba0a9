//! The pool itself: creation, the directory of indexes, growth, clean shutdown and reopening; in
//! plain memory, and in a file that is allocated, synchronised and named.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex::core::trace::Space;
use pmindex::core::{Medium, OpenError, PPtr, PmError, PmU64, Pool, PoolOptions, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, open_pool};
use proptest::prelude::*;

type Block = [PmU64; 8];

/// Where a pool lies: in memory; in a simulated file; in one of a file system that keeps nothing of a file
/// that was synchronised before it had a name.
pub(crate) const MEMORY: u8 = 0;
pub(crate) const FILE: u8 = 1;
pub(crate) const FORGETFUL: u8 = 2;

/// A pool, in memory or in a simulated file; `None` only within [`Op::Reopen`].
pub(crate) struct Pools<const ON: u8> {
    space: Space,
    pool: Mutex<Option<Arc<Pool<Traced>>>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Creates the index of this name, with this value in its root block.
    Create(u8, u64),
    /// Drops the index of this name.
    Drop(u8),
    /// Grows by one zone.
    Grow,
    /// Closes the pool and opens it again.
    Reopen,
    /// Ends without closing, and opens again.
    Kill,
}

/// The state of a pool that a user sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Contents {
    indexes: BTreeMap<String, u64>,
    grown: u64,
}

const ZONE: u64 = 16 << 10;
const ZONES_MORE: u64 = 2;

fn options() -> PoolOptions {
    PoolOptions::new().size(32 << 10).zone_bytes(ZONE).slots(2).slot_bytes(256)
}

fn name(n: u8) -> String {
    format!("index {n}")
}

impl<const ON: u8> Pools<ON> {
    const FILE: bool = ON != MEMORY;

    fn limited() -> PoolOptions {
        options().max_size(options().created_size().unwrap_or(0) + ZONES_MORE * ZONE)
    }

    fn open_again(space: &Space) -> Result<Pool<Traced>, OpenError> {
        let open = if Self::FILE { Pool::open_traced_file } else { Pool::open_traced };
        open(space, &Self::limited())
    }

    /// Checks that everything in the pool is from earlier openings, with lower generations.
    fn check_generation(pool: &Pool<Traced>) -> Result<(), Fault> {
        for entry in pool.indexes()? {
            let made_by = pool.pm().load(&pool.get(PPtr::<Block>::new(entry.block()))?[1]);
            if made_by >= pool.generation() {
                let now = pool.generation();
                return Err(Fault::new(format!("generation {now} after generation {made_by}")));
            }
        }
        Ok(())
    }

    fn with<R>(&self, body: impl FnOnce(&Pool<Traced>) -> Result<R, Fault>) -> Result<R, Fault> {
        match &*self.pool.lock() {
            Some(pool) => body(pool),
            None => Err(Fault::new("the pool is closed")),
        }
    }
}

impl<const ON: u8> CrashSubject for Pools<ON> {
    type Op = Op;
    type Ret = bool;
    type Model = Contents;
    const NAME: &'static str = ["pool", "pool-file", "pool-file-unnamed"][ON as usize];

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        let capacity = len + (ZONES_MORE * ZONE) as usize;
        if Self::FILE {
            // The simulated file has its length in its last page.
            return Geometry { len: capacity + 4096, capacity: capacity + 4096 };
        }
        Geometry { len, capacity }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        space.forget_unnamed(ON == FORGETFUL);
        let create = if Self::FILE { Pool::create_traced_file } else { Pool::create_traced };
        let pool = create(space, &Self::limited())?;
        Ok(Self { space: space.clone(), pool: Mutex::new(Some(Arc::new(pool))) })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let pool = if Self::FILE {
            match Pool::open_traced_file(space, &Self::limited()) {
                Ok(pool) => Some(Arc::new(pool)),
                Err(OpenError::NotFound { .. }) => None, // a file that has a name is a pool
                Err(other) => return Err(other.into()),
            }
        } else {
            open_pool(space, &options())?
        };
        pool.as_deref().map_or(Ok(()), Self::check_generation)?;
        Ok(pool.map(|pool| Self { space: space.clone(), pool: Mutex::new(Some(pool)) }))
    }

    fn apply(&self, op: &Op) -> Result<bool, Fault> {
        match op {
            Op::Create(n, value) => self.with(|pool| {
                if pool.find_index(&name(*n))?.is_some() {
                    return Ok(false);
                }
                pool.create_index::<Block>(&name(*n), *b"blocks  ", 1, |block| {
                    pool.pm().store(&block[0], *value);
                    pool.pm().store(&block[1], pool.generation());
                    pool.pm().flush(block)
                })?;
                Ok(true)
            }),
            Op::Drop(n) => self.with(|pool| Ok(pool.drop_root(&name(*n))?)),
            Op::Grow => self.with(|pool| match pool.grow(pool.len() + 1) {
                Ok(_) => Ok(true),
                Err(PmError::Full { .. }) => Ok(false),
                Err(other) => Err(other.into()),
            }),
            Op::Reopen => {
                let mut pool = self.pool.lock();
                drop(pool.take());
                let opened = Self::open_again(&self.space)?;
                if !opened.was_clean() {
                    return Err(Fault::new("a closed pool is not clean"));
                }
                Self::check_generation(&opened)?;
                *pool = Some(Arc::new(opened));
                Ok(true)
            }
            Op::Kill => {
                let mut pool = self.pool.lock();
                if let Some(pool) = pool.take().and_then(Arc::into_inner) {
                    pool.kill();
                }
                let opened = Self::open_again(&self.space)?;
                if opened.was_clean() {
                    return Err(Fault::new("a pool that was not closed is clean"));
                }
                Self::check_generation(&opened)?;
                *pool = Some(Arc::new(opened));
                Ok(true)
            }
        }
    }

    fn observe(&self) -> Result<Contents, Fault> {
        self.with(|pool| {
            let mut indexes = BTreeMap::new();
            for entry in pool.indexes()? {
                let value = pool.pm().load(&pool.get(PPtr::<Block>::new(entry.block()))?[0]);
                indexes.insert(entry.name, value);
            }
            let grown = (pool.len() - options().created_size()?) / ZONE;
            Ok(Contents { indexes, grown })
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|pool| {
            pool.audit(pool.indexes()?.iter().map(pmindex::core::IndexEntry::block))?;
            Ok(())
        })
    }

    fn model(model: &mut Contents, op: &Op) -> bool {
        match op {
            Op::Create(n, value) => {
                let new = !model.indexes.contains_key(&name(*n));
                model.indexes.entry(name(*n)).or_insert(*value);
                new
            }
            Op::Drop(n) => model.indexes.remove(&name(*n)).is_some(),
            Op::Grow => {
                let room = model.grown < ZONES_MORE;
                model.grown += u64::from(room);
                room
            }
            Op::Reopen | Op::Kill => true,
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![
            4 => (0..4u8, 1..100u64).prop_map(|(n, value)| Op::Create(n, value)),
            3 => (0..4u8).prop_map(Op::Drop),
            1 => Just(Op::Grow),
            1 => Just(Op::Reopen),
            1 => Just(Op::Kill),
        ]
        .boxed()
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        if Self::FILE {
            return &[];
        }
        &[
            ("pool/create.rs", include_str!("../../crates/pm-core/src/pool/create.rs")),
            ("pool/directory.rs", include_str!("../../crates/pm-core/src/pool/directory.rs")),
            ("pool/grow.rs", include_str!("../../crates/pm-core/src/pool/grow.rs")),
            ("pool/life.rs", include_str!("../../crates/pm-core/src/pool/life.rs")),
            ("pool/superblock.rs", include_str!("../../crates/pm-core/src/pool/superblock.rs")),
        ]
    }

    fn owns(site: &Location<'static>) -> bool {
        let at = |part: &str| site.file().contains(part);
        // Of the pool's steps those of files are seen in a file, all others in memory.
        if Self::FILE {
            at("pm-core/src/pool/file.rs") || at("pm-core/src/pool/path.rs")
        } else {
            at("pm-core/src/pool/") || at("crash/pools.rs")
        }
    }
}
