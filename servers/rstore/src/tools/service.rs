//! Server processes: this program, redis-server and memcached.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{Client, Reply};
use crate::config::{Bytes, DurabilityArg};

/// The settings with which this server is started.
#[derive(clap::Args, Clone, Debug)]
pub struct Store {
    /// The folder in which a new one is made for the pools, and removed at the end; created if it is missing
    pub dir: PathBuf,

    /// What an acknowledged write survives
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub durability: DurabilityArg,

    /// With --durability periodic: the folder, on a disk, in which a new one is made for the twins
    #[arg(long, value_name = "DIR")]
    pub twin: Option<PathBuf>,

    /// The number of partitions
    #[arg(long, default_value = "1", value_name = "N|auto")]
    pub partitions: String,

    /// The capacity: see `rstore serve --help`
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<Bytes>,
}

/// The server to start, and the folder of its state.
#[derive(Clone, Debug)]
pub enum Service {
    /// This program, which must accept `serve` with [`Settings`](crate::Settings).
    Rstore(Store),
    /// `redis-server` in this folder, without snapshots, with more options, such as [`AOF`].
    Redis(PathBuf, Vec<&'static str>),
    /// `memcached` with one thread and this many MiB, which evicts nothing.
    Memcached(u32),
}

/// The options of redis-server for an append-only file; the mode of synchronisation follows.
pub const AOF: [&str; 3] = ["--appendonly", "yes", "--appendfsync"];

/// The maximum time until a server has read its state.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server process, killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub process: Child,
    /// Where it listens.
    pub address: String,
    /// The time from the start of the process to the reply to the first `PING`.
    pub ready_in: Duration,
    /// The output of the server when it was ready.
    pub greeting: String,
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
    pub fn start(service: &Service) -> Result<Self, Error> {
        let started = Instant::now();
        let mut server = match service {
            Service::Rstore(store) => Self::rstore(store)?,
            Service::Redis(folder, options) => Self::redis(folder, options)?,
            Service::Memcached(mib) => Self::memcached(*mib)?,
        };
        let answers = match service {
            Service::Memcached(_) => Self::accepts,
            _ => Self::answers,
        };
        while !answers(&server)? {
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
            .args(
                store.capacity.iter().flat_map(|bytes| ["--capacity".into(), bytes.0.to_string()]),
            )
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

    fn redis(folder: &Path, options: &[&str]) -> Result<Self, Error> {
        let (mut command, address) = on_free_port("redis-server", "--bind", "--port")?;
        command.args(["--save", "", "--dir"]).arg(folder).args(options);
        Self::spawn(&mut command, address)
    }

    fn memcached(mib: u32) -> Result<Self, Error> {
        let (mut command, address) = on_free_port("memcached", "-l", "-p")?;
        command.args(["-t", "1", "-M", "-m", &mib.to_string()]);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        Self::spawn(&mut command, address)
    }

    fn spawn(command: &mut Command, address: String) -> Result<Self, Error> {
        let process = command.stdout(Stdio::null()).spawn();
        let process = process.map_err(Error::io(command.get_program().display()))?;
        Ok(Self { process, address, ready_in: Duration::ZERO, greeting: String::new() })
    }

    fn accepts(&self) -> Result<bool, Error> {
        Ok(TcpStream::connect(&self.address).is_ok())
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

/// Returns `true` if this server is not another program, or its program is installed.
#[must_use]
pub fn is_installed(service: &Service) -> bool {
    let program = match service {
        Service::Rstore(_) => return true,
        Service::Redis(..) => "redis-server",
        Service::Memcached(_) => "memcached",
    };
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns the command that starts a program at a free port, and the address.
fn on_free_port(program: &str, host: &str, port: &str) -> Result<(Command, String), Error> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let free = free.map_err(Error::io("a free port"))?;
    let mut command = Command::new(program);
    command.args([host, "127.0.0.1", port, &free.port().to_string()]);
    Ok((command, free.to_string()))
}
