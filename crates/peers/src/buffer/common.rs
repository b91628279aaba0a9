//! Code that the chapters share: random keys, tables, and the folders of a run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// An error message for people.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// The bytes of a value.
pub(crate) const VALUE: usize = 120;
/// The bytes of a record: its key and its value.
pub(crate) const RECORD: u64 = 8 + VALUE as u64;

/// The sizes and times of a run.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// The bytes that each store may use as memory.
    pub(crate) memory: u64,
    /// The milliseconds of a figure.
    pub(crate) millis: u64,
    /// The bytes of the pages of figure 4.8.
    pub(crate) pages: usize,
    /// The updates of one of its figures.
    pub(crate) updates: u32,
}

/// The folders of a run, which are removed at its end.
pub(crate) struct Folders {
    pub(crate) disk: PathBuf,
    pub(crate) memory: PathBuf,
}

impl Folders {
    pub(crate) fn make(disk: &Path, memory: &Path) -> Result<Self, Fault> {
        let name = format!("pmindex-buffer-{}", std::process::id());
        let folders = Self { disk: disk.join(&name), memory: memory.join(&name) };
        folders.clear()?;
        Ok(folders)
    }

    /// Makes them empty.
    pub(crate) fn clear(&self) -> Result<(), Fault> {
        for folder in [&self.disk, &self.memory] {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder)?;
        }
        Ok(())
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.disk);
        let _ = std::fs::remove_dir_all(&self.memory);
    }
}

pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A generator of pseudo-random numbers, the same in each run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(most)) >> 64) as u64
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skew {
    Uniform,
    Zipfian,
}

/// The exponent of the zipfian distribution, YCSB's.
pub(crate) const THETA: f64 = 0.99;

/// Draws keys below some number.
pub(crate) struct Keys {
    random: Random,
    records: u64,
    /// The sum of all weights, if the keys are zipfian.
    zeta: Option<f64>,
}

impl Keys {
    pub(crate) fn new(skew: Skew, records: u64, seed: u64) -> Self {
        let zeta = (skew == Skew::Zipfian)
            .then(|| (1..=records).map(|rank| (rank as f64).powf(-THETA)).sum());
        Self { random: Random::new(seed), records, zeta }
    }

    /// Returns a key. The hot keys of a zipfian distribution are scattered over all pages.
    pub(crate) fn next(&mut self) -> u64 {
        let Some(zeta) = self.zeta else { return self.random.below(self.records) };
        // Gray et al.: Quickly Generating Billion-Record Synthetic Databases.
        let unit = self.random.unit();
        let alone = unit * zeta;
        let rank = if alone < 1.0 {
            0
        } else if alone < 1.0 + 0.5_f64.powf(THETA) {
            1
        } else {
            let both = 1.0 + 0.5_f64.powf(THETA);
            let eta = (1.0 - (2.0 / self.records as f64).powf(1.0 - THETA)) / (1.0 - both / zeta);
            let part = (eta * unit - eta + 1.0).powf(1.0 / (1.0 - THETA));
            ((self.records as f64 * part) as u64).min(self.records - 1)
        };
        mix(rank ^ 0x5bd1_e995) % self.records
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

/// Fills a value, which no store can compress or find unchanged.
pub(crate) fn fill(value: &mut [u8; VALUE], random: &mut Random) {
    for part in value.chunks_mut(8) {
        part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
    }
}

/// A table in Markdown.
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut text = format!("| {} |\n| --- |", heads.join(" | "));
        text += &" ---: |".repeat(heads.len() - 1);
        text.push('\n');
        Self(text)
    }

    pub(crate) fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        let _ = write!(self.0, "| {name} |");
        for cell in cells {
            let _ = write!(self.0, " {cell} |");
        }
        self.0.push('\n');
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}
