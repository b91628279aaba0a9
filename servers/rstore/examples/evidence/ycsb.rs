//! Figures 5.11 to 5.16, throughput and latency of mixes of gets and updates; 5.18 and 5.19 with the same records.

use std::fmt::Write as _;

use crate::load::{Pace, Plan, Work, ZIPFIAN, load, measure};
use crate::servers::{Running, System};
use crate::space::{self, Space};
use crate::table::{Table, thousands};
use crate::{Fault, Scale};

const SYSTEMS: [System; 4] = [System::Flush, System::Process, System::Memcached, System::Redis];
/// The gets of a hundred operations.
const MIXES: [u64; 3] = [90, 50, 10];
const RATES: [u64; 3] = [20_000, 62_500, 125_000];
/// The connections of a client thread, each with one request in flight in a closed loop.
const CONNECTIONS: usize = 8;
/// A rate is sustained if this share of it is served.
const SUSTAINED: f64 = 0.98;
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// What one system showed.
struct Shown {
    system: System,
    rates: [f64; 3],
    /// By rate and mix.
    latencies: [[[String; 4]; 3]; 3],
}

fn plan(scale: &Scale, gets: u64, pace: Pace) -> Plan {
    let (work, skew) = (Work::Mix(gets), ZIPFIAN);
    Plan { work, pace, connections: CONNECTIONS, time: scale.time, skew }
}

/// Measures a system; `None` if it is not installed.
fn shown(scale: &Scale, system: System, value: usize) -> Result<Option<(Shown, Space)>, Fault> {
    let records = scale.bytes / value as u64 + 1000;
    let running = Running::start(system, &scale.folders, (records, value))?;
    let Some(running) = running else { return Ok(None) };
    let empty = running.dram()?;
    let loaded = load(&running.target)?;
    eprintln!("{}, {records} records: loaded, {:.0} a second", system.name(), loaded.rate);
    let mut space = Space::of(system, &running, empty)?;
    let (mut rates, mut latencies) = ([0.0; 3], <[[[String; 4]; 3]; 3]>::default());
    for (mix, gets) in MIXES.into_iter().enumerate() {
        rates[mix] = measure(&running.target, &plan(scale, gets, Pace::Closed(1)))?.rate;
        for (at, rate) in RATES.into_iter().enumerate() {
            let figures = measure(&running.target, &plan(scale, gets, Pace::Open(rate)))?;
            let mark = if figures.rate < SUSTAINED * rate as f64 { " !" } else { "" };
            latencies[at][mix] = QUANTILES.map(|q| figures.at(q) + mark);
        }
    }
    space.rate = rates[1];
    Ok(Some((Shown { system, rates, latencies }, space)))
}

fn throughput(all: &[Shown]) -> String {
    let mut table = Table::new(&["", "90 % gets", "50 %", "10 %"]);
    for shown in all {
        table.row(shown.system.name(), shown.rates.map(thousands));
    }
    table.text()
}

fn latencies(all: &[Shown]) -> String {
    let mut text = String::new();
    for (at, rate) in RATES.into_iter().enumerate() {
        let _ = write!(text, "\n{rate} operations a second:\n");
        let mut heads = vec![""];
        for mix in ["90 % gets: p50", "50 %: p50", "10 %: p50"] {
            heads.extend([mix, "p99", "p99.9", "p99.99"]);
        }
        let mut table = Table::new(&heads);
        for shown in all {
            table.row(shown.system.name(), shown.latencies[at].concat());
        }
        text += &table.text();
    }
    text
}

/// The tables.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let (mut text, mut spaces, mut missing) = (String::new(), Vec::new(), Vec::new());
    for (value, of_rates, of_latencies) in
        [(1000, "5.11", "5.13, 5.15"), (100, "5.12", "5.14, 5.16")]
    {
        let (mut all, mut taken) = (Vec::new(), Vec::new());
        for system in SYSTEMS {
            match shown(scale, system, value)? {
                Some((shown, space)) => {
                    all.push(shown);
                    taken.push(space);
                }
                None if missing.contains(&system.name()) => {}
                None => missing.push(system.name()),
            }
        }
        let records = scale.bytes / value as u64 + 1000;
        let _ = write!(
            text,
            "\n## Figure {of_rates}: throughput, values of {value} bytes\n\nThousands of operations a second; {records} \
             records, zipfian with exponent 0.99; {CONNECTIONS} connections, each with one request in flight:\n{}",
            throughput(&all)
        );
        let _ = write!(
            text,
            "\n## Figures {of_latencies}: latency, values of {value} bytes\n\nOpen loop, {CONNECTIONS} connections. `!`: \
             the server did not keep up with the rate.\n{}",
            latencies(&all)
        );
        spaces.push((value, taken));
    }
    text += WORDS;
    text += &space::page(&spaces);
    for name in missing {
        let _ = write!(text, "\n{name}: left out, because its program is not installed.\n");
    }
    Ok(text)
}

const WORDS: &str = "\n\
**The thesis**, 5.11 and 5.12: RStore's throughput is slightly higher than memcached's with 1000 bytes and slightly \
lower with 100; both fall with the share of updates, RStore for the latency of Optane and for collection; the variant in \
memory falls less; Redis is behind. 5.13 and 5.14: with 4 threads, RStore's latencies are higher at low rates, each \
operation being an access to Optane, and straighter at 500,000 operations a second. 5.15 and 5.16: with 16 threads, \
memcached is better at 1 million a second, RStore is more stable at 2 million. **Here** the rates are those of one thread: \
20,000 (80,000 with 4), 62,500 (a million with 16) and 125,000 (500,000 with 4; 2 million with 16). The medium is DRAM, so \
RStore has no slower reads; it pays for the flushes of its log. What differs at p99.99 is also the kernel's scheduling: \
no processor is reserved.\n";
