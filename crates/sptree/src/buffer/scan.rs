//! The records of a Bnode with those of its buffer: for scans, and verified.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Bounds, Outside, Probe, Route, Sink, Slot, bits};

use super::WriteBuffers;
use super::table::ENTRIES_MAX;
use crate::layout::{Taken, tag_of};
use crate::leaf::Bnode;
use crate::leaves::Leaves;
use crate::middle::Mnode;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// Merges the records of an Mnode's buffer that lie between the bounds into those of its Bnode, which
    /// are `items` from a place on, in order, and removes what is deleted. Racing: validate.
    pub(crate) fn overlay(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
        bounds: &Bounds<K>,
        mut outside: Outside,
        (from, items): (usize, &mut impl Sink<K, V>),
    ) -> Outside {
        let Some(buffer) = leaves.middle.buffer(node) else { return outside };
        let table = &self.table;
        let state = table.state(buffer);
        let (keys, words) = (Slot::<K, V>::KEY_WORDS, Slot::<K, V>::WORDS);
        for entry in 0..state.len().min(Self::ROOM) {
            let copy = table.words(buffer, entry);
            let key = K::from_words(&copy[..keys]);
            let (low, high) = (bounds.is_below(&key), bounds.is_above(&key));
            outside.below |= low;
            outside.above |= high;
            if low || high {
                continue;
            }
            let deleted = state.deleted() >> entry & 1 == 1;
            let of_bnode = &mut items.records_mut()[from..];
            let value = || V::from_words(&copy[keys..words]);
            match (of_bnode.binary_search_by(|(other, _)| other.cmp(&key)), deleted) {
                (Ok(at), true) => {
                    of_bnode[at..].rotate_left(1);
                    let one_less = items.count() - 1;
                    items.truncate(one_less);
                }
                (Err(_), true) => {}
                (Ok(at), false) => of_bnode[at].1 = value(),
                (Err(at), false) => {
                    items.push((key, value()));
                    items.records_mut()[from + at..].rotate_right(1);
                }
            }
        }
        outside
    }

    /// Appends the records of an Mnode's buffer to the copy of its Bnode's slots, for one-word keys;
    /// returns the slots that still count. Racing: validate.
    #[inline(always)]
    pub(crate) fn copy_buffered(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
        taken: Taken,
        copy: &mut Vec<u64>,
    ) -> u64 {
        let mut slots = taken.slots();
        let Some(buffer) = leaves.middle.buffer(node) else { return slots };
        let (table, words) = (&self.table, Slot::<K, V>::WORDS);
        let state = table.state(buffer);
        for entry in 0..state.len().min(Self::ROOM) {
            let record = table.words(buffer, entry);
            if table.is_known(buffer, entry) {
                let tagged = leaves.middle.matches(node, table.tag(buffer, entry), LEAF);
                let same = |&slot: &usize| copy[slot * words] == record[0];
                if let Some(slot) = bits(tagged & slots).find(same) {
                    slots &= !(1 << slot);
                }
            }
            if state.deleted() >> entry & 1 == 0 {
                copy.extend_from_slice(&record[..words]);
            }
        }
        slots
    }

    /// Verifies the buffer of a quiescent Mnode: keys distinct and in the range, known keys those that the
    /// Bnode has, room for the others, a chain of the same length. Returns the records (modulo 2^64) that
    /// the buffer adds to those of the Bnode.
    pub(crate) fn check_buffer(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
    ) -> Result<u64, PmError> {
        let Some(buffer) = leaves.middle.buffer(node) else { return Ok(0) };
        let corrupt = |what| PmError::Corrupt { what, offset: bnode.offset() };
        let table = &self.table;
        let (state, keys) = (table.state(buffer), Slot::<K, V>::KEY_WORDS);
        for entry in 0..state.len() {
            let copy = table.words(buffer, entry);
            let key = K::from_words(&copy[..keys]);
            let probe = Probe::<K>::of_stored(&key);
            if table.find(buffer, &probe).map(|hit| hit.entry) != Some(entry) {
                return Err(corrupt("a buffer with a key twice"));
            }
            if leaves.middle.side(node, &Route::to(&probe)).is_none_or(std::cmp::Ordering::is_ne) {
                return Err(corrupt("a buffered key out of its Mnode's range"));
            }
            let tagged = leaves.middle.matches(node, tag_of(&probe), LEAF);
            let known = bnode.find_among(&leaves.pool, tagged, &probe)?.is_some();
            if known != table.is_known(buffer, entry) {
                return Err(corrupt("a buffer that does not know its Bnode"));
            }
        }
        if LEAF - leaves.taken(node).len() < table.new_keys(buffer) {
            return Err(corrupt("a buffer without room in its Bnode"));
        }
        let mut entries = 0;
        let chain = table.chain(buffer);
        self.log.follow(bnode.offset(), chain, ENTRIES_MAX, |_, _| {
            entries += 1;
            true
        })?;
        if entries != state.logged() {
            return Err(corrupt("a chain of another length than its buffer's"));
        }
        Ok(table.gained(buffer))
    }
}
