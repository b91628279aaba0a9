//! The replicated state machine.

use crate::StateError;

/// The result of reading a part of a [`View`](State::View).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// There may be more.
    More,
    /// This is the last part.
    Last,
    /// The view has ended before everything was read: the state needed its space.
    Ended,
}

/// A state machine: applies entries in order, and knows the index of the last durable one.
///
/// After a crash some of the last entries are applied again, which must lead to the same state as applying
/// them once.
pub trait State {
    /// A view of the state at a moment.
    type View;

    /// Returns the index of the last entry that is durable, together with all before it.
    fn applied(&self) -> u64;

    /// Applies an entry; durable after [`commit`](Self::commit). Returns `false` if there is no room for it:
    /// then the replica tries it again later, before any other entry. A part of it may be applied already.
    ///
    /// # Errors
    /// A failure ends this replica: the entry is committed, so it cannot be skipped.
    fn apply(&mut self, index: u64, data: &[u8]) -> Result<bool, StateError>;

    /// Makes the applied entries up to this index durable; the index becomes durable with them or after them. Returns
    /// `false` if there is no room for that: then the replica tries it again later, keeps these entries in its log, and
    /// may apply others meanwhile.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn commit(&mut self, applied: u64) -> Result<bool, StateError>;

    /// Returns a view of the state at its last commit, from which a snapshot is read while other entries are
    /// applied. Dropping it ends it.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn view(&mut self) -> Result<Self::View, StateError>;

    /// Appends the next records of a view to `out`: about this number of bytes, and at most one record more.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn read(
        &mut self,
        view: &mut Self::View,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Part, StateError>;

    /// Begins another state, of this generation, beside this one, in place of what an earlier attempt has
    /// left. Returns `false` if there is no room.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn begin(&mut self, generation: u64) -> Result<bool, StateError>;

    /// Adds the records that one call of [`read`](Self::read) returned to that other state. Returns `false`
    /// if there is no room.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn restore(&mut self, data: &[u8]) -> Result<bool, StateError>;

    /// Completes that other state: durable when it returns, with this index. Returns `false` if there is no
    /// room.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn finish(&mut self, applied: u64) -> Result<bool, StateError>;

    /// Removes the other state, of this generation.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn abandon(&mut self, generation: u64) -> Result<(), StateError>;

    /// Switches to the state of this generation, as the log has recorded durably. Other states can be
    /// removed.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    fn switch(&mut self, generation: u64) -> Result<(), StateError>;
}
