//! A proxy before each node, which knows who sends.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Way;

#[derive(Default)]
struct State {
    /// Nothing passes here, as if each packet was lost; what was sent comes after the repair.
    cut: BTreeSet<Way>,
    streams: Vec<(Way, TcpStream)>,
}

/// The proxies of all nodes.
#[derive(Clone, Default)]
pub(crate) struct Proxies(Arc<Mutex<State>>);

impl Proxies {
    /// Makes the place for the other nodes where a node is reached that listens at this port.
    pub(super) fn place(&self, node: u64, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("bound").port();
        let this = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = this.clone();
                thread::spawn(move || drop(this.carry(stream, node, port)));
            }
        });
        place
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics with it")
    }

    /// Cuts these directions, and no others.
    pub(super) fn cut(&self, ways: impl IntoIterator<Item = Way>) {
        self.state().cut = ways.into_iter().collect();
    }

    /// Ends all connections.
    pub(super) fn reset(&self) {
        for (_, stream) in std::mem::take(&mut self.state().streams) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn is_cut(&self, way: Way) -> bool {
        self.state().cut.contains(&way)
    }

    /// Carries what a node sends to another one.
    fn carry(&self, mut from: TcpStream, node: u64, port: u16) -> io::Result<()> {
        // The greeting: 8 bytes that name the protocol, and the sender's id.
        let mut hello = [0; 16];
        from.read_exact(&mut hello)?;
        let sender = u64::from_le_bytes(hello[8..].try_into().expect("8 bytes"));
        let way = (sender, node);
        self.wait(way);
        let mut to = TcpStream::connect(("127.0.0.1", port))?;
        if to.local_addr()? == to.peer_addr()? {
            return Ok(()); // TCP has connected it to itself, as no process listens
        }
        to.set_nodelay(true)?;
        to.write_all(&hello)?;
        {
            let state = &mut *self.state();
            state.streams.push((way, from.try_clone()?));
            state.streams.push((way, to.try_clone()?));
        }
        let mut buffer = vec![0; 64 << 10];
        let ended = loop {
            match from.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    self.wait(way);
                    if to.write_all(&buffer[..count]).is_err() {
                        break Ok(());
                    }
                }
                other => break other.map(drop),
            }
        };
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        ended
    }

    fn wait(&self, way: Way) {
        while self.is_cut(way) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
