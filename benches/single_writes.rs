//! What an operation costs more through a map of a store than through the same kind of index, in the same pool,
//! while no transaction, snapshot or watch is alive.
//!
//! There are two baselines. `any` is [`AnyIndex`], whose kind is chosen at run time, as a map's is: its calls go
//! through the same table, so `map/any` is what the store itself adds. `typed` is the index as a type of its own,
//! which the compiler inlines.
//!
//! `cargo bench --bench single_writes` compares them in one run: in slices that alternate, so that whatever
//! slows the machine slows all of them, and prints medians of the slices' ratios. Instructions are counted by
//! `valgrind --tool=callgrind target/release/deps/single_writes-... --count map put 100000`, whose total minus
//! that of 0 operations is the cost of 100000. Counts of `insert` have the removals that follow, those of `remove`
//! the writes before.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::{AnyIndex, FpTree, Index, IndexError, Kind, Pool, Store, StoreOptions};

/// Operations of a slice.
const SLICE: u32 = 50_000;
/// Slices of each index.
const SLICES: usize = 41;

/// The operations that are compared.
const OPS: [&str; 5] = ["get", "put", "update", "insert", "remove"];

struct Indexes {
    typed: FpTree<u64, u64>,
    any: AnyIndex<u64, u64>,
    map: pmindex::Map<u64, u64>,
    /// Every second key below twice this exists.
    records: u64,
    _store: Store,
}

/// A key that exists, or its neighbour that does not.
fn key(turn: u64, records: u64) -> u64 {
    turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % records * 2
}

impl Indexes {
    fn new(records: u64) -> Self {
        let pool = Arc::new(Pool::volatile(256 << 20).expect("memory"));
        let store = Store::in_pool(&pool, &StoreOptions::new()).expect("room");
        let typed = FpTree::create(&pool, "typed").expect("room");
        let any = AnyIndex::create(&pool, "any", Kind::FpTree).expect("room");
        let map = store.map_of_kind("map", Kind::FpTree).expect("room");
        for record in 0..records {
            let (key, value) = (record * 2, record);
            typed.put(&key, &value).expect("room");
            any.put(&key, &value).expect("room");
            map.put(&key, &value).expect("room");
        }
        Self { typed, any, map, records, _store: store }
    }

    /// Operations from turn `from` on, of one index; calls are those of a program that knows the type.
    fn run(&self, which: &str, op: &str, from: u64, count: u64) -> Duration {
        match which {
            "typed" => run(&self.typed, op, self.records, from, count),
            "any" => run(&self.any, op, self.records, from, count),
            _ => run(&self.map, op, self.records, from, count),
        }
    }
}

/// Uses a result as programs do: an error is another path, a value is looked at.
#[inline(always)]
fn used<T>(result: Result<T, IndexError>) {
    black_box(result.expect("room"));
}

/// Times operations. Records that it inserts it removes after the time is taken, and the other way round.
fn run(index: &impl Index<u64, u64>, op: &str, records: u64, from: u64, count: u64) -> Duration {
    let turns = || (from..from + count).map(|turn| (key(turn, records), turn));
    if op == "remove" {
        turns().for_each(|(key, turn)| _ = index.put(&(key + 1), &turn).expect("room"));
    }
    let begin = Instant::now();
    match op {
        "get" => turns().for_each(|(key, _)| used(index.get(&key))),
        "put" => turns().for_each(|(key, turn)| used(index.put(&key, &turn))),
        "update" => turns().for_each(|(key, turn)| used(index.update(&key, &turn))),
        "insert" => turns().for_each(|(key, turn)| used(index.insert(&(key + 1), &turn))),
        _ => turns().for_each(|(key, _)| used(index.remove(&(key + 1)))),
    }
    let time = begin.elapsed();
    if op == "insert" {
        turns().for_each(|(key, _)| _ = index.remove(&(key + 1)).expect("sound"));
    }
    time
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Compares the three, operation by operation.
fn compare(slice: u32, slices: usize) {
    let indexes = Indexes::new(if slice < SLICE { 1000 } else { 200_000 });
    let header = ["map/any", "map/typed", "any/typed"];
    println!("{:8}{:>14}{}", "", "map, ns", header.map(|ratio| format!("{ratio:>12}")).concat());
    for op in OPS {
        let (mut times, mut ratios) = (Vec::new(), [const { Vec::new() }; 3]);
        for turn in 0..slices as u64 {
            // In another order each time.
            let mut of = [0.0; 3];
            for place in 0..3 {
                let which = (turn as usize + place) % 3;
                let time = indexes.run(
                    ["typed", "any", "map"][which],
                    op,
                    turn * u64::from(slice),
                    slice.into(),
                );
                of[which] = time.as_secs_f64() * 1e9 / f64::from(slice);
            }
            let [typed, any, map] = of;
            times.push(map);
            for (all, ratio) in ratios.iter_mut().zip([map / any, map / typed, any / typed]) {
                all.push(ratio);
            }
        }
        let medians = ratios.map(|ratio| format!("{:>12.3}", median(ratio))).concat();
        println!("{op:8}{:>14.1}{medians}", median(times));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", which, op, count] => {
            let count = count.parse().expect("a number of operations");
            Indexes::new(10_000).run(which, op, 0, count);
        }
        ref other if other.contains(&"--bench") => compare(SLICE, SLICES),
        _ => compare(100, 3), // a test: that it runs
    }
}
