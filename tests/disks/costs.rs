//! What an operation writes to the disk in modes `Journal` and `Periodic`: exact, and compared with
//! `tests/golden/disks.txt`, which `cargo xtask bless` rewrites.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pmindex::{AnyIndex, Index, IndexError, Kind, Pool, PoolOptions};

use super::folder;

/// The name of this test among those of `cargo test`.
pub(super) const NAME: &str = "golden costs on a disk";

const HEADER: &str = "\
# Per operation on 1,000 records: fences, batches written to the log, lines and bytes of records in them, and
# bytes of the log, a batch of which is a multiple of 4,096. In mode `Periodic` 100 operations share a batch, as
# they do if they happen within an interval. Of `put_many` a call with 100 new records is an operation.
# `cargo xtask bless` rewrites this file.
";

/// Operations of a row.
const OPERATIONS: u64 = 100;

/// A row of the table: what is done, and for how many operations it counts.
type Operation = (&'static str, u64, fn(&AnyIndex<u64, u64>) -> Result<(), IndexError>);

const OPERATIONS_OF_A_POOL: [Operation; 4] = [
    ("insert", OPERATIONS, |index| each(0, |key| index.put(&key, &key).map(drop))),
    ("update", OPERATIONS, |index| each(0, |key| index.put(&key, &(key + 1)).map(drop))),
    ("remove", OPERATIONS, |index| each(0, |key| index.remove(&key).map(drop))),
    ("put_many", 1, |index| {
        let mut records = Vec::new();
        each(5, |key| {
            records.push((key, key));
            Ok(())
        })?;
        index.put_many(&records)
    }),
];

/// Calls `of` with keys that are spread over all records and are none of them.
fn each(shift: u64, mut of: impl FnMut(u64) -> Result<(), IndexError>) -> Result<(), IndexError> {
    (0..OPERATIONS).map(|n| n * 37 % 100 * 100 + shift + 1).try_for_each(&mut of)
}

/// Compares the costs with the file, or writes them to it.
pub(super) fn are_golden() -> Result<(), String> {
    let mut text = String::from(HEADER);
    let cells = |cells: [&str; 8]| {
        let [kind, mode, operation, rest @ ..] = cells;
        let rest = rest.map(|cell| format!("{cell:>8}")).join(" | ");
        format!("{kind:<15} | {mode:<8} | {operation:<9} | {rest}\n")
    };
    text += &cells(["kind", "mode", "operation", "fences", "batches", "lines", "bytes", "of log"]);
    for &kind in Kind::ALL {
        for mode in ["journal", "periodic"] {
            let rows = rows(kind, mode).map_err(|e| format!("{kind}, {mode}: {e}"))?;
            for (operation, row) in rows {
                let [fences, batches, lines, bytes, log] = &row;
                text += &cells([kind.name(), mode, operation, fences, batches, lines, bytes, log]);
            }
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/disks.txt");
    if std::env::var_os("PMINDEX_BLESS").is_some() {
        return std::fs::write(&path, text).map_err(|e| e.to_string());
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let mut told = String::new();
    let lines = golden.lines().chain(std::iter::repeat("")).zip(text.lines());
    for (old, new) in lines.filter(|(old, new)| old != new) {
        let _ = write!(told, "\n  {old}\n  {new}");
    }
    if golden == text {
        return Ok(());
    }
    Err(format!(
        "costs differ from tests/golden/disks.txt; `cargo xtask bless` accepts them:{told}"
    ))
}

/// What is done, and what it costs.
type Row = (&'static str, [String; 5]);

/// The rows of a kind in a mode.
fn rows(kind: Kind, mode: &str) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let folder = folder()?;
    let path = folder.path().join("pool");
    let sizes = PoolOptions::new().size(1 << 20).huge_pages(false).journal_bytes(8 << 20);
    let sizes = sizes.uuid(u128::from_le_bytes(*b"costs of a disk!"));
    let options = if mode == "journal" {
        sizes.as_on_disk(true).journal(true)
    } else {
        sizes.twin(folder.path().join("twin")).twin_every(Duration::from_secs(3_600))
    };
    let pool = Arc::new(Pool::create(&path, &options)?);
    let index = AnyIndex::<u64, u64>::create(&pool, "index", kind)?;
    let records: Vec<(u64, u64)> = (0..1000).map(|n| (n * 10, n)).collect();
    index.put_many(&records)?;
    pool.sync()?;
    pool.checkpoint()?;
    let mut rows = Vec::new();
    for (operation, operations, run) in OPERATIONS_OF_A_POOL {
        let before = counts(&pool);
        run(&index)?;
        pool.sync()?;
        let after = counts(&pool);
        let per = |count: usize| per_operation(after[count] - before[count], operations);
        rows.push((operation, std::array::from_fn(per)));
    }
    drop(index);
    if let Some(pool) = Arc::into_inner(pool) {
        pool.kill();
    }
    Ok(rows)
}

fn counts(pool: &Pool) -> [u64; 5] {
    let done = pool.activity();
    let used = pool.journal().map(|journal| journal.used);
    let used = used.or_else(|| pool.twin().map(|twin| twin.used)).unwrap_or_default();
    let fences = done.fences.unwrap_or_default();
    [fences, done.group_commits, done.journal_lines, done.journal_bytes, used]
}

fn per_operation(total: u64, operations: u64) -> String {
    let hundredths = (100 * total + operations / 2) / operations;
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    text.trim_end_matches('0').trim_end_matches('.').into()
}
