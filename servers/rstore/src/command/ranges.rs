//! Ranges by position, as `GETRANGE`, `LRANGE` and `ZRANGE` use them: negative positions count from the end.

use std::ops::Range;

/// Returns the positions from `start` to `end`, both included, within `length`; `None` if the range is empty.
pub(crate) fn clamp(start: i64, end: i64, length: usize) -> Option<Range<usize>> {
    let length = i64::try_from(length).ok()?;
    let place = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let (start, end) = (place(start).max(0), place(end).min(length - 1));
    if start > end || start >= length {
        return None;
    }
    let index = |number: i64| usize::try_from(number).unwrap_or(0);
    Some(index(start)..index(end) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_positions_count_from_the_end() {
        assert_eq!(clamp(0, -1, 3), Some(0..3));
        assert_eq!(clamp(-2, 10, 3), Some(1..3));
        assert_eq!(clamp(-10, 0, 3), Some(0..1));
        assert_eq!(clamp(2, 1, 3), None);
        assert_eq!(clamp(-1, -4, 1), None);
        assert_eq!(clamp(3, 5, 3), None);
        assert_eq!(clamp(0, -1, 0), None);
        assert_eq!(clamp(i64::MIN, i64::MAX, 2), Some(0..2));
    }
}
