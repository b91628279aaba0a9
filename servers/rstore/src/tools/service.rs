//! Server processes: this program, and redis-server.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{Client, Reply};
use crate::config::DurabilityArg;

/// The settings with which this server is started.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Store {
    /// The folder of the pools
    pub(crate) dir: PathBuf,

    /// What an acknowledged write survives
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub(crate) durability: DurabilityArg,

    /// With --durability periodic: the folder of the twins, on a disk
    #[arg(long, value_name = "DIR")]
    pub(crate) twin: Option<PathBuf>,

    /// The number of partitions
    #[arg(long, default_value = "1", value_name = "N|auto")]
    pub(crate) partitions: String,
}

/// The server to start, and the folder of its state.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    /// This program.
    Rstore(Store),
    /// `redis-server` with an append-only file in this folder, synchronised in this mode.
    Redis(PathBuf, &'static str),
}

/// The maximum time until a server has read its state.
const PATIENCE: Duration = Duration::from_mins(10);

/// A server process, killed when this is dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) address: String,
    /// The time from the start of the process to the reply to the first `PING`.
    pub(crate) ready_in: Duration,
    /// The output of the server when it was ready.
    pub(crate) greeting: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL; an error means that it ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts a server, and waits until it answers.
    pub(crate) fn start(service: &Service) -> Result<Self, Error> {
        let started = Instant::now();
        let mut server = match service {
            Service::Rstore(store) => Self::rstore(store)?,
            Service::Redis(folder, fsync) => Self::redis(folder, fsync)?,
        };
        while !server.answers()? {
            if started.elapsed() > PATIENCE || !matches!(server.process.try_wait(), Ok(None)) {
                return Err(Error::Server("does not answer".into()));
            }
            thread::sleep(Duration::from_micros(200));
        }
        server.ready_in = started.elapsed();
        Ok(server)
    }

    fn rstore(store: &Store) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::io("this program"))?;
        let mut process = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--partitions", &store.partitions, "--dir"])
            .arg(&store.dir)
            .args(store.twin.iter().flat_map(|twin| ["--twin".as_ref(), twin.as_os_str()]))
            .args(["--durability", &store.durability.to_string()])
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io("starting the server"))?;
        let mut greeting = String::new();
        if let Some(stdout) = process.stdout.take() {
            let read = BufReader::new(stdout).read_line(&mut greeting);
            read.map_err(Error::io("the server's output"))?;
        }
        let address = greeting.strip_prefix("ready on ").and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_default().to_owned();
        let server = Self { process, address, ready_in: Duration::ZERO, greeting };
        if server.address.is_empty() {
            return Err(Error::Server("ended before it was ready; its message is above".into()));
        }
        Ok(server)
    }

    fn redis(folder: &PathBuf, fsync: &str) -> Result<Self, Error> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.map_err(Error::io("a free port"))?.port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", fsync, "--dir"])
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .map_err(Error::io("starting redis-server"))?;
        let address = format!("127.0.0.1:{port}");
        Ok(Self { process, address, ready_in: Duration::ZERO, greeting: String::new() })
    }

    /// Returns `true` if the server answers and has read its state.
    fn answers(&self) -> Result<bool, Error> {
        let Ok(mut client) = Client::connect(&self.address) else { return Ok(false) };
        match client.call(&["PING"]) {
            Ok(Reply::Simple(pong)) if pong == "PONG" => Ok(true),
            Ok(Reply::Error(error)) if error.starts_with("LOADING") => Ok(false),
            Ok(reply) => Err(Error::Server(format!("answers PING with {reply:?}"))),
            Err(_) => Ok(false),
        }
    }
}
