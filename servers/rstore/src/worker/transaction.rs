//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: within one slot, if there are several partitions.
//!
//! The partition of the keys runs the commands. Messages of `PUBLISH` among them are sent by its thread when the
//! others have run; the counts of their listeners are parts of the reply, which the connection puts in their places.

use crate::command::table::{Session, UNWATCH_KEY, UNWATCH_LATER, WATCH_KEY};
use crate::command::{Refusal, Run, Spec};
use crate::keyspace::slot;
use crate::shard::{Transaction, Watch, Work};
use crate::wire::{Args, Protocol, Request};

use super::connection::{Connection, Multi};
use super::mail::{Message, Task, Ticket};
use super::run::Worker;
use super::slots::{Finished, Then};

/// The bytes that the commands of a transaction may occupy.
const MOST_QUEUED: usize = 128 << 20;

/// Returns `true` for `PUBLISH`, which needs no partition.
fn is_message(spec: &Spec) -> bool {
    matches!(spec.run, Run::Session(Session::Publish))
}

/// Stores the versions of the keys that a connection began to watch last.
pub(super) fn watching(connection: &mut Connection, versions: &[u64]) {
    let first = connection.watched.len() - versions.len().min(connection.watched.len());
    for (watch, reply) in connection.watched[first..].iter_mut().zip(versions) {
        (watch.version, watch.existed) = (reply >> 1, reply & 1 == 1);
    }
    connection.barrier = false;
}

impl Worker {
    /// Queues a command for `EXEC`.
    pub(super) fn queue_in_transaction(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        args: Args<'_>,
    ) {
        let spec = if spec.name == UNWATCH_LATER.name { &UNWATCH_LATER } else { spec };
        let refusal = self.queue_refusal(connection, spec, args);
        let Some(multi) = &mut connection.multi else { return };
        if let Some(refusal) = refusal {
            multi.refused = true;
            connection.refuse(&refusal.0);
            return;
        }
        let request = args.to_request();
        multi.size += request.footprint();
        multi.commands.push((spec, request));
        connection.answer(|reply| reply.simple("QUEUED"));
    }

    fn queue_refusal(
        &self,
        connection: &Connection,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Option<Refusal> {
        let everywhere = matches!(spec.run, Run::Everywhere(..) | Run::Session(Session::Scan));
        let runs_here = spec.run_at_partition().is_some() && !(everywhere && self.is_spread());
        if !runs_here && !is_message(spec) {
            return Some(Refusal::of("ERR Command not allowed inside a transaction"));
        }
        let size = connection.multi.as_ref().map_or(0, |multi| multi.size);
        if size > MOST_QUEUED {
            return Some(Refusal::of("ERR the transaction is too large"));
        }
        let slot = match self.slot_of(spec, args) {
            Ok(slot) => slot,
            Err(refusal) => return Some(refusal),
        };
        let first = connection.multi.as_ref().and_then(|multi| self.slot_of_all(&multi.commands));
        match (slot, first) {
            (Some(slot), Some(first)) if slot != first => Some(Refusal::CROSS_SLOT),
            _ => self.home(slot).err(),
        }
    }

    /// Returns the slot of the first command that has one.
    fn slot_of_all(&self, commands: &[(&'static Spec, Request)]) -> Option<u16> {
        commands
            .iter()
            .find_map(|(spec, request)| self.slot_of(spec, request.args()).ok().flatten())
    }

    pub(super) fn multi(connection: &mut Connection) -> Result<(), Refusal> {
        if connection.multi.is_some() {
            return Err(Refusal::of("ERR MULTI calls can not be nested"));
        }
        connection.multi = Some(Multi::default());
        connection.answer(crate::wire::Reply::ok);
        Ok(())
    }

    pub(super) fn discard(&mut self, connection: &mut Connection) -> Result<(), Refusal> {
        if connection.multi.take().is_none() {
            return Err(Refusal::of("ERR DISCARD without MULTI"));
        }
        self.unwatch(connection);
        connection.answer(crate::wire::Reply::ok);
        Ok(())
    }

    pub(super) fn exec(
        &mut self,
        connection: &mut Connection,
        token: usize,
    ) -> Result<(), Refusal> {
        let multi = connection.multi.take().ok_or(Refusal::of("ERR EXEC without MULTI"))?;
        if multi.refused {
            self.unwatch(connection);
            return Err(Refusal::of("EXECABORT Transaction discarded because of previous errors."));
        }
        let mut slot = self.slot_of_all(&multi.commands);
        if self.is_parted() {
            for watch in &connection.watched {
                let watched = slot::of(&watch.key);
                if slot.is_some_and(|slot| slot != watched) {
                    self.unwatch(connection);
                    return Err(Refusal::CROSS_SLOT);
                }
                slot = Some(watched);
            }
        }
        let home = self.home(slot).inspect_err(|_| self.unwatch(connection))?;
        let watched = std::mem::take(&mut connection.watched);
        let (mut commands, mut messages, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (spec, request)) in multi.commands.into_iter().enumerate() {
            if is_message(spec) {
                places.push(place);
                messages.push(request);
            } else {
                commands.push((spec, request));
            }
        }
        let transaction = Transaction { commands, watched };
        if home == self.number && messages.is_empty() {
            let (shard, now) = (&mut self.shard, self.now);
            connection.answer(|reply| shard.transact(&transaction, now, reply));
            return Ok(());
        }
        let parts = 1 + messages.len() * self.common.partitions();
        // Other messages of this connection come after those of the transaction.
        connection.barrier = !messages.is_empty();
        let slot = connection.slots.wait(parts, Then::Executed(places));
        let ticket = Ticket { token, connection: connection.id, slot, part: 0 };
        let protocol = connection.reply.protocol;
        if home == self.number {
            for (part, reply) in self.execute(self.number, ticket, transaction, protocol, &messages)
            {
                let finished = connection.slots.done(slot, part, reply, protocol);
                connection.barrier &= finished.is_none();
            }
        } else {
            self.ask(home, ticket, Task::Transaction(transaction, protocol, messages));
        }
        Ok(())
    }

    /// Runs a transaction of a connection of the thread `of`, and sends its messages if it has run. Returns the
    /// parts of its reply that this thread knows; those of other threads are on their way to the connection.
    pub(super) fn execute(
        &mut self,
        of: usize,
        ticket: Ticket,
        transaction: Transaction,
        protocol: Protocol,
        messages: &[Request],
    ) -> Vec<(usize, Vec<u8>)> {
        let reply = self.shard.work(&Work::Transaction(transaction), protocol, self.now);
        let has_run = reply.starts_with(b"*") && !reply.starts_with(b"*-");
        let (mut parts, mut part) = (vec![(0, reply)], 0);
        for message in messages {
            let (channel, text) = (message.args().at(1), message.args().at(2));
            if has_run && let Some(group) = self.shard.group() {
                group.publish(channel, text);
            }
            for thread in 0..self.common.partitions() {
                part += 1;
                if !has_run {
                    parts.push((part, Vec::new()));
                } else if thread == self.number {
                    let count = self.publish_here(channel, text);
                    parts.push((part, format!(":{count}\r\n").into_bytes()));
                } else {
                    let (channel, message) = (channel.to_vec(), text.to_vec());
                    let task = Task::Publish { channel, message };
                    let ticket = Ticket { part, ..ticket };
                    self.outbox.push(thread, Message::Job { from: of, ticket, task });
                }
            }
        }
        parts
    }

    pub(super) fn watch(
        &mut self,
        connection: &mut Connection,
        token: usize,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        if connection.multi.is_some() {
            return Err(Refusal::of("ERR WATCH inside MULTI is not allowed"));
        }
        if self.common.cluster {
            let spec = crate::command::table::find(b"watch").ok_or(Refusal::SYNTAX)?;
            self.home(self.slot_of(spec, args)?)?;
        }
        let keys = args.from(1);
        let slot = connection.slots.wait(keys.len(), Then::Watch);
        connection.barrier = true;
        for key in keys.iter() {
            connection.watched.push(Watch { key: key.to_vec(), version: 0, existed: false });
        }
        for (part, key) in keys.iter().enumerate() {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            let request = Request::new([&b"watch"[..], key]);
            let partition = self.partition_of(key);
            let protocol = connection.reply.protocol;
            if partition == self.number {
                let mut reply = crate::wire::Reply::new(protocol);
                self.shard.run(&WATCH_KEY, request.args(), self.now, &mut reply);
                let finished = connection.slots.done(slot, part, reply.bytes, protocol);
                if let Some(Finished::Versions(versions)) = finished {
                    watching(connection, &versions);
                }
            } else {
                self.ask(partition, ticket, Task::Work(Work::One(&WATCH_KEY, request), protocol));
            }
        }
        Ok(())
    }

    /// Ends all watches.
    pub(super) fn unwatch(&mut self, connection: &mut Connection) {
        let watched = std::mem::take(&mut connection.watched);
        self.forget_watches(&watched);
    }

    /// Ends watches, without a reply.
    pub(super) fn forget_watches(&mut self, watched: &[Watch]) {
        for watch in watched {
            let partition = self.partition_of(&watch.key);
            if partition == self.number {
                self.shard.place.watches.unwatch(&watch.key, watch.version);
            } else {
                let version = watch.version.to_string();
                let request = Request::new([&b"unwatch"[..], &watch.key, version.as_bytes()]);
                let ticket = Ticket { token: usize::MAX, connection: 0, slot: 0, part: 0 };
                let work = Work::One(&UNWATCH_KEY, request);
                self.ask(partition, ticket, Task::Work(work, crate::wire::Protocol::Resp2));
            }
        }
    }
}
