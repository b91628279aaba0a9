//! `pmindex dump` and `pmindex restore`: a pool as text, and back.
//!
//! The text is JSON, one value a line, UTF-8:
//!
//! ```text
//! {"pmindex-dump":1}
//! {"index":"fruit","type":"fptree","keys":"str","values":"u64"}
//! ["apple",4]
//! ["pear",5]
//! {"end":"fruit","records":2}
//! {"end":"pmindex-dump","indexes":1}
//! ```
//!
//! Records are written in key order; `restore` accepts any order. Numbers are JSON numbers (of 64 bits,
//! which some programs read as doubles). Byte strings are strings if they are UTF-8, else `{"hex":"00ff"}`;
//! `()` is `null`. The last line shows that the dump is complete.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use pmindex::core::{NewFile, PmError};
use pmindex::{BackupError, IndexError, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use pmindex_named::{Handle, Raw, Scan, Sort, Type, Types};
use rustix::fs::FileType;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::kinds::kinds;
use crate::output;
use crate::progress::Progress;
use crate::table::counted;

use super::fresh::{Filling, FreshPool};
use super::{batch_log, open, store_log};

/// The version of the format above.
const VERSION: u64 = 1;
/// The key of the first line, and the value of the last.
const DUMP: &str = "pmindex-dump";
/// The length of the longest line: more than the longest key and value, all escaped.
const LONGEST_LINE: u64 = 64 << 20;
/// Records between two updates of the progress of restoring.
const STEP: u64 = 4096;

/// The pool to dump, and the file to write.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex dump my.pool > my.jsonl\n  \
    pmindex dump my.pool --index fruit --output fruit.jsonl\n  \
    pmindex dump my.pool | zstd > my.jsonl.zst\n\n\
    The text has one JSON value per line: [key, value] for each record, and lines that mark where an\n\
    index begins and ends. Byte strings that are not UTF-8 are written as {\"hex\": \"00ff\"}. `pmindex\n\
    restore` creates a pool from it. `pmindex backup` copies a pool faster; a dump can be read, edited,\n\
    and restored as another kind of index.")]
pub(crate) struct DumpArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,

    /// Dump only this index [default: all]
    #[arg(long, value_name = "NAME")]
    index: Option<String>,

    /// The file to write [default: standard output, also named `-`]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing file, once the new one is complete
    #[arg(long, requires = "output")]
    replace: bool,
}

/// The dump to read, and the pool to create.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex restore my.jsonl new.pool\n  \
    zstd -dc my.jsonl.zst | pmindex restore - new.pool\n  \
    pmindex restore my.jsonl new.pool --type wbtree\n\n\
    The pool gets its name only when it is complete, verified and durable. If the text is cut off or\n\
    wrong, the error names the line, and no pool is created.")]
pub(crate) struct RestoreArgs {
    /// The output of `pmindex dump`; `-` for standard input
    file: PathBuf,

    /// The new pool's file
    pub(crate) pool: PathBuf,

    /// The kind of every index [default: as dumped]
    #[arg(long = "type", value_name = "KIND", value_parser = kinds())]
    kind: Option<Kind>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Writes a pool as text.
pub(crate) fn dump(args: &DumpArgs) -> Result<(), CliError> {
    let pool = open::read_only(&args.pool)?;
    store_log::refuse_unfinished(&pool)?;
    let mut indexes = Vec::new();
    let mut entries = store_log::indexes(&pool)?;
    if let Some(name) = &args.index {
        let there = entries.iter().map(|entry| entry.name.clone()).collect();
        entries.retain(|entry| entry.name == *name);
        if entries.is_empty() {
            return Err(CliError::NoIndex { name: args.index.clone(), there });
        }
        // A dump of the whole pool has the log of its batches too.
        batch_log::refuse_interrupted(&pool, name)?;
    }
    // Open all indexes before the first line, so that an error does not leave half a dump.
    for entry in entries {
        let index = open::ordered(&pool, &entry)?;
        indexes.push((entry.name, index));
    }
    match args.output.as_ref().filter(|path| path.as_os_str() != "-") {
        None => {
            let written = write_all(&indexes, &mut BufWriter::new(io::stdout().lock()));
            match written {
                // The reader has closed the pipe.
                Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            }
        }
        Some(path) if path.is_dir() || path.exists() && !args.replace => {
            Err(CliError::exists(path))
        }
        // It would be replaced by its own text, which has not all of it.
        Some(path) if pool.is_at(path) => Err(BackupError::Itself { path: path.clone() }.into()),
        Some(path) => to_file(path, args.replace, |out| write_all(&indexes, out)),
    }
}

/// Writes a file that gets its name only when it is complete and durable.
fn to_file(
    path: &Path,
    replace: bool,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => CliError::Exists { path: path.into() },
        _ => CliError::File { path: path.into(), error },
    };
    // Readable only by the owner, like the pool.
    let file = NewFile::create(path, 0o600).map_err(failed)?;
    let mut out = BufWriter::new(file.file());
    write(&mut out).map_err(|error| match error {
        CliError::Output(error) => failed(error),
        error => error,
    })?;
    out.flush().map_err(failed)?;
    drop(out);
    file.finish(replace).map_err(failed)
}

fn write_all(indexes: &[(String, Box<dyn Handle>)], out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "{}", json!({ DUMP: VERSION }))?;
    for (name, index) in indexes {
        let Types { keys, values } = index.types();
        // The fields are in an order for human readers.
        let (quoted, kind) = (json!(name), index.kind().name());
        let (key_type, value_type) = (keys.name, values.name);
        writeln!(
            out,
            r#"{{"index":{quoted},"type":"{kind}","keys":"{key_type}","values":"{value_type}"}}"#
        )?;
        let progress = Progress::new(&format!("dumping {name}"), index.stats()?.records);
        let (mut count, mut failed) = (0, None);
        index.scan(&Scan::default(), &mut |key, value| {
            let record = json!([keys.to_json(&key), values.to_json(&value)]);
            failed = writeln!(out, "{record}").err();
            count += 1;
            progress.step();
            failed.is_none()
        })?;
        progress.end();
        failed.map_or(Ok(()), Err)?;
        writeln!(out, r#"{{"end":{quoted},"records":{count}}}"#)?;
    }
    writeln!(out, r#"{{"end":"{DUMP}","indexes":{}}}"#, indexes.len())?;
    Ok(out.flush()?)
}

/// Creates a pool from a dump.
pub(crate) fn restore(args: &RestoreArgs) -> Result<(), CliError> {
    let (source, len): (Box<dyn Read>, Option<u64>) = if args.file.as_os_str() == "-" {
        let source = io::stdin().lock();
        let len = len_of(&source);
        (Box::new(source), len)
    } else {
        let file = |error| CliError::File { path: args.file.clone(), error };
        let source = File::open(&args.file).map_err(file)?;
        let len = len_of(&source);
        (Box::new(source), len)
    };
    let pool = FreshPool::create(&args.pool)?;
    let progress = Progress::of_bytes("restoring", len);
    let mut lines = Lines { source: BufReader::new(source), path: &args.file, number: 0, bytes: 0 };
    let restored =
        read_all(&mut lines, &pool, args.kind, &|bytes| progress.at(bytes, "restoring".into()));
    progress.end();
    let (indexes, records) = restored?;
    pool.finish()?;
    if args.json {
        output::print_json(
            &json!({ "pool": output::path_in_json(&args.pool), "indexes": indexes, "records": records }),
        )
    } else {
        let indexes = counted(indexes, "index", "indexes");
        output::print(&format!("restored {indexes}, {}\n", counted(records, "record", "records")))
    }
}

/// Returns how many bytes can be read from a file; `None` if that is not known, as of a pipe.
fn len_of(file: impl AsFd) -> Option<u64> {
    let stat = rustix::fs::fstat(&file).ok()?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // Standard input may have been read in part.
    let at = rustix::fs::tell(&file).ok()?;
    regular.then(|| u64::try_from(stat.st_size).unwrap_or_default().saturating_sub(at))
}

/// The lines of a dump.
struct Lines<'a> {
    source: BufReader<Box<dyn Read>>,
    path: &'a Path,
    number: u64,
    bytes: u64,
}

impl Lines<'_> {
    /// Returns an error about the line that was read last.
    fn wrong(&self, what: impl Into<String>) -> CliError {
        CliError::Dump { path: self.path.into(), line: self.number, what: what.into() }
    }

    /// Returns the next line that is not empty.
    fn next(&mut self) -> Result<Value, CliError> {
        match self.next_if_any()? {
            Some(line) => serde_json::from_slice(&line)
                .map_err(|error| self.wrong(format!("not JSON: {error}"))),
            None => Err(self.wrong("the dump ends before its last line")),
        }
    }

    /// Returns the bytes of the next line that is not empty; `None` at the end.
    fn next_if_any(&mut self) -> Result<Option<Vec<u8>>, CliError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            self.number += 1;
            let mut limited = (&mut self.source).take(LONGEST_LINE);
            let read = limited.read_until(b'\n', &mut line);
            let read = read.map_err(|error| CliError::File { path: self.path.into(), error })?;
            self.bytes += read as u64;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == LONGEST_LINE {
                return Err(self.wrong("the line is too long"));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// Fills a pool; returns the numbers of indexes and of records.
fn read_all(
    lines: &mut Lines<'_>,
    pool: &FreshPool,
    kind: Option<Kind>,
    progress: &dyn Fn(u64),
) -> Result<(u64, u64), CliError> {
    match lines.next()?[DUMP].as_u64() {
        Some(VERSION) => {}
        Some(version) => {
            return Err(lines.wrong(format!(
                "the dump has version {version}; this program reads version {VERSION}"
            )));
        }
        None => return Err(lines.wrong("this is not what `pmindex dump` writes")),
    }
    let (mut seen, mut records) = (HashSet::new(), 0);
    loop {
        let line = lines.next()?;
        if line["end"] == DUMP {
            let indexes = seen.len() as u64;
            if line["indexes"] != indexes {
                return Err(lines.wrong(format!(
                    "the dump should have {} indexes, but has {indexes}",
                    line["indexes"]
                )));
            }
            // Such as a second dump, whose records would be lost.
            if lines.next_if_any()?.is_some() {
                return Err(lines.wrong("there is text after the end of the dump"));
            }
            return Ok((indexes, records));
        }
        let text = |name: &str| {
            line[name].as_str().ok_or_else(|| lines.wrong(format!("the field {name:?} is missing")))
        };
        let known = |name: &str| {
            let named = text(name)?;
            Type::named(named).ok_or_else(|| lines.wrong(format!("unknown type {named:?}")))
        };
        let name = text("index")?.to_owned();
        if !seen.insert(name.clone()) {
            return Err(lines.wrong(format!("index {name:?} is there twice")));
        }
        let types = Types { keys: known("keys")?, values: known("values")? };
        let kind = match kind {
            Some(kind) => kind,
            None => text("type")?
                .parse()
                .map_err(|e: pmindex::UnknownKind| lines.wrong(e.to_string()))?,
        };
        let filling = pool.index(&name, Sort::Ordered(kind), types);
        let filling = filling.map_err(|error| match error {
            CliError::Index(IndexError::Pool(e @ PmError::BadName { .. })) => {
                lines.wrong(e.to_string())
            }
            error => error,
        })?;
        records += read_index(lines, filling, types, &name, progress)?;
    }
}

/// Returns what is wrong with a key or value that no index takes.
fn too_long(what: &str, raw: &Raw, most: usize) -> Option<String> {
    match raw {
        Raw::Bytes(bytes) if bytes.len() > most => {
            let len = bytes.len();
            Some(format!("a {what} of {len} bytes is too long; the limit is {most} bytes"))
        }
        _ => None,
    }
}

/// Fills an index; returns the number of records.
fn read_index(
    lines: &mut Lines<'_>,
    mut filling: Filling,
    types: Types,
    name: &str,
    progress: &dyn Fn(u64),
) -> Result<u64, CliError> {
    let mut count = 0u64;
    loop {
        let line = lines.next()?;
        if let Value::Array(record) = &line {
            let [key, value] = record.as_slice() else {
                return Err(lines.wrong("a record must be [key, value]"));
            };
            let wrong = |what: &str, known: &Type| {
                lines.wrong(format!("the {what} is not of the index's type, {}", known.name))
            };
            let key = types.keys.read_json(key).ok_or_else(|| wrong("key", types.keys))?;
            let value =
                types.values.read_json(value).ok_or_else(|| wrong("value", types.values))?;
            let long = too_long("key", &key, MAX_KEY_BYTES)
                .or_else(|| too_long("value", &value, MAX_VALUE_BYTES));
            // Here, where the line is known: records are added in batches.
            if let Some(what) = long {
                return Err(lines.wrong(what));
            }
            filling.add(key, value)?;
            count += 1;
            if count.is_multiple_of(STEP) {
                progress(lines.bytes);
            }
            continue;
        }
        if line["end"] != name {
            return Err(
                lines.wrong(format!("this is neither a record nor the end of index {name:?}"))
            );
        }
        let there = filling.finish()?;
        if line["records"] != count {
            return Err(lines.wrong(format!(
                "index {name:?} should have {} records, but {count} were read",
                line["records"]
            )));
        }
        if there != count {
            let twice = count - there.min(count);
            return Err(lines.wrong(format!(
                "{} of index {name:?} more than once",
                counted(twice, "key occurs", "keys occur")
            )));
        }
        return Ok(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_has_a_length() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"twelve bytes").expect("written");
        assert_eq!(len_of(&file), Some(0), "all were read");
        io::Seek::seek(&mut file, io::SeekFrom::Start(5)).expect("a place");
        assert_eq!(len_of(&file), Some(7));
        let (pipe, _other) = io::pipe().expect("a pipe");
        assert_eq!(len_of(&pipe), None);
        assert_eq!(len_of(File::open("/dev/null").expect("a device")), None);
    }

    #[test]
    fn an_error_of_the_file_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let full = |_: &mut BufWriter<&File>| {
            Err(CliError::Output(io::Error::from(io::ErrorKind::StorageFull)))
        };
        let error = to_file(&path, false, full).expect_err("the disk is full");
        assert!(matches!(&error, CliError::File { path: of, .. } if *of == path), "{error}");
        assert!(!path.exists());
    }
}
