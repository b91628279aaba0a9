//! A partition, which one thread owns: the engine, its state in memory, and the path of a write.
//!
//! A command, or a transaction of several, makes a draft. The draft becomes an [`Entry`]: the records in
//! their new state, with nothing left to decide. An entry that is admitted ([`admit`]) is one batch in the log
//! and is applied after that; with replicas, they agree on it in between. Replies wait for the commit at the end
//! of the turn, which is one fence for all writes of the turn.

mod admit;
mod backup;
mod engine;
mod open;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use pmindex_rstore::{Batch, Budget};

use crate::command::table::{UNWATCH_KEY, WATCH_KEY};
use crate::command::{Call, Refusal, Run, Spec};
use crate::group::{Group, Round};
use crate::keyspace::item::Keys;
use crate::keyspace::{Change, Draft, Failure, NEVER, Place, Reaper};
use crate::memcache;
use crate::wire::{Args, Protocol, Reply, Request};

pub(crate) use admit::{Bounds, MOST_WRITTEN, admit};
pub(crate) use backup::Backup;
pub(crate) use open::{Folder, Opened};
pub(crate) use store::Store;

/// The effect of a command or a transaction on the records, which replicas agree on.
#[derive(Debug)]
pub(crate) struct Entry(BTreeMap<Vec<u8>, Change>);

/// Commands that run together or not at all.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<(&'static Spec, Request)>,
    /// Keys that must be unchanged.
    pub(crate) watched: Vec<Watch>,
}

/// A key under `WATCH`.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) key: Vec<u8>,
    pub(crate) version: u64,
    /// The key existed.
    pub(crate) existed: bool,
}

/// A request to a partition.
#[derive(Debug)]
pub(crate) enum Work {
    One(&'static Spec, Request),
    Transaction(Transaction),
    Memcache(memcache::Command),
}

/// A partition.
#[derive(Debug)]
pub(crate) struct Shard {
    store: Store,
    pub(crate) place: Place,
    reaper: Reaper,
    /// The time of the next walk of the reaper.
    next_walk: u64,
    /// A write is staged, or a staged one may have been read.
    staged: bool,
    batch: Batch,
    /// Why a commit failed.
    broken: Option<String>,
    /// There was no room for it: it is tried again.
    is_full: bool,
    /// It failed in this turn.
    lost: bool,
    /// The number of applied writes.
    pub(crate) writes: u64,
}

/// Milliseconds between two walks over the owners of collections.
const WALK_EVERY: u64 = 10_000;
/// The number of records that a slice of upkeep removes, and the number of owners that it reads.
const REAP: usize = 256;
const WALK: usize = 32;

impl Shard {
    /// Refuses all requests after a failed commit: what they would show may be lost.
    fn usable(&self) -> Result<(), Refusal> {
        match &self.broken {
            Some(why) => Err(Failure::Broken(why.clone()).into()),
            None => Ok(()),
        }
    }

    /// Runs a command and appends its reply.
    pub(crate) fn run(&mut self, spec: &'static Spec, args: Args<'_>, now: u64, out: &mut Reply) {
        if let Err(refusal) = self.usable() {
            out.error(&refusal.0);
            return;
        }
        if matches!(spec.run, Run::Clear) {
            match self.clear() {
                Ok(()) => out.ok(),
                Err(failure) => out.error(&Refusal::from(failure).0),
            }
            return;
        }
        let start = out.bytes.len();
        let mut draft = Draft::new(self.store.records(), now);
        let outcome = call(spec, args, &mut draft, &mut self.place, out);
        let outcome = match outcome {
            Ok(()) if draft.is_clean() => Ok(()),
            Ok(()) => entry(draft, &mut self.place)
                .and_then(|(entry, others)| self.write(entry, others))
                .map_err(Refusal::from),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = outcome {
            out.bytes.truncate(start);
            out.error(&refusal.0);
        }
    }

    /// Runs work and returns its reply.
    pub(crate) fn work(&mut self, work: &Work, protocol: Protocol, now: u64) -> Vec<u8> {
        let mut out = Reply::new(protocol);
        match work {
            Work::One(spec, request) => self.run(spec, request.args(), now, &mut out),
            Work::Transaction(transaction) => self.transact(transaction, now, &mut out),
            Work::Memcache(command) => self.memcache(command, now, &mut out.bytes),
        }
        out.bytes
    }

    /// Runs a transaction: its commands see each other's changes, and all changes become one entry.
    pub(crate) fn transact(&mut self, transaction: &Transaction, now: u64, out: &mut Reply) {
        if let Err(refusal) = self.usable() {
            out.error(&refusal.0);
            return;
        }
        let mut draft = Draft::new(self.store.records(), now);
        let mut same = true;
        for watch in &transaction.watched {
            same &= self.place.watches.unwatch(&watch.key, watch.version);
            let record = crate::keyspace::item::key_of(&watch.key);
            let expired = watch.existed && !matches!(draft.expiry(&record), Ok(Some(_)));
            same &= !expired;
        }
        if !same {
            out.null_array();
            return;
        }
        let start = out.bytes.len();
        out.array(transaction.commands.len());
        for (spec, request) in &transaction.commands {
            let before = out.bytes.len();
            let outcome = if draft.size() > MOST_WRITTEN {
                Err(Refusal::of("ERR the transaction writes too much"))
            } else {
                draft.mark();
                call(spec, request.args(), &mut draft, &mut self.place, out)
            };
            if let Err(refusal) = outcome {
                draft.undo(); // what it had done before it failed
                out.bytes.truncate(before);
                out.error(&refusal.0);
            }
        }
        if draft.is_clean() {
            return;
        }
        let written = entry(draft, &mut self.place);
        if let Err(failure) = written.and_then(|(entry, others)| self.write(entry, others)) {
            out.bytes.truncate(start);
            out.error(&Refusal::from(failure).0);
        }
    }

    fn memcache(&mut self, command: &memcache::Command, now: u64, out: &mut Vec<u8>) {
        if let Err(refusal) = self.usable() {
            memcache::refuse(&refusal, out);
            return;
        }
        let start = out.len();
        let mut draft = Draft::new(self.store.records(), now);
        let outcome = memcache::run(command, &mut draft, &mut self.place, out);
        let outcome = match outcome {
            Ok(()) if draft.is_clean() => Ok(()),
            Ok(()) => entry(draft, &mut self.place)
                .and_then(|(entry, others)| self.write(entry, others))
                .map_err(Refusal::from),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = outcome {
            out.truncate(start);
            memcache::refuse(&refusal, out);
        }
    }

    /// Applies the entry of a request, which pays for the removal of dropped members.
    fn write(&mut self, entry: Entry, others: u64) -> Result<(), Failure> {
        let records = entry.0.len();
        self.apply(entry, others)?;
        self.reaper.owe(records);
        Ok(())
    }

    /// Applies an entry, if it is admitted: one batch, staged until the commit.
    fn apply(&mut self, entry: Entry, others: u64) -> Result<(), Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::Broken(why.clone()));
        }
        let Entry(changes) = entry;
        match &mut self.store {
            Store::Alone(engine) => {
                admit(engine, changes.iter(), Bounds::ALONE, |key| engine.bytes_of(key))?;
                apply_alone(engine, &mut self.batch, &changes)?;
            }
            Store::Group(group) => group.stage(&changes)?,
        }
        self.staged = true;
        self.writes += 1;
        self.place.set_others(others);
        if self.place.watches.any() {
            for (record, change) in &changes {
                self.place.watches.touch(record, change.is_some());
            }
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::Broken(why.clone()));
        }
        match &mut self.store {
            Store::Alone(engine) => engine.clear().map_err(|error| engine::failure(&error))?,
            Store::Group(group) => group.clear(),
        }
        self.place.cleared();
        self.writes += 1;
        Ok(())
    }

    /// Ends a turn with a commit. The replies of the turn may be sent afterwards; if it fails, they must not,
    /// because some of them may show writes that are not durable. In the turns after that every reply to a
    /// request for records is an error, so they may be sent.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        let committed = self.commit();
        if std::mem::take(&mut self.lost) || self.broken.is_none() { committed } else { Ok(()) }
    }

    /// Makes the writes of the turn durable with one fence. Fails from the first failure on.
    fn commit(&mut self) -> Result<(), Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::Broken(why.clone()));
        }
        if !std::mem::take(&mut self.staged) {
            return Ok(());
        }
        match &mut self.store {
            Store::Alone(engine) => engine.commit().map_err(|error| {
                self.broken = Some(error.to_string());
                (self.is_full, self.lost) = (error.is_full(), true);
                engine::failure(&error)
            }),
            Store::Group(_) => Ok(()), // the round makes them durable
        }
    }

    /// Tries again what there was no room for. What is staged then was not acknowledged, and nothing was added to it.
    fn commit_again(&mut self) {
        if let Store::Alone(engine) = &mut self.store {
            engine.look_for_room();
            if engine.commit().is_ok() {
                tracing::info!(
                    partition = self.place.number,
                    "there is room again: requests are served"
                );
                (self.broken, self.is_full) = (None, false);
            }
        }
    }

    /// Returns the group, if there is one.
    pub(crate) fn group(&mut self) -> Option<&mut Group> {
        match &mut self.store {
            Store::Alone(_) => None,
            Store::Group(group) => Some(group),
        }
    }

    /// Ends the turn of a node of a group; returns `None` if there is no group. Fails once: afterwards the node
    /// does not lead, and refuses requests.
    pub(crate) fn round(&mut self) -> Option<Result<Round, Failure>> {
        let Store::Group(group) = &mut self.store else { return None };
        if self.broken.is_some() {
            return Some(Ok(group.ended())); // every request is refused
        }
        let round = group.round().map_err(|error| {
            group.ended(); // from now on, also for reads of the next turn
            self.broken = Some(error.to_string());
            Failure::Broken(error.to_string())
        });
        let (began, lost) = round.as_ref().map_or((false, false), |it| (it.began, it.lost));
        if (began || lost)
            && let Err(failure) = self.reread()
        {
            let what = format!("{failure:?}");
            tracing::error!(partition = self.place.number, what, "its records cannot be read");
            // If it lost leadership, it serves nothing, and goes on for the others. It must not begin to serve with
            // counters that are too old: it would give ids again that collections have.
            if began {
                if let Store::Group(group) = &mut self.store {
                    group.ended(); // the others elect another leader
                }
                self.broken = Some(what);
                return Some(Err(failure));
            }
        }
        Some(round)
    }

    /// Reads the state in memory from the records again. If it fails, that is as old as before, and watched keys count
    /// as changed all the same.
    fn reread(&mut self) -> Result<(), Failure> {
        self.place.watches.touch_all();
        self.reaper = Reaper::default();
        self.staged = false;
        let place = Place::open(self.store.records(), self.place.random())?;
        let before = std::mem::replace(&mut self.place, place);
        (self.place.number, self.place.next) = (before.number, before.next);
        (self.place.watches, self.place.damaged) = (before.watches, before.damaged);
        Ok(())
    }

    /// Does deferred work: removes expired records and members of dropped collections, and collects space. Does
    /// what the writes of the turn pay for, and a slice more if that is due. Returns `true` if more is left.
    pub(crate) fn upkeep(&mut self, now: u64, due: bool) -> Result<bool, Failure> {
        if due && self.is_full {
            self.commit_again();
        }
        if self.broken.is_some() {
            return Ok(false);
        }
        let mut more = due && self.upkeep_engine(now)?;
        let serves = match self.group() {
            Some(group) => group.leads().is_ok() && !group.is_busy(),
            None => true,
        };
        if serves {
            more |= self.reap(now, due)?;
        }
        Ok(more)
    }

    /// Removes expired records and collects space, a slice of each.
    fn upkeep_engine(&mut self, now: u64) -> Result<bool, Failure> {
        let failed = |error| engine::failure(&error);
        match &mut self.store {
            Store::Alone(engine) => {
                let expired = engine.expire(now, Budget::default()).map_err(failed)?;
                let collected = engine.collect(Budget::default()).map_err(failed)?;
                self.staged |= expired > 0 || collected.copied > 0;
                Ok(expired > 0 || !collected.done)
            }
            Store::Group(group) => group.upkeep(now),
        }
    }

    /// Removes members of dropped collections, and looks for collections that were dropped by their expiry.
    fn reap(&mut self, now: u64, due: bool) -> Result<bool, Failure> {
        let slice = if due { REAP } else { 0 };
        let mut left = self.reaper.due(slice, &self.place);
        while left > 0 && !self.place.dropped.is_empty() {
            let mut draft = Draft::new(self.store.records(), now);
            let done = Reaper::drop_step(&mut draft, &mut self.place, left)?;
            left = left.saturating_sub(done);
            if !draft.is_clean() {
                let (entry, others) = entry(draft, &mut self.place)?;
                self.apply(entry, others)?;
            }
        }
        let mut more = !self.place.dropped.is_empty();
        let owners = self.reaper.due_owners(if due { WALK } else { 0 }, &self.place);
        if owners > 0 && crate::worker::is_due(now, self.next_walk, WALK_EVERY) {
            let draft = Draft::new(self.store.records(), now);
            let going = self.reaper.walk_step(&draft, &mut self.place, owners)?;
            more |= going;
            if !going {
                self.next_walk = now + WALK_EVERY;
            }
        }
        Ok(more)
    }

    /// Fetches the records of clients' keys into the caches.
    pub(crate) fn prefetch(&self, keys: &Keys) {
        self.store.prefetch(keys.iter());
    }

    /// Returns the figures of the engine.
    pub(crate) fn figures(&self) -> pmindex_rstore::Stats {
        self.store.stats()
    }

    /// Returns the number of clients' keys.
    pub(crate) fn keys(&self) -> u64 {
        self.place.keys(self.store.records().len())
    }

    /// Waits until committed writes survive a power failure, if the mode of the pool defers that.
    pub(crate) fn sync(&mut self) -> Result<(), Failure> {
        self.commit()?;
        let pool = match &self.store {
            Store::Alone(engine) => engine.pool(),
            Store::Group(group) => group.pool(),
        };
        pool.sync().map_err(|error| Failure::Broken(error.to_string()))
    }

    /// Closes the engine cleanly: the next opening replays nothing.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let broken = |error: &dyn std::fmt::Display| Failure::Broken(error.to_string());
        let engine = match self.store {
            Store::Alone(engine) => *engine,
            Store::Group(group) => group.close().map_err(|error| broken(&error))?,
        };
        let pool = std::sync::Arc::clone(engine.pool());
        engine.close().map_err(|error| engine::failure(&error))?;
        if let Some(pool) = std::sync::Arc::into_inner(pool) {
            pool.close().map_err(|error| Failure::Broken(error.to_string()))?;
        }
        Ok(())
    }
}

/// Applies changes to an engine that belongs to this process alone.
fn apply_alone(
    engine: &mut pmindex_rstore::Partition,
    batch: &mut Batch,
    changes: &BTreeMap<Vec<u8>, Change>,
) -> Result<(), Failure> {
    let expiry = |expires: u64| (expires != NEVER).then_some(expires);
    let done = if changes.len() == 1 {
        changes.iter().try_for_each(|(key, change)| match change {
            Some(stored) => engine.put(key, &stored.value, expiry(stored.expires)),
            None => engine.remove(key).map(drop),
        })
    } else {
        batch.clear();
        for (key, change) in changes {
            match change {
                Some(stored) => batch.put(key, &stored.value, expiry(stored.expires)),
                None => batch.remove(key),
            };
        }
        engine.write(batch)
    };
    done.map_err(|error| engine::failure(&error))
}

/// Runs one command on a draft.
fn call(
    spec: &'static Spec,
    args: Args<'_>,
    draft: &mut Draft<'_>,
    place: &mut Place,
    out: &mut Reply,
) -> Result<(), Refusal> {
    let run = spec.run_at_partition();
    let run = run.ok_or(Refusal::of("ERR Command not allowed inside a transaction"))?;
    debug_assert!(
        spec.takes(args.len())
            || std::ptr::eq(spec, &raw const WATCH_KEY)
            || std::ptr::eq(spec, &raw const UNWATCH_KEY)
    );
    run(&mut Call { name: spec.name, args, draft, place, out })
}

/// Returns the entry of a draft, and the number of records that are no clients' keys after it.
fn entry(mut draft: Draft<'_>, place: &mut Place) -> Result<(Entry, u64), Failure> {
    let others = place.count_others(&mut draft)?;
    Ok((Entry(draft.into_changes()), others))
}
