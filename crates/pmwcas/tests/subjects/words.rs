//! Six words that operations of one to four words change. Most operations flip between 0 and 1, so old values
//! come back often.

use std::panic::Location;

use pmindex_core::trace::Space;
use pmindex_core::{Medium, PmU64, Pool, PoolOptions, Traced};
use pmindex_pmwcas::{Config, MAX_VALUE, Mwcas};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_pool, open_pool};
use proptest::prelude::*;

/// The number of words. The first two share a line.
pub(crate) const WORDS: usize = 6;
const AT: [usize; WORDS] = [0, 1, 8, 16, 24, 32];

pub(crate) fn options() -> PoolOptions {
    PoolOptions::new().size(64 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(512).grow(false)
}

pub(crate) const CONFIG: Config = Config { partitions: 3, per_partition: 4, words: 4 };

/// Whether a persistence step is of this crate's file `name`.
pub(crate) fn is_in(site: &Location<'static>, name: &str) -> bool {
    site.file().contains("pmwcas/src") && site.file().ends_with(name)
}

pub(crate) struct Words {
    mwcas: Mwcas<Traced>,
    base: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Flips all words of the mask at once; returns their old values.
    Flip(u8),
    /// Sets the first word if the others of the mask are 0 and stay so.
    SetGuarded(u8),
    /// One attempt with fixed expectations: (mask, expected).
    Cas(u8, u8),
    /// Adds a number to all words of the mask at once; returns the old value of the first.
    Add(u8, u64),
    Read(u8),
    Quiesce,
}

impl Words {
    fn word(&self, i: usize) -> Result<&PmU64, Fault> {
        Ok(&self.mwcas.pool().words(self.base, 64)?[AT[i]])
    }

    /// Returns the target words, as numbers of words.
    #[allow(dead_code, reason = "not every test program asks")]
    pub(crate) fn targets(&self) -> Vec<u32> {
        AT.iter().map(|at| (self.base / 8) as u32 + *at as u32).collect()
    }

    /// Returns the descriptors: the first one's place and the distance to the next, in words, and their
    /// number.
    #[allow(dead_code, reason = "not every test program asks")]
    pub(crate) fn descriptors(&self) -> (u64, u64, u64) {
        let words = (2 + 3 * u64::from(CONFIG.words)).next_multiple_of(8);
        let count = CONFIG.partitions * CONFIG.per_partition;
        (self.mwcas.table_offset() / 8 + 16, words, u64::from(count))
    }

    fn read(&self, i: usize) -> Result<u64, Fault> {
        Ok(self.mwcas.read(self.word(i)?)?)
    }

    fn attempt(&self, changes: &[(usize, u64, u64)]) -> Result<bool, Fault> {
        let mut session = self.mwcas.session()?;
        let mut d = session.descriptor();
        for &(i, old, new) in changes {
            d.add_word(self.word(i)?, old, new)?;
        }
        Ok(d.execute()?)
    }

    /// Changes all words of the mask at once; returns their old values.
    fn update(&self, mask: u8, new: impl Fn(u64) -> u64) -> Result<Vec<u64>, Fault> {
        loop {
            let mut changes = Vec::new();
            for i in members(mask) {
                let old = self.read(i)?;
                changes.push((i, old, new(old)));
            }
            changes.reverse(); // the order in which words are added must not matter
            if self.attempt(&changes)? {
                return Ok(changes.iter().rev().map(|&(_, old, _)| old).collect());
            }
        }
    }

    fn set_guarded(&self, mask: u8) -> Result<bool, Fault> {
        loop {
            let changes: Vec<_> =
                members(mask).enumerate().map(|(n, i)| (i, 0, u64::from(n == 0))).collect();
            if self.attempt(&changes)? {
                return Ok(true);
            }
            // One of them was 1: the operation checks that it still is.
            for &(i, ..) in &changes {
                if self.read(i)? != 0 {
                    return Ok(false);
                }
            }
        }
    }
}

/// Returns the blocks that the directory leads to.
pub(crate) fn owned_by_pool(pool: &Pool<Traced>) -> Result<Vec<u64>, Fault> {
    Ok(pool.indexes()?.iter().map(pmindex_core::IndexEntry::block).collect())
}

/// Packs old values into one number.
fn bits(values: Vec<u64>) -> u64 {
    values.into_iter().fold(0, |bits, value| bits << 10 ^ value)
}

pub(crate) fn members(mask: u8) -> impl Iterator<Item = usize> {
    (0..WORDS).filter(move |i| mask >> i & 1 == 1).take(CONFIG.words as usize)
}

impl CrashSubject for Words {
    type Op = Op;
    type Ret = u64;
    type Model = [u64; WORDS];

    const NAME: &'static str = "pmwcas";

    fn geometry() -> Geometry {
        let len = options().created_size().expect("valid options") as usize;
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_pool(space, &options())?;
        let words = pool.create_index::<[PmU64; 64]>("words", *b"words   ", 0, |words| {
            let pm = pool.pm();
            for word in words {
                pm.store(word, 0);
            }
            pm.flush(words)
        })?;
        let mwcas = Mwcas::create(&pool, "pmwcas", CONFIG)?.with_patience(0);
        Ok(Self { mwcas, base: words.block() })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let Some(words) = pool.find_index("words")? else { return Ok(None) };
        if pool.find_index("pmwcas")?.is_none() {
            return Ok(None);
        }
        let mwcas = Mwcas::open(&pool, "pmwcas")?.with_patience(0);
        Ok(Some(Self { mwcas, base: words.block() }))
    }

    fn apply(&self, op: &Op) -> Result<u64, Fault> {
        match op {
            Op::Flip(mask) => Ok(bits(self.update(*mask, |old| old ^ 1)?)),
            Op::Add(mask, n) => Ok(self.update(*mask, |old| old + n)?[0]),
            Op::SetGuarded(mask) => self.set_guarded(*mask).map(u64::from),
            Op::Cas(mask, expected) => {
                let changes: Vec<_> = members(*mask)
                    .map(|i| (i, u64::from(expected >> i & 1), u64::from(!expected >> i & 1)))
                    .collect();
                self.attempt(&changes).map(u64::from)
            }
            Op::Read(i) => self.read(usize::from(*i)),
            Op::Quiesce => {
                self.mwcas.quiesce()?;
                Ok(0)
            }
        }
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        let mut model = [0; WORDS];
        for (i, value) in model.iter_mut().enumerate() {
            let raw = self.mwcas.pool().pm().load(self.word(i)?);
            if raw > MAX_VALUE {
                return Err(Fault::new(format!(
                    "word {i} holds {raw:#x}, which is no value, although no operation runs"
                )));
            }
            *value = self.read(i)?;
        }
        Ok(model)
    }

    fn model(model: &mut Self::Model, op: &Op) -> u64 {
        match op {
            Op::Flip(mask) => {
                let old = bits(members(*mask).map(|i| model[i]).collect());
                members(*mask).for_each(|i| model[i] ^= 1);
                old
            }
            Op::Add(mask, n) => {
                let old = members(*mask).next().map_or(0, |i| model[i]);
                members(*mask).for_each(|i| model[i] += n);
                old
            }
            Op::SetGuarded(mask) => {
                let free = members(*mask).all(|i| model[i] == 0);
                if free && let Some(first) = members(*mask).next() {
                    model[first] = 1;
                }
                u64::from(free)
            }
            Op::Cas(mask, expected) => {
                let matches = members(*mask).all(|i| model[i] == u64::from(expected >> i & 1));
                if matches {
                    members(*mask).for_each(|i| model[i] ^= 1);
                }
                u64::from(matches)
            }
            Op::Read(i) => model[usize::from(*i)],
            Op::Quiesce => 0,
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        let mask = 1u8..64;
        prop_oneof![
            6 => mask.clone().prop_map(Op::Flip),
            1 => (mask.clone(), 1u64..1000).prop_map(|(mask, n)| Op::Add(mask, n)),
            2 => mask.clone().prop_map(Op::SetGuarded),
            2 => (mask, 0u8..64).prop_map(|(mask, expected)| Op::Cas(mask, expected)),
            3 => (0..WORDS as u8).prop_map(Op::Read),
            1 => Just(Op::Quiesce),
        ]
        .boxed()
    }

    fn concurrent() -> bool {
        true
    }

    fn audit(&self) -> Result<(), Fault> {
        self.mwcas.quiesce()?;
        let owned = owned_by_pool(self.mwcas.pool())?;
        self.mwcas.pool().audit(owned.into_iter().chain([self.mwcas.table_offset()]))?;
        Ok(())
    }

    /// All steps but those of blocks, and the removal of late pointers: that one needs delays that no random
    /// schedule has (the test `delays` shows that it is needed).
    fn owns(site: &Location<'static>) -> bool {
        let files = ["drive.rs", "layout.rs", "mwcas.rs", "recover.rs", "session.rs", "settle.rs"];
        files.iter().any(|file| is_in(site, file))
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[
            ("pmwcas/src/drive.rs", include_str!("../../src/drive.rs")),
            ("pmwcas/src/mwcas.rs", include_str!("../../src/mwcas.rs")),
            ("pmwcas/src/recover.rs", include_str!("../../src/recover.rs")),
            ("pmwcas/src/session.rs", include_str!("../../src/session.rs")),
            ("pmwcas/src/settle.rs", include_str!("../../src/settle.rs")),
        ]
    }
}
