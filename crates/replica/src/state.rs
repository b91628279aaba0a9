//! What is replicated.

use crate::StateError;

/// A state machine: it changes by entries, in their order, and says how far it has come.
///
/// Replaying entries that it has applied must lead to the same state as applying them once: after a crash
/// a few of the last ones come again.
pub trait State {
    /// The index of the last entry that is durable, and of all before it.
    fn applied(&self) -> u64;

    /// Applies an entry. It is durable at [`commit`](Self::commit).
    ///
    /// # Errors
    /// A failure is the end of this replica: entries are agreed on, and there is no other way on.
    fn apply(&mut self, index: u64, data: &[u8]) -> Result<(), StateError>;

    /// Makes durable what was applied, up to this index, and the index with it or after it.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn commit(&mut self, applied: u64) -> Result<(), StateError>;

    /// The whole state at its last commit, as bytes.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn snapshot(&mut self) -> Result<Vec<u8>, StateError>;

    /// Makes another state from a snapshot, beside this one: durable when it returns, with this index. What
    /// another attempt has left of a state of this generation goes first.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn restore(&mut self, generation: u64, applied: u64, data: &[u8]) -> Result<(), StateError>;

    /// Is the state of this generation from now on: the log says so, durably. Others can go.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn switch(&mut self, generation: u64) -> Result<(), StateError>;
}
