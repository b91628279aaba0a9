//! Figure 5.9: what garbage collection costs when the space is 90 % full.

use std::sync::Arc;
use std::time::Instant;

use pmindex_core::Pool;
use pmindex_pibench::{Distribution, KeySpace};
use pmindex_rstore::{Options, Partition};

use crate::load::{Pace, Plan, Work, ZIPFIAN, load, measure};
use crate::servers::{Running, System};
use crate::table::{Table, thousands};
use crate::wire::{KEY, key};
use crate::{Fault, Scale};

/// The writes of a commit.
const TURN: u64 = 16;
/// The fills in percent: where collection finds blocks that are nearly empty, up to the thesis's full device.
const FILLS: [u64; 4] = [20, 50, 75, 90];
/// The length of a value in the server.
const VALUE: usize = 1000;
/// The bytes of values at least: a smaller space has too few blocks to be 90 % full.
const LEAST: u64 = 32 << 20;
/// The rate of figure 5.9 (a).
const RATE: u64 = 25_000;
/// The turns in which the servers' throughput is measured.
const TURNS: usize = 3;

/// The lengths of values.
#[derive(Clone, Copy)]
struct Lengths {
    least: u64,
    most: u64,
}

/// One length, another one, and a length that each write draws.
const LENGTHS: [Lengths; 3] = [
    Lengths { least: 100, most: 100 },
    Lengths { least: 1000, most: 1000 },
    Lengths { least: 100, most: 1000 },
];

impl Lengths {
    fn mean(self) -> u64 {
        self.least.midpoint(self.most)
    }

    fn name(self) -> String {
        if self.least == self.most {
            format!("{} B", self.most)
        } else {
            format!("{} to {} B", self.least, self.most)
        }
    }
}

/// Puts records in random order, or in that of their numbers.
fn put(
    partition: &mut Partition,
    count: u64,
    lengths: Lengths,
    mut number: impl FnMut(u64) -> u64,
) -> Result<(), Fault> {
    let (space, mut random) = (KeySpace::new(1), KeySpace::new(5));
    let value = vec![b'v'; lengths.most as usize];
    for at in 0..count {
        let length = lengths.least + random.below(lengths.most - lengths.least + 1);
        partition.put(&key(space.key(number(at))), &value[..length as usize], None)?;
        if at % TURN == TURN - 1 {
            partition.commit()?;
        }
    }
    partition.commit()?;
    Ok(())
}

fn partition(capacity: u64) -> Result<Partition, Fault> {
    let pool = Pool::emulated((capacity + capacity / 8 + (48 << 20)) as usize)?;
    Ok(Partition::create(&Arc::new(pool), "p", &Options::new().capacity(capacity))?)
}

/// Updates of the engine at a fill: a second, and the bytes that collection copied for each that was written.
fn engine(
    (records, live): (u64, u64),
    lengths: Lengths,
    percent: u64,
) -> Result<(f64, f64), Fault> {
    let mut partition = partition(live * 100 / percent)?;
    put(&mut partition, records, lengths, |number| number)?;
    let mut random = KeySpace::new(11);
    // Until each block has been collected.
    put(&mut partition, records * 2 + live * 100 / percent / (live / records), lengths, |_| {
        random.below(records)
    })?;
    let (before, started) = (partition.stats(), Instant::now());
    put(&mut partition, records, lengths, |_| random.below(records))?;
    let (took, after) = (started.elapsed(), partition.stats());
    let copied = (after.copied_bytes - before.copied_bytes) as f64;
    let written = (after.written_bytes - before.written_bytes) as f64;
    Ok((records as f64 / took.as_secs_f64(), copied / written))
}

fn engines(scale: &Scale) -> Result<String, Fault> {
    let mut table = Table::new(&["value", "20 % full", "50 %", "75 %", "90 %", "loss at 90 %"]);
    for lengths in LENGTHS {
        let records = (scale.bytes / 8).max(LEAST) / lengths.mean();
        let mut sample = partition(16 << 20)?;
        put(&mut sample, 1000, lengths, |number| number)?;
        let live = sample.stats().live_bytes / 1000 * records;
        let mut cells = Vec::new();
        let mut rates = Vec::new();
        for percent in FILLS {
            let (rate, copied) = engine((records, live), lengths, percent)?;
            cells.push(format!("{} ({copied:.2})", thousands(rate)));
            rates.push(rate);
        }
        cells.push(loss(rates[0], rates[FILLS.len() - 1]));
        table.row(&lengths.name(), cells);
    }
    Ok(table.text())
}

fn loss(before: f64, after: f64) -> String {
    format!("{:.1} %", 100.0 * (1.0 - after / before))
}

/// Returns the pool's capacity with which the server's engine may have this number of bytes: it leaves an eighth, or
/// a quarter of a small pool, to its log.
fn capacity(engine: u64) -> u64 {
    if engine >= 448 << 20 { engine / 7 * 8 } else { (engine + (64 << 20)).min(engine / 3 * 4) }
}

/// Updates only, in a closed loop.
fn updates(scale: &Scale, connections: usize, depth: usize) -> Plan {
    Plan {
        work: Work::Mix(0),
        pace: Pace::Closed(depth),
        connections,
        time: scale.time / 2,
        skew: Distribution::Uniform,
    }
}

/// Starts a server that is as full as this, and updates records until it has collected its blocks.
fn server(scale: &Scale, records: u64, live: u64, percent: u64) -> Result<Running, Fault> {
    let limited = System::Limited(capacity(live * 100 / percent));
    let running = Running::start(limited, &scale.folders, (records, VALUE))?;
    let running = running.ok_or("this server is always installed")?;
    load(&running.target)?;
    let enough = records * 2 + records * 100 / percent;
    let before = running.info("total_writes")?;
    while running.info("total_writes")? < before + enough {
        measure(&running.target, &updates(scale, 4, 64))?;
    }
    Ok(running)
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn servers(scale: &Scale) -> Result<(String, String), Fault> {
    let records = (scale.bytes / 2).max(LEAST) / VALUE as u64;
    let sample = Running::start(System::Flush, &scale.folders, (1000, VALUE))?;
    let sample = sample.ok_or("this server is always installed")?;
    load(&sample.target)?;
    let live = sample.info("live_bytes")? / 1000 * records;
    drop(sample);
    let fills = [20, 90];
    let running = fills.map(|percent| server(scale, records, live, percent));
    let [few, many] = running;
    let running = [few?, many?];
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (rates, running) in rates.iter_mut().zip(&running) {
            rates.push(measure(&running.target, &updates(scale, 8, 8))?.rate);
        }
    }
    let rates = rates.map(median);
    let mut table = Table::new(&[
        "fill",
        "live, MiB",
        "`maxmemory`, MiB",
        "updates: thousand/s",
        "25,000/s uniform: p50",
        "p99",
        "p99.9",
        "p99.99",
        "zipfian: p50",
        "p99",
        "p99.9",
        "p99.99",
        "stalls",
    ]);
    for (running, rate) in running.iter().zip(rates) {
        let (live, space) = (running.info("live_bytes")?, running.info("maxmemory")?);
        let mut cells = vec![mib(live), mib(space), thousands(rate)];
        for skew in [Distribution::Uniform, ZIPFIAN] {
            let pace = Pace::Open(RATE);
            let plan = Plan { pace, skew, time: scale.time * 2, ..updates(scale, 8, 8) };
            let figures = measure(&running.target, &plan)?;
            cells.extend([0.5, 0.99, 0.999, 0.9999].map(|quantile| figures.at(quantile)));
        }
        cells.push(running.info("stalls")?.to_string());
        table.row(&format!("{:.0} %", 100.0 * live as f64 / space as f64), cells);
    }
    Ok((table.text(), loss(rates[0], rates[1])))
}

/// The tables.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let engines = engines(scale)?;
    let (servers, lost) = servers(scale)?;
    Ok(format!(
        "\n## Figure 5.9: garbage collection\n\nThe engine alone, {TURN} updates a commit, uniform, keys of {KEY} bytes: \
         thousands a second, and in parentheses the bytes that collection copies for each byte that is written. \"Full\" \
         is the share of live records, their heads and keys included, in the space that blocks may take:\n{engines}\n\
         A store that only appends has to copy. Of a block that is collected when all others have been written since, the \
         share *E* is live, where the fill is *u* = (1 - *E*) / ln(1 / *E*); so it copies *E* / (1 - *E*) bytes for each \
         one: 0.01, 0.25, 1.2 and 4.2 at these fills, and more for the blocks that it keeps free. This engine collects \
         as soon as the blocks take three times the live bytes and 16 MiB, so of space that is 20 % full it leaves some \
         unused. When few blocks are free, and even the emptiest one is half live (three quarters with records of \
         several lengths), it writes a record into the place of a dead one of the same length (in words of 8 bytes), if \
         it has one, and copies nothing. In the last row each write draws its length, and there are 113 of them.\n\n\
         The server, values of {VALUE} bytes, updates only, in steady state: throughput with 8 connections and 8 requests \
         in flight on each (the median of {TURNS} turns), and latencies at {RATE} updates a second, open loop:\n{servers}\n\
         `maxmemory` is the space of blocks: the pool is larger by an eighth, or a quarter if it is small, for the log.\n\n\
         **The thesis** loads a device of 16 GB \"until little space is left\", without a number; with 16 threads the \
         throughput falls by 7 % then (RocksDB by 38 %), and the latencies at {RATE} a second are low, constant, and the \
         same for both skews. **Here** the server at 90 % loses **{lost}** of its throughput at 20 %, where blocks are \
         nearly empty when they are collected; at most 10 % are allowed. The time of a request is mostly that of the \
         network, so the server loses less than the engine. A stall is a write that waits for the collection of a whole \
         block. The run takes seconds, and the thesis's five minutes.\n"
    ))
}
