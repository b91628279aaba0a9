//! Channels: messages to the present listeners, in every thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::command::{Gather, Refusal};
use crate::keyspace::glob;
use crate::wire::{Args, Reply, Shape};

use super::connection::{Connection, MESSAGES};
use super::mail::{Listeners, Task, Ticket};
use super::run::Worker;
use super::session::unknown_subcommand;
use super::slots::Then;

/// The bytes of a message for a listener in addition to its own and those of the channel, about.
const AROUND: usize = 32;

type Names = BTreeMap<Vec<u8>, BTreeSet<usize>>;

/// The listeners among the connections of one thread.
#[derive(Debug, Default)]
pub(super) struct Channels {
    names: Names,
    patterns: Names,
    /// Messages for connections, delivered at the end of the turn.
    deliveries: Vec<(usize, Delivery)>,
    /// The bytes of these messages for each connection.
    queued: HashMap<usize, usize>,
}

#[derive(Debug)]
struct Delivery {
    pattern: Option<Vec<u8>>,
    channel: Vec<u8>,
    message: Vec<u8>,
}

impl Channels {
    fn of(&mut self, is_pattern: bool) -> &mut Names {
        if is_pattern { &mut self.patterns } else { &mut self.names }
    }

    fn add(&mut self, is_pattern: bool, name: &[u8], token: usize) -> bool {
        self.of(is_pattern).entry(name.to_vec()).or_default().insert(token)
    }

    fn remove(&mut self, is_pattern: bool, name: &[u8], token: usize) -> bool {
        let all = self.of(is_pattern);
        let Some(listeners) = all.get_mut(name) else { return false };
        let was = listeners.remove(&token);
        if listeners.is_empty() {
            all.remove(name);
        }
        was
    }

    fn heard_by(&mut self, is_pattern: bool, token: usize) -> Vec<Vec<u8>> {
        let all = self.of(is_pattern).iter();
        all.filter(|(_, listeners)| listeners.contains(&token))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Removes a connection from all channels.
    pub(super) fn leave(&mut self, token: usize) {
        if self.names.is_empty() && self.patterns.is_empty() {
            return;
        }
        for is_pattern in [false, true] {
            for name in self.heard_by(is_pattern, token) {
                self.remove(is_pattern, &name, token);
            }
        }
        self.deliveries.retain(|(to, _)| *to != token);
        self.queued.remove(&token);
    }

    /// Queues a message; returns the number of its listeners.
    fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let listeners = self.names.get(channel).into_iter().flatten();
        let mut to: Vec<_> = listeners.map(|token| (*token, None)).collect();
        for (pattern, listeners) in &self.patterns {
            if glob::matches(pattern, channel) {
                to.extend(listeners.iter().map(|token| (*token, Some(pattern.clone()))));
            }
        }
        let count = to.len();
        for (token, pattern) in to {
            // More would be for nothing: the connection will be ended.
            let queued = self.queued.entry(token).or_default();
            if *queued <= MESSAGES {
                *queued += AROUND + channel.len() + message.len();
                let (channel, message) = (channel.to_vec(), message.to_vec());
                self.deliveries.push((token, Delivery { pattern, channel, message }));
            }
        }
        count
    }

    /// Answers a question about the listeners of this thread by an array.
    pub(super) fn tell(&self, question: &Listeners) -> Vec<u8> {
        let mut reply = Reply::default();
        match question {
            Listeners::Channels(pattern) => {
                let names = self.names.keys().filter(|name| glob::matches(pattern, name));
                reply.bulks(&names.collect::<Vec<_>>());
            }
            Listeners::Patterns => reply.bulks(&self.patterns.keys().collect::<Vec<_>>()),
            Listeners::Count(channels) => {
                reply.array(channels.len());
                for channel in channels {
                    reply.count(self.names.get(channel).map_or(0, BTreeSet::len));
                }
            }
        }
        reply.bytes
    }
}

fn write(reply: &mut Reply, delivery: &Delivery) {
    reply.head(Shape::Push, 3 + usize::from(delivery.pattern.is_some()));
    match &delivery.pattern {
        Some(pattern) => {
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
        None => reply.bulk(b"message"),
    }
    reply.bulk(&delivery.channel);
    reply.bulk(&delivery.message);
}

impl Worker {
    /// Queues a message for the listeners of this thread; returns their number.
    pub(super) fn publish_here(&mut self, channel: &[u8], message: &[u8]) -> usize {
        self.channels.publish(channel, message)
    }

    /// Delivers the turn's messages to their listeners; disconnects one that is too slow.
    pub(super) fn deliver(&mut self) {
        let queued = std::mem::take(&mut self.channels.queued);
        for (token, delivery) in std::mem::take(&mut self.channels.deliveries) {
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            if connection.broken {
                continue;
            }
            connection.answer(|reply| write(reply, &delivery));
            let is_too_much = queued.get(&token).is_some_and(|bytes| *bytes > MESSAGES);
            if is_too_much || connection.unsent() > MESSAGES {
                tracing::warn!(client = connection.id, "a subscriber is too slow and is sent away");
                connection.broken = true;
            }
            self.soil(token);
        }
    }

    /// `PUBLISH`: the reply counts the subscribers of this node, as in Redis Cluster.
    pub(super) fn publish(&mut self, connection: &mut Connection, token: usize, args: Args<'_>) {
        let (channel, message) = (args.at(1), args.at(2));
        let own = self.publish_here(channel, message);
        if let Some(group) = self.shard.group() {
            group.publish(channel, message);
        }
        let count = self.common.partitions();
        if count == 1 {
            connection.answer(|reply| reply.count(own));
            return;
        }
        let slot = connection.slots.wait(count, Then::Gather(Gather::Sum));
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            if part == self.number {
                let reply = format!(":{own}\r\n").into_bytes();
                connection.slots.done(slot, part, reply, connection.reply.protocol);
            } else {
                let (channel, message) = (channel.to_vec(), message.to_vec());
                self.ask(part, ticket, Task::Publish { channel, message });
            }
        }
    }

    /// `SUBSCRIBE`, `PSUBSCRIBE`, `UNSUBSCRIBE`, `PUNSUBSCRIBE`
    pub(super) fn subscribe(
        &mut self,
        connection: &mut Connection,
        token: usize,
        name: &'static str,
        args: Args<'_>,
    ) {
        let is_pattern = name.starts_with('p');
        let joins = !name.contains("unsub");
        let mut names: Vec<_> = args.from(1).iter().map(<[u8]>::to_vec).collect();
        if names.is_empty() {
            names = self.channels.heard_by(is_pattern, token);
        }
        for channel in &names {
            if joins {
                connection.subscriptions +=
                    usize::from(self.channels.add(is_pattern, channel, token));
            } else if self.channels.remove(is_pattern, channel, token) {
                connection.subscriptions -= 1;
            }
            let left = connection.subscriptions;
            connection.answer(|reply| {
                reply.head(Shape::Push, 3);
                reply.bulk(name.as_bytes());
                reply.bulk(channel);
                reply.count(left);
            });
        }
        if names.is_empty() {
            let left = connection.subscriptions;
            connection.answer(|reply| {
                reply.head(Shape::Push, 3);
                reply.bulk(name.as_bytes());
                reply.null();
                reply.count(left);
            });
        }
    }

    /// `PUBSUB CHANNELS [pattern]
    ///  NUMPAT
    ///  NUMSUB [channel ...]`, of all threads.
    pub(super) fn pubsub(
        &mut self,
        connection: &mut Connection,
        token: usize,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let (question, then) = match args.at(1).to_ascii_uppercase().as_slice() {
            b"CHANNELS" => (Listeners::Channels(args.get(2).unwrap_or(b"*").to_vec()), Then::Names),
            b"NUMPAT" => (Listeners::Patterns, Then::CountNames),
            b"NUMSUB" => {
                let names: Vec<_> = args.from(2).iter().map(<[u8]>::to_vec).collect();
                (Listeners::Count(names.clone()), Then::Listeners(names))
            }
            _ => return Err(unknown_subcommand(args)),
        };
        let count = self.common.partitions();
        let slot = connection.slots.wait(count, then);
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            if part == self.number {
                let reply = self.channels.tell(&question);
                connection.slots.done(slot, part, reply, connection.reply.protocol);
            } else {
                self.ask(part, ticket, Task::Listeners(question.clone()));
            }
        }
        Ok(())
    }
}
