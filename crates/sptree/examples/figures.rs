//! What SPTree's paper claims and no benchmark of one operation shows: bytes that the medium writes
//! with and without buffers, DRAM for each record, and how soon reads are served after a crash,
//! against the length of the log. All in private memory, with real flushes; the bytes are counted by
//! a model of a medium that writes units of 256 bytes.
//!
//! ```text
//! cargo run --release -p pmindex-sptree --example figures [records [part]]
//! ```
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use pmindex_core::{Flushed, Mapped, Medium, PPtr, Pool};
use pmindex_index::IndexError;
use pmindex_sptree::log::{Chain, Kind, Location, Log, Record};
use pmindex_sptree::{BufferedSpTree, Root, SpTree};

/// A part of the figures, of an index of some records.
type Part = fn(u64) -> Result<(), IndexError>;

const PARTS: [(&str, Part); 5] = [
    ("latency", latency),
    ("media", media),
    ("dram", dram),
    ("resumption", resumption),
    ("log", plain_log),
];

fn main() -> Result<(), IndexError> {
    let mut arguments = std::env::args().skip(1);
    let records = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let wanted = arguments.next();
    for (name, part) in PARTS {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            part(records)?;
        }
    }
    Ok(())
}

/// Key number `n`: scattered.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Bytes of a pool with room for `records` records.
fn room(records: u64) -> usize {
    (records as usize * 64).max(64 << 20) + (256 << 20)
}

/// Nanoseconds of each of `count` calls, in the mean.
fn nanoseconds(count: u64, mut call: impl FnMut(u64)) -> f64 {
    let begin = Instant::now();
    (0..count).for_each(&mut call);
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// Inserts and lookups, in turns with those of a `BTreeMap`.
fn latency(records: u64) -> Result<(), IndexError> {
    const TURNS: u64 = 9;
    let pool = Arc::new(Pool::emulated(room(2 * records))?);
    let plain = SpTree::<u64, u64>::create(&pool, "plain")?;
    let buffered = BufferedSpTree::<u64, u64>::create(&pool, "buffered")?;
    let mut map = BTreeMap::new();
    for n in 0..records {
        let _ = plain.try_insert(&key(n), &n)?;
        let _ = buffered.try_insert(&key(n), &n)?;
        map.insert(key(n), n);
    }
    let count = (records / 10 / TURNS).max(1);
    let mut rows: BTreeMap<&str, Vec<[f64; 3]>> = BTreeMap::new();
    let mut inserts = |turn| {
        let first = records + turn * count;
        [
            nanoseconds(count, |n| _ = black_box(map.insert(key(first + n), n))),
            nanoseconds(count, |n| _ = black_box(plain.try_insert(&key(first + n), &n))),
            nanoseconds(count, |n| _ = black_box(buffered.try_insert(&key(first + n), &n))),
        ]
    };
    for turn in 0..TURNS {
        rows.entry("insert").or_default().push(inserts(turn));
    }
    // And with the work of full buffers on one more thread.
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| buffered.worker().run(&stop));
        for turn in TURNS..2 * TURNS {
            rows.entry("insert, a worker").or_default().push(inserts(turn));
        }
        stop.store(true, Release);
        worker.join().expect("it does not panic")
    })?;
    for turn in 0..TURNS {
        let first = records + turn * count;
        let sought = |n| key((first + n) * 7919 % records);
        let row = [
            nanoseconds(count, |n| _ = black_box(map.get(&sought(n)))),
            nanoseconds(count, |n| _ = black_box(plain.get(&sought(n)))),
            nanoseconds(count, |n| _ = black_box(buffered.get(&sought(n)))),
        ];
        rows.entry("get").or_default().push(row);
        let row = [
            nanoseconds(count, |n| _ = black_box(map.get(&!sought(n)))),
            nanoseconds(count, |n| _ = black_box(plain.get(&!sought(n)))),
            nanoseconds(count, |n| _ = black_box(buffered.get(&!sought(n)))),
        ];
        rows.entry("get, no such key").or_default().push(row);
    }
    println!("{records} records, ns per operation  | BTreeMap | sptree | buffered | ratios");
    for (name, rows) in rows {
        let middle = |i: usize| {
            let mut column: Vec<f64> = rows.iter().map(|row| row[i]).collect();
            column.sort_by(f64::total_cmp);
            column[column.len() / 2]
        };
        let [map, plain, buffered] = [middle(0), middle(1), middle(2)];
        let (one, other) = (map / plain, map / buffered);
        println!("{name:16} | {map:.0} | {plain:.0} | {buffered:.0} | {one:.2} {other:.2}");
    }
    Ok(())
}

/// Counts of `count` calls on an index of `records` records: lines, fences, bytes of the medium.
fn counted<const BUFFER: usize>(
    records: u64,
    call: impl Fn(&SpTree<u64, u64, Mapped, 64, BUFFER>, u64) -> Result<(), IndexError>,
) -> Result<[f64; 3], IndexError> {
    let pool = Arc::new(Pool::counting(room(2 * records))?);
    let tree = SpTree::<u64, u64, Mapped, 64, BUFFER>::create(&pool, "t")?;
    for n in 0..records {
        let _ = tree.try_insert(&key(n), &n)?;
    }
    tree.drain()?;
    pool.pm().counter().expect("it counts").reset();
    let count = records / 2;
    (0..count).try_for_each(|n| call(&tree, n))?;
    tree.drain()?; // what waits in the buffers counts
    let counts = pool.pm().counter().expect("it counts").counts();
    let each = |total: u64| total as f64 / count as f64;
    Ok([each(counts.lines), each(counts.fences), each(counts.media_written)])
}

/// What the medium writes for each operation, splits and absorptions included.
fn media(records: u64) -> Result<(), IndexError> {
    println!("\nper operation, {records} records | lines | fences | media bytes");
    for (name, what) in [("insert", 0), ("update", 1), ("remove", 2)] {
        for buffered in [false, true] {
            let [lines, fences, bytes] = if buffered {
                counted::<14>(records, |tree, n| write(tree, what, records, n))?
            } else {
                counted::<0>(records, |tree, n| write(tree, what, records, n))?
            };
            let kind = if buffered { "buffered" } else { "in place" };
            println!("{name}, {kind} | {lines:.2} | {fences:.2} | {bytes:.0}");
        }
    }
    Ok(())
}

fn write<M: Medium, const BUFFER: usize>(
    tree: &SpTree<u64, u64, M, 64, BUFFER>,
    what: u8,
    records: u64,
    n: u64,
) -> Result<(), IndexError> {
    match what {
        0 => drop(tree.try_insert(&key(records + n), &n)?),
        1 => drop(tree.update(&key(n * 7919 % records), &!n)?),
        _ => drop(tree.remove(&key(n))?),
    }
    Ok(())
}

/// DRAM for each record, after inserts at random.
fn dram(records: u64) -> Result<(), IndexError> {
    println!("\nbytes per record, {records} records | DRAM | PM | DRAM of PM");
    let row = |name: &str, dram: u64, pm: u64| {
        let (each, of) = (dram as f64 / records as f64, 100.0 * dram as f64 / pm as f64);
        println!("{name} | {each:.1} | {:.1} | {of:.0} %", pm as f64 / records as f64);
    };
    let pool = Arc::new(Pool::emulated(room(records))?);
    let plain = SpTree::<u64, u64>::create(&pool, "t")?;
    (0..records).try_for_each(|n| plain.try_insert(&key(n), &n).map(drop))?;
    let stats = plain.stats()?;
    row("no buffers", stats.dram_bytes, stats.pm_bytes);
    for part in [16, 4, 1] {
        let pool = Arc::new(Pool::emulated(room(records))?);
        let tree = BufferedSpTree::<u64, u64>::create(&pool, "t")?;
        tree.set_buffer_budget(stats.leaves * 320 / part);
        (0..records).try_for_each(|n| tree.try_insert(&key(n), &n).map(drop))?;
        let stats = tree.stats()?;
        row(&format!("buffers for one leaf of {part}"), stats.dram_bytes, stats.pm_bytes);
    }
    Ok(())
}

/// From the beginning of opening to the first value, after a crash.
fn resumption(records: u64) -> Result<(), IndexError> {
    println!("\nwrites since the last drain | opened and read one | DRAM rebuilt");
    for writes in [records / 16, records / 8, records / 4, records / 2, records] {
        let pool = Arc::new(Pool::emulated(room(2 * records))?);
        let tree = BufferedSpTree::<u64, u64>::create(&pool, "t")?;
        tree.bulk_load(&mut (0..records).map(|n| (n << 20, n)))?;
        for n in 0..writes {
            let _ = tree.update(&((key(n) % records) << 20), &n)?;
        }
        drop(tree); // not closed: as after a crash
        let begin = Instant::now();
        let tree = BufferedSpTree::<u64, u64>::open_serving(&pool, "t")?;
        let found = tree.get(&((key(writes / 2) % records) << 20))?;
        let served = begin.elapsed();
        assert!(found.is_some(), "a record of the bulk load");
        while tree.step()? {}
        println!("{writes} | {} | {}", us(served), us(begin.elapsed()));
    }
    Ok(())
}

fn us(time: Duration) -> String {
    format!("{:.1} us", time.as_nanos() as f64 / 1000.0)
}

/// The same for the log by itself: with a checkpoint, and as a plain log, of which all is read.
fn plain_log(records: u64) -> Result<(), IndexError> {
    const CHAINS: u64 = 1000;
    println!(
        "\nentries of the log | structured: opened, a chain read | plain: opened, a chain read"
    );
    for entries in [records / 16, records / 8, records / 4, records / 2, records] {
        let pool = Arc::new(Pool::<Mapped>::emulated(2 * room(2 * records))?);
        let entry = pool.create_index::<Root>("log", *b"figures\0", 1, |root| {
            pool.pm().store(&root.log, PPtr::NULL);
            pool.pm().flush(root)
        })?;
        let cell = &pool.get(entry.root::<Root>())?.log;
        let log = Log::create(&pool, cell)?;
        let mut chains = vec![Chain::default(); CHAINS as usize];
        let mut oldest = vec![Location::NONE; CHAINS as usize];
        for n in 0..entries {
            let at = (n % CHAINS) as usize;
            // A chain ends with its 14th entry: the buffer was absorbed.
            let first = (n / CHAINS).is_multiple_of(14);
            let next = if first { Location::NONE } else { chains[at].head };
            let (id, seq) = (64 * (at as u64 + 1), n + 1);
            let record = Record { id, seq, next, kind: Kind::Put, payload: &[n, n] };
            let appended = log.append(&record)?;
            chains[at] = Chain { head: appended.location, seq };
            oldest[at] = if first { appended.location } else { oldest[at] };
        }
        drop(log);
        let plain = opened_and_read(&pool, cell)?;
        let log = Log::open(&pool, cell)?;
        log.set_restored();
        log.checkpoint(|heads| {
            for (at, &chain) in chains.iter().enumerate() {
                heads.add(64 * (at as u64 + 1), chain, log.birth_of(oldest[at]));
            }
            Ok::<(), IndexError>(())
        })?;
        drop(log);
        println!("{entries} | {} | {}", us(opened_and_read(&pool, cell)?), us(plain));
        pool.pm().fence(Flushed::nothing()).map_err(pmindex_core::PmError::from)?;
    }
    Ok(())
}

/// Opens the log and reads a chain to its end.
fn opened_and_read(
    pool: &Arc<Pool>,
    cell: &pmindex_core::PmPtr<pmindex_core::PmU64>,
) -> Result<Duration, IndexError> {
    let begin = Instant::now();
    let log = Log::open(pool, cell)?;
    let mut entries = 0;
    log.follow(64, log.recovered(64), 28, |_, _| {
        entries += 1;
        true
    })?;
    assert!(entries > 0, "the chain has entries");
    Ok(begin.elapsed())
}
