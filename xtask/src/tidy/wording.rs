//! Rule: the repository describes the software: it contains no paths of one machine, and no story of a
//! change. A comment says what holds; the commit message says why it changed.

use super::File;

/// First folders of paths that exist on one machine only.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "work", "farm", "Users"];

/// The markers that git leaves in a conflict.
const MARKERS: &[&str] = &["<<<<<<< ", ">>>>>>> "];

/// Phrases that tell the story of a change.
const STORY: &[&str] = &[
    "this session",
    "last session",
    "previous session",
    "colleague",
    "the brief",
    "as requested",
    "as instructed",
    "language model",
    "subagent",
];

pub(super) fn check(files: &[File]) -> Vec<String> {
    let folders: Vec<String> = MACHINE_FOLDERS.iter().map(|name| format!("/{name}/")).collect();
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| !f.is_foreign() && f.path != "Cargo.lock") {
        if file.path.starts_with("xtask/src/tidy/wording") {
            continue; // names what it forbids
        }
        for (number, line) in file.text.lines().enumerate() {
            let at = number + 1;
            if let Some(folder) = folders.iter().find(|folder| is_path(line, folder)) {
                complaints.push(format!("{}:{at}: a machine's path, {folder}", file.path));
            }
            if MARKERS.iter().any(|marker| line.starts_with(marker)) {
                complaints.push(format!("{}:{at}: a merge that was not finished", file.path));
            }
            let lower = line.to_lowercase();
            if let Some(phrase) = STORY.iter().find(|phrase| lower.contains(**phrase)) {
                complaints.push(format!("{}:{at}: {phrase:?} is no property of code", file.path));
            }
        }
    }
    complaints
}

/// Returns `true` if `folder` begins a path in this line: `/x/`, not `target/x/` or `https://host/x/`.
fn is_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        line[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !"._-}*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_merge_that_was_not_finished_is_found() {
        let merged = file("a.md", "one\n<<<<<<< HEAD\ntwo\n=======\nthree\n>>>>>>> 1\n");
        assert_eq!(check(&[merged]).len(), 2);
    }

    #[test]
    fn absolute_paths_of_a_machine_are_found() {
        assert!(is_path("cd /home/x", "/home/"));
        assert!(is_path("\"/home/x\"", "/home/"));
        assert!(!is_path("https://example.org/home/x", "/home/"));
        assert!(!is_path("crates/home/x", "/home/"));
    }

    #[test]
    fn stories_are_found_in_any_case() {
        let complaints = check(&[file("a.md", "Fine.\nAs Requested, it grows.\n")]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].starts_with("a.md:2:"));
    }
}
