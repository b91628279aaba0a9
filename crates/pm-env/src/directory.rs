//! The names of files, in the pool and in DRAM.
//!
//! ```text
//! create                                            durable before
//! P1  the entry, an empty inode, their tickets      P2
//! P2  the slot's pointer to the entry (LIN)         K1
//!
//! rename
//! P1  the new entry, tickets of both entries        P2
//! P2  the slot's pointer to the new one (LIN)       K1; reuse of the old entry
//!
//! delete, and the earlier file of a name
//! K1  its sequence = 0 (LIN of a delete)            its space is given back
//!
//! giving back
//! G1  the extents, one by one                       G2
//! G2  the slot's pointer = null                     reuse of the entry and the inode
//! ```
//!
//! Between P2 and K1 two entries have the same name: the one with the greater sequence counts. K1 precedes
//! any change of the newer entry, so the older one never reappears.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use pmindex_core::{Flushed, Medium, Owner, PPtr, PmError, PmPtr, Pool};

use crate::error::EnvError;
use crate::layout::{
    Entry, Inode, Root, SLOTS, SlotAt, Slots, checked, entry_checksum, name_words, unchecked,
};
use crate::node::{Node, free_extents};

/// A file, and the place of its entry.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    slot: SlotAt,
    entry: PPtr<Entry>,
    pub(crate) node: Arc<Node>,
}

/// The names, in DRAM.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) files: BTreeMap<String, Named>,
    /// Slots without an entry.
    free: Vec<SlotAt>,
    last_block: PPtr<Slots>,
    blocks: Vec<PPtr<Slots>>,
    last_sequence: u64,
    /// Files without a name whose space is not yet given back.
    dead: Vec<Named>,
}

impl Directory {
    /// Reads the names.
    pub(crate) fn read<M: Medium>(pool: &Pool<M>, root: PPtr<Root>) -> Result<Self, PmError> {
        let pm = pool.pm();
        let (mut directory, mut found) = (Self::default(), Vec::new());
        let mut next = pm.load(&pool.get(root)?.slots);
        while !next.is_null() {
            let slots = pool.get(next)?;
            if directory.blocks.contains(&next) {
                return Err(corrupt("a chain of slots without an end", next));
            }
            directory.blocks.push(next);
            for (at, entry) in slots.entries.iter().enumerate() {
                let slot = SlotAt { slots: next, at };
                match pm.load(entry) {
                    entry if entry.is_null() => directory.free.push(slot),
                    entry => found.push(read_entry(pool, slot, entry)?),
                }
            }
            directory.last_block = next;
            next = pm.load(&slots.next);
        }
        directory.free.reverse(); // in ascending order
        found.sort_by_key(|(sequence, ..)| *sequence);
        for (sequence, name, named) in found {
            directory.last_sequence = sequence;
            let older = match sequence {
                0 => Some(named),
                _ => directory.files.insert(name, named),
            };
            directory.dead.extend(older);
        }
        Ok(directory)
    }

    /// Returns the file with a name.
    pub(crate) fn find(&self, name: &str) -> Result<&Named, EnvError> {
        self.files.get(name).ok_or_else(|| EnvError::NoSuchFile { name: name.into() })
    }

    /// Creates an empty file. The earlier file of that name is dead.
    pub(crate) fn create<M: Medium>(
        &mut self,
        pool: &Pool<M>,
        root: PPtr<Root>,
        name: &str,
    ) -> Result<Arc<Node>, EnvError> {
        let pm = pool.pm();
        let slot = self.free_slot(pool, root)?;
        let cell = slot.cell(pool)?;
        let mut op = pool.op()?;
        let inode_block = op.reserve::<Inode>()?;
        let inode = pool.get(inode_block.ptr())?;
        pm.store(&inode.length, checked(0));
        pm.store(&inode.extents, PPtr::NULL);
        inode.reserved.iter().for_each(|word| pm.store(word, 0));
        let block = op.reserve_bytes(entry_bytes(name), 8)?.cast::<Entry>();
        let written = self.write_entry(pool, block.ptr(), inode_block.ptr(), name)?;
        let filled = pm.flush(inode).and(written);
        let entry = block.ptr();
        op.allocate(&block, Owner::pointer(cell, entry))?;
        op.allocate(&inode_block, Owner::pointer(cell, entry))?;
        op.prepare(filled)?; // P1, durable before: P2
        pm.store(cell, entry); // P2, LIN(create)
        let flushed = op.seal().and(pm.flush(cell));
        let durable = pm.fence(flushed)?; // DUR(create), durable before: K1
        op.finish(durable);
        self.free.pop();
        let node = Arc::new(Node::empty(inode_block.ptr()));
        self.put(pool, name, Named { slot, entry, node: Arc::clone(&node) })?;
        Ok(node)
    }

    /// Renames a file. The earlier file of the new name is dead.
    pub(crate) fn rename<M: Medium>(
        &mut self,
        pool: &Pool<M>,
        from: &str,
        to: &str,
    ) -> Result<(), EnvError> {
        let named = self.find(from)?.clone();
        if from == to {
            return Ok(());
        }
        let (pm, cell) = (pool.pm(), named.slot.cell(pool)?);
        let mut op = pool.op()?;
        let block = op.reserve_bytes(entry_bytes(to), 8)?.cast::<Entry>();
        let entry = block.ptr();
        let filled = self.write_entry(pool, entry, named.node.inode, to)?;
        op.allocate(&block, Owner::pointer(cell, entry))?;
        op.free(named.entry, Owner::pointer(cell, named.entry))?;
        op.prepare(filled)?; // P1, durable before: P2
        pm.store(cell, entry); // P2, LIN(rename)
        let flushed = op.seal().and(pm.flush(cell));
        let durable = pm.fence(flushed)?; // DUR(rename), durable before: K1
        op.finish(durable);
        self.files.remove(from);
        self.put(pool, to, Named { entry, ..named })
    }

    /// Deletes a file. Open handles can still read it.
    pub(crate) fn delete<M: Medium>(&mut self, pool: &Pool<M>, name: &str) -> Result<(), EnvError> {
        let named = self.find(name)?.clone();
        kill(pool, named.entry)?; // K1, LIN(delete), DUR(delete)
        self.files.remove(name);
        self.bury(named);
        Ok(())
    }

    fn put<M: Medium>(&mut self, pool: &Pool<M>, name: &str, named: Named) -> Result<(), EnvError> {
        let Some(older) = self.files.insert(name.into(), named) else { return Ok(()) };
        let killed = kill(pool, older.entry); // K1
        self.bury(older);
        Ok(killed?)
    }

    fn bury(&mut self, named: Named) {
        named.node.is_dead.store(true, Release);
        self.dead.push(named);
    }

    /// Returns a dead file without open handles.
    pub(crate) fn take_dead(&mut self) -> Option<Named> {
        let is_free = |named: &Named| Arc::strong_count(&named.node) == 1;
        // The extents of a damaged file are unknown, so it keeps its space.
        let at = self.dead.iter().position(|named| is_free(named) && named.node.leads_on())?;
        Some(self.dead.swap_remove(at))
    }

    /// Notes whether the space of a dead file was given back.
    pub(crate) fn buried(&mut self, named: Named, is_free: bool) {
        if is_free {
            self.free.push(named.slot);
        } else {
            self.dead.push(named);
        }
    }

    /// Returns a slot without an entry.
    fn free_slot<M: Medium>(
        &mut self,
        pool: &Pool<M>,
        root: PPtr<Root>,
    ) -> Result<SlotAt, PmError> {
        let pm = pool.pm();
        if let Some(&slot) = self.free.last() {
            return Ok(slot);
        }
        let link: &PmPtr<Slots> = match self.last_block {
            last if last.is_null() => &pool.get(root)?.slots,
            last => &pool.get(last)?.next,
        };
        let block = pool.alloc_into(link, |slots: &Slots| {
            pm.store(&slots.next, PPtr::NULL);
            slots.entries.iter().for_each(|entry| pm.store(entry, PPtr::NULL));
            pm.flush(slots)
        })?; // durable before: any entry in it
        self.last_block = block;
        self.blocks.push(block);
        self.free.extend((0..SLOTS).rev().map(|at| SlotAt { slots: block, at }));
        self.free_slot(pool, root)
    }

    /// Writes an entry with the next sequence.
    fn write_entry<M: Medium>(
        &mut self,
        pool: &Pool<M>,
        at: PPtr<Entry>,
        inode: PPtr<Inode>,
        name: &str,
    ) -> Result<Flushed, PmError> {
        let (pm, entry, bytes) = (pool.pm(), pool.get(at)?, name.len() as u64);
        let words = name_words(pool, at, bytes)?;
        pm.write_bytes(words, name.as_bytes());
        let stored: Vec<u64> = words.iter().map(|word| pm.load_word(word)).collect();
        self.last_sequence += 1;
        pm.store(&entry.sequence, checked(self.last_sequence));
        pm.store(&entry.inode, inode);
        pm.store(&entry.name_bytes, bytes);
        pm.store(&entry.checksum, entry_checksum(at, inode, bytes, &stored));
        let entry = pool.words(at.offset(), size_of::<Entry>() / 8 + words.len())?;
        Ok(pm.flush_words(entry))
    }

    /// Returns the blocks of all files and names.
    pub(crate) fn blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.blocks.iter().map(|block| block.offset()).collect();
        for named in self.files.values().chain(&self.dead) {
            blocks.extend([named.entry.offset(), named.node.inode.offset()]);
            blocks.extend(named.node.blocks());
        }
        blocks
    }
}

fn corrupt<T>(what: &'static str, at: PPtr<T>) -> PmError {
    PmError::Corrupt { what, offset: at.offset() }
}

/// Returns the bytes of an entry.
fn entry_bytes(name: &str) -> u64 {
    (size_of::<Entry>() + name.len()).next_multiple_of(8) as u64
}

fn read_entry<M: Medium>(
    pool: &Pool<M>,
    slot: SlotAt,
    at: PPtr<Entry>,
) -> Result<(u64, String, Named), PmError> {
    let (pm, entry) = (pool.pm(), pool.get(at)?);
    let (bytes, inode) = (pm.load(&entry.name_bytes), pm.load(&entry.inode));
    if bytes > crate::layout::NAME_MAX as u64 {
        return Err(corrupt("the name of a file", at));
    }
    let words = name_words(pool, at, bytes)?;
    let stored: Vec<u64> = words.iter().map(|word| pm.load_word(word)).collect();
    if pm.load(&entry.checksum) != entry_checksum(at, inode, bytes, &stored) {
        return Err(corrupt("the name of a file", at));
    }
    let name = String::from_utf8(pm.read_vec(words, bytes as usize));
    let name = name.map_err(|_| corrupt("the name of a file", at))?;
    let sequence = match pm.load(&entry.sequence) {
        0 => 0,
        word => unchecked(word).ok_or_else(|| corrupt("the sequence of a file", at))?,
    };
    pool.get(inode)?;
    let node = Arc::new(Node::read(pool, inode));
    Ok((sequence, name, Named { slot, entry: at, node }))
}

/// Kills an entry.
fn kill<M: Medium>(pool: &Pool<M>, entry: PPtr<Entry>) -> Result<(), PmError> {
    let (pm, entry) = (pool.pm(), pool.get(entry)?);
    pm.store(&entry.sequence, 0); // K1
    let flushed = pm.flush(&entry.sequence);
    pm.fence(flushed)?; // durable before: its space is given back, or a newer entry ends
    Ok(())
}

/// Gives the space of a dead file back.
pub(crate) fn free<M: Medium>(pool: &Pool<M>, named: &Named) -> Result<(), PmError> {
    let (pm, cell, inode) = (pool.pm(), named.slot.cell(pool)?, named.node.inode);
    free_extents(pool, inode)?; // G1, durable before: G2
    let mut op = pool.op()?;
    op.free(inode, Owner::pointer(cell, named.entry))?;
    op.free(named.entry, Owner::pointer(cell, named.entry))?;
    op.prepare(Flushed::nothing())?; // durable before: G2
    pm.store(cell, PPtr::NULL); // G2
    let flushed = op.seal().and(pm.flush(cell));
    let durable = pm.fence(flushed)?;
    op.finish(durable);
    Ok(())
}
