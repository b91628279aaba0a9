//! Rule: no two source files share a run of lines, except for the pairs in `duplicates.txt`.
//!
//! The list has the duplicates from before the rule; it may only shrink. Comments, imports, attributes, lines
//! of brackets and tests do not count.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::File;

/// The number of consecutive lines that two files may not share.
const RUN: usize = 12;

/// Two files, in order.
type Pair<'f> = (&'f str, &'f str);

/// Complains of pairs of files that share more lines than `allowed` says, and of entries that are out
/// of date. An entry is: lines, path, path.
pub(super) fn check(files: &[File], allowed: &str) -> Vec<String> {
    let shared = shared_lines(files);
    let mut complaints = Vec::new();
    let mut listed: BTreeMap<Pair<'_>, usize> = BTreeMap::new();
    for line in allowed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [lines, first, second] = words[..] else {
            complaints.push(format!("duplicates.txt: `{line}` is not lines, path, path"));
            continue;
        };
        let Ok(lines) = lines.parse() else {
            complaints.push(format!("duplicates.txt: `{lines}` is no number"));
            continue;
        };
        if shared.contains_key(&(first, second)) {
            listed.insert((first, second), lines);
        } else {
            complaints.push(format!(
                "duplicates.txt: {first} and {second} share no run any more: drop the entry"
            ));
        }
    }
    for ((first, second), lines) in shared {
        let most = listed.get(&(first, second)).copied().unwrap_or(0);
        let at = lines.first().copied().unwrap_or(0);
        let lines = lines.len();
        if lines > most {
            complaints.push(format!(
                "{first}:{at}: {lines} lines in runs of {RUN} stand in {second}, too ({most} are \
                 allowed): share them"
            ));
        }
    }
    complaints
}

/// Returns, for each pair, the lines of the first file that occur in the second, in runs of [`RUN`] at least.
fn shared_lines(files: &[File]) -> BTreeMap<Pair<'_>, BTreeSet<usize>> {
    let sources: Vec<_> =
        files.iter().filter(|file| counts(file)).map(|file| (&*file.path, code(file))).collect();
    let mut runs: HashMap<Vec<&str>, Vec<(&str, usize, usize)>> = HashMap::new();
    for (source, (path, lines)) in sources.iter().enumerate() {
        for (at, run) in lines.windows(RUN).enumerate() {
            let run = run.iter().map(|(_, text)| *text).collect();
            runs.entry(run).or_default().push((path, source, at));
        }
    }
    let mut shared: BTreeMap<Pair<'_>, BTreeSet<usize>> = BTreeMap::new();
    for places in runs.values() {
        for (i, (first, source, at)) in places.iter().enumerate() {
            for (second, ..) in places[i + 1..].iter().filter(|(second, ..)| second != first) {
                let run = sources[*source].1[*at..][..RUN].iter().map(|(number, _)| *number);
                shared.entry((first, second)).or_default().extend(run);
            }
        }
    }
    shared
}

/// Returns `true` if the rule applies to a file.
fn counts(file: &File) -> bool {
    let source = file.path.starts_with("src/") || file.path.contains("/src/");
    file.is_rust() && source && !file.path.contains("test")
}

/// Returns the lines that count, without indentation, with their numbers.
fn code(file: &File) -> Vec<(usize, &str)> {
    let lines = (1..).zip(file.text.lines().map(str::trim));
    lines
        .take_while(|(_, line)| *line != "#[cfg(test)]")
        .filter(|(_, line)| {
            let passed = ["//", "use ", "#["].iter().any(|start| line.starts_with(start));
            !passed && !line.chars().all(|c| "{}()[];,".contains(c))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    /// Returns a file of numbered lines, with lines that do not count in between.
    fn source(path: &str, numbers: std::ops::Range<usize>) -> File {
        let lines: Vec<String> =
            numbers.map(|n| format!("    line{n}();\n    // {path}\n\n")).collect();
        file(path, &lines.concat())
    }

    #[test]
    fn a_run_that_stands_in_two_files_is_refused() {
        let files = [source("crates/a/src/x.rs", 0..20), source("crates/b/src/x.rs", 8..40)];
        let complaints = check(&files, "");
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        let expected = "crates/a/src/x.rs:25: 12 lines in runs of 12 stand in crates/b/src/x.rs";
        assert!(complaints[0].starts_with(expected), "{complaints:?}");
        for path in ["crates/b/tests/x.rs", "crates/b/src/tests.rs", "crates/b/src/x.md"] {
            let files = [source("crates/a/src/x.rs", 0..20), source(path, 0..20)];
            assert!(check(&files, "").is_empty(), "{path}");
        }
        let files = [source("crates/a/src/x.rs", 0..20), source("crates/b/src/x.rs", 9..40)];
        assert!(check(&files, "").is_empty(), "11 lines");
    }

    #[test]
    fn an_entry_allows_as_many_lines_as_it_says_and_goes_with_them() {
        let files = [source("crates/a/src/x.rs", 0..20), source("crates/b/src/x.rs", 4..40)];
        let entry = |lines| format!("# why\n{lines} crates/a/src/x.rs crates/b/src/x.rs\n");
        assert!(check(&files, &entry(16)).is_empty());
        assert_eq!(check(&files, &entry(15)).len(), 1);
        let complaints = check(&files[..1], &entry(16));
        assert!(complaints[0].contains("drop the entry"), "{complaints:?}");
        assert_eq!(check(&files[..1], "sixteen a\nmany a b").len(), 2);
    }
}
