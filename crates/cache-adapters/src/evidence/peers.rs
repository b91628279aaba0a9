//! Compares our caches with those of other crates: hit ratios, and operations per second.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmindex_cache::policy::{Access, Lru, Policy, S3Fifo, TinyLfu, TwoQ};
use pmindex_cache::{BlockCache, CacheOptions, Hot, Key};

use crate::blocks::{BLOCKS_IN_TABLE, RECORDS_IN_BLOCK};
use crate::common::{Began, Fault, Places, Random, Sheet, Skew, texts};

type Value = Arc<u64>;

/// A cache of values; after a miss the caller inserts.
trait Cache: Sync {
    fn get(&self, id: u64) -> bool;
    fn put(&self, id: u64, value: &Value);
}

/// One of our policies, used by one thread.
struct Alone<P>(parking_lot::Mutex<P>);

impl<P: Policy<u64> + Send> Cache for Alone<P> {
    fn get(&self, id: u64) -> bool {
        self.0.lock().access(id) == Access::Hit
    }

    fn put(&self, _: u64, _: &Value) {}
}

impl<P: pmindex_cache::policy::Keeper<u64, Value> + Send + Sync> Cache for Hot<u64, Value, P> {
    fn get(&self, id: u64) -> bool {
        Hot::get(self, id).map(black_box).is_some()
    }

    fn put(&self, id: u64, value: &Value) {
        self.insert(id, Arc::clone(value));
    }
}

const BYTES: usize = 960; // with its header, 16 lines

impl Cache for BlockCache {
    fn get(&self, id: u64) -> bool {
        BlockCache::get(self, &Key { instance: 1, file: id / 512, offset: id % 512 }).is_some()
    }

    fn put(&self, id: u64, _: &Value) {
        let key = Key { instance: 1, file: id / 512, offset: id % 512 };
        let _ = self.insert(&key, 0, &[id as u8; BYTES]);
    }
}

impl Cache for foyer::Cache<u64, Value> {
    fn get(&self, id: u64) -> bool {
        foyer::Cache::get(self, &id).map(|entry| black_box(Arc::clone(entry.value()))).is_some()
    }

    fn put(&self, id: u64, value: &Value) {
        self.insert(id, Arc::clone(value));
    }
}

impl Cache for moka::sync::Cache<u64, Value> {
    fn get(&self, id: u64) -> bool {
        moka::sync::Cache::get(self, &id).map(black_box).is_some()
    }

    fn put(&self, id: u64, value: &Value) {
        self.insert(id, Arc::clone(value));
    }
}

impl Cache for quick_cache::sync::Cache<u64, Value> {
    fn get(&self, id: u64) -> bool {
        quick_cache::sync::Cache::get(self, &id).map(black_box).is_some()
    }

    fn put(&self, id: u64, value: &Value) {
        self.insert(id, Arc::clone(value));
    }
}

fn foyer(
    capacity: usize,
    shards: usize,
    config: foyer::EvictionConfig,
) -> foyer::Cache<u64, Value> {
    foyer::CacheBuilder::new(capacity).with_shards(shards).with_eviction_config(config).build()
}

/// A Zipf distribution of exponent 0.99 over ids, with the hot ones spread.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ids: u64) -> Self {
        let mut sum = 0.0;
        let term = |rank: u64| {
            sum += (rank as f64).powf(-0.99);
            sum
        };
        Self((1..=ids).map(term).collect())
    }

    fn next(&self, random: &mut Random) -> u64 {
        let point = random.part() * self.0.last().copied().unwrap_or_default();
        self.0.partition_point(|&sum| sum <= point) as u64
    }
}

/// Returns the traces of the evaluation: accesses in order.
fn traces(ids: u64, len: usize) -> Vec<(&'static str, Vec<u64>)> {
    let (mut random, zipf) = (Random::new(3), Zipf::new(ids));
    let mut make = |next: &mut dyn FnMut(&mut Random, u64) -> u64| {
        (0..len as u64).map(|at| next(&mut random, at)).collect::<Vec<u64>>()
    };
    let block = |skew: Skew, random: &mut Random, at: u64, last: &mut u64| {
        // The index block, then the data block, of one get.
        if at.is_multiple_of(2) {
            *last = skew.next(random, ids * RECORDS_IN_BLOCK) / RECORDS_IN_BLOCK;
            return ids + *last / BLOCKS_IN_TABLE;
        }
        *last
    };
    let mut last = 0;
    vec![
        (
            "blocks of gets, uniform",
            make(&mut |random, at| block(Skew::Uniform, random, at, &mut last)),
        ),
        (
            "blocks of gets, 80/20",
            make(&mut |random, at| block(Skew::EightyTwenty, random, at, &mut last)),
        ),
        ("Zipf 0.99", make(&mut |random, _| zipf.next(random))),
        (
            "Zipf 0.99 among a scan",
            make(&mut |random, at| {
                if at.is_multiple_of(2) { zipf.next(random) } else { 2 * ids + at }
            }),
        ),
        ("a loop of 1.25 times what fits", make(&mut |_, at| at % (ids / 8))),
        (
            "Zipf 0.99 that moves",
            make(&mut |random, at| (zipf.next(random) + at / (ids / 2) * (ids * 3 / 100)) % ids),
        ),
        (
            "what came last",
            make(&mut |random, at| {
                let back = -random.part().max(1e-12).ln() * 0.06 * ids as f64;
                (at / 2).saturating_sub(back as u64)
            }),
        ),
    ]
}

/// Returns the percentage of hits in the second half.
fn hits(cache: &dyn Cache, trace: &[u64], value: &Value) -> f64 {
    let mut hits = 0;
    for (at, &id) in trace.iter().enumerate() {
        let hit = cache.get(id);
        if !hit {
            cache.put(id, value);
        }
        hits += usize::from(hit && at >= trace.len() / 2);
    }
    200.0 * hits as f64 / trace.len() as f64
}

pub(crate) fn ratios(places: &Places, smaller: u64) -> Result<String, Fault> {
    let ids = 100_000 / smaller.min(10);
    let capacity = (ids / 10) as usize;
    let traces = traces(ids, 1_000_000 / smaller as usize);
    let mut sheet = Sheet::new(&texts(traces.iter().map(|(name, _)| *name)));
    type Make<'m> = Box<dyn Fn() -> Result<Box<dyn Cache>, Fault> + 'm>;
    let of = |config: fn() -> foyer::EvictionConfig| -> Make<'_> {
        Box::new(move || Ok(Box::new(foyer(capacity, 1, config()))))
    };
    let all: Vec<(&str, Make<'_>)> = vec![
        ("our `Lru`", Box::new(|| Ok(Box::new(Alone(Lru::<u64>::new(capacity).into()))))),
        ("our `TwoQ`", Box::new(|| Ok(Box::new(Alone(TwoQ::<u64>::new(capacity).into()))))),
        ("our `S3Fifo`", Box::new(|| Ok(Box::new(Alone(S3Fifo::<u64>::new(capacity).into()))))),
        ("our `TinyLfu`", Box::new(|| Ok(Box::new(Alone(TinyLfu::<u64>::new(capacity).into()))))),
        (
            "our `BlockCache`",
            Box::new(|| {
                let bytes = capacity as u64 * (BYTES as u64 + 64 + 40);
                let pool = places.pool("ratios", bytes + bytes / 4 + (16 << 20))?;
                let options = CacheOptions::new(bytes).segment_bytes(256 << 10);
                Ok(Box::new(BlockCache::create(&pool, "blocks", &options)?))
            }),
        ),
        ("foyer, LRU", of(|| foyer::LruConfig::default().into())),
        ("foyer, w-TinyLFU", of(|| foyer::LfuConfig::default().into())),
        ("foyer, S3-FIFO", of(|| foyer::S3FifoConfig::default().into())),
        ("moka", Box::new(|| Ok(Box::new(moka::sync::Cache::<u64, Value>::new(capacity as u64))))),
        (
            "quick_cache",
            Box::new(|| Ok(Box::new(quick_cache::sync::Cache::<u64, Value>::new(capacity)))),
        ),
    ];
    let (value, mut figures) = (Arc::new(0), HashMap::new());
    for (name, make) in &all {
        let mut cells = Vec::new();
        for (at, (_, trace)) in traces.iter().enumerate() {
            let percent = hits(make()?.as_ref(), trace, &value);
            if *name == "our `TinyLfu`" {
                figures.insert((at, true), percent);
            } else if !name.starts_with("our") {
                let best: &mut f64 = figures.entry((at, false)).or_insert(0.0);
                *best = best.max(percent);
            }
            cells.push(format!("{percent:.1}"));
        }
        sheet.row(name, &cells);
    }
    let best = |at: usize| figures[&(at, false)];
    sheet.row("**best of theirs**", &texts((0..traces.len()).map(|at| format!("{:.1}", best(at)))));
    let more = |at: usize| format!("{:+.1}", figures[&(at, true)] - best(at));
    sheet.row("**`TinyLfu`, the default, beside it**", &texts((0..traces.len()).map(more)));
    Ok(format!(
        "## Hit ratios beside other caches\n\nPercent of the second half of a trace; a tenth of {ids} blocks \
         fits, in one shard where that can be chosen. A block that 2Q reads in place is no hit here, and is \
         no copy either. The last two traces are against a cache that counts: what is hot moves every {} accesses; \
         each id comes again soon or never, so that only LRU is right.\n\n{}\n",
        ids / 2,
        sheet.text()
    ))
}

/// Returns millions of gets per second; after a miss the thread inserts.
fn speed(
    cache: &dyn Cache,
    trace: &[u64],
    values: &[Value],
    threads: usize,
    time: Duration,
) -> f64 {
    let done = AtomicUsize::new(0);
    for &id in trace {
        if !cache.get(id) {
            cache.put(id, &values[id as usize]);
        }
    }
    let spent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (done, spent) = (&done, &spent);
            scope.spawn(move || {
                let mut at = thread * trace.len() / threads;
                let (began, spent_here) = (Instant::now(), Began::now());
                while began.elapsed() < time {
                    for _ in 0..1024 {
                        let id = trace[at];
                        if !cache.get(id) {
                            cache.put(id, &values[id as usize]);
                        }
                        at = (at + 1) % trace.len();
                    }
                    done.fetch_add(1024, Relaxed);
                }
                spent.fetch_add(spent_here.elapsed().as_nanos() as usize, Relaxed);
            });
        }
    });
    // The rate of all threads, as if each had a processor of its own.
    done.into_inner() as f64 * 1e3 * threads as f64 / spent.into_inner() as f64
}

pub(crate) fn speeds(_: &Places, smaller: u64) -> Result<String, Fault> {
    let ids = 200_000 / smaller;
    let capacity = ids as usize / 10;
    let zipf = Zipf::new(ids);
    let mut random = Random::new(4);
    // The rank of an id is independent of its place.
    let spread = |rank: u64| rank * 7_919 % ids;
    let trace: Vec<u64> =
        (0..1_000_000 / smaller).map(|_| spread(zipf.next(&mut random))).collect();
    let hot: Vec<u64> =
        (0..1_000_000 / smaller).map(|_| random.below(capacity as u64 / 2)).collect();
    let values: Vec<Value> = (0..ids).map(Arc::new).collect();
    let turns = if smaller > 1 { 1 } else { 5 };
    let time = Duration::from_millis(if smaller > 1 { 20 } else { 400 });
    let columns =
        ["Zipf, 1 thread", "Zipf, 2 threads", "hits alone, 1 thread", "hits alone, 2 threads"];
    let mut sheet = Sheet::new(&texts(columns));
    type Make = fn(usize) -> Box<dyn Cache>;
    let all: [(&str, Make); 8] = [
        ("our `Hot`, W-TinyLFU, the default", |capacity| {
            Box::new(Hot::<u64, Value>::new(capacity, 16))
        }),
        ("our `Hot`, S3-FIFO", |capacity| {
            Box::new(Hot::<u64, Value, S3Fifo<u64, Value>>::new(capacity, 16))
        }),
        ("our `Hot`, LRU", |capacity| {
            Box::new(Hot::<u64, Value, Lru<u64, Value>>::new(capacity, 16))
        }),
        ("our `Hot`, 2Q", |capacity| {
            Box::new(Hot::<u64, Value, TwoQ<u64, Value>>::new(capacity, 16))
        }),
        ("foyer, LRU", |capacity| {
            Box::new(foyer(capacity, 16, foyer::LruConfig::default().into()))
        }),
        ("foyer, S3-FIFO", |capacity| {
            Box::new(foyer(capacity, 16, foyer::S3FifoConfig::default().into()))
        }),
        ("moka", |capacity| Box::new(moka::sync::Cache::<u64, Value>::new(capacity as u64))),
        ("quick_cache", |capacity| Box::new(quick_cache::sync::Cache::<u64, Value>::new(capacity))),
    ];
    let mut figures = vec![vec![Vec::new(); 4]; all.len()];
    for _ in 0..turns {
        for ((_, make), figures) in all.iter().zip(&mut figures) {
            for (trace, of) in [&trace, &hot].iter().zip(figures.chunks_mut(2)) {
                for (threads, of) in [1, 2].into_iter().zip(of) {
                    of.push(speed(make(capacity).as_ref(), trace, &values, threads, time));
                }
            }
        }
    }
    let median = |turns: &mut Vec<f64>| {
        turns.sort_by(f64::total_cmp);
        turns[turns.len() / 2]
    };
    let medians: Vec<Vec<f64>> =
        figures.iter_mut().map(|of| of.iter_mut().map(median).collect()).collect();
    for ((name, _), cells) in all.iter().zip(&medians) {
        sheet.row(name, &texts(cells.iter().map(|cell| format!("{cell:.1}"))));
    }
    let best = |of: &[Vec<f64>], at: usize| of.iter().map(|cells| cells[at]).fold(0.0, f64::max);
    let ratio = |at| format!("{:.2}", medians[0][at] / best(&medians[4..], at));
    sheet.row("**our default, of the best of theirs**", &texts((0..4).map(ratio)));
    Ok(format!(
        "## Operations a second beside other caches\n\nMillions of gets a second, each of which inserts if it \
         misses; an `Arc` is handed out. A tenth of {ids} ids fits, in 16 shards (moka and quick_cache choose \
         for themselves). Medians of {turns} turns of {} ms. What a thread sleeps for a lock \
         is not counted.\n\n{}\n",
        time.as_millis(),
        sheet.text()
    ))
}
