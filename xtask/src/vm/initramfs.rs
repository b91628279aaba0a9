//! The file system of the guest: an archive in memory in the kernel's format (`newc`: a header of hexadecimal
//! numbers, the name and the contents of each file, each part padded to 4 bytes).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::debian::{self, Parts};

const INIT: &str = include_str!("init.sh");

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// The contents of a boot.
pub(crate) struct Contents<'a> {
    /// The use of the NVDIMM, `fsdax` or `devdax`; `disk`: there is none.
    pub(crate) mode: &'a str,
    /// The kernel modules that the guest needs; their dependencies are added.
    pub(crate) modules: &'a [&'a str],
    /// The shell command.
    pub(crate) command: &'a str,
    /// The programs and files in its folder.
    pub(crate) files: &'a [(&'a str, PathBuf)],
}

/// Builds the archive.
pub(super) fn build(parts: &Parts, contents: &Contents<'_>) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    for dir in
        ["bin", "dev", "proc", "sys", "tmp", "modules", "host", "mnt", "mnt/pmem", "mnt/disk"]
    {
        archive.dir(dir);
    }
    archive.add("bin/busybox", PROGRAM, &read(&parts.busybox)?);
    archive.add("init", PROGRAM, INIT.as_bytes());
    archive.add("mode", FILE, contents.mode.as_bytes());
    archive.add("command", FILE, contents.command.as_bytes());
    let mut order = Vec::new();
    for path in modules(&parts.modules, contents.modules)? {
        let bytes = match path.extension().and_then(|e| e.to_str()) {
            Some(packed @ ("xz" | "zst")) => {
                let program = if packed == "xz" { "xz" } else { "zstd" };
                let output = Command::new(program).arg("-dc").arg(&path).output();
                output.map_err(|e| format!("{program}: {e}"))?.stdout
            }
            _ => read(&path)?,
        };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = name.trim_end_matches(".xz").trim_end_matches(".zst");
        archive.add(&format!("modules/{name}"), FILE, &bytes);
        order.push(name.to_owned());
    }
    archive.add("modules/order", FILE, (order.join("\n") + "\n").as_bytes());
    let mut libraries = BTreeSet::new();
    for (name, path) in contents.files {
        archive.add(&format!("host/{name}"), PROGRAM, &read(path)?);
        libraries.extend(libraries_of(path));
    }
    for library in libraries {
        let inside = library.to_string_lossy().trim_start_matches('/').to_owned();
        archive.parents(&inside);
        archive.add(&inside, PROGRAM, &read(&library)?);
    }
    Ok(archive.finish())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the files of the modules, in an order in which they can be loaded.
fn modules(dir: &Path, wanted: &[&str]) -> Result<Vec<PathBuf>, String> {
    let name_of = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.split(".ko").next().unwrap_or(name).replace('-', "_")
    };
    let text = fs::read_to_string(dir.join("modules.dep")).map_err(|e| e.to_string())?;
    let builtin = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
    let mut files: Vec<PathBuf> = Vec::new();
    for &wanted in wanted {
        let line = text
            .lines()
            .find(|line| line.split(':').next().is_some_and(|path| name_of(path) == wanted));
        let Some((path, needs)) = line.and_then(|line| line.split_once(':')) else {
            if builtin.lines().any(|path| name_of(path) == wanted) {
                continue;
            }
            return Err(format!("the kernel has no module {wanted}"));
        };
        // The dependencies of a module are listed with the nearest first.
        for path in needs.split_whitespace().rev().chain([path]) {
            let path = dir.join(path);
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Returns the shared libraries of a program; none for other files.
fn libraries_of(path: &Path) -> Vec<PathBuf> {
    let Ok(text) = debian::run(Command::new("ldd").arg(path)) else { return Vec::new() };
    let words = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(PathBuf::from)
    });
    words.collect()
}

/// An archive under construction.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    files: u32,
    dirs: BTreeSet<String>,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.files += 1;
        let size = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // inode, mode, user, group, links, time, size, device (2), special device (2), name, check
        let fields = [self.files, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn dir(&mut self, name: &str) {
        if self.dirs.insert(name.to_owned()) {
            self.add(name, DIRECTORY, &[]);
        }
    }

    /// Adds the folders of a file.
    fn parents(&mut self, file: &str) {
        let mut slashes = file.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        for at in slashes.drain(..) {
            self.dir(&file[..at]);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_padded_and_ends_with_its_trailer() {
        let mut archive = Archive::default();
        archive.parents("a/b/c");
        archive.add("a/b/c", FILE, b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 4, "two folders, a file, the trailer");
        assert!(text.contains("a/b/c\0") && text.contains("TRAILER!!!\0"));
        assert_eq!(&bytes[6 + 8..6 + 16], b"000041ed", "the mode of the first folder");
    }
}
