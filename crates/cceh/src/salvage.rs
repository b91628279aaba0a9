//! Reads the records of an index that may be too damaged to open.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::RecordBlock;

use crate::index::Cceh;
use crate::layout::{
    BASE, Cover, Geometry, HEADER_WORDS, MAX_DEPTH, NEXT, Root, Sought, has_block, position,
};
use crate::segment::{Segment, key_of, value_of};

/// The segments that were found, by their bases.
type Segments = BTreeMap<u64, u64>;

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Passes every record in recognizable segments to `each`, in no order, until it returns `false`; returns
    /// the damage. Nothing is opened, recovered or written, so this works where [`open`](Self::open) fails.
    ///
    /// First reads the segments along the list, as far as it leads; then, if `foreign` can tell whether
    /// another index owns a block, all other live blocks with the header of a segment that no record found
    /// points to. Each segment covers
    /// the positions up to the next one found, so that records that a split moved are passed once. A record
    /// in a pair has no checksum: an altered record in a valid form is passed as it is.
    ///
    /// # Cost
    /// Reads every record once, and the allocator's tables.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; an unreadable
    /// root.
    pub fn salvage(
        pool: &Arc<Pool<M>>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Vec<PmError>, IndexError> {
        let index = Self::index_format().open(pool, name)?;
        let root = pool.get(index.root::<Root>())?;
        let mut damage = Vec::new();
        let mut segments = Self::along_the_list(pool, root, &mut damage);
        if let Some(foreign) = foreign {
            Self::anywhere(pool, foreign, &mut segments, &mut damage);
        }
        let ends: Vec<u64> =
            segments.keys().skip(1).map(|base| base - 1).chain([u64::MAX]).collect();
        for ((base, offset), last) in segments.into_iter().zip(ends) {
            if !Self::salvage_segment(pool, offset, base..=last, &mut damage, each) {
                break;
            }
        }
        Ok(damage)
    }

    fn along_the_list(pool: &Pool<M>, root: &Root, damage: &mut Vec<PmError>) -> Segments {
        let pm = pool.pm();
        let mut segments = Segments::new();
        let mut next = pm.load(&root.head).offset();
        let mut after = None;
        while next != 0 {
            let segment = match Segment::<LINES, PROBE>::at(pool, next) {
                Ok(segment) if looks_like_one(&segment.image(pm)) => segment,
                Ok(_) => {
                    damage.push(PmError::Corrupt { what: "a segment", offset: next });
                    break;
                }
                Err(error) => {
                    damage.push(error);
                    break;
                }
            };
            // Bases must ascend, so the loop ends.
            let base = segment.base(pm);
            if after.is_some_and(|after| after >= base) {
                damage.push(PmError::Corrupt { what: "the base of a segment", offset: next });
                break;
            }
            segments.insert(base, next);
            (next, after) = (segment.next(pm), Some(base));
        }
        segments
    }

    /// Adds segments that the list does not lead to.
    ///
    /// A long value may look like a segment. A block is none if a record that is found points to it; nor if
    /// it does not fit: a lost segment covers the positions up to the base of the one that its `next` names.
    fn anywhere(
        pool: &Pool<M>,
        foreign: &dyn Fn(u64) -> bool,
        segments: &mut Segments,
        damage: &mut Vec<PmError>,
    ) {
        let bytes = Geometry::<K, V, LINES, PROBE>::BYTES;
        let blocks = pool.live_blocks().unwrap_or_else(|error| {
            damage.push(error);
            Vec::new()
        });
        let listed: HashSet<u64> = segments.values().copied().collect();
        let mut others: Vec<Segment<'_, LINES, PROBE>> = blocks
            .into_iter()
            .filter(|(offset, size)| (bytes..bytes * 5 / 4).contains(size) && !foreign(*offset))
            .filter(|(offset, _)| !listed.contains(offset))
            .filter_map(|(offset, _)| Self::recognized(pool, offset))
            .collect();
        if others.is_empty() {
            return;
        }
        let mut records = HashSet::new();
        for &offset in &listed {
            if let Ok(segment) = Segment::at(pool, offset) {
                Self::add_blocks(pool, &segment, &mut records);
            }
        }
        for segment in &others {
            Self::add_blocks(pool, segment, &mut records);
        }
        others.retain(|segment| !records.contains(&segment.offset()));
        for segment in others {
            let (base, offset) = (segment.base(pool.pm()), segment.offset());
            if !segments.contains_key(&base) && Self::fits(pool, &segment, segments) {
                damage
                    .push(PmError::Corrupt { what: "the list does not lead to a segment", offset });
                segments.insert(base, offset);
            }
        }
    }

    /// Returns the segment at `offset` if its header may be that of one.
    fn recognized(pool: &Pool<M>, offset: u64) -> Option<Segment<'_, LINES, PROBE>> {
        let segment = Segment::at(pool, offset).ok()?;
        looks_like_one(&segment.image(pool.pm())).then_some(segment)
    }

    /// Adds the blocks of the records in a segment, and of whole ones that were moved from it.
    fn add_blocks(pool: &Pool<M>, segment: &Segment<'_, LINES, PROBE>, records: &mut HashSet<u64>) {
        if !has_block::<K, V>() {
            return;
        }
        let base = segment.base(pool.pm());
        for (pair, words) in pairs(&segment.image(pool.pm())) {
            if position(words[0]) >= base && Self::salvage_record(pool, pair, words).is_ok() {
                records.insert(words[1]);
            }
        }
    }

    /// Returns `true` if the positions of a segment that was found end where the next one's begin; if that
    /// is damaged, where the list has a gap.
    fn fits(pool: &Pool<M>, segment: &Segment<'_, LINES, PROBE>, segments: &Segments) -> bool {
        let base = segment.base(pool.pm());
        let next = match segment.next(pool.pm()) {
            0 => Some(0),
            next => Self::recognized(pool, next).map(|next| next.base(pool.pm())),
        };
        if let Some(next) = next {
            return Cover::between(base, next).is_some();
        }
        let before = segments.range(..base).next_back();
        let after = segments.range(base..).next().map_or(0, |(&base, _)| base);
        before.is_none_or(|(&before, _)| Cover::between(before, after).is_none())
    }

    /// Returns `false` when `each` does.
    fn salvage_segment(
        pool: &Pool<M>,
        offset: u64,
        positions: std::ops::RangeInclusive<u64>,
        damage: &mut Vec<PmError>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> bool {
        let Ok(segment) = Segment::<LINES, PROBE>::at(pool, offset) else { return true };
        let image = segment.image(pool.pm());
        for (pair, words) in pairs(&image) {
            if !positions.contains(&position(words[0])) {
                continue;
            }
            match Self::salvage_record(pool, pair, words) {
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

    fn salvage_record(pool: &Pool<M>, pair: usize, words: [u64; 2]) -> Result<(K, V), PmError> {
        let what = PmError::Corrupt { what: "a record", offset: words[1] };
        if has_block::<K, V>() {
            RecordBlock::whole_at(pool, words[1])?;
        }
        let key = key_of::<K, V, M>(pool, words)?;
        let is_its_own = Sought::new::<K>(key.borrowed()).is_ok_and(|sought| sought.id == words[0]);
        let mut places = Segment::<LINES, PROBE>::pairs_for(position(words[0]));
        if !is_its_own || !places.any(|place| place == pair) {
            return Err(what);
        }
        let value = value_of::<K, V, M>(pool, words[1])?;
        Ok((key, value))
    }
}

/// Returns the pairs among the words of a segment.
fn pairs(image: &[u64]) -> impl Iterator<Item = (usize, [u64; 2])> {
    image[HEADER_WORDS..].as_chunks().0.iter().copied().enumerate()
}

/// Returns `true` if these may be the words of a segment, by its header.
fn looks_like_one(image: &[u64]) -> bool {
    let header = &image[..HEADER_WORDS];
    header[BASE].is_multiple_of(1 << (64 - MAX_DEPTH))
        && header[NEXT].is_multiple_of(64)
        && header[NEXT + 1..].iter().all(|&word| word == 0)
}
