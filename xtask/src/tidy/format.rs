//! Rule: the document of the on-media format agrees with the sources.

use super::File;
use crate::format::{DOCUMENT, render};

pub(super) fn check(files: &[File]) -> Vec<String> {
    let read = |path: &str| {
        let found = files.iter().find(|file| file.path == path);
        found.map(|file| file.text.clone()).ok_or_else(|| format!("{path}: not there"))
    };
    match render(&read) {
        Ok(text) if read(DOCUMENT).is_ok_and(|there| there == text) => Vec::new(),
        Ok(_) => vec![format!("{DOCUMENT}: not what the sources say; run `cargo xtask format`")],
        Err(error) => vec![format!("{error}; it is part of {DOCUMENT} (xtask/src/format.rs)")],
    }
}
