//! SPTree's structured log alone: three small maps, each a chain of the log over words in place.
//!
//! A map's words are its leaf; the entries of its chain since the last flush are its buffer. A flush writes
//! the buffer to the words and ends nothing: the next entry begins a new chain. Direct writes bypass the log,
//! so they first flush and append an end record.
//!
//! ```text
//! flush
//! P1    the words of the buffer's keys             the chain's next first entry
//!
//! direct write
//! P1    a flush, an end record                     P2
//! P2    the word (LIN)                             return (DUR)
//! ```
//!
//! After a crash a map is read through its chain; the first write to it, or a background step,
//! restores its buffer.

use std::collections::BTreeMap;
use std::panic::Location as Site;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{
    Flushed, Medium, PPtr, PmError, PmPtr, PmU64, Pool, PoolOptions, Traced, pm_struct,
    sync::VersionLock,
};
use pmindex_sptree::log::{Chain, Kind, Location, Log, Record};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

const MAPS: usize = 3;
const KEYS: usize = 4;
/// Entries of a chain after which its buffer is flushed.
const LIMIT: usize = 9;
/// Words of a piece of which a checkpoint has several: more than an operation has tickets.
pub(crate) const PARTS: usize = 4;

pm_struct! {
    /// The root block: | log | reserved | words of the maps |
    #[align(64)]
    pub(crate) struct Root: size 320 {
        log: PmPtr<PmU64>,
        reserved: [PmU64; 7],
        maps: [[PmU64; 8]; 4],
    }
}

/// A map's part in DRAM.
#[derive(Default)]
struct Map {
    lock: VersionLock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `true` if `buffer` agrees with the chain.
    restored: bool,
    chain: Chain,
    /// The chain's last sequence number when an end record became durable.
    ended: u64,
    /// 0: deleted.
    buffer: BTreeMap<usize, u64>,
    /// The births of the chain's entries.
    births: Vec<u64>,
}

/// The entries of a chain: the keys of its map, and the births of its entries.
type Said = (Chain, BTreeMap<usize, u64>, Vec<u64>);

/// The maps. Pieces of checkpoints have `PIECE` words, so that they are too many for one operation; 0: as many as
/// usual, which is one piece.
pub(crate) struct SpTreeLog<const PIECE: usize = 0> {
    space: Space,
    open: parking_lot::RwLock<Option<Open>>,
}

struct Open {
    maps: [Map; MAPS],
    log: Log<Traced>,
    root: PPtr<Root>,
    pool: Arc<Pool<Traced>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Sets a key, or deletes it (0), through the log.
    Put(usize, usize, u64),
    /// Puts several keys of several maps under one fence, each independently.
    PutMany(Vec<(usize, usize, u64)>),
    /// A value of this number of words: entries of several lines.
    Long(usize, usize, usize),
    Get(usize, usize),
    Flush(usize),
    /// Sets a key in place.
    Direct(usize, usize, u64),
    Checkpoint,
    /// A checkpoint while the pool has room for this number of blocks.
    Cramped(u64),
    /// Restores a buffer.
    Restore,
    Reopen,
}

/// How a log is opened.
type How = fn(&Arc<Pool<Traced>>, &PmPtr<PmU64>) -> Result<Log<Traced>, PmError>;

/// The value of a long entry.
fn long(words: usize) -> u64 {
    10_000 + words as u64
}

impl Open {
    fn id(map: usize) -> u64 {
        64 * (map as u64 + 1)
    }

    fn word(&self, map: usize, key: usize) -> Result<&PmU64, PmError> {
        Ok(&self.pool.get(self.root)?.maps[map][key])
    }

    /// Returns the map, the key and the value in a payload.
    fn decode(&self, payload: &[PmU64]) -> (usize, u64) {
        let pm = self.pool.pm();
        let (key, value) = (pm.load(&payload[0]) as usize, pm.load(&payload[1]));
        // A long one is whole.
        let words = value.saturating_sub(10_000) as usize;
        let whole = payload[2..].iter().take(words).all(|word| pm.load(word) == value);
        (key % KEYS, if whole { value } else { u64::MAX })
    }

    /// Returns the entries of a map's chain that opening found.
    fn chain_of(&self, map: usize) -> Result<Said, PmError> {
        let mut chain = self.log.recovered(Self::id(map));
        let (mut said, mut births) = (BTreeMap::new(), Vec::new());
        self.log.follow(Self::id(map), chain, LIMIT, |location, entry| {
            let (key, value) = self.decode(entry.payload);
            said.entry(key).or_insert(if entry.kind == Kind::Delete { 0 } else { value });
            births.push(self.log.birth_of(location));
            true
        })?;
        if chain.seq == 0 {
            chain.seq = self.log.greatest_seq();
        }
        Ok((chain, said, births))
    }

    fn restore(&self, map: usize, state: &mut State) -> Result<(), PmError> {
        if !state.restored {
            let (chain, buffer, births) = self.chain_of(map)?;
            *state = State { restored: true, chain, ended: 0, buffer, births };
        }
        Ok(())
    }

    fn value(&self, map: usize, state: &State, key: usize) -> Result<u64, PmError> {
        let buffered = if state.restored {
            state.buffer.get(&key).copied()
        } else {
            self.chain_of(map)?.1.get(&key).copied()
        };
        match buffered {
            Some(value) => Ok(value),
            None => Ok(self.pool.pm().load(self.word(map, key)?)),
        }
    }

    /// Writes a map's buffer to its words.
    fn flush(&self, map: usize, state: &mut State) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let mut flushed = Flushed::nothing();
        for (&key, &value) in &state.buffer {
            let word = self.word(map, key)?;
            pm.store(word, value);
            flushed = flushed.and(pm.flush(word));
        }
        if !state.buffer.is_empty() {
            pm.fence(flushed)?; // durable before: the chain is forgotten
        }
        state.buffer.clear();
        state.births.clear();
        state.chain.head = Location::NONE;
        Ok(())
    }

    fn put(&self, map: usize, key: usize, payload: &[u64]) -> Result<u64, PmError> {
        self.make_room()?;
        let pm = self.pool.pm();
        let guard = self.maps[map].lock.lock(pm);
        let state = &mut *self.maps[map].state.lock();
        self.restore(map, state)?;
        if state.births.len() == LIMIT {
            self.flush(map, state)?;
        }
        let before = self.value(map, state, key)?;
        let value = payload[1];
        state.chain.seq += 1;
        let kind = if value == 0 { Kind::Delete } else { Kind::Put };
        let Chain { head: next, seq } = state.chain;
        let record = Record { id: Self::id(map), seq, next, kind, payload };
        let appended = self.log.append(&record)?; // DUR(put)
        state.chain.head = appended.location;
        state.births.push(appended.birth);
        state.buffer.insert(key, value); // LIN(put)
        drop(guard);
        Ok(before)
    }

    fn put_many(&self, records: &[(usize, usize, u64)]) -> Result<(), PmError> {
        self.make_room()?;
        let pm = self.pool.pm();
        let guards: Vec<_> = self.maps.iter().map(|map| map.lock.lock(pm)).collect();
        for map in 0..MAPS {
            let state = &mut *self.maps[map].state.lock();
            self.restore(map, state)?;
            if state.births.len() + records.len() > LIMIT {
                self.flush(map, state)?;
            }
        }
        let mut batch = self.log.batch();
        for &(map, key, value) in records {
            let state = &mut *self.maps[map].state.lock();
            state.chain.seq += 1;
            let kind = if value == 0 { Kind::Delete } else { Kind::Put };
            let Chain { head: next, seq } = state.chain;
            let payload = &[key as u64, value];
            let record = Record { id: Self::id(map), seq, next, kind, payload };
            let appended = batch.push(&record)?;
            state.chain.head = appended.location;
            state.births.push(appended.birth);
            state.buffer.insert(key, value);
        }
        batch.commit()?; // DUR
        drop(guards);
        Ok(())
    }

    fn direct(&self, map: usize, key: usize, value: u64) -> Result<u64, PmError> {
        self.make_room()?;
        let pm = self.pool.pm();
        let guard = self.maps[map].lock.lock(pm);
        let state = &mut *self.maps[map].state.lock();
        self.restore(map, state)?;
        self.flush(map, state)?;
        if state.chain.seq != state.ended {
            state.chain.seq += 1;
            let (id, seq, kind) = (Self::id(map), state.chain.seq, Kind::End);
            let record = Record { id, seq, next: Location::NONE, kind, payload: &[] };
            self.log.append(&record)?; // durable before: the word
            state.ended = seq;
        }
        let word = self.word(map, key)?;
        let before = pm.load(word);
        pm.store(word, value); // LIN(direct)
        pm.persist(word)?; // DUR(direct)
        drop(guard);
        Ok(before)
    }

    fn checkpoint(&self) -> Result<bool, PmError> {
        let pm = self.pool.pm();
        self.log.checkpoint::<PmError>(|heads| {
            for (map, Map { lock, state }) in self.maps.iter().enumerate() {
                let guard = lock.lock(pm);
                let state = state.lock();
                if let Some(&birth) = state.births.iter().min() {
                    heads.add(Self::id(map), state.chain, birth);
                }
                drop(guard);
            }
            Ok(())
        })
    }

    fn restore_all(&self) -> Result<(), PmError> {
        for (number, map) in self.maps.iter().enumerate() {
            let guard = map.lock.lock(self.pool.pm());
            self.restore(number, &mut map.state.lock())?;
            drop(guard);
        }
        self.log.set_restored();
        Ok(())
    }

    /// Keeps the log from getting full.
    fn make_room(&self) -> Result<(), PmError> {
        if self.log.is_tight() {
            self.restore_all()?;
            let older = self.log.older_half();
            for (number, map) in self.maps.iter().enumerate() {
                let guard = map.lock.lock(self.pool.pm());
                let state = &mut *map.state.lock();
                if state.births.iter().any(|&birth| birth <= older) {
                    self.flush(number, state)?;
                }
                drop(guard);
            }
            self.checkpoint()?;
        }
        Ok(())
    }

    fn contents(&self) -> Result<BTreeMap<(usize, usize), u64>, PmError> {
        let mut contents = BTreeMap::new();
        for (number, map) in self.maps.iter().enumerate() {
            let state = map.state.lock();
            for key in 0..KEYS {
                let value = self.value(number, &state, key)?;
                if value != 0 {
                    contents.insert((number, key), value);
                }
            }
        }
        Ok(contents)
    }

    fn on(
        pool: Arc<Pool<Traced>>,
        root: PPtr<Root>,
        how: How,
        piece: usize,
    ) -> Result<Self, PmError> {
        let cell = &pool.get(root)?.log;
        let mut log = if pool.pm().load(cell).is_null() {
            Log::create(&pool, cell)? // a crash in `create` left none
        } else {
            let log = how(&pool, cell)?;
            let chains = || (0..MAPS).map(|map| log.recovered(Self::id(map)));
            let alone: Vec<Chain> = chains().collect();
            while log.recover_step() {}
            if !chains().eq(alone) {
                let what = "a chain that is found alone is not what is found with all others";
                return Err(PmError::Corrupt { what, offset: root.offset() });
            }
            log
        };
        if piece > 0 {
            log.set_piece_words(piece);
        }
        Ok(Self { maps: Default::default(), log, root, pool })
    }
}

impl<const PIECE: usize> SpTreeLog<PIECE> {
    fn with<R>(&self, body: impl FnOnce(&Open) -> Result<R, PmError>) -> Result<R, Fault> {
        match &*self.open.read_recursive() {
            Some(open) => Ok(body(open)?),
            None => Err(Fault::new("closed")),
        }
    }

    fn opened(space: &Space) -> Result<Option<Open>, Fault> {
        let Some(pool) = open_pool(space, &options(PIECE))? else { return Ok(None) };
        let Some(entry) = pool.open_index("log")? else { return Ok(None) };
        Ok(Some(Open::on(pool, entry.root(), Log::open_serving, PIECE)?))
    }
}

impl<const PIECE: usize> CrashSubject for SpTreeLog<PIECE> {
    type Op = Op;
    type Ret = Option<u64>;
    type Model = BTreeMap<(usize, usize), u64>;
    const NAME: &'static str = if PIECE == 0 { "sptree-log" } else { "sptree-log-parts" };

    fn geometry() -> Geometry {
        let len = options(PIECE).created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options(PIECE))?;
        let entry = pool.create_index::<Root>("log", *b"log     ", 1, |root| {
            let words = pmindex_core::words_of(root);
            pool.pm().stream_words(words, &[0; size_of::<Root>() / 8])
        })?;
        let open = Open::on(pool, entry.root(), Log::open_serving, PIECE)?;
        Ok(Self { space: space.clone(), open: parking_lot::RwLock::new(Some(open)) })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let open = Self::opened(space)?;
        let lock = parking_lot::RwLock::new;
        Ok(open.map(|open| Self { space: space.clone(), open: lock(Some(open)) }))
    }

    fn apply(&self, op: &Op) -> Result<Option<u64>, Fault> {
        let some = |value| (value != 0).then_some(value);
        if matches!(op, Op::Reopen) {
            let mut open = self.open.write();
            *open = None;
            *open = Self::opened(&self.space)?;
            return Ok(None);
        }
        self.with(|open| {
            Ok(match op {
                Op::Put(map, key, value) => some(open.put(*map, *key, &[*key as u64, *value])?),
                Op::PutMany(records) => open.put_many(records).map(|()| None)?,
                Op::Long(map, key, words) => {
                    let mut payload = vec![long(*words); 2 + words];
                    payload[0] = *key as u64;
                    some(open.put(*map, *key, &payload)?)
                }
                Op::Get(map, key) => {
                    let guard = open.maps[*map].lock.lock(open.pool.pm());
                    let value = open.value(*map, &open.maps[*map].state.lock(), *key)?;
                    drop(guard);
                    some(value)
                }
                Op::Flush(map) => {
                    let guard = open.maps[*map].lock.lock(open.pool.pm());
                    let state = &mut *open.maps[*map].state.lock();
                    open.restore(*map, state)?;
                    open.flush(*map, state)?;
                    drop(guard);
                    None
                }
                Op::Direct(map, key, value) => some(open.direct(*map, *key, *value)?),
                Op::Checkpoint => open.checkpoint().map(|_| None)?,
                Op::Cramped(blocks) => {
                    open.pool.fail_allocation_after(Some(*blocks));
                    let made = open.checkpoint();
                    open.pool.fail_allocation_after(None);
                    made.map(drop).or_else(|e| if e.is_full() { Ok(()) } else { Err(e) })?;
                    None
                }
                Op::Restore => open.restore_all().map(|()| None)?,
                Op::Reopen => None,
            })
        })
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        self.with(|open| {
            let contents = open.contents()?;
            // Another opening finds the same now, at once and restored.
            let other = Open::on(Arc::clone(&open.pool), open.root, Log::look, PIECE)?;
            let served = other.contents()?;
            other.restore_all()?;
            if served != contents || other.contents()? != contents {
                let offset = open.root.offset();
                return Err(PmError::Corrupt { what: "the log says another thing", offset });
            }
            Ok(contents)
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|open| {
            let blocks = open.log.blocks()?;
            let report = open.pool.audit(blocks.into_iter().chain([open.root.offset()]));
            Ok(report.map(drop).map_err(|error| error.to_string()))
        })?
        .map_err(Fault::new)
    }

    fn model(model: &mut Self::Model, op: &Op) -> Option<u64> {
        let mut put = |map: usize, key: usize, value: u64| {
            if value == 0 { model.remove(&(map, key)) } else { model.insert((map, key), value) }
        };
        match op {
            Op::Put(map, key, value) | Op::Direct(map, key, value) => put(*map, *key, *value),
            Op::Long(map, key, words) => put(*map, *key, long(*words)),
            Op::PutMany(records) => {
                for &(map, key, value) in records {
                    put(map, key, value);
                }
                None
            }
            Op::Get(map, key) => model.get(&(*map, *key)).copied(),
            Op::Flush(_) | Op::Checkpoint | Op::Cramped(_) | Op::Restore | Op::Reopen => None,
        }
    }

    /// A crash may leave any part of several puts: for each map, a prefix of them.
    fn outcomes(model: &Self::Model, op: &Op) -> Vec<(Self::Model, Option<u64>)> {
        let mut whole = model.clone();
        let ret = Self::model(&mut whole, op);
        let mut outcomes = vec![(whole, ret)];
        if let Op::PutMany(records) = op {
            for part in 0..(1u32 << records.len()) - 1 {
                let mut after = model.clone();
                for (_, &(map, key, value)) in
                    records.iter().enumerate().filter(|(i, _)| part >> i & 1 == 1)
                {
                    Self::model(&mut after, &Op::Put(map, key, value));
                }
                outcomes.push((after, Some(0))); // no call returns this
            }
        }
        outcomes
    }

    fn ops() -> BoxedStrategy<Op> {
        ops(1)
    }

    fn ops_for(threads: usize) -> BoxedStrategy<Op> {
        ops(threads)
    }

    fn directed() -> Vec<Plan<Op>> {
        let puts = |n: u64| (1..=n).map(|v| Op::Put(v as usize % MAPS, v as usize % KEYS, v));
        vec![
            // Segments fill, die and are reused.
            Plan {
                setup: puts(24).chain([Op::Flush(0), Op::Flush(1), Op::Checkpoint]).collect(),
                threads: vec![vec![Op::Flush(2), Op::Checkpoint, Op::Checkpoint]],
                tail: puts(12).collect(),
            },
            // A flushed chain that recovery finds again must not undo a direct write.
            Plan {
                setup: vec![Op::Put(0, 1, 5), Op::Put(0, 2, 6)],
                threads: vec![vec![Op::Direct(0, 1, 7), Op::Put(0, 3, 8), Op::Direct(0, 3, 0)]],
                tail: vec![Op::Reopen, Op::Get(0, 1), Op::Get(0, 3)],
            },
            // An entry between the tails and the heads of a checkpoint.
            Plan {
                setup: vec![Op::Put(0, 1, 5), Op::Put(1, 1, 6), Op::Checkpoint],
                threads: vec![
                    vec![Op::Put(0, 1, 7), Op::Put(1, 1, 8), Op::Put(0, 2, 9)],
                    vec![Op::Checkpoint, Op::Checkpoint],
                ],
                tail: vec![Op::Put(2, 2, 2), Op::Checkpoint, Op::Put(0, 1, 3)],
            },
            // A checkpoint that replaces another one, or has no room for all its pieces.
            Plan {
                setup: puts(6).chain([Op::Checkpoint]).collect(),
                threads: vec![vec![Op::Put(0, 1, 5), Op::Cramped(4), Op::Checkpoint]],
                tail: vec![Op::Put(1, 1, 6), Op::Checkpoint, Op::Get(0, 1)],
            },
        ]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Site<'static>) -> bool {
        site.file().contains("sptree/src/log/") || site.file().contains("pm-log/src/")
    }
}

fn ops(threads: usize) -> BoxedStrategy<Op> {
    let place = || (0..MAPS, 0..KEYS);
    let one = prop_oneof![
        8 => (place(), 0..1000u64).prop_map(|((m, k), v)| Op::Put(m, k, v)),
        2 => (place(), 0..1000u64).prop_map(|((m, k), v)| Op::Direct(m, k, v)),
        1 => (place(), 1..24usize).prop_map(|((m, k), w)| Op::Long(m, k, w)),
        2 => place().prop_map(|(m, k)| Op::Get(m, k)),
        2 => (0..MAPS).prop_map(Op::Flush),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Restore),
    ];
    if threads > 1 {
        return one.boxed();
    }
    let many = proptest::collection::vec((0..MAPS, 0..KEYS, 0..1000u64), 1..5);
    prop_oneof![
        20 => one,
        2 => many.prop_map(Op::PutMany),
        1 => (0..6u64).prop_map(Op::Cramped),
        2 => Just(Op::Reopen),
    ]
    .boxed()
}

/// With pieces, operations have four tickets.
fn options(piece: usize) -> PoolOptions {
    let slot_bytes = if piece == 0 { 512 } else { 256 };
    PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(slot_bytes)
}
