//! A file on a simulated disk: its durable contents, and its present contents.

use super::mix;

/// The unit that a disk writes atomically.
pub(super) const SECTOR: usize = 512;

/// A file that is written by system calls.
pub(super) struct Shadow {
    durable: Vec<u8>,
    now: Vec<u8>,
    /// The numbers of the sectors that are not durable.
    loose: Vec<usize>,
    /// The digest of the durable contents; each sector contributes independently, in any order.
    digest: u64,
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
    /// Makes one of a file whose contents are durable.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let digest = digest_of(&bytes, 0);
        Self { now: bytes.clone(), durable: bytes, loose: Vec::new(), digest }
    }

    /// Notes the present contents of the file.
    pub(super) fn look(&mut self, now: Vec<u8>) {
        if now.len() > self.durable.len() {
            self.durable.resize(now.len(), 0); // growth is durable before it is used
        }
        self.loose.clear();
        let sectors = now.chunks(SECTOR).zip(self.durable.chunks(SECTOR)).enumerate();
        self.loose.extend(sectors.filter(|(_, (new, old))| new != old).map(|(i, _)| i));
        self.now = now;
    }

    /// Makes the last noted contents durable, for the sectors that `which` selects.
    pub(super) fn settle(&mut self, which: impl Fn(usize) -> bool) {
        let Self { durable, now, loose, digest } = self;
        loose.retain(|&sector| {
            if !which(sector) {
                return true;
            }
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            *digest = digest.wrapping_sub(digest_of(&durable[range.clone()], sector));
            durable[range.clone()].copy_from_slice(&now[range.clone()]);
            *digest = digest.wrapping_add(digest_of(&durable[range], sector));
            false
        });
    }

    /// Returns a state after a power failure, and its digest.
    pub(super) fn survivors(&self, which: Survive) -> (Vec<u8>, u64) {
        let (mut bytes, mut digest) = (self.durable.clone(), self.digest);
        for &sector in self.loose.iter().filter(|&&sector| which.keeps(sector)) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            digest = digest.wrapping_sub(digest_of(&bytes[range.clone()], sector));
            bytes[range.clone()].copy_from_slice(&self.now[range.clone()]);
            digest = digest.wrapping_add(digest_of(&bytes[range], sector));
        }
        (bytes, digest)
    }
}

/// Returns a digest of sectors, the first of which has this number.
pub(super) fn digest_of(bytes: &[u8], first: usize) -> u64 {
    let sectors = bytes.chunks(SECTOR).zip(first as u64..);
    sectors.fold(0, |sum, (sector, number)| {
        let words = sector.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let digest = words.fold(number, |digest, word| {
            (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        sum.wrapping_add(mix(digest))
    })
}
