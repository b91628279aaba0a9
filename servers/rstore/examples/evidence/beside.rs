//! The comparison with Redis and memcached: throughput and p99.9, pipelines of 1 and 16.

use std::fmt::Write as _;

use pmindex_pibench::Distribution;

use crate::load::{Pace, Plan, Work, load, measure};
use crate::servers::{Running, System};
use crate::table::{Table, thousands};
use crate::{Fault, Scale};

const SYSTEMS: [System; 8] = [
    System::Process,
    System::Redis,
    System::Memcached,
    System::Flush,
    System::Periodic,
    System::Everysec,
    System::Journal,
    System::Always,
];
/// Those that are compared: ours, and the one that survives as much or less.
const PAIRS: [(System, System, &str); 4] = [
    (System::Process, System::Redis, "Redis in memory, which loses all by a kill"),
    (System::Flush, System::Everysec, "Redis with AOF `everysec`"),
    (
        System::Periodic,
        System::Everysec,
        "Redis with AOF `everysec`: both lose at most a second by a power failure",
    ),
    (
        System::Journal,
        System::Always,
        "Redis with AOF `always`: both lose nothing by a power failure",
    ),
];
/// The connections of redis-benchmark.
const CONNECTIONS: usize = 50;
const RECORDS: u64 = 100_000;
const VALUE: usize = 64;
/// Requests in flight on a connection, and gets of a hundred.
const WORKS: [(usize, u64); 4] = [(1, 0), (1, 100), (16, 0), (16, 100)];

/// What one system showed: for each work the rate, and p99.9 in nanoseconds.
struct Shown {
    system: System,
    works: [(f64, u64); 4],
}

fn shown(scale: &Scale, system: System) -> Result<Option<Shown>, Fault> {
    let running = Running::start(system, &scale.folders, (RECORDS, VALUE))?;
    let Some(running) = running else { return Ok(None) };
    load(&running.target)?;
    let mut works = [(0.0, 0); 4];
    for (shown, (depth, gets)) in works.iter_mut().zip(WORKS) {
        let figures = measure(
            &running.target,
            &Plan {
                work: Work::Mix(gets),
                pace: Pace::Closed(depth),
                connections: CONNECTIONS,
                time: scale.time,
                skew: Distribution::Uniform,
            },
        )?;
        *shown = (figures.rate, figures.latencies.value_at_quantile(0.999));
    }
    Ok(Some(Shown { system, works }))
}

/// Formats nanoseconds as milliseconds.
fn millis(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1e6)
}

/// The table.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let (mut all, mut missing) = (Vec::new(), String::new());
    let mut table = Table::new(&[
        "",
        "SET: thousand/s",
        "p99.9 ms",
        "GET",
        "p99.9 ms",
        "SET, pipeline 16",
        "p99.9 ms",
        "GET, pipeline 16",
        "p99.9 ms",
    ]);
    for system in SYSTEMS {
        let Some(shown) = shown(scale, system)? else {
            let _ = write!(
                missing,
                "\n{}: left out, because its program is not installed.\n",
                system.name()
            );
            continue;
        };
        let cells = shown.works.iter().flat_map(|(rate, tail)| [thousands(*rate), millis(*tail)]);
        table.row(system.name(), cells);
        all.push(shown);
    }
    let mut ratios = Table::new(&[
        "",
        "SET: rate",
        "p99.9",
        "GET: rate",
        "p99.9",
        "SET, pipeline 16: rate",
        "p99.9",
        "GET, pipeline 16: rate",
        "p99.9",
    ]);
    let find = |system| all.iter().find(|shown| shown.system == system);
    for (ours, other, words) in PAIRS {
        let (Some(ours), Some(other)) = (find(ours), find(other)) else { continue };
        let cells = ours.works.iter().zip(&other.works).flat_map(|(ours, other)| {
            [
                format!("{:.2}", ours.0 / other.0),
                format!("{:.2}", ours.1 as f64 / other.1.max(1) as f64),
            ]
        });
        ratios.row(&format!("{}, of {words}", ours.system.name()), cells);
    }
    Ok(format!(
        "\n## Beside Redis and memcached\n\n{CONNECTIONS} connections, {RECORDS} records with values of {VALUE} bytes, \
         uniform; closed loop, one thread of each server. Redis does not rewrite its append-only file meanwhile:\n{}\n\
         The figures of RStore as multiples of the other's; the aims are a rate of at least 1, and with AOF a p99.9 of at \
         most 0.5:\n{}{missing}\n\
         In a closed loop p99.9 contains the queue of {CONNECTIONS} connections: with a pipeline of 16 it is mostly the time \
         of 800 requests, the reciprocal of the rate.\n",
        table.text(),
        ratios.text()
    ))
}
