//! The directory: named indexes, each with its type and layout.
//!
//! An entry counts if its `commit` word is not 0. That word is the checksum of the entry, so a damaged entry
//! is detected. The allocator's ticket for the root block names the commit word: block and entry exist
//! together or not at all.
//!
//! ```text
//! create
//! step  store                                         durable before
//! P1    root block; name, kind, layout, root; ticket  P2
//! P2    commit (LIN); allocation bits                 return (DUR)
//!
//! drop of an index with few blocks (one with many: `dropping`)
//! P1    tickets                                       P2
//! P2    commit = 0 (LIN); allocation bits             return (DUR)
//! ```
//!
//! While an entry is damaged, looking up a name that no intact entry has is an error: "not found" would
//! invite the caller to create the index anew. Intact entries stay usable.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::alloc::Owner;
use crate::cell::{PmType, PmU64, words_of};
use crate::checksum::checksum;
use crate::error::PmError;
use crate::media::{Flushed, Medium};
use crate::ptr::PPtr;

use super::Pool;
use super::claim::OpenIndex;
use super::dropping::leaving_place;
use super::layout::{
    DIRECTORY_ENTRIES, DIRECTORY_OFFSET, DirectoryEntry, DirectoryPages, NAME_MAX,
};

const SEED: u64 = 0x6469_7265_6374_6f72;
/// Part of the seed of an entry that is being dropped.
const DROPPED: u64 = 0x6472_6f70 << 32;
/// Words of an entry that the commit word covers.
const BODY: usize = 12;

/// An index of a pool, by its place in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexId(pub u16);

/// A named index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its place in the directory.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// Its type: 8 ASCII bytes such as `b"fptree  "`.
    pub kind: [u8; 8],
    /// A hash of its layout: key and value shapes, node capacities.
    pub layout: u64,
    root: u64,
}

impl IndexEntry {
    /// Returns the offset of its root block, for the allocator's audit. To use the block, open the index:
    /// [`Pool::open_index`].
    #[must_use]
    pub fn block(&self) -> u64 {
        self.root
    }

    /// Returns the entry's words before `commit`.
    fn body(&self) -> [u64; BODY] {
        let mut name = [0; NAME_MAX];
        name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let mut words = [0; BODY];
        for (word, bytes) in words.iter_mut().zip(name.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        words[8] = u64::from_le_bytes(self.kind);
        words[9] = self.layout;
        words[10] = self.root;
        words[11] = self.name.len() as u64;
        words
    }

    fn from_body(id: IndexId, words: &[u64]) -> Option<Self> {
        let name: Vec<u8> = words[..8].iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = name.get(..usize::try_from(words[11]).ok()?)?.to_vec();
        Some(Self {
            id,
            name: String::from_utf8(name).ok()?,
            kind: words[8].to_le_bytes(),
            layout: words[9],
            root: words[10],
        })
    }
}

/// Computes the commit word of an entry with these words: never 0.
fn commit_of(id: IndexId, body: &[u64]) -> u64 {
    checksum(SEED ^ u64::from(id.0), body.iter().copied()) | 1
}

/// Computes the commit word of an index that is being dropped, with these words: never 0.
fn dropped_of(id: IndexId, body: &[u64]) -> u64 {
    checksum(SEED ^ DROPPED ^ u64::from(id.0), body.iter().copied()) | 1
}

/// Sets the commit word of a used entry to the checksum of its words.
pub(super) fn forge(number: u16, words: &mut [u64]) {
    if words[BODY] != 0 {
        words[BODY] = commit_of(IndexId(number), &words[..BODY]);
    }
}

/// The contents of the directory, in DRAM.
#[derive(Debug, Default)]
pub(crate) struct Directory(pub(super) Mutex<Vec<Place>>);

/// The content of one place of the directory.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Free,
    Taken(IndexEntry),
    /// [`Pool::drop_index`] asks the index for its blocks. The index exists, and no other caller can open it.
    /// The entry is that of the call, which so knows its own place from that of a later index.
    Leaving(Arc<IndexEntry>),
    /// It is durably being dropped: it no longer exists, and its blocks are freed slice by slice.
    Dropped(IndexEntry),
    Damaged,
}

impl<M: Medium> Pool<M> {
    /// Reads the directory. Places are 64 words apart; nothing is written.
    pub(super) fn load_directory(&self) -> Result<(), PmError> {
        let mut places = Vec::with_capacity(DIRECTORY_ENTRIES);
        for (at, entry) in self.directory_pages()?.entries.iter().enumerate() {
            let id = IndexId(at as u16);
            if self.pm().load(&entry.commit) == 0 {
                places.push(Place::Free);
                continue;
            }
            let mut words = [0; BODY + 1];
            self.pm().read_words(&words_of(entry)[..=BODY], &mut words);
            let place = Place::decode(id, &words);
            let unfinished = match place {
                Place::Taken(_) => !self.pm().load(&entry.list).is_null(),
                Place::Dropped(_) => true,
                _ => false,
            };
            if unfinished {
                self.drops.note_unfinished();
            }
            places.push(place);
        }
        if let Err(damage) = refuse_damage(&places) {
            self.note_damage(&damage);
        }
        *self.pm().lock(&self.directory.0) = places;
        Ok(())
    }

    fn directory_pages(&self) -> Result<&DirectoryPages, PmError> {
        self.get(PPtr::new(DIRECTORY_OFFSET))
    }

    pub(super) fn directory_entry(&self, id: IndexId) -> Result<&DirectoryEntry, PmError> {
        let entry = self.directory_pages()?.entries.get(usize::from(id.0));
        entry.ok_or(PmError::Corrupt { what: "a place in the directory", offset: u64::from(id.0) })
    }

    /// Returns the durable directory entry of the index of this name, if there is one. No access to the pool,
    /// O(indexes).
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if no intact entry has the name and an entry is damaged.
    pub fn find_index(&self, name: &str) -> Result<Option<IndexEntry>, PmError> {
        lookup(&self.pm().lock(&self.directory.0), name)
    }

    /// Opens the index of this name, if there is one, for use until the result is dropped. No access to the
    /// pool, O(indexes).
    ///
    /// # Errors
    /// [`PmError::AlreadyOpen`] if it is open; those of [`find_index`](Self::find_index).
    pub fn open_index(&self, name: &str) -> Result<Option<OpenIndex>, PmError> {
        let places = self.pm().lock(&self.directory.0);
        if let Some(Place::Leaving(entry)) = place_of(&places, name) {
            return Err(PmError::AlreadyOpen { what: format!("index {:?}", entry.name) });
        }
        lookup(&places, name)?.map(|entry| self.claims.take_index(entry)).transpose()
    }

    /// Returns all indexes, by place.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if an entry is damaged. Intact entries can still be found by name.
    pub fn indexes(&self) -> Result<Vec<IndexEntry>, PmError> {
        let places = self.pm().lock(&self.directory.0);
        refuse_damage(&places)?;
        Ok(places.iter().filter_map(Place::entry).cloned().collect())
    }

    /// Adds an index: allocates its root block, calls `init` to fill it, and publishes the entry. The index
    /// is open then, as after [`open_index`](Self::open_index).
    ///
    /// After a crash the index exists completely or not at all. `init` flushes what it stores.
    ///
    /// # Errors
    /// [`PmError::NameTaken`], [`PmError::BadName`], [`PmError::DirectoryFull`], and those of
    /// [`op`](Self::op) and allocation. Nothing has changed then.
    ///
    /// # Cost
    /// 2 fences; 5 lines and those of the root block.
    ///
    /// # Durability
    /// Durable on return.
    pub fn create_index<T: PmType>(
        &self,
        name: &str,
        kind: [u8; 8],
        layout: u64,
        init: impl FnOnce(&T) -> Flushed,
    ) -> Result<OpenIndex, PmError> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(PmError::BadName { len: name.len(), max: NAME_MAX });
        }
        let pm = self.pm();
        let mut places = pm.lock(&self.directory.0);
        if lookup(&places, name)?.is_some() {
            return Err(PmError::NameTaken { name: name.into() });
        }
        if !places.iter().any(|place| matches!(place, Place::Free)) {
            drop(places);
            self.finish_drops()?;
            places = pm.lock(&self.directory.0);
            if lookup(&places, name)?.is_some() {
                return Err(PmError::NameTaken { name: name.into() });
            }
        }
        let free = places.iter().position(|place| matches!(place, Place::Free));
        let at = free.ok_or(PmError::DirectoryFull { entries: DIRECTORY_ENTRIES })?;
        let id = IndexId(at as u16);
        let entry = self.directory_entry(id)?;

        let mut op = self.op()?;
        let block = op.reserve::<T>()?;
        // P1: the block, the entry's body, and the ticket that ties them together.
        let filled = init(self.get(block.ptr())?);
        let found = IndexEntry { id, name: name.into(), kind, layout, root: block.ptr().offset() };
        let body = found.body();
        // The block is this operation's, and free otherwise: no other thread can have claimed it.
        let open = self.claims.take_index(found.clone())?;
        pm.write_words(&words_of(entry)[..BODY], &body);
        if !pm.load(&entry.list).is_null() {
            pm.store(&entry.list, PPtr::NULL); // rot: an entry ends without a list
        }
        let written = pm.flush_words(&words_of(entry)[..BODY]);
        let commit = commit_of(id, &body);
        op.allocate(&block, owner(&entry.commit, commit))?;
        op.prepare(filled.and(written))?; // durable before: P2
        // P2, LIN(create_index)
        pm.store(&entry.commit, commit);
        let flushed = op.seal().and(pm.flush(&entry.commit));
        let durable = pm.fence(flushed)?; // DUR(create_index)
        op.finish(durable);
        places[at] = Place::Taken(found);
        Ok(open)
    }

    /// Removes the index of a creation that failed, if `vacate` finds it empty (and frees the blocks that its
    /// root leads to); returns whether the index is gone. An index that another caller has opened meanwhile
    /// stays.
    ///
    /// # Errors
    /// Those of `vacate` and [`drop_index`](Self::drop_index).
    pub fn undo_create_index(
        &self,
        name: &str,
        vacate: impl FnOnce(&OpenIndex) -> Result<bool, PmError>,
    ) -> Result<bool, PmError> {
        let found = match self.open_index(name) {
            Ok(Some(found)) => found,
            Ok(None) | Err(PmError::AlreadyOpen { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        if !vacate(&found)? {
            return Ok(false);
        }
        let root = found.block();
        self.remove(found, &[root])?;
        Ok(true)
    }

    /// Removes an index that the caller has open, and so owns its place, and frees its blocks; one operation
    /// must be able to free them all. The claim ends before another owner can have the root block.
    pub(super) fn remove(&self, found: OpenIndex, blocks: &[u64]) -> Result<(), PmError> {
        let (pm, id) = (self.pm(), found.id);
        let entry = self.directory_entry(id)?;
        let commit = commit_of(id, &found.body());
        let mut places = pm.lock(&self.directory.0);
        let mut op = self.op()?;
        for &block in blocks {
            op.free(PPtr::<PmU64>::new(block), owner(&entry.commit, commit))?;
        }
        op.prepare(Flushed::nothing())?; // durable before: P2
        // P2, LIN(drop_index)
        pm.store(&entry.commit, 0);
        let flushed = op.seal().and(pm.flush(&entry.commit));
        let durable = pm.fence(flushed)?; // DUR(drop_index)
        drop(found); // before the block is free: its next owner may claim it at once
        op.finish(durable);
        places[usize::from(id.0)] = Place::Free;
        Ok(())
    }
}

/// Returns the commit word of an index that is being dropped.
pub(super) fn dropped_commit(entry: &IndexEntry) -> u64 {
    dropped_of(entry.id, &entry.body())
}

/// Returns the indexes in the words of a directory, and the number of damaged entries.
pub(super) fn entries_in(directory: &[u64]) -> (Vec<IndexEntry>, usize) {
    let entries = directory.chunks_exact(size_of::<DirectoryEntry>() / 8);
    let places: Vec<Place> =
        (0..).zip(entries).map(|(at, words)| Place::decode(IndexId(at), &words[..=BODY])).collect();
    let damaged = places.iter().filter(|place| matches!(place, Place::Damaged)).count();
    (places.iter().filter_map(Place::entry).cloned().collect(), damaged)
}

impl Place {
    /// Decodes the words of an entry up to `commit`.
    fn decode(id: IndexId, words: &[u64]) -> Self {
        let (body, commit) = (&words[..BODY], words[BODY]);
        match IndexEntry::from_body(id, body) {
            _ if commit == 0 => Self::Free,
            Some(found) if commit == commit_of(id, body) => Self::Taken(found),
            Some(found) if commit == dropped_of(id, body) => Self::Dropped(found),
            _ => Self::Damaged,
        }
    }

    /// Returns the index at this place, if it exists.
    pub(super) fn entry(&self) -> Option<&IndexEntry> {
        match self {
            Self::Taken(entry) => Some(entry),
            Self::Leaving(entry) => Some(entry),
            Self::Free | Self::Dropped(_) | Self::Damaged => None,
        }
    }
}

fn owner(commit: &PmU64, value: u64) -> Owner<'_> {
    Owner { word: commit, mask: u64::MAX, expect: value }
}

/// Returns the place of the existing index of this name.
fn place_of<'p>(places: &'p [Place], name: &str) -> Option<&'p Place> {
    places.iter().find(|place| place.entry().is_some_and(|entry| entry.name == name))
}

pub(super) fn lookup(places: &[Place], name: &str) -> Result<Option<IndexEntry>, PmError> {
    let leaving = leaving_place(name).and_then(|id| match places.get(usize::from(id.0)) {
        Some(Place::Leaving(entry)) => Some(&**entry),
        _ => None,
    });
    let found = leaving.or_else(|| place_of(places, name).and_then(Place::entry));
    if found.is_none() {
        refuse_damage(places)?;
    }
    Ok(found.cloned())
}

fn refuse_damage(places: &[Place]) -> Result<(), PmError> {
    match places.iter().position(|place| matches!(place, Place::Damaged)) {
        None => Ok(()),
        Some(at) => Err(PmError::Corrupt {
            what: "an entry of the directory",
            offset: DIRECTORY_OFFSET + (at * size_of::<DirectoryEntry>()) as u64,
        }),
    }
}
