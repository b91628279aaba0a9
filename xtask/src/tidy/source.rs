//! Rules for Rust sources: every file has a module doc, and `unsafe` stands in [`UNSAFE_PLACES`] only.

use super::File;

/// The places that may contain `unsafe`; all other crates forbid it. In the C interface it is the one file
/// that converts pointers of C to values of Rust.
const UNSAFE_PLACES: &[&str] =
    &["crates/pm-core/", "crates/pmem-rs/", "crates/capi/src/boundary.rs"];

/// A crate that cannot forbid it, since its exported symbols have the attribute `unsafe(no_mangle)`; it
/// denies it, and this rule checks the rest.
const DENYING: &str = "crates/capi/src/lib.rs";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| f.is_rust() && !is_compile_test(f)) {
        if !starts_with_docs(&file.text) {
            complaints.push(format!("{}: no `//!` module doc at the top", file.path));
        }
        if UNSAFE_PLACES.iter().any(|prefix| file.path.starts_with(prefix)) {
            continue;
        }
        let how = if file.path == DENYING { "deny" } else { "forbid" };
        if is_crate_root(&file.path) && !file.text.contains(&format!("#![{how}(unsafe_code)]")) {
            complaints.push(format!("{}: no `#![{how}(unsafe_code)]`", file.path));
        }
        for (number, line) in file.text.lines().enumerate() {
            if has_unsafe(line) {
                let at = number + 1;
                complaints.push(format!("{}:{at}: `unsafe` does not belong here", file.path));
            }
        }
    }
    complaints
}

/// Returns `true` for inputs of compile-fail tests, which are fragments.
fn is_compile_test(file: &File) -> bool {
    ["tests/compile/words/", "tests/compile/encodings/"]
        .iter()
        .any(|dir| file.path.starts_with(dir))
}

/// Returns `true` if the first line that is neither blank nor an inner attribute is a module doc.
fn starts_with_docs(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!["))
        .is_some_and(|line| line.starts_with("//!"))
        || text.contains("#![doc = include_str!(")
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/")
}

/// Returns `true` if a line of code, without comments and strings, uses the keyword.
fn has_unsafe(line: &str) -> bool {
    let code: String = line.split('"').step_by(2).collect();
    let code = code.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern"].iter().any(|form| {
        code.match_indices(form).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && !"_`".contains(c))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn module_docs_may_follow_attributes_but_must_be_there() {
        assert!(starts_with_docs("//! What it is.\n"));
        assert!(starts_with_docs("#![forbid(unsafe_code)]\n\n//! What it is.\n"));
        assert!(!starts_with_docs("use std::fmt;\n//! Too late.\n"));
        assert!(!starts_with_docs(""));
    }

    #[test]
    fn safe_crates_must_say_so_and_mean_it() {
        let missing = file("crates/trees/src/lib.rs", "//! Trees.\n");
        let breach = file("crates/trees/src/leaf.rs", "//! Leaf.\nlet x = unsafe { y() };\n");
        let word = file("crates/trees/src/inner.rs", "//! Inner.\n// unsafe { } is not here\n");
        let core = file("crates/pm-core/src/lib.rs", "//! Core.\nunsafe fn x() {}\n");
        let complaints = check(&[missing, breach, word, core]);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("forbid(unsafe_code)"));
        assert!(complaints[1].starts_with("crates/trees/src/leaf.rs:2:"));
    }

    #[test]
    fn the_c_interface_has_unsafe_in_one_file() {
        let root = file("crates/capi/src/lib.rs", "//! C.\n#![deny(unsafe_code)]\n");
        let boundary = file("crates/capi/src/boundary.rs", "//! B.\nlet x = unsafe { y() };\n");
        let other = file("crates/capi/src/pool.rs", "//! P.\nlet x = unsafe { y() };\n");
        let complaints = check(&[root, boundary, other]);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("crates/capi/src/pool.rs:2:"));
    }
}
