//! The log by itself: transactions over a few words in place, as a store executes them.
//!
//! ```text
//! P1    a redo record in a lane, committed           P2
//! P2    the words in place                           P3
//! P3    in the same lane: all from there are applied any later change of the words
//! ```
//!
//! Opening applies the unapplied changes again. So a space freed in the wrong order, an entry of another log,
//! an abandoned entry or one behind a torn one shows as a word that no operation wrote. A reader follows the
//! lanes and durably notes its progress: the entries it has read exist after a crash, and no later entry has
//! such a position.

use std::collections::BTreeMap;
use std::panic::Location as Site;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::{Mutex, RwLock};
use pmindex_core::trace::Space;
use pmindex_core::{
    Flushed, Medium, PPtr, PmError, PmPtr, PmU64, Pool, PoolOptions, Traced, Word, pm_struct,
    sync::VersionLock,
};
use pmindex_log::{Entry, Found, Hold, LANES, Lane, Log, Position};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

const KEYS: usize = 4;
/// Tags: changes to be made, and the note that those from a position on are made.
const REDO: u64 = 1;
const APPLIED: u64 = 2;

pm_struct! {
    /// The root block: the log, the words, and the reader's position in each lane.
    #[align(64)]
    pub(crate) struct Root: size 256 {
        log: PmPtr<PmU64>,
        reserved: [PmU64; 7],
        words: [PmU64; 8],
        followed: [PmU64; 16],
    }
}

/// A key and its new value; 0 means none.
type Change = (usize, u64);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Changes in one entry with that many extra words: all or none.
    Change(Vec<Change>, usize),
    /// Changes in an entry each, under one fence: after a crash a prefix of them is made.
    Changes(Vec<Change>),
    /// As `Changes`; then the lane is dropped without a commit.
    Abandon(Vec<Change>),
    Get(usize),
    /// Frees applied entries.
    Release,
    /// Reads the new entries, and holds the rest.
    Follow,
    /// Drops the hold.
    LetGo,
    Reopen,
    /// Replaces this log by another one.
    Renew,
}

/// Transactions over some words.
pub(crate) struct Transactions {
    space: Space,
    open: RwLock<Option<Open>>,
}

struct Open {
    locks: [VersionLock; KEYS],
    /// Where the redo records of the busy lanes begin; `u64::MAX` for an idle lane.
    pending: [AtomicU64; LANES],
    reader: Mutex<Option<Hold>>,
    /// No entry has this sequence or a smaller one.
    floor: u64,
    log: Log<Traced>,
    root: PPtr<Root>,
    pool: Arc<Pool<Traced>>,
}

fn corrupt(what: &'static str) -> PmError {
    PmError::Corrupt { what, offset: 0 }
}

/// Decodes a redo record's changes, and checks its extra words.
fn changes_of(pm: &Traced, entry: &Entry<'_>) -> Result<Vec<Change>, PmError> {
    let words: Vec<u64> = entry.payload.iter().map(|word| pm.load(word)).collect();
    let (count, more) = (words[0] as usize, words[1] as usize);
    let rest = words.get(2 + 2 * count..).ok_or(corrupt("a redo record"))?;
    let whole = rest.iter().take(more).all(|&word| word == more as u64)
        && rest.iter().skip(more).all(|&word| word == 0);
    if !whole {
        return Err(corrupt("the rest of a redo record"));
    }
    let pairs = words[2..][..2 * count].chunks(2);
    Ok(pairs.map(|pair| (pair[0] as usize % KEYS, pair[1])).collect())
}

impl Open {
    fn on(pool: Arc<Pool<Traced>>, root: PPtr<Root>) -> Result<Self, PmError> {
        let pm = pool.pm();
        let at = pool.get(root)?;
        let log = if pm.load(&at.log).is_null() {
            Log::create(&pool, &at.log)?
        } else {
            Log::open(&pool, &at.log)?
        };
        let followed = at.followed.iter().map(|word| Position::from_word(pm.load(word)));
        let floor = followed.map(Position::sequence).max().unwrap_or(0);
        let open = Self {
            locks: Default::default(),
            pending: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            reader: Mutex::new(None),
            floor,
            log,
            root,
            pool,
        };
        open.check_followed()?;
        open.recover()?;
        Ok(open)
    }

    fn at(&self) -> Result<&Root, PmError> {
        self.pool.get(self.root)
    }

    /// Checks that the entries that the reader has read exist, or their segment is gone.
    fn check_followed(&self) -> Result<(), PmError> {
        for (lane, word) in self.at()?.followed.iter().enumerate() {
            let followed = Position::from_word(self.pool.pm().load(word));
            let same = |position: Position| position.sequence() == followed.sequence();
            let lives = self.log.segments().iter().any(|s| s.sequence == followed.sequence());
            let mut end = Position::START;
            for found in self.log.read(lane, Position::START) {
                let found = found?;
                if found.position < end {
                    return Err(corrupt("the order of a lane"));
                }
                end = found.end;
                if same(end) && end >= followed {
                    break;
                }
            }
            if lives && !(same(end) && end >= followed) {
                return Err(corrupt("what a reader has read"));
            }
        }
        Ok(())
    }

    /// Returns the unapplied changes, and their positions.
    fn unapplied(log: &Log<Traced>) -> Result<Vec<(usize, Position, Vec<Change>)>, PmError> {
        let (pm, mut all) = (log.pool().pm(), Vec::new());
        for found in log.entries() {
            let Found { lane, position, entry, .. } = found?;
            match entry.tag {
                REDO => all.push((lane, position, changes_of(pm, &entry)?)),
                APPLIED => {
                    let from = Position::from_word(pm.load(&entry.payload[0]));
                    all.retain(|&(of, position, _)| of != lane || position < from);
                }
                _ => return Err(corrupt("a tag that nobody appended")),
            }
        }
        Ok(all)
    }

    fn recover(&self) -> Result<(), PmError> {
        let unapplied = Self::unapplied(&self.log)?;
        for (.., changes) in &unapplied {
            self.make(changes)?;
        }
        for lane in 0..LANES {
            if let Some(&(_, from, _)) = unapplied.iter().find(|(of, ..)| *of == lane) {
                let mut lane = self.log.lane_at(lane);
                self.push(&mut lane, APPLIED, &[from.into_word()], &[])?;
                lane.commit()?; // durable before: any other change
            }
        }
        Ok(())
    }

    fn push(
        &self,
        lane: &mut Lane<'_, Traced>,
        tag: u64,
        words: &[u64],
        more: &[u64],
    ) -> Result<Position, PmError> {
        let appended = lane.push(tag, [words, more])?;
        if appended.position.sequence() <= self.floor {
            return Err(corrupt("a position that there was"));
        }
        Ok(appended.position)
    }

    /// Changes words in place.
    fn make(&self, changes: &[Change]) -> Result<(), PmError> {
        let (pm, words) = (self.pool.pm(), &self.at()?.words);
        let mut flushed = Flushed::nothing();
        for &(key, value) in changes {
            pm.store(&words[key], value);
            flushed = flushed.and(pm.flush(&words[key]));
        }
        pm.fence(flushed)?; // durable before: `APPLIED`
        Ok(())
    }

    /// Makes changes by entries of several each, or abandons them.
    fn transaction(
        &self,
        changes: &[Change],
        (each, more): (usize, usize),
        commits: bool,
    ) -> Result<u64, PmError> {
        let pm = self.pool.pm();
        let mut keys: Vec<usize> = changes.iter().map(|&(key, _)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        let guards: Vec<_> = keys.iter().map(|&key| self.locks[key].lock(pm)).collect();
        let before = pm.load(&self.at()?.words[changes[0].0]);
        let mut lane = self.log.lane();
        let pending = &self.pending[lane.number()];
        pending.store(self.log.tail(lane.number()).into_word(), SeqCst);
        let mut begun = None;
        for changes in changes.chunks(each) {
            let mut words = vec![changes.len() as u64, more as u64];
            words.extend(changes.iter().flat_map(|&(key, value)| [key as u64, value]));
            let position = self.push(&mut lane, REDO, &words, &vec![more as u64; more])?; // P1
            begun = begun.or(Some(position.into_word()));
        }
        if commits && let Some(begun) = begun {
            lane.commit()?; // DUR, durable before: P2
            pm.handover_point();
            self.make(changes)?; // P2, LIN: the unlock after it
            self.push(&mut lane, APPLIED, &[begun], &[])?;
            lane.commit()?; // P3
        }
        pending.store(u64::MAX, SeqCst);
        drop(lane); // durable before: other changes of these keys
        drop(guards);
        Ok(before)
    }

    fn release(&self) -> Result<(), PmError> {
        let mut horizon = self.log.tails(); // before: what is pending
        for (needed, pending) in horizon.iter_mut().zip(&self.pending) {
            *needed = Position::from_word(pending.load(SeqCst)).min(*needed);
        }
        self.log.release(&horizon).map(drop)
    }

    fn follow(&self) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let mut reader = pm.lock(&self.reader);
        let hold = reader.get_or_insert_with(|| self.log.hold());
        for (lane, word) in self.at()?.followed.iter().enumerate() {
            let from = Position::from_word(pm.load(word));
            let mut end = from;
            for found in self.log.read(lane, from) {
                let found = found?;
                if found.position < end || found.lane != lane {
                    return Err(corrupt("the order of a lane that is followed"));
                }
                end = found.end;
            }
            if end > from {
                pm.store(word, end.into_word());
                pm.persist(word)?; // durable before: the segment may go
            }
            hold.advance(lane, end);
        }
        Ok(())
    }

    /// Replaces this log, whose entries are all applied, by another one.
    fn renew(self) -> Result<Self, PmError> {
        let (pool, root) = (Arc::clone(&self.pool), self.root);
        let mut log = self.log;
        drop(self.reader);
        log.renew_lanes();
        log.release(&[Position::END; LANES])?;
        let (pm, at) = (pool.pm(), pool.get(root)?);
        for word in &at.followed {
            pm.store(word, 0);
        }
        pm.persist(&at.followed)?; // durable before: the last segment, with which positions are forgotten
        let last: Vec<_> = log.segments().iter().collect();
        log.free(&last)?;
        drop(log);
        pool.free_from(&at.log)?;
        Self::on(pool, root)
    }

    fn contents(&self) -> Result<BTreeMap<usize, u64>, PmError> {
        let words = self.at()?.words.iter().enumerate();
        let all = words.map(|(key, word)| (key, self.pool.pm().load(word)));
        Ok(all.filter(|&(_, value)| value != 0).collect())
    }
}

impl Transactions {
    fn with<R>(&self, body: impl FnOnce(&Open) -> Result<R, PmError>) -> Result<R, Fault> {
        match &*self.open.read_recursive() {
            Some(open) => Ok(body(open)?),
            None => Err(Fault::new("closed")),
        }
    }

    fn opened(space: &Space) -> Result<Option<Open>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let Some(entry) = pool.open_index("log")? else { return Ok(None) };
        Ok(Some(Open::on(pool, entry.root())?))
    }
}

impl CrashSubject for Transactions {
    type Op = Op;
    type Ret = Option<u64>;
    type Model = BTreeMap<usize, u64>;
    const NAME: &'static str = "pm-log";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options())?;
        let entry = pool.create_index::<Root>("log", *b"log     ", 1, |root| {
            let words = pmindex_core::words_of(root);
            pool.pm().stream_words(words, &[0; size_of::<Root>() / 8])
        })?;
        let open = Open::on(pool, entry.root())?;
        Ok(Self { space: space.clone(), open: RwLock::new(Some(open)) })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let open = Self::opened(space)?;
        Ok(open.map(|open| Self { space: space.clone(), open: RwLock::new(Some(open)) }))
    }

    fn apply(&self, op: &Op) -> Result<Option<u64>, Fault> {
        let some = |value| (value != 0).then_some(value);
        match op {
            Op::Reopen => {
                let mut open = self.open.write();
                *open = None;
                *open = Self::opened(&self.space)?;
                return Ok(None);
            }
            Op::Renew => {
                let mut open = self.open.write();
                *open = open.take().map(Open::renew).transpose()?;
                return Ok(None);
            }
            _ => {}
        }
        self.with(|open| {
            Ok(match op {
                Op::Change(changes, more) => {
                    some(open.transaction(changes, (changes.len(), *more), true)?)
                }
                Op::Changes(changes) => some(open.transaction(changes, (1, 0), true)?),
                Op::Abandon(changes) => some(open.transaction(changes, (1, 0), false)?),
                Op::Get(key) => {
                    let guard = open.locks[*key].lock(open.pool.pm());
                    let value = open.pool.pm().load(&open.at()?.words[*key]);
                    drop(guard);
                    some(value)
                }
                Op::Release => open.release().map(|()| None)?,
                Op::Follow => open.follow().map(|()| None)?,
                Op::LetGo => {
                    *open.pool.pm().lock(&open.reader) = None;
                    None
                }
                Op::Reopen | Op::Renew => None,
            })
        })
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        self.with(|open| {
            // A second opening at this point finds nothing to apply.
            let other = Log::look(&open.pool, &open.at()?.log)?;
            if Open::unapplied(&other)?.is_empty() {
                open.contents()
            } else {
                Err(corrupt("changes that are not applied"))
            }
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
        match op {
            Op::Change(changes, _) | Op::Changes(changes) => {
                let before = model.get(&changes[0].0).copied();
                for &(key, value) in changes {
                    if value == 0 {
                        model.remove(&key)
                    } else {
                        model.insert(key, value)
                    };
                }
                before
            }
            Op::Abandon(changes) => model.get(&changes[0].0).copied(),
            Op::Get(key) => model.get(key).copied(),
            Op::Release | Op::Follow | Op::LetGo | Op::Reopen | Op::Renew => None,
        }
    }

    /// After a crash a prefix of changes with an entry each may be made.
    fn outcomes(model: &Self::Model, op: &Op) -> Vec<(Self::Model, Option<u64>)> {
        let mut whole = model.clone();
        let ret = Self::model(&mut whole, op);
        let mut outcomes = vec![(whole, ret)];
        if let Op::Changes(changes) | Op::Abandon(changes) = op {
            for count in 1..=changes.len() {
                let mut after = model.clone();
                Self::model(&mut after, &Op::Change(changes[..count].to_vec(), 0));
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
        let change = |n: u64| Op::Change(vec![(n as usize % KEYS, n)], 0);
        let changes = |from: u64, count: u64| (from..from + count).map(change);
        let each = |from: u64, count: u64| -> Vec<Change> {
            (from..from + count).map(|n| (n as usize % KEYS, n)).collect()
        };
        vec![
            // Many segments of one lane are freed at once, then the rest: a segment ends between a redo
            // record and the note that it is applied.
            Plan {
                setup: [Op::Change(vec![(0, 99)], 9)].into_iter().chain(changes(1, 24)).collect(),
                threads: vec![vec![Op::Release, change(40), Op::Release]],
                tail: changes(50, 3).chain([Op::Reopen, Op::Release, Op::Get(1)]).collect(),
            },
            // Entries of several segments are abandoned, and others take their lines.
            Plan {
                setup: changes(1, 3).collect(),
                threads: vec![vec![Op::Abandon(each(100, 10)), change(4), change(5)]],
                tail: vec![Op::Reopen, Op::Get(0), change(6), Op::Get(2)],
            },
            // Everything is freed, and the log is opened again.
            Plan {
                setup: changes(1, 9).chain([Op::Follow, Op::Reopen]).collect(),
                threads: vec![vec![Op::Release, Op::Reopen, Op::Release, change(20), Op::Follow]],
                tail: vec![Op::Release, Op::Reopen, change(21), Op::Follow, Op::Get(1)],
            },
            // The memory of a log is reused by another one.
            Plan {
                setup: changes(1, 9).collect(),
                threads: vec![vec![Op::Renew, change(20), Op::Renew, change(21)]],
                tail: vec![Op::Reopen, change(22), Op::Reopen, Op::Get(1)],
            },
            // Redo records fill a segment and continue in the next one, while other threads free segments.
            Plan {
                setup: changes(1, 2).collect(),
                threads: vec![vec![Op::Changes(each(100, 12))], vec![Op::Release; 4]],
                tail: vec![Op::Reopen, Op::Get(1)],
            },
            // A reader beside a writer: every entry it reads is durable.
            Plan {
                setup: changes(1, 2).collect(),
                threads: vec![changes(100, 2).collect(), vec![Op::Follow; 3]],
                tail: vec![Op::Reopen, Op::Follow],
            },
            // A reader beside writers and a thread that frees segments.
            Plan {
                setup: changes(1, 9).chain([Op::Follow]).collect(),
                threads: vec![
                    changes(100, 3).chain([Op::Changes(each(200, 4))]).collect(),
                    vec![Op::Follow, Op::Release, Op::Follow, Op::Release],
                    changes(300, 2).chain([Op::LetGo, Op::Release]).collect(),
                ],
                tail: changes(400, 4).chain([Op::Follow, Op::Release]).collect(),
            },
        ]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Site<'static>) -> bool {
        site.file().contains("pm-log/src/")
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[
            ("crates/pm-log/src/entry.rs", include_str!("../../src/entry.rs")),
            ("crates/pm-log/src/lane.rs", include_str!("../../src/lane.rs")),
            ("crates/pm-log/src/lib.rs", include_str!("../../src/lib.rs")),
            ("crates/pm-log/src/segments.rs", include_str!("../../src/segments.rs")),
        ]
    }
}

fn ops(threads: usize) -> BoxedStrategy<Op> {
    let some = |most: usize| proptest::collection::vec((0..KEYS, 0..1000u64), 1..most);
    let one = prop_oneof![
        6 => (some(3), Just(0)).prop_map(|(changes, more)| Op::Change(changes, more)),
        2 => (some(4), 0..60usize).prop_map(|(changes, more)| Op::Change(changes, more)),
        2 => some(7).prop_map(Op::Changes),
        2 => some(7).prop_map(Op::Abandon),
        2 => (0..KEYS).prop_map(Op::Get),
        3 => Just(Op::Release),
        2 => Just(Op::Follow),
        1 => Just(Op::LetGo),
    ];
    if threads > 1 {
        return one.boxed();
    }
    prop_oneof![12 => one, 1 => Just(Op::Reopen), 1 => Just(Op::Renew)].boxed()
}

fn options() -> PoolOptions {
    PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512)
}
