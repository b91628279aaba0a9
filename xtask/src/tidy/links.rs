//! Rules: relative links of Markdown files have targets, including headings. A Markdown file that is part of
//! a crate's documentation has no relative links, because rustdoc's pages are elsewhere, except for those
//! that are defined at its end (`[label]: target`) and, before it, by the crate. A macro's docs have no links to
//! `$crate`, because comments are not expanded.

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
            if !anchor.is_empty() && page.is_some_and(|page| !has_heading(files, page, anchor)) {
                complaints.push(format!("{}:{line}: no heading for #{anchor}", file.path));
            }
        }
    }
    complaints.extend(included(files));
    complaints.extend(files.iter().filter(|file| file.is_rust()).flat_map(unexpanded));
    complaints
}

/// Returns the links of doc comments that begin with a macro's `$crate`.
fn unexpanded(file: &File) -> impl Iterator<Item = String> {
    let dead = |(_, line): &(usize, &str)| line.starts_with("///") && line.contains("]($crate");
    let lines = (1..).zip(file.text.lines().map(str::trim_start)).filter(dead);
    lines.map(|(line, _)| {
        format!("{}:{line}: comments do not expand $crate: name the crate in the link", file.path)
    })
}

/// Returns the relative links of the files that `#[doc = include_str!("...")]` makes pages of rustdoc.
fn included(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for path in pages_of(file) {
            let Some(page) = files.iter().find(|page| page.path == path) else { continue };
            let defined = |label: &str| file.text.contains(&format!("[{label}]: "));
            let dead = inline(&page.text).chain(
                definitions(&page.text)
                    .filter(|(_, label, _)| !defined(label))
                    .map(|(line, _, target)| (line, target)),
            );
            for (line, target) in dead {
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

/// Returns the Markdown files that are pages of rustdoc by this source, not of its tests alone.
pub(super) fn pages_of(source: &File) -> impl Iterator<Item = String> {
    included_by(source).filter(|(_, tested)| !tested).map(|(path, _)| path)
}

/// Returns the Markdown files that this source includes, with `true` for those that only tests see.
pub(super) fn included_by(source: &File) -> impl Iterator<Item = (String, bool)> {
    let mut before = "";
    source.text.lines().filter_map(move |line| {
        let tested = before == "#[cfg(doctest)]";
        before = line.trim();
        let doc = before.strip_prefix("#![doc").or(before.strip_prefix("#[doc"))?;
        let path = doc.strip_prefix(" = include_str!(\"")?.strip_suffix("\")]")?;
        Some((join(&source.path, path), tested))
    })
}

/// Returns the targets of links outside of code, with their lines.
pub(super) fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    inline(text).chain(definitions(text).map(|(line, _, target)| (line, target)))
}

/// Returns the targets of `[text](target)`.
fn inline(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        // Pieces with even numbers are outside of backquotes.
        line.split('`').step_by(2).flat_map(move |piece| {
            piece.match_indices("](").map(move |(at, _)| {
                (number, piece[at + 2..].split([')', ' ']).next().unwrap_or_default())
            })
        })
    })
}

/// Returns the label and target of lines `[label]: target`.
fn definitions(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    prose(text).filter_map(|(number, line)| {
        let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((number, label, target.trim()))
    })
}

/// Returns the lines outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((number + 1, line))
    })
}

/// Returns the paths in lines `{{#include path}}`, with which mdBook includes another file in a page.
pub(super) fn includes(page: &File) -> impl Iterator<Item = (usize, String)> {
    page.text.lines().enumerate().filter_map(|(number, line)| {
        let path = line.strip_prefix("{{#include ")?.strip_suffix("}}")?;
        Some((number + 1, join(&page.path, path)))
    })
}

/// Returns `target` relative to the folder of `file`.
pub(super) fn join(file: &str, target: &str) -> String {
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

fn has_heading(files: &[File], page: &File, anchor: &str) -> bool {
    let here = page.text.lines().filter(|line| line.starts_with('#'));
    let parts = || includes(page).filter_map(|(_, path)| files.iter().find(|f| f.path == path));
    here.map(slug).any(|slug| slug == anchor)
        || parts().any(|part| part.path != page.path && has_heading(files, part, anchor))
}

/// Returns the anchor of a heading: lower case, without punctuation, with dashes for blanks.
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
    fn a_link_that_the_crate_defines_too_is_none_that_is_dead() {
        let page = file("docs/a.md", "[b] [c]\n\n[b]: b.md\n[c]: c.md\n");
        let source = file(
            "src/lib.rs",
            "#[doc = \"[b]: crate::b\\n\"]\n#[doc = include_str!(\"../docs/a.md\")]\npub mod a {}\n\
             #[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]\nstruct Readme;\n",
        );
        let others = ["docs/b.md", "docs/c.md"].map(|path| file(path, ""));
        let readme = file("README.md", "[x](docs/a.md)\n");
        let complaints = check(&[&[page, source, readme][..], &others].concat());
        assert_eq!(complaints, ["docs/a.md:4: c.md is dead on rustdoc's page (src/lib.rs)"]);
    }

    #[test]
    fn a_macros_docs_name_the_crate() {
        let source = file("src/a.rs", "m! {\n    /// [x](pmindex::x)\n    /// [x]($crate::x)\n}\n");
        let complaints = check(&[source]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].starts_with("src/a.rs:3: "), "{}", complaints[0]);
    }

    #[test]
    fn headings_are_found_in_what_a_page_includes() {
        let page = file("docs/book/a.md", "{{#include ../b.md}}\n[x](#there) [y](#not-there)\n");
        let part = file("docs/b.md", "# There\n");
        assert_eq!(check(&[page, part]), ["docs/book/a.md:2: no heading for #not-there"]);
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
