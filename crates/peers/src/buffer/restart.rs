//! Figures 4.10 and 4.11: the throughput of a buffer pool through a crash, with three ways to restart and several
//! ratios of DRAM and persistent memory.

use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pmindex_buffer::{Buffer, BufferError, BufferOptions, Progress};
use pmindex_core::{PmError, Pool, PoolOptions};
use pmindex_wal::{FileDisk, SyncMethod};

use crate::common::{Fault, Folders, Keys, Scale, Skew, Table};

/// The way to restart.
#[derive(Clone, Copy, PartialEq)]
enum Restart {
    Aries,
    Instant,
    Persistent,
}

impl Restart {
    fn name(self) -> &'static str {
        match self {
            Self::Aries => "ARIES: redo, then serve",
            Self::Instant => "instant recovery",
            Self::Persistent => "persistent buffer pool",
        }
    }
}

/// A buffer pool's sizes, in pages.
#[derive(Clone, Copy)]
struct Sizes {
    pages: u64,
    frames: u64,
    dram: u64,
}

/// The ends of the intervals after the crash, in milliseconds.
const MOMENTS: [u64; 6] = [25, 50, 100, 200, 500, 1000];
/// The interval in which transactions are counted.
const SLICE: Duration = Duration::from_millis(5);

/// What happened after a crash.
struct After {
    /// From the start of the process's work to its first transaction.
    served: Duration,
    slices: Vec<u32>,
    /// Pages from the disk; frames found valid, outdated, corrupted.
    counts: [u64; 4],
}

/// Both figures.
pub(crate) fn page(scale: &Scale, folders: &Folders) -> Result<String, Fault> {
    let frames = scale.memory / 4096;
    let pages = 2 * frames;
    let mut text = format!(
        "\n## Figure 4.10: throughput through a crash\n\n{pages} pages of 4 KiB on the disk (`O_DIRECT`), {frames} \
         frames; a transaction reads three pages and changes one, zipfian. Another thread makes a checkpoint when \
         the log has a tenth of the frames' bytes. The process dies; what is in the pool's memory stays. Times are \
         from the start of the opening; throughput is in percent of that before the crash.\n\n"
    );
    let mut heads = vec!["".to_owned(), "serves after".into(), "90 % after".into()];
    let mut from = 0;
    for until in MOMENTS {
        heads.push(format!("{from}-{until} ms"));
        from = until;
    }
    heads.extend(["from the disk".into(), "valid, outdated, corrupted".into()]);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&heads);
    let run = Duration::from_millis(scale.millis * 3);
    let sizes = Sizes { pages, frames, dram: 0 };
    let files = Files::of(folders, "first");
    let peak = until_the_crash(&files, sizes, run)?;
    let mut times = Vec::new();
    for way in [Restart::Aries, Restart::Instant, Restart::Persistent] {
        let after = after_the_crash(&files.copied(folders)?, sizes, way, run)?;
        times.push(recovered(&after, peak));
        table.row(way.name(), cells(&after, peak));
    }
    let _ = write!(text, "Before the crash: {peak:.0} transactions a second.\n\n{}", table.text());
    text += "\n**The thesis** draws, and did not measure: ARIES is down through redo; instant recovery serves at once \
             and warms up slowly; the persistent pool serves at once at nearly its peak. ";
    text += &times_said(&times);
    text += "The persistent memory is memory that outlives the process (tmpfs), so the drawing's lower peak of the \
             persistent pool, from Optane's latency, is not there. ";
    text += &ratios(scale, folders, pages, frames, run)?;
    folders.clear()?;
    Ok(text)
}

fn times_said(times: &[Option<Duration>]) -> String {
    let said = |time: &Option<Duration>| {
        time.map_or("not in the time of the run".into(), |time| {
            format!("{:.0} ms", time.as_secs_f64() * 1e3)
        })
    };
    let [aries, instant, ours] = times else { return String::new() };
    format!(
        "**Here** 90 % of the throughput is back after {}, {} and {} in this order. ",
        said(aries),
        said(instant),
        said(ours)
    )
}

/// Figure 4.11.
fn ratios(
    scale: &Scale,
    folders: &Folders,
    pages: u64,
    frames: u64,
    run: Duration,
) -> Result<String, Fault> {
    let mut table = Table::new(&[
        "DRAM : PM",
        "before, transactions/s",
        "serves after",
        "90 % after",
        "of the DRAM-only peak, first 100 ms",
        "from the disk",
    ]);
    let mut only_dram = 0.0;
    for share in [100, 80, 60, 40, 20, 0] {
        let dram = frames * share / 100;
        // With DRAM alone the frames stand for DRAM: a crash loses them.
        let sizes = match share {
            100 => Sizes { pages, frames, dram: 0 },
            _ => Sizes { pages, frames: frames - dram, dram },
        };
        let way = if share == 100 { Restart::Instant } else { Restart::Persistent };
        folders.clear()?;
        let files = Files::of(folders, "ratio");
        let peak = until_the_crash(&files, sizes, run)?;
        if share == 100 {
            only_dram = peak;
        }
        let after = after_the_crash(&files, sizes, way, run)?;
        let first = rate(&after, 0, 100) / only_dram;
        let said = recovered(&after, peak).map_or("-".into(), milliseconds);
        table.row(
            &format!("{share} : {}", 100 - share),
            [
                format!("{peak:.0}"),
                milliseconds(after.served),
                said,
                format!("{:.0} %", 100.0 * first),
                after.counts[0].to_string(),
            ],
        );
    }
    Ok(format!(
        "\n\n## Figure 4.11: DRAM and persistent memory in different ratios\n\nThe same memory, {} MiB, in all; 2Q \
         decides which pages have a copy in DRAM.\n\n{}\n**The thesis** draws: more DRAM, more throughput and a \
         slower recovery. **Here** recovery is as drawn. The throughput is not: this pool keeps the frame of a page \
         that has a copy, so that a checkpoint and an eviction need not move it, and with the same memory in all a \
         copy displaces another page; and the memory for the frames is as fast as that for the copies. On this \
         machine the best ratio is 0 : 100; copies pay where the frames are slower than DRAM.\n",
        scale.memory >> 20,
        table.text()
    ))
}

/// The files of a buffer.
struct Files {
    pool: PathBuf,
    pages: PathBuf,
}

impl Files {
    fn of(folders: &Folders, name: &str) -> Self {
        Self { pool: folders.memory.join(name), pages: folders.disk.join(name) }
    }

    /// Returns copies, of which the disk has everything.
    fn copied(&self, folders: &Folders) -> Result<Self, Fault> {
        let copy = Self::of(folders, "copy");
        std::fs::copy(&self.pool, &copy.pool)?;
        std::fs::copy(&self.pages, &copy.pages)?;
        File::open(&copy.pages)?.sync_all()?;
        Ok(copy)
    }
}

fn pools(sizes: Sizes) -> PoolOptions {
    // The log has room beside the frames.
    PoolOptions::new()
        .size((sizes.frames * 4096 * 5 / 4).max(4 << 20) + (16 << 20))
        .emulate_pm(true)
}

fn options(sizes: Sizes) -> BufferOptions {
    BufferOptions::new(sizes.frames).dram_pages(sizes.dram as usize).staging(64)
}

/// Fills the pages, and runs until the process dies. Returns the transactions a second before that.
fn until_the_crash(files: &Files, sizes: Sizes, run: Duration) -> Result<f64, Fault> {
    FileDisk::create(&File::create(&files.pages)?, sizes.pages * 4096)?;
    let disk = Arc::new(FileDisk::open(&files.pages, SyncMethod::Sync)?);
    let pool = Arc::new(Pool::create(&files.pool, &pools(sizes))?);
    let buffer = Buffer::create(&pool, "pages", disk, &options(sizes))?;
    let mut page = 1;
    while page < sizes.pages {
        let mut tx = buffer.begin();
        tx.create(page)?.set(0, page);
        match tx.commit() {
            Err(BufferError::Pool(PmError::Full { .. })) => buffer.checkpoint()?,
            other => {
                other?;
                page += 1;
            }
        }
    }
    let mut keys = Keys::new(Skew::Zipfian, sizes.pages - 1, 1);
    let slices = work(&buffer, sizes, &mut keys, run)?;
    drop(buffer);
    if let Some(pool) = Arc::into_inner(pool) {
        pool.kill();
    }
    // The last third: before that it warms up.
    let last = &slices[slices.len() / 3 * 2..];
    Ok(f64::from(last.iter().sum::<u32>()) / (SLICE * last.len() as u32).as_secs_f64())
}

fn after_the_crash(
    files: &Files,
    sizes: Sizes,
    way: Restart,
    run: Duration,
) -> Result<After, Fault> {
    let mut keys = Keys::new(Skew::Zipfian, sizes.pages - 1, 2);
    let started = Instant::now();
    let disk = Arc::new(FileDisk::open(&files.pages, SyncMethod::Sync)?);
    let pool = Arc::new(Pool::open(&files.pool, &pools(sizes))?);
    let options = options(sizes).cold(way != Restart::Persistent);
    let buffer = Buffer::open(&pool, "pages", disk, &options)?.ok_or("the buffer is gone")?;
    if way == Restart::Aries {
        while buffer.recover_step()? == Progress::More {}
    }
    let served = started.elapsed();
    let slices = work(&buffer, sizes, &mut keys, run)?;
    let found = buffer.metrics();
    Ok(After {
        served,
        slices,
        counts: [found.fetched, found.valid, found.outdated, found.corrupted],
    })
}

/// Returns the transactions of each slice, while another thread makes checkpoints.
fn work(buffer: &Buffer, sizes: Sizes, keys: &mut Keys, run: Duration) -> Result<Vec<u32>, Fault> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let due = buffer.log_bytes() > sizes.frames * 4096 / 10;
                if due && buffer.checkpoint().is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let mut slices = vec![0; (run.as_nanos() / SLICE.as_nanos()) as usize];
        let started = Instant::now();
        let result = loop {
            if let Err(error) = transact(buffer, keys) {
                break Err(error);
            }
            match slices.get_mut((started.elapsed().as_nanos() / SLICE.as_nanos()) as usize) {
                Some(count) => *count += 1,
                None => break Ok(()),
            }
        };
        over.store(true, Relaxed);
        result.map(|()| slices)
    })
}

/// A transaction that reads three pages and changes the fourth.
fn transact(buffer: &Buffer, keys: &mut Keys) -> Result<(), Fault> {
    for _ in 0..3 {
        black_box(buffer.read(1 + keys.next(), |page| page.word(0))?);
    }
    loop {
        let mut tx = buffer.begin();
        let page = tx.write(1 + keys.next())?;
        page.set(keys.random().below(500) as usize, keys.random().random());
        match tx.commit() {
            Ok(_) => return Ok(()),
            Err(BufferError::Conflict) => {}
            Err(BufferError::Pool(PmError::Full { .. })) => buffer.checkpoint()?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the transactions a second between two moments after the crash, in milliseconds.
fn rate(after: &After, from: u64, until: u64) -> f64 {
    let served = after.served.as_millis() as u64;
    let place = |moment: u64| (moment.saturating_sub(served) / SLICE.as_millis() as u64) as usize;
    let (first, last) = (place(from), place(until).min(after.slices.len()));
    let count: u32 = after.slices[first.min(last)..last].iter().sum();
    f64::from(count) * 1e3 / (until - from) as f64
}

/// The slices that are taken together to tell whether the throughput is back.
const TOGETHER: usize = 4;

/// Returns when 90 % of a throughput are reached: the end of the first four slices that have it together.
fn recovered(after: &After, peak: f64) -> Option<Duration> {
    let enough = 0.9 * peak * (SLICE * TOGETHER as u32).as_secs_f64();
    let at = after
        .slices
        .windows(TOGETHER)
        .position(|some| f64::from(some.iter().sum::<u32>()) >= enough)?;
    Some(after.served + SLICE * (at + TOGETHER) as u32)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn cells(after: &After, peak: f64) -> Vec<String> {
    let mut cells =
        vec![milliseconds(after.served), recovered(after, peak).map_or("-".into(), milliseconds)];
    let mut from = 0;
    for until in MOMENTS {
        cells.push(format!("{:.0}", 100.0 * rate(after, from, until) / peak));
        from = until;
    }
    let [fetched, valid, outdated, corrupted] = after.counts;
    cells.extend([fetched.to_string(), format!("{valid}, {outdated}, {corrupted}")]);
    cells
}
