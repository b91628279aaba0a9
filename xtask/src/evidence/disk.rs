//! Writes `docs/evidence/disk.md`: writes that survive power failure on an ordinary disk, compared with other
//! stores and with a loop of only the writes and syncs that a commit needs; and mode `Periodic` compared with
//! `Process`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::markdown::{environment, find, read, row};
use crate::shell::root;

/// The measurements of the page.
pub(super) const NAMES: [&str; 4] = ["disk", "disk-msync", "memory-process", "memory-periodic"];

const THREADS: [u64; 3] = [1, 8, 64];
/// The loop of write and `fdatasync`.
const BARE: &str = "bare-loop";
/// Other stores.
const STORES: [&str; 5] = ["lmdb", "redb-synced", "fjall-synced", "sqlite", ROCKSDB];
const ROCKSDB: &str = "rocksdb";
/// What the program of `RocksDB` measured.
const BY_ROCKSDB: &str = "disk-rocksdb";
const OURS: [&str; 2] = ["fptree", "hart"];
/// Indexes in memory.
const IN_MEMORY: [&str; 5] = ["fptree", "hart", "fastfair", "wbtree", "sptree"];
const IN_MEMORY_OPERATIONS: [&str; 5] = ["get", "insert", "update", "delete", "insert_many"];
const PERCENTILES: [&str; 3] = ["p50", "p99", "p99_9"];

const INTRODUCTION: &str = "\
# Writes that survive power failure on an ordinary disk

Written by `cargo xtask evidence --only disk,disk-msync,memory-process,memory-periodic`, in one run on one
disk. Every store has its commits synchronised, one record of an 8-byte key and an 8-byte value a commit,
random keys. The bare loop writes a block of 4 KiB over what was there and calls `fdatasync`, each thread for
itself: with one thread nothing that waits for the disk can do more. pmindex is in mode `Journal`, and once
in mode `Msync`. LMDB, redb and SQLite have one writer at a time; fjall synchronises after each write of a
thread. RocksDB is measured by its own program, `db_bench` of Debian's `rocksdb-tools`, with `--sync=1`, where that
is installed: keys and values of 8 bytes, `fillrandom` and `overwrite`.
";

/// Returns the figure of an index for an operation.
type Figure<'f> = Box<dyn Fn(&str, &str) -> Option<f64> + 'f>;

/// Writes the page, if it was measured.
pub(super) fn write(measured: &Path, out: &Path) -> Result<(), String> {
    let [disk, msync, process, periodic] = NAMES.map(|name| read(measured, name));
    let (mut disk, msync, process, periodic) = (disk?, msync?, process?, periodic?);
    if let (Some(disk), Some(rocksdb)) = (&mut disk, read(measured, BY_ROCKSDB)?)
        && let (Some(all), Some(more)) = (disk["runs"].as_array_mut(), rocksdb["runs"].as_array())
    {
        all.extend_from_slice(more);
    }
    let mut text = String::from(INTRODUCTION);
    if let Some(report) = disk.as_ref().or(process.as_ref()) {
        text += &environment(report);
    }
    if let Some(disk) = &disk {
        text += &rates(disk, msync.as_ref());
        text += &targets(disk);
        text += &latencies(disk);
    }
    if let (Some(process), Some(periodic)) = (process, periodic) {
        text += &in_memory(&process, &periodic);
    }
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let file = out.join("disk.md");
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Measures `RocksDB` with its own program, on the same disk, if that is installed.
pub(super) fn rocksdb(measured: &Path, quick: bool) -> Result<(), String> {
    let folder = root().join("target").join("pmindex-rocksdb");
    let operations = if quick { 100 } else { 2000 };
    let mut runs = Vec::new();
    for threads in THREADS {
        let mut command = Command::new("db_bench");
        command.arg(format!("--db={}", folder.display())).arg(format!("--threads={threads}"));
        command.arg(format!("--writes={}", operations / threads)).arg("--num=100000");
        command.args(["--benchmarks=fillrandom,overwrite", "--sync=1", "--histogram=1"]);
        command.args(["--key_size=8", "--value_size=8"]);
        let out = match command.output() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("RocksDB is skipped: there is no db_bench (Debian: rocksdb-tools)");
                return Ok(());
            }
            out => out.map_err(|e| format!("db_bench: {e}"))?,
        };
        let told = String::from_utf8_lossy(&out.stdout);
        let phases: Vec<Value> = [("fillrandom", "insert"), ("overwrite", "update")]
            .into_iter()
            .filter_map(|(theirs, ours)| phase(told.split_once(&format!("\n{theirs} "))?.1, ours))
            .collect();
        if phases.len() != 2 {
            return Err(format!(
                "db_bench did not measure: {}",
                String::from_utf8_lossy(&out.stderr)
            ));
        }
        runs.push(json!({ "index": ROCKSDB, "threads": threads, "phases": phases }));
        let _ = std::fs::remove_dir_all(&folder);
    }
    let file = measured.join(format!("{BY_ROCKSDB}.json"));
    std::fs::write(&file, json!({ "runs": runs }).to_string())
        .map_err(|e| format!("{}: {e}", file.display()))
}

/// Reads what `db_bench` says of a benchmark: its rate, and percentiles in microseconds.
fn phase(told: &str, op: &str) -> Option<Value> {
    let word_before = |what: &str| told.split_once(what)?.0.rsplit(' ').next()?.parse().ok();
    let word_behind = |what: &str| -> Option<f64> {
        told.split_once(what)?.1.split_whitespace().next()?.parse().ok()
    };
    let rate: f64 = word_before(" ops/sec")?;
    let [p50, p99, p99_9] = ["P50: ", "P99: ", "P99.9: "].map(word_behind);
    let nanoseconds = |micros: Option<f64>| micros.map(|micros| micros * 1e3);
    let latency = json!({
        "p50": nanoseconds(p50), "p99": nanoseconds(p99), "p99_9": nanoseconds(p99_9),
    });
    Some(json!({ "op": op, "mops": rate / 1e6, "latency_ns": latency }))
}

/// Operations a second.
fn rate(report: &Value, index: &str, threads: u64, op: &str) -> Option<f64> {
    Some(row(find(report, index, threads, "")?, op)?["mops"].as_f64()? * 1e6)
}

/// Returns microseconds.
fn latency(report: &Value, index: &str, threads: u64, op: &str, percentile: &str) -> Option<f64> {
    Some(row(find(report, index, threads, "")?, op)?["latency_ns"][percentile].as_f64()? / 1e3)
}

fn whole(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}

fn times(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

fn rates(disk: &Value, msync: Option<&Value>) -> String {
    let mut text = String::from("\n## Writes a second\n\n| |");
    for op in ["insert", "update"] {
        for threads in THREADS {
            let _ = write!(text, " {op}, {threads} |");
        }
    }
    text += "\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    let mut line = |name: &str, report: &Value, index: &str| {
        let _ = write!(text, "| {name} |");
        for op in ["insert", "update"] {
            for threads in THREADS {
                let _ = write!(text, " {} |", whole(rate(report, index, threads, op)));
            }
        }
        text.push('\n');
    };
    line("bare loop", disk, BARE);
    for ours in OURS {
        line(&format!("pmindex {ours}, `Journal`"), disk, ours);
    }
    if let Some(msync) = msync {
        line("pmindex fptree, `Msync`", msync, "fptree");
    }
    for store in STORES {
        line(store, disk, store);
    }
    text
}

fn targets(disk: &Value) -> String {
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let mut text = String::from("\n## What it comes to\n\n| mode `Journal` |");
    for ours in OURS {
        let _ = write!(text, " {ours} insert | {ours} update |");
    }
    text += "\n| --- | ---: | ---: | ---: | ---: |\n";
    let best = |threads, op: &str| {
        STORES.iter().filter_map(|store| rate(disk, store, threads, op)).reduce(f64::max)
    };
    let against = |threads| -> Figure<'_> {
        Box::new(move |i, op| over(rate(disk, i, threads, op), best(threads, op)))
    };
    let figures: [(&str, Figure<'_>); 5] = [
        (
            "1 thread, of the bare loop (0.8 wanted)",
            Box::new(|i, op| over(rate(disk, i, 1, op), rate(disk, BARE, 1, op))),
        ),
        (
            "8 threads, of 1 (4 wanted)",
            Box::new(|i, op| over(rate(disk, i, 8, op), rate(disk, i, 1, op))),
        ),
        ("1 thread, of the best other store", against(1)),
        ("8 threads, of the best other store (3 wanted)", against(8)),
        ("64 threads, of the best other store (3 wanted)", against(64)),
    ];
    for (what, figure) in figures {
        let _ = write!(text, "| {what} |");
        for ours in OURS {
            for op in ["insert", "update"] {
                let _ = write!(text, " {} |", times(figure(ours, op)));
            }
        }
        text.push('\n');
    }
    text
}

fn latencies(disk: &Value) -> String {
    let mut text = String::from(
        "\n## How long an insert takes\n\nMicroseconds: the median, of a hundred the longest, of a thousand \
         the longest.\n\n| |",
    );
    for threads in THREADS {
        let _ = write!(text, " {threads}: p50 | p99 | p99.9 |");
    }
    text += "\n| --- |";
    text += &" ---: |".repeat(3 * THREADS.len());
    text.push('\n');
    for index in [BARE].into_iter().chain(OURS).chain(STORES) {
        let _ = write!(text, "| {index} |");
        for threads in THREADS {
            for percentile in PERCENTILES {
                let _ = write!(
                    text,
                    " {} |",
                    whole(latency(disk, index, threads, "insert", percentile))
                );
            }
        }
        text.push('\n');
    }
    text
}

fn in_memory(process: &Value, periodic: &Value) -> String {
    let mut text = String::from(
        "\n## `Periodic` beside `Process`\n\nA pool on tmpfs, one thread; the twin is written to the disk every \
         100 ms. First the rate in mode `Periodic` as a part of that in mode `Process` (0.7 wanted), then the \
         longest of a thousand operations in microseconds, `Process` and `Periodic` (three times wanted).\n\n| |",
    );
    for op in IN_MEMORY_OPERATIONS {
        let _ = write!(text, " {op} | p99.9 |");
    }
    text += "\n| --- |";
    text += &" ---: |".repeat(2 * IN_MEMORY_OPERATIONS.len());
    text.push('\n');
    for index in IN_MEMORY {
        let _ = write!(text, "| {index} |");
        for op in IN_MEMORY_OPERATIONS {
            let part = rate(periodic, index, 1, op).zip(rate(process, index, 1, op));
            let tail = |report| {
                latency(report, index, 1, op, "p99_9").map_or("-".into(), |t| format!("{t:.1}"))
            };
            let part = times(part.map(|(with, without)| with / without));
            let _ = write!(text, " {part} | {}, {} |", tail(process), tail(periodic));
        }
        text.push('\n');
    }
    text
}
