//! Messages between threads: bounded queues, and an outbox for what does not fit yet.
//!
//! Jobs are accepted only while there is room; replies always are, because each answers a job. So no
//! thread ever waits for another, and memory is bounded by the jobs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::shard::{Folder, Work};
use crate::wire::Protocol;

use super::connection::Protocol as Speaks;
use super::stream::Stream;

/// Messages in a queue.
const QUEUE: usize = 4096;
/// Jobs in an outbox.
const JOBS: usize = 4096;

/// Where a reply belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// The place of the connection in its thread.
    pub(super) token: usize,
    /// Its number, which no other has.
    pub(super) connection: u64,
    pub(super) slot: u64,
    pub(super) part: usize,
}

/// What a thread asks another to do.
#[derive(Debug)]
pub(crate) enum Task {
    /// Work on the records.
    Work(Work, Protocol),
    /// A message of a channel; the reply is how many heard it.
    Publish { channel: Vec<u8>, message: Vec<u8> },
    /// Channels with listeners, or how many listen to patterns.
    Channels(Option<Vec<u8>>),
    /// Wait until what is committed survives a power failure.
    Sync,
    /// Back up into a folder.
    Backup(Folder),
    /// Close the connection of this number.
    Kill(u64),
    /// List the connections.
    Clients,
}

/// What a thread tells another.
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
    /// What another replica of the group sends.
    Peer {
        from: u64,
        place: crate::group::Member,
        bytes: Vec<u8>,
    },
    Stop,
}

/// The ways to all threads.
#[derive(Clone)]
pub(crate) struct Post {
    ways: Vec<(SyncSender<Message>, Arc<mio::Waker>)>,
}

impl Post {
    /// Queues for threads with these wakers.
    pub(crate) fn new(wakers: Vec<Arc<mio::Waker>>) -> (Self, Vec<Receiver<Message>>) {
        let (mut ways, mut ends) = (Vec::new(), Vec::new());
        for waker in wakers {
            let (sender, receiver) = sync_channel(QUEUE);
            ways.push((sender, waker));
            ends.push(receiver);
        }
        (Self { ways }, ends)
    }

    #[expect(clippy::result_large_err, reason = "a message that is not taken is given back")]
    /// Sends from outside the event loops; gives the message back if the queue is full.
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
}

/// What a thread has to send.
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

    /// Returns `true` if every thread can get a job more.
    pub(super) fn has_room(&self) -> bool {
        self.jobs.iter().all(|jobs| *jobs < JOBS)
    }

    pub(super) fn push(&mut self, to: usize, message: Message) {
        self.jobs[to] += usize::from(matches!(message, Message::Job { .. }));
        self.queues[to].push_back(message);
    }

    /// Sends what the queues take; returns `true` if something is left.
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
                    // The thread has ended: so does the server.
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
