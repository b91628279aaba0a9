//! The network of a group: a connection from each replica to each other one, with a thread at both ends. The
//! groups of a node's partitions have connections of their own, so a long message delays no other partition's
//! heartbeats; all arrive at the one port of the node.
//!
//! ```text
//! | "rstore4\n" | id of the sender (8) | partition (4) | partitions (4) | bytes of its place (4) | place |
//!                                                                         then, for each message:
//! | bytes (4) | parcel |
//! ```
//!
//! A [`Parcel`] is a message of Raft or of a channel. Those that cannot be sent at once are dropped: Raft
//! repeats its messages, and channels promise no delivery. Connections are not authenticated: use
//! a private network.

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::{Member, Parcel};
use crate::Error;
use crate::client::refuse_itself;

const MAGIC: &[u8; 8] = b"rstore4\n";
/// The number of parcels that wait for a connection at most.
const QUEUE: usize = 1024;
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
    ways: BTreeMap<u64, (String, SyncSender<Vec<u8>>)>,
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
            for stream in listener.incoming().flatten() {
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
        let known = self.ways.get(&to).is_some_and(|(address, _)| *address == member.peers);
        if !known {
            let (sender, queue) = sync_channel(QUEUE);
            let (address, hello) = (member.peers.clone(), self.hello.clone());
            let speak = move || speak(&address, &hello, &queue);
            let thread = thread::Builder::new().name("rstore-peer-out".into()).spawn(speak);
            if thread.is_err() {
                return;
            }
            self.ways.insert(to, (member.peers.clone(), sender));
        }
        if let Some((_, way)) = self.ways.get(&to) {
            let _ = way.try_send(parcel.encode());
        }
    }
}

/// Sends messages until the queue's sender is dropped.
fn speak(address: &str, hello: &[u8], queue: &Receiver<Vec<u8>>) {
    while let Ok(first) = queue.recv() {
        let spoken = connect(address, hello).and_then(|stream| send_all(stream, first, queue));
        match spoken {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(address, %error, "another replica is not reached");
                // The waiting messages are old.
                while queue.try_recv().is_ok() {}
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

fn send_all(stream: TcpStream, first: Vec<u8>, queue: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut out = BufWriter::new(stream);
    let mut next = Some(first);
    loop {
        let message = if let Some(message) = next.take().or_else(|| queue.try_recv().ok()) {
            message
        } else {
            out.flush()?;
            let Ok(message) = queue.recv() else { return Ok(()) };
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
