//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: within one slot, if there are several partitions.
//!
//! The partition of the keys runs the commands. Messages of `PUBLISH` among them are sent by its thread when what the
//! others have written is durable, in a group by a majority; the counts of their listeners are parts of the reply, which
//! the connection puts in their places.

use std::sync::Arc;

use crate::command::table::{Session, UNWATCH_KEY, UNWATCH_LATER, WATCH_KEY};
use crate::command::{Refusal, Run, Spec};
use crate::group::{Gate, Round};
use crate::keyspace::slot;
use crate::shard::{Transaction, Watch, Work};
use crate::wire::{Args, Protocol, Reply, Request};

use super::connection::{Connection, Multi};
use super::mail::{Message, Task, Ticket};
use super::run::Worker;
use super::slots::{Finished, Then};

/// The bytes that the commands of a transaction may occupy.
const MOST_QUEUED: usize = 128 << 20;

/// The messages of a transaction that has run.
#[derive(Debug)]
pub(super) struct Held {
    messages: Arc<[Request]>,
    /// The thread of the connection, and its slot.
    of: usize,
    ticket: Ticket,
    /// `None` in the turn of the transaction.
    gate: Option<Gate>,
}

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
        let slot = self.slot_in_transaction(connection, spec, args);
        let Some(multi) = &mut connection.multi else { return };
        match slot {
            Ok(slot) => multi.slot = multi.slot.or(slot),
            Err(refusal) => {
                multi.refused = true;
                connection.refuse(&refusal.0);
                return;
            }
        }
        let request = args.to_request();
        multi.size += request.footprint();
        multi.commands.push((spec, request));
        connection.answer(|reply| reply.simple("QUEUED"));
    }

    /// Returns the slot of a command for `EXEC`, if it has one, or refuses the command.
    fn slot_in_transaction(
        &self,
        connection: &Connection,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Result<Option<u16>, Refusal> {
        let everywhere = matches!(spec.run, Run::Everywhere(..) | Run::Session(Session::Scan));
        let runs_here = spec.run_at_partition().is_some() && !(everywhere && self.is_spread());
        if !runs_here && !is_message(spec) {
            return Err(Refusal::of("ERR Command not allowed inside a transaction"));
        }
        let (size, first) =
            connection.multi.as_ref().map_or((0, None), |multi| (multi.size, multi.slot));
        if size > MOST_QUEUED {
            return Err(Refusal::of("ERR the transaction is too large"));
        }
        let slot = self.slot_of(spec, args)?;
        if slot.is_some() && first.is_some() && slot != first {
            return Err(Refusal::CROSS_SLOT);
        }
        self.home(slot)?;
        Ok(slot)
    }

    pub(super) fn multi(connection: &mut Connection) -> Result<(), Refusal> {
        if connection.multi.is_some() {
            return Err(Refusal::of("ERR MULTI calls can not be nested"));
        }
        connection.multi = Some(Multi::default());
        connection.answer(Reply::ok);
        Ok(())
    }

    pub(super) fn discard(&mut self, connection: &mut Connection) -> Result<(), Refusal> {
        if connection.multi.take().is_none() {
            return Err(Refusal::of("ERR DISCARD without MULTI"));
        }
        self.unwatch(connection);
        connection.answer(Reply::ok);
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
        let mut slot = multi.slot;
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
        let parts = 1 + if messages.is_empty() { 0 } else { self.common.partitions() };
        let slot = connection.slots.wait(parts, Then::Executed(places));
        // Other messages of this connection come after those of the transaction.
        connection.barrier = Some(slot).filter(|_| !messages.is_empty());
        let ticket = Ticket { token, connection: connection.id, slot, part: 0 };
        let protocol = connection.reply.protocol;
        if home == self.number {
            for (part, reply) in self.execute(self.number, ticket, transaction, protocol, messages)
            {
                if connection.slots.done(slot, part, reply, protocol).is_some() {
                    connection.lift(slot);
                }
            }
        } else {
            self.ask(home, ticket, Task::Transaction(transaction, protocol, messages));
        }
        Ok(())
    }

    /// Runs a transaction of a connection of the thread `of`. Returns the parts of its reply that are known; if it has
    /// run, its messages, and the parts with the counts of their listeners, wait until it is durable.
    pub(super) fn execute(
        &mut self,
        of: usize,
        ticket: Ticket,
        transaction: Transaction,
        protocol: Protocol,
        messages: Vec<Request>,
    ) -> Vec<(usize, Vec<u8>)> {
        let reply = self.shard.work(&Work::Transaction(transaction), protocol, self.now);
        let has_run = reply.starts_with(b"*") && !reply.starts_with(b"*-");
        let mut parts = vec![(0, reply)];
        if has_run && !messages.is_empty() {
            self.held.push(Held { messages: messages.into(), of, ticket, gate: None });
        } else if !messages.is_empty() {
            parts.extend((1..=self.common.partitions()).map(|part| (part, Vec::new())));
        }
        parts
    }

    /// Sends the messages of transactions that are durable; drops them if the turn has failed.
    pub(super) fn send_held(&mut self, round: Option<&Round>, failed: bool) {
        let mut sent = false;
        for mut held in std::mem::take(&mut self.held) {
            let gate = held.gate.or(round.and_then(|round| round.gate));
            if failed {
                for part in 1..=self.common.partitions() {
                    self.tell_count(held.of, Ticket { part, ..held.ticket }, Vec::new());
                }
            } else if let (Some(gate), Some(round)) = (gate, round)
                && !round.opens(gate)
            {
                held.gate = Some(gate);
                self.held.push(held);
            } else {
                self.send_messages(&held);
                sent = true;
            }
        }
        if sent {
            self.deliver();
        }
    }

    fn send_messages(&mut self, Held { messages, of, ticket, .. }: &Held) {
        if let Some(group) = self.shard.group() {
            for message in messages.iter() {
                group.publish(message.args().at(1), message.args().at(2));
            }
        }
        for thread in 0..self.common.partitions() {
            let ticket = Ticket { part: 1 + thread, ..*ticket };
            if thread == self.number {
                let counts = self.publish_all(messages);
                self.tell_count(*of, ticket, counts);
            } else {
                let task = Task::Messages(Arc::clone(messages));
                self.outbox.push(thread, Message::Job { from: *of, ticket, task });
            }
        }
    }

    /// Gives a connection a part of the reply to its transaction, after the commit of the turn.
    fn tell_count(&mut self, of: usize, ticket: Ticket, reply: Vec<u8>) {
        if of == self.number {
            self.done(ticket, reply);
        } else {
            self.outbox.push(of, Message::Done { ticket, reply });
        }
    }

    /// Queues messages for the listeners of this thread; returns the array of their numbers.
    pub(super) fn publish_all(&mut self, messages: &[Request]) -> Vec<u8> {
        let mut counts = Reply::new(Protocol::Resp2);
        counts.array(messages.len());
        for message in messages {
            counts.count(self.publish_here(message.args().at(1), message.args().at(2)));
        }
        counts.bytes
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
        connection.barrier = Some(slot);
        for key in keys.iter() {
            connection.watched.push(Watch { key: key.to_vec(), version: 0, existed: false });
        }
        for (part, key) in keys.iter().enumerate() {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            let request = Request::new([&b"watch"[..], key]);
            let partition = self.partition_of(key);
            let protocol = connection.reply.protocol;
            if partition == self.number {
                let mut reply = Reply::new(protocol);
                self.shard.run(&WATCH_KEY, request.args(), self.now, &mut reply);
                let finished = connection.slots.done(slot, part, reply.bytes, protocol);
                if let Some(Finished::Versions(versions)) = finished {
                    watching(connection, &versions);
                    connection.lift(slot);
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
                self.ask(partition, ticket, Task::Work(work, Protocol::Resp2));
            }
        }
    }
}
