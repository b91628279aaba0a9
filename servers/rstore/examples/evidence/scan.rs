//! Figure 5.6: scans of 100 records of a sorted array, and of an index with a log.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_core::Pool;
use pmindex_pibench::KeySpace;
use pmindex_rstore::{Options, Partition};

use crate::table::Table;
use crate::wire::{KEY, key};
use crate::{Fault, Scale};

/// The records of a scan.
const SCAN: usize = 100;
/// The lengths of values.
const VALUES: [usize; 4] = [100, 300, 1000, 1900];
/// The writes of a commit.
const TURN: usize = 16;
/// The records at most.
const MOST: u64 = 1_000_000;

/// Calls a function with random numbers for a time; returns the microseconds of a call.
fn time_of(time: Duration, most: usize, mut scan: impl FnMut(usize)) -> f64 {
    let mut random = KeySpace::new(3);
    let (started, mut count) = (Instant::now(), 0_u32);
    while started.elapsed() < time {
        for _ in 0..16 {
            scan(random.below(most as u64) as usize);
        }
        count += 16;
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

/// What is done with a record: it is copied to the buffer, if all of its bytes are read before and the sum is not 0.
fn take(key: &[u8], value: &[u8], predicate: bool, out: &mut Vec<u8>) {
    if predicate {
        let sum = value.iter().fold(7_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
        if black_box(sum) == 0 {
            return;
        }
    }
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// The same records, in the order of keys or of their arrival.
struct Stores {
    /// Sorted.
    keys: Vec<[u8; KEY]>,
    /// The records by key.
    sorted: Vec<u8>,
    /// The records as they came.
    log: Vec<u8>,
    index: BTreeMap<[u8; KEY], usize>,
    rstore: Partition,
    value: usize,
}

impl Stores {
    fn load(records: u64, value: usize) -> Result<Self, Fault> {
        let space = KeySpace::new(1);
        let arrived: Vec<[u8; KEY]> = (0..records).map(|number| key(space.key(number))).collect();
        let mut keys = arrived.clone();
        keys.sort_unstable();
        let bytes = vec![b'v'; value];
        let size = records * (value as u64 + 80) * 2 + (64 << 20);
        let pool = Arc::new(Pool::emulated(size as usize)?);
        let options = Options::new().capacity(size - (32 << 20));
        let mut rstore = Partition::create(&pool, "scans", &options)?;
        let (mut log, mut index) = (Vec::new(), BTreeMap::new());
        for turn in arrived.chunks(TURN) {
            for key in turn {
                rstore.put(key, &bytes, None)?;
                index.insert(*key, log.len());
                log.extend_from_slice(key);
                log.extend_from_slice(&bytes);
            }
            rstore.commit()?;
        }
        let mut sorted = Vec::with_capacity(log.len());
        for key in &keys {
            sorted.extend_from_slice(key);
            sorted.extend_from_slice(&bytes);
        }
        Ok(Self { keys, sorted, log, index, rstore, value })
    }

    /// Returns the microseconds of a scan: the sorted array, index and log, RStore.
    fn times(&self, time: Duration, predicate: bool) -> Result<[f64; 3], Fault> {
        let (most, record) = (self.keys.len() - SCAN, KEY + self.value);
        let mut out = Vec::new();
        let sorted = time_of(time, most, |from| {
            out.clear();
            for bytes in self.sorted[from * record..].chunks(record).take(SCAN) {
                take(&bytes[..KEY], &bytes[KEY..], predicate, &mut out);
            }
            black_box(&out);
        });
        let log = time_of(time, most, |from| {
            out.clear();
            for (key, at) in self.index.range(self.keys[from]..).take(SCAN) {
                take(key, &self.log[at + KEY..at + record], predicate, &mut out);
            }
            black_box(&out);
        });
        let mut failed = Ok(());
        let rstore = time_of(time, most, |from| {
            out.clear();
            let mut left = SCAN;
            let visit = &mut |key: &[u8], value: &[u8]| {
                take(key, value, predicate, &mut out);
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let from = Bound::Included(&self.keys[from][..]);
            if let Err(error) = self.rstore.scan(from, Bound::Unbounded, 0, false, visit) {
                failed = Err(error);
            }
            black_box(&out);
        });
        failed?;
        Ok([sorted, log, rstore])
    }
}

/// The tables.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let heads = ["value", "sorted array", "index and log in DRAM", "RStore: with prefetch"];
    let mut tables = [Table::new(&heads), Table::new(&heads)];
    for value in VALUES {
        let records = (scale.bytes / (KEY + value) as u64).clamp(2 * SCAN as u64, MOST);
        let stores = Stores::load(records, value)?;
        for (table, predicate) in tables.iter_mut().zip([false, true]) {
            let times = stores.times(scale.time / 4, predicate)?;
            table.row(&format!("{value} B"), times.map(|time| format!("{time:.1}")));
        }
    }
    let [copied, chosen] = tables.map(Table::text);
    Ok(format!(
        "\n## Figure 5.6: a scan of {SCAN} records\n\nMicroseconds; keys of {KEY} bytes, at most {MOST} records; one \
         thread, without network. (a) Each record is copied:\n{copied}\n(b) All bytes of each value are read first, for \
         a predicate:\n{chosen}\n\
         **The thesis**: index and log are slower than a sorted array; prefetching the next record reduces the \
         difference, and more so with a predicate, but does not remove it. **Here** the index and log of the second \
         column are a `BTreeMap` over one array in DRAM, without prefetch and without any check. RStore's engine always \
         prefetches, eight records ahead; it also reads each record by words, as safe code can, copies it once \
         more and verifies its checksum, which the thesis has not.\n"
    ))
}
