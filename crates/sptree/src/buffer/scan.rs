//! What a buffer makes of the records of its Bnode: for scans, and verified.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Bounds, Outside, Probe, Route, Sink, Slot};

use crate::layout::{Taken, bits, tag_of};
use crate::leaf::Bnode;
use crate::middle::Mnode;
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Puts the records of an Mnode's buffer that lie between the bounds to those of its Bnode, which
    /// are `items` from a place on, in order, and takes out what is deleted. Racing: validate.
    pub(crate) fn overlay(
        &self,
        node: &Mnode,
        bounds: &Bounds<K>,
        mut outside: Outside,
        (from, items): (usize, &mut impl Sink<K, V>),
    ) -> Outside {
        let Some((buffering, buffer)) = self.buffer_of(node) else { return outside };
        let buffers = &buffering.buffers;
        let state = buffers.state(buffer);
        let (keys, words) = (Slot::<K, V>::KEY_WORDS, Slot::<K, V>::WORDS);
        for entry in 0..state.len().min(Self::ROOM) {
            let copy = buffers.words::<K, V>(buffer, entry);
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

    /// Puts the records of an Mnode's buffer behind the copy of its Bnode's slots, for one-word keys;
    /// returns which of the slots still count. Racing: validate.
    #[inline(always)]
    pub(crate) fn copy_buffered(&self, node: &Mnode, taken: Taken, copy: &mut Vec<u64>) -> u64 {
        let mut slots = taken.slots();
        let Some((buffering, buffer)) = self.buffer_of(node) else { return slots };
        let (buffers, words) = (&buffering.buffers, Slot::<K, V>::WORDS);
        let state = buffers.state(buffer);
        for entry in 0..state.len().min(Self::ROOM) {
            let record = buffers.words::<K, V>(buffer, entry);
            if buffers.is_known(buffer, entry) {
                let tagged = self.middle.matches(node, buffers.tag(buffer, entry), LEAF);
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

    /// Verifies the buffer of a quiescent Mnode: keys distinct and in the range, what it knows of the
    /// Bnode, room for all of it, and the log says the same. Returns by how many (modulo 2^64) there
    /// are more records than in the Bnode.
    pub(crate) fn check_buffer(
        &self,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
    ) -> Result<u64, PmError> {
        let Some((buffering, buffer)) = self.buffer_of(node) else { return Ok(0) };
        let corrupt = |what| PmError::Corrupt { what, offset: bnode.offset() };
        let buffers = &buffering.buffers;
        let (state, keys) = (buffers.state(buffer), Slot::<K, V>::KEY_WORDS);
        for entry in 0..state.len() {
            let copy = buffers.words::<K, V>(buffer, entry);
            let key = K::from_words(&copy[..keys]);
            let probe = Probe::<K>::of_stored(&key);
            if buffers.find::<K, V>(buffer, &probe).map(|hit| hit.entry) != Some(entry) {
                return Err(corrupt("a buffer with a key twice"));
            }
            if self.middle.side(node, &Route::to(&probe)).is_none_or(std::cmp::Ordering::is_ne) {
                return Err(corrupt("a buffered key out of its Mnode's range"));
            }
            let tagged = self.middle.matches(node, tag_of(&probe), LEAF);
            let known = bnode.find_among(&self.pool, tagged, &probe)?.is_some();
            if known != buffers.is_known(buffer, entry) {
                return Err(corrupt("a buffer that does not know its Bnode"));
            }
        }
        if LEAF - self.middle.taken(node, LEAF).len() < buffers.new_keys(buffer) {
            return Err(corrupt("a buffer without room in its Bnode"));
        }
        let mut entries = 0;
        let chain = buffers.chain(buffer);
        buffering.log.follow(bnode.offset(), chain, super::ENTRIES_MAX, |_, _| {
            entries += 1;
            true
        })?;
        if entries != state.logged() {
            return Err(corrupt("a chain of another length than its buffer's"));
        }
        Ok(self.gained(buffer))
    }
}
