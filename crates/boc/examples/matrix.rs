//! Prints SPTree's figures 2 and 3 for write buffers: the cost of an insert of 8+8 bytes into three indexes
//! in PM, without buffers, with buffers that are written in place or out of place, and each of them with a log; and of
//! figure 4, where searches go to the leaves of FAST&FAIR by a copy of its inner nodes in DRAM.
//!
//! `cargo run --release -p pmindex-boc --example matrix -- [RECORDS]` prints the table of
//! `docs/evidence/buffering.md`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use pmindex_boc::{Buffered, ByHash, ByKey};
use pmindex_cceh::Cceh;
use pmindex_core::{Counts, Mapped, Pool, PoolOptions};
use pmindex_fastfair::FastFair;
use pmindex_index::{IndexError, PmHashIndex, PmIndex};
use pmindex_skiplist::SkipList;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// An index of either sort, to insert into.
trait Target: Sized {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError>;
    fn add(&self, key: u64) -> Result<bool, IndexError>;
    fn find(&self, key: u64) -> Result<bool, IndexError>;
}

struct Sorted<I>(I);
/// FAST&FAIR, searched in DRAM.
struct Cached(FastFair<u64, u64>);
struct Hashed<I>(I);

impl<I: PmIndex<u64, u64, Mapped>> Target for Sorted<I> {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError> {
        I::create(pool, "matrix").map(Self)
    }
    fn add(&self, key: u64) -> Result<bool, IndexError> {
        self.0.try_insert(&key, &!key).map(|new| new.is_ok())
    }
    fn find(&self, key: u64) -> Result<bool, IndexError> {
        Ok(self.0.get(&key)? == Some(!key))
    }
}

impl Target for Cached {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError> {
        FastFair::create(pool, "matrix")?.cached().map(Self)
    }
    fn add(&self, key: u64) -> Result<bool, IndexError> {
        self.0.try_insert(&key, &!key).map(|new| new.is_ok())
    }
    fn find(&self, key: u64) -> Result<bool, IndexError> {
        Ok(self.0.get(&key)? == Some(!key))
    }
}

impl<I: PmHashIndex<u64, u64, Mapped>> Target for Hashed<I> {
    fn make(pool: &Arc<Pool>) -> Result<Self, IndexError> {
        I::create(pool, "matrix").map(Self)
    }
    fn add(&self, key: u64) -> Result<bool, IndexError> {
        self.0.try_insert(&key, &!key).map(|new| new.is_ok())
    }
    fn find(&self, key: u64) -> Result<bool, IndexError> {
        Ok(self.0.get(&key)? == Some(!key))
    }
}

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn options(records: u64) -> PoolOptions {
    PoolOptions::new().emulate_pm(true).size((records * 160).max(64 << 20))
}

/// Inserts all records; the second half is measured.
fn fill<T: Target>(pool: &Arc<Pool>, records: u64) -> Outcome<(T, f64)> {
    let index = T::make(pool)?;
    for n in 0..records / 2 {
        assert!(index.add(key(n))?, "keys differ");
    }
    let started = Instant::now();
    for n in records / 2..records {
        assert!(index.add(key(n))?, "keys differ");
    }
    Ok((index, started.elapsed().as_secs_f64()))
}

/// Millions of inserts and gets per second.
type Rates = [f64; 2];

/// Prints a row: counts, then rates, as multiples of those of the plain index if there are such.
#[expect(clippy::cast_precision_loss, reason = "means")]
fn row<T: Target>(name: &str, crash: &str, records: u64, plain: Option<Rates>) -> Outcome<Rates> {
    let pool = Arc::new(Pool::counting(usize::try_from((records * 160).max(64 << 20))?)?);
    let index = T::make(&pool)?;
    for n in 0..records / 2 {
        index.add(key(n))?;
    }
    let before = pool.pm().counter().expect("it counts").counts();
    for n in records / 2..records {
        index.add(key(n))?;
    }
    let Counts { lines, fences, media_written, .. } =
        pool.pm().counter().expect("it counts").counts() - before;
    let each = |count: u64| count as f64 / (records - records / 2) as f64;
    let pool = Arc::new(Pool::create_in_memory(&options(records), |mapped| mapped)?);
    let (index, seconds) = fill::<T>(&pool, records)?;
    let started = Instant::now();
    for n in 0..records {
        assert!(index.find(key(n))?, "a record is gone");
    }
    let got = records as f64 / started.elapsed().as_secs_f64() / 1e6;
    let inserted = (records - records / 2) as f64 / seconds / 1e6;
    let rates = [inserted, got];
    let [inserts, gets] = match plain {
        None => rates.map(|rate| format!("{rate:.2} M/s")),
        Some(plain) => [0, 1].map(|i| format!("{:.2} times", rates[i] / plain[i])),
    };
    println!(
        "| {name} | {:.2} | {:.2} | {:.0} | {inserts} | {gets} | {crash} |",
        each(lines),
        each(fences),
        each(media_written),
    );
    Ok(rates)
}

/// The rows of an index under buffers for components of this size.
macro_rules! rows {
    ($name:literal, $target:ident, $by:ident, $index:ident, [$($how:literal),*], $component:literal, $records:expr, $plain:expr) => {{
        type Held<const LOGGED: bool> =
            $target<Buffered<$by<$index<u64, u64>, $($how),*>, Mapped, LOGGED, $component>>;
        row::<Held<false>>($name, "**lost on crash**", $records, Some($plain))?;
        row::<Held<true>>(concat!($name, ", log"), "kept", $records, Some($plain))?;
    }};
}

fn main() -> Outcome<()> {
    let records: u64 = match std::env::args().nth(1) {
        Some(records) => records.parse()?,
        None => 1_000_000,
    };
    println!(
        "| index | lines | fences | bytes written to the medium | inserts | gets | after a crash |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --- |");
    let cceh = row::<Hashed<Cceh<u64, u64>>>("CCEH", "kept", records, None)?;
    rows!("CCEH, buffers of 16", Hashed, ByHash, Cceh, [], 24, records, cceh);
    rows!("CCEH, buffers of 512", Hashed, ByHash, Cceh, [], 1024, records, cceh);
    rows!("CCEH, buffers of 512, out of place", Hashed, ByHash, Cceh, [true], 1024, records, cceh);
    let tree = row::<Sorted<FastFair<u64, u64>>>("FAST&FAIR", "kept", records, None)?;
    row::<Cached>("FAST&FAIR, cached", "kept", records, Some(tree))?;
    rows!("FAST&FAIR, buffers of 16", Sorted, ByKey, FastFair, [], 24, records, tree);
    rows!(
        "FAST&FAIR, buffers of 16, out of place",
        Sorted,
        ByKey,
        FastFair,
        [true],
        24,
        records,
        tree
    );
    rows!(
        "FAST&FAIR, buffers of 16, out of place, cached",
        Sorted,
        ByKey,
        FastFair,
        [true, true],
        24,
        records,
        tree
    );
    let list = row::<Sorted<SkipList<u64, u64>>>("skip list", "kept", records, None)?;
    rows!("skip list, buffers of 16", Sorted, ByKey, SkipList, [], 24, records, list);
    Ok(())
}
