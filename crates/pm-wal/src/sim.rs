//! A disk that crashes, for tests.
//!
//! A sector, of 512 bytes or a smaller block, is written entirely or not at all. Of the writes since the last completed sync any
//! subset survives, in any order: each sector has any of the versions written, or the one before. A durable
//! write makes its own sectors durable and no others. A failed write leaves any part of itself. A failed sync
//! makes nothing durable, and no later sync makes the writes before it durable: the kernel takes them for
//! written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::Disk;

/// The greatest number of bytes of a sector.
const SECTOR: usize = 512;
type Sector = Box<[u8]>;

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    block: usize,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    /// The bytes of a sector.
    sector: usize,
    durable: Vec<u8>,
    /// The sectors that a reader sees, where they differ from the durable ones.
    seen: BTreeMap<usize, Sector>,
    /// For each sector, the versions that may be there in place of the durable one.
    versions: BTreeMap<usize, Vec<Version>>,
    /// The number of operations so far, reads excepted.
    steps: u64,
    /// The step in which the power fails.
    power_fails_at: Option<u64>,
    /// The step that fails; those after it succeed.
    fails_at: Option<u64>,
    down: bool,
    /// The number of times that writes were made durable.
    synced: u64,
    random: u64,
}

#[derive(Clone, Debug)]
struct Version {
    bytes: Sector,
    /// `true` if a sync failed meanwhile: no later one makes it durable.
    forgotten: bool,
}

/// The versions that survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// Only what was durable.
    None,
    /// The last version of each sector.
    All,
    /// A random version of each sector, by this seed.
    Any(u64),
}

impl SimDisk {
    /// Makes a disk of zeros. Pages of a test may need smaller blocks than those of a [`Disk`]: any power of two.
    ///
    /// # Panics
    /// If these are no blocks.
    #[must_use]
    pub fn new(block: usize, len: usize) -> Self {
        Self::of(block, vec![0; len])
    }

    /// Makes a disk with these contents.
    ///
    /// # Panics
    /// If these are no blocks.
    #[must_use]
    pub fn with_bytes(block: usize, bytes: &[u8]) -> Self {
        Self::of(block, bytes.to_vec())
    }

    fn of(block: usize, durable: Vec<u8>) -> Self {
        let sector = block.min(SECTOR);
        assert!(block.is_power_of_two(), "blocks of {block} bytes");
        assert!(durable.len().is_multiple_of(sector), "{} bytes are no sectors", durable.len());
        let inner = Inner {
            sector,
            durable,
            seen: BTreeMap::new(),
            versions: BTreeMap::new(),
            steps: 0,
            power_fails_at: None,
            fails_at: None,
            down: false,
            synced: 0,
            random: 1,
        };
        Self { block, inner: Arc::new(Mutex::new(inner)) }
    }

    /// Returns the number of operations so far, reads excepted.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.inner.lock().steps
    }

    /// Returns the number of times that writes were made durable.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.inner.lock().synced
    }

    /// Makes the power fail in the step of this number, counted from 0: the step is executed in part, and it
    /// and all later ones are errors.
    pub fn power_fails_at(&self, step: u64) {
        self.inner.lock().power_fails_at = Some(step);
    }

    /// Makes the step of this number fail, and those after it succeed.
    pub fn fails_at(&self, step: u64) {
        self.inner.lock().fails_at = Some(step);
    }

    /// Executes an empty step on behalf of another component; it fails as the disk's own steps do.
    ///
    /// # Errors
    /// The disk's.
    pub fn pass(&self) -> io::Result<()> {
        self.step(|_, _| {})
    }

    /// Blocks all operations as long as the result lives.
    #[must_use]
    pub fn hold(&self) -> impl Sized {
        self.inner.lock()
    }

    /// Returns `true` if the power has failed.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.inner.lock().down
    }

    /// Returns the disk after a power failure now.
    #[must_use]
    pub fn survivors(&self, which: Survivors) -> Self {
        let inner = self.inner.lock();
        let mut durable = inner.durable.clone();
        let mut random = if let Survivors::Any(seed) = which { mix(seed) } else { 0 };
        for (&sector, versions) in &inner.versions {
            let chosen = match which {
                Survivors::None => None,
                Survivors::All => versions.last(),
                Survivors::Any(_) => {
                    random = mix(random);
                    versions.get(random as usize % (versions.len() + 1))
                }
            };
            if let Some(version) = chosen {
                durable[sector * inner.sector..][..inner.sector].copy_from_slice(&version.bytes);
            }
        }
        Self::of(self.block, durable)
    }

    /// Returns the same disk for the next process, if this one dies alone.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        let mut inner = self.inner.lock();
        (inner.power_fails_at, inner.fails_at, inner.down) = (None, None, false);
        self.clone()
    }

    /// Returns the bytes that a reader sees.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let inner = self.inner.lock();
        let mut bytes = inner.durable.clone();
        for (&sector, seen) in &inner.seen {
            bytes[sector * inner.sector..][..inner.sector].copy_from_slice(seen);
        }
        bytes
    }

    /// Executes a step; `step` is told whether to execute only a part of itself.
    fn step(&self, step: impl FnOnce(&mut Inner, bool)) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let number = inner.steps;
        inner.steps += 1;
        if inner.down {
            return Err(io::Error::other("the power has failed"));
        }
        inner.down = inner.power_fails_at == Some(number);
        let fails = inner.down || inner.fails_at == Some(number);
        step(&mut inner, fails);
        if fails { Err(io::Error::other("the disk failed")) } else { Ok(()) }
    }
}

impl Inner {
    fn put(&mut self, at: u64, bytes: &[u8], in_part: bool) {
        let first = at as usize / self.sector;
        for (i, sector) in bytes.chunks(self.sector).enumerate() {
            self.random = mix(self.random);
            if in_part && !self.down && self.random.is_multiple_of(2) {
                continue;
            }
            // After a power failure the survivors are any subset of it.
            self.seen.insert(first + i, sector.into());
            let version = Version { bytes: sector.into(), forgotten: false };
            self.versions.entry(first + i).or_default().push(version);
        }
    }

    /// Returns the sectors of these bytes.
    fn sectors(&self, at: u64, len: usize) -> core::ops::Range<usize> {
        let first = at as usize / self.sector;
        first..first + len / self.sector
    }

    /// Makes the current versions of these sectors durable.
    fn settle(&mut self, sectors: core::ops::Range<usize>) {
        self.synced += 1;
        for (&sector, versions) in self.versions.range_mut(sectors) {
            if let Some(at) = versions.iter().rposition(|version| !version.forgotten) {
                let durable = &mut self.durable[sector * self.sector..][..self.sector];
                durable.copy_from_slice(&versions[at].bytes);
                versions.drain(..=at);
            }
        }
        self.versions.retain(|_, versions| !versions.is_empty());
    }
}

impl Disk for SimDisk {
    fn block(&self) -> usize {
        self.block
    }

    fn len(&self) -> u64 {
        self.inner.lock().durable.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let inner = self.inner.lock();
        if inner.down {
            return Err(io::Error::other("the power has failed"));
        }
        if !at.is_multiple_of(self.block as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let durable = inner.durable.get(at as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(durable.ok_or(io::ErrorKind::UnexpectedEof)?);
        for (sector, bytes) in (at as usize / inner.sector..).zip(into.chunks_mut(inner.sector)) {
            if let Some(seen) = inner.seen.get(&sector) {
                bytes.copy_from_slice(&seen[..bytes.len()]);
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let aligned =
            at.is_multiple_of(self.block as u64) && bytes.len().is_multiple_of(self.block);
        if !aligned || at + bytes.len() as u64 > self.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.step(|inner, in_part| inner.put(at, bytes, in_part))
    }

    fn sync(&self) -> io::Result<()> {
        self.step(|inner, fails| {
            if fails {
                inner.versions.values_mut().flatten().for_each(|version| version.forgotten = true);
            } else {
                inner.settle(0..usize::MAX);
            }
        })
    }

    fn write_durably(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(at, bytes)?;
        self.step(|inner, fails| {
            let sectors = inner.sectors(at, bytes.len());
            if fails {
                let versions = inner.versions.range_mut(sectors).flat_map(|(_, versions)| versions);
                versions.for_each(|version| version.forgotten = true);
            } else {
                inner.settle(sectors);
            }
        })
    }
}

/// Computes a step of a generator of pseudo-random numbers.
#[must_use]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
