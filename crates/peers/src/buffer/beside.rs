//! Gets and updates beside other stores, with data of 0.5, 2 and 10 times the memory.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::common::{Fault, Folders, Keys, RECORD, Scale, Skew, Table, VALUE, fill};
use crate::rocksdb;
use crate::stores::{Opening, Records, System, create};

/// Ten times the data, in units of the memory.
const SIZES: [u64; 3] = [5, 20, 100];

/// The kinds of figures: in this order they are the columns of a table.
pub(crate) const WORKS: [(bool, Skew); 4] =
    [(false, Skew::Uniform), (false, Skew::Zipfian), (true, Skew::Uniform), (true, Skew::Zipfian)];

const HEADS: [&str; 5] = ["", "get, uniform", "get, zipfian", "update, uniform", "update, zipfian"];

/// Repeats an operation for a time; returns how often a second.
pub(crate) fn rate(
    store: &mut dyn Records,
    update: bool,
    keys: &mut Keys,
    time: Duration,
) -> Result<f64, Fault> {
    let (mut value, mut done) = ([0; VALUE], 0_u32);
    let started = Instant::now();
    while started.elapsed() < time {
        for _ in 0..4 {
            let key = keys.next();
            if update {
                fill(&mut value, keys.random());
                store.put(&[(key, value)])?;
            } else if !store.get(key)? {
                return Err("a record is missing".into());
            }
            done += 1;
        }
    }
    Ok(f64::from(done) / started.elapsed().as_secs_f64())
}

/// The rates of a store, by [`WORKS`]; none where it was not measured.
struct Row {
    name: String,
    rates: [Option<f64>; 4],
    /// Its memory is bounded.
    bounded: bool,
}

/// All tables.
pub(crate) fn page(scale: &Scale, folders: &Folders, words: &str) -> Result<String, Fault> {
    let mut text = format!(
        "\n## Beside redb, LMDB, RocksDB and SQLite\n\nThousands of operations a second of one thread; {} MiB of \
         memory for each store, records of {RECORD} bytes, keys scattered, zipfian with exponent 0.99. An update is a \
         transaction of one record.\n{words}",
        scale.memory >> 20
    );
    for synced in [false, true] {
        let what =
            if synced { "survive power failure" } else { "survive a kill, not power failure" };
        let _ = write!(text, "\n### Commits that {what}\n");
        for size in SIZES {
            let rows = of_size(scale, folders, size, synced)?;
            let _ =
                write!(text, "\nData {} times the memory:\n\n{}", size as f64 / 10.0, shown(&rows));
        }
    }
    Ok(text)
}

fn of_size(scale: &Scale, folders: &Folders, size: u64, synced: bool) -> Result<Vec<Row>, Fault> {
    let records = scale.memory * size / 10 / RECORD;
    let opening = Opening { memory: scale.memory, records, synced, on_tmpfs: !synced };
    let time = Duration::from_millis(scale.millis);
    let mut rows = Vec::new();
    for system in System::ALL {
        // Loading the largest data takes minutes.
        if system == System::Journal && (!synced || size == SIZES[2]) {
            continue;
        }
        let started = Instant::now();
        folders.clear()?;
        let mut store = create(system, folders, &opening)?;
        let loaded = started.elapsed().as_secs_f64();
        let mut rates = [None; 4];
        for (rate_of, (update, skew)) in rates.iter_mut().zip(WORKS) {
            let mut keys = Keys::new(skew, opening.records, 9);
            rate(&mut *store, update, &mut keys, time)?; // warm
            *rate_of = Some(rate(&mut *store, update, &mut keys, time)?);
        }
        eprintln!(
            "{} records, synced: {synced}, {}: loaded in {loaded:.1} s, {:.1} s",
            opening.records,
            system.name(),
            started.elapsed().as_secs_f64()
        );
        let bounded = system != System::Lmdb;
        rows.push(Row { name: system.name().into(), rates, bounded });
    }
    folders.clear()?;
    if let Some(rates) = rocksdb::rates(&folders.disk, &opening, scale.millis)? {
        rows.push(Row { name: "RocksDB".into(), rates: rates.map(Some), bounded: true });
    }
    folders.clear()?;
    Ok(rows)
}

fn shown(rows: &[Row]) -> String {
    let mut table = Table::new(&HEADS);
    for row in rows {
        let cells =
            row.rates.map(|rate| rate.map_or("-".into(), |rate| format!("{:.1}", rate / 1e3)));
        let mark = if row.bounded { "" } else { " (memory not bounded)" };
        table.row(&format!("{}{mark}", row.name), cells);
    }
    let is_ours = |row: &Row| row.name.starts_with("pmindex");
    for ours in rows.iter().filter(|row| is_ours(row)) {
        let ratio = |of: &dyn Fn(&Row) -> bool| {
            std::array::from_fn::<String, 4, _>(|at| {
                let others = rows.iter().filter(|row| !is_ours(row) && of(row));
                let best = others.filter_map(|row| row.rates[at]).fold(0.0, f64::max);
                format!("{:.2}", ours.rates[at].unwrap_or(0.0) / best)
            })
        };
        table.row(&format!("**{}, of the best bounded**", ours.name), ratio(&|row| row.bounded));
        table.row(&format!("**{}, of the best**", ours.name), ratio(&|_| true));
    }
    table.text()
}
