//! Kill, restart, verify: what the server is there to show, with the times.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{Client, Reply};
use crate::load::{key, per_second, value};
use crate::store::StoreArgs;

/// How to try it.
#[derive(clap::Args, Clone, Debug)]
pub struct TrialArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Records to write before the kill; the kill comes while writing goes on
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    records: u64,

    /// Connections that write
    #[arg(long, default_value_t = 4, value_name = "N")]
    connections: u64,
}

const IN_FLIGHT: u64 = 64;
const VALUE_SIZE: usize = 64;

/// A server process, killed when this is dropped.
struct Server {
    process: Child,
    address: String,
    /// From the start of the process to the reply to a first `PING`.
    ready_in: Duration,
    /// What it printed when it was ready.
    greeting: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL; an error means that it ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(store: &StoreArgs) -> Result<Self, Error> {
        let started = Instant::now();
        let program = std::env::current_exe().map_err(Error::io("this program"))?;
        let durability = clap::ValueEnum::to_possible_value(&store.durability);
        let mut process = Command::new(program)
            .arg("serve")
            .arg(&store.pool)
            .args(["--listen", "127.0.0.1:0", "--index", store.index.name()])
            .args(["--size", &store.size.to_string()])
            .args(durability.iter().flat_map(|mode| ["--durability", mode.get_name()]))
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
        let mut server = Self { process, address, ready_in: Duration::ZERO, greeting };
        if server.address.is_empty() {
            return Err(Error::Server("ended before it was ready".into()));
        }
        let reply = Client::connect(&server.address)?.call(&["PING"])?;
        if reply != Reply::Simple("PONG".into()) {
            return Err(Error::Server(format!("answers PING with {reply:?}")));
        }
        server.ready_in = started.elapsed();
        Ok(server)
    }
}

/// Writes through several connections, kills the server while they write, starts it again, and
/// looks for every record whose write was acknowledged.
pub fn trial(args: &TrialArgs) -> Result<(), Error> {
    let connections = args.connections.max(1);
    let mut server = Server::start(&args.store)?;
    println!("started: {}", server.greeting.trim_end());
    let acknowledged: Vec<AtomicU64> = (0..connections).map(|_| AtomicU64::new(0)).collect();
    let (address, started) = (server.address.clone(), Instant::now());
    thread::scope(|scope| {
        for (first, count) in (0..).zip(&acknowledged) {
            let address = &address;
            // It ends with an error: the server is killed under it.
            scope.spawn(move || write(address, first, connections, count));
        }
        let total = || acknowledged.iter().map(|count| count.load(SeqCst)).sum::<u64>();
        while total() < args.records && matches!(server.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_micros(500));
        }
        server.process.kill().map_err(Error::io("killing the server"))
    })?;
    let elapsed = started.elapsed();
    server.process.wait().map_err(Error::io("the killed server"))?;
    let total: u64 = acknowledged.iter().map(|count| count.load(SeqCst)).sum();
    println!(
        "killed after {total} acknowledged writes ({:.0} a second)",
        per_second(total, elapsed)
    );

    let server = Server::start(&args.store)?;
    println!("restarted: {}", server.greeting.trim_end());
    println!("from the start of the process to its first reply: {:.1} ms", millis(server.ready_in));
    let started = Instant::now();
    let mut lost = 0;
    let mut client = Client::connect(&server.address)?;
    for (first, count) in (0..).zip(&acknowledged) {
        lost += verify(&mut client, first, connections, count.load(SeqCst))?;
    }
    if lost > 0 {
        return Err(Error::Lost { lost, acknowledged: total });
    }
    println!("all {total} verified in {:.0} ms", millis(started.elapsed()));
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes every `step`-th record from `first` on until the server is gone; counts replies.
fn write(address: &str, first: u64, step: u64, acknowledged: &AtomicU64) -> Result<(), Error> {
    let mut client = Client::connect(address)?;
    for batch in 0.. {
        for i in 0..IN_FLIGHT {
            let number = first + (batch * IN_FLIGHT + i) * step;
            client.send(&[b"SET", key(number).as_bytes(), &value(number, VALUE_SIZE)])?;
        }
        client.flush()?;
        for _ in 0..IN_FLIGHT {
            if client.receive()? != Reply::Simple("OK".into()) {
                return Err(Error::Server("refuses a write".into()));
            }
            acknowledged.fetch_add(1, SeqCst);
        }
    }
    Ok(())
}

/// How many of the first `count` records of a connection are not what was written.
fn verify(client: &mut Client, first: u64, step: u64, count: u64) -> Result<u64, Error> {
    let numbers: Vec<u64> = (0..count).map(|i| first + i * step).collect();
    let mut lost = 0;
    for batch in numbers.chunks(1024) {
        let mut request = vec!["MGET".to_owned()];
        request.extend(batch.iter().map(|number| key(*number)));
        let Reply::Array(values) = client.call(&request)? else {
            return Err(Error::Server("answers MGET with no array".into()));
        };
        if values.len() != batch.len() {
            return Err(Error::Server("answers MGET with too few values".into()));
        }
        let good = |(number, reply): &(&u64, &Reply)| {
            **reply == Reply::Bulk(Some(value(**number, VALUE_SIZE)))
        };
        lost += batch.iter().zip(&values).filter(|pair| !good(pair)).count() as u64;
    }
    Ok(lost)
}
