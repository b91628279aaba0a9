//! The network of a group: a connection from each replica to each other one, with a thread at both ends. The
//! groups of a node's partitions have connections of their own, so a long message delays no other partition's
//! heartbeats; all arrive at the one port of the node.
//!
//! ```text
//! | "rstore5\n" | id of the sender (8) | partition (4) | partitions (4) | bytes of its place (4) | place |
//!                                                                         then, for each message:
//! | bytes (4) | parcel |
//! ```
//!
//! A [`Parcel`] is a message of Raft or of a channel. Those that cannot be sent at once are dropped: Raft
//! repeats its messages, and channels promise no delivery. Few of those of channels wait, so that they leave room for
//! Raft's; and of long ones few bytes, whatever a node that does not read. Connections are not authenticated: use
//! a private network.

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::{Member, Parcel};
use crate::Error;
use crate::client::refuse_itself;

const MAGIC: &[u8; 8] = b"rstore5\n";
/// The number of parcels that wait for a connection at most.
const QUEUE: usize = 1024;
/// The number of waiting parcels, and their bytes, with which one of a channel is dropped.
const CHANNEL_QUEUE: usize = 256;
const CHANNEL_BYTES: usize = 16 << 20;
/// The bytes of waiting parcels at most. One that is longer goes if no other waits, and a short one always: a vote and
/// a heartbeat are not dropped because of long entries.
const MOST_BYTES: usize = 64 << 20;
const SHORT: usize = 4 << 10;
/// The longest parcel, which is an entry of the group's log.
const MOST: u32 = 1 << 30;
/// The bytes of a parcel in addition to those of its only entry, at most.
pub(super) const AROUND: u32 = 1 << 10;
/// The longest entry that can be sent.
pub(crate) const MOST_ENTRY: u32 = MOST - AROUND;
const RETRY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes a parcel of another node: the partition, the sender, the sender's addresses, and the parcel. Returns
/// `false` when this process ends.
pub(crate) type Inbox = Arc<dyn Fn(usize, u64, Member, Parcel) -> bool + Send + Sync>;

/// The connections to the other replicas.
#[derive(Debug)]
pub(crate) struct Peers {
    hello: Vec<u8>,
    ways: BTreeMap<u64, Way>,
}

/// A connection to another replica.
#[derive(Debug)]
struct Way {
    address: String,
    queue: SyncSender<Vec<u8>>,
    waiting: Arc<Waiting>,
}

/// What waits: parcels, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    parcels: AtomicUsize,
    bytes: AtomicUsize,
}

impl Waiting {
    /// Takes a parcel of this length into account, unless it is to be dropped.
    pub(crate) fn admits(&self, is_channel: bool, len: usize) -> bool {
        let (parcels, bytes) = (self.parcels.load(Relaxed), self.bytes.load(Relaxed));
        let fits = if is_channel {
            parcels < CHANNEL_QUEUE && (parcels == 0 || bytes + len <= CHANNEL_BYTES)
        } else {
            len <= SHORT || parcels == 0 || bytes + len <= MOST_BYTES
        };
        if fits {
            self.parcels.fetch_add(1, Relaxed);
            self.bytes.fetch_add(len, Relaxed);
        }
        fits
    }

    /// Notes that such a parcel does not wait any more.
    pub(crate) fn leaves(&self, len: usize) {
        self.parcels.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(len, Relaxed);
    }
}

impl Peers {
    /// Makes the connections of a replica of a partition, on a node with these addresses.
    pub(crate) fn new(id: u64, me: &Member, partition: usize, partitions: usize) -> Self {
        let place = me.text();
        let mut hello = MAGIC.to_vec();
        hello.extend(id.to_le_bytes());
        hello.extend((partition as u32).to_le_bytes());
        hello.extend((partitions as u32).to_le_bytes());
        hello.extend((place.len() as u32).to_le_bytes());
        hello.extend(place.as_bytes());
        Self { hello, ways: BTreeMap::new() }
    }

    /// Takes the port for the replicas of other nodes, which connect from now on.
    pub(crate) fn bind(address: &str) -> Result<TcpListener, Error> {
        TcpListener::bind(address).map_err(Error::io(address))
    }

    /// Listens for the replicas of other nodes, which must have this number of partitions too.
    pub(crate) fn listen(
        listener: TcpListener,
        partitions: usize,
        inbox: Inbox,
    ) -> Result<(), Error> {
        let accept = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Most often there are no descriptors left. The next attempt would fail at once, too.
                    thread::sleep(RETRY);
                    continue;
                };
                let inbox = Arc::clone(&inbox);
                let hear = move || {
                    let peer = stream.peer_addr();
                    if let Err(error) = hear(stream, partitions, &inbox) {
                        tracing::debug!(?peer, %error, "another replica hung up");
                    }
                };
                let _ = thread::Builder::new().name("rstore-peer-in".into()).spawn(hear);
            }
        };
        let thread = thread::Builder::new().name("rstore-peers".into()).spawn(accept);
        thread.map(drop).map_err(Error::io("a thread"))
    }

    /// Sends a parcel, or drops it.
    pub(crate) fn send(&mut self, to: u64, member: &Member, parcel: &Parcel) {
        let known = self.ways.get(&to).is_some_and(|way| way.address == member.peers);
        if !known {
            let (sender, queue) = sync_channel(QUEUE);
            let waiting = Arc::new(Waiting::default());
            let queue = Queue { queue, waiting: Arc::clone(&waiting) };
            let (address, hello) = (member.peers.clone(), self.hello.clone());
            let speak = move || speak(&address, &hello, &queue);
            let thread = thread::Builder::new().name("rstore-peer-out".into()).spawn(speak);
            if thread.is_err() {
                return;
            }
            self.ways.insert(to, Way { address: member.peers.clone(), queue: sender, waiting });
        }
        let Some(way) = self.ways.get(&to) else { return };
        let is_channel = matches!(parcel, Parcel::Channel { .. });
        let len = parcel.len();
        if way.waiting.admits(is_channel, len) && way.queue.try_send(parcel.encode()).is_err() {
            way.waiting.leaves(len);
        }
    }
}

/// The end of a connection's queue.
struct Queue {
    queue: Receiver<Vec<u8>>,
    waiting: Arc<Waiting>,
}

impl Queue {
    fn leave(&self, parcel: Vec<u8>) -> Vec<u8> {
        self.waiting.leaves(parcel.len());
        parcel
    }

    /// Waits for a parcel; returns `None` when the sender is dropped.
    fn wait(&self) -> Option<Vec<u8>> {
        self.queue.recv().ok().map(|parcel| self.leave(parcel))
    }

    /// Returns a parcel if one waits.
    fn next(&self) -> Option<Vec<u8>> {
        self.queue.try_recv().ok().map(|parcel| self.leave(parcel))
    }
}

/// Sends messages until the queue's sender is dropped.
fn speak(address: &str, hello: &[u8], queue: &Queue) {
    while let Some(first) = queue.wait() {
        let spoken = connect(address, hello).and_then(|stream| send_all(stream, first, queue));
        match spoken {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(address, %error, "another replica is not reached");
                // The waiting messages are old.
                while queue.next().is_some() {}
                thread::sleep(RETRY);
            }
        }
    }
}

fn connect(address: &str, hello: &[u8]) -> io::Result<TcpStream> {
    let all = address.to_socket_addrs()?;
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in all {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(mut stream) => {
                refuse_itself(&stream)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(10 * PATIENCE))?;
                stream.write_all(hello)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn send_all(stream: TcpStream, first: Vec<u8>, queue: &Queue) -> io::Result<()> {
    let mut out = BufWriter::new(stream);
    let mut next = Some(first);
    loop {
        let message = if let Some(message) = next.take().or_else(|| queue.next()) {
            message
        } else {
            out.flush()?;
            let Some(message) = queue.wait() else { return Ok(()) };
            message
        };
        let length = u32::try_from(message.len()).ok().filter(|length| *length <= MOST);
        let Some(length) = length else {
            tracing::error!(bytes = message.len(), "a message is too long to be sent");
            continue;
        };
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&message)?;
    }
}

/// Receives the messages of another replica.
fn hear(stream: TcpStream, partitions: usize, inbox: &Inbox) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    let mut magic = [0; 8];
    input.read_exact(&mut magic)?;
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "this is no replica");
    if &magic != MAGIC {
        return Err(strange());
    }
    let mut id = [0; 8];
    input.read_exact(&mut id)?;
    let id = u64::from_le_bytes(id);
    let [partition, theirs] = [word(&mut input)?, word(&mut input)?];
    let place = read(&mut input, 1 << 10)?;
    let member = std::str::from_utf8(&place).ok().and_then(Member::parse).ok_or_else(strange)?;
    let is_ours = theirs == partitions && partition < partitions;
    if !is_ours {
        tracing::error!(
            node = id,
            theirs,
            ours = partitions,
            "a node has another number of partitions; its messages are ignored"
        );
    }
    loop {
        let parcel = Parcel::decode(read(&mut input, MOST)?).ok_or_else(strange)?;
        // Else the connection stays open, so that the error is reported once.
        if is_ours && !inbox(partition, id, member.clone(), parcel) {
            return Ok(());
        }
    }
}

fn word(input: &mut impl Read) -> io::Result<usize> {
    let mut word = [0; 4];
    input.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word) as usize)
}

/// Reads the number of bytes that the next word gives; allocates memory as they arrive.
fn read(input: &mut impl Read, most: u32) -> io::Result<Vec<u8>> {
    let length = word(input)?;
    if length > most as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let mut bytes = Vec::new();
    input.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Sends parcels to a node that does not read until all are sent; returns those that reach it later.
    fn reach(parcels: impl Iterator<Item = Parcel>) -> Vec<Parcel> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peers = listener.local_addr().expect("bound").to_string();
        let member = Member { peers, clients: "localhost:1".into() };
        let mut sender = Peers::new(1, &member, 0, 1);
        // The connection is made, and its thread waits in it.
        for parcel in parcels {
            sender.send(2, &member, &parcel);
        }
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut hello = vec![0; sender.hello.len()];
        stream.read_exact(&mut hello).expect("a hello");
        let (mut found, until) = (Vec::new(), Instant::now() + 30 * PATIENCE);
        while let Ok(bytes) = read(&mut stream, MOST) {
            found.push(Parcel::decode(bytes).expect("a parcel"));
            assert!(Instant::now() < until);
        }
        found
    }

    fn raft(bytes: usize) -> Parcel {
        Parcel::Raft { group: None, message: vec![7; bytes] }
    }

    #[test]
    fn messages_of_channels_and_long_ones_leave_room_for_the_groups_short_ones() {
        let channel = |bytes| Parcel::Channel { channel: b"c".to_vec(), message: vec![8; bytes] };
        let many = |parcel: Parcel, count| std::iter::repeat_n(parcel, count);
        // What the kernel takes at once, and half as much again.
        let slack = 16 << 20;
        for (parcel, most) in [
            (channel(256 << 10), 16 << 20),
            (channel(10), 16 << 20),
            (channel(40 << 20), 16 << 20),
            (raft(1 << 20), 64 << 20),
            (raft(100 << 20), 64 << 20),
        ] {
            let one = parcel.encode().len();
            let count = (300 << 20) / one.max(100_000);
            let last = [raft(10), raft(20)];
            let found = reach(many(parcel, count).chain(last.clone()));
            let held = (found.len() - 2) * one;
            assert!(held <= one.max(most) + one + slack, "{held} bytes of {one} each");
            assert!(!found.is_empty());
            assert_eq!(found[found.len() - 2..], last, "parcels of {one} bytes");
        }
    }
}
