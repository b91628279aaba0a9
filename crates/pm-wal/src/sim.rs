//! A disk that crashes, for tests.
//!
//! A sector of 512 bytes is written wholly or not at all. What was written since the last completed
//! sync survives in any subset and any order: of each sector any of the versions that were written,
//! or the one before. A write that is durable by itself settles its own sectors and no others. A write
//! that fails leaves any part of itself; a sync that fails makes nothing durable, and what was written
//! before it is never made durable by a later one: the kernel takes it for written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::Disk;

const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    block: usize,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    durable: Vec<Sector>,
    /// What a reader sees, where it is not the same.
    seen: BTreeMap<usize, Sector>,
    /// By sector, what may be there instead of the durable one.
    versions: BTreeMap<usize, Vec<Version>>,
    /// Operations so far, reads excepted.
    steps: u64,
    /// The power fails in this step.
    power_fails_at: Option<u64>,
    /// This step fails, and those after it do not.
    fails_at: Option<u64>,
    down: bool,
    /// Writes that a completed one made durable.
    synced: u64,
    random: u64,
}

#[derive(Clone, Debug)]
struct Version {
    bytes: Sector,
    /// A sync failed meanwhile: no later one makes it durable.
    forgotten: bool,
}

/// Which versions survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// Nothing that was not durable.
    None,
    /// The last of each sector.
    All,
    /// Any, by this seed.
    Any(u64),
}

impl SimDisk {
    /// A disk of zeros.
    #[must_use]
    pub fn new(block: usize, len: usize) -> Self {
        Self::of(block, vec![[0; SECTOR]; len / SECTOR])
    }

    /// A disk with these contents.
    #[must_use]
    pub fn with_bytes(block: usize, bytes: &[u8]) -> Self {
        Self::of(block, bytes.as_chunks().0.to_vec())
    }

    fn of(block: usize, durable: Vec<Sector>) -> Self {
        let inner = Inner {
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

    /// Operations so far, reads excepted.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.inner.lock().steps
    }

    /// How often something was made durable.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.inner.lock().synced
    }

    /// Lets the power fail in the step of this number, from 0 on: the step is done in part, it and all
    /// after it are errors.
    pub fn power_fails_at(&self, step: u64) {
        self.inner.lock().power_fails_at = Some(step);
    }

    /// Lets the step of this number fail, and those after it succeed.
    pub fn fails_at(&self, step: u64) {
        self.inner.lock().fails_at = Some(step);
    }

    /// A step that something else does, which fails as the disk's own do.
    ///
    /// # Errors
    /// The disk's.
    pub fn pass(&self) -> io::Result<()> {
        self.step(|_, _| {})
    }

    /// Lets no operation go on as long as this lives.
    #[must_use]
    pub fn hold(&self) -> impl Sized {
        self.inner.lock()
    }

    /// Whether the power has failed.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.inner.lock().down
    }

    /// The disk after a power failure now.
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
                durable[sector] = version.bytes;
            }
        }
        Self::of(self.block, durable)
    }

    /// The same disk for the next process, if this one dies alone.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        let mut inner = self.inner.lock();
        (inner.power_fails_at, inner.fails_at, inner.down) = (None, None, false);
        self.clone()
    }

    /// What a reader sees.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let inner = self.inner.lock();
        let sector = |i| inner.seen.get(&i).unwrap_or(&inner.durable[i]);
        (0..inner.durable.len()).flat_map(|i| *sector(i)).collect()
    }

    /// Does a step; `step` is told whether only a part of it is to be done.
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
    fn put(&mut self, first: usize, bytes: &[u8], in_part: bool) {
        for (i, sector) in bytes.as_chunks::<SECTOR>().0.iter().enumerate() {
            self.random = mix(self.random);
            if in_part && !self.down && self.random.is_multiple_of(2) {
                continue;
            }
            // After a power failure every subset of it is a choice of the survivors.
            self.seen.insert(first + i, *sector);
            let version = Version { bytes: *sector, forgotten: false };
            self.versions.entry(first + i).or_default().push(version);
        }
    }

    /// Makes durable what is known of these sectors.
    fn settle(&mut self, sectors: core::ops::Range<usize>) {
        self.synced += 1;
        for (&sector, versions) in self.versions.range_mut(sectors) {
            if let Some(at) = versions.iter().rposition(|version| !version.forgotten) {
                self.durable[sector] = versions[at].bytes;
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
        (self.inner.lock().durable.len() * SECTOR) as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let inner = self.inner.lock();
        if inner.down {
            return Err(io::Error::other("the power has failed"));
        }
        let first = at as usize / SECTOR;
        for (i, bytes) in into.chunks_mut(SECTOR).enumerate() {
            let sector = inner.seen.get(&(first + i)).or_else(|| inner.durable.get(first + i));
            let sector = sector.ok_or(io::ErrorKind::UnexpectedEof)?;
            bytes.copy_from_slice(&sector[..bytes.len()]);
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let aligned =
            at.is_multiple_of(self.block as u64) && bytes.len().is_multiple_of(self.block);
        if !aligned || at + bytes.len() as u64 > self.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.step(|inner, in_part| inner.put(at as usize / SECTOR, bytes, in_part))
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
        let first = at as usize / SECTOR;
        self.step(|inner, fails| {
            let sectors = first..first + bytes.len() / SECTOR;
            if fails {
                let versions = inner.versions.range_mut(sectors).flat_map(|(_, versions)| versions);
                versions.for_each(|version| version.forgotten = true);
            } else {
                inner.settle(sectors);
            }
        })
    }
}

/// A step of a generator of pseudo-random numbers.
#[must_use]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
