//! Dispatches a request: to this partition, to another one, to several, or to all.

use crate::command::table::{AT_ONCE, NO_AUTH};
use crate::command::{Gather, Refusal, Run, Spec, table};
use crate::keyspace::slot;
use crate::shard::Work;
use crate::wire::{Args, Protocol, Reply, Request};

use super::common::add;
use super::connection::Connection;
use super::mail::{Message, Task, Ticket};
use super::run::Worker;
use super::slots::Then;

/// Returns the error for an unknown command, in the words of Redis.
fn unknown(args: Args<'_>) -> String {
    // C prints up to the first zero byte.
    let cut = |word: &[u8], most: usize| {
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(&word[..word.len().min(most)]).into_owned()
    };
    let mut rest = String::new();
    for word in args.from(1).iter() {
        if rest.len() >= 128 {
            break;
        }
        rest += &format!("'{}' ", cut(word, 128 - rest.len()));
    }
    let name = cut(args.at(0), 128);
    format!("ERR unknown command '{name}', with args beginning with: {rest}")
}

/// The commands that a subscriber may send in RESP2.
const FOR_SUBSCRIBERS: [&str; 8] = [
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "subscribe",
    "unsubscribe",
    "ssubscribe",
];

impl Worker {
    /// Runs a request, queues it in a transaction, or refuses it.
    pub(super) fn request(&mut self, connection: &mut Connection, token: usize, args: Args<'_>) {
        if args.is_empty() {
            return;
        }
        add(&self.common.figures[self.number].commands, 1);
        let spec = match allowed(connection, args) {
            Ok(spec) => spec,
            Err(text) => {
                self.refuse_now(connection, args, &text);
                return;
            }
        };
        connection.last = Some(spec);
        if let Err(refusal) = self.ask_group(spec, args) {
            self.refuse_now(connection, args, &refusal.0);
            return;
        }
        if connection.multi.is_some() && !spec.has(AT_ONCE) {
            self.queue_in_transaction(connection, spec, args);
            return;
        }
        if is_subscriber(connection) && spec.name == "ping" {
            connection.answer(|reply| reply.bulks(&[&b"pong"[..], args.at(1)]));
            return;
        }
        let outcome = match spec.run {
            Run::Keyed(_) => self.keyed(connection, token, spec, args),
            Run::Split(_, gather) => self.split(connection, token, spec, gather, args),
            Run::Everywhere(_, gather) => self.everywhere(connection, token, spec, gather, args),
            Run::Clear if !clears(args) => Err(Refusal::SYNTAX),
            Run::Clear => self.everywhere(connection, token, spec, Gather::Ok, args),
            Run::Session(command) => self.session(connection, token, spec, command, args),
        };
        if let Err(refusal) = outcome {
            add(&self.common.figures[self.number].refused, 1);
            connection.refuse(&refusal.0);
        }
    }

    /// Refuses a request before it runs. A transaction that it belongs to will not run; one that it is to run ends.
    fn refuse_now(&mut self, connection: &mut Connection, args: Args<'_>, text: &str) {
        add(&self.common.figures[self.number].refused, 1);
        if !args.is(0, "EXEC") {
            if let Some(multi) = &mut connection.multi {
                multi.refused = true;
            }
            connection.refuse(text);
            return;
        }
        connection.multi = None;
        self.unwatch(connection);
        match text.strip_prefix("ERR ") {
            Some(why) => {
                connection.refuse(&format!("EXECABORT Transaction discarded because of: {why}"));
            }
            None => connection.refuse(text),
        }
    }

    /// Refuses a command that needs the records, if the group of its slot has its leader elsewhere.
    fn ask_group(&mut self, spec: &Spec, args: Args<'_>) -> Result<(), Refusal> {
        use crate::command::table::Session;
        let reads = match spec.run {
            Run::Session(command) => {
                matches!(command, Session::Exec | Session::Scan | Session::Watch | Session::Save)
            }
            _ => true,
        };
        if self.common.groups.is_empty() || !reads {
            return Ok(());
        }
        let slot = self.slot_of(spec, args)?;
        self.home(slot)?;
        let (number, first) = (self.number, slot::range(self.number, self.common.partitions()).0);
        let Some(group) = self.shard.group() else { return Ok(()) };
        match group.leads() {
            Ok(()) if group.is_busy() => Err(Refusal::of(
                "TRYAGAIN too many writes wait for the group, or its leader changes; try again later",
            )),
            Ok(()) => {
                group.note_command();
                Ok(())
            }
            Err(Some(leader)) => {
                let keyed = || spec.keys.of(args.len()).next().map(|key| slot::of(args.at(key)));
                let slot = slot.or_else(keyed).unwrap_or(first);
                Err(format!("MOVED {slot} {}", leader.clients_of(number)).into())
            }
            Err(None) => Err(Refusal::NO_LEADER),
        }
    }

    /// Returns `true` if some commands run in all partitions.
    pub(super) fn is_spread(&self) -> bool {
        !self.common.cluster && self.common.partitions() > 1
    }

    /// Returns `true` if the keys of one command must share a slot.
    pub(super) fn is_parted(&self) -> bool {
        self.common.cluster || self.common.partitions() > 1
    }

    pub(super) fn partition_of(&self, key: &[u8]) -> usize {
        match self.common.partitions() {
            1 => 0,
            partitions => slot::partition(slot::of(key), partitions),
        }
    }

    /// Returns the slot of a command's keys; `None` if it has no keys or slots do not matter.
    pub(super) fn slot_of(&self, spec: &Spec, args: Args<'_>) -> Result<Option<u16>, Refusal> {
        if !self.is_parted() {
            return Ok(None);
        }
        let mut found = None;
        for number in spec.keys.of(args.len()) {
            let slot = slot::of(args.at(number));
            if found.is_some_and(|found| found != slot) {
                return Err(Refusal::CROSS_SLOT);
            }
            found = Some(slot);
        }
        Ok(found)
    }

    /// Returns the partition of a slot; in a cluster, an error with its address if it is elsewhere.
    pub(super) fn home(&self, slot: Option<u16>) -> Result<usize, Refusal> {
        let Some(slot) = slot else { return Ok(self.number) };
        let partition = slot::partition(slot, self.common.partitions());
        if self.common.cluster && partition != self.number && !self.common.groups.is_empty() {
            let view = self.common.view(partition);
            let leader = view.leading().ok_or(Refusal::NO_LEADER)?;
            return Err(format!("MOVED {slot} {}", leader.clients_of(partition)).into());
        }
        if self.common.cluster && partition != self.number {
            let address = self.common.addresses[partition];
            let host = self.announced(address);
            return Err(format!("MOVED {slot} {host}:{}", address.port()).into());
        }
        Ok(partition)
    }

    fn keyed(
        &mut self,
        connection: &mut Connection,
        token: usize,
        spec: &'static Spec,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let slot = self.slot_of(spec, args)?;
        let home = self.home(slot)?;
        self.run_at(home, connection, token, spec, args);
        Ok(())
    }

    /// Runs a command in one partition.
    pub(super) fn run_at(
        &mut self,
        partition: usize,
        connection: &mut Connection,
        token: usize,
        spec: &'static Spec,
        args: Args<'_>,
    ) {
        if partition == self.number {
            let (shard, now) = (&mut self.shard, self.now);
            connection.answer(|reply| shard.run(spec, args, now, reply));
        } else {
            let slot = connection.slots.wait(1, Then::Join);
            let ticket = Ticket { token, connection: connection.id, slot, part: 0 };
            let work = Work::One(spec, args.to_request());
            self.ask(partition, ticket, Task::Work(work, connection.reply.protocol));
        }
    }

    /// Sends a job to another partition.
    pub(super) fn ask(&mut self, to: usize, ticket: Ticket, task: Task) {
        add(&self.common.figures[self.number].forwarded, 1);
        self.outbox.push(to, Message::Job { from: self.number, ticket, task });
    }

    /// Runs a part of a command with a waiting slot: at once if it is here, or elsewhere.
    pub(super) fn part(
        &mut self,
        partition: usize,
        connection: &mut Connection,
        ticket: Ticket,
        spec: &'static Spec,
        request: Request,
    ) {
        let protocol = connection.reply.protocol;
        if partition == self.number {
            let mut reply = Reply::new(protocol);
            self.shard.run(spec, request.args(), self.now, &mut reply);
            connection.slots.done(ticket.slot, ticket.part, reply.bytes, protocol);
        } else {
            self.ask(partition, ticket, Task::Work(Work::One(spec, request), protocol));
        }
    }

    fn split(
        &mut self,
        connection: &mut Connection,
        token: usize,
        spec: &'static Spec,
        gather: Gather,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        if !self.is_spread() || args.len() == 2 {
            return self.keyed(connection, token, spec, args);
        }
        let mut parts: Vec<(usize, Request, Vec<usize>)> = Vec::new();
        for (place, key) in args.from(1).iter().enumerate() {
            let partition = self.partition_of(key);
            let known = parts.iter().position(|part| part.0 == partition);
            let at = known.unwrap_or_else(|| {
                parts.push((partition, Request::new([args.at(0)]), Vec::new()));
                parts.len() - 1
            });
            parts[at].1.push(key);
            parts[at].2.push(place);
        }
        if let [(partition, _, _)] = parts[..] {
            self.run_at(partition, connection, token, spec, args);
            return Ok(());
        }
        let then = match gather {
            Gather::Values => Then::Values(parts.iter().map(|part| part.2.clone()).collect()),
            other => Then::Gather(other),
        };
        let slot = connection.slots.wait(parts.len(), then);
        for (part, (partition, request, _)) in parts.into_iter().enumerate() {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            self.part(partition, connection, ticket, spec, request);
        }
        Ok(())
    }

    pub(super) fn everywhere(
        &mut self,
        connection: &mut Connection,
        token: usize,
        spec: &'static Spec,
        gather: Gather,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let partitions = self.common.partitions();
        if !self.is_spread() {
            self.run_at(self.number, connection, token, spec, args);
            return Ok(());
        }
        let mut turn = 0;
        let then = match gather {
            Gather::Merge => {
                let options = crate::command::range_options(args)?;
                let words = if options.keys_only { 1 } else { 2 };
                Then::Merge { limit: options.limit, reverse: options.reverse, words }
            }
            Gather::Any => {
                turn = self.shard.place.random() as usize % partitions;
                Then::Gather(gather)
            }
            other => Then::Gather(other),
        };
        let slot = connection.slots.wait(partitions, then);
        for partition in 0..partitions {
            let part = (partition + turn) % partitions;
            let ticket = Ticket { token, connection: connection.id, slot, part };
            self.part(partition, connection, ticket, spec, args.to_request());
        }
        Ok(())
    }
}

/// Returns `true` if these are words of `FLUSHALL [ASYNC | SYNC]`.
fn clears(args: Args<'_>) -> bool {
    args.len() == 1 || (args.len() == 2 && (args.is(1, "ASYNC") || args.is(1, "SYNC")))
}

/// Returns `true` if the connection cannot distinguish replies from messages.
fn is_subscriber(connection: &Connection) -> bool {
    connection.subscriptions > 0 && connection.reply.protocol == Protocol::Resp2
}

/// Returns the command, if it exists and this connection may send it now.
fn allowed(connection: &Connection, args: Args<'_>) -> Result<&'static Spec, String> {
    let name = args.at(0);
    let again = connection.last.filter(|last| last.name.as_bytes().eq_ignore_ascii_case(name));
    let spec = again.or_else(|| table::find(name)).ok_or_else(|| unknown(args))?;
    if !spec.takes(args.len()) {
        return Err(Refusal::arity(spec.name).0.into_owned());
    }
    match &connection.user {
        None if !spec.has(NO_AUTH) => return Err("NOAUTH Authentication required.".into()),
        Some(user) => {
            if let Some(text) = user.refusal(spec, args) {
                return Err(text);
            }
        }
        None => {}
    }
    if is_subscriber(connection) && !FOR_SUBSCRIBERS.contains(&spec.name) {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context",
            spec.name
        ));
    }
    Ok(spec)
}
