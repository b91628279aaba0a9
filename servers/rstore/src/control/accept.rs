//! The listening sockets, and the assignment of connections to threads.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mio::net::{TcpListener, TcpStream};

use crate::Error;
use crate::config::Settings;
use crate::worker::{Common, Message, Post, Speaks, Stream};

/// The kind of clients that connect to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Tls,
    Memcached,
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) listener: TcpListener,
    kind: Kind,
    /// The thread that serves its connections; `None`: all threads in turn.
    to: Option<usize>,
    address: SocketAddr,
}

/// All listening sockets.
pub(super) struct Doors {
    pub(super) all: Vec<Door>,
    /// The sockets for clients of Redis: one for each partition in a cluster, else one.
    pub(super) addresses: Vec<SocketAddr>,
    next: usize,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Doors {
    pub(super) fn open(
        settings: &Settings,
        partitions: usize,
        cluster: bool,
    ) -> Result<Self, Error> {
        let mut all = Vec::new();
        let mut door = |address: &str, offset: usize, kind, to| {
            let offset = u16::try_from(offset).unwrap_or(u16::MAX);
            let listener = super::listen(address, offset)?;
            let address = listener.local_addr().map_err(Error::io("a listening socket"))?;
            all.push(Door { listener, kind, to, address });
            Ok::<_, Error>(address)
        };
        let listen = settings.listen.as_deref().unwrap_or("127.0.0.1:6379");
        let mut addresses = Vec::new();
        if cluster {
            for number in 0..partitions {
                addresses.push(door(listen, number, Kind::Redis, Some(number))?);
            }
        } else {
            addresses.push(door(listen, 0, Kind::Redis, None)?);
        }
        if let Some(address) = &settings.memcached {
            door(address, 0, Kind::Memcached, None)?;
        }
        if let Some(address) = &settings.tls_listen {
            if cluster {
                return Err(Error::Setting(
                    "--tls-listen has one port: omit it with --cluster, and with several partitions of a group",
                ));
            }
            door(address, 0, Kind::Tls, None)?;
        }
        Ok(Self {
            all,
            addresses,
            next: 0,
            #[cfg(feature = "tls")]
            tls: match settings.tls()? {
                Some((certificates, key)) => Some(super::tls::config(certificates, key)?),
                None => None,
            },
        })
    }

    pub(super) fn address(&self, kind: Kind) -> Option<SocketAddr> {
        self.all.iter().find(|door| door.kind == kind).map(|door| door.address)
    }

    /// Accepts the connections that wait at a socket.
    pub(super) fn accept(&mut self, number: usize, common: &Arc<Common>, post: &Post) {
        loop {
            let door = &self.all[number];
            let (kind, to) = (door.kind, door.to);
            match door.listener.accept() {
                Ok((socket, _)) => self.admit(socket, kind, to, common, post),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Most often the process has no descriptors left: waiting clients are accepted when
                    // others disconnect.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn admit(
        &mut self,
        mut socket: TcpStream,
        kind: Kind,
        to: Option<usize>,
        common: &Arc<Common>,
        post: &Post,
    ) {
        common.accepted.fetch_add(1, Relaxed);
        if common.connections.load(Relaxed) >= common.limits.maxclients.load(Relaxed) {
            common.rejected.fetch_add(1, Relaxed);
            let _ = socket.write_all(b"-ERR max number of clients reached\r\n");
            return;
        }
        // Replies are complete when they are written, so nothing is gained by delaying them.
        let _ = socket.set_nodelay(true);
        let stream = match self.dress(socket, kind) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be set up");
                return;
            }
        };
        let speaks = if kind == Kind::Memcached { Speaks::Memcached } else { Speaks::Redis };
        let to = to.unwrap_or_else(|| {
            self.next = (self.next + 1) % common.partitions();
            self.next
        });
        common.connections.fetch_add(1, Relaxed);
        if post.send(to, Message::Connection(stream, speaks)).is_err() {
            // The thread is overloaded: the client may try again.
            common.connections.fetch_sub(1, Relaxed);
            common.rejected.fetch_add(1, Relaxed);
        }
    }

    fn dress(&self, socket: TcpStream, kind: Kind) -> Result<Stream, Error> {
        match kind {
            Kind::Redis | Kind::Memcached => Ok(Stream::Plain(socket)),
            #[cfg(feature = "tls")]
            Kind::Tls => {
                let config = self
                    .tls
                    .as_ref()
                    .ok_or(Error::Setting("a TLS port needs --tls-cert and --tls-key"))?;
                let tls = crate::worker::Tls::new(socket, config);
                tls.map(|tls| Stream::Tls(Box::new(tls)))
                    .map_err(|error| Error::Tls(error.to_string()))
            }
            #[cfg(not(feature = "tls"))]
            Kind::Tls => Err(Error::Setting(
                "this program was built without TLS; build it with the feature `tls`",
            )),
        }
    }
}
