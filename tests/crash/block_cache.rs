//! The block cache: losing blocks is legal, a wrong block is not.
//!
//! The model has, for each name, the blocks that a lookup may find: a state is explained if it has no others.
//! The blocks that [`Op::Seal`] found remain until the next operation that may begin a segment.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::RwLock;
use pmindex_cache::{BlockCache, CacheOptions, Key, Prefix};
use pmindex_core::trace::Space;
use pmindex_core::{PmError, PoolOptions, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

/// Names of blocks: two instances, two files each.
const BLOCKS: u8 = 6;
const SEGMENT: u64 = 1024;
const SEGMENTS: u64 = 3;

type Cache = BlockCache<Traced>;

/// The cache; `None` only within [`Op::Reopen`].
pub(crate) struct BlockCached {
    space: Space,
    cache: RwLock<Option<Cache>>,
    /// Segments that its opening found without a summary, until the next seal.
    unsealed: AtomicU64,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Inserts a block: which, the version, and its length.
    Insert(u8, u8, u8),
    Get(u8),
    Remove(u8),
    /// Ends the blocks of a file, or of the whole instance.
    Invalidate(u8, Option<u8>),
    /// Makes all inserted blocks durable.
    Seal,
    /// Opens the cache again, after its process died: nothing is lost.
    Reopen,
}

/// What may be found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    blocks: BTreeMap<u8, (u8, u8)>,
    /// The block that a seal found, which must remain.
    sealed: Option<Vec<u8>>,
    /// This was found, in a cache whose opening found this number of segments without a summary, if nothing
    /// was sealed since.
    found: Option<u64>,
}

impl Contents {
    /// Returns `true` if the `found` contents are explained by this.
    fn explains(&self, found: &Self) -> bool {
        let unsealed = found.found.unwrap_or(0);
        found.blocks.iter().all(|(block, what)| self.blocks.get(block) == Some(what))
            && self.sealed.as_ref().is_none_or(|sealed| {
                unsealed == 0 && sealed.iter().all(|block| found.blocks.contains_key(block))
            })
    }
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        match (self.found, other.found) {
            (None, Some(_)) => self.explains(other),
            (Some(_), None) => other.explains(self),
            _ => self.blocks == other.blocks && self.sealed == other.sealed,
        }
    }
}

impl Eq for Contents {}

impl std::hash::Hash for Contents {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.blocks.hash(state);
    }
}

/// Blocks found, or ended, or nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Done,
    Found(Option<(u8, u8)>),
    Sealed(Vec<u8>),
    /// Never returned: the operation did a part.
    Cut,
}

fn key(block: u8) -> Key {
    Key {
        instance: 7 + u128::from(block % 2),
        file: u64::from(block / 2 % 2),
        offset: block.into(),
    }
}

fn bytes(block: u8, version: u8, len: u8) -> Vec<u8> {
    (0..len).map(|at| block ^ version.wrapping_mul(37) ^ at.wrapping_mul(11)).collect()
}

impl BlockCached {
    fn over(space: &Space, cache: Cache) -> Self {
        let unsealed = cache.metrics().unsealed.into();
        Self { space: space.clone(), cache: RwLock::new(Some(cache)), unsealed }
    }

    fn with<R>(&self, body: impl FnOnce(&Cache) -> Result<R, Fault>) -> Result<R, Fault> {
        match &*self.cache.read_recursive() {
            Some(cache) => body(cache),
            None => Err(Fault::new("closed")),
        }
    }

    /// `None` if the pool never was whole.
    fn opened(space: &Space) -> Result<Option<Cache>, Fault> {
        let Some(pool) = open_pool(space, &pool_options())? else { return Ok(None) };
        let cache = BlockCache::open(&pool, "cache", &options())?;
        let unsealed = cache.as_ref().map_or(0, |cache| cache.metrics().unsealed);
        if unsealed > 1 {
            return Err(Fault::new(format!("{unsealed} segments were not sealed")));
        }
        Ok(cache)
    }

    fn found(cache: &Cache) -> Result<BTreeMap<u8, (u8, u8)>, Fault> {
        let mut found = BTreeMap::new();
        for block in 0..BLOCKS {
            if let Some(what) = get(cache, block)? {
                found.insert(block, what);
            }
        }
        Ok(found)
    }
}

/// The version and the length of a block, if it is found.
fn get(cache: &Cache, block: u8) -> Result<Option<(u8, u8)>, Fault> {
    let Some(found) = cache.get(&key(block)) else { return Ok(None) };
    let (version, len) = (found.kind, found.bytes.len() as u8);
    if found.bytes != bytes(block, version, len) {
        return Err(Fault::new(format!("block {block} is wrong: {found:?}")));
    }
    Ok(Some((version, len)))
}

impl CrashSubject for BlockCached {
    type Op = Op;
    type Ret = Ret;
    type Model = Contents;
    const NAME: &'static str = "block-cache";

    fn geometry() -> Geometry {
        let len = pool_options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &pool_options())?;
        let cache = BlockCache::create(&pool, "cache", &options())?;
        Ok(Self::over(space, cache))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(Self::opened(space)?.map(|cache| Self::over(space, cache)))
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        if matches!(op, Op::Reopen) {
            let mut cache = self.cache.write();
            let before = cache.as_ref().map_or(Ok(BTreeMap::new()), Self::found)?;
            let pool = cache.take().map(|cache| Arc::clone(cache.pool()));
            if let Some(pool) = pool.and_then(Arc::into_inner) {
                pool.kill();
            }
            *cache = Self::opened(&self.space)?;
            self.unsealed.store(cache.as_ref().map_or(0, |cache| cache.metrics().unsealed), SeqCst);
            let after = cache.as_ref().map_or(Ok(BTreeMap::new()), Self::found)?;
            return if before == after {
                Ok(Ret::Done)
            } else {
                Err(Fault::new(format!("{before:?} before the process died, then {after:?}")))
            };
        }
        self.with(|cache| {
            match *op {
                Op::Insert(block, version, len) => {
                    cache.insert(&key(block), version, &bytes(block, version, len))?;
                }
                Op::Get(block) => return Ok(Ret::Found(get(cache, block)?)),
                Op::Remove(block) => drop(cache.remove(&key(block))?),
                Op::Invalidate(instance, file) => {
                    let instance = 7 + u128::from(instance);
                    let all = Prefix::Instance(instance);
                    let prefix = file.map_or(all, |file| Prefix::File(instance, file.into()));
                    cache.invalidate(prefix)?;
                }
                Op::Seal => {
                    let before = Self::found(cache)?;
                    cache.seal()?;
                    self.unsealed.store(0, SeqCst);
                    let mut sealed = Self::found(cache)?;
                    sealed.retain(|block, what| before.get(block) == Some(what));
                    return Ok(Ret::Sealed(sealed.into_keys().collect()));
                }
                Op::Reopen => {}
            }
            Ok(Ret::Done)
        })
    }

    fn observe(&self) -> Result<Contents, Fault> {
        self.with(|cache| {
            let checked = cache.check()?;
            if checked.unusable > 0 {
                return Err(Fault::new(format!("segments were lost: {checked:?}")));
            }
            let found = Some(self.unsealed.load(SeqCst));
            Ok(Contents { blocks: Self::found(cache)?, sealed: None, found })
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|cache| {
            let blocks: Result<Vec<u64>, PmError> = cache.blocks();
            cache.pool().audit(blocks?.into_iter())?;
            Ok(())
        })
    }

    fn model(model: &mut Contents, op: &Op) -> Ret {
        let ended = |block: &u8| match *op {
            Op::Remove(removed) => *block == removed,
            Op::Invalidate(instance, file) => {
                key(*block).instance == 7 + u128::from(instance)
                    && file.is_none_or(|file| key(*block).file == u64::from(file))
            }
            _ => false,
        };
        model.blocks.retain(|block, _| !ended(block));
        if let Some(sealed) = &mut model.sealed {
            sealed.retain(|block| !ended(block));
        }
        match *op {
            Op::Insert(block, version, len) => {
                model.blocks.insert(block, (version, len));
                model.sealed = None; // a segment may be reused
                Ret::Done
            }
            Op::Get(block) => Ret::Found(model.blocks.get(&block).copied()),
            Op::Seal => Ret::Sealed(model.blocks.keys().copied().collect()),
            Op::Remove(_) | Op::Invalidate(..) | Op::Reopen => Ret::Done,
        }
    }

    fn used_unseen() -> bool {
        false
    }

    fn observed(model: Contents) -> Contents {
        Contents { found: None, ..model }
    }

    /// Any block may be gone.
    fn outcomes(model: &Contents, op: &Op) -> Vec<(Contents, Ret)> {
        let mut whole = model.clone();
        let ret = Self::model(&mut whole, op);
        match ret {
            Ret::Found(Some(_)) => vec![(whole.clone(), ret), (whole, Ret::Found(None))],
            Ret::Sealed(blocks) => (0..1u32 << blocks.len())
                .map(|part| {
                    let is_in = |&(at, _): &(usize, &u8)| part >> at & 1 == 1;
                    let sealed: Vec<u8> =
                        blocks.iter().enumerate().filter(is_in).map(|(_, &block)| block).collect();
                    let mut after = whole.clone();
                    after.blocks.retain(|block, _| sealed.contains(block));
                    after.sealed = Some(sealed.clone());
                    (after, Ret::Sealed(sealed))
                })
                .collect(),
            ret if matches!(op, Op::Invalidate(..)) => {
                // After a crash in the middle, some sealed blocks may be missing.
                let part = Contents { blocks: model.blocks.clone(), ..whole.clone() };
                vec![(whole, ret), (part, Ret::Cut)]
            }
            ret => vec![(whole, ret)],
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        ops_for(1)
    }

    fn ops_for(threads: usize) -> BoxedStrategy<Op> {
        ops_for(threads)
    }

    fn directed() -> Vec<Plan<Op>> {
        // Two blocks fill a segment of a KiB.
        let fill = |from: u8| (0..6).map(move |n| Op::Insert(2 + n % 4, from + n, 190));
        vec![
            // A block that is hit is copied on, and then ended: its first copy must not come back.
            Plan {
                setup: [Op::Insert(1, 9, 60), Op::Insert(0, 1, 60), Op::Get(0)]
                    .into_iter()
                    .chain(fill(2))
                    .collect(),
                threads: vec![vec![
                    Op::Get(0),
                    Op::Insert(2, 20, 190),
                    Op::Insert(3, 20, 190),
                    Op::Remove(0),
                    Op::Get(0),
                ]],
                tail: vec![Op::Get(0), Op::Insert(4, 30, 190), Op::Get(0)],
            },
            // As before, by another thread than the one that copied it.
            Plan {
                setup: [Op::Insert(1, 9, 60), Op::Insert(0, 1, 60), Op::Get(0)]
                    .into_iter()
                    .chain(fill(2))
                    .collect(),
                threads: vec![
                    vec![Op::Get(0), Op::Insert(2, 20, 190), Op::Insert(3, 20, 190)],
                    vec![Op::Get(5), Op::Invalidate(1, None), Op::Remove(0), Op::Get(0)],
                ],
                tail: vec![Op::Get(0), Op::Reopen, Op::Get(0)],
            },
            // A process that died while it ended blocks, of a sealed segment and of another.
            Plan {
                setup: vec![
                    Op::Insert(0, 1, 60),
                    Op::Insert(2, 2, 60),
                    Op::Seal,
                    Op::Insert(1, 3, 60),
                    Op::Insert(4, 4, 60),
                ],
                threads: vec![vec![
                    Op::Remove(0),
                    Op::Insert(4, 5, 60),
                    Op::Remove(1),
                    Op::Invalidate(0, None),
                ]],
                tail: vec![Op::Get(0), Op::Remove(0), Op::Remove(1), Op::Invalidate(0, Some(0))],
            },
            // A process died while it began a segment in the place of another, whose contents stay invalid.
            Plan {
                setup: [Op::Insert(1, 9, 60), Op::Insert(0, 1, 60)]
                    .into_iter()
                    .chain(fill(2))
                    .collect(),
                threads: vec![vec![Op::Insert(2, 20, 190), Op::Insert(3, 20, 190)]],
                tail: (0..BLOCKS).map(Op::Remove).collect(),
            },
            // One that died while it sealed.
            Plan {
                setup: vec![Op::Insert(0, 1, 60), Op::Insert(2, 2, 60)],
                threads: vec![vec![Op::Seal]],
                tail: vec![Op::Seal, Op::Get(0), Op::Get(2)],
            },
            // One thread seals the inserts of another.
            Plan {
                setup: vec![Op::Insert(0, 1, 100)],
                threads: vec![vec![Op::Insert(1, 2, 100)], vec![Op::Seal, Op::Get(1), Op::Seal]],
                tail: vec![Op::Get(0), Op::Get(1)],
            },
            // Sealed blocks remain, sealed twice or not, whatever is appended afterwards.
            Plan {
                setup: vec![Op::Insert(0, 1, 100), Op::Insert(1, 2, 30)],
                threads: vec![vec![
                    Op::Seal,
                    Op::Get(1),
                    Op::Insert(2, 3, 80),
                    Op::Seal,
                    Op::Remove(1),
                    Op::Insert(2, 4, 80),
                    Op::Seal,
                ]],
                tail: vec![Op::Seal, Op::Insert(0, 5, 100), Op::Reopen, Op::Get(0)],
            },
        ]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("cache/src/block/")
    }
}

fn ops_for(threads: usize) -> BoxedStrategy<Op> {
    let one = prop_oneof![
        10 => (0..BLOCKS, 1..255u8, 0..200u8).prop_map(|(b, v, l)| Op::Insert(b, v, l)),
        4 => (0..BLOCKS).prop_map(Op::Get),
        2 => (0..BLOCKS).prop_map(Op::Remove),
        1 => (0..2u8, 0..3u8).prop_map(|(i, f)| Op::Invalidate(i, (f < 2).then_some(f))),
    ];
    let sealing = prop_oneof![12 => one, 2 => Just(Op::Seal)];
    if threads > 1 {
        return sealing.boxed();
    }
    prop_oneof![14 => sealing, 1 => Just(Op::Reopen)].boxed()
}

fn options() -> CacheOptions {
    CacheOptions::new(SEGMENTS * SEGMENT).segment_bytes(SEGMENT).shards(1).identity(0x1d)
}

fn pool_options() -> PoolOptions {
    PoolOptions::new().size(32 << 10).zone_bytes(16 << 10).slots(3).slot_bytes(512)
}
