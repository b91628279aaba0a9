//! Figure 5.17: scans through the server.

use pmindex_pibench::Distribution;

use crate::load::{Pace, Plan, Work, load, measure};
use crate::servers::{Running, System};
use crate::table::{Table, thousands};
use crate::wire::KEY;
use crate::{Fault, Scale};

const VALUE: usize = 100;
const LENGTHS: [u64; 4] = [100, 300, 500, 1000];
/// The thesis's connections and requests in flight.
const CONNECTIONS: usize = 8;

/// The table.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let records = scale.bytes / VALUE as u64 + 2000;
    let running = Running::start(System::Flush, &scale.folders, (records, VALUE))?;
    let running = running.ok_or("this server is always installed")?;
    load(&running.target)?;
    let mut table = Table::new(&[
        "records of a scan",
        "scans: thousand/s",
        "records: thousand/s",
        "MB/s of records",
        "p50",
        "p99",
    ]);
    for length in LENGTHS {
        let figures = measure(
            &running.target,
            &Plan {
                work: Work::Range(length),
                pace: Pace::Closed(1),
                connections: CONNECTIONS,
                time: scale.time,
                skew: Distribution::Uniform,
            },
        )?;
        let each = figures.rate * length as f64;
        let cells = [
            format!("{:.2}", figures.rate / 1e3),
            thousands(each),
            format!("{:.0}", each * (KEY + VALUE) as f64 / 1e6),
            figures.at(0.5),
            figures.at(0.99),
        ];
        table.row(&length.to_string(), cells);
    }
    Ok(format!(
        "\n## Figure 5.17: scans\n\n`RANGE` from random keys, {records} records with values of {VALUE} bytes; \
         {CONNECTIONS} connections, each with one request in flight; persistent memory, emulated:\n{}\n\
         **The thesis**: with 100 records 8 cores saturate 10 Gbit/s (1250 MB/s), with 1000 records 4. **Here** one thread \
         shows the share of one core. Redis and memcached have no order of keys; RocksDB has no server.\n",
        table.text()
    ))
}
