//! Verification of the whole structure, independent of the code that recovers it.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Probe, RecordBlock, Route, Slot, bits};

use crate::layout::{Root, tag_of};
use crate::leaf::Bnode;
use crate::middle::{Mnode, NONE};
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Every Bnode: the list of Bnodes and that of Mnodes agree; valid bitmap and link, no ghosts; low
    /// keys ascend and are those of the Mnodes; tags of both match the keys; keys distinct and in the
    /// range. The radix tree leads to every Mnode and no other, the backup to every Bnode that does
    /// not wait for it. Records as many as counted.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first Bnode that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    #[inline(always)]
    fn check_inner(&self) -> Result<u64, IndexError> {
        let counted = self.len()?;
        let pm = self.pm();
        let mut records = 0;
        let mut lows: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut greatest: Option<K> = None;
        let (mut index, mut before) = (self.head, NONE);
        let mut offset = pm.load(&self.root()?.head).offset();
        while index != NONE {
            let node = self.leaves.middle.get(index);
            let bnode = self.leaves.bnode(offset)?;
            if self.leaves.middle.dram.load(&node.bnode) != offset
                || self.leaves.middle.prev(node) != before
            {
                return Err(corrupt("the Mnodes differ from the list of Bnodes", offset).into());
            }
            if index != self.head {
                let low = bnode.low(&self.pool)?;
                self.check_low(index, node, &low, lows.last())?;
                lows.push((low, offset));
            }
            records += self.check_bnode(node, &bnode, &mut greatest)?;
            if let Some(buffers) = self.buffers() {
                let gained = buffers.check_buffer(&self.leaves, node, &bnode)?;
                records = records.wrapping_add(gained);
            }
            offset = bnode.next(pm).offset();
            (before, index) = (index, self.leaves.middle.next(node));
        }
        if offset != 0 {
            return Err(corrupt("a Bnode without an Mnode", offset).into());
        }
        let led_to = self.top.check(&self.leaves.middle)?;
        if led_to != lows.len() as u64 {
            return Err(corrupt("the radix tree has other Mnodes than the list", led_to).into());
        }
        if !pm.is_poisoned() {
            self.backup.check(pm, &lows)?; // of a poisoned pool it is behind, and not read any more
        }
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    /// Verifies a low key: greater than the one before, where that Mnode ends, in the radix tree.
    fn check_low(
        &self,
        index: u32,
        node: &Mnode,
        low: &[u8],
        before: Option<&(Vec<u8>, u64)>,
    ) -> Result<(), PmError> {
        let offset = self.leaves.middle.dram.load(&node.bnode);
        if before.is_some_and(|(before, _)| before.as_slice() >= low) {
            return Err(corrupt("low keys out of order", offset));
        }
        let own = self.leaves.middle.low_route(node);
        let left = self.leaves.middle.get(self.leaves.middle.prev(node));
        if own.route::<K>().encoded::<K>(&mut [0; 32]) != low
            || self.leaves.middle.high_of(left) != self.leaves.middle.low_of(node)
        {
            return Err(corrupt("an Mnode's range is not its Bnode's", offset));
        }
        if self.top.get(self.pm(), &self.leaves.middle, &own.route::<K>())? != Some(index) {
            return Err(corrupt("an Mnode that the radix tree does not know", offset));
        }
        Ok(())
    }

    /// Verifies a Bnode and its Mnode; returns its records.
    fn check_bnode(
        &self,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
        greatest: &mut Option<K>,
    ) -> Result<u64, PmError> {
        let (pm, offset) = (self.pm(), bnode.offset());
        let (taken, next) = (bnode.taken(pm), bnode.next(pm));
        if !taken.is_valid(LEAF) || !next.is_valid() || next.ghosts() {
            return Err(corrupt("a Bnode's bitmap or link", offset));
        }
        if self.leaves.taken(node) != taken {
            return Err(corrupt("an Mnode's tags are not its Bnode's records", offset));
        }
        let mut keys = Vec::new();
        for i in bits(taken.slots()) {
            let key = Slot::<K, V>::checked_key(&self.pool, bnode.slot(i))?;
            Slot::<K, V>::value(&self.pool, bnode.slot(i))?;
            let probe = Probe::<K>::of_stored(&key);
            if bnode.tag(pm, i) != tag_of(&probe)
                || self.leaves.middle.tag(node, i) != tag_of(&probe)
            {
                return Err(corrupt("a tag does not match its key", offset));
            }
            if self
                .leaves
                .middle
                .side(node, &Route::to(&probe))
                .is_none_or(std::cmp::Ordering::is_ne)
            {
                return Err(corrupt("a key out of its Mnode's range", offset));
            }
            keys.push(key);
        }
        keys.sort();
        for key in keys {
            if greatest.as_ref().is_some_and(|last| *last >= key) {
                return Err(corrupt("keys out of order between Bnodes, or twice", offset));
            }
            *greatest = Some(key);
        }
        Ok(taken.len() as u64)
    }

    /// Lists the offsets of all blocks of a quiescent index: root, Bnodes, low keys, record blocks, and
    /// those of the backup and the log.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.make_ready()?;
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        self.walk(|_, bnode, taken| {
            blocks.push(bnode.offset());
            for block in self.blocks_of(bnode, taken)? {
                RecordBlock::at(&self.pool, block)?;
                blocks.push(block);
            }
            Ok(())
        })?;
        blocks.extend(self.backup.blocks()?);
        if let Some(buffers) = self.buffers() {
            blocks.extend(buffers.blocks()?);
        }
        Ok(blocks)
    }
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
