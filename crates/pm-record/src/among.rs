//! Some slots of a leaf: finding a key among them, sorting them, reading what is intact. None of it writes.

use pmindex_core::{Medium, PmError, PmU64, Pool};
use pmindex_index::{Key, Shape, Value};

use crate::block::RecordBlock;
use crate::probe::Probe;
use crate::redo::Redone;
use crate::slot::RawSlot;
use crate::sort::{MOST, sort_keys};

/// Returns the numbers of the bits of a mask that are set, in ascending order.
#[inline(always)]
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}

/// Returns one of the slots of the mask `free`: `preferred`; or one of its `group`, slots of one line, which a
/// lookup fetches together with what it reads first; or the next one, round the end.
#[inline(always)]
#[must_use]
pub const fn slot_near(free: u64, preferred: usize, group: usize) -> Option<usize> {
    if free == 0 {
        return None;
    }
    if free >> preferred & 1 == 1 {
        return Some(preferred);
    }
    let start = preferred / group * group;
    let near = free >> start & ((1 << group) - 1);
    let after = free >> preferred;
    Some(if near != 0 {
        start + near.trailing_zeros() as usize
    } else if after != 0 {
        preferred + after.trailing_zeros() as usize
    } else {
        free.trailing_zeros() as usize
    })
}

impl<K: Key, V: Value, const PREFIX: bool> RawSlot<K, V, PREFIX> {
    /// Returns the slot of the probe's key among `candidates`, a mask of slots with its fingerprint; those from
    /// `len` on are no slots. `slot` returns the words of a slot, and `is_whole` whether a record is stored
    /// there with its fingerprint, so that another key with another fingerprint is damage. Racing: validate,
    /// errors included.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: a damaged record, so that the lookup cannot tell whether the key was there.
    #[inline(always)]
    pub fn find_among<'s, M: Medium>(
        pool: &Pool<M>,
        (candidates, len): (u64, usize),
        probe: &Probe<'_, K>,
        slot: impl Fn(usize) -> &'s [PmU64],
        is_whole: impl Fn(usize) -> bool,
    ) -> Result<Option<usize>, PmError> {
        for i in bits(candidates) {
            if i < len && Self::key_is(pool, slot(i), probe)? {
                return Ok(Some(i));
            }
        }
        if candidates != 0 {
            let others = bits(candidates).filter(|&i| i < len && is_whole(i)).map(slot);
            Self::check_namesakes(pool, others, probe.fingerprint())?;
        }
        Ok(None)
    }

    /// Sorts slots whose keys have the same first word by their keys. `slot` returns the words of a slot. Racing:
    /// validate; they have an order whatever is raced with.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: a damaged record block.
    #[inline(never)]
    pub fn sort_tied<'s, M: Medium>(
        pool: &Pool<M>,
        slots: &mut [u8],
        slot: impl Fn(usize) -> &'s [PmU64],
    ) -> Result<(), PmError> {
        let pm = pool.pm();
        let slot = |at: u8| slot(usize::from(at));
        match K::SHAPE {
            Shape::Inline(n) => {
                let word =
                    |at, word: usize| if word < n { pm.load_word(&slot(at)[word]) } else { 0 };
                sort_keys(slots, 1, &word, &|_| 8 * n);
            }
            Shape::Bytes => {
                let block = |at| Self::block(pm, slot(at));
                for &at in &*slots {
                    RecordBlock::prefetch(pool, block(at));
                }
                let mut blocks = [RecordBlock::EMPTY; MOST];
                for &at in &*slots {
                    blocks[usize::from(at)] = RecordBlock::at(pool, block(at))?;
                }
                let block = |at: u8| &blocks[usize::from(at)];
                sort_keys(slots, 0, &|at, word| block(at).key_word(pm, word), &|at| {
                    block(at).key_len()
                });
            }
        }
        Ok(())
    }

    /// Returns the records of `slots` that can be read and that `is_right` accepts by slot and key, and the number
    /// of the others. `slot` returns the words of a slot.
    pub fn salvage<'s, M: Medium>(
        pool: &Pool<M>,
        slots: u64,
        slot: impl Fn(usize) -> &'s [PmU64],
        is_right: impl Fn(usize, &K) -> bool,
    ) -> (Vec<(K, V)>, usize) {
        Self::salvage_redone(pool, slots, slot, is_right, &Redone::default())
    }

    /// As [`salvage`](Self::salvage), of an index whose log says what some values shall be.
    pub fn salvage_redone<'s, M: Medium>(
        pool: &Pool<M>,
        slots: u64,
        slot: impl Fn(usize) -> &'s [PmU64],
        is_right: impl Fn(usize, &K) -> bool,
        redone: &Redone,
    ) -> (Vec<(K, V)>, usize) {
        let value = |slot: &[PmU64]| {
            let offset = Self::block(pool.pm(), slot);
            match redone.value(pool, offset)? {
                Some(bytes) if V::SHAPE.is_bytes() => V::from_vec(bytes)
                    .ok_or(PmError::Corrupt { what: "the encoding of a value", offset }),
                _ => Self::value(pool, slot),
            }
        };
        let (mut good, mut bad) = (Vec::new(), 0);
        for i in bits(slots) {
            match (Self::key(pool, slot(i)), value(slot(i))) {
                (Ok(key), Ok(value)) if is_right(i, &key) => good.push((key, value)),
                _ => bad += 1,
            }
        }
        (good, bad)
    }
}
