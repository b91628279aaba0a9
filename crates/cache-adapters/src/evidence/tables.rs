//! Figures 3.9 and 3.10: gets, and gets among updates, with more and more of the tables in DRAM.
//!
//! The tables are those of an LSM at rest: sorted files of 2 MB in a pool, each with data blocks of 4 KiB, an
//! index block and a footer. A get reads the footer, the index block and a data block; those not in DRAM are
//! searched in place. Updates go to a log in the pool and to a sorted table in DRAM, which is merged into the
//! files at 4 MB.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use pmindex_cache::policy::{Keeper, Lru, TwoQ};
use pmindex_cache::{Hot, Placed};
use pmindex_env::{Env, File};

use crate::blocks::{BLOCKS_IN_TABLE, RECORDS_IN_BLOCK};
use crate::common::{Began, Fault, Places, Random, Sheet, Skew, chapter, pm_delay, texts};

const KEY: usize = 16;
const RECORD: usize = 128;
const BLOCK: usize = RECORD * RECORDS_IN_BLOCK as usize;
const FOOTER: usize = 64;
const RECORDS_IN_TABLE: u64 = RECORDS_IN_BLOCK * BLOCKS_IN_TABLE;
/// The size of the table in DRAM.
const UPDATES_AT_ONCE: usize = (4 << 20) / RECORD;

type Key = [u8; KEY];
type Record = [u8; RECORD];

fn key(n: u64) -> Key {
    let mut key = [0; KEY];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn record(n: u64, version: u64) -> Record {
    let mut record = [version as u8; RECORD];
    record[..KEY].copy_from_slice(&key(n));
    record
}

/// The data in DRAM.
#[derive(Clone, Copy, Debug, Default)]
struct Placement {
    footers: bool,
    indexes: bool,
    /// The thousandths of the data blocks that a policy keeps.
    cached: u64,
    /// All data blocks.
    all: bool,
}

struct Table {
    file: File,
    footer: Option<Vec<u8>>,
    index: Option<Vec<u8>>,
    blocks: Vec<Arc<[u8]>>,
}

/// The bytes of a file, in DRAM or not.
enum Bytes<'t> {
    Dram(&'t [u8]),
    Pm { file: &'t File, at: u64, is_delayed: bool },
}

impl Bytes<'_> {
    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::Dram(bytes) => into.copy_from_slice(&bytes[from..from + into.len()]),
            Self::Pm { file, at, is_delayed } => {
                pm_delay(*is_delayed, into.len());
                file.read_at(at + from as u64, into)?;
            }
        }
        Ok(())
    }

    /// Returns the number of entries (of `entries`, each of `size` bytes, keys first) whose keys are at most
    /// this one.
    fn not_above(&self, wanted: &Key, entries: usize, size: usize) -> Result<usize, Fault> {
        let (mut low, mut high, mut key) = (0, entries, [0; KEY]);
        while low < high {
            let middle = low.midpoint(high);
            self.read(middle * size, &mut key)?;
            if key <= *wanted { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

struct Tables<P> {
    env: Env,
    tables: Vec<Table>,
    records: u64,
    cached: Option<Hot<u64, Arc<[u8]>, P>>,
    is_delayed: bool,
    copies: u64,
    merges: u64,
}

impl<P: Keeper<u64, Arc<[u8]>>> Tables<P> {
    fn make(env: Env, records: u64, placement: Placement, is_delayed: bool) -> Result<Self, Fault> {
        let mut tables = Vec::new();
        for first in (0..records).step_by(RECORDS_IN_TABLE as usize) {
            let all = (first..records.min(first + RECORDS_IN_TABLE)).map(|n| record(n, 0));
            tables.push(Self::write(&env, &format!("{first:012}.sst"), all, placement)?);
        }
        let blocks = records / RECORDS_IN_BLOCK;
        let capacity = (blocks * placement.cached / 1000) as usize;
        let cached = (capacity > 0).then(|| Hot::new(capacity, 1));
        Ok(Self { env, tables, records, cached, is_delayed, copies: 0, merges: 0 })
    }

    fn write(
        env: &Env,
        name: &str,
        records: impl Iterator<Item = Record>,
        placement: Placement,
    ) -> Result<Table, Fault> {
        let file = env.create_file("new")?;
        let (mut index, mut blocks) = (Vec::new(), Vec::new());
        let mut data: Vec<u8> = records.flatten().collect();
        let len = data.len();
        for (n, block) in data.chunks(BLOCK).enumerate() {
            index.extend_from_slice(&block[..KEY]);
            index.extend_from_slice(&(n as u64).to_le_bytes());
            if placement.all {
                blocks.push(Arc::from(block));
            }
        }
        let mut footer = vec![0; FOOTER];
        footer[..8].copy_from_slice(&(len as u64).to_le_bytes());
        footer[8..16].copy_from_slice(&(len.div_ceil(BLOCK) as u64).to_le_bytes());
        data.extend_from_slice(&index);
        data.extend_from_slice(&footer);
        file.append(&data)?;
        env.rename("new", name)?;
        Ok(Table {
            file,
            footer: placement.footers.then_some(footer),
            index: placement.indexes.then_some(index),
            blocks,
        })
    }

    fn get(&mut self, n: u64) -> Result<Record, Fault> {
        let (wanted, number) = (key(n), n / RECORDS_IN_TABLE);
        let table = &self.tables[number as usize];
        let pm = |at| Bytes::Pm { file: &table.file, at, is_delayed: self.is_delayed };
        let of = |copy: &'_ Option<Vec<u8>>, at| -> Result<Vec<u8>, Fault> {
            let mut footer = vec![0; FOOTER];
            match copy {
                Some(copy) => footer.copy_from_slice(copy),
                None => pm(at).read(0, &mut footer)?,
            }
            Ok(footer)
        };
        let footer = of(&table.footer, table.file.len() - FOOTER as u64)?;
        let number_at =
            |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap_or_default());
        let (index_at, blocks) = (number_at(0), number_at(8) as usize);
        let index = table.index.as_deref().map_or_else(|| pm(index_at), Bytes::Dram);
        let block = index.not_above(&wanted, blocks, KEY + 8)? - 1;
        let at = (block * BLOCK) as u64;
        let len = BLOCK.min((index_at - at) as usize);
        let find = |bytes: &Bytes<'_>| -> Result<Record, Fault> {
            let entry = bytes.not_above(&wanted, len / RECORD, RECORD)? - 1;
            let mut record = [0; RECORD];
            bytes.read(entry * RECORD, &mut record)?;
            Ok(record)
        };
        if let Some(copy) = table.blocks.get(block) {
            return find(&Bytes::Dram(copy));
        }
        let Some(cached) = &self.cached else { return find(&pm(at)) };
        match cached.place(number * BLOCKS_IN_TABLE + block as u64) {
            Placed::Hit(copy) => find(&Bytes::Dram(&copy)),
            Placed::Below => find(&pm(at)),
            Placed::Admitted(vacant) => {
                let mut copy: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
                if let Some(bytes) = Arc::get_mut(&mut copy) {
                    pm(at).read(0, bytes)?;
                }
                self.copies += 1;
                vacant.fill(Arc::clone(&copy));
                find(&Bytes::Dram(&copy))
            }
        }
    }

    /// Merges updates into the files.
    fn merge(
        &mut self,
        updates: &mut BTreeMap<u64, Record>,
        placement: Placement,
    ) -> Result<(), Fault> {
        while let Some((&first, _)) = updates.first_key_value() {
            let number = first / RECORDS_IN_TABLE;
            let rest = updates.split_off(&((number + 1) * RECORDS_IN_TABLE));
            let new = std::mem::replace(updates, rest);
            let table = &self.tables[number as usize];
            let mut data = table.file.read_all()?;
            let all = (self.records - number * RECORDS_IN_TABLE).min(RECORDS_IN_TABLE);
            data.truncate(all as usize * RECORD);
            for (n, record) in new {
                let at = (n % RECORDS_IN_TABLE) as usize * RECORD;
                data[at..at + RECORD].copy_from_slice(&record);
                if let Some(cached) = &self.cached {
                    cached.remove(n / RECORDS_IN_BLOCK);
                }
            }
            let name = format!("{:012}.sst", number * RECORDS_IN_TABLE);
            let (records, _) = data.as_chunks::<RECORD>();
            let table = Self::write(&self.env, &name, records.iter().copied(), placement)?;
            self.tables[number as usize] = table;
            self.merges += 1;
        }
        Ok(())
    }
}

fn env(places: &Places, records: u64) -> Result<Env, Fault> {
    let pool = places.pool("tables", records * RECORD as u64 * 3 + (64 << 20))?;
    Ok(Env::open_or_create(&pool, "files")?)
}

/// Returns microseconds and copies per get.
fn gets<P: Keeper<u64, Arc<[u8]>>>(
    places: &Places,
    (records, gets): (u64, u64),
    placement: Placement,
    skew: Skew,
    is_delayed: bool,
) -> Result<(f64, f64), Fault> {
    let mut tables = Tables::<P>::make(env(places, records)?, records, placement, is_delayed)?;
    let mut random = Random::new(9);
    if placement.cached > 0 {
        tables.is_delayed = false;
        for _ in 0..records / 8 {
            tables.get(skew.next(&mut random, records))?; // until the cache is full of hot blocks
        }
        (tables.is_delayed, tables.copies) = (is_delayed, 0);
    }
    let began = Began::now();
    for _ in 0..gets {
        let n = skew.next(&mut random, records);
        assert_eq!(black_box(tables.get(n)?)[..KEY], key(n));
    }
    let copies = tables.copies as f64 / gets as f64;
    Ok((began.elapsed().as_secs_f64() * 1e6 / gets as f64, copies))
}

const NONE: Placement = Placement { footers: false, indexes: false, cached: 0, all: false };
const INDEXES: Placement = Placement { footers: true, indexes: true, ..NONE };

/// How often each figure is measured.
const TURNS: usize = 3;

fn read_only(places: &Places, size: (u64, u64)) -> Result<String, Fault> {
    type Run = fn(&Places, (u64, u64), Placement, Skew, bool) -> Result<(f64, f64), Fault>;
    let (lru, two_q): (Run, Run) = (gets::<Lru<u64, Arc<[u8]>>>, gets::<TwoQ<u64, Arc<[u8]>>>);
    let mut sheet = Sheet::new(&texts([
        "uniform, us",
        "80/20, us",
        "uniform delayed, us",
        "80/20 delayed, us",
        "uniform, copies",
        "80/20, copies",
    ]));
    let rows: [(&str, Placement, Run); 8] = [
        ("nothing", NONE, lru),
        ("footers", Placement { footers: true, ..NONE }, lru),
        ("+ index blocks", INDEXES, lru),
        ("+ 1 % of the data blocks, LRU", Placement { cached: 10, ..INDEXES }, lru),
        ("+ 1 %, 2Q", Placement { cached: 10, ..INDEXES }, two_q),
        ("+ 10 %, LRU", Placement { cached: 100, ..INDEXES }, lru),
        ("+ 10 %, 2Q", Placement { cached: 100, ..INDEXES }, two_q),
        ("all", Placement { all: true, ..INDEXES }, lru),
    ];
    // Each row once a turn: what is slower for a while is so for all of them.
    let mut turns = vec![vec![(Vec::new(), 0.0); 4]; rows.len()];
    for _ in 0..TURNS {
        for ((_, placement, run), row) in rows.iter().zip(&mut turns) {
            let columns =
                [false, true].map(|is| [Skew::Uniform, Skew::EightyTwenty].map(|s| (is, s)));
            for ((is_delayed, skew), (times, copies)) in columns.as_flattened().iter().zip(row) {
                let (micros, made) = run(places, size, *placement, *skew, *is_delayed)?;
                times.push(micros);
                *copies = made;
            }
        }
    }
    let mut all = Vec::new();
    for ((name, ..), mut row) in rows.iter().zip(turns) {
        let copies: Vec<_> = row[..2].iter().map(|(_, made)| format!("{made:.3}")).collect();
        let times: Vec<f64> = row
            .iter_mut()
            .map(|(times, _)| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            })
            .collect();
        sheet.row(name, &[texts(times.iter().map(|t| format!("{t:.2}"))), copies].concat());
        all.push(times);
    }
    let worst = |rows: [usize; 2], columns: [usize; 2]| {
        columns.map(|at| all[rows[1]][at] / all[rows[0]][at]).into_iter().fold(0.0, f64::max)
    };
    let (fast, slow) = ([0, 1], [2, 3]);
    let found = format!(
        "**Here** 2Q takes at most {:.2} of LRU's time at 1 % and {:.2} at 10 % (the worse of two columns) where \
         reads are delayed; where they are not, and a search in place costs more than a copy (figure 3.6), {:.2} and {:.2}. \
         LRU of 1 % takes {:.2} of the time of the index blocks alone, {:.2} delayed; 2Q of 10 % under 80/20 \
         takes {:.2} of the time with all in DRAM, {:.2} delayed. The thesis has 1.0 there; here a \
         tenth of the blocks is half of the fifth that is hot, and reads in place are the rest. {} records of 128 \
         bytes, {} gets each; medians of {TURNS} turns.",
        worst([3, 4], slow),
        worst([5, 6], slow),
        worst([3, 4], fast),
        worst([5, 6], fast),
        all[3][0] / all[2][0],
        all[3][2] / all[2][2],
        all[6][1] / all[7][1],
        all[6][3] / all[7][3],
        size.0,
        size.1,
    );
    Ok(chapter(
        "Figure 3.9: gets, with more and more in DRAM",
        "index blocks in DRAM are worth their memory (less than 1 %); LRU over 1 % of the data blocks is slower \
         than none; 2Q never is, and with 10 % it does as well under 80/20 as with all in DRAM.",
        sheet,
        &found,
    ))
}

/// Returns microseconds per operation.
fn mixed(
    places: &Places,
    (records, operations): (u64, u64),
    (group, placement): (u64, Placement),
    updates: u64,
    is_delayed: bool,
) -> Result<f64, Fault> {
    let env = env(places, records)?;
    let mut tables = Tables::<TwoQ<u64, Arc<[u8]>>>::make(env, records, placement, is_delayed)?;
    let mut log = tables.env.create_file("log")?;
    let (mut fresh, mut pending, mut random) = (BTreeMap::new(), Vec::new(), Random::new(10));
    let began = Began::now();
    for operation in 0..operations {
        let n = Skew::EightyTwenty.next(&mut random, records);
        if random.below(100) >= updates {
            match fresh.get(&n) {
                Some(record) => black_box(*record),
                None => black_box(tables.get(n)?),
            };
            continue;
        }
        let record = record(n, operation);
        pending.extend_from_slice(&record);
        fresh.insert(n, record);
        if pending.len() as u64 >= group * RECORD as u64 {
            pm_delay(is_delayed, 64); // the fence
            log.append(&pending)?;
            pending.clear();
        }
        if fresh.len() >= UPDATES_AT_ONCE {
            tables.merge(&mut fresh, placement)?;
            tables.env.delete("log")?;
            log = tables.env.create_file("log")?;
        }
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / operations as f64)
}

fn read_and_write(places: &Places, size: (u64, u64)) -> Result<String, Fault> {
    let columns = ["25 % updates, us", "50 %, us", "25 % delayed, us", "50 % delayed, us"];
    let mut sheet = Sheet::new(&texts(columns));
    let mut all = Vec::new();
    for (name, how) in [
        ("nothing", (1, NONE)),
        ("updates in groups of 10", (10, NONE)),
        ("+ index blocks", (10, INDEXES)),
        ("+ 10 % of the data blocks, 2Q", (10, Placement { cached: 100, ..INDEXES })),
    ] {
        let mut times = Vec::new();
        for is_delayed in [false, true] {
            for updates in [25, 50] {
                times.push(mixed(places, size, how, updates, is_delayed)?);
            }
        }
        sheet.row(name, &texts(times.iter().map(|t| format!("{t:.2}"))));
        all.push(times);
    }
    let gain = |from: usize, to: usize, at: usize| all[from][at] / all[to][at];
    let found = format!(
        "**Here** with 25 % updates groups make it {:.2} times as fast ({:.2} delayed), index blocks {:.2} \
         ({:.2}), 2Q {:.2} ({:.2}). A merge rewrites each file that has an update, as one level of an LSM does; \
         what 2Q has of their blocks goes with it, and that is a part of the times.",
        gain(0, 1, 0),
        gain(0, 1, 2),
        gain(1, 2, 0),
        gain(1, 2, 2),
        gain(2, 3, 0),
        gain(2, 3, 2),
    );
    Ok(chapter(
        "Figure 3.10: gets among updates, 80/20",
        "each step gains, index blocks the most.",
        sheet,
        &found,
    ))
}

pub(crate) fn page(places: &Places, smaller: u64) -> Result<String, Fault> {
    let records = (1 << 19) / smaller;
    let read_only = read_only(places, (records, 400_000 / smaller))?;
    Ok(read_only + "\n" + &read_and_write(places, (records, 400_000 / smaller))?)
}
