//! Measures figures 4.8, 4.10 and 4.11 and table 4.3 of the thesis's chapter 4: the update of a page, and the
//! throughput after a crash. Prints tables in Markdown.
//!
//! `cargo bench -p pmindex-buffer [-- --folder PATH] [--disk PATH]` sets the folders of the pool, preferably
//! on tmpfs, and of the disk's file. Under `cargo test` it runs briefly, to show that it works.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pmindex_buffer::page::Layout;
use pmindex_buffer::runs::Runs;
use pmindex_buffer::{Buffer, BufferError, BufferOptions, Metrics, Progress, Sums};
use pmindex_core::{Medium, Pool, PoolOptions};
use pmindex_wal::{FileDisk, SyncMethod};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The sizes of the measurements.
struct Scale {
    /// Bytes of pages for updates.
    pool: usize,
    updates: u32,
    /// Pages of the disk for restarts.
    pages: u64,
    /// The duration before the crash, and after it.
    run: Duration,
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(PathBuf::from)
    };
    let scale = if args.iter().any(|arg| arg == "--bench") {
        let run = Duration::from_secs(3);
        Scale { pool: 512 << 20, updates: 200_000, pages: 32 << 10, run }
    } else {
        Scale { pool: 4 << 20, updates: 100, pages: 64, run: Duration::from_millis(20) }
    };
    update_of_a_page(&scale)?;
    let temp = tempfile::tempdir()?;
    let folder = value("--folder").unwrap_or_else(|| temp.path().into());
    let disk = value("--disk").unwrap_or_else(|| temp.path().into());
    restarts(&scale, &folder, &disk)
}

/// A generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// Returns skewed numbers: half of them are in the first sixteenth.
    fn skewed(&mut self, most: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "a random number")]
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        #[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "below `most`")]
        let rank = (most as f64 * unit.powi(4)) as u64;
        rank.min(most - 1)
    }
}

/// A method of updating a page.
#[derive(Clone, Copy, PartialEq)]
enum UpdateMethod {
    Bare,
    Copy,
    Sums(u32),
    Difference,
}

fn update_of_a_page(scale: &Scale) -> Outcome<()> {
    let ways = [
        UpdateMethod::Bare,
        UpdateMethod::Copy,
        UpdateMethod::Sums(1),
        UpdateMethod::Sums(8),
        UpdateMethod::Difference,
    ];
    println!("## Figure 4.8 and table 4.3: an update of a page\n");
    println!("Nanoseconds, and in brackets the factor of the bare update.\n");
    println!(
        "| page | update | bare | copy to DRAM | one checksum | 8 partitions | one sum by differences |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for page_bytes in [4096, 8192, 16_384, 65_536] {
        for bytes in [8, 64, 512] {
            let mut cells = Vec::new();
            for way in ways {
                cells.push(time_updates(scale, page_bytes, bytes, way)?);
            }
            let shown: Vec<String> =
                cells.iter().map(|time| format!("{time:.0} ({:.1})", time / cells[0])).collect();
            println!("| {} KiB | {bytes} B | {} |", page_bytes / 1024, shown.join(" | "));
        }
    }
    println!();
    Ok(())
}

/// Returns the nanoseconds of an update of this number of bytes of a random page.
fn time_updates(scale: &Scale, page_bytes: usize, bytes: usize, way: UpdateMethod) -> Outcome<f64> {
    let pool = Pool::emulated(scale.pool + scale.pool / 4)?;
    let (pm, words) = (pool.pm(), page_bytes / 8);
    let sums = match way {
        UpdateMethod::Sums(count) => Sums::Partitioned(count),
        _ => Sums::Incremental,
    };
    let layout = Layout::new(words, sums, 1);
    let mut image = vec![0; words];
    layout.seal(&mut image, 0, 1);
    // Free memory of a temporary pool.
    let first = scale.pool / 8;
    let mut pages = Vec::new();
    for at in (first..first + scale.pool).step_by(page_bytes) {
        let cells = pool.words(at as u64, words)?;
        pm.write_words(cells, &image);
        pages.push(cells);
    }
    let (mut random, mut copy) = (Random(7), vec![0; words]);
    let mut runs = vec![0; 1 + bytes / 8];
    let started = Instant::now();
    for lsn in 0..scale.updates {
        let page = pages[random.below(pages.len() as u64) as usize];
        let at = random.below((layout.user_words() - bytes / 8) as u64);
        runs[0] = at | ((bytes / 8) as u64) << 32;
        runs[1] = lsn.into();
        let first = 4 + at as usize;
        match way {
            UpdateMethod::Bare => pm.write_words(&page[first..first + bytes / 8], &runs[1..]),
            UpdateMethod::Copy => {
                pm.read_words(page, &mut copy);
                copy[first..first + bytes / 8].copy_from_slice(&runs[1..]);
                std::hint::black_box(&mut copy);
            }
            UpdateMethod::Sums(_) | UpdateMethod::Difference => {
                layout.update(pm, page, 0, lsn.into(), Runs::new(&runs));
            }
        }
    }
    Ok(started.elapsed().as_secs_f64() * 1e9 / f64::from(scale.updates))
}

fn options(scale: &Scale, dram: u64) -> BufferOptions {
    BufferOptions::new(scale.pages / 2).dram_pages(dram as usize)
}

/// A transaction that reads three pages and changes the fourth.
fn transact(buffer: &Buffer, random: &mut Random, pages: u64) -> Outcome<()> {
    for _ in 0..3 {
        std::hint::black_box(buffer.read(1 + random.skewed(pages), |page| page.word(0))?);
    }
    loop {
        let mut tx = buffer.begin();
        let page = tx.write(1 + random.skewed(pages))?;
        page.set(random.below(500) as usize, random.next());
        match tx.commit() {
            Ok(_) => return Ok(()),
            Err(BufferError::Conflict) => {}
            Err(BufferError::Pool(pmindex_core::PmError::Full { .. })) => buffer.checkpoint()?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the transactions of each interval, while another thread makes checkpoints.
fn run(buffer: &Buffer, random: &mut Random, pages: u64, time: Duration) -> Outcome<Vec<u32>> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) && buffer.checkpoint().is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let slices = work(buffer, random, pages, time);
        over.store(true, Relaxed);
        slices
    })
}

fn work(buffer: &Buffer, random: &mut Random, pages: u64, time: Duration) -> Outcome<Vec<u32>> {
    let slice = time / 60;
    let (started, mut slices) = (Instant::now(), vec![0; 60]);
    loop {
        transact(buffer, random, pages)?;
        let at = (started.elapsed().as_nanos() / slice.as_nanos().max(1)) as usize;
        match slices.get_mut(at) {
            Some(count) => *count += 1,
            None => return Ok(slices),
        }
    }
}

fn restarts(scale: &Scale, folder: &Path, disk: &Path) -> Outcome<()> {
    println!("## Figures 4.10 and 4.11: throughput through a crash\n");
    println!(
        "{} pages of 4 KiB on the disk, {} frames; a transaction reads three pages and changes one, skewed. \
         Another thread makes checkpoints, one after the other. Then the process dies.\n",
        scale.pages,
        scale.pages / 2
    );
    println!(
        "| system | DRAM : frames | before, tx/s | serves after | 90 % after | fetched | frames valid, outdated, corrupted |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for share in [0, 20, 50] {
        let dram = scale.pages / 2 * share / 100;
        let paths = (folder.join("buffer.pool"), disk.join("buffer.pages"));
        let peak = until_the_crash(scale, &paths, dram)?;
        for system in ["ARIES", "instant recovery", "persistent buffer"] {
            let copies = (folder.join("copy.pool"), disk.join("copy.pages"));
            std::fs::copy(&paths.0, &copies.0)?;
            std::fs::copy(&paths.1, &copies.1)?;
            File::open(&copies.1)?.sync_all()?;
            let row = after_the_crash(scale, &copies, dram, system, peak)?;
            println!("| {system} | {share} : 100 | {peak:.0} | {row} |");
            std::fs::remove_file(&copies.0)?;
            std::fs::remove_file(&copies.1)?;
        }
        std::fs::remove_file(&paths.0)?;
        std::fs::remove_file(&paths.1)?;
    }
    Ok(())
}

fn pools(scale: &Scale) -> PoolOptions {
    PoolOptions::new().size((scale.pages * 4096).max(4 << 20) * 2).emulate_pm(true)
}

/// Fills the pages and runs until the process dies. Returns the rate before that.
fn until_the_crash(scale: &Scale, paths: &(PathBuf, PathBuf), dram: u64) -> Outcome<f64> {
    let _ = std::fs::remove_file(&paths.0);
    FileDisk::create(&File::create(&paths.1)?, scale.pages * 4096)?;
    let disk = Arc::new(FileDisk::open(&paths.1, SyncMethod::Sync)?);
    let pool = Arc::new(Pool::create(&paths.0, &pools(scale))?);
    let buffer = Buffer::create(&pool, "pages", disk, &options(scale, dram).staging(64))?;
    let pages = scale.pages - 1;
    for page in 1..=pages {
        let mut tx = buffer.begin();
        tx.create(page)?.set(0, page);
        match tx.commit() {
            Err(BufferError::Pool(pmindex_core::PmError::Full { .. })) => {
                buffer.checkpoint()?;
                let mut tx = buffer.begin();
                tx.create(page)?.set(0, page);
                tx.commit()?;
            }
            other => drop(other?),
        }
    }
    let mut random = Random(1);
    run(&buffer, &mut random, pages, scale.run)?; // warm
    buffer.checkpoint()?;
    let slices = run(&buffer, &mut random, pages, scale.run / 3)?;
    drop(buffer);
    if let Some(pool) = Arc::into_inner(pool) {
        pool.kill();
    }
    let count: u32 = slices.iter().sum();
    Ok(f64::from(count) / (scale.run / 3).as_secs_f64())
}

fn after_the_crash(
    scale: &Scale,
    paths: &(PathBuf, PathBuf),
    dram: u64,
    system: &str,
    peak: f64,
) -> Outcome<String> {
    let started = Instant::now();
    let disk = Arc::new(FileDisk::open(&paths.1, SyncMethod::Sync)?);
    let pool = Arc::new(Pool::open(&paths.0, &pools(scale))?);
    let options = options(scale, dram).cold(system != "persistent buffer");
    let opened = Buffer::open(&pool, "pages", disk, &options)?;
    let buffer = opened.ok_or("the buffer is gone")?;
    if system == "ARIES" {
        while buffer.recover_step()? == Progress::More {}
    }
    let served = started.elapsed();
    let slices = run(&buffer, &mut Random(2), scale.pages - 1, scale.run)?;
    let slice = scale.run / 60;
    let enough = |count: &u32| f64::from(*count) >= 0.9 * peak * slice.as_secs_f64();
    let warm = slices.iter().position(enough).map_or_else(
        || format!("not in {:.1} s", scale.run.as_secs_f64()),
        |at| format!("{:.0} ms", (served + slice * at as u32).as_secs_f64() * 1e3),
    );
    let Metrics { fetched, valid, outdated, corrupted, .. } = buffer.metrics();
    let served = served.as_secs_f64() * 1e3;
    Ok(format!("{served:.0} ms | {warm} | {fetched} | {valid}, {outdated}, {corrupted}"))
}
