//! Cache lines: the only cache-line arithmetic in the workspace.

/// Bytes in a cache line, the unit of a flush.
pub const LINE: usize = 64;

/// Returns the lines that `len` bytes from `start` touch, as `start address of line` values.
///
/// `len == 0` touches no line.
#[inline(always)]
pub fn lines_of(start: usize, len: usize) -> impl Iterator<Item = usize> + Clone {
    let first = start & !(LINE - 1);
    let end = if len == 0 { first } else { start + len };
    (first..end).step_by(LINE)
}

/// Visits an address in each line of `target`. The loop has a constant, small number of rounds, so it is
/// unrolled: a prefetch pays only if it costs next to nothing.
#[inline(always)]
pub(crate) fn for_each_line_in<T>(target: &T, mut visit: impl FnMut(*const u8)) {
    let start = core::ptr::from_ref(target).cast::<u8>();
    let mut offset = 0;
    while offset < size_of::<T>() {
        visit(start.wrapping_add(offset));
        offset += LINE;
    }
    // An object that is not aligned to lines may touch one line more than its size needs.
    if align_of::<T>() < LINE && size_of::<T>() > align_of::<T>() {
        visit(start.wrapping_add(size_of::<T>() - 1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cell::PmU64;

    #[test]
    fn lines_of_covers_exactly_the_touched_lines() {
        for start in 0..200usize {
            for len in 0..300usize {
                let want: std::collections::BTreeSet<usize> =
                    (start..start + len).map(|b| b / LINE * LINE).collect();
                let got: Vec<usize> = lines_of(start, len).collect();
                assert_eq!(got, want.into_iter().collect::<Vec<_>>(), "start {start} len {len}");
            }
        }
    }

    #[test]
    fn lines_in_names_every_line_of_an_object_wherever_it_lies() {
        fn check<const N: usize>(words: &[PmU64]) {
            for start in 0..40 {
                let target: &[PmU64; N] = words[start..].first_chunk().expect("enough words");
                let from = core::ptr::from_ref(target).addr();
                let want: BTreeSet<usize> = lines_of(from, 8 * N).collect();
                let mut got = BTreeSet::new();
                for_each_line_in(target, |p| _ = got.insert(p.addr() / LINE * LINE));
                assert_eq!(got, want);
            }
        }
        let words = [const { PmU64::new(0) }; 64];
        check::<1>(&words);
        check::<2>(&words);
        check::<8>(&words);
        check::<20>(&words);
    }
}
