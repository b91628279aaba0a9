//! Rules of the guide as a book (`docs/book`): each chapter is in the table of contents; no link leads out of
//! the book, where it would be dead in HTML; and Rust code is run by the tests, as documentation of some
//! crate. (That links have targets is a rule for all Markdown.)

use super::{File, links};

/// The folder of the chapters.
const FOLDER: &str = "docs/book/src/";
/// The table of contents, which is no chapter.
const CONTENTS: &str = "docs/book/src/SUMMARY.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let contents = files.iter().find(|file| file.path == CONTENTS);
    let listed: Vec<String> = contents
        .iter()
        .flat_map(|contents| links::targets(&contents.text))
        .map(|(_, target)| links::join(CONTENTS, target))
        .collect();
    let tested: Vec<String> = files
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(|file| links::included_by(file).map(|(path, _)| path))
        .collect();
    let chapters = files.iter().filter(|f| f.is_markdown() && f.path.starts_with(FOLDER));
    for chapter in chapters.filter(|chapter| chapter.path != CONTENTS) {
        let path = &chapter.path;
        if !listed.contains(path) {
            complaints.push(format!("{path}: not in {CONTENTS}"));
        }
        if chapter.text.contains("```rust") && !tested.contains(path) {
            complaints.push(format!("{path}: has Rust that no test runs; see src/guide.rs"));
        }
        complaints.extend(links_out(chapter));
        complaints.extend(parts(files, chapter));
    }
    complaints
}

/// Returns complaints about links that lead out of the book.
fn links_out(chapter: &File) -> Vec<String> {
    links::targets(&chapter.text)
        .filter(|(_, target)| !target.contains("://") && !target.starts_with('#'))
        .filter(|(_, target)| !links::join(&chapter.path, target).starts_with(FOLDER))
        .map(|(line, target)| format!("{}:{line}: {target} is not in the book", chapter.path))
        .collect()
}

/// Checks that included files exist, and have only links that work in any place.
fn parts(files: &[File], chapter: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, path) in links::includes(chapter) {
        let Some(part) = files.iter().find(|file| file.path == path) else {
            complaints.push(format!("{}:{line}: {path} is not there", chapter.path));
            continue;
        };
        for (line, target) in links::targets(&part.text) {
            if !target.contains("://") && !target.starts_with('#') {
                let by = &chapter.path;
                complaints.push(format!("{path}:{line}: {target} is dead in the book ({by})"));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    /// A book of one chapter that says this, and a page outside.
    fn book(chapter: &str) -> Vec<File> {
        vec![
            file(CONTENTS, "[A](a.md)\n"),
            file("docs/book/src/a.md", chapter),
            file("docs/other.md", "# Other\n[x](book/book.toml)\n"),
        ]
    }

    #[test]
    fn a_chapter_that_is_not_listed_is_found() {
        let mut files = book("# A\n[B](b.md)\n");
        files.push(file("docs/book/src/b.md", "# B\n"));
        let contents = format!("docs/book/src/b.md: not in {CONTENTS}");
        assert_eq!(check(&files), [contents]);
    }

    #[test]
    fn links_out_of_the_book_and_lost_parts_are_found() {
        let complaints = check(&book(
            "[x](../../other.md) [y](#z) [z](https://a.b)\n{{#include none.md}}\n[w]: ../book.toml\n",
        ));
        assert_eq!(
            complaints,
            [
                "docs/book/src/a.md:1: ../../other.md is not in the book",
                "docs/book/src/a.md:3: ../book.toml is not in the book",
                "docs/book/src/a.md:2: docs/book/src/none.md is not there",
            ]
        );
        let complaints = check(&book("{{#include ../../other.md}}\n"));
        assert_eq!(
            complaints,
            ["docs/other.md:2: book/book.toml is dead in the book (docs/book/src/a.md)"]
        );
    }

    #[test]
    fn rust_that_no_test_runs_is_found() {
        let mut files = book("```rust\nassert!(true);\n```\n");
        assert_eq!(check(&files).len(), 1);
        files.push(file("src/guide.rs", "#[doc = include_str!(\"../docs/book/src/a.md\")]\n"));
        assert_eq!(check(&files), Vec::<String>::new());
    }
}
