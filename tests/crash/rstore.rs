//! A partition of `RStore`: writes, batches, collection, large values, expiry, clearing, the log cut behind it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{PoolOptions, Traced};
use pmindex_rstore::{Batch, Budget, Error, Options, Partition};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

pub(crate) const KEYS: u8 = 6;
/// Bytes of a block: some writes fill one.
const BLOCK: u64 = 384;
/// Blocks that a partition may take.
const BLOCKS: u64 = 14;
/// When all records of odd lengths have expired.
const LATE: u64 = 100;

pub(crate) type Small = Partition<Traced>;

/// The options of a partition.
pub(crate) trait Variant: Send + Sync + 'static {
    /// The name of a partition with these options.
    const NAME: &'static str = "rstore";

    /// Changes its steps.
    fn vary(options: Options) -> Options {
        options
    }
}

/// The default options.
pub(crate) struct Right;

impl Variant for Right {}

/// Writes fill holes however many blocks are free.
pub(crate) struct Filling;

impl Variant for Filling {
    const NAME: &'static str = "rstore-holes";

    fn vary(options: Options) -> Options {
        options.fill_below(u64::MAX)
    }
}

/// A partition.
pub(crate) struct Partitioned<V = Right> {
    partition: Mutex<Option<Small>>,
    space: Space,
    variant: PhantomData<V>,
}

/// A write: a key, and the seed and the length of a value; none: it is removed.
pub(crate) type Write = (u8, Option<(u8, u16)>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Writes with a commit each.
    Put(u8, u8, u16),
    Remove(u8),
    /// Several writes, each of its own, and one commit.
    Turn(Vec<Write>),
    /// One write of several keys.
    Write(Vec<Write>),
    Get(u8),
    /// Collects, and commits.
    Collect(u16),
    /// Several writes, each of its own, a slice of collection, and one commit.
    Paid(Vec<Write>, u16),
    /// Removes expired records.
    Expire,
    Clear,
    /// Closes the partition, with its blocks durable or not, and opens it.
    Reopen {
        closed: bool,
    },
    /// As [`Put`](Self::Put), with a new value for each of this number of turns.
    Churn(u8, u8),
}

type Records = BTreeMap<u8, (u8, u16)>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Done,
    Full,
    Did(bool),
    Found(Option<(u8, u16)>),
}

pub(crate) fn pool_options() -> PoolOptions {
    PoolOptions::new().size(64 << 10).zone_bytes(16 << 10).slots(2).slot_bytes(512)
}

pub(crate) fn options() -> Options {
    Options::new().block_bytes(BLOCK).capacity(BLOCKS * BLOCK).records(1 << 10)
}

fn key(of: u8) -> Vec<u8> {
    // One that is the beginning of another, and one that does not end with its word.
    [&b"a"[..], b"ab", b"ab-long-as-it-is", b"b", b"", b"cccccccc"][usize::from(of % KEYS)].to_vec()
}

fn value(seed: u8, len: u16) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at % 251) as u8)).collect()
}

/// Values of odd lengths expire.
fn expiry(len: u16) -> Option<u64> {
    (len % 2 == 1).then_some(LATE)
}

impl<V: Variant> Partitioned<V> {
    fn over(space: &Space, partition: Small) -> Self {
        let partition = Mutex::new(Some(partition));
        Self { partition, space: space.clone(), variant: PhantomData }
    }

    fn opened(space: &Space) -> Result<Option<Small>, Fault> {
        let Some(pool) = open_pool(space, &pool_options())? else { return Ok(None) };
        // The pool belongs only to this partition.
        match Partition::open(&pool, "p", &V::vary(options())) {
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(Fault::new(error.to_string())),
            Ok((partition, recovery)) => {
                if recovery.damaged > 0 {
                    return Err(Fault::new(format!("{recovery:?}")));
                }
                Ok(Some(partition))
            }
        }
    }

    fn reopen(&self, closed: bool) -> Result<(), Fault> {
        let mut partition = self.partition.lock();
        let Some(before) = partition.take() else { return Err(Fault::new("closed")) };
        let pool = Arc::clone(before.pool());
        if closed {
            before.close().map_err(fault)?;
        } else {
            drop(before);
        }
        if let Some(pool) = Arc::into_inner(pool) {
            if closed { pool.close()? } else { pool.kill() }
        }
        *partition = Self::opened(&self.space)?;
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn fault(error: Error) -> Fault {
    Fault::new(error.to_string())
}

fn get(partition: &Small, of: u8) -> Result<Option<(u8, u16)>, Fault> {
    let mut bytes = Vec::new();
    if !partition.get_into(&key(of), 0, &mut bytes).map_err(fault)? {
        return Ok(None);
    }
    let found = (bytes.first().copied().unwrap_or(0), bytes.len() as u16);
    if bytes != value(found.0, found.1) {
        return Err(Fault::new(format!("key {of} has {bytes:?}")));
    }
    if partition.expiry(&key(of), 0).map_err(fault)? != Some(expiry(found.1)) {
        return Err(Fault::new(format!("key {of} expires at another time")));
    }
    Ok(Some(found))
}

/// Stages a write.
fn stage(partition: &mut Small, (of, what): Write) -> Result<(), Error> {
    match what {
        Some((seed, len)) => partition.put(&key(of), &value(seed, len), expiry(len)),
        None => partition.remove(&key(of)).map(drop),
    }
}

fn stage_all(partition: &mut Small, writes: &[Write]) -> Result<(), Fault> {
    for &write in writes {
        if !may_refuse(stage(partition, write))? {
            return Err(Fault::new("a turn was refused"));
        }
    }
    Ok(())
}

/// `false` if it was refused, as it may be where there is little room.
fn may_refuse(result: Result<(), Error>) -> Result<bool, Fault> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.is_full() => Ok(false),
        Err(error) => Err(fault(error)),
    }
}

fn run(partition: &mut Small, op: &Op) -> Result<Ret, Fault> {
    let mut did = true;
    match op {
        Op::Put(of, seed, len) => {
            did = may_refuse(stage(partition, (*of, Some((*seed, *len)))))?;
        }
        Op::Remove(of) => {
            let removed = partition.remove(&key(*of)).map_err(fault)?;
            partition.commit().map_err(fault)?;
            return Ok(Ret::Did(removed));
        }
        Op::Turn(writes) => stage_all(partition, writes)?,
        Op::Paid(writes, bytes) => {
            stage_all(partition, writes)?;
            partition.collect(Budget::bytes(u64::from(*bytes))).map_err(fault)?;
        }
        Op::Write(writes) => {
            let mut batch = Batch::new();
            for &(of, what) in writes {
                match what {
                    Some((seed, len)) => batch.put(&key(of), &value(seed, len), expiry(len)),
                    None => batch.remove(&key(of)),
                };
            }
            did = may_refuse(partition.write(&batch))?;
        }
        Op::Get(of) => return Ok(Ret::Found(get(partition, *of)?)),
        Op::Collect(bytes) => {
            for _ in 0..3 {
                partition.collect(Budget::bytes(u64::from(*bytes))).map_err(fault)?;
                partition.commit().map_err(fault)?;
            }
        }
        Op::Expire => drop(partition.expire(LATE, Budget::bytes(1 << 20)).map_err(fault)?),
        Op::Clear => {
            // Durable without a commit.
            partition.clear().map_err(fault)?;
            return Ok(Ret::Done);
        }
        Op::Churn(of, turns) => {
            for turn in 0..*turns {
                stage(partition, (*of, Some((turn, 20)))).map_err(fault)?;
                partition.collect(Budget::default()).map_err(fault)?;
                partition.commit().map_err(fault)?;
            }
        }
        Op::Reopen { .. } => {}
    }
    partition.commit().map_err(fault)?;
    Ok(if did { Ret::Done } else { Ret::Full })
}

impl<V: Variant> CrashSubject for Partitioned<V> {
    type Op = Op;
    type Ret = Ret;
    type Model = Records;
    const NAME: &'static str = V::NAME;

    fn geometry() -> Geometry {
        let len = pool_options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &pool_options())?;
        Ok(Self::over(space, Partition::create(&pool, "p", &V::vary(options())).map_err(fault)?))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(Self::opened(space)?.map(|partition| Self::over(space, partition)))
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        if let Op::Reopen { closed } = op {
            self.reopen(*closed)?;
            return Ok(Ret::Done);
        }
        match &mut *self.partition.lock() {
            Some(partition) => run(partition, op),
            None => Err(Fault::new("closed")),
        }
    }

    fn observe(&self) -> Result<Records, Fault> {
        let partition = self.partition.lock();
        let Some(partition) = &*partition else { return Err(Fault::new("closed")) };
        partition.check().map_err(fault)?;
        let mut found = Records::new();
        for of in 0..KEYS {
            if let Some(value) = get(partition, of)? {
                found.insert(of, value);
            }
        }
        let (mut keys, mut expected) = (Vec::new(), Vec::new());
        let visit = &mut |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        };
        partition.scan(Bound::Unbounded, Bound::Unbounded, 0, false, visit).map_err(fault)?;
        expected.extend(found.keys().map(|&of| key(of)));
        expected.sort_unstable();
        if keys != expected {
            return Err(Fault::new(format!("a scan found {keys:?}")));
        }
        Ok(found)
    }

    fn audit(&self) -> Result<(), Fault> {
        let partition = self.partition.lock();
        let Some(partition) = &*partition else { return Err(Fault::new("closed")) };
        partition.pool().audit(partition.all_blocks().map_err(fault)?.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Records, op: &Op) -> Ret {
        let mut write = |&(of, what): &Write| {
            let _ = match what {
                // An empty value has no first byte.
                Some((seed, len)) => model.insert(of, (if len == 0 { 0 } else { seed }, len)),
                None => model.remove(&of),
            };
        };
        match op {
            Op::Put(of, seed, len) => write(&(*of, Some((*seed, *len)))),
            Op::Remove(of) => return Ret::Did(model.remove(of).is_some()),
            Op::Turn(writes) | Op::Paid(writes, _) | Op::Write(writes) => {
                writes.iter().for_each(write);
            }
            Op::Get(of) => return Ret::Found(model.get(of).copied()),
            Op::Expire => model.retain(|_, (_, len)| expiry(*len).is_none()),
            Op::Clear => model.clear(),
            Op::Churn(of, turns) if *turns > 0 => write(&(*of, Some((turns - 1, 20)))),
            Op::Churn(..) | Op::Collect(_) | Op::Reopen { .. } => {}
        }
        Ret::Done
    }

    fn outcomes(model: &Records, op: &Op) -> Vec<(Records, Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        let mut all = vec![(after, ret)];
        match op {
            Op::Put(..) | Op::Write(_) => all.push((model.clone(), Ret::Full)),
            // Each turn is a commit.
            Op::Churn(of, turns) => {
                for turn in 0..turns.saturating_sub(1) {
                    let mut part = model.clone();
                    part.insert(*of, (turn, 20));
                    all.push((part, Ret::Full));
                }
                all.push((model.clone(), Ret::Full));
            }
            _ => {}
        }
        all
    }

    fn ops() -> BoxedStrategy<Op> {
        let len = prop_oneof![6 => 0..60u16, 1 => 385..900u16];
        let put = (0..KEYS, 1..250u8, len.clone()).prop_map(|(k, s, l)| Op::Put(k, s, l));
        let short = proptest::option::weighted(0.7, (1..250u8, 0..40u16));
        let writes = proptest::collection::vec((0..KEYS, short), 1..4);
        prop_oneof![
            12 => put,
            4 => (0..KEYS).prop_map(Op::Remove),
            3 => writes.clone().prop_map(Op::Turn),
            3 => writes.clone().prop_map(Op::Write),
            2 => (0..KEYS).prop_map(Op::Get),
            2 => (100..900u16).prop_map(Op::Collect),
            1 => (writes, 100..900u16).prop_map(|(w, b)| Op::Paid(w, b)),
            1 => Just(Op::Expire),
            1 => Just(Op::Clear),
            1 => any::<bool>().prop_map(|closed| Op::Reopen { closed }),
            1 => (0..KEYS, 1..12u8).prop_map(|(k, t)| Op::Churn(k, t)),
        ]
        .boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        Case::ALL.map(Case::plan).into()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("rstore/src/")
    }
}

/// A run that random ones seldom produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Collection moves records: copies them, then reuses the victim.
    Moved,
    /// The only live record of a block is replaced, and the block collected before that is committed.
    Replaced,
    /// The same, and it is removed.
    Removed,
    /// A version lies in an old block with others that are live, its tombstone in one that is collected.
    Tombstone,
    /// The same, and closed then, so that the log does not count.
    TombstoneClosed,
    /// As `Tombstone`, a newer version in its place.
    Newer,
    /// Large values: replaced, removed, in a batch, and of several pieces.
    Large,
    /// The log is cut while a block is filled, a batch over two blocks.
    Cut,
    /// Cleared, and the old records stay gone when their blocks are reused.
    Cleared,
    /// Closed, opened, gone on in the tails of its blocks.
    Closed,
    /// Records move out of a block, whose log entries are no longer valid.
    MovedClosed,
    /// Batches.
    Batch,
    /// Writes take the places of records of their length, whose log entries are no longer valid.
    Holes,
    /// A version lies in a block that is searched for holes, its tombstone in the next one.
    TombstoneHole,
    /// The last write before closing is in a hole, and nothing else waits for a fence.
    HoleClosed,
}

impl Case {
    pub(crate) const ALL: [Self; 15] = [
        Self::Moved,
        Self::Tombstone,
        Self::Newer,
        Self::Large,
        Self::Cut,
        Self::Cleared,
        Self::Closed,
        Self::Replaced,
        Self::Removed,
        Self::TombstoneClosed,
        Self::MovedClosed,
        Self::Batch,
        Self::Holes,
        Self::TombstoneHole,
        Self::HoleClosed,
    ];

    pub(crate) fn plan(self) -> Plan<Op> {
        match self {
            Self::Moved => plan(
                fill(1).chain([Op::Churn(5, 20)]).collect(),
                vec![
                    Op::Collect(200),
                    Op::Churn(5, 8),
                    Op::Collect(900),
                    Op::Put(0, 99, 30),
                    Op::Churn(5, 8),
                ],
                gets()
                    .chain([Op::Churn(5, 20), Op::Reopen { closed: false }])
                    .chain(gets())
                    .collect(),
            ),
            Self::Replaced => plan(
                alone(),
                vec![Op::Paid(vec![(0, Some((9, 5)))], 900), Op::Churn(5, 8)],
                later(),
            ),
            Self::Removed => plan(
                alone(),
                vec![Op::Paid(vec![(0, None), (5, Some((3, 20)))], 900), Op::Collect(900)],
                later(),
            ),
            Self::Tombstone => {
                plan(old(), vec![Op::Remove(0), Op::Churn(5, 10), Op::Churn(5, 10)], later())
            }
            Self::TombstoneClosed => plan(
                old(),
                vec![Op::Remove(0), Op::Churn(5, 20), Op::Reopen { closed: true }, Op::Get(0)],
                later(),
            ),
            Self::Newer => {
                plan(old(), vec![Op::Put(0, 9, 5), Op::Churn(5, 10), Op::Churn(5, 10)], later())
            }
            Self::Large => plan(
                vec![Op::Put(0, 1, 600), Op::Put(1, 2, 500)],
                vec![
                    Op::Put(0, 3, 700),
                    Op::Write(vec![(1, Some((4, 450))), (2, Some((5, 460)))]),
                    Op::Remove(0),
                    Op::Put(1, 6, 10),
                    Op::Churn(5, 6),
                ],
                gets().chain([Op::Reopen { closed: true }]).chain(gets()).collect(),
            ),
            Self::Cut => plan(
                vec![Op::Churn(5, 3)],
                vec![
                    Op::Turn((0..5).map(|of| (of, Some((of + 10, 44)))).collect()),
                    Op::Write((0..5).map(|of| (of, Some((of + 20, 46)))).collect()),
                    Op::Churn(5, 14),
                ],
                vec![Op::Get(0), Op::Reopen { closed: false }, Op::Get(4), Op::Churn(5, 9)],
            ),
            Self::Cleared => plan(
                fill(1).chain([Op::Put(1, 9, 500)]).collect(),
                vec![Op::Clear, Op::Put(0, 50, 20), Op::Churn(5, 12), Op::Clear, Op::Put(2, 3, 20)],
                gets().chain([Op::Reopen { closed: false }]).chain(gets()).collect(),
            ),
            Self::MovedClosed => plan(
                half(),
                vec![Op::Collect(900), Op::Churn(5, 3)],
                later().into_iter().chain([Op::Get(1)]).collect(),
            ),
            Self::Batch => batch(),
            Self::Holes => holes(),
            Self::TombstoneHole => tombstone_hole(),
            Self::HoleClosed => plan(
                // The length of the open block has grown, because writes have filled holes for long.
                fill(1).chain((0..90).map(|seed| Op::Put(5, seed, 40))).collect(),
                vec![Op::Put(5, 99, 40), Op::Reopen { closed: true }],
                later(),
            ),
            Self::Closed => plan(
                fill(1).chain([Op::Expire]).collect(),
                vec![Op::Reopen { closed: true }, Op::Put(0, 2, 41), Op::Churn(5, 6), Op::Expire],
                gets().chain([Op::Reopen { closed: true }]).chain(gets()).collect(),
            ),
        }
    }
}

fn plan(setup: Vec<Op>, run: Vec<Op>, tail: Vec<Op>) -> Plan<Op> {
    Plan { setup, threads: vec![run], tail }
}

/// Five records.
fn fill(seed: u8) -> impl Iterator<Item = Op> {
    (0..5).map(move |of| Op::Put(of, seed + of, 40))
}

fn gets() -> impl Iterator<Item = Op> {
    (0..KEYS).map(Op::Get)
}

/// Returns the operations after most of these runs.
fn later() -> Vec<Op> {
    let again = [Op::Get(0), Op::Reopen { closed: false }, Op::Get(0)].into_iter();
    again.chain([Op::Churn(5, 20), Op::Get(0)]).collect()
}

/// Returns a block of five records, four of which remain.
fn old() -> Vec<Op> {
    let one = [Op::Put(0, 7, 4)].into_iter();
    one.chain((1..5).map(|of| Op::Put(of, of, 32))).chain([Op::Churn(5, 8)]).collect()
}

/// Returns a full block whose only live record is that of key 0, whose log entry is no longer valid.
fn alone() -> Vec<Op> {
    let one = [Op::Put(0, 7, 4)].into_iter();
    let closed = [Op::Reopen { closed: true }];
    one.chain((1..14).map(|of| Op::Put(5, of, 24))).chain(closed).collect()
}

/// Returns a full block with two live records, whose log entries are no longer valid.
fn half() -> Vec<Op> {
    let two = [Op::Put(0, 7, 24), Op::Put(1, 8, 24)].into_iter();
    let closed = [Op::Reopen { closed: true }];
    two.chain((1..14).map(|of| Op::Put(5, of, 24))).chain(closed).collect()
}

/// Returns the plan of [`Case::Batch`].
fn batch() -> Plan<Op> {
    plan(
        vec![Op::Put(0, 1, 20), Op::Put(1, 2, 20)],
        vec![
            Op::Write(vec![(0, Some((3, 20))), (1, None), (2, Some((4, 20)))]),
            Op::Write(vec![(1, Some((5, 44))), (0, None), (3, Some((6, 40)))]),
        ],
        gets().chain([Op::Reopen { closed: false }]).chain(gets()).collect(),
    )
}

/// Returns the plan of [`Case::Holes`].
fn holes() -> Plan<Op> {
    plan(
        [0, 1, 3, 5]
            .map(|of| Op::Put(of, of + 1, 40))
            .into_iter()
            .chain([Op::Reopen { closed: true }])
            .collect(),
        // The first write begins the search.
        [Op::Put(4, 1, 2)]
            .into_iter()
            .chain([0, 1, 3, 0, 5, 1].map(|of| Op::Put(of, of + 11, 40)))
            .chain([Op::Turn(vec![(3, Some((21, 40))), (3, Some((22, 38)))])])
            .chain([Op::Write(vec![(0, Some((23, 40))), (1, Some((24, 38)))])])
            .collect(),
        gets().chain([Op::Reopen { closed: false }]).chain(gets()).collect(),
    )
}

/// Returns the plan of [`Case::TombstoneHole`].
fn tombstone_hole() -> Plan<Op> {
    plan(
        // Two full blocks. Nothing is sealed before the run.
        [(0, 40), (1, 40), (5, 40), (5, 40)]
            .map(|(of, len)| Op::Put(of, of + 1, len))
            .into_iter()
            .chain([Op::Reopen { closed: true }, Op::Remove(0)])
            .chain([3, 5, 5, 5].map(|of| Op::Put(of, of + 11, 32)))
            .chain([Op::Reopen { closed: true }])
            .collect(),
        vec![
            Op::Put(4, 1, 2),
            // Of the length of the old version, and of that of the tombstone.
            Op::Turn(vec![(3, Some((9, 40))), (4, Some((9, 2)))]),
            Op::Turn(vec![(3, Some((10, 40))), (4, Some((10, 2)))]),
            Op::Churn(5, 4),
        ],
        later(),
    )
}
