//! The rule that decides when leaves with few records merge, for all trees.

/// Returns `true` if a leaf of `slots` slots that has `left` records after a removal looks for a neighbour
/// with which it has at most `most` records: not every time, because looking takes about as
/// long as to remove a record of 8-byte keys.
#[inline(always)]
pub(crate) const fn is_time_to_look(slots: usize, most: usize, left: usize) -> bool {
    let every = if slots < 24 { 1 } else { slots / 12 };
    left < most && left.is_multiple_of(every)
}
