//! Rules: relative links of Markdown files lead somewhere, headings included; a Markdown file that is part
//! of a crate's documentation has none, because rustdoc's pages lie elsewhere.

use super::File;
use crate::shell;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let exists = |path: &str| {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        files.iter().any(|f| f.path == path || f.path.starts_with(&folder))
            || shell::root().join(path).exists()
    };
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| f.is_markdown() && !f.is_foreign()) {
        for (line, target) in targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let resolved = if path.is_empty() { file.path.clone() } else { join(&file.path, path) };
            if !exists(&resolved) {
                complaints.push(format!("{}:{line}: link to {target} leads nowhere", file.path));
                continue;
            }
            let page = files.iter().find(|f| f.path == resolved && f.is_markdown());
            if !anchor.is_empty() && page.is_some_and(|page| !has_heading(&page.text, anchor)) {
                complaints.push(format!("{}:{line}: no heading for #{anchor}", file.path));
            }
        }
    }
    complaints.extend(included(files));
    complaints
}

/// Relative links of the files that `#![doc = include_str!("...")]` makes pages of rustdoc.
fn included(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let includes = file.text.lines().filter_map(|line| {
            line.trim().strip_prefix("#![doc = include_str!(\"")?.strip_suffix("\")]")
        });
        for included in includes {
            let path = join(&file.path, included);
            let page = files.iter().find(|page| page.path == path);
            for (line, target) in page.map(|page| targets(&page.text)).unwrap_or_default() {
                if !target.contains("://") && !target.starts_with(['#', '@']) {
                    let by = &file.path;
                    complaints
                        .push(format!("{path}:{line}: {target} is dead on rustdoc's page ({by})"));
                }
            }
        }
    }
    complaints
}

/// The targets of `[text](target)` outside code, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Even pieces lie outside backquotes.
        for piece in line.split('`').step_by(2) {
            for (at, _) in piece.match_indices("](") {
                let target = piece[at + 2..].split([')', ' ']).next().unwrap_or_default();
                found.push((number + 1, target));
            }
        }
    }
    found
}

/// `target` as seen from the folder of `file`.
fn join(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_heading(text: &str, anchor: &str) -> bool {
    text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor)
}

/// The anchor a heading gets: lower case, punctuation dropped, blanks as dashes.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn links_are_followed_from_the_folder_of_their_page() {
        let page = file("docs/a.md", "# Top part!\n[x](b.md) [y](../crates/) [z](#top-part)\n");
        let other = file("docs/b.md", "text\n");
        let source = file("crates/x/src/lib.rs", "");
        assert_eq!(check(&[page, other, source]), Vec::<String>::new());
    }

    #[test]
    fn what_rustdoc_shows_has_no_relative_links() {
        let page = file("docs/a.md", "[x](b.md)\n[y](#top)\n[z](https://a.b)\n# Top\n");
        let other = file("docs/b.md", "[x](a.md)\n");
        let source = file("src/lib.rs", "#![doc = include_str!(\"../docs/a.md\")]\n");
        let complaints = check(&[page, other, source]);
        assert_eq!(complaints, ["docs/a.md:1: b.md is dead on rustdoc's page (src/lib.rs)"]);
    }

    #[test]
    fn dead_links_and_headings_are_found_and_code_is_left_alone() {
        let page = file(
            "docs/a.md",
            "[x](nowhere.md)\n`[y](code.md)`\n```\n[z](code.md)\n```\n[w](#none)\n[v](https://a.b)\n",
        );
        let complaints = check(&[page]);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].starts_with("docs/a.md:1:"));
        assert!(complaints[1].starts_with("docs/a.md:6:"));
    }
}
