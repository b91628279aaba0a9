//! When leaves with few records merge: one rule for all trees.

/// Whether a leaf of `slots` slots from which a record was removed, with `left` of them being left, looks
/// for a neighbour with which it has `most` records at most: not every time, for to look takes about as
/// long as to remove a record of 8-byte keys.
#[inline(always)]
pub(crate) const fn is_time_to_look(slots: usize, most: usize, left: usize) -> bool {
    let every = if slots < 24 { 1 } else { slots / 12 };
    left < most && left.is_multiple_of(every)
}
