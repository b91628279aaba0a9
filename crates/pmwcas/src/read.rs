//! Reading a target word.
//!
//! A read executes no fence, no flush and no locked instruction. It neither waits for an operation nor helps
//! one:
//!
//! * A plain value is as good as durable: it is stored only after its operation's outcome was durable, and
//!   the durable descriptor holds the value until the word itself is durable.
//! * A pointer means the old value until the operation is `Committed` and the new value from then on.
//!   `Committed` is stored when the outcome is durable and all words have their pointers. A tentative pointer
//!   always means the old value.
//!
//! The reader protects nothing while it looks into a descriptor. If it finds the heading of another
//! incarnation afterwards, the word has changed since, and the reader starts again.

use pmindex_core::PmError;

use crate::mwcas::Mwcas;
use crate::primitive::{Medium, PmCell, PmU64, Word};
use crate::status::State;
use crate::word::{Content, MAX_VALUE, Pointer};

impl<M: Medium> Mwcas<M> {
    /// Reads a word that operations may be changing. Never returns a value that a crash could take back.
    ///
    /// # Cost
    /// One load; up to five more if an operation's pointer is in the word. No flush, no fence.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the word holds a value that no operation stores.
    #[inline]
    pub fn read<W: Word>(&self, cell: &PmCell<W>) -> Result<W, PmError> {
        let word = self.pool.pm().load(cell.as_word());
        if word <= MAX_VALUE {
            return Ok(W::from_word(word));
        }
        self.read_through(cell.as_word(), word).map(W::from_word)
    }

    #[cold]
    fn read_through(&self, cell: &PmU64, mut word: u64) -> Result<u64, PmError> {
        let pm = self.pool.pm();
        let corrupt =
            || PmError::Corrupt { what: "a target word", offset: self.pool.pptr(cell).offset() };
        loop {
            let pointer = match Content::of(word) {
                Content::Value(value) => return Ok(value),
                Content::Pointer(pointer) => pointer,
            };
            if let Some(value) = self.value_behind(pointer)? {
                return Ok(value);
            }
            // The descriptor is in another incarnation, so the word has changed and this pointer never comes
            // back: if the word still holds it, no operation stored it.
            let again = pm.load(cell);
            if again == word {
                return Err(corrupt());
            }
            word = again;
        }
    }

    /// Returns a value that the word with this pointer held at some moment since the pointer was loaded;
    /// `None` if the descriptor was reused.
    fn value_behind(&self, pointer: Pointer) -> Result<Option<u64>, PmError> {
        let pm = self.pool.pm();
        let slot = self.slot(pointer.slot())?;
        let status = slot.load_status(pm);
        let Some((old, new)) = slot.load_values(pm, pointer.entry()) else {
            return Ok(None);
        };
        // Reuse of a descriptor writes the heading first: if the old one is still there, everything loaded
        // before it was the old incarnation's (Acquire loads, Release stores).
        let same = slot.load_heading(pm).seq == pointer.seq();
        if !same || status.state == State::Void || !status.is_of(pointer.seq()) {
            return Ok(None);
        }
        let new_counts = pointer.is_full() && status.state == State::Committed;
        Ok(Some(if new_counts { new } else { old }))
    }
}
