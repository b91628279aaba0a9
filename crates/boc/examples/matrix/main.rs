//! Prints SPTree's study of write buffers as a page: figures 2 and 3, the cost of an insert of 8+8 bytes into three
//! indexes in PM, without buffers, with buffers that are written in place or out of place, and each of them with a log;
//! and figure 4, where searches go to the leaves of FAST&FAIR by a copy of its inner nodes in DRAM.
//!
//! `cargo xtask evidence --only buffering` keeps the page in `docs/evidence/`; `cargo run --release -p pmindex-boc
//! --example matrix -- [RECORDS]` prints it.

mod measure;

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use pmindex_boc::{Buffered, ByHash, ByKey};
use pmindex_cceh::Cceh;
use pmindex_core::Mapped;
use pmindex_fastfair::FastFair;
use pmindex_skiplist::SkipList;

use crate::measure::{Cached, Costs, Hashed, Sorted, measure};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The table, and the rows of which the text speaks.
struct Matrix {
    records: u64,
    table: String,
    rows: Vec<(String, Costs)>,
    /// The index without buffers in the rows that come.
    plain: Option<Costs>,
}

impl Matrix {
    /// Adds the row of an index without buffers, to which those that come are compared.
    fn plain(&mut self, name: &str, costs: Costs) {
        self.plain = Some(costs);
        let rates = [costs.inserts, costs.gets].map(|rate| format!("{rate:.2} M/s"));
        self.row(name, costs, &rates, "kept");
    }

    /// Adds a row whose rates are multiples of those of the plain index.
    fn beside(&mut self, name: &str, costs: Costs, crash: &str) {
        let plain = self.plain.unwrap_or(costs);
        let rates = [costs.inserts / plain.inserts, costs.gets / plain.gets];
        self.row(name, costs, &rates.map(|times| format!("{times:.2} times")), crash);
    }

    fn row(&mut self, name: &str, costs: Costs, rates: &[String; 2], crash: &str) {
        let Costs { lines, fences, bytes, .. } = costs;
        let [inserts, gets] = rates;
        let _ = writeln!(
            self.table,
            "| {name} | {lines:.2} | {fences:.2} | {bytes:.0} | {inserts} | {gets} | {crash} |"
        );
        eprintln!("{name}: {inserts}, {gets}");
        self.rows.push((name.to_owned(), costs));
    }

    fn costs(&self, name: &str) -> Outcome<Costs> {
        let found = self.rows.iter().find(|(row, _)| row == name);
        Ok(found.ok_or_else(|| format!("no row {name}"))?.1)
    }

    /// Returns how many times fewer bytes the medium writes in one row than in another.
    fn fewer(&self, row: &str, than: &str) -> Outcome<f64> {
        Ok(self.costs(than)?.bytes / self.costs(row)?.bytes)
    }
}

/// Adds the rows of an index under buffers for components of this size.
macro_rules! rows {
    ($matrix:ident, $name:literal, $target:ident, $base:ty, $component:literal) => {{
        type Held<const LOGGED: bool> = $target<Buffered<$base, Mapped, LOGGED, $component>>;
        let lost = measure::<Held<false>>($matrix.records)?;
        $matrix.beside($name, lost, "**lost on crash**");
        let kept = measure::<Held<true>>($matrix.records)?;
        $matrix.beside(concat!($name, ", log"), kept, "kept");
    }};
}

type Hash = Cceh<u64, u64>;
type Tree = FastFair<u64, u64>;
type List = SkipList<u64, u64>;

fn measured(records: u64) -> Outcome<Matrix> {
    let mut matrix = Matrix { records, table: String::new(), rows: Vec::new(), plain: None };
    matrix.plain("CCEH", measure::<Hashed<Hash>>(records)?);
    rows!(matrix, "CCEH, buffers of 16", Hashed, ByHash<Hash>, 24);
    rows!(matrix, "CCEH, buffers of 512", Hashed, ByHash<Hash>, 1024);
    rows!(matrix, "CCEH, buffers of 512, out of place", Hashed, ByHash<Hash, true>, 1024);
    matrix.plain("FAST&FAIR", measure::<Sorted<Tree>>(records)?);
    matrix.beside("FAST&FAIR, cached", measure::<Cached>(records)?, "kept");
    rows!(matrix, "FAST&FAIR, buffers of 16", Sorted, ByKey<Tree>, 24);
    rows!(matrix, "FAST&FAIR, buffers of 16, out of place", Sorted, ByKey<Tree, true>, 24);
    rows!(matrix, "FAST&FAIR, buffers of 16, out of place, cached", Sorted, ByKey<Tree, true, true>, 24);
    matrix.plain("skip list", measure::<Sorted<List>>(records)?);
    rows!(matrix, "skip list, buffers of 16", Sorted, ByKey<List>, 24);
    Ok(matrix)
}

const INTRODUCTION: &str = "\
# SPTree's study of write buffers

Written by `cargo xtask evidence --only buffering`. Zhao, Zhong, Challa, Jiang: *Developing Index Structures in Persistent
Memory Using Spot-on Optimizations with DRAM* (ICPE 2024), section 3, figures 2 and 3: what reaches the medium for an insert
of 8+8 bytes, without write buffers in DRAM (\"B\"), with them, and with buffers that are written out of place (\"O\"); each with
and without a log. And figure 4: searches in DRAM (\"C\").
";

/// What does not depend on the figures.
const CACHING: &str = "
## Figure 4: caching

The paper copies to DRAM what a search reads above the last level. Here:

| index | in DRAM | to turn on |
| --- | --- | --- |
| CCEH | the directory, in any case; a search reads one segment in PM | no |
| skip list | the towers, in any case; a search reads nodes of the lowest level in PM | no |
| FAST&FAIR | a copy of the inner nodes; a search reads one leaf in PM, without the copy also an inner node on each level | `FastFair::cached`, `CACHED` |

* **The paper: caching has little effect on CCEH, and a large one on FAST&FAIR and the skip list**, because reading its
  PM takes 2 to 3 times as long as reading DRAM. Here PM is DRAM, so this machine cannot show the effect; what the copy
  saves is the reads of inner nodes in PM, which are all nodes that a search reads but the last.
* **It writes nothing more to the medium**: the rows with it have the same lines, fences and bytes as those without it, with
  and without buffers out of place.
* **Opening reads all inner nodes** to make the copy, where FAST&FAIR otherwise reads two lines. For 1 000 000 records that
  are about 2 500 nodes.
* **Nothing is lost in a crash**: the copy is no record's only place.
";

fn page(matrix: &Matrix) -> Outcome<String> {
    let fewer = |row: &str, than: &str| matrix.fewer(row, than);
    let cceh = |row: &str| matrix.costs(&format!("CCEH{row}"));
    let tree = |row: &str| matrix.costs(&format!("FAST&FAIR{row}"));
    let (in_place, anew) = (cceh(", buffers of 512")?, cceh(", buffers of 512, out of place")?);
    let (leaf, leaf_anew) = (tree(", buffers of 16")?, tree(", buffers of 16, out of place")?);
    Ok(format!(
        "{INTRODUCTION}
The second half of {records} inserts in random order, on the counting medium, whose access units have 256 bytes: these
counts do not depend on the machine. Then the same inserts, and a lookup of each key, with every flush and fence executed, on
one thread: the rates, a second of the processor's time, are multiples of those of the index without buffers.

| index | lines | fences | bytes written to the medium | inserts | gets | after a crash |
| --- | --: | --: | --: | --: | --: | --- |
{table}
* **The paper: up to 4 times fewer bytes with buffers**, most for CCEH and FAST&FAIR. Here: CCEH {cceh_512:.1} times with the
  paper's buffers of half a segment ({cceh_16:.1} times with 16 records), FAST&FAIR {tree_16:.1} times, the skip list
  {list_16:.1} times.
* **The paper: out of place is faster for both, since a batch no longer flushes and fences each record.** Here batches
  in place share fences already: in CCEH {cceh_fences:.0} for 512 records, out of place {cceh_anew_fences:.0}, with
  {cceh_saved:.0} % fewer bytes, since a stream of the whole segment fills access units. In FAST&FAIR a batch in place fences
  after each line that a shift leaves, {tree_fences:.0} times for 16 records; out of place it does {tree_anew_fences:.0}
  times, and writes {tree_more:.0} % more bytes: the leaf of 8 lines again, the tickets of two leaves, and the parent's word
  twice, where the paper has one store and leaves a crash open.
* **Our skip list gains more than the paper's**, because its nodes have up to 24 records; theirs have one each, so the
  paper leaves it out of \"O\", and so does this page.
* **With a log** an insert writes a line more, in order. CCEH with buffers of 512 out of place writes {cceh_log:.1} times fewer
  bytes than without buffers, FAST&FAIR {tree_log:.1} times in place, the skip list {list_log:.1} times.
* **Rates**: a write says what was there, so each reads the index first, which the paper's does not. A flush and a fence of
  this machine cost less than Optane's, so that what a buffer saves on the medium does not show in the rate.
* **Out of place with a log is kept**: the crash explorer checks it like any index (`anew-cceh`, `anew-fastfair`). Without
  a log it loses the buffers, and a test expects that the explorer finds it.
{CACHING}",
        records = matrix.records,
        table = matrix.table,
        cceh_512 = fewer("CCEH, buffers of 512", "CCEH")?,
        cceh_16 = fewer("CCEH, buffers of 16", "CCEH")?,
        tree_16 = fewer("FAST&FAIR, buffers of 16", "FAST&FAIR")?,
        list_16 = fewer("skip list, buffers of 16", "skip list")?,
        cceh_fences = 512.0 * in_place.fences,
        cceh_anew_fences = 512.0 * anew.fences,
        cceh_saved = 100.0 * (1.0 - anew.bytes / in_place.bytes),
        tree_fences = 16.0 * leaf.fences,
        tree_anew_fences = 16.0 * leaf_anew.fences,
        tree_more = 100.0 * (leaf_anew.bytes / leaf.bytes - 1.0),
        cceh_log = fewer("CCEH, buffers of 512, out of place, log", "CCEH")?,
        tree_log = fewer("FAST&FAIR, buffers of 16, log", "FAST&FAIR")?,
        list_log = fewer("skip list, buffers of 16, log", "skip list")?,
    ))
}

fn run() -> Outcome<String> {
    let records = std::env::args().nth(1).map_or(Ok(1_000_000), |records| records.parse())?;
    page(&measured(records)?)
}

fn main() -> ExitCode {
    match run() {
        Ok(page) => {
            print!("{page}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
