//! Connections: one thread each; requests that came together are answered together.

use std::collections::HashMap;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use pmindex::Index;

use crate::Error;
use crate::command::{self, After, Context};
use crate::resp::{Incoming, Replies, read_request};
use crate::scan::Cursors;
use crate::store::{Store, StoreArgs};

/// How to serve.
#[derive(clap::Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Where to listen; port 0 takes any that is free
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDRESS")]
    listen: String,
}

/// The most connections at once.
const MAX_CONNECTIONS: usize = 1024;
/// Bytes of each of a connection's two buffers.
const BUFFER: usize = 64 << 10;

/// Connections under way, so that a shutdown can end them.
#[derive(Debug, Default)]
struct Connections {
    open: Mutex<HashMap<u64, TcpStream>>,
    stopping: AtomicBool,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until a client says `SHUTDOWN`; then closes the pool cleanly. Prints where it listens and
/// how long it took to be ready.
pub fn serve(args: &ServeArgs) -> Result<(), Error> {
    let started = Instant::now();
    let store = Store::open(&args.store)?;
    let listener = TcpListener::bind(&args.listen).map_err(Error::io(&args.listen))?;
    let address = listener.local_addr().map_err(Error::io("the listening socket"))?;
    println!(
        "ready on {address} after {:.1} ms: {} {} index, {} durability, {}",
        started.elapsed().as_secs_f64() * 1e3,
        if store.pool.was_clean() { "clean" } else { "recovered" },
        store.index.kind(),
        store.pool.durability(),
        store
            .index
            .is_empty()
            .map_err(crate::StoreError::from)
            .map(|empty| { if empty { "no records yet" } else { "with the records of before" } })?,
    );
    io::stdout().flush().map_err(Error::io("standard output"))?;
    let context = Arc::new(Context { store, cursors: Cursors::default(), started });
    let connections = Arc::new(Connections::default());
    let mut threads: Vec<thread::JoinHandle<()>> = Vec::new();
    for (number, stream) in (0..).zip(listener.incoming()) {
        if connections.stopping.load(SeqCst) {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let Ok(mut stream) = stream else { continue };
        if threads.len() >= MAX_CONNECTIONS {
            let _ = stream.error("ERR max number of clients reached");
            continue;
        }
        let Ok(clone) = stream.try_clone() else { continue };
        connections.open().insert(number, clone);
        let (context, connections) = (Arc::clone(&context), Arc::clone(&connections));
        let connection = move || {
            // A client that goes away in the middle of a reply is no news.
            if let Ok(After::Shutdown) = converse(&context, &stream) {
                stop(&connections, address);
            }
            connections.open().remove(&number);
        };
        if let Ok(thread) = thread::Builder::new().spawn(connection) {
            threads.push(thread);
        }
    }
    for (_, stream) in connections.open().drain() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
    if let Some(context) = Arc::into_inner(context) {
        context.store.close()?;
    }
    Ok(())
}

/// Ends the loop that accepts connections.
fn stop(connections: &Connections, address: std::net::SocketAddr) {
    connections.stopping.store(true, SeqCst);
    // The loop looks at the flag when it hears of a connection.
    let _ = TcpStream::connect(address);
}

/// Answers a client until it leaves.
fn converse(context: &Context, stream: &TcpStream) -> io::Result<After> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(BUFFER, stream);
    let mut output = BufWriter::with_capacity(BUFFER, stream);
    loop {
        let after = match read_request(&mut input)? {
            Incoming::Request(request) => command::run(context, &request, &mut output)?,
            Incoming::End => return Ok(After::Quit),
            Incoming::Invalid(error) => {
                output.error(&format!("ERR {error}"))?;
                After::Quit
            }
        };
        if after != After::Go || input.buffer().is_empty() {
            output.flush()?;
        }
        if after != After::Go {
            return Ok(after);
        }
    }
}
