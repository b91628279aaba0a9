//! Figure 5.18, table 5.1 and figure 5.19: what records take, what that costs, and the throughput for it.

use crate::Fault;
use crate::servers::{Running, System};
use crate::table::Table;

/// The thesis's prices: dollars for 128 GB.
const DRAM: f64 = 1500.0 / 128e9;
const PM: f64 = 695.0 / 128e9;
/// The thesis's bytes of values: 16 million of 1000 bytes, 160 million of 100.
const VALUES: f64 = 16e9;

/// What a server's records take.
pub(crate) struct Space {
    system: System,
    /// Bytes of a record.
    dram: f64,
    pool: f64,
    /// Operations a second, half of them gets.
    pub(crate) rate: f64,
}

impl Space {
    /// Measures a server whose records have just been loaded; `empty` is the DRAM that it had before.
    pub(crate) fn of(system: System, running: &Running, empty: u64) -> Result<Self, Fault> {
        let each = |bytes: u64| bytes as f64 / running.target.records as f64;
        let dram = each(running.dram()?.saturating_sub(empty));
        Ok(Self { system, dram, pool: each(running.pool()?), rate: 0.0 })
    }
}

/// Returns the table 5.1's dollars for this system and length.
fn claimed(system: System, value: usize) -> &'static str {
    match (system, value) {
        (System::Flush, 1000) => "98",
        (System::Flush, _) => "227",
        (System::Memcached, 1000) => "207",
        (System::Memcached, _) => "335",
        (System::Redis, 1000) => "200",
        (System::Redis, _) => "361",
        _ => "-",
    }
}

/// The table.
pub(crate) fn page(all: &[(usize, Vec<Space>)]) -> String {
    let mut table = Table::new(&[
        "value, system",
        "DRAM: bytes a record",
        "PM: bytes a record",
        "cost here",
        "cost in the thesis",
        "operations/s for a dollar",
    ]);
    for (value, spaces) in all {
        let records = VALUES / *value as f64;
        for space in spaces {
            // The variant in memory has its pool in DRAM.
            let price = if space.system == System::Process { DRAM } else { PM };
            let cost = records * (space.dram * DRAM + space.pool * price);
            let cells = [
                format!("{:.0}", space.dram),
                format!("{:.0}", space.pool),
                format!("{cost:.0}"),
                claimed(space.system, *value).into(),
                format!("{:.0}", space.rate / cost),
            ];
            table.row(&format!("{value} B, {}", space.system.name()), cells);
        }
    }
    format!(
        "\n## Figure 5.18, table 5.1, figure 5.19: space and cost\n\nAfter loading, before any update. DRAM is the \
         process's anonymous memory without that of an empty server, PM what the pool's file takes. The cost is that of \
         16 GB of values with such records, in dollars, by the thesis's prices (128 GB: DRAM 1500, PM 695); the last \
         column divides the throughput of one thread with 50 % gets by it:\n{}\n\
         **The thesis**: RStore costs half of the others with values of 1000 bytes, and two thirds with 100, where its \
         index needs more DRAM. RocksDB 160 and 187, FASTER 195 and 342 are left out. **Here** the index is a radix tree \
         with partial keys and 8 bytes for a record; a record in the pool has a header of 32 bytes, and the log is in the \
         pool too. The pool grows in steps, and its free end is counted.\n",
        table.text()
    )
}
