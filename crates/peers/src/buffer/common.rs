//! Code that the chapters share: random keys, tables, and the folders of a run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pmindex_pibench::{Chooser, Distribution, KeySpace};

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
    random: KeySpace,
    /// Where hot keys lie, the same in each run.
    places: KeySpace,
    skew: Skew,
    chooser: Chooser,
    records: u64,
}

impl Keys {
    pub(crate) fn new(skew: Skew, records: u64, seed: u64) -> Self {
        let distribution = match skew {
            Skew::Uniform => Distribution::Uniform,
            Skew::Zipfian => Distribution::Zipfian { theta: THETA },
        };
        let (random, places) = (KeySpace::new(seed), KeySpace::new(0));
        Self { random, places, skew, chooser: Chooser::new(distribution), records }
    }

    /// Returns a key. The hot keys of a zipfian distribution are scattered over all pages.
    pub(crate) fn next(&mut self) -> u64 {
        let rank = self.chooser.rank(self.records, &mut self.random);
        match self.skew {
            Skew::Uniform => rank,
            Skew::Zipfian => self.places.key(rank) % self.records,
        }
    }

    pub(crate) fn random(&mut self) -> &mut KeySpace {
        &mut self.random
    }
}

/// Fills a value, which no store can compress or find unchanged.
pub(crate) fn fill(value: &mut [u8; VALUE], random: &mut KeySpace) {
    for part in value.chunks_mut(8) {
        part.copy_from_slice(&random.random().to_le_bytes()[..part.len()]);
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
