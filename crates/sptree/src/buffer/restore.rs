//! Buffers after a crash: read in the log at once, restored when their Mnodes are made.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{Datum, Probe, Slot};

use super::ENTRIES_MAX;
use crate::layout::tag_of;
use crate::leaf::Bnode;
use crate::log::{Entry, Kind, Location, Log};
use crate::middle::Mnode;
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// What the chain of a Bnode says of a key: `Some(None)` if it is deleted. Before the layers are
    /// rebuilt.
    #[allow(clippy::option_option, reason = "whether anything is known; what")]
    pub(crate) fn chain_says(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        probe: &Probe<'_, K>,
    ) -> Result<Option<Option<V>>, PmError> {
        let keys = Slot::<K, V>::KEY_WORDS.min(4);
        let mut said = None;
        self.follow(bnode, |_, words, kind| {
            if words[..keys] != probe.words()[..keys] {
                return true;
            }
            let value = &words[keys..Slot::<K, V>::WORDS];
            said = Some((kind == Kind::Put).then(|| V::from_words(value)));
            false
        })?;
        Ok(said)
    }

    /// Restores the buffer of a Bnode from its chain, if it had one, for its new Mnode; returns by how
    /// many (modulo 2^64) there are more records than in the Bnode.
    pub(crate) fn restore(
        &self,
        index: u32,
        bnode: &Bnode<'_, K, V, LEAF>,
    ) -> Result<u64, PmError> {
        let mut entries: Vec<(Location, [u64; 8], Kind)> = Vec::new();
        self.follow(bnode, |location, words, kind| {
            entries.push((location, words, kind));
            true
        })?;
        let Some(buffering) = self.buffering().filter(|_| !entries.is_empty()) else {
            return Ok(0);
        };
        let (buffers, node) = (&buffering.buffers, self.middle.get(index));
        let seq = buffering.log.recovered(bnode.offset()).seq;
        let applied = bnode.applied(self.pm())?;
        let own = buffering.budget.is_unlimited();
        let buffer = buffers.alloc(index, own, seq, seq == applied)?;
        self.middle.put_buffer(node, Some(buffer));
        let keys = Slot::<K, V>::KEY_WORDS.min(4);
        for (location, words, kind) in entries.into_iter().rev() {
            let key = K::from_words(&words[..keys]);
            let value = V::from_words(&words[keys..Slot::<K, V>::WORDS]);
            let probe = Probe::<K>::of_stored(&key);
            let entry = buffers.find::<K, V>(buffer, &probe).map(|hit| hit.entry);
            let entry = entry.unwrap_or(buffers.state(buffer).len());
            let datum = Datum::<V>::new(value.borrowed()).ok().filter(|_| kind == Kind::Put);
            if entry == Self::ROOM {
                let what = "a chain of more records than a buffer has";
                return Err(PmError::Corrupt { what, offset: bnode.offset() });
            }
            let tagged = self.middle.matches(node, tag_of(&probe), LEAF);
            let known = bnode.find_among(&self.pool, tagged, &probe)?.is_some();
            let datum = datum.as_ref();
            let place = (location, buffering.log.birth_of(location));
            buffers.reserve::<K, V>(buffer, entry)?;
            buffers.stage::<K, V>(buffer, entry, &probe, datum, known);
            buffers.publish::<K, V>(buffer, entry, datum, place);
        }
        Ok(self.gained(buffer))
    }

    /// How many records a locked Mnode has, its buffer's included, of which `in_bnode` are in its
    /// Bnode; or about how many, if it is not nearly empty.
    #[inline(always)]
    pub(crate) fn records_of(&self, node: &Mnode, in_bnode: usize) -> usize {
        if !Self::BUFFERED || in_bnode > LEAF / 4 + Self::ROOM {
            return in_bnode;
        }
        let in_bnode = in_bnode as u64;
        let gained = self.buffer_of(node).map_or(0, |(_, buffer)| self.gained(buffer));
        in_bnode.wrapping_add(gained) as usize
    }

    /// By how many records (modulo 2^64) a buffer makes its Bnode more, or fewer.
    pub(crate) fn gained(&self, buffer: u32) -> u64 {
        let Some(buffering) = self.buffering() else { return 0 };
        buffering.buffers.gained(buffer)
    }

    /// Visits what a Bnode's chain says that the Bnode has not absorbed, the newest first.
    fn follow(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        visit: impl FnMut(Location, [u64; 8], Kind) -> bool,
    ) -> Result<(), PmError> {
        let Some(buffering) = self.buffering() else { return Ok(()) };
        follow(self.pm(), &buffering.log, bnode, visit)
    }
}

/// Visits what the chain of a Bnode, as it was found in the log, says that the Bnode has not
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
