//! The event loop.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token, Waker};

use crate::group::{Round, TICK};
use crate::shard::{Backup, Shard};
use crate::wire::{self, Parsed};

use super::ahead::Ahead;
use super::common::{Common, add, is_due, now};
use super::connection::{Connection, Protocol};
use super::mail::{Message, Outbox, Post, Task, Ticket};
use super::pubsub::Channels;
use super::slots::Finished;
use super::transaction::Held;

/// The token of the waker for messages.
pub(crate) const MAIL: Token = Token(usize::MAX);

/// The bytes of one read at most.
const CHUNK: usize = 64 << 10;
/// The bytes that a connection may read in one turn.
const A_TURN: usize = 256 << 10;
/// The messages that a turn takes at most.
const MAILS: usize = 1024;
/// Milliseconds between slices of upkeep under load.
const UPKEEP_EVERY: u64 = 10;
/// Milliseconds between looks at idle connections.
const SWEEP_EVERY: u64 = 1000;

/// A thread of the event loop.
pub(crate) struct Worker {
    pub(super) number: usize,
    pub(super) common: Arc<Common>,
    pub(super) shard: Shard,
    poll: Poll,
    mail: Receiver<Message>,
    pub(super) outbox: Outbox,
    pub(super) post: Post,
    pub(super) connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Connections that get a turn without an event.
    queue: VecDeque<usize>,
    /// Connections with replies to send.
    dirty: Vec<usize>,
    /// Replies to other threads, which leave after the commit.
    dones: Vec<(usize, Message)>,
    pub(super) channels: Channels,
    backups: Vec<(usize, Ticket, Backup)>,
    pub(super) now: u64,
    buffer: Vec<u8>,
    next_upkeep: u64,
    next_sweep: u64,
    busy: bool,
    /// Connections with replies that wait for the group.
    gated: Vec<usize>,
    /// Messages of transactions that are not durable yet.
    pub(super) held: Vec<Held>,
    ahead: Ahead,
}

impl Worker {
    /// Makes the state of a thread; `poll` has its waker under [`MAIL`].
    pub(crate) fn new(
        number: usize,
        common: Arc<Common>,
        shard: Shard,
        poll: Poll,
        mail: Receiver<Message>,
        post: Post,
    ) -> Self {
        Self {
            number,
            common,
            shard,
            poll,
            mail,
            outbox: Outbox::new(post.clone()),
            post,
            connections: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            dirty: Vec::new(),
            dones: Vec::new(),
            channels: Channels::default(),
            backups: Vec::new(),
            now: now(),
            buffer: vec![0; CHUNK],
            next_upkeep: 0,
            next_sweep: 0,
            busy: false,
            gated: Vec::new(),
            held: Vec::new(),
            ahead: Ahead::default(),
        }
    }

    /// Returns a poll with its waker.
    pub(crate) fn poll() -> io::Result<(Poll, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), MAIL)?);
        Ok((poll, waker))
    }

    /// Runs until it must stop; then closes its partition.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut going = true;
        while going {
            let wait = if !self.queue.is_empty() || self.busy || !self.backups.is_empty() {
                Duration::ZERO
            } else {
                Duration::from_millis(if self.shard.group().is_some() { TICK } else { 100 })
            };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    tracing::error!(worker = self.number, %error, "waiting for events failed");
                    self.common.stop();
                    break;
                }
                _ => {}
            }
            going = self.turn(&events);
        }
        if let Some(group) = self.shard.group() {
            let tries = group.hand_over();
            let _ = self.shard.round();
            if tries {
                std::thread::sleep(Duration::from_millis(50)); // gives the message time to be sent
            }
        }
        let number = self.number;
        for token in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[token] {
                connection.send();
            }
        }
        if let Err(failure) = self.shard.close() {
            tracing::error!(
                partition = number,
                ?failure,
                "closing failed; the next start recovers"
            );
        }
    }

    /// Runs one turn; returns `false` when the thread is to end.
    fn turn(&mut self, events: &Events) -> bool {
        self.now = now();
        self.busy = false;
        let idle = events.is_empty() && self.queue.is_empty();
        for event in events {
            let token = event.token().0;
            if event.token() == MAIL {
                continue;
            }
            if let Some(connection) = self.connections.get_mut(token).and_then(Option::as_mut) {
                let over = event.is_read_closed() || event.is_error();
                connection.read_closed |= over;
                connection.readable |= event.is_readable() || over;
                if event.is_writable() {
                    connection.writable = true;
                    self.dirty.push(token);
                }
                self.enqueue(token);
            }
        }
        let going = self.read_mail();
        for _ in 0..self.queue.len() {
            if let Some(token) = self.queue.pop_front() {
                self.attend(token);
            }
        }
        self.deliver();
        self.upkeep(idle);
        self.finish();
        going
    }

    /// Gives a connection a turn without an event.
    pub(super) fn enqueue(&mut self, token: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(token)
            && !connection.queued
        {
            connection.queued = true;
            self.queue.push_back(token);
        }
    }

    /// Notes that a connection has something to send.
    pub(super) fn soil(&mut self, token: usize) {
        self.dirty.push(token);
    }

    fn read_mail(&mut self) -> bool {
        for _ in 0..MAILS {
            let Ok(message) = self.mail.try_recv() else { return true };
            self.post.taken(self.number, &message);
            match message {
                Message::Stop => return false,
                Message::Connection(stream, speaks) => self.welcome(stream, speaks),
                Message::Job { from, ticket, task } => self.job(from, ticket, task),
                Message::Done { ticket, reply } => self.done(ticket, reply),
                Message::Peer { from, place, group: number, bytes } => {
                    if let Some(group) = self.shard.group() {
                        group.step(from, place, number, &bytes);
                    }
                }
                Message::Heard { channel, message } => {
                    self.publish_here(&channel, &message);
                }
            }
        }
        // There may be more: continue at once.
        self.busy = true;
        true
    }

    fn welcome(&mut self, stream: super::stream::Stream, speaks: Protocol) {
        let id = self.common.next_connection.fetch_add(1, Relaxed) + 1;
        let mut connection = Box::new(Connection::new(stream, speaks, id, self.now));
        connection.user = self.common.users.first().map(|user| Arc::new(user.clone()));
        let token = self.free.pop().unwrap_or(self.connections.len());
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered =
            self.poll.registry().register(connection.stream.socket(), Token(token), both);
        if let Err(error) = registered {
            tracing::warn!(%error, "a connection cannot be watched");
            self.common.connections.fetch_sub(1, Relaxed);
            self.free.push(token);
            return;
        }
        if token == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[token] = Some(connection);
        self.enqueue(token);
    }

    /// Reads and runs the requests of a connection, as many as one turn allows.
    fn attend(&mut self, token: usize) {
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else {
            return;
        };
        connection.queued = false;
        self.requests_of(&mut connection, token);
        let again = !connection.is_held() && (connection.readable || !self.outbox.has_room());
        self.dirty.push(token);
        self.connections[token] = Some(connection);
        if again {
            self.enqueue(token);
        }
    }

    fn requests_of(&mut self, connection: &mut Connection, token: usize) {
        let mut read = 0;
        if !connection.input.is_empty() {
            let input = std::mem::take(&mut connection.input);
            let used = self.understand(connection, token, &input);
            connection.input = input;
            connection.input.drain(..used);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while connection.readable
            && !connection.is_held()
            && read < A_TURN
            && self.outbox.has_room()
        {
            let count = match connection.stream.read(&mut buffer) {
                Ok(0) => {
                    // The client has sent everything; it may still receive.
                    connection.closing = true;
                    break;
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.readable = false;
                    break;
                }
                Err(_) => {
                    connection.broken = true;
                    break;
                }
            };
            read += count;
            connection.last_active = self.now;
            if connection.input.is_empty() {
                let used = self.understand(connection, token, &buffer[..count]);
                connection.input.extend_from_slice(&buffer[used..count]);
            } else {
                let mut input = std::mem::take(&mut connection.input);
                input.extend_from_slice(&buffer[..count]);
                let used = self.understand(connection, token, &input);
                connection.input = input;
                connection.input.drain(..used);
            }
            // The socket is empty now, and later bytes cause another event: this saves a call.
            if count < buffer.len() && connection.is_plain() && !connection.read_closed {
                connection.readable = false;
            }
        }
        self.buffer = buffer;
        add(&self.common.figures[self.number].received, read as u64);
        connection.shrink();
    }

    /// Runs the complete requests in `input`; returns the number of their bytes.
    fn understand(&mut self, connection: &mut Connection, token: usize, input: &[u8]) -> usize {
        match connection.speaks {
            Protocol::Redis => self.requests(connection, token, input),
            Protocol::Memcached => self.memcached(connection, token, input),
        }
    }

    fn requests(&mut self, connection: &mut Connection, token: usize, input: &[u8]) -> usize {
        let (mut used, mut seen) = (0, 0);
        while used < input.len() && !connection.is_held() && self.outbox.has_room() {
            let limits = if connection.user.is_some() {
                wire::Limits {
                    bulk: self.common.max_value,
                    request: self.common.max_value + (16 << 20),
                    arguments: 1 << 20,
                }
            } else {
                wire::Limits::UNAUTHENTICATED
            };
            let rest = &input[used..];
            let mut parser = std::mem::take(&mut connection.parser);
            match parser.parse(rest, &limits) {
                Ok(Parsed::Request(length)) => {
                    if used >= seen && connection.user.is_some() {
                        let mut ahead = std::mem::take(&mut self.ahead);
                        let is_here = |key: &[u8]| self.partition_of(key) == self.number;
                        let looked = ahead.look(&rest[length..], &limits, &self.shard, is_here);
                        seen = used + length + looked;
                        self.ahead = ahead;
                    }
                    self.request(connection, token, parser.args(rest));
                    parser.reset();
                    used += length;
                    connection.parser = parser;
                }
                Ok(Parsed::More) => {
                    connection.parser = parser;
                    break;
                }
                Err(error) => {
                    connection.refuse(&format!("ERR Protocol error: {error}"));
                    connection.closing = true;
                    return input.len();
                }
            }
        }
        used
    }

    /// Runs a job of another thread.
    fn job(&mut self, from: usize, ticket: Ticket, task: Task) {
        let reply = match task {
            Task::Work(work, protocol) => self.shard.work(&work, protocol, self.now),
            Task::Transaction(transaction, protocol, messages) => {
                for (part, reply) in self.execute(from, ticket, transaction, protocol, messages) {
                    let ticket = Ticket { part, ..ticket };
                    self.dones.push((from, Message::Done { ticket, reply }));
                }
                return;
            }
            Task::Backup(folder) => match self.shard.backup(&folder) {
                Ok(backup) => {
                    self.backups.push((from, ticket, backup));
                    return;
                }
                Err(error) => format!("-ERR backup: {error}\r\n").into_bytes(),
            },
            other => self.small_task(other),
        };
        self.dones.push((from, Message::Done { ticket, reply }));
    }

    /// Takes a part of a reply of a connection here.
    pub(super) fn done(&mut self, ticket: Ticket, reply: Vec<u8>) {
        let Some(Some(connection)) = self.connections.get_mut(ticket.token) else { return };
        if connection.id != ticket.connection {
            return;
        }
        let protocol = connection.reply.protocol;
        if let Some(finished) = connection.slots.done(ticket.slot, ticket.part, reply, protocol) {
            match finished {
                Finished::Versions(versions) => {
                    super::transaction::watching(connection, &versions);
                }
                Finished::Reply => {}
            }
            connection.lift(ticket.slot);
            self.dirty.push(ticket.token);
            self.enqueue(ticket.token);
        }
    }

    /// Runs slices of the deferred work.
    fn upkeep(&mut self, idle: bool) {
        self.step_backups();
        let due = idle || is_due(self.now, self.next_upkeep, UPKEEP_EVERY);
        if due {
            self.next_upkeep = self.now + UPKEEP_EVERY;
        }
        match self.shard.upkeep(self.now, due) {
            Ok(more) => self.busy |= more && idle,
            Err(failure) => tracing::error!(partition = self.number, ?failure, "upkeep failed"),
        }
        if is_due(self.now, self.next_sweep, SWEEP_EVERY) {
            self.next_sweep = self.now + SWEEP_EVERY;
            self.close_idle();
            self.publish_figures();
        }
    }

    fn step_backups(&mut self) {
        for (from, ticket, mut backup) in std::mem::take(&mut self.backups) {
            match self.shard.back_up(&mut backup) {
                Ok(false) => self.backups.push((from, ticket, backup)),
                Ok(true) => self.seal_backup(from, ticket, backup),
                Err(error) => {
                    self.shard.end_backup(&mut backup);
                    tracing::error!(partition = self.number, error, "a backup failed");
                    let reply = format!("-ERR backup: {error}\r\n").into_bytes();
                    self.reply_to(from, ticket, reply);
                }
            }
        }
    }

    /// Synchronises a finished backup with the disk on a thread of its own, so that the loop does not wait.
    fn seal_backup(&mut self, from: usize, ticket: Ticket, backup: Backup) {
        let (post, number) = (self.post.clone(), self.number);
        std::thread::spawn(move || {
            let reply = match backup.seal() {
                Ok(records) => {
                    tracing::info!(partition = number, records, "backed up");
                    b"+OK\r\n".to_vec()
                }
                Err(error) => format!("-ERR backup: {error}\r\n").into_bytes(),
            };
            let mut message = Message::Done { ticket, reply };
            while let Err(back) = post.send(from, message) {
                message = back;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }

    fn reply_to(&mut self, to: usize, ticket: Ticket, reply: Vec<u8>) {
        if to == self.number {
            self.done(ticket, reply);
        } else {
            self.dones.push((to, Message::Done { ticket, reply }));
        }
    }

    /// Begins a backup of this thread's partition for a connection here.
    pub(super) fn own_backup(&mut self, ticket: Ticket, backup: Backup) {
        self.backups.push((self.number, ticket, backup));
    }

    /// Ends a turn: commits, and then sends the replies.
    fn finish(&mut self) {
        add(&self.common.figures[self.number].turns, 1);
        let round = self.shard.round();
        let (round, outcome) = match round {
            None => (None, self.shard.end()),
            Some(Ok(round)) => (Some(round), Ok(())),
            Some(Err(failure)) => (None, Err(failure)),
        };
        let lost = round.as_ref().is_some_and(|round| round.lost);
        self.publish_view(round.as_ref());
        let failed = lost
            || match outcome {
                Ok(()) => false,
                Err(failure) => {
                    tracing::error!(
                        partition = self.number,
                        ?failure,
                        "a commit failed: what the turn wrote may be lost; writes are refused from now on"
                    );
                    true
                }
            };
        for (to, mut message) in std::mem::take(&mut self.dones) {
            if failed && let Message::Done { reply, .. } = &mut message {
                *reply = b"-ERR storage: the commit failed\r\n".to_vec();
            }
            self.outbox.push(to, message);
        }
        self.send_held(round.as_ref(), failed);
        self.busy |= self.outbox.send();
        self.let_go(round.as_ref(), failed);
        let gate = round.and_then(|round| round.gate);
        let mut sent = 0;
        for token in std::mem::take(&mut self.dirty) {
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            if failed {
                // No client may learn of a write that did not become durable.
                connection.broken = true;
            }
            let was_held = connection.is_held();
            connection.slots.release(&mut connection.reply.bytes);
            let (len, more) = (connection.reply.bytes.len(), !connection.slots.is_empty());
            if connection.gates.close(gate, len, connection.sent, more) {
                self.gated.push(token);
            }
            sent += if connection.broken { 0 } else { connection.send() };
            let unheld = was_held && !connection.is_held();
            let over =
                connection.closing && connection.unsent() == 0 && connection.slots.is_empty();
            if connection.broken || over {
                self.close(token);
            } else if unheld {
                self.enqueue(token);
            }
        }
        add(&self.common.figures[self.number].sent, sent as u64);
    }

    /// Tells the other threads what this one knows of its group.
    fn publish_view(&self, round: Option<&Round>) {
        if let Some(view) = round.and_then(|round| round.view.clone())
            && let Some(Ok(mut shared)) = self.common.groups.get(self.number).map(Mutex::lock)
        {
            *shared = view;
        }
    }

    /// Sends replies that the group has agreed on; closes their connections if it will not.
    fn let_go(&mut self, round: Option<&Round>, failed: bool) {
        for token in std::mem::take(&mut self.gated) {
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            if failed {
                connection.broken = true;
            } else if let Some(round) = round {
                connection.gates.let_go(round);
            }
            if !connection.gates.is_empty() {
                self.gated.push(token);
            }
            self.dirty.push(token);
        }
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, token: usize) {
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else {
            return;
        };
        let _ = self.poll.registry().deregister(connection.stream.socket());
        let watched = std::mem::take(&mut connection.watched);
        self.forget_watches(&watched);
        self.channels.leave(token);
        self.free.push(token);
        self.common.connections.fetch_sub(1, Relaxed);
    }

    /// Ends connections that were idle for too long.
    fn close_idle(&mut self) {
        let timeout = self.common.limits.timeout.load(Relaxed).saturating_mul(1000);
        if timeout == 0 {
            return;
        }
        for token in 0..self.connections.len() {
            let idle = self.connections[token].as_ref().is_some_and(|connection| {
                connection.subscriptions == 0
                    && self.now.saturating_sub(connection.last_active) > timeout
            });
            if idle {
                self.close(token);
            }
        }
    }

    /// Stores figures for `INFO` and for Prometheus.
    pub(super) fn publish_figures(&mut self) {
        let (figures, stats) = (&self.common.figures[self.number], self.shard.figures());
        for (figure, number) in [
            (&figures.keys, self.shard.keys()),
            (&figures.writes, self.shard.writes),
            (&figures.live_bytes, stats.live_bytes),
            (&figures.capacity, stats.capacity),
            (&figures.dram_bytes, stats.dram_bytes),
            (&figures.log_bytes, stats.log_bytes),
            (&figures.copied_bytes, stats.copied_bytes),
            (&figures.commits, stats.commits),
            (&figures.expired, stats.expired),
            (&figures.stalls, stats.stalls),
            (&figures.damaged, self.shard.place.damaged.len() as u64),
        ] {
            figure.store(number, Relaxed);
        }
    }
}
