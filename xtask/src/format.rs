//! `cargo xtask format`: collects the on-media format from the sources that define it.
//!
//! The layouts and their diagrams are in the sources and nowhere else. The document has the module
//! documentation of each file, and the structs of `pm_struct!` and the packed words, with their
//! documentation. `cargo xtask tidy` checks that the document agrees with the sources.

use std::fmt::Write;

use crate::shell::root;

/// The document.
pub(crate) const DOCUMENT: &str = "docs/format.md";

/// Its source files, in order.
const PARTS: &[(&str, &str)] = &[
    ("The pool", "crates/pm-core/src/pool/layout.rs"),
    ("The files beside a pool", "crates/pm-core/src/media/lines.rs"),
    ("A log in a file", "crates/pm-wal/src/layout.rs"),
    ("The allocator's pages", "crates/pm-core/src/alloc/head.rs"),
    ("The allocator's slabs", "crates/pm-core/src/alloc/slab.rs"),
    ("The allocator's operation slots", "crates/pm-core/src/alloc/slot.rs"),
    ("The allocator's tickets", "crates/pm-core/src/alloc/ticket.rs"),
    ("Records out of line", "crates/pm-record/src/block.rs"),
    ("Values that are replaced in place", "crates/pm-record/src/redo/mod.rs"),
    ("Descriptors of PMwCAS", "crates/pmwcas/src/layout.rs"),
    ("FPTree", "crates/trees/src/fptree/layout.rs"),
    ("NV-Tree", "crates/trees/src/nvtree/layout.rs"),
    ("wBTree", "crates/trees/src/wbtree/layout.rs"),
    ("BzTree", "crates/trees/src/bztree/layout.rs"),
    ("FAST&FAIR", "crates/fastfair/src/layout.rs"),
    ("HART", "crates/hart/src/layout.rs"),
    ("CCEH", "crates/cceh/src/layout.rs"),
    ("WOART, ART+CoW", "crates/woart/src/layout.rs"),
    ("PACTree", "crates/pactree/src/layout.rs"),
    ("P-Skiplist", "crates/skiplist/src/layout.rs"),
    ("Buffers over an index", "crates/boc/src/layout.rs"),
    ("SPTree", "crates/sptree/src/layout.rs"),
    ("A log", "crates/pm-log/src/layout.rs"),
    ("SPTree's structured log", "crates/sptree/src/log/layout.rs"),
    ("A store", "crates/store/src/layout.rs"),
    ("The block cache", "crates/cache/src/block/layout.rs"),
    ("Files", "crates/pm-env/src/layout.rs"),
    ("A buffer pool", "crates/buffer/src/layout.rs"),
    ("The archive of a buffer pool", "crates/buffer/src/archive/layout.rs"),
    ("A partition of RStore", "crates/rstore/src/layout.rs"),
    ("The log of a replica", "crates/replica/src/layout.rs"),
];

const HEAD: &str = "# The on-media format

<!-- Generated from the sources by `cargo xtask format`. Change them, not this. -->

Version 1. Everything in a pool is made of aligned little-endian words of 8 bytes; offsets count bytes
from the start of the file, 0 is null. Bit 0 is the least significant. Names in `[brackets]` are items of
the source files named below each heading.
";

/// Writes the document.
pub(crate) fn run() -> Result<(), String> {
    let read = |path: &str| {
        std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let text = render(&read)?;
    std::fs::write(root().join(DOCUMENT), text).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// Returns the document, from the files that `read` returns.
pub(crate) fn render(read: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut document = HEAD.to_owned();
    for (title, path) in PARTS {
        let source = read(path)?;
        let _ = write!(document, "\n## {title}\n\n`{path}`\n");
        document.push_str(&essay(&source));
        document.push_str(&declarations(&source));
    }
    Ok(document)
}

/// Returns the module documentation, with its headings two levels down.
fn essay(source: &str) -> String {
    let mut text = String::from("\n");
    for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.starts_with("# ") {
            text.push_str("##");
        }
        text.push_str(&plain(line));
        text.push('\n');
    }
    text
}

/// Returns the structs on the medium with their fields, and the packed words.
fn declarations(source: &str) -> String {
    let mut text = String::new();
    let mut doc: Vec<&str> = Vec::new();
    let mut fields = None;
    for line in source.lines().map_while(|line| (line != "#[cfg(test)]").then_some(line)) {
        let line = line.trim();
        if let Some(more) = line.strip_prefix("///") {
            doc.push(more.strip_prefix(' ').unwrap_or(more));
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        let declared = line.split_once("struct ").map(|(_, name)| name);
        match declared {
            Some(name) if line.ends_with('{') && name.contains(": size ") => {
                let _ = write!(text, "\n### `{}`\n\n", name.trim_end_matches(" {"));
                push_doc(&mut text, &doc);
                text.push_str("\n| offset | field | type | meaning |\n| --- | --- | --- | --- |\n");
                fields = Some(Some(0));
            }
            Some(name) if name.ends_with("(u64);") || name.ends_with("(u8);") => {
                let _ = write!(text, "\n### `{}`\n\n", name.trim_end_matches(';'));
                push_doc(&mut text, &doc);
            }
            _ if line == "}" => fields = None,
            _ => {
                if let Some(offset) = &mut fields {
                    text.push_str(&field(line, &doc, offset));
                }
            }
        }
        doc.clear();
    }
    text
}

fn push_doc(text: &mut String, doc: &[&str]) {
    for line in doc {
        text.push_str(&plain(line));
        text.push('\n');
    }
}

/// Returns a row for `pub name @ offset: type,`. Fields are contiguous, so `next`, if it is known, is the
/// offset of a field that declares none.
fn field(line: &str, doc: &[&str], next: &mut Option<u64>) -> String {
    let Some((name, kind)) = line.trim_end_matches(',').split_once(": ") else {
        return String::new();
    };
    let name = name.rsplit_once(") ").map_or(name, |(_, name)| name).trim_start_matches("pub ");
    let (name, declared) = name.split_once(" @ ").unwrap_or((name, ""));
    let offset = declared.parse().ok().or(*next);
    *next = offset.zip(bytes(kind)).map(|(offset, bytes)| offset + bytes);
    let offset = offset.map_or_else(String::new, |offset| offset.to_string());
    let meaning: Vec<String> = doc.iter().map(|line| plain(line)).collect();
    format!("| {offset} | `{name}` | `{kind}` | {} |\n", meaning.join(" ").replace('|', "\\|"))
}

/// Returns the size of a field's type, if its name shows it.
fn bytes(kind: &str) -> Option<u64> {
    if let Some((of, count)) = kind.strip_prefix('[').and_then(|array| array.rsplit_once("; ")) {
        return Some(bytes(of)? * count.strip_suffix(']')?.parse::<u64>().ok()?);
    }
    let is_word = kind == "PmU64" || kind.starts_with("PmPtr<") || kind.starts_with("PmCell<");
    is_word.then_some(8)
}

/// Returns a line without the targets of links into the sources.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once("](") {
        let (target, after) = link.split_once(')').unwrap_or((link, ""));
        text.push_str(before);
        text.push(']');
        if target.starts_with("http") {
            let _ = write!(text, "({target})");
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! A node.\n//!\n//! # Root\n//! See [`Root`](super::Root).\n\n\
        pm_struct! {\n    /// The root: [`X`](y).\n    #[align(64)]\n    pub struct Root: size 16 {\n        \
        /// First,\n        /// or null.\n        pub head @ 0: PmPtr<PmU64>,\n        /// Zero.\n        \
        pub(crate) rest: [PmU64; 1],\n    }\n}\n\n/// A word: `a | b`.\n#[derive(Clone)]\n\
        pub(super) struct State(u64);\n\n#[cfg(test)]\nmod tests {\n    /// No.\n    struct Not(u64);\n}\n";

    #[test]
    fn documentation_and_fields_are_collected() {
        let text = render(&|_| Ok(SOURCE.into())).expect("rendered");
        for part in [
            "\nA node.\n\n### Root\nSee [`Root`].\n",
            "### `Root: size 16`\n\nThe root: [`X`].\n",
            "| 0 | `head` | `PmPtr<PmU64>` | First, or null. |\n",
            "| 8 | `rest` | `[PmU64; 1]` | Zero. |\n",
            "### `State(u64)`\n\nA word: `a | b`.\n",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert!(!text.contains("Not(u64)"));
        assert!(render(&|path| Err(path.into())).is_err());
    }
}
