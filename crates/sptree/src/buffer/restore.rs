//! Buffers after a crash: read in the log at once, restored when their Mnodes are made.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{EncodedValue, Probe, Slot};

use super::WriteBuffers;
use super::table::ENTRIES_MAX;
use crate::layout::tag_of;
use crate::leaf::Bnode;
use crate::leaves::Leaves;
use crate::log::{Entry, Kind, Location, Log};
use crate::middle::Mnode;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// Returns what the chain of a Bnode says of a key: `Some(None)` if the key is deleted. For reads before
    /// the layers in DRAM are rebuilt.
    #[allow(clippy::option_option, reason = "whether it says anything; what")]
    pub(crate) fn chain_says(
        &self,
        pm: &M,
        bnode: &Bnode<'_, K, V, LEAF>,
        probe: &Probe<'_, K>,
    ) -> Result<Option<Option<V>>, PmError> {
        let keys = Slot::<K, V>::KEY_WORDS.min(4);
        let mut said = None;
        follow(pm, &self.log, bnode, |_, words, kind| {
            if words[..keys] != probe.words()[..keys] {
                return true;
            }
            let value = &words[keys..Slot::<K, V>::WORDS];
            said = Some((kind == Kind::Put).then(|| V::from_words(value)));
            false
        })?;
        Ok(said)
    }

    /// Restores the buffer of a Bnode from its chain, if it had one, for its new Mnode; returns the records
    /// (modulo 2^64) that it adds to those of the Bnode.
    pub(crate) fn restore(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        index: u32,
        bnode: &Bnode<'_, K, V, LEAF>,
    ) -> Result<u64, PmError> {
        let mut entries: Vec<(Location, [u64; 8], Kind)> = Vec::new();
        follow(leaves.pm(), &self.log, bnode, |location, words, kind| {
            entries.push((location, words, kind));
            true
        })?;
        if entries.is_empty() {
            return Ok(0);
        }
        let (table, node) = (&self.table, leaves.middle.get(index));
        let seq = self.log.recovered(bnode.offset()).seq;
        let applied = bnode.applied(leaves.pm())?;
        let own = self.budget.is_unlimited();
        let buffer = table.alloc(index, own, seq, seq == applied)?;
        leaves.middle.put_buffer(node, Some(buffer));
        let keys = Slot::<K, V>::KEY_WORDS.min(4);
        for (location, words, kind) in entries.into_iter().rev() {
            let key = K::from_words(&words[..keys]);
            let value = V::from_words(&words[keys..Slot::<K, V>::WORDS]);
            let probe = Probe::<K>::of_stored(&key);
            let entry = table.find(buffer, &probe).map(|hit| hit.entry);
            let entry = entry.unwrap_or(table.state(buffer).len());
            let datum = EncodedValue::<V>::new(value.borrowed()).ok().filter(|_| kind == Kind::Put);
            if entry == Self::ROOM {
                let what = "a chain of more records than a buffer has";
                return Err(PmError::Corrupt { what, offset: bnode.offset() });
            }
            let tagged = leaves.middle.matches(node, tag_of(&probe), LEAF);
            let known = bnode.find_among(&leaves.pool, tagged, &probe)?.is_some();
            let datum = datum.as_ref();
            let place = (location, self.log.birth_of(location));
            table.reserve(buffer, entry)?;
            table.stage(buffer, entry, &probe, datum, known);
            table.publish(buffer, entry, datum, place);
        }
        Ok(table.gained(buffer))
    }

    /// Returns the number of records of a locked Mnode whose Bnode has `in_bnode`, those in the buffer included;
    /// exact only if that is nearly empty.
    #[inline(always)]
    pub(crate) fn records_of(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
        in_bnode: usize,
    ) -> usize {
        if in_bnode > LEAF / 4 + Self::ROOM {
            return in_bnode;
        }
        (in_bnode as u64).wrapping_add(self.gained(leaves, node)) as usize
    }

    /// Returns the records (modulo 2^64) that an Mnode's buffer adds to those of its Bnode.
    pub(crate) fn gained(&self, leaves: &Leaves<K, V, M, LEAF>, node: &Mnode) -> u64 {
        leaves.middle.buffer(node).map_or(0, |buffer| self.table.gained(buffer))
    }
}

/// Visits the entries of a Bnode's chain, as opening found it in the log, that the Bnode has not
/// absorbed, the newest first.
pub(crate) fn follow<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pm: &M,
    log: &Log<M>,
    bnode: &Bnode<'_, K, V, LEAF>,
    mut visit: impl FnMut(Location, [u64; 8], Kind) -> bool,
) -> Result<(), PmError> {
    let id = bnode.offset();
    let chain = log.recovered(id);
    if chain.head.is_none() {
        return Ok(());
    }
    let applied = bnode.applied(pm)?;
    let (keys, all) = (Slot::<K, V>::KEY_WORDS, Slot::<K, V>::WORDS);
    let mut short = false;
    log.follow(id, chain, ENTRIES_MAX, |location, entry: &Entry<'_>| {
        if entry.seq <= applied {
            return false;
        }
        let mut words = [0; 8];
        let count = if entry.kind == Kind::Put { all } else { keys };
        let Some(cells) = entry.payload.get(..count) else {
            short = true;
            return false;
        };
        pm.read_words(cells, &mut words[..count]);
        visit(location, words, entry.kind)
    })?;
    if short {
        return Err(PmError::Corrupt { what: "an entry of the log that is too short", offset: id });
    }
    Ok(())
}
