//! Figure 3.14: the time until a reader is as fast as before the process was killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pmindex_core::{Pool, PoolOptions};

use crate::common::{Began, Fault, Places, Random, Sheet, Skew, chapter, since_start, texts};
use crate::slow::{BLOCK, DramOnly, Ours, Reader, Storage, warm};

/// The duration of one figure of a reader.
const WINDOW: Duration = Duration::from_millis(100);

/// Reads blocks, and prints the number in each window and the end of the window in ms since the process was
/// started; `how` is `dram` or `pool`, with `-warm` to warm the cache first.
pub(crate) fn read_until_killed(how: &str, dir: &Path, smaller: u64) -> Result<(), Fault> {
    let storage = Storage {
        blocks: 65_536 / smaller,
        wait: Duration::from_millis(1),
        is_slow: AtomicBool::new(true),
    };
    if how.starts_with("dram") {
        return windows(&DramOnly::new(&storage), &storage, how);
    }
    let size = storage.blocks * BLOCK as u64 / 4 + (32 << 20);
    let pool = Pool::open_or_create(dir.join("pool"), &PoolOptions::new().size(size))?;
    windows(&Ours::new(&storage, &Arc::new(pool))?, &storage, how)
}

fn windows(reader: &dyn Reader, storage: &Storage, how: &str) -> Result<(), Fault> {
    if how.ends_with("-warm") {
        warm(reader, storage)?;
    }
    let mut random = Random::new(std::process::id().into());
    let mut out = std::io::stdout();
    loop {
        let (began, mut reads) = (Began::now(), 0);
        while began.elapsed() < WINDOW {
            for _ in 0..4 {
                reader.read(Skew::EightyTwenty.next(&mut random, storage.blocks))?;
            }
            reads += 4;
        }
        writeln!(out, "{reads} {}", since_start().as_millis())?;
        out.flush()?;
    }
}

fn start(
    how: &str,
    dir: &Path,
    smaller: u64,
) -> Result<(Child, impl Iterator<Item = (f64, f64)> + use<>), Fault> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--reader", how, "--smaller", &smaller.to_string(), "--dir"])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("no output")?;
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    let two = |line: String| {
        let (reads, at) = line.split_once(' ')?;
        Some((reads.parse().ok()?, at.parse().ok()?))
    };
    Ok((child, lines.filter_map(two)))
}

/// Returns the reads per second at the peak, those of the next process in its first second, and the
/// milliseconds from its start until it reads 90 % of the peak. The next process uses the files of another
/// folder.
fn one(kind: &str, dir: &Path, next: &Path, smaller: u64) -> Result<[f64; 3], Fault> {
    let (mut child, windows) = start(&format!("{kind}-warm"), dir, smaller)?;
    let peak: Vec<f64> = windows.take(20).map(|(reads, _)| reads).collect();
    child.kill()?;
    child.wait()?;
    let peak = peak.iter().sum::<f64>() / peak.len().max(1) as f64;
    let (mut child, windows) = start(kind, next, smaller)?;
    let (mut last, mut reached, mut first) = (Vec::new(), None, 0.0);
    for (reads, at) in windows {
        last.push(reads);
        if last.len() == 10 {
            first = last.iter().sum();
        }
        // The mean of two windows, so that one lucky window does not count.
        let two = last.iter().rev().take(2).sum::<f64>() / 2.0;
        if reached.is_none() && last.len() >= 2 && two >= 0.9 * peak {
            reached = Some(at);
        }
        if (reached.is_some() && last.len() >= 10) || at > 200_000.0 {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    let reached = reached.ok_or("the peak was not reached again")?;
    Ok([peak * 10.0, first, reached])
}

pub(crate) fn page(places: &Places, smaller: u64) -> Result<String, Fault> {
    let mut sheet = Sheet::new(&texts([
        "peak, reads/s",
        "reads in the first second",
        "ms to 90 % of the peak",
    ]));
    let mut all = Vec::new();
    let folder = |name: &str| {
        let folder = places.memory.join(name);
        std::fs::create_dir_all(&folder).map(|()| folder)
    };
    let (kept, empty) = (folder("kept")?, folder("empty")?);
    for (name, kind, next) in [
        ("DRAM alone, LRU", "dram", &kept),
        ("2Q over a pool", "pool", &kept),
        ("2Q over a pool that was lost", "pool", &empty),
    ] {
        let cells = one(kind, &kept, next, smaller)?;
        sheet.row(name, &texts(cells.map(|cell| format!("{cell:.0}"))));
        all.push(cells[2]);
    }
    let found = format!(
        "**Here** DRAM alone takes {:.0} times as long as the pool, though its peak is lower; the same cache takes {:.0} \
         times as long if the pool was lost. Each is a \
         process that is killed with `kill -9` at its peak and started again; two windows of 100 ms are the \
         least that is told apart, so 200 ms is the floor. Storage takes 1 ms a block. Times count from the start of \
         the process, opening the pool included.",
        all[0] / all[1],
        all[2] / all[1],
    );
    Ok(chapter(
        "Figure 3.14: after a restart",
        "the peak is reached 15 s after a restart with a persistent cache, 280 s with DRAM alone: 19 times.",
        sheet,
        &found,
    ))
}
