//! The directory: named indexes, each with its type and layout.

use parking_lot::Mutex;

use crate::cell::PmType;
use crate::error::PmError;
use crate::media::{Flushed, Medium};
use crate::ptr::PPtr;

use super::Pool;

/// Which index of a pool: its place in the directory.
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
    /// The offset of its root block.
    pub root: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<Vec<IndexEntry>>);

impl<M: Medium> Pool<M> {
    /// The index of this name, if there is one.
    pub fn find_index(&self, name: &str) -> Result<Option<IndexEntry>, PmError> {
        Ok(self.directory.0.lock().iter().find(|e| e.name == name).cloned())
    }

    /// Adds an index: allocates its root block, lets `init` fill it, and publishes the entry.
    ///
    /// A crash leaves the index wholly there or not at all.
    pub fn create_index<T: PmType>(
        &self,
        name: &str,
        kind: [u8; 8],
        layout: u64,
        init: impl FnOnce(&T) -> Flushed,
    ) -> Result<IndexEntry, PmError> {
        let mut op = self.op()?;
        let root = op.reserve::<T>()?;
        let flushed = init(self.get(root.ptr())?);
        self.pm().fence(flushed)?;
        let mut entries = self.directory.0.lock();
        let id = IndexId(u16::try_from(entries.len()).expect("few indexes"));
        let entry = IndexEntry { id, name: name.into(), kind, layout, root: root.ptr().offset() };
        entries.push(entry.clone());
        Ok(entry)
    }
}

impl IndexEntry {
    /// The root block.
    #[must_use]
    pub fn root<T: PmType>(&self) -> PPtr<T> {
        PPtr::new(self.root)
    }
}
