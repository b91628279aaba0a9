//! A simulated file: its length and its name are two words that become durable only when the file,
//! or its directory, is synchronised.
//!
//! The file lies in a [`Space`](super::Space), whose last page holds the file system's metadata:
//!
//! ```text
//!  0        8           64
//!  | length | 0 ..      | name: 1 if the directory has it | 0 ..
//! ```
//!
//! They are words like any other, on lines of their own, so a crash may leave either, in any order, with any
//! part of the contents: a length without its name, a name without its contents. A system call is recorded as
//! the store that it makes, or as a write-back of the words it covers.
//!
//! Some file systems (btrfs) log nothing when a file without a name is synchronised; its contents are durable
//! with the name only when the file is synchronised once more. A space can [behave like
//! that](super::Space::forget_unnamed): then the name is stored with that synchronisation, or with the
//! directory's if that comes first.

use core::panic::Location;
use std::sync::Arc;

use crate::region::Region;

use super::event::EventKind;
use super::space::Inner;

/// Bytes of the file system's page.
const PAGE: usize = 4096;

/// An open file in a space.
#[derive(Clone, Debug)]
pub(crate) struct File {
    inner: Arc<Inner>,
}

impl File {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner) }
    }

    /// Returns the largest possible size of the file in bytes.
    fn room(&self) -> usize {
        self.inner.memory().capacity().saturating_sub(PAGE)
    }

    fn length(&self) -> usize {
        self.room() / 8
    }

    fn name(&self) -> usize {
        self.room() / 8 + 8
    }

    #[track_caller]
    fn store(&self, kind: EventKind, word: usize, value: u64) {
        self.inner.step(1);
        let old = self.inner.word(word).atomic().swap(value, core::sync::atomic::Ordering::AcqRel);
        self.inner.record(kind, word as u32, value, old, Location::caller());
    }

    fn load(&self, word: usize) -> u64 {
        self.inner.word(word).atomic().load(core::sync::atomic::Ordering::Acquire)
    }

    /// Returns the file's bytes as memory.
    pub(crate) fn region(&self) -> Region {
        Region::lent(&self.inner)
    }

    pub(crate) fn is_named(&self) -> bool {
        self.load(self.name()) != 0
    }

    pub(crate) fn len(&self) -> u64 {
        self.load(self.length())
    }

    /// Returns the first words of the file.
    pub(crate) fn head(&self, words: usize) -> Vec<u64> {
        let count = words.min(self.len() as usize / 8).min(self.room() / 8);
        (0..count).map(|word| self.load(word)).collect()
    }

    /// Cuts the file off at `len`, or extends it by zeros; returns `false` if there is no room.
    #[track_caller]
    pub(crate) fn set_len(&self, len: u64) -> bool {
        if len > self.room() as u64 {
            return false;
        }
        // Bytes beyond the end read as zeros when the file grows over them again.
        for word in len as usize / 8..self.len() as usize / 8 {
            if self.load(word) != 0 {
                self.store(EventKind::Bulk, word, 0);
            }
        }
        self.store(EventKind::Store, self.length(), len);
        true
    }

    /// Makes the contents and the length durable.
    #[track_caller]
    pub(crate) fn sync(&self) {
        if self.inner.forgets_unnamed() && !self.is_named() && !self.inner.is_linked() {
            return;
        }
        let until = self.name() as u64;
        self.inner.record(EventKind::WriteBack, 0, until, 0, Location::caller());
        self.store_name();
    }

    /// Enters the name in the directory.
    #[track_caller]
    pub(crate) fn link(&self) {
        self.inner.set_linked(true);
        if !self.inner.forgets_unnamed() {
            self.store_name();
        }
    }

    #[track_caller]
    fn store_name(&self) {
        if self.inner.is_linked() {
            self.inner.set_linked(false);
            self.store(EventKind::Store, self.name(), 1);
        }
    }

    /// Makes the name durable.
    #[track_caller]
    pub(crate) fn sync_directory(&self) {
        self.store_name();
        let name = self.name();
        let until = name as u64 + 8;
        self.inner.record(EventKind::WriteBack, name as u32, until, 0, Location::caller());
    }
}
