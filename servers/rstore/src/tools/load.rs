//! A load generator: sets, then gets, over several connections, with requests in flight.

use std::time::{Duration, Instant};

use clap::value_parser;
use hdrhistogram::Histogram;

use crate::Error;
use crate::client::{Client, Reply};

/// The settings of the load.
#[derive(clap::Args, Clone, Debug)]
pub struct LoadArgs {
    /// The address of the server
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDRESS")]
    pub connect: String,

    /// The total number of records
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub records: u64,

    /// The number of connections, each with a thread
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub connections: u64,

    /// The number of requests in flight on each connection
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub pipeline: u64,

    /// The length of a value in bytes
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub value_size: usize,
}

/// Returns the key of record `number`.
pub(crate) fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Returns the value of record `number`, which differs for each record.
pub(crate) fn value(number: u64, size: usize) -> Vec<u8> {
    let text = format!("{number:x}.");
    text.bytes().cycle().take(size).collect()
}

/// The figures of one phase.
struct Phase {
    elapsed: Duration,
    /// Microseconds from sending a request to its reply.
    latencies: Histogram<u64>,
}

/// Sends SETs and GETs, and prints rates and latencies.
pub fn load(args: &LoadArgs) -> Result<(), Error> {
    // A heading without figures would be of no use.
    Client::connect(&args.connect).map_err(|error| match error {
        Error::Io { source, .. } => Error::io(format!("connecting to {}", args.connect))(source),
        other => other,
    })?;
    println!("{:<5} {:>12} {:>10} {:>10} {:>10}", "", "per second", "p50", "p99", "p99.9");
    for phase in ["SET", "GET"] {
        let Phase { elapsed, latencies } = run(args, phase == "SET")?;
        let rate = per_second(args.records, elapsed);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| latencies.value_at_quantile(q));
        println!("{phase:<5} {rate:>12.0} {p50:>7} us {p99:>7} us {p999:>7} us");
    }
    Ok(())
}

/// Formats a rate.
#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

fn run(args: &LoadArgs, set: bool) -> Result<Phase, Error> {
    let started = Instant::now();
    let parts = std::thread::scope(|scope| {
        let connections: Vec<_> = (0..args.connections.max(1))
            .map(|first| scope.spawn(move || connection(args, first, set)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        connections.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
    })?;
    let elapsed = started.elapsed();
    let mut latencies = histogram();
    for part in parts {
        // All have the same bounds.
        let _ = latencies.add(part);
    }
    Ok(Phase { elapsed, latencies })
}

#[expect(clippy::expect_used, reason = "the bounds are constants that a histogram can have")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("possible bounds")
}

/// Returns every `connections`-th record number from `first` on.
fn connection(args: &LoadArgs, first: u64, set: bool) -> Result<Histogram<u64>, Error> {
    let mut client = Client::connect(&args.connect)?;
    let mut latencies = histogram();
    let step = args.connections.max(1) as usize;
    let numbers: Vec<u64> = (first..args.records).step_by(step).collect();
    for batch in numbers.chunks(args.pipeline.max(1) as usize) {
        let started = Instant::now();
        for number in batch {
            if set {
                let (key, value) = (key(*number), value(*number, args.value_size));
                client.send(&[&b"SET"[..], key.as_bytes(), &value])?;
            } else {
                client.send(&["GET", &key(*number)])?;
            }
        }
        client.flush()?;
        for number in batch {
            let reply = client.receive()?;
            latencies.saturating_record(started.elapsed().as_micros() as u64);
            let expected = if set {
                Reply::Simple("OK".into())
            } else {
                Reply::Bulk(Some(value(*number, args.value_size)))
            };
            if reply != expected {
                return Err(Error::Server(format!("answers {reply:?} to {}", key(*number))));
            }
        }
    }
    Ok(latencies)
}
