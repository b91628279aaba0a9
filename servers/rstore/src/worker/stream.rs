//! The byte stream of a connection, plain or with TLS.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;

/// A stream that never blocks.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<Tls>),
}

/// A stream with TLS over it.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub(crate) struct Tls {
    socket: TcpStream,
    session: rustls::ServerConnection,
}

#[cfg(feature = "tls")]
impl Tls {
    pub(crate) fn new(
        socket: TcpStream,
        config: &std::sync::Arc<rustls::ServerConfig>,
    ) -> Result<Self, rustls::Error> {
        let mut session = rustls::ServerConnection::new(std::sync::Arc::clone(config))?;
        // The limit of what is buffered for a client that does not read.
        session.set_buffer_limit(Some(256 << 10));
        Ok(Self { socket, session })
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            let read = self.session.read_tls(&mut self.socket)?;
            let processed = self.session.process_new_packets();
            // The other side learns of an alert, if it still listens.
            if self.session.wants_write() {
                let _ = self.session.write_tls(&mut self.socket);
            }
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if read == 0 {
                return Ok(0);
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            other => other.map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl Stream {
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => &mut tls.socket,
        }
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.peer_addr().ok(),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.socket.peer_addr().ok(),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.read(into),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    /// Sends the bytes that TLS buffers.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.flush(),
        }
    }
}
