//! Rule: no Rust file is longer than a reader can keep in mind.

use super::File;

/// The lines that a file may have; 400 is typical.
const CEILING: usize = 800;

pub(super) fn check(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.is_rust())
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > CEILING)
        .map(|(file, lines)| {
            format!("{}: {lines} lines, {CEILING} at most: one concept per file", file.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn one_line_too_many_is_too_many() {
        let full = file("a/src/b.rs", &"x\n".repeat(CEILING));
        let over = file("a/src/c.rs", &"x\n".repeat(CEILING + 1));
        let prose = file("a.md", &"x\n".repeat(CEILING + 1));
        let complaints = check(&[full, over, prose]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].starts_with("a/src/c.rs: 801 lines"));
    }
}
