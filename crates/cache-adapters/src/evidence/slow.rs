//! Figures 3.12 and 3.13: reads over a slow medium, with memory of equal price.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use pmindex_cache::policy::{Access, Lru, Policy, TwoQ};
use pmindex_cache::{Block, BlockCache, CacheOptions, Hot, Key, Placed};
use pmindex_core::Pool;

use crate::common::{Began, Fault, Places, Random, Sheet, Skew, chapter, texts, wait};

pub(crate) const BLOCK: usize = 4096;
/// The thesis's 110 GB, 10 GB, 2 GB and 17 GB, in thousandths of the data.
const DRAM_ONLY: u64 = 91;
const DRAM: u64 = 18;
const PM: u64 = 155;

type Shared = Arc<[u8]>;

/// Blocks on a slow medium.
pub(crate) struct Storage {
    pub(crate) blocks: u64,
    pub(crate) wait: Duration,
    pub(crate) is_slow: AtomicBool,
}

impl Storage {
    pub(crate) fn read(&self, n: u64) -> Vec<u8> {
        if self.is_slow.load(Relaxed) {
            wait(self.wait);
        }
        n.to_le_bytes().repeat(BLOCK / 8)
    }

    fn share(&self, thousandths: u64) -> usize {
        (self.blocks * thousandths / 1000).max(16) as usize
    }
}

/// Reads blocks, for all threads.
pub(crate) trait Reader: Sync {
    /// Reads a block; returns `true` if it was cached.
    fn read(&self, n: u64) -> Result<bool, Fault>;
}

fn check(bytes: &[u8], n: u64) -> Result<(), Fault> {
    // The lines that a search reads.
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    if (0..5).all(|line| word(line * 768) == n) { Ok(()) } else { Err("a wrong block".into()) }
}

/// DRAM alone, LRU.
pub(crate) struct DramOnly<'s> {
    storage: &'s Storage,
    hot: Hot<u64, Shared, Lru<u64, Shared>>,
}

impl<'s> DramOnly<'s> {
    pub(crate) fn new(storage: &'s Storage) -> Self {
        Self { storage, hot: Hot::new(storage.share(DRAM_ONLY), 16) }
    }
}

impl Reader for DramOnly<'_> {
    fn read(&self, n: u64) -> Result<bool, Fault> {
        let mut is_cached = true;
        let block = self.hot.get_or_load(n, || {
            is_cached = false;
            Ok::<_, Fault>(Shared::from(self.storage.read(n)))
        })?;
        check(&block, n)?;
        Ok(is_cached)
    }
}

/// DRAM in front of a cache in a file of tmpfs, through system calls; LRU for both.
struct OverFile<'s> {
    storage: &'s Storage,
    hot: Hot<u64, Shared, Lru<u64, Shared>>,
    file: File,
    /// The blocks in the file, and their places.
    below: Mutex<(Lru<u64, u32>, Vec<u32>, std::collections::HashMap<u64, u32>)>,
}

impl<'s> OverFile<'s> {
    fn new(storage: &'s Storage, places: &Places) -> Result<Self, Fault> {
        let path = places.memory.join("cache");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        let slots = storage.share(PM);
        let below = (
            pmindex_cache::policy::Keeper::with_capacity(slots),
            (0..slots as u32).collect(),
            Default::default(),
        );
        Ok(Self { storage, hot: Hot::new(storage.share(DRAM), 16), file, below: Mutex::new(below) })
    }
}

impl Reader for OverFile<'_> {
    fn read(&self, n: u64) -> Result<bool, Fault> {
        let mut is_cached = true;
        let block = self.hot.get_or_load(n, || {
            let mut below = self.below.lock();
            let (lru, _, slots) = &mut *below;
            let access = lru.access(n);
            // A block that another thread is writing is read from the storage.
            if access == Access::Hit
                && let Some(&slot) = slots.get(&n)
            {
                let mut bytes = vec![0; BLOCK];
                self.file.read_exact_at(&mut bytes, u64::from(slot) * BLOCK as u64)?;
                return Ok::<_, Fault>(Shared::from(bytes));
            }
            drop(below);
            is_cached = false;
            let bytes = self.storage.read(n);
            let mut below = self.below.lock();
            let (_, free, slots) = &mut *below;
            if let Access::Admitted { evicted: Some(evicted) } = access {
                free.extend(slots.remove(&evicted));
            }
            if let Access::Admitted { .. } = access
                && !slots.contains_key(&n)
                && let Some(slot) = free.pop()
            {
                slots.insert(n, slot);
                self.file.write_all_at(&bytes, u64::from(slot) * BLOCK as u64)?;
            }
            Ok(Shared::from(bytes))
        })?;
        check(&block, n)?;
        Ok(is_cached)
    }
}

const fn name(n: u64) -> Key {
    Key { instance: 1, file: n / 512, offset: n % 512 }
}

/// 2Q in DRAM in front of a block cache in a pool, which is told of hits in DRAM.
pub(crate) struct Ours<'s> {
    storage: &'s Storage,
    hot: Hot<u64, Shared, TwoQ<u64, Shared>>,
    cache: BlockCache,
}

impl<'s> Ours<'s> {
    pub(crate) fn new(storage: &'s Storage, pool: &Arc<Pool>) -> Result<Self, Fault> {
        let bytes = (storage.share(PM) * BLOCK) as u64;
        let options = CacheOptions::new(bytes)
            .segment_bytes((bytes / 32).next_multiple_of(64).clamp(64 << 10, 2 << 20));
        let cache = match BlockCache::open(pool, "blocks", &options)? {
            Some(cache) => cache,
            None => BlockCache::create(pool, "blocks", &options)?,
        };
        Ok(Self { storage, hot: Hot::new(storage.share(DRAM), 16), cache })
    }

    fn below(&self, n: u64, is_cached: &mut bool) -> Result<Vec<u8>, Fault> {
        let load = || {
            *is_cached = false;
            Ok::<_, Fault>(Block { kind: 0, bytes: self.storage.read(n) })
        };
        Ok(self.cache.get_or_load(&name(n), load)?.bytes)
    }
}

impl Reader for Ours<'_> {
    fn read(&self, n: u64) -> Result<bool, Fault> {
        let mut is_cached = true;
        match self.hot.place(n) {
            Placed::Hit(block) => {
                self.cache.touch(&name(n));
                check(&block, n)?;
            }
            Placed::Below => check(&self.below(n, &mut is_cached)?, n)?,
            Placed::Admitted(vacant) => {
                let block = Shared::from(self.below(n, &mut is_cached)?);
                check(&block, n)?;
                vacant.fill(block);
            }
        }
        Ok(is_cached)
    }
}

/// Returns the reads per second, and the fraction that was cached.
fn measure(
    reader: &dyn Reader,
    storage: &Storage,
    threads: u64,
    time: Duration,
) -> Result<(f64, f64), Fault> {
    let run = |thread: u64| {
        let (mut random, mut reads, mut hits) = (Random::new(thread + 100), 0u64, 0u64);
        let began = Began::now();
        while began.elapsed() < time {
            // Reading the clock costs as much as some reads.
            for _ in 0..16 {
                let n = Skew::EightyTwenty.next(&mut random, storage.blocks);
                hits += u64::from(reader.read(n).map_err(|e| e.to_string())?);
            }
            reads += 16;
        }
        Ok::<_, String>((reads as f64 / began.elapsed().as_secs_f64(), hits as f64 / reads as f64))
    };
    let results = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        all.into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err("a panic".into())))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let rate = results.iter().map(|(rate, _)| rate).sum();
    Ok((rate, results.iter().map(|(_, hits)| hits).sum::<f64>() / threads as f64))
}

/// Fills the caches, with a fast storage.
pub(crate) fn warm(reader: &dyn Reader, storage: &Storage) -> Result<(), Fault> {
    let mut random = Random::new(99);
    storage.is_slow.store(false, Relaxed);
    for _ in 0..4 * storage.blocks {
        reader.read(Skew::EightyTwenty.next(&mut random, storage.blocks))?;
    }
    storage.is_slow.store(true, Relaxed);
    Ok(())
}

pub(crate) fn page(places: &Places, smaller: u64) -> Result<String, Fault> {
    const THREADS: [u64; 4] = [1, 2, 4, 8];
    let storage = Storage {
        blocks: 65_536 / smaller,
        wait: Duration::from_micros(100),
        is_slow: AtomicBool::new(true),
    };
    let time = Duration::from_millis(2000 / smaller.min(20));
    let pool = places.pool("slow", storage.blocks * BLOCK as u64 / 4 + (32 << 20))?;
    let (dram, file, ours) =
        (DramOnly::new(&storage), OverFile::new(&storage, places)?, Ours::new(&storage, &pool)?);
    let mut columns = texts(THREADS.map(|threads| format!("{threads} threads, reads/s")));
    columns.push("cached".into());
    let (mut sheet, mut all) = (Sheet::new(&columns), Vec::new());
    let readers: [(&str, &dyn Reader); 3] = [
        ("DRAM alone, LRU: 9.1 % of the data", &dram),
        ("DRAM, LRU: 1.8 %, over a file: 15.5 %, LRU", &file),
        ("DRAM, 2Q: 1.8 %, over a pool: 15.5 %", &ours),
    ];
    for (name, reader) in readers {
        warm(reader, &storage)?;
        let (mut rates, mut cached) = (Vec::new(), 0.0);
        for threads in THREADS {
            let (rate, hits) = measure(reader, &storage, threads, time)?;
            rates.push(rate);
            cached = hits;
        }
        let cells = rates.iter().map(|rate| format!("{rate:.0}"));
        sheet.row(name, &[cells.collect(), vec![format!("{:.1} %", 100.0 * cached)]].concat());
        all.push(rates);
    }
    let found = format!(
        "**Here** the pool with 2Q reads {:.2} times as much as DRAM alone with one thread and {:.2} times with \
         eight, and {:.2} and {:.2} times as much as through files. Storage takes 100 us a block; sizes \
         are those of the thesis in parts of the data ({} blocks of 4 KiB), 80/20. With storage that slow most \
         of a gain is the hit ratio, so files come nearer to the pool than in the thesis.",
        all[2][0] / all[0][0],
        all[2][3] / all[0][3],
        all[2][0] / all[1][0],
        all[2][3] / all[1][3],
        storage.blocks,
    );
    Ok(chapter(
        "Figures 3.12 and 3.13: reads over slow storage, memory of one price",
        "a persistent cache through files gains little over DRAM alone, one in place with 2Q much, with one \
         thread and with several.",
        sheet,
        &found,
    ))
}
