//! The state machine that a group replicates: a partition of the engine, and the index of its last entry.
//!
//! Besides the records of clients, the engine has records of the group, which every replica has: the index of
//! the last durable entry, the number of the group, and the addresses of each member.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_core::{PmError, Pool};
use pmindex_replica::{Part, State, StateError};
use pmindex_rstore::{Backup, Budget, Options, Partition};

use super::entry::{Step, push_put, steps};

/// The key of the index of the last durable entry.
const APPLIED: &[u8] = &[0, b'a'];
/// The key of the number of the group.
const GROUP: &[u8] = &[0, b'g'];
/// The prefix of the keys of members, before their ids.
const MEMBER: &[u8] = &[0, b'm'];
/// The keys of the group's records: from the first, to before the second.
const KEPT: (&[u8], &[u8]) = (APPLIED, &[0, b'n']);
/// The number of records that a clearing removes at once, at most.
const SLICE: usize = 512;

/// Returns `true` if a record belongs to the group.
pub(super) fn is_groups(key: &[u8]) -> bool {
    (KEPT.0..KEPT.1).contains(&key)
}

/// The addresses of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The address for the other members.
    pub(crate) peers: String,
    /// The address for clients.
    pub(crate) clients: String,
}

impl Member {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (peers, clients) = text.split_once('/')?;
        let is_address =
            |text: &str| text.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
        (is_address(peers) && is_address(clients))
            .then(|| Self { peers: peers.into(), clients: clients.into() })
    }

    /// Returns `true` if the address for the other members stands for all of its machine, and is no way to it.
    pub(super) fn is_anywhere(&self) -> bool {
        let host = self.peers.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified())
    }

    pub(crate) fn text(&self) -> String {
        format!("{}/{}", self.peers, self.clients)
    }

    /// Returns the address for clients of a partition: the first one has the member's port, and the others
    /// the next ones.
    pub(crate) fn clients_of(&self, partition: usize) -> String {
        let (host, port) = self.clients.rsplit_once(':').unwrap_or((&self.clients, "0"));
        let port = port.parse::<u16>().unwrap_or(0);
        format!("{host}:{}", port.saturating_add(u16::try_from(partition).unwrap_or(u16::MAX)))
    }
}

/// Returns the key of a member's record.
pub(super) fn member_key(id: u64) -> Vec<u8> {
    [MEMBER, &id.to_be_bytes()].concat()
}

/// Returns the record of the number of a group: its key, and its value.
pub(super) fn group_record(number: NonZeroU64) -> (Vec<u8>, Vec<u8>) {
    (GROUP.to_vec(), number.get().to_be_bytes().to_vec())
}

/// The state machine.
pub(super) struct Machine {
    pool: Arc<Pool>,
    name: String,
    options: Options,
    pub(super) engine: Partition,
    /// The engine that a snapshot is being loaded into, not in use yet.
    next: Option<(u64, Partition)>,
    applied: u64,
    /// The entry that there was no room for, and how often it was tried.
    refused: (u64, u64),
    /// There was no room to make the records durable.
    is_full: bool,
    /// The generations that are not in use and could not be removed, and when that is tried again.
    remains: BTreeSet<u64>,
    remove_at: Instant,
}

/// The time between two attempts to remove records that are not in use: each one reads them.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);

/// The number of attempts after which it is said again that an entry waits for room.
const SAY_AGAIN: u64 = 600;

fn name_of(name: &str, generation: u64) -> String {
    let mut full = name.to_owned();
    if generation > 0 {
        let _ = write!(full, ".{generation}");
    }
    full
}

fn applied_in(engine: &Partition) -> Result<u64, StateError> {
    let mut value = Vec::new();
    engine.get_into(APPLIED, 0, &mut value)?;
    Ok(value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

impl Machine {
    pub(super) fn open(
        pool: &Arc<Pool>,
        name: &str,
        options: &Options,
        generation: u64,
    ) -> Result<Self, StateError> {
        let (engine, recovery) =
            Partition::open_or_create(pool, &name_of(name, generation), options)?;
        tracing::info!(
            records = recovery.records,
            replayed = recovery.replayed,
            generation,
            "opened"
        );
        let applied = applied_in(&engine)?;
        let (pool, name, options) = (Arc::clone(pool), name.to_owned(), options.clone());
        Ok(Self {
            pool,
            name,
            options,
            engine,
            next: None,
            applied,
            refused: (0, 0),
            is_full: false,
            remains: BTreeSet::new(),
            remove_at: Instant::now(),
        })
    }

    /// Returns the number of the group, if it is agreed on.
    pub(super) fn group(&self) -> Result<Option<NonZeroU64>, StateError> {
        let mut value = Vec::new();
        self.engine.get_into(GROUP, 0, &mut value)?;
        Ok(value.first_chunk().and_then(|bytes| NonZeroU64::new(u64::from_be_bytes(*bytes))))
    }

    /// Returns the members with known addresses.
    pub(super) fn members(&self) -> Result<Vec<(u64, Member)>, StateError> {
        let mut found = Vec::new();
        let range = (Bound::Included(MEMBER), Bound::Excluded(KEPT.1));
        self.engine.scan(range.0, range.1, 0, false, &mut |key, value| {
            let id = key.get(MEMBER.len()..).and_then(|id| id.try_into().ok());
            let member = std::str::from_utf8(value).ok().and_then(Member::parse);
            found.extend(id.map(u64::from_be_bytes).zip(member));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the number of the group's records.
    pub(super) fn kept(&self) -> u64 {
        let mut count = 0;
        let range = (Bound::Included(KEPT.0), Bound::Excluded(KEPT.1));
        let counted = self.engine.scan(range.0, range.1, 0, false, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        counted.map_or(0, |()| count)
    }

    /// Removes the records of clients. Not [`Partition::clear`], which would remove the group's records too,
    /// and be durable before the rest.
    fn clear(&mut self) -> Result<(), StateError> {
        let parts = [
            (Bound::Unbounded, Bound::Excluded(KEPT.0)),
            (Bound::Included(KEPT.1), Bound::Unbounded),
        ];
        let mut slice = SLICE;
        for (from, to) in parts {
            loop {
                match self.engine.remove_range(from, to, slice) {
                    // Fewer long keys fit into a record of the log, or into the blocks that are free.
                    Err(error) if slice > 1 && is_too_large(&error) => slice /= 2,
                    Ok(removed) if removed == slice => self.engine.commit()?,
                    other => {
                        other?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the error of an entry whose keys or values are too long for every engine.
    fn unfit(&self, data: &[u8]) -> Result<Option<pmindex_rstore::Error>, StateError> {
        for step in steps(data) {
            let (key, value) = match step? {
                Step::Put(key, value, _) => (key, value.len()),
                Step::Remove(key) => (key, 0),
                Step::Clear => continue,
            };
            if let Err(error) = self.engine.check_lengths(key.len(), value) {
                return Ok(Some(error));
            }
        }
        Ok(None)
    }

    fn apply_steps(&mut self, data: &[u8]) -> Result<(), StateError> {
        let mut grows = 0;
        for step in steps(data) {
            if let Step::Put(key, value, expiry) = step? {
                grows += self.engine.bytes_for(key.len(), value.len(), expiry.is_some());
            }
        }
        if !self.engine.may_grow(grows) {
            return self.apply_when_full(data);
        }
        for step in steps(data) {
            match step? {
                Step::Put(key, value, expiry) => self.engine.put_unweighed(key, value, expiry)?,
                Step::Remove(key) => drop(self.engine.remove(key)?),
                Step::Clear => self.clear()?,
            }
        }
        Ok(())
    }

    /// Applies the steps of an entry to an engine that is nearly full. The entry is weighed as a whole, because it was
    /// agreed on as a whole: so its removals make room for what it puts, whichever comes first in it.
    fn apply_when_full(&mut self, data: &[u8]) -> Result<(), StateError> {
        let mut changes = BTreeMap::new();
        for step in steps(data) {
            match step? {
                Step::Put(key, value, expiry) => drop(changes.insert(key, Some((value, expiry)))),
                Step::Remove(key) => drop(changes.insert(key, None)),
                Step::Clear => {
                    changes.clear(); // the clearing removes what they have put
                    self.clear()?;
                }
            }
        }
        let (mut takes, mut frees, mut growing) = (0_u64, 0, Vec::new());
        for (&key, &change) in &changes {
            let before = self.engine.bytes_of(key)?;
            frees += before;
            if let Some((value, expiry)) = change {
                let bytes = self.engine.bytes_for(key.len(), value.len(), expiry.is_some());
                takes += bytes;
                if bytes > before {
                    growing.push((key, value, expiry));
                }
            }
        }
        let weighs = takes > frees && !self.engine.may_grow(takes - frees);
        for (&key, &change) in &changes {
            match change {
                None => drop(self.engine.remove(key)?),
                Some(_) if growing.binary_search_by(|(other, ..)| (*other).cmp(key)).is_ok() => {}
                Some((value, expiry)) => self.engine.put_unweighed(key, value, expiry)?,
            }
        }
        for (key, value, expiry) in growing {
            if weighs {
                self.engine.put(key, value, expiry)?;
            } else {
                self.engine.put_unweighed(key, value, expiry)?;
            }
        }
        Ok(())
    }

    fn commit_engine(&mut self, applied: u64) -> Result<(), pmindex_rstore::Error> {
        if applied != self.applied {
            self.engine.put(APPLIED, &applied.to_be_bytes(), None)?;
        }
        self.engine.commit()
    }

    /// Puts the records of a part of a snapshot.
    fn put_all(engine: &mut Partition, data: &[u8]) -> Result<(), StateError> {
        for step in steps(data) {
            if let Step::Put(key, value, expiry) = step? {
                engine.put(key, value, expiry)?;
            }
        }
        Ok(engine.commit()?)
    }

    /// Removes a state that is not in use; returns `false` if it remains for now, because that needs room that there
    /// is not, or it is damaged: no reason to stop, for the state in use is whole.
    fn remove(&mut self, generation: u64) -> Result<bool, StateError> {
        self.next = None;
        let name = name_of(&self.name, generation);
        match Partition::destroy(&self.pool, &name) {
            Ok(_) => {
                self.remains.remove(&generation);
                return Ok(true);
            }
            Err(error) if is_lost(&error) => return Err(error.into()),
            Err(error) if error.is_full() => {
                if self.remains.insert(generation) {
                    tracing::warn!(%error, generation, "records that are not in use cannot be removed yet");
                }
                self.remove_at = Instant::now() + REMOVE_AGAIN;
            }
            Err(error) => {
                // Not tried again before a restart.
                self.remains.remove(&generation);
                tracing::error!(%error, generation, "records that are not in use cannot be removed: they are damaged");
            }
        }
        Ok(false)
    }

    /// Tries again to remove what could not be removed.
    pub(super) fn remove_remains(&mut self, now: Instant) -> Result<(), StateError> {
        // While a snapshot is loaded, it needs the room, and one of them may be where that is.
        if self.remains.is_empty() || now < self.remove_at || self.next.is_some() {
            return Ok(());
        }
        for generation in std::mem::take(&mut self.remains) {
            self.remains.insert(generation);
            if self.remove(generation)? {
                tracing::info!(generation, "records that are not in use were removed");
            }
        }
        Ok(())
    }

    /// Returns `true` if records that are not in use could not be removed.
    #[cfg(test)]
    pub(super) fn has_remains(&self) -> bool {
        !self.remains.is_empty()
    }

    /// Changes the state that a snapshot is loaded into; removes it, and returns `false`, if there is no room.
    fn load(
        &mut self,
        load: impl FnOnce(&mut Partition) -> Result<(), StateError>,
    ) -> Result<bool, StateError> {
        let Some((generation, engine)) = &mut self.next else { return Ok(false) };
        let generation = *generation;
        match load(engine) {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                tracing::warn!(%error, "a snapshot of the group does not fit beside the present records");
                self.remove(generation)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns `true` if nothing can be made durable any more.
fn is_lost(error: &pmindex_rstore::Error) -> bool {
    matches!(error, pmindex_rstore::Error::Pool(PmError::DurabilityLost(_)))
}

fn is_too_large(error: &pmindex_rstore::Error) -> bool {
    error.is_full() || matches!(error, pmindex_rstore::Error::BatchTooLarge { .. })
}

pub(super) fn is_full(error: &StateError) -> bool {
    error.downcast_ref::<pmindex_rstore::Error>().is_some_and(pmindex_rstore::Error::is_full)
}

impl State for Machine {
    type View = Backup;

    fn applied(&self) -> u64 {
        self.applied
    }

    /// A leader proposes only what each engine takes (`shard/admit.rs`). For what an older leader has proposed: an
    /// entry that is too long for all engines is skipped by all replicas. One that this engine has no room for
    /// waits, because others may have room.
    fn apply(&mut self, index: u64, data: &[u8]) -> Result<bool, StateError> {
        if let Some(error) = self.unfit(data)? {
            tracing::error!(index, %error, "every replica skips an entry of the group");
            return Ok(true);
        }
        if self.refused.0 == index {
            self.engine.look_for_room();
        }
        match self.apply_steps(data) {
            Ok(()) => {
                if self.refused.0 == index {
                    tracing::info!(index, "there is room again: this replica goes on");
                }
                Ok(true)
            }
            Err(error) if is_full(&error) => {
                let (last, times) = self.refused;
                self.refused = (index, if last == index { times + 1 } else { 0 });
                if self.refused.1.is_multiple_of(SAY_AGAIN) {
                    tracing::error!(
                        index,
                        %error,
                        "there is no room for an entry of the group: this replica stops here until there is; \
                         make room on its disk, or start it again with a greater --capacity"
                    );
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn commit(&mut self, applied: u64) -> Result<bool, StateError> {
        let committed = self.commit_engine(applied);
        if let Err(error) = &committed
            && error.is_full()
        {
            self.engine.look_for_room();
            if !self.is_full {
                tracing::error!(
                    %error,
                    "there is no room to make the group's records durable: this replica keeps them in the group's log \
                     until there is; make room on its disk, or start it again with a greater --capacity"
                );
            }
            self.is_full = true;
            return Ok(false);
        }
        committed?;
        if std::mem::take(&mut self.is_full) {
            tracing::info!("there is room again: the group's records are durable");
        }
        self.applied = applied;
        Ok(true)
    }

    fn view(&mut self) -> Result<Backup, StateError> {
        tracing::info!("a node lacks what the log no longer has: a snapshot of the group begins");
        Ok(self.engine.backup()?)
    }

    fn read(
        &mut self,
        view: &mut Backup,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Part, StateError> {
        let visit = &mut |key: &[u8], value: &[u8], expiry: Option<u64>| {
            if key != APPLIED {
                push_put(out, key, value, expiry);
            }
        };
        match self.engine.back_up_part(view, Budget::bytes(bytes as u64), visit) {
            Ok(more) => Ok(if more { Part::More } else { Part::Last }),
            Err(pmindex_rstore::Error::BackupEnded) => {
                tracing::warn!("writes needed the space that a snapshot held; it begins again");
                Ok(Part::Ended)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn begin(&mut self, generation: u64) -> Result<bool, StateError> {
        if !self.remove(generation)? {
            return Ok(false);
        }
        match Partition::create(&self.pool, &name_of(&self.name, generation), &self.options) {
            Ok(engine) => {
                self.next = Some((generation, engine));
                Ok(true)
            }
            Err(error) if error.is_full() => {
                tracing::warn!(%error, "there is no room for a snapshot of the group");
                self.remove(generation)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn restore(&mut self, data: &[u8]) -> Result<bool, StateError> {
        self.load(|engine| Self::put_all(engine, data))
    }

    fn finish(&mut self, applied: u64) -> Result<bool, StateError> {
        self.load(|engine| {
            engine.put(APPLIED, &applied.to_be_bytes(), None)?;
            Ok(engine.commit()?)
        })
    }

    fn abandon(&mut self, generation: u64) -> Result<(), StateError> {
        self.remove(generation).map(drop)
    }

    fn switch(&mut self, generation: u64) -> Result<(), StateError> {
        if let Some((_, engine)) = self.next.take_if(|(made, _)| *made == generation) {
            self.engine = engine;
            self.applied = applied_in(&self.engine)?;
        }
        // The previous generation, and the remains of an attempt that a crash interrupted.
        for other in [generation.checked_sub(1), Some(generation + 1)].into_iter().flatten() {
            self.remove(other)?;
        }
        Ok(())
    }
}
