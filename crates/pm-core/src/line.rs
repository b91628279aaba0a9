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

#[cfg(test)]
mod tests {
    use super::*;

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
}
