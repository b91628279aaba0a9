//! Golden files: the cost of each operation, checked in under `tests/golden`.
//!
//! A test measures operations over the counting medium, where a cost is exact and the same on every
//! machine, and compares the rows with its golden file. A cost that changed on purpose is recorded
//! by `cargo xtask bless`, which rewrites the files (it runs every test whose name contains
//! `golden` with [`BLESS`] set); the difference is then reviewed like any other.
//!
//! ```no_run
//! use pmindex_core::{Medium, Pool};
//! use pmindex_testkit::golden;
//!
//! let pool = Pool::counting(1 << 20).expect("memory");
//! let cell = &pool.words(8192, 1).expect("in bounds")[0];
//! let rows = [golden::measure(pool.pm(), "store and persist", 100, || {
//!     for i in 0..100 {
//!         pool.pm().store(cell, i);
//!         pool.pm().persist(cell).expect("emulated");
//!     }
//! })];
//! golden::check("example", &rows);
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pmindex_core::{Counts, Mapped, Pool};
use pmindex_index::{Index, PmIndex};

use crate::conformance::{SampleKey, SampleValue};
use crate::crash::Rng;

/// The environment variable that makes [`check`] write instead of compare.
pub const BLESS: &str = "PMINDEX_BLESS";

const HEADER: &str = "\
# Per operation: words stored, lines flushed (non-temporal ones included), of them non-temporal,
# fences, bytes written to the medium in units of 256. Then, of all operations of the row together:
# lines flushed that hold nothing new, and lines flushed twice before one fence.
# These flushes do nothing. `cargo xtask bless` rewrites this file.
";

/// The total cost of some operations of one kind.
#[derive(Clone, Debug)]
pub struct Row {
    operation: String,
    operations: u64,
    counts: Counts,
}

impl Row {
    /// Records that `operations` operations cost `counts`.
    ///
    /// # Panics
    /// If there are none, or if the name contains the column separator.
    #[must_use]
    pub fn new(operation: &str, operations: u64, counts: Counts) -> Self {
        assert!(operations > 0 && !operation.contains(['|', '\n']), "{operation}: {operations}");
        Self { operation: operation.into(), operations, counts }
    }

    /// Returns the mean number of lines flushed per operation.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts of tests are far below 2^52")]
    pub fn lines(&self) -> f64 {
        self.counts.lines as f64 / self.operations as f64
    }

    /// Returns the mean number of fences per operation.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts of tests are far below 2^52")]
    pub fn fences(&self) -> f64 {
        self.counts.fences as f64 / self.operations as f64
    }

    fn columns(&self) -> [String; 8] {
        let per = |count| per_operation(count, self.operations);
        let Counts { stores, lines, nt_lines, fences, media_written, clean, repeated, .. } =
            self.counts;
        [
            self.operation.clone(),
            per(stores),
            per(lines),
            per(nt_lines),
            per(fences),
            per(media_written),
            clean.to_string(),
            repeated.to_string(),
        ]
    }
}

/// Runs `operations` operations and counts them, including the lines that remain in the medium's buffer.
///
/// # Panics
/// If the medium counts nothing: use [`Pool::counting`].
pub fn measure(pm: &Mapped, operation: &str, operations: u64, run: impl FnOnce()) -> Row {
    let counter = pm.counter().expect("a pool that counts");
    counter.reset();
    run();
    counter.drain();
    Row::new(operation, operations, counter.counts())
}

/// Counts 1,200 writing calls of all kinds, with integers and with byte strings, in a fixed order: with
/// splits and merges, which rows of single operations leave out.
///
/// # Panics
/// If an index fails.
#[must_use]
pub fn mixed<N, B>() -> [Row; 2]
where
    N: PmIndex<u64, u64, Mapped>,
    B: PmIndex<Vec<u8>, Vec<u8>, Mapped>,
{
    let pool = Arc::new(Pool::counting(16 << 20).expect("memory"));
    let numbers = N::create(&pool, "numbers").expect("room");
    let numbers = mixed_calls(pool.pm(), "mixed", &numbers);
    let bytes = B::create(&pool, "bytes").expect("room");
    [numbers, mixed_calls(pool.pm(), "mixed, byte strings", &bytes)]
}

fn mixed_calls<K: SampleKey, V: SampleValue>(
    pm: &Mapped,
    name: &str,
    index: &dyn Index<K, V>,
) -> Row {
    const CALLS: u64 = 1200;
    let record = |n: u64, tag| (K::nth(n % 900), V::tagged(tag));
    for n in 0..300 {
        let (key, value) = record(3 * n, n);
        index.try_insert(key.borrowed(), value.borrowed()).expect("room").expect("new");
    }
    let mut rng = Rng::new(1);
    measure(pm, name, CALLS, || {
        for call in 0..CALLS {
            let n = rng.next_u64();
            let (key, value) = record(n, 1000 + call);
            let (key, value) = (key.borrowed(), value.borrowed());
            let _changed = match rng.below(16) {
                0..6 => index.try_insert(key, value).expect("room").is_ok(),
                6..8 => index.update(key, value).expect("room").is_ok(),
                8 | 9 => index.put(key, value).expect("room"),
                10 => {
                    let records: Vec<_> = (n % 800..).take(16).map(|n| record(n, call)).collect();
                    let done = index.try_insert_many(&records);
                    assert!(done.stopped.is_none(), "{done:?}");
                    done.inserted.contains(&true)
                }
                _ => index.remove(key).expect("sound").is_some(),
            };
        }
        index.background(&AtomicBool::new(true)).expect("room");
    })
}

/// Compares the rows with `tests/golden/NAME.txt` of the workspace.
///
/// # Panics
/// If they differ, showing the lines that do, or if the file is missing.
pub fn check(name: &str, rows: &[Row]) {
    let path = directory().join(format!("{name}.txt"));
    if let Err(complaint) = check_file(&path, &render(rows), std::env::var_os(BLESS).is_some()) {
        panic!("{complaint}");
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

fn check_file(path: &Path, found: &str, bless: bool) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if bless {
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        return written.and_then(|()| std::fs::write(path, found)).map_err(|e| e.to_string());
    }
    let golden = std::fs::read_to_string(path)
        .map_err(|e| format!("{name}: {e}; `cargo xtask bless` makes it"))?;
    if golden == found {
        return Ok(());
    }
    let mut complaint = format!("costs differ from tests/golden/{name}:\n");
    for line in golden.lines().filter(|line| !found.lines().any(|other| other == *line)) {
        let _ = writeln!(complaint, "  golden: {line}");
    }
    for line in found.lines().filter(|line| !golden.lines().any(|other| other == *line)) {
        let _ = writeln!(complaint, "  now:    {line}");
    }
    complaint.push_str("if that is meant, `cargo xtask bless` and review the difference");
    Err(complaint)
}

/// Formats the rows as an aligned table.
fn render(rows: &[Row]) -> String {
    let title =
        ["operation", "stores", "lines", "nt lines", "fences", "media bytes", "clean", "repeated"];
    let mut table = vec![title.map(String::from)];
    table.extend(rows.iter().map(Row::columns));
    let width = |column: usize| table.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::from(HEADER);
    for row in &table {
        let cells: Vec<String> = (row.iter().zip(widths).enumerate())
            .map(
                |(i, (cell, width))| {
                    if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        text.push_str(&cells.join(" | "));
        text.push('\n');
    }
    text
}

/// Formats `total / operations` with up to three decimals, rounded half up: integers stay integers.
fn per_operation(total: u64, operations: u64) -> String {
    let thousandths =
        (u128::from(total) * 1000 + u128::from(operations) / 2) / u128::from(operations);
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lines: u64) -> Row {
        Row::new("insert", 4, Counts { lines, fences: 8, ..Counts::default() })
    }

    #[test]
    fn costs_per_operation_are_exact_where_they_are_whole() {
        assert_eq!(per_operation(8, 4), "2");
        assert_eq!(per_operation(5, 4), "1.25");
        assert_eq!(per_operation(2, 3), "0.667");
        assert_eq!(per_operation(0, 3), "0");
        assert_eq!(per_operation(10_000, 1), "10000");
    }

    #[test]
    fn a_changed_cost_fails_until_it_is_blessed() {
        let dir = std::env::temp_dir().join(format!("pmindex-bless-{}", std::process::id()));
        let path = dir.join("sample.txt");
        let missing = check_file(&path, &render(&[row(8)]), false).expect_err("no file yet");
        assert!(missing.contains("bless"), "{missing}");
        check_file(&path, &render(&[row(8)]), true).expect("written");
        check_file(&path, &render(&[row(8)]), false).expect("the same");
        let changed = check_file(&path, &render(&[row(12)]), false).expect_err("one more line");
        assert!(changed.contains("golden: insert") && changed.contains("now:    insert"));
        std::fs::remove_dir_all(dir).expect("it was made above");
    }
}
