//! A file on a simulated disk: what of it is durable, what it is now, and files that have what a power failure
//! left of it.
//!
//! Contents are lists of shared pages, so that two contents which differ in a page cost a page.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mix;

/// The unit that a disk writes atomically.
pub(super) const SECTOR: usize = 512;
/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// Sectors of a page.
const SECTORS: usize = PAGE / SECTOR;

/// A page of a file.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) bytes: [u8; PAGE],
    digest: u64,
}

/// What a file has.
pub(super) type Pages = Vec<Arc<Page>>;

impl Page {
    pub(super) fn new(bytes: &[u8]) -> Arc<Self> {
        let bytes = *bytes.first_chunk().unwrap_or(&[0; PAGE]);
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let digest = words.fold(0, |digest: u64, word| {
            (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        Arc::new(Self { bytes, digest })
    }
}

/// A digest of a file.
pub(super) fn digest_of(pages: &[Arc<Page>]) -> u64 {
    let pages = pages.iter().zip(0..);
    pages.fold(0, |sum, (page, number)| sum.wrapping_add(mix(page.digest ^ mix(number))))
}

/// A file that is read again and again.
pub(super) struct Reading {
    file: File,
    buffer: Vec<u8>,
}

impl Reading {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: Vec::new() })
    }

    /// Returns each page that is not what `known` says, and its number.
    pub(super) fn changed(
        &mut self,
        known: impl Fn(usize) -> Option<Arc<Page>>,
    ) -> io::Result<Vec<(usize, Arc<Page>)>> {
        let len = self.file.metadata()?.len() as usize / PAGE * PAGE;
        self.buffer.resize(len, 0);
        self.file.read_exact_at(&mut self.buffer, 0)?;
        let pages = self.buffer.chunks(PAGE).enumerate();
        let is_new = |(number, bytes): &(usize, &[u8])| {
            known(*number).is_none_or(|page| page.bytes[..] != **bytes)
        };
        Ok(pages.filter(is_new).map(|(number, bytes)| (number, Page::new(bytes))).collect())
    }
}

/// A file that is written by system calls.
pub(super) struct Shadow {
    file: Reading,
    durable: Pages,
    now: Pages,
    /// The numbers of the sectors that are not durable.
    loose: Vec<usize>,
}

/// Which of the loose sectors survive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Survive {
    None,
    All,
    /// Any, by this seed.
    Any(u64),
}

impl Survive {
    /// By a random number: each of the three often.
    pub(super) fn of(random: u64) -> Self {
        match random >> 61 {
            0 => Self::None,
            1 => Self::All,
            _ => Self::Any(random),
        }
    }

    fn keeps(self, sector: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Any(seed) => mix(seed ^ sector as u64) >> 63 == 0,
        }
    }
}

impl Shadow {
    /// Of a file that is durable as it is.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let mut file = Reading::of(path)?;
        let now: Pages = file.changed(|_| None)?.into_iter().map(|(_, page)| page).collect();
        Ok(Self { file, durable: now.clone(), now, loose: Vec::new() })
    }

    /// Notes what the file is now.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let Self { file, durable, now, loose } = self;
        for (number, page) in file.changed(|number| now.get(number).cloned())? {
            if number >= now.len() {
                // Growth is durable before it is used.
                now.resize(number + 1, Page::new(&[0; PAGE]));
                durable.resize(number + 1, Page::new(&[0; PAGE]));
            }
            now[number] = page;
        }
        loose.clear();
        for (number, (new, old)) in now.iter().zip(durable.iter()).enumerate() {
            if !Arc::ptr_eq(new, old) {
                let sectors = new.bytes.chunks(SECTOR).zip(old.bytes.chunks(SECTOR)).enumerate();
                let sectors = sectors.filter(|(_, (new, old))| new != old);
                loose.extend(sectors.map(|(i, _)| number * SECTORS + i));
            }
        }
        Ok(())
    }

    /// Makes the last noted contents durable, for the sectors that `which` selects.
    pub(super) fn settle(&mut self, which: impl Fn(usize) -> bool) {
        let settled = self.with_sectors(&which);
        self.loose.retain(|&sector| !which(sector));
        self.durable = settled;
    }

    /// The number of contents that a power failure may leave, or `most` if there are more.
    pub(super) fn choices(&self, most: u64) -> u64 {
        1_u64.checked_shl(self.loose.len() as u32).unwrap_or(most).min(most)
    }

    /// What a power failure leaves.
    pub(super) fn survivors(&self, which: Survive) -> Pages {
        self.with_sectors(&|sector| which.keeps(sector))
    }

    /// What is durable, with those of the loose sectors that `which` names.
    fn with_sectors(&self, which: &dyn Fn(usize) -> bool) -> Pages {
        let mut pages = self.durable.clone();
        for loose in self.loose.chunk_by(|a, b| a / SECTORS == b / SECTORS) {
            let (number, kept) = (loose[0] / SECTORS, loose.iter().filter(|&&s| which(s)).count());
            if kept == 0 {
                continue;
            }
            let now = &self.now[number];
            if kept == loose.len() {
                pages[number] = Arc::clone(now);
                continue;
            }
            let mut bytes = pages[number].bytes;
            for sector in loose.iter().filter(|&&sector| which(sector)) {
                let at = sector % SECTORS * SECTOR;
                bytes[at..at + SECTOR].copy_from_slice(&now.bytes[at..at + SECTOR]);
            }
            pages[number] = Page::new(&bytes);
        }
        pages
    }
}

/// A file that gets one content after another.
pub(super) struct Canvas {
    path: PathBuf,
    /// The file, and what it has, if nobody else has written to it.
    has: Option<(File, Pages)>,
}

impl Canvas {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, has: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the file has is not known any more.
    pub(super) fn forget(&mut self) {
        self.has = None;
    }

    /// Gives the file these pages.
    pub(super) fn put(&mut self, pages: &Pages) -> io::Result<()> {
        let has = self.has.take();
        let (file, old) = if let Some(has) = has {
            has
        } else {
            // Not truncated, which would cost more than the writing.
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(false).open(&self.path)?;
            (file, Pages::new())
        };
        if old.len() != pages.len() {
            file.set_len((pages.len() * PAGE) as u64)?;
        }
        let is_new =
            |&number: &usize| old.get(number).is_none_or(|old| !Arc::ptr_eq(old, &pages[number]));
        let new: Vec<usize> = (0..pages.len()).filter(is_new).collect();
        let mut run = Vec::new();
        for numbers in new.chunk_by(|a, b| a + 1 == *b) {
            run.clear();
            for &number in numbers {
                run.extend_from_slice(&pages[number].bytes);
            }
            file.write_all_at(&run, (numbers[0] * PAGE) as u64)?;
        }
        self.has = Some((file, pages.clone()));
        Ok(())
    }
}
