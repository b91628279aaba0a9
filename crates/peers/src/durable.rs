//! Writes that survive power failure, of all stores that synchronise every commit, on one disk; and mode
//! `Periodic` beside `Process`, in memory. Every figure is of a fixed time; the rounds of all stores alternate,
//! and the median is reported.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::{AnyIndex, Index, Kind, Pool, PoolOptions};
use pmindex_pibench::{Fault, Session, Store};

use crate::{files, synced};

const THREADS: [usize; 3] = [1, 8, 64];
const OPS: [Op; 2] = [Op::Insert, Op::Update];
const BARE: &str = "bare loop";
const OURS: [&str; 2] = ["fptree, `Journal`", "hart, `Journal`"];
const MSYNC: &str = "fptree, `Msync`";
const OTHERS: [&str; 5] = ["LMDB", "redb", "fjall", "SQLite", ROCKSDB];
const ROCKSDB: &str = "RocksDB";

const IN_MEMORY: [Kind; 5] = [Kind::FpTree, Kind::Hart, Kind::FastFair, Kind::WbTree, Kind::SpTree];
const MEMORY_OPS: [Op; 5] = [Op::Get, Op::Insert, Op::Update, Op::Remove, Op::InsertMany];
/// Records that are loaded before the figures in memory.
const LOADED: u64 = 200_000;
/// Threads that load a store on the disk.
const LOADERS: usize = 64;
/// Records of one call.
const BATCH: u64 = 100;

const INTRODUCTION: &str = "\
# Writes that survive power failure on an ordinary disk

Written by `cargo xtask evidence --only disk`, in one run on one disk. Every store synchronises its commits,
one record of an 8-byte key and an 8-byte value a commit, random keys. The bare loop writes a block of 4 KiB
over what was there and calls `fdatasync`, each thread for itself: with one thread no store that waits for the
disk in this way can do more. LMDB, redb and SQLite have one writer at a time; fjall synchronises after each
write of a thread. RocksDB is measured by its own program, `db_bench` of Debian's `rocksdb-tools`, with
`--sync=1`, `fillrandom` and `overwrite`; Debian builds it with assertions, of which it warns.
Rounds of all stores alternate; each figure is the median of the rounds.
";

/// An operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Get,
    Insert,
    Update,
    Remove,
    InsertMany,
}

/// The times of a run.
#[derive(Clone, Copy)]
pub struct Times {
    /// The rounds.
    pub rounds: usize,
    /// The time of a figure on the disk.
    pub on_disk: Duration,
    /// The time of a figure in memory.
    pub in_memory: Duration,
}

/// What a thread does.
struct Job {
    thread: u64,
    /// The first number of the keys that it inserts, or all that it inserted.
    first: u64,
    count: u64,
    op: Op,
    time: Duration,
}

/// A figure: operations a second; 50, 99 and 99.9 % of the operations took at most these microseconds.
#[derive(Clone, Copy, Default)]
struct Figure {
    rate: f64,
    micros: [f64; 3],
}

/// A store or an index.
trait Subject: Send + Sync {
    /// Works until the time is over; returns how long each operation took, in nanoseconds.
    fn work(&self, job: &Job) -> Result<Vec<u64>, Fault>;
}

/// A store of another project.
struct Other<S>(S);

/// An index of this project.
struct Ours(AnyIndex<u64, u64>);

fn key(thread: u64, number: u64) -> u64 {
    mix(thread << 40 | number) >> 1
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Job {
    /// Calls `act` with a number until the time is over.
    fn timed(&self, mut act: impl FnMut(u64) -> Result<bool, Fault>) -> Result<Vec<u64>, Fault> {
        let mut taken = Vec::new();
        let mut before = Instant::now();
        let until = before + self.time;
        for n in 0.. {
            let number = match self.op {
                Op::Insert | Op::InsertMany => self.first + n,
                Op::Remove if n >= self.count => break,
                Op::Remove => self.first + n,
                Op::Get | Op::Update => self.first + mix(n) % self.count.max(1),
            };
            if !act(number)? {
                return Err("an operation has a wrong result".into());
            }
            let now = Instant::now();
            taken.push(u64::try_from((now - before).as_nanos()).unwrap_or(u64::MAX));
            before = now;
            if now >= until {
                break;
            }
        }
        Ok(taken)
    }
}

impl<S: Store<u64, u64>> Subject for Other<S> {
    fn work(&self, job: &Job) -> Result<Vec<u64>, Fault> {
        let mut session = self.0.session();
        let mut value = 0;
        job.timed(|number| {
            let key = key(job.thread, number);
            value += 1; // SQLite commits nothing if a record stays as it is
            match job.op {
                Op::Insert => session.insert(&key, &value),
                _ => session.update(&key, &(value | 1 << 40)),
            }
        })
    }
}

impl Subject for Ours {
    fn work(&self, job: &Job) -> Result<Vec<u64>, Fault> {
        let Self(index) = self;
        let mut batch = Vec::new();
        job.timed(|number| {
            let key_of = |number| key(job.thread, number);
            let key = key_of(number);
            Ok(match job.op {
                Op::Get => index.get(&key)?.is_some(),
                Op::Insert => index.try_insert(&key, &number)?.is_ok(),
                Op::Update => index.update(&key, &number)?.is_ok(),
                Op::Remove => index.remove(&key)?.is_some(),
                Op::InsertMany => {
                    batch.clear();
                    batch.extend((0..BATCH).map(|i| (key_of((1 << 38) + number * BATCH + i), i)));
                    let inserted = index.try_insert_many(&batch);
                    if let Some(stopped) = inserted.stopped {
                        return Err(stopped.into());
                    }
                    true
                }
            })
        })
    }
}

/// Runs an operation on threads; `counts` has the inserted keys of each thread.
fn run(
    subject: &dyn Subject,
    op: Op,
    counts: &mut [(u64, u64)],
    time: Duration,
) -> Result<Figure, Fault> {
    let started = Instant::now();
    let jobs: Vec<Job> = (0..)
        .zip(&*counts)
        .map(|(thread, &(first, count))| {
            let first = if op == Op::Insert { first + count } else { first };
            Job { thread, first, count, op, time }
        })
        .collect();
    let taken: Vec<Result<Vec<u64>, Fault>> = std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(|| subject.work(job))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|ran| ran.unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let mut all = Vec::new();
    for (taken, (first, count)) in taken.into_iter().zip(counts) {
        let taken = taken?;
        match op {
            Op::Insert => *count += taken.len() as u64,
            Op::Remove => {
                *first += taken.len() as u64;
                *count -= taken.len() as u64;
            }
            _ => {}
        }
        all.extend(taken);
    }
    all.sort_unstable();
    let at = |part: f64| all[((all.len() as f64 * part) as usize).min(all.len() - 1)] as f64 / 1e3;
    Ok(Figure { rate: all.len() as f64 / seconds, micros: [0.5, 0.99, 0.999].map(at) })
}

/// The figures of a subject: a list for each column, with one of each round.
struct Row {
    name: String,
    columns: Vec<Vec<Figure>>,
}

impl Row {
    fn new(name: &str, columns: usize) -> Self {
        Self { name: name.into(), columns: vec![Vec::new(); columns] }
    }

    /// Returns the medians of a column; none if it was not measured.
    fn figure(&self, column: usize) -> Option<Figure> {
        let median = |of: &dyn Fn(&Figure) -> f64| {
            let mut all: Vec<f64> = self.columns[column].iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let micros = std::array::from_fn(|i| median(&|figure| figure.micros[i]).unwrap_or(0.0));
        Some(Figure { rate: median(&|figure| figure.rate)?, micros })
    }
}

/// Measures everything with files in `disk`, on the disk, and `memory`, on tmpfs; returns the page.
///
/// # Errors
/// The first error of a store.
pub fn page(disk: &Path, memory: &Path, times: &Times) -> Result<String, Fault> {
    let folder = |of: &Path| of.join(format!("pmindex-disk-{}", std::process::id()));
    let (disk, memory) = (folder(disk), folder(memory));
    let written = on_disk(&disk, times).and_then(|rows| {
        let periodic = in_memory(&memory, &disk, times)?;
        Ok([INTRODUCTION, &rates(&rows), &targets(&rows), &latencies(&rows), &periodic].concat())
    });
    for folder in [disk, memory] {
        let _ = std::fs::remove_dir_all(folder);
    }
    written
}

fn ours(kind: Kind, file: PathBuf, options: &PoolOptions) -> Result<Box<dyn Subject>, Fault> {
    let pool = Arc::new(Pool::create(file, options)?);
    Ok(Box::new(Ours(AnyIndex::create(&pool, "index", kind)?)))
}

/// Creates a store in a folder; none for one that has a program of its own.
fn create(name: &str, dir: &Path) -> Result<Option<Box<dyn Subject>>, Fault> {
    let (pool, options) = (dir.join("pool"), PoolOptions::new().size(256 << 20));
    Ok(Some(match name {
        BARE => Box::new(Other(synced::Bare::create(dir)?)),
        "fptree, `Journal`" => ours(Kind::FpTree, pool, &options.journal(true))?,
        "hart, `Journal`" => ours(Kind::Hart, pool, &options.journal(true))?,
        MSYNC => ours(Kind::FpTree, pool, &options)?,
        "LMDB" => Box::new(Other(files::Lmdb::create(dir)?)),
        "redb" => Box::new(Other(files::Redb::create(dir, 1)?)),
        "fjall" => Box::new(Other(files::Fjall::create(dir, true)?)),
        "SQLite" => Box::new(Other(synced::Sqlite::create(dir)?)),
        _ => return Ok(None),
    }))
}

fn on_disk(folder: &Path, times: &Times) -> Result<Vec<Row>, Fault> {
    let names = [BARE].into_iter().chain(OURS).chain([MSYNC]).chain(OTHERS);
    let mut rows: Vec<Row> = names.map(|name| Row::new(name, 2 * THREADS.len())).collect();
    for round in 0..times.rounds {
        for row in &mut rows {
            let started = Instant::now();
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder)?;
            let subject = create(&row.name, folder)?;
            if let Some(subject) = &subject {
                // An empty index has one leaf, which all threads would wait for.
                let mut counts = [(1 << 39, 0); LOADERS];
                run(&**subject, Op::Insert, &mut counts, times.on_disk / 2)?;
            }
            for (place, threads) in THREADS.into_iter().enumerate() {
                let figures = match &subject {
                    None => rocksdb(folder, threads, times.on_disk)?,
                    Some(subject) => {
                        let first = (place as u64) << 36;
                        let mut counts = vec![(first, 0); threads];
                        let mut of = |op| run(&**subject, op, &mut counts, times.on_disk);
                        Some([of(OPS[0])?, of(OPS[1])?])
                    }
                };
                for (op, figure) in figures.into_iter().flatten().enumerate() {
                    row.columns[op * THREADS.len() + place].push(figure);
                }
            }
            eprintln!("round {round}: {}, {:.1} s", row.name, started.elapsed().as_secs_f64());
        }
    }
    Ok(rows)
}

/// Measures `RocksDB` by its own program; none if that is not installed.
fn rocksdb(folder: &Path, threads: usize, time: Duration) -> Result<Option<[Figure; 2]>, Fault> {
    let seconds = time.as_secs().max(1);
    let mut command = Command::new("db_bench");
    command.arg(format!("--db={}", folder.join("rocksdb").display()));
    command.arg(format!("--threads={threads}")).arg(format!("--duration={seconds}"));
    command.args(["--benchmarks=fillrandom,overwrite", "--num=100000", "--sync=1"]);
    command.args(["--histogram=1", "--key_size=8", "--value_size=8"]);
    let out = match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("RocksDB is skipped: there is no db_bench (Debian: rocksdb-tools)");
            return Ok(None);
        }
        out => out?,
    };
    let told = String::from_utf8_lossy(&out.stdout);
    let figure = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(name) && line.contains("ops/sec"))?;
        let behind = &told[told.find(line)? + line.len()..];
        let percentile = |what: &str| -> Option<f64> {
            behind.split_once(what)?.1.split_whitespace().next()?.parse().ok()
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("ops/sec"))?;
        let micros = [percentile("P50: ")?, percentile("P99: ")?, percentile("P99.9: ")?];
        Some(Figure { rate: words[at.checked_sub(1)?].parse().ok()?, micros })
    };
    let both = figure("fillrandom").zip(figure("overwrite"));
    let why = || format!("db_bench: {}\n{told}", String::from_utf8_lossy(&out.stderr));
    both.map(|(insert, update)| Some([insert, update])).ok_or_else(|| why().into())
}

fn rates(rows: &[Row]) -> String {
    let mut text = String::from("\n## Writes a second\n\n| |");
    for op in ["insert", "update"] {
        for threads in THREADS {
            let _ = write!(text, " {op}, {threads} |");
        }
    }
    text += "\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for row in rows {
        let _ = write!(text, "| {} |", row.name);
        for column in 0..row.columns.len() {
            let rate = row.figure(column).map(|figure| format!("{:.0}", figure.rate));
            let _ = write!(text, " {} |", rate.unwrap_or_else(|| "-".into()));
        }
        text.push('\n');
    }
    text
}

fn rate(rows: &[Row], name: &str, op: usize, place: usize) -> Option<f64> {
    let row = rows.iter().find(|row| row.name == name)?;
    row.figure(op * THREADS.len() + place).map(|figure| figure.rate)
}

fn targets(rows: &[Row]) -> String {
    let mut text = String::from("\n## What it comes to\n\n| |");
    for ours in OURS {
        let _ = write!(text, " {ours}: insert | update |");
    }
    text += "\n| --- | ---: | ---: | ---: | ---: |\n";
    let best =
        |op, place| OTHERS.iter().filter_map(|other| rate(rows, other, op, place)).reduce(f64::max);
    let kinds = [
        "1 thread, of the bare loop (0.8 wanted)",
        "8 threads, of 1 thread (4 wanted)",
        "1 thread, of the best other store",
        "8 threads, of the best other store (3 wanted)",
        "64 threads, of the best other store (3 wanted)",
    ];
    for (kind, what) in kinds.into_iter().enumerate() {
        let _ = write!(text, "| {what} |");
        for ours in OURS {
            for op in 0..OPS.len() {
                let of = |place| rate(rows, ours, op, place);
                let pair = match kind {
                    0 => of(0).zip(rate(rows, BARE, op, 0)),
                    1 => of(1).zip(of(0)),
                    _ => of(kind - 2).zip(best(op, kind - 2)),
                };
                let times = pair.map(|(a, b)| format!("{:.2}", a / b));
                let _ = write!(text, " {} |", times.unwrap_or_else(|| "-".into()));
            }
        }
        text.push('\n');
    }
    text
}

fn latencies(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## How long an insert takes\n\nMicroseconds: the most that 50, 99 and 99.9 of a hundred inserts \
         take.\n\n| |",
    );
    for threads in THREADS {
        let _ = write!(text, " {threads}: p50 | p99 | p99.9 |");
    }
    let _ = write!(text, "\n| --- |{}\n", " ---: |".repeat(3 * THREADS.len()));
    for row in rows {
        let _ = write!(text, "| {} |", row.name);
        for place in 0..THREADS.len() {
            match row.figure(place) {
                Some(figure) => figure.micros.iter().for_each(|micros| {
                    let _ = write!(text, " {micros:.0} |");
                }),
                None => text += " - | - | - |",
            }
        }
        text.push('\n');
    }
    text
}

/// Measures mode `Periodic` beside `Process`, with the twin on the disk.
fn in_memory(memory: &Path, disk: &Path, times: &Times) -> Result<String, Fault> {
    let mut text = String::from(
        "\n## `Periodic` beside `Process`\n\nA pool on tmpfs, one thread; the twin is written to the disk every \
         100 ms. First the rate in mode `Periodic` as a part of that in mode `Process` (0.7 wanted), then the \
         most microseconds of 99.9 % of the operations, `Process` and `Periodic` (three times wanted).\n\n| |",
    );
    for op in MEMORY_OPS {
        let _ = write!(text, " {} | p99.9 |", op.name());
    }
    let _ = write!(text, "\n| --- |{}\n", " ---: |".repeat(2 * MEMORY_OPS.len()));
    for kind in IN_MEMORY {
        let mut rows =
            [Row::new("process", MEMORY_OPS.len()), Row::new("periodic", MEMORY_OPS.len())];
        for _ in 0..times.rounds {
            for (has_twin, row) in rows.iter_mut().enumerate() {
                for folder in [memory, disk] {
                    let _ = std::fs::remove_dir_all(folder);
                    std::fs::create_dir_all(folder)?;
                }
                let mut options = PoolOptions::new().size(1 << 30);
                if has_twin == 1 {
                    options = options.twin(disk.join("twin"));
                }
                let subject = ours(kind, memory.join("pool"), &options)?;
                let mut counts = [(0, 0)];
                while counts[0].1 < LOADED {
                    run(&*subject, Op::Insert, &mut counts, Duration::from_millis(20))?;
                }
                for (column, op) in MEMORY_OPS.into_iter().enumerate() {
                    let figure = run(&*subject, op, &mut counts, times.in_memory)?;
                    row.columns[column].push(figure);
                }
            }
        }
        let [process, periodic] = rows;
        let _ = write!(text, "| {kind} |");
        for column in 0..MEMORY_OPS.len() {
            if let Some((with, without)) = periodic.figure(column).zip(process.figure(column)) {
                let part = with.rate / without.rate;
                let _ =
                    write!(text, " {part:.2} | {:.1}, {:.1} |", without.micros[2], with.micros[2]);
            }
        }
        text.push('\n');
    }
    Ok(text)
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Remove => "remove",
            Self::InsertMany => "insert_many",
        }
    }
}
