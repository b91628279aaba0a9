//! The control thread: it starts the other threads, which open the partitions, accepts connections, receives
//! signals, and ends the server.

mod accept;
mod limits;
mod metrics;
mod notify;
#[cfg(feature = "tls")]
mod tls;

use std::io::{self, Write};
use std::net::{self, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, UnixStream};
use mio::{Events, Interest, Poll, Token};

use crate::Error;
use crate::access::Users;
use crate::config::Settings;
use crate::group::{Identity, Parcel, Peers};
use crate::keyspace::slot;
use crate::shard::{Folder, Opened};
use crate::worker::{Common, Figures, Limits, Message, Post, Worker};

use accept::{Doors, Kind};

const SIGNAL: Token = Token(usize::MAX - 1);
const WAKE: Token = Token(usize::MAX - 2);

/// Serves until a signal (SIGTERM, Ctrl-C) or a client's `SHUTDOWN`; then closes every pool cleanly. Prints
/// the addresses, and how long it took to be ready.
///
/// # Errors
/// The reason why it could not start.
pub fn serve(settings: &Settings) -> Result<(), Error> {
    let started = Instant::now();
    // First everything that can be wrong with the settings, then the ports, and last what stays: the folder.
    let (mut storage, identity) = (settings.storage()?, settings.identity()?);
    let (users, limits) = (Users::new(settings)?, Limits::new(settings)?);
    settings.tls()?;
    let max_value = settings.most_value()?;
    let folder = Folder::find(&storage)?;
    // Each partition of a group has a leader of its own, to which clients must find their way.
    storage.cluster |= identity.is_some() && folder.partitions > 1;
    let groups = if identity.is_some() { folder.partitions } else { 0 };
    limits::raise(limits.maxclients.load(Relaxed));
    let mut poll = Poll::new().map_err(Error::io("a poll"))?;
    let control = mio::Waker::new(poll.registry(), WAKE).map_err(Error::io("a waker"))?;
    let mut doors = Doors::open(settings, folder.partitions, storage.cluster)?;
    let metrics = settings.metrics.as_deref().map(metrics::listen).transpose()?;
    let peers = identity.as_ref().and(settings.peers.as_deref());
    let peers = peers.map(Peers::bind).transpose()?;
    let common = Arc::new(Common {
        settings: settings.clone(),
        cluster: storage.cluster,
        users,
        limits,
        max_value,
        started,
        last_save: AtomicU64::new(crate::worker::now() / 1000),
        figures: (0..folder.partitions).map(|_| Figures::default()).collect(),
        groups: (0..groups).map(|_| Mutex::default()).collect(),
        folder,
        connections: AtomicUsize::new(0),
        next_connection: AtomicU64::new(0),
        accepted: AtomicU64::new(0),
        rejected: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        control: Arc::new(control),
        addresses: doors.addresses.clone(),
        opened: OnceLock::new(),
    });
    let new = common.folder.create()?;
    let (threads, post, opened) = start(&common, &storage, identity.as_ref(), peers)?;
    drop(new); // it has pools now
    let _ = common.opened.set(persistence(&opened));
    let metrics = metrics.map(|listener| metrics::serve(listener, &common)).transpose()?;
    greet(&doors, &opened, started, metrics)?;
    notify::ready();
    let ended = accept_until_stopped(&mut poll, &mut doors, &common, &post);
    notify::stopping();
    common.stopping.store(true, Relaxed);
    for (number, thread) in threads.iter().enumerate() {
        let mut message = Message::Stop;
        while let Err(back) = post.send(number, message) {
            if thread.is_finished() {
                break;
            }
            message = back;
            thread::sleep(Duration::from_millis(1));
        }
    }
    for thread in threads {
        if thread.join().is_err() {
            return Err(Error::Server(
                "stopped since one of its threads panicked; its message is above".into(),
            ));
        }
    }
    tracing::info!("ended");
    ended
}

type Threads = (Vec<thread::JoinHandle<()>>, Post, Vec<Summary>);

/// The result of opening a partition.
#[derive(Debug)]
struct Summary {
    number: usize,
    records: u64,
    replayed: u64,
    damaged: u64,
    was_clean: bool,
    durability: String,
    took: Duration,
}

/// Starts a thread for each partition, which opens the partition.
fn start(
    common: &Arc<Common>,
    storage: &crate::config::Storage,
    identity: Option<&Identity>,
    peers: Option<net::TcpListener>,
) -> Result<Threads, Error> {
    let polls: Result<Vec<_>, _> = (0..common.partitions()).map(|_| Worker::poll()).collect();
    let polls = polls.map_err(Error::io("a poll"))?;
    let wakers = polls.iter().map(|(_, waker)| Arc::clone(waker)).collect();
    let (post, ends) = Post::new(wakers);
    if let Some(peers) = peers {
        hear_peers(peers, common, &post)?;
    }
    let (sender, receiver) = mpsc::channel();
    let mut threads = Vec::new();
    for (number, ((poll, _), mail)) in polls.into_iter().zip(ends).enumerate() {
        let (common, storage, post, sender) =
            (Arc::clone(common), storage.clone(), post.clone(), sender.clone());
        let identity = identity.cloned();
        let thread = thread::Builder::new().name(format!("rstore-{number}"));
        let thread = thread.spawn(move || {
            let opened = common.folder.partition(&storage, number, identity.as_ref());
            let shard = match opened {
                Err(error) => return drop(sender.send(Err(error))),
                Ok(opened) => {
                    let (summary, shard) = summarize(number, opened);
                    let _ = sender.send(Ok(summary));
                    shard
                }
            };
            drop(sender);
            Worker::new(number, common, shard, poll, mail, post).run();
        });
        threads.push(thread.map_err(Error::io("a thread"))?);
    }
    drop(sender);
    // All of them, also after an error: a folder must not be removed while a thread creates a pool in it.
    let opened: Vec<_> = receiver.into_iter().collect();
    let mut opened = opened.into_iter().collect::<Result<Vec<_>, Error>>()?;
    opened.sort_by_key(|summary| summary.number);
    if opened.len() < common.partitions() {
        return Err(Error::Server("could not open every partition; the reasons are above".into()));
    }
    Ok((threads, post, opened))
}

/// Listens for the replicas of other nodes.
fn hear_peers(listener: net::TcpListener, common: &Arc<Common>, post: &Post) -> Result<(), Error> {
    let (common, post) = (Arc::clone(common), post.clone());
    let partitions = common.partitions();
    let inbox = move |partition, from, place, parcel| {
        // A message that does not fit into the queue is lost, like one that the network loses.
        match parcel {
            Parcel::Raft { group, message: bytes } => {
                post.send_from_node(partition, Message::Peer { from, place, group, bytes });
            }
            Parcel::Channel { channel, message } => {
                for thread in 0..partitions {
                    let (channel, message) = (channel.clone(), message.clone());
                    post.send_from_node(thread, Message::Heard { channel, message });
                }
            }
        }
        !common.stopping.load(Relaxed)
    };
    Peers::listen(listener, partitions, Arc::new(inbox))
}

fn summarize(number: usize, opened: Opened) -> (Summary, crate::shard::Shard) {
    let summary = Summary {
        number,
        records: opened.recovery.records,
        replayed: opened.recovery.replayed,
        damaged: opened.recovery.damaged,
        was_clean: opened.was_clean,
        durability: opened.durability,
        took: opened.took,
    };
    tracing::info!(
        partition = number,
        records = summary.records,
        replayed = summary.replayed,
        clean = summary.was_clean,
        durability = summary.durability,
        took_ms = summary.took.as_millis() as u64,
        "opened"
    );
    if summary.damaged > 0 {
        tracing::error!(
            partition = number,
            damaged = summary.damaged,
            "records are lost (--salvage)"
        );
    }
    (summary, opened.shard)
}

/// Returns the lines of `INFO persistence`.
fn persistence(opened: &[Summary]) -> String {
    let durability = opened.first().map_or("", |summary| &summary.durability);
    let clean = opened.iter().all(|summary| summary.was_clean);
    let slowest = opened.iter().map(|summary| summary.took).max().unwrap_or_default();
    format!(
        "durability:{durability}\r\nclean_start:{}\r\nopened_in_us:{}\r\nreplayed_writes:{}\r\n",
        u8::from(clean),
        slowest.as_micros(),
        opened.iter().map(|summary| summary.replayed).sum::<u64>(),
    )
}

/// Prints that the server serves: where, after what time, and what it opened.
fn greet(
    doors: &Doors,
    opened: &[Summary],
    started: Instant,
    metrics: Option<SocketAddr>,
) -> Result<(), Error> {
    let records: u64 = opened.iter().map(|summary| summary.records).sum();
    let clean = opened.iter().all(|summary| summary.was_clean);
    let durability = opened.first().map_or("", |summary| &summary.durability);
    let address = doors.addresses.first().map(SocketAddr::to_string).unwrap_or_default();
    let mut rest = String::new();
    for (name, address) in [
        ("tls", doors.address(Kind::Tls)),
        ("memcached", doors.address(Kind::Memcached)),
        ("metrics", metrics),
    ] {
        if let Some(address) = address {
            rest += &format!(", {name} on {address}");
        }
    }
    let partitions = opened.len();
    let slots = slot::SLOTS / u16::try_from(partitions).unwrap_or(1);
    println!(
        "ready on {address} after {:.1} ms: {}, {durability} durability, {}, {} of {slots} slots{rest}",
        started.elapsed().as_secs_f64() * 1e3,
        if clean { "clean" } else { "recovered" },
        counted(records, "record"),
        counted(partitions as u64, "partition"),
    );
    io::stdout().flush().map_err(Error::io("standard output"))
}

/// Returns a number and what it counts: "1 record", "2 records".
fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn accept_until_stopped(
    poll: &mut Poll,
    doors: &mut Doors,
    common: &Arc<Common>,
    post: &Post,
) -> Result<(), Error> {
    let signals = |signal| -> io::Result<UnixStream> {
        let (hears, says) = std::os::unix::net::UnixStream::pair()?;
        hears.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal, says)?;
        Ok(UnixStream::from_std(hears))
    };
    let mut ears = Vec::new();
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let mut ear = signals(signal).map_err(Error::io("signals"))?;
        let registered = poll.registry().register(&mut ear, SIGNAL, Interest::READABLE);
        registered.map_err(Error::io("signals"))?;
        ears.push(ear);
    }
    for (number, door) in doors.all.iter_mut().enumerate() {
        let registered =
            poll.registry().register(&mut door.listener, Token(number), Interest::READABLE);
        registered.map_err(Error::io("a listening socket"))?;
    }
    let mut events = Events::with_capacity(64);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(Error::io("waiting for connections")(error));
            }
            _ => {}
        }
        for event in &events {
            match event.token() {
                SIGNAL => {
                    tracing::info!("a signal ends the server");
                    return Ok(());
                }
                WAKE => {}
                Token(number) => doors.accept(number, common, post),
            }
        }
        if common.stopping.load(Relaxed) {
            return Ok(());
        }
    }
}

/// A listening socket.
fn listen(address: &str, offset: u16) -> Result<TcpListener, Error> {
    let mut address = Settings::address(address)?;
    if address.port() != 0 {
        address.set_port(address.port().saturating_add(offset));
    }
    TcpListener::bind(address).map_err(Error::io(address))
}
