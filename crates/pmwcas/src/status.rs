//! The status word of a descriptor: the whole outcome of an operation in 8 bytes.
//!
//! ```text
//!  63                     12 | 11         4 |  3   | 2   0
//!     stamp, or floor (52)   | incarnation  | owns | state
//! ```
//!
//! The low bits of the incarnation tie entries to their status: a crash in the middle of a descriptor's reuse
//! leaves entries of one incarnation under the status of another, and recovery ignores them. `owns` says that
//! the descriptor owns blocks of memory. The allocator's tickets look at this bit and the incarnation
//! together, so one store of this word takes over or gives up all blocks of an operation at once.

/// The state of an operation, with its number in the status word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No operation, or one that is over.
    Void = 0,
    /// Pointers are being installed; the words still have their old values.
    Undecided = 1,
    /// Successful, but not yet durably so: a crash could still take the operation back.
    Succeeded = 2,
    /// Durably successful: the words have their new values.
    Committed = 3,
    /// Failed: the words have their old values.
    Failed = 4,
}

/// A status word, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) state: State,
    /// `true` if the descriptor owns blocks.
    pub(crate) owns: bool,
    /// The low bits of the incarnation.
    pub(crate) low: u64,
    /// `Undecided`: the operation's stamp will be greater. `Succeeded`, `Committed`: its stamp.
    pub(crate) stamp: u64,
}

const STATE_MASK: u64 = 0b111;
const OWNS: u64 = 1 << 3;
const LOW_SHIFT: u32 = 4;
const LOW_MASK: u64 = 0xff;
const STAMP_SHIFT: u32 = 12;

/// The bits of a stamp.
pub(crate) const STAMP_MASK: u64 = u64::MAX >> STAMP_SHIFT;
/// The largest stamp that a pool is opened with. Ten million operations a second reach it after seven years,
/// and the last possible stamp after fourteen.
pub(crate) const LAST_STAMP: u64 = 1 << 51;
/// An upper bound on how far a stamp can be ahead of the horizon: no descriptor is used twice in between, and
/// a descriptor takes only a few stamps for each thread.
pub(crate) const MOST_AHEAD: u64 = 1 << 32;

/// Returns the low bits of an incarnation, as the status and the entries hold them.
pub(crate) const fn low_of(seq: u64) -> u64 {
    seq & LOW_MASK
}

impl Status {
    /// The bits by which the allocator tells whether the descriptor owns its blocks.
    pub(crate) const OWNER_MASK: u64 = OWNS | LOW_MASK << LOW_SHIFT;

    /// Returns the value of those bits while incarnation `seq` owns blocks.
    pub(crate) const fn owner_bits(seq: u64) -> u64 {
        OWNS | low_of(seq) << LOW_SHIFT
    }

    /// Returns `true` if the owner bits begin anew with incarnation `seq`, the next one that is published after that of
    /// this status: once after each that has some bits, and not after the next one that has the same.
    pub(crate) const fn begins_anew(self, seq: u64) -> bool {
        low_of(seq) <= self.low
    }

    pub(crate) const fn new(state: State, seq: u64, owns: bool, stamp: u64) -> Self {
        Self { state, owns, low: low_of(seq), stamp }
    }

    /// Returns the same operation in another state.
    pub(crate) const fn to(self, state: State, stamp: u64) -> Self {
        Self { state, stamp, ..self }
    }

    /// Returns the status of the retired descriptor: it owns nothing, and nothing is pending.
    pub(crate) const fn void(self) -> Self {
        Self { state: State::Void, owns: false, stamp: 0, ..self }
    }

    pub(crate) const fn unpack(word: u64) -> Self {
        let state = match word & STATE_MASK {
            1 => State::Undecided,
            2 => State::Succeeded,
            3 => State::Committed,
            4 => State::Failed,
            _ => State::Void,
        };
        Self {
            state,
            owns: word & OWNS != 0,
            low: word >> LOW_SHIFT & LOW_MASK,
            stamp: word >> STAMP_SHIFT,
        }
    }

    /// Returns `true` if an operation can have left this word on the medium when the horizon is `horizon`.
    pub(crate) const fn is_possible(word: u64, horizon: u64) -> bool {
        let status = Self::unpack(word);
        let is_state = word & STATE_MASK <= State::Failed as u64;
        is_state
            && status.stamp <= horizon + MOST_AHEAD
            && match status.state {
                State::Void => status.stamp == 0 && !status.owns,
                State::Failed => status.stamp == 0,
                State::Undecided | State::Succeeded | State::Committed => true,
            }
    }

    pub(crate) const fn pack(self) -> u64 {
        let owns = if self.owns { OWNS } else { 0 };
        self.state as u64 | owns | self.low << LOW_SHIFT | self.stamp << STAMP_SHIFT
    }

    /// Returns `true` if the status belongs to incarnation `seq`.
    pub(crate) const fn is_of(self, seq: u64) -> bool {
        self.low == low_of(seq)
    }

    /// Returns `true` if the operation succeeded (durably or not yet).
    pub(crate) const fn took_place(self) -> bool {
        matches!(self.state, State::Succeeded | State::Committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_packing_and_owner_bits_follow_the_incarnation() {
        let all =
            [State::Void, State::Undecided, State::Succeeded, State::Committed, State::Failed];
        for state in all {
            for (seq, owns, stamp) in [(0, false, 0), (0x1ff, true, (1 << 52) - 1), (7, true, 9)] {
                let status = Status::new(state, seq, owns, stamp);
                assert_eq!(Status::unpack(status.pack()), status);
                assert_eq!(
                    status.pack() & Status::OWNER_MASK == Status::owner_bits(seq),
                    owns,
                    "{status:?}"
                );
                assert_ne!(status.void().pack() & Status::OWNER_MASK, Status::owner_bits(seq));
            }
        }
    }
}
