//! A connection: its buffers, its owed replies, and the state that its client has set.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::access::User;
use crate::command::Spec;
use crate::memcache;
use crate::shard::Watch;
use crate::wire::{Parser, Reply, Request};

use super::gates::Gates;
use super::slots::Slots;
use super::stream::Stream;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Redis,
    Memcached,
}

/// Commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Multi {
    pub(super) commands: Vec<(&'static Spec, Request)>,
    /// The bytes that they occupy.
    pub(super) size: usize,
    /// The slot of their keys, if they have any and slots matter.
    pub(super) slot: Option<u16>,
    /// One of them was refused, so `EXEC` will be too.
    pub(super) refused: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) speaks: Protocol,
    pub(super) id: u64,
    pub(super) peer: Option<SocketAddr>,
    pub(super) name: String,
    pub(super) library: (String, String),
    pub(super) user: Option<Arc<User>>,
    pub(super) parser: Parser,
    pub(super) memcached: memcache::Parser,
    /// Input that is not yet parsed.
    pub(super) input: Vec<u8>,
    /// Replies; those of this turn wait for its commit.
    pub(super) reply: Reply,
    /// The number of its bytes that were sent.
    pub(super) sent: usize,
    /// The gates of replies that wait for a group.
    pub(super) gates: Gates,
    pub(super) slots: Slots,
    pub(super) multi: Option<Multi>,
    pub(super) watched: Vec<Watch>,
    /// The slot that must be complete before another request runs.
    pub(super) barrier: Option<u64>,
    pub(super) subscriptions: usize,
    /// The socket may have bytes.
    pub(super) readable: bool,
    /// The client has closed its sending side.
    pub(super) read_closed: bool,
    /// The socket may take bytes.
    pub(super) writable: bool,
    /// The connection ends when its replies are sent.
    pub(super) closing: bool,
    /// The connection ends now.
    pub(super) broken: bool,
    /// The connection is in the queue of those that get a turn without an event.
    pub(super) queued: bool,
    pub(super) created: u64,
    pub(super) last_active: u64,
    /// The last command, if it was one of Redis.
    pub(super) last: Option<&'static Spec>,
}

/// While more bytes of replies than this wait, the next requests of the connection wait too.
pub(super) const REPLIES: usize = 1 << 20;
/// A subscriber with more bytes of messages than this is too slow.
pub(super) const MESSAGES: usize = 32 << 20;
/// The number of replies that a connection may owe.
const OWED: usize = 1024;
/// The size of a buffer that an idle connection keeps.
const KEPT: usize = 16 << 10;

impl Connection {
    pub(super) fn new(stream: Stream, speaks: Protocol, id: u64, now: u64) -> Self {
        Self {
            peer: stream.peer(),
            stream,
            speaks,
            id,
            name: String::new(),
            library: (String::new(), String::new()),
            user: None,
            parser: Parser::default(),
            memcached: memcache::Parser::default(),
            input: Vec::new(),
            reply: Reply::default(),
            sent: 0,
            gates: Gates::default(),
            slots: Slots::default(),
            multi: None,
            watched: Vec::new(),
            barrier: None,
            subscriptions: 0,
            readable: true,
            read_closed: false,
            writable: true,
            closing: false,
            broken: false,
            queued: false,
            created: now,
            last_active: now,
            last: None,
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        matches!(self.stream, Stream::Plain(_))
    }

    /// Returns the bytes of replies that are not sent, also of those behind one that is not complete.
    pub(super) fn unsent(&self) -> usize {
        self.reply.bytes.len() - self.sent + self.slots.bytes()
    }

    /// Returns `true` if the next request must wait.
    pub(super) fn is_held(&self) -> bool {
        self.closing
            || self.broken
            || self.barrier.is_some()
            || self.unsent() >= REPLIES
            || self.slots.len() >= OWED
    }

    /// Lets the next request run, if it waits for this slot. Slots of earlier requests may be complete later: those
    /// of other partitions.
    pub(super) fn lift(&mut self, slot: u64) {
        self.barrier = self.barrier.filter(|waits| *waits != slot);
    }

    /// Writes a reply, in the order of the requests.
    pub(super) fn answer(&mut self, write: impl FnOnce(&mut Reply)) {
        if self.slots.is_empty() {
            write(&mut self.reply);
        } else {
            let mut reply = Reply::new(self.reply.protocol);
            write(&mut reply);
            self.slots.ready(reply.bytes);
        }
    }

    pub(super) fn refuse(&mut self, text: &str) {
        self.answer(|reply| reply.error(text));
    }

    /// Sends as many bytes as the socket accepts; returns their number.
    pub(super) fn send(&mut self) -> usize {
        let before = self.sent;
        let end = self.gates.open(self.reply.bytes.len());
        while self.writable && self.sent < end {
            match self.stream.write(&self.reply.bytes[self.sent..end]) {
                Ok(0) => self.broken = true,
                Ok(count) => {
                    self.sent += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(_) => self.broken = true,
            }
            break;
        }
        if self.writable
            && let Err(error) = self.stream.flush()
        {
            if error.kind() == io::ErrorKind::WouldBlock {
                self.writable = false;
            } else {
                self.broken = true;
            }
        }
        let count = self.sent - before;
        if self.sent == self.reply.bytes.len() {
            self.gates.pass(self.sent);
            self.sent = 0;
            self.reply.bytes.clear();
            if self.reply.bytes.capacity() > KEPT {
                self.reply.bytes = Vec::new();
            }
        } else if self.sent >= REPLIES {
            self.reply.bytes.drain(..self.sent);
            self.gates.pass(self.sent);
            self.sent = 0;
        }
        count
    }

    /// Frees the memory of large input buffers.
    pub(super) fn shrink(&mut self) {
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = Vec::new();
        }
    }

    /// Returns a line of `CLIENT LIST`.
    pub(super) fn describe(&self, now: u64) -> String {
        let address = self.peer.map_or_else(String::new, |peer| peer.to_string());
        let user = self.user.as_ref().map_or("(superuser)", |user| user.name.as_str());
        let multi = self.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64);
        let flags = if self.subscriptions > 0 { "P" } else { "N" };
        format!(
            "id={} addr={address} name={} age={} idle={} flags={flags} db=0 sub={} psub=0 multi={multi} \
             qbuf={} omem={} cmd={} user={user} resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.name,
            now.saturating_sub(self.created) / 1000,
            now.saturating_sub(self.last_active) / 1000,
            self.subscriptions,
            self.input.len(),
            self.unsent(),
            match self.speaks {
                Protocol::Redis => self.last.map_or("NULL", |spec| spec.name),
                Protocol::Memcached => "memcached",
            },
            if self.reply.protocol == crate::wire::Protocol::Resp3 { 3 } else { 2 },
            self.library.0,
            self.library.1,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::Then;
    use super::*;
    use crate::wire;

    fn connection() -> Connection {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = std::net::TcpStream::connect(address).expect("it listens");
        let stream = mio::net::TcpStream::from_std(client);
        Connection::new(Stream::Plain(stream), Protocol::Redis, 1, 0)
    }

    #[test]
    fn replies_behind_one_that_waits_are_bounded() {
        let text = "x".repeat(10_000);
        let mut connection = connection();
        let waits = connection.slots.wait(2, Then::Join);
        let mut count = 0;
        while !connection.is_held() && count < 10_000 {
            connection.answer(|reply| reply.bulk(text.as_bytes()));
            count += 1;
        }
        assert!((REPLIES / 20_000..=1 + REPLIES / 10_000).contains(&count), "{count} replies");
        // When it is complete, they go out, and the next requests run.
        for part in 0..2 {
            connection.slots.done(waits, part, text.clone().into_bytes(), wire::Protocol::Resp2);
        }
        connection.slots.release(&mut connection.reply.bytes);
        assert!(connection.unsent() >= REPLIES && connection.slots.is_empty());
        connection.reply.bytes.clear();
        assert!(!connection.is_held() && connection.unsent() == 0);
        // Large parts of one that waits count too.
        let waits = connection.slots.wait(2, Then::Join);
        let part = vec![b'x'; REPLIES];
        connection.slots.done(waits, 1, part, wire::Protocol::Resp2);
        assert!(connection.is_held());
    }
}
