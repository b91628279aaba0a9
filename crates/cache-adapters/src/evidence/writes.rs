//! Figure 3.7 and table 3.1: inserts in batches, with files and with a pool.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use pmindex_env::{Env, LevelEnv};
use rusty_leveldb::env::{Env as Files, FileLock, Logger, RandomAccess};
use rusty_leveldb::{DB, Options, PosixDiskEnv, Result as Answer, WriteBatch};

use crate::common::{Began, Fault, Places, Random, Sheet, chapter, texts, wait};

const BATCHES: [u64; 5] = [1, 10, 100, 1_000, 10_000];

/// Files that a flush makes durable, unlike those of the crate itself.
struct Synced(PosixDiskEnv);

struct SyncedFile(File);

impl Write for SyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let began = Instant::now();
        self.0.sync_data()?;
        wait(began.elapsed());
        Ok(())
    }
}

impl Files for Synced {
    fn open_sequential_file(&self, path: &Path) -> Answer<Box<dyn io::Read>> {
        self.0.open_sequential_file(path)
    }

    fn open_random_access_file(&self, path: &Path) -> Answer<Box<dyn RandomAccess>> {
        self.0.open_random_access_file(path)
    }

    fn open_writable_file(&self, path: &Path) -> Answer<Box<dyn Write>> {
        Ok(Box::new(SyncedFile(File::create(path)?)))
    }

    fn open_appendable_file(&self, path: &Path) -> Answer<Box<dyn Write>> {
        Ok(Box::new(SyncedFile(File::options().append(true).create(true).open(path)?)))
    }

    fn exists(&self, path: &Path) -> Answer<bool> {
        self.0.exists(path)
    }

    fn children(&self, path: &Path) -> Answer<Vec<PathBuf>> {
        self.0.children(path)
    }

    fn size_of(&self, path: &Path) -> Answer<usize> {
        self.0.size_of(path)
    }

    fn delete(&self, path: &Path) -> Answer<()> {
        self.0.delete(path)
    }

    fn mkdir(&self, path: &Path) -> Answer<()> {
        self.0.mkdir(path)
    }

    fn rmdir(&self, path: &Path) -> Answer<()> {
        self.0.rmdir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Answer<()> {
        self.0.rename(from, to)
    }

    fn lock(&self, path: &Path) -> Answer<FileLock> {
        self.0.lock(path)
    }

    fn unlock(&self, lock: FileLock) -> Answer<()> {
        self.0.unlock(lock)
    }

    fn new_logger(&self, path: &Path) -> Answer<Logger> {
        self.0.new_logger(path)
    }

    fn micros(&self) -> u64 {
        self.0.micros()
    }

    fn sleep_for(&self, micros: u32) {
        self.0.sleep_for(micros);
    }
}

/// Microseconds per insert, the mean latency, and its standard deviation.
struct Row {
    each: f64,
    latency: f64,
    deviation: f64,
}

fn run(env: Box<dyn Files>, folder: &Path, batch: u64, records: u64) -> Result<Row, Fault> {
    let options = Options { env: Rc::new(env), compressor: 0, ..Options::default() };
    let mut db = DB::open(folder, options)?;
    let (mut random, mut waits) = (Random::new(7), Vec::with_capacity(records as usize));
    let began = Began::now();
    for _ in 0..records / batch {
        let (mut writes, mut came) = (WriteBatch::default(), Vec::with_capacity(batch as usize));
        for _ in 0..batch {
            came.push(Began::now());
            let key = format!("{:016x}", random.next());
            writes.put(key.as_bytes(), &[7; 112]);
        }
        db.write(writes, true)?;
        waits.extend(came.iter().map(|came| came.elapsed().as_nanos() as f64 / 1000.0));
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / waits.len() as f64;
    let latency = waits.iter().sum::<f64>() / waits.len() as f64;
    let variance = waits.iter().map(|wait| (wait - latency).powi(2)).sum::<f64>();
    Ok(Row { each, latency, deviation: (variance / waits.len() as f64).sqrt() })
}

pub(crate) fn page(places: &Places, smaller: u64) -> Result<String, Fault> {
    let records = 100_000 / smaller.min(4);
    let mut each = Sheet::new(&texts(BATCHES));
    let mut all: Vec<Vec<Row>> = Vec::new();
    let names = ["files on this disk", "files on tmpfs", "pmindex-env, in a pool"];
    for (kind, _) in names.iter().enumerate() {
        let mut rows = Vec::new();
        for batch in BATCHES {
            let at = |folder: &Path| folder.join(format!("db-{batch}"));
            rows.push(match kind {
                // The time that a disk takes for these flushes.
                0 => {
                    let few = (batch * 2_000 / smaller).clamp(batch, records);
                    run(Box::new(Synced(PosixDiskEnv::new())), &at(&places.disk), batch, few)?
                }
                1 => {
                    run(Box::new(Synced(PosixDiskEnv::new())), &at(&places.memory), batch, records)?
                }
                _ => {
                    let pool = places.pool("writes", 512 << 20)?;
                    let env = LevelEnv::new(Env::open_or_create(&pool, "files")?);
                    run(Box::new(env), Path::new("db"), batch, records)?
                }
            });
        }
        all.push(rows);
    }
    for (name, rows) in names.iter().zip(&all) {
        each.row(
            &format!("{name}, us an insert"),
            &texts(rows.iter().map(|r| format!("{:.1}", r.each))),
        );
    }
    for (name, rows) in names.iter().zip(&all) {
        each.row(
            &format!("{name}, mean latency"),
            &texts(rows.iter().map(|r| format!("{:.1}", r.latency))),
        );
    }
    for (name, rows) in names.iter().zip(&all) {
        each.row(
            &format!("{name}, standard deviation (table 3.1)"),
            &texts(rows.iter().map(|r| format!("{:.1}", r.deviation))),
        );
    }
    let gain = |of: usize, to: usize| all[of][0].each / all[of][to].each;
    let found = format!(
        "**Here** from 1 to 100 files on the disk become {:.0} times as fast, on tmpfs {:.1} times, the pool \
         {:.1}; from 1 to 10 the pool's time falls by {:.0} %. A flush of the disk waits for the disk, which \
         that of DAX did not; tmpfs has no flush at all, so what is left there is system calls. At {} of \
         the {} sizes the standard deviation is smaller in the pool than in files on the disk. rusty-leveldb under each, {records} inserts of \
         16 + 112 bytes (fewer on the disk), each batch synchronised.",
        gain(0, 2),
        gain(1, 2),
        gain(2, 2),
        100.0 - 100.0 * all[2][1].each / all[2][0].each,
        all[2].iter().zip(&all[0]).filter(|(pool, disk)| pool.deviation < disk.deviation).count(),
        BATCHES.len(),
    );
    Ok(chapter(
        "Figure 3.7 and table 3.1: inserts in batches",
        "through files on DAX inserts become 16 times as fast from batches of 1 to 100; in the pool half the \
         time goes from 1 to 10 and little after it; latencies deviate less in the pool: 12, 39, 125, 517, 4749 \
         us against 23, 56, 161, 586, 4750.",
        each,
        &found,
    ))
}
