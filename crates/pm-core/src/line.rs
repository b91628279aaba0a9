//! Cache lines: the only cache-line arithmetic in the workspace.

/// Bytes in a cache line, the unit of a flush.
pub const LINE: usize = 64;

/// The lines that `len` bytes from `start` touch, as `start address of line` values.
///
/// `len == 0` touches no line.
#[inline(always)]
pub fn lines_of(start: usize, len: usize) -> impl Iterator<Item = usize> + Clone {
    let first = start & !(LINE - 1);
    let end = if len == 0 { first } else { start + len };
    (first..end).step_by(LINE)
}

/// An address in each line of `target`; a loop that the compiler unrolls.
#[inline(always)]
pub(crate) fn lines_in<T>(target: &T) -> impl Iterator<Item = *const u8> {
    let start = core::ptr::from_ref(target).cast::<u8>();
    let last = size_of::<T>().saturating_sub(1);
    // An object that is not aligned to lines may reach into one more than its size tells.
    let extra = (align_of::<T>() < LINE && last > 0).then(|| start.wrapping_add(last));
    (0..size_of::<T>()).step_by(LINE).map(move |offset| start.wrapping_add(offset)).chain(extra)
}

#[cfg(test)]
mod tests {
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
        let words = [const { PmU64::new(0) }; 64];
        for start in 0..40 {
            let target: &[PmU64; 20] = words[start..].first_chunk().expect("20 of 64 words");
            let from = core::ptr::from_ref(target).addr();
            let want: std::collections::BTreeSet<usize> = lines_of(from, 160).collect();
            let got: std::collections::BTreeSet<usize> =
                lines_in(target).map(|p| p.addr() / LINE * LINE).collect();
            assert_eq!(got, want);
        }
    }
}
