//! Reading the records of an index that may be too damaged to be opened.

use std::collections::HashSet;
use std::sync::Arc;

use pmindex_core::{LINE, Medium, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Value};

use crate::layout::{
    ChunkHead, ChunkPtr, LineWord, Root, Segment, SlotRef, record_at, record_words,
};
use crate::record::Records;
use crate::tree::Hart;

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Hands every record in chunks that can be told to be chunks to `each`, in no order, until that
    /// says `false`; returns what is wrong. Nothing is opened, recovered or written, so this works
    /// where [`open`](Self::open) fails.
    ///
    /// First the chunks in the table, as far as it can be read; then, if `foreign` can say of a block
    /// whether another index owns it, all other live blocks with the header of a chunk. A record has
    /// no checksum: one that changed without losing its form is given as it is.
    ///
    /// # Cost
    /// Reads every record once, and the allocator's tables.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the root
    /// cannot be read.
    pub fn salvage(
        pool: &Arc<Pool<M>>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Vec<PmError>, IndexError> {
        let index = Self::index_format().open(pool, name)?;
        let root = pool.get(index.root::<Root>())?;
        let records = Records::<K, V, M, PREFIX>::new(pool);
        let mut damage = Vec::new();
        let mut seen = HashSet::new();
        let (mut number, mut next) = (0, pool.pm().load(&root.table));
        while !next.is_null() && seen.insert(next.offset()) {
            let segment: &Segment = match pool.get(next) {
                Ok(segment) => segment,
                Err(error) => {
                    damage.push(error);
                    break;
                }
            };
            for place in &segment.chunks {
                let chunk = pool.pm().load(place);
                if !chunk.is_null() && seen.insert(chunk.offset()) {
                    match Self::believed(pool, chunk, Some(number)) {
                        Some(true) if !read(&records, (chunk, CHUNK), &mut damage, each) => {
                            return Ok(damage);
                        }
                        Some(_) => {}
                        None => {
                            let what = "the header of a chunk";
                            damage.push(PmError::Corrupt { what, offset: chunk.offset() });
                        }
                    }
                }
                number += 1;
            }
            next = pool.pm().load(&segment.next);
        }
        let Some(foreign) = foreign else { return Ok(damage) };
        let blocks = match pool.live_blocks() {
            Ok(blocks) => blocks,
            Err(error) => {
                damage.push(error);
                return Ok(damage);
            }
        };
        let bytes = Self::RECORDS.bytes();
        for &(offset, size) in &blocks {
            let chunk = ChunkPtr::new(offset);
            if size < bytes || seen.contains(&offset) || foreign(offset) {
                continue;
            }
            if Self::believed(pool, chunk, None) == Some(true) {
                let what = "the table does not lead to a chunk";
                damage.push(PmError::Corrupt { what, offset });
                if !read(&records, (chunk, CHUNK), &mut damage, each) {
                    break;
                }
            }
        }
        Ok(damage)
    }

    /// Whether a chunk holds records; `None` if it is no chunk, or not the one of this number.
    fn believed(pool: &Pool<M>, chunk: ChunkPtr, number: Option<u64>) -> Option<bool> {
        let pm = pool.pm();
        let head: &ChunkHead = pool.get(chunk).ok()?;
        let shape = pm.load(&head.shape);
        if number.is_some_and(|number| pm.load(&head.number) != number)
            || head.reserved.iter().any(|word| pm.load(word) != 0)
        {
            return None;
        }
        if shape.is_objects() {
            return Some(false);
        }
        let words = pool.words(chunk.offset(), (shape.bytes() / 8) as usize).ok()?;
        let sound = |(line, words): (usize, &[PmU64])| {
            let word = LineWord::new(pm.load_word(&words[0]));
            word.live() & !shape.line_all(line) == 0
        };
        let all = words.chunks(LINE / 8).skip(1).enumerate();
        (shape == Self::RECORDS && all.take(shape.lines()).all(sound)).then_some(true)
    }
}

/// Passes the live records of a chunk; returns `false` to stop.
fn read<K: Key, V: Value, M: Medium, const PREFIX: usize>(
    records: &Records<K, V, M, PREFIX>,
    (chunk, slots): (ChunkPtr, usize),
    damage: &mut Vec<PmError>,
    each: &mut dyn FnMut(K, V) -> bool,
) -> bool {
    let words = record_words::<K>();
    for slot in 0..slots {
        let at = SlotRef::new(chunk.offset() + record_at(words, slot), slot);
        let line = match records.pool.words(at.line(), 1) {
            Ok(line) => records.pool.pm().load_word(&line[0]),
            Err(error) => {
                damage.push(error);
                return true;
            }
        };
        if line & at.line_bit(words) == 0 {
            continue;
        }
        match records.key(at).and_then(|key| Ok((key, records.value(at)?))) {
            Ok((key, value)) => {
                if !each(key, value) {
                    return false;
                }
            }
            Err(error) => damage.push(error),
        }
    }
    true
}
