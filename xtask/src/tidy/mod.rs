//! `cargo xtask tidy`: checks house rules that no compiler checks.
//!
//! Each rule is a function from the files of the repository to complaints. Every complaint names the file, if
//! possible the line, and what to do. All complaints are printed, then the run fails.

mod book;
mod duplicates;
mod edges;
mod files;
mod format;
mod guarantees;
mod links;
mod macros;
mod names;
mod packages;
mod source;
mod supply;
mod wording;

use crate::shell;

/// A tracked text file.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct File {
    /// Its path from the root of the workspace, with `/`.
    path: String,
    /// Its content.
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.extension() == Some("rs")
    }

    fn is_markdown(&self) -> bool {
        self.extension() == Some("md")
    }

    fn extension(&self) -> Option<&str> {
        self.path.rsplit('/').next()?.rsplit_once('.').map(|(_, extension)| extension)
    }

    /// Returns `true` for data that others wrote: word lists, recorded test cases.
    fn is_foreign(&self) -> bool {
        self.path.contains("/data/") || self.path.ends_with(".proptest-regressions")
    }
}

/// Applies every rule to every file that git tracks or would add.
pub(crate) fn run() -> Result<(), String> {
    eprintln!("\n== tidy");
    let files = read_files()?;
    let mut complaints = Vec::new();
    complaints.extend(files::check(&files));
    complaints.extend(source::check(&files));
    complaints.extend(macros::check(&files));
    complaints.extend(names::check(&files));
    complaints.extend(links::check(&files));
    complaints.extend(book::check(&files));
    complaints.extend(guarantees::check(&files));
    complaints.extend(wording::check(&files));
    complaints.extend(format::check(&files));
    complaints.extend(duplicates::check(&files, include_str!("duplicates.txt")));
    complaints.extend(edges::check(&edges::read()?));
    complaints.extend(packages::check(&packages::read()?));
    let rules = files.iter().find(|file| file.path == "deny.toml");
    let rules = rules.map_or("", |file| file.text.as_str());
    complaints.extend(supply::check(&supply::read()?, rules));
    complaints.extend(supply::check_foreign(&supply::read_foreign()?));
    for complaint in &complaints {
        println!("{complaint}");
    }
    match complaints.len() {
        0 => {
            println!("tidy: {} files, nothing to complain about", files.len());
            Ok(())
        }
        1 => Err("tidy: one complaint, above".into()),
        n => Err(format!("tidy: {n} complaints, listed above")),
    }
}

/// Returns every text file that git tracks or would add, without binary files.
fn read_files() -> Result<Vec<File>, String> {
    let list = shell::output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let root = shell::root();
    let mut files = Vec::new();
    for path in list.lines() {
        // Skip deleted files that are still listed, and images of pools, which are not text.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        let Ok(text) = String::from_utf8(bytes) else { continue };
        files.push(File { path: path.into(), text });
    }
    if files.is_empty() {
        return Err("tidy: git lists no files here".into());
    }
    Ok(files)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}
