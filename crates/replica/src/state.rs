//! The replicated state machine.

use crate::StateError;

/// A state machine: applies entries in order, and knows the index of the last durable one.
///
/// After a crash some of the last entries are applied again, which must lead to the same state as applying
/// them once.
pub trait State {
    /// Returns the index of the last entry that is durable, together with all before it.
    fn applied(&self) -> u64;

    /// Applies an entry. It is durable after [`commit`](Self::commit).
    ///
    /// # Errors
    /// A failure ends this replica: the entry is committed, so it cannot be skipped.
    fn apply(&mut self, index: u64, data: &[u8]) -> Result<(), StateError>;

    /// Makes the applied entries up to this index durable; the index becomes durable with them or after them.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn commit(&mut self, applied: u64) -> Result<(), StateError>;

    /// Returns the whole state at its last commit, as bytes.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn snapshot(&mut self) -> Result<Vec<u8>, StateError>;

    /// Creates another state from a snapshot, beside this one: durable when it returns, with this index.
    /// First removes what an earlier attempt has left of a state of this generation.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn restore(&mut self, generation: u64, applied: u64, data: &[u8]) -> Result<(), StateError>;

    /// Switches to the state of this generation, as the log has recorded durably. Other states can be
    /// removed.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn switch(&mut self, generation: u64) -> Result<(), StateError>;
}
