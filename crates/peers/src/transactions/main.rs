//! Measures transactions of `pmindex::Store` compared with those of redb, LMDB, fjall and sled, and snapshot
//! reads compared with plain ones. Prints a page of tables: `cargo xtask evidence --only transactions` keeps it in
//! `docs/evidence/`.
#![forbid(unsafe_code)]

mod stores;
mod turns;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use pmindex::Index;

use crate::stores::{COMPETITORS, Fault, Ours, Transactional};
use crate::turns::{Keys, median, rate};

/// Transactions a second of pmindex's store beside other stores, as a page of tables
#[derive(Parser)]
struct Args {
    /// The folder of the stores' files; on tmpfs, so that disk accesses cost nothing
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The number of records of each store, half of them in each map
    #[arg(long, default_value_t = 500_000)]
    records: u64,
    /// The number of rounds of each store; the figure is the median
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// The milliseconds of a round
    #[arg(long, default_value_t = 300)]
    millis: u64,
}

/// The numbers of records that a transaction puts.
const WRITES: [usize; 3] = [1, 4, 16];
/// The numbers of threads with transactions.
const THREADS: [u64; 2] = [1, 2];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(page) => {
            print!("{page}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<String, Fault> {
    let folder = args.dir.join(format!("pmindex-transactions-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let page = transactions(args, &folder)
        .and_then(|writes| Ok(writes + &reads(args, &folder.join("reads"))?));
    std::fs::remove_dir_all(&folder)?;
    page
}

/// The operation that a thread repeats in a round.
type Turn<'s> = Box<dyn FnMut() -> Result<(), Fault> + 's>;

/// Puts random existing records in transactions.
fn puts<'s>(
    store: &'s dyn Transactional,
    records: u64,
    writes: usize,
) -> impl Fn(u64) -> Turn<'s> + Sync {
    move |thread| {
        let mut keys = Keys::new(thread + 1);
        let mut changes = vec![(0, 0); writes];
        Box::new(move || {
            for (at, change) in changes.iter_mut().enumerate() {
                let key = keys.next(records / 2) * 2 + at as u64 % 2;
                *change = (key, key + 1);
            }
            store.put(black_box(&changes))
        })
    }
}

fn load(store: &dyn Transactional, records: u64) -> Result<(), Fault> {
    let records: Vec<(u64, u64)> = (0..records).map(|key| (key, key)).collect();
    records.chunks(1024).try_for_each(|chunk| store.put(chunk))
}

fn transactions(args: &Args, folder: &Path) -> Result<String, Fault> {
    let mut stores = Vec::new();
    for (number, subject) in COMPETITORS.iter().enumerate() {
        let dir = folder.join(number.to_string());
        std::fs::create_dir_all(&dir)?;
        let store = (subject.make)(&dir).map_err(|e| format!("{}: {e}", subject.name))?;
        load(store.as_ref(), args.records).map_err(|e| format!("{}: {e}", subject.name))?;
        stores.push(store);
    }
    let cases: Vec<_> = WRITES.iter().flat_map(|w| THREADS.map(|t| (*w, t))).collect();
    let mut rates = vec![vec![0.0; cases.len()]; stores.len()];
    for (case, (writes, threads)) in cases.iter().enumerate() {
        let mut turns = vec![Vec::new(); stores.len()];
        for _ in 0..args.turns {
            for (store, turns) in stores.iter().zip(&mut turns) {
                let work = puts(store.as_ref(), args.records, *writes);
                turns.push(rate(*threads, Duration::from_millis(args.millis), work)?);
            }
        }
        for (rates, turns) in rates.iter_mut().zip(turns) {
            rates[case] = median(turns);
        }
    }
    let heading = cases.iter().map(|(writes, threads)| match threads {
        1 => format!(" {writes} |"),
        _ => format!(" {writes}, {threads} threads |"),
    });
    let mut page = format!(
        "# Transactions beside other stores\n\nThousands of transactions a second that put 1, 4 or 16 \
         records into two maps in turn: random ones of {} records of 8-byte keys and values, on tmpfs. \
         Medians of {} turns of {} ms in one run. The last lines are pmindex's best against the best of \
         the others. A transaction of one record that reads nothing is a single write: hence the first two \
         columns.\n\n| |{}\n| --- |{}\n",
        args.records,
        args.turns,
        args.millis,
        heading.collect::<String>(),
        " ---: |".repeat(cases.len()),
    );
    for (subject, rates) in COMPETITORS.iter().zip(&rates) {
        let cells = rates.iter().map(|rate| format!(" {:.1} |", rate / 1000.0));
        page += &format!("| {} |{}\n", subject.name, cells.collect::<String>());
    }
    let is_ours = |at: &usize| COMPETITORS[*at].name.starts_with("pmindex");
    let best = |case: usize, which: &dyn Fn(&usize) -> bool| {
        (0..stores.len()).filter(which).map(|at| rates[at][case]).fold(0.0, f64::max)
    };
    let isolated = |at: &usize| !is_ours(at) && COMPETITORS[*at].name != "fjall (batch)";
    for (name, others) in [
        ("against transactions", &isolated as &dyn Fn(&usize) -> bool),
        ("against all", &|at| !is_ours(at)),
    ] {
        let ratios = (0..cases.len()).map(|case| best(case, &is_ours) / best(case, others));
        let cells = ratios.map(|ratio| format!(" {ratio:.1} |"));
        page += &format!("| **{name}** |{}\n", cells.collect::<String>());
    }
    page += "\nWhat each survives, and how it is used:\n\n";
    for subject in COMPETITORS {
        page += &format!("- {}: {}.\n", subject.name, subject.words);
    }
    Ok(page)
}

/// Measures plain reads and reads of a snapshot, without a writer, and while one thread runs transactions of
/// 4 records.
fn reads(args: &Args, folder: &Path) -> Result<String, Fault> {
    std::fs::create_dir_all(folder)?;
    let store = Ours::create(folder, "fptree")?;
    load(&store, args.records)?;
    let time = Duration::from_millis(args.millis);
    let key = |keys: &mut Keys| {
        let key = keys.next(args.records);
        (key, &store.maps[key as usize % 2])
    };
    let mut turns = [const { Vec::new() }; 4];
    for _ in 0..args.turns {
        for writing in [false, true] {
            let stop = AtomicBool::new(!writing);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut put = puts(&store, args.records, 4)(7);
                    while !stop.load(Ordering::Relaxed) {
                        put()?;
                    }
                    Ok::<(), Fault>(())
                });
                let plain = rate(1, time, |_| {
                    let mut keys = Keys::new(3);
                    move || {
                        let (key, map) = key(&mut keys);
                        black_box(map.get(&key)?).ok_or("a record is missing")?;
                        Ok(())
                    }
                });
                let view = store.store.snapshot();
                let then = view.map_err(Fault::from).and_then(|view| {
                    let view = &view;
                    rate(1, time, |_| {
                        let mut keys = Keys::new(3);
                        move || {
                            let (key, map) = key(&mut keys);
                            black_box(map.at(view).get(&key)?).ok_or("a record is missing")?;
                            Ok(())
                        }
                    })
                });
                stop.store(true, Ordering::Relaxed);
                match writer.join() {
                    Ok(written) => written?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
                turns[usize::from(writing) * 2].push(plain?);
                turns[usize::from(writing) * 2 + 1].push(then?);
                Ok::<(), Fault>(())
            })?;
        }
    }
    let [plain, then, plain_beside, then_beside] = turns.map(median);
    let line =
        |name, rate: f64| format!("| {name} | {:.0} | {:.2} |\n", rate / 1000.0, rate / plain);
    Ok(format!(
        "\n# Reads of a snapshot\n\nThousands of reads a second by one thread of FPTree maps, in the same \
         run. The writer does transactions of 4.\n\n| | reads | of plain reads |\n| --- | ---: | ---: |\n{}{}{}{}",
        line("plain", plain),
        line("snapshot", then),
        line("plain, beside a writer", plain_beside),
        line("snapshot, beside a writer", then_beside),
    ))
}
