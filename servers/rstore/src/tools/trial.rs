//! The trial: kill the server, restart it, and verify every acknowledged write, with the times.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use clap::value_parser;

use super::load::{key, per_second, value};
use super::scratch::Scratch;
use super::service::{Server, Service, Store};
use crate::Error;
use crate::client::{Client, Reply};

/// The settings of the trial.
#[derive(clap::Args, Clone, Debug)]
pub struct TrialArgs {
    #[command(flatten)]
    store: Store,

    /// Records to write before the kill, which comes while writing continues
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    records: u64,

    /// Connections that write
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    connections: u64,
}

pub(crate) const IN_FLIGHT: u64 = 64;
/// The length of the values of a trial.
pub const VALUE_SIZE: usize = 64;

/// The results of a trial.
#[derive(Debug)]
pub struct Outcome {
    /// Writes that were acknowledged before the kill.
    pub acknowledged: u64,
    /// Their rate per second.
    pub rate: f64,
    /// The time from the start of the new process to the reply to the first `PING`.
    pub ready_in: Duration,
    /// The output of the server at its first start and at its restart.
    pub greetings: [String; 2],
    /// Acknowledged writes that are missing.
    pub lost: u64,
    /// The time of the verification.
    pub verified_in: Duration,
}

/// Writes through several connections, kills the server meanwhile, restarts it, and verifies every record
/// whose write was acknowledged. All files are in a new folder, which is removed unless records are lost.
pub fn trial(args: &TrialArgs) -> Result<(), Error> {
    let scratch = Scratch::new(&args.store.dir)?;
    let twins = args.store.twin.as_deref().map(Scratch::new).transpose()?;
    let store = Store {
        dir: scratch.path().join("pools"),
        twin: twins.as_ref().map(|twins| twins.path().to_owned()),
        ..args.store.clone()
    };
    let done = verify_all(&Service::Rstore(store), args);
    twins.into_iter().fold(scratch.end(done), |done, twins| twins.end(done))
}

fn verify_all(service: &Service, args: &TrialArgs) -> Result<(), Error> {
    let outcome = attempt(service, args.records, args.connections)?;
    let Outcome { acknowledged, lost, .. } = outcome;
    println!("started: {}", outcome.greetings[0].trim_end());
    println!("killed after {acknowledged} acknowledged writes ({:.0} a second)", outcome.rate);
    println!("restarted: {}", outcome.greetings[1].trim_end());
    println!(
        "from the start of the process to its first reply: {:.1} ms",
        millis(outcome.ready_in)
    );
    if lost > 0 {
        return Err(Error::Lost { lost, acknowledged });
    }
    println!("all {acknowledged} verified in {:.0} ms", millis(outcome.verified_in));
    Ok(())
}

/// Runs the trial on any server.
pub fn attempt(service: &Service, records: u64, connections: u64) -> Result<Outcome, Error> {
    let connections = connections.max(1);
    let mut server = Server::start(service)?;
    let at_first = server.greeting.clone();
    let counts: Vec<AtomicU64> = (0..connections).map(|_| AtomicU64::new(0)).collect();
    let (address, started) = (server.address.clone(), Instant::now());
    thread::scope(|scope| {
        for (first, count) in (0..).zip(&counts) {
            let address = &address;
            // It ends with an error, since the server is killed.
            scope.spawn(move || write(address, first, connections, count));
        }
        let total = || counts.iter().map(|count| count.load(SeqCst)).sum::<u64>();
        while total() < records && matches!(server.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_micros(500));
        }
        server.process.kill().map_err(Error::io("killing the server"))
    })?;
    let elapsed = started.elapsed();
    server.process.wait().map_err(Error::io("the killed server"))?;
    let acknowledged: u64 = counts.iter().map(|count| count.load(SeqCst)).sum();
    let rate = per_second(acknowledged, elapsed);

    let server = Server::start(service)?;
    let started = Instant::now();
    let mut lost = 0;
    let mut client = Client::connect(&server.address)?;
    for (first, count) in (0..).zip(&counts) {
        lost += verify(&mut client, first, connections, count.load(SeqCst))?;
    }
    let (ready_in, greetings) = (server.ready_in, [at_first, server.greeting.clone()]);
    Ok(Outcome { acknowledged, rate, ready_in, greetings, lost, verified_in: started.elapsed() })
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes every `step`-th record from `first` on until the server is dead; counts replies.
fn write(address: &str, first: u64, step: u64, acknowledged: &AtomicU64) -> Result<(), Error> {
    let mut client = Client::connect(address)?;
    for batch in 0.. {
        for i in 0..IN_FLIGHT {
            let number = first + (batch * IN_FLIGHT + i) * step;
            client.send(&[&b"SET"[..], key(number).as_bytes(), &value(number, VALUE_SIZE)])?;
        }
        client.flush()?;
        for _ in 0..IN_FLIGHT {
            if client.receive()? != Reply::Simple("OK".into()) {
                return Err(Error::Server("refused a write".into()));
            }
            acknowledged.fetch_add(1, SeqCst);
        }
    }
    Ok(())
}

/// Counts the records, of the first `count` of a connection, that differ from what was written.
fn verify(client: &mut Client, first: u64, step: u64, count: u64) -> Result<u64, Error> {
    let numbers: Vec<u64> = (0..count).map(|i| first + i * step).collect();
    let mut lost = 0;
    for batch in numbers.chunks(1024) {
        let mut request = vec!["MGET".to_owned()];
        request.extend(batch.iter().map(|number| key(*number)));
        let Reply::Array(values) = client.call(&request)? else {
            return Err(Error::Server("answered MGET with something that is no array".into()));
        };
        if values.len() != batch.len() {
            return Err(Error::Server("answered MGET with too few values".into()));
        }
        let good = |(number, reply): &(&u64, &Reply)| {
            **reply == Reply::Bulk(Some(value(**number, VALUE_SIZE)))
        };
        lost += batch.iter().zip(&values).filter(|pair| !good(pair)).count() as u64;
    }
    Ok(lost)
}
