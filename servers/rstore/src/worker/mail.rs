//! Messages between threads: bounded queues, and an outbox for messages that do not fit yet.
//!
//! Jobs are accepted only while there is room; replies always are, because each answers a job. So threads
//! never wait for each other, and the jobs bound the memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::group::Waiting;
use crate::shard::{Folder, Transaction, Work};
use crate::wire::{Protocol, Request};

use super::connection::Protocol as Speaks;
use super::stream::Stream;

/// The messages of a queue at most.
const QUEUE: usize = 4096;
/// The jobs of an outbox at most.
const JOBS: usize = 4096;

/// The connection and the slot of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// The index of the connection in its thread.
    pub(super) token: usize,
    /// The unique number of the connection.
    pub(super) connection: u64,
    pub(super) slot: u64,
    pub(super) part: usize,
}

/// A job for another thread.
#[derive(Debug)]
pub(crate) enum Task {
    /// Work on the records.
    Work(Work, Protocol),
    /// A transaction, and its messages.
    Transaction(Transaction, Protocol, Vec<Request>),
    /// A message of a channel; the reply is the number of its listeners.
    Publish { channel: Vec<u8>, message: Vec<u8> },
    /// The messages of a transaction; the reply is an array of such numbers.
    Messages(Arc<[Request]>),
    /// Tells what listeners there are.
    Listeners(Listeners),
    /// Waits until committed writes survive a power failure.
    Sync,
    /// Backs up into a folder.
    Backup(Folder),
    /// Closes the connection with this number.
    Kill(u64),
    /// Lists the connections.
    Clients,
}

/// A question about listeners.
#[derive(Clone, Debug)]
pub(crate) enum Listeners {
    /// The channels that have some and match a pattern.
    Channels(Vec<u8>),
    /// The patterns that have some.
    Patterns,
    /// The number of those of each of these channels.
    Count(Vec<Vec<u8>>),
}

/// A message to another thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection to serve.
    Connection(Stream, Speaks),
    Job {
        from: usize,
        ticket: Ticket,
        task: Task,
    },
    Done {
        ticket: Ticket,
        reply: Vec<u8>,
    },
    /// A message of another replica of the group.
    Peer {
        from: u64,
        place: crate::group::Member,
        group: Option<std::num::NonZeroU64>,
        bytes: Vec<u8>,
    },
    /// A message of a channel that another node published.
    Heard {
        channel: Vec<u8>,
        message: Vec<u8>,
    },
    Stop,
}

/// The queues of all threads.
#[derive(Clone)]
pub(crate) struct Post {
    ways: Vec<(SyncSender<Message>, Arc<mio::Waker>)>,
    /// The messages of other nodes that wait for each thread.
    from_nodes: Arc<[Waiting]>,
}

impl Post {
    /// Makes queues for threads with these wakers.
    pub(crate) fn new(wakers: Vec<Arc<mio::Waker>>) -> (Self, Vec<Receiver<Message>>) {
        let (mut ways, mut ends) = (Vec::new(), Vec::new());
        for waker in wakers {
            let (sender, receiver) = sync_channel(QUEUE);
            ways.push((sender, waker));
            ends.push(receiver);
        }
        let from_nodes = ways.iter().map(|_| Waiting::default()).collect();
        (Self { ways, from_nodes }, ends)
    }

    #[expect(clippy::result_large_err, reason = "a message that is not taken is given back")]
    /// Sends from outside of the event loops; returns the message if the queue is full.
    pub(crate) fn send(&self, to: usize, message: Message) -> Result<(), Message> {
        let (sender, waker) = &self.ways[to];
        match sender.try_send(message) {
            Ok(()) => {
                let _ = waker.wake();
                Ok(())
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => Err(message),
        }
    }

    /// Sends a message of another node, or drops it: few of them wait, whatever the thread does meanwhile.
    pub(crate) fn send_from_node(&self, to: usize, message: Message) {
        let Some((is_channel, len)) = message.of_node() else { return };
        let waiting = &self.from_nodes[to];
        if waiting.admits(is_channel, len) && self.send(to, message).is_err() {
            waiting.leaves(len);
        }
    }

    /// Notes that a thread has taken a message, which may be one of another node.
    pub(super) fn taken(&self, by: usize, message: &Message) {
        if let Some((_, len)) = message.of_node() {
            self.from_nodes[by].leaves(len);
        }
    }
}

impl Message {
    /// Returns for a message of another node whether it is one of a channel, and its bytes.
    fn of_node(&self) -> Option<(bool, usize)> {
        match self {
            Self::Peer { bytes, .. } => Some((false, bytes.len())),
            Self::Heard { channel, message } => Some((true, channel.len() + message.len())),
            _ => None,
        }
    }
}

/// The messages that a thread has to send.
pub(super) struct Outbox {
    post: Post,
    queues: Vec<VecDeque<Message>>,
    jobs: Vec<usize>,
}

impl Outbox {
    pub(super) fn new(post: Post) -> Self {
        let count = post.ways.len();
        Self { post, queues: (0..count).map(|_| VecDeque::new()).collect(), jobs: vec![0; count] }
    }

    /// Returns `true` if every thread can accept another job.
    pub(super) fn has_room(&self) -> bool {
        self.jobs.iter().all(|jobs| *jobs < JOBS)
    }

    pub(super) fn push(&mut self, to: usize, message: Message) {
        self.jobs[to] += usize::from(matches!(message, Message::Job { .. }));
        self.queues[to].push_back(message);
    }

    /// Sends as much as the queues accept; returns `true` if messages remain.
    pub(super) fn send(&mut self) -> bool {
        let mut left = false;
        for (to, queue) in self.queues.iter_mut().enumerate() {
            let (sender, waker) = &self.post.ways[to];
            let before = queue.len();
            while let Some(message) = queue.pop_front() {
                let is_job = matches!(message, Message::Job { .. });
                match sender.try_send(message) {
                    Ok(()) => self.jobs[to] -= usize::from(is_job),
                    Err(TrySendError::Full(message)) => {
                        queue.push_front(message);
                        break;
                    }
                    // The thread has ended, so the server is ending.
                    Err(TrySendError::Disconnected(_)) => self.jobs[to] -= usize::from(is_job),
                }
            }
            if queue.len() < before {
                let _ = waker.wake();
            }
            left |= !queue.is_empty();
        }
        left
    }
}
