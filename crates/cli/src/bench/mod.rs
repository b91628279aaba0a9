//! `pmindex bench`: measures indexes, in turns, and compares them with `std`'s `BTreeMap`.

pub(crate) mod bed;
mod bwtree;
mod costs;
mod golden;
pub(crate) mod opener;
mod options;
pub(crate) mod peer;
mod print;
mod series;
mod target;
pub(crate) mod victim;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use pmindex::core::NewFile;
use pmindex_pibench::{BATCH, Distribution, MIXES, Report, SCAN_LENGTH, SCHEMA, page};

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::output;

/// What to measure.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// Indexes to measure, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "fptree,btreemap", value_name = "INDEX",
          value_parser = crate::registry::parser())]
    pub(super) index: Vec<String>,

    /// Records in a leaf, one number or several: fptree has 13 and 28, for integers [default: each index's
    /// own]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub(super) node_size: Vec<usize>,

    /// Records to load before the other phases
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) records: u64,

    /// Operations of each phase, at most --records; a phase of scans has a twentieth of them, with scans of 100
    /// [default: a quarter of the records, but from 100000 (or all records) to 2000000]
    #[arg(long)]
    pub(super) ops: Option<u64>,

    /// Run each phase for at least this many seconds, in as many chunks as this takes; the records that a phase
    /// adds and removes are taken back, outside the timing
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = crate::seconds)]
    pub(super) seconds: Option<f64>,

    /// Run more than --ops operations where one of the five chunks of a phase would take less than this many
    /// milliseconds on the fastest index (but none longer than a second on the slowest)
    #[arg(long, value_name = "MS", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(..=1000))]
    pub(super) chunk_ms: u64,

    /// Threads that share the operations, one number or several (btreemap always has one)
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(super) threads: Vec<usize>,

    /// Pin each thread to a core of its own
    #[arg(long)]
    pub(super) pin: bool,

    /// Which threads do the background work of sptree-buffered: one additional thread (the time it needs to
    /// finish is counted too), or the writers
    #[arg(long, value_enum, default_value = "thread", value_name = "WHO")]
    pub(super) background: Background,

    /// Phases, separated by commas [default: all but upsert; none with --mix]
    #[arg(long, value_delimiter = ',', value_name = "PHASE", value_parser = options::phases())]
    pub(super) phases: Vec<pmindex_pibench::Phase>,

    /// A mix such as get:50,update:50, or names of mixes, below; may be repeated
    #[arg(long, value_name = "MIX")]
    pub(super) mix: Vec<String>,

    /// How keys are chosen, one way or several
    #[arg(long, value_delimiter = ',', default_value = "uniform", value_name = "HOW",
          value_parser = PossibleValuesParser::new(Distribution::NAMES))]
    pub(super) distribution: Vec<String>,

    /// The skew of zipfian [default: 0.99] and self-similar [default: 0.2]
    #[arg(long)]
    pub(super) skew: Option<f64>,

    /// Bytes of a key: 8 means an integer, other numbers byte strings; 5-16 means varying lengths
    #[arg(long, default_value = "8", value_name = "BYTES")]
    pub(super) key_size: String,

    /// Bytes of a value, in the same form
    #[arg(long, default_value = "8", value_name = "BYTES")]
    pub(super) value_size: String,

    /// A prefix of all keys, which makes them byte strings
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(super) key_prefix: String,

    /// Use the lines of a file as keys
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,

    /// Records that each scan reads
    #[arg(long, default_value_t = SCAN_LENGTH, value_name = "N")]
    pub(super) scan_length: usize,

    /// Keys in each call of `get_many` and `insert_many`
    #[arg(long, default_value_t = BATCH, value_name = "N")]
    pub(super) batch: usize,

    /// The fraction of calls (0 to 1) whose latency is measured, in a second round of each phase; 0 omits
    /// that round
    #[arg(long, default_value_t = 1.0, value_name = "PART")]
    pub(super) latency_sample: f64,

    /// Nanoseconds to add to each flushed line, to emulate a slower medium; at most a second
    #[arg(long, default_value_t = 0, value_name = "NS",
          value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    pub(super) write_latency: u64,

    /// Where to put the pools [default: tmpfs if it has room; /var/tmp for the modes msync and
    /// journal]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    #[command(flatten)]
    pub(super) medium: MediumArgs,

    /// The seed of keys and choices
    #[arg(long, default_value_t = 42)]
    pub(super) seed: u64,

    /// Print JSON instead of a table (docs/bench-schema.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values instead of a table
    #[arg(long)]
    csv: bool,

    /// Also write a page of charts (`index.html`) and its data (`report.json`) into this folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Which threads do background work. The variants have no help of their own: clap would print the help of
/// all options in its long form.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Background {
    Thread,
    Writers,
}

/// What to draw.
#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Files with the output of `pmindex bench --json`
    #[arg(required = true)]
    measurements: Vec<PathBuf>,

    /// The folder for `index.html` and `report.json`
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Draws earlier measurements on one page.
pub(crate) fn report(args: &ReportArgs) -> Result<(), CliError> {
    let mut all = Report::default();
    for path in &args.measurements {
        let measured: Report = serde_json::from_slice(&read(path)?).map_err(|error| {
            let path = path.display();
            CliError::Option { what: format!("{path}: not the output of `bench --json`: {error}") }
        })?;
        if measured.schema != SCHEMA {
            let (path, form) = (path.display(), measured.schema);
            let what = format!(
                "{path}: its schema is version {form}; this program reads version {SCHEMA}"
            );
            return Err(CliError::Option { what });
        }
        if all.runs.is_empty() {
            all = measured;
        } else {
            all.runs.extend(measured.runs);
        }
    }
    write(&all, &args.out)?;
    output::print(&format!("{}\n", args.out.join("index.html").display()))
}

/// Writes the page and the JSON behind it.
fn write(report: &Report, dir: &Path) -> Result<(), CliError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error| CliError::File { path, error }
    };
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    let json = serde_json::to_string(report)? + "\n";
    for (name, text) in [("report.json", json), ("index.html", page(report))] {
        let path = dir.join(name);
        // Whole, or as it was: the measurements may be the ones that were read from there.
        let written = NewFile::create(&path, 0o644).and_then(|file| {
            let mut out = file.file();
            out.write_all(text.as_bytes())?;
            file.finish(true)
        });
        written.map_err(failed(&path))?;
    }
    Ok(())
}

/// Returns the mixes and the examples.
fn after_help() -> String {
    let mixes =
        MIXES.iter().map(|(name, shares, source)| format!("  {name:<18} {shares} ({source})\n"));
    format!("Mixes:\n{}\n{EXAMPLES}", mixes.collect::<String>())
}

const EXAMPLES: &str = "Examples:
  pmindex bench
  pmindex bench --index fptree,btreemap --records 10000000 --durability flush
  pmindex bench --index fptree --node-size 13,28
  pmindex bench --index fptree,bztree --threads 1,2 --distribution uniform,zipfian --json
  pmindex bench --index hart,fptree --mix read-intensive,write-intensive --write-latency 300
  pmindex bench --index fptree,hart --key-file crates/cli/data/words.txt --value-size 100 --records 200000";

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let plan = options::Plan::new(args)?;
    if let Some(dir) = &args.report {
        // Now, and not after hours of measuring.
        std::fs::create_dir_all(dir)
            .map_err(|error| CliError::File { path: dir.clone(), error })?;
    }
    let mut report = Report::here();
    let outcome = measure(&plan, &mut report);
    if report.runs.is_empty() {
        return outcome;
    }
    // Whatever was wrong afterwards, what was measured is printed.
    if args.json {
        output::print_json(&serde_json::to_value(&report)?)?;
    } else if args.csv {
        output::print(&pmindex_pibench::csv(&report))?;
    } else {
        output::print(&print::text(&report))?;
    }
    if let Some(dir) = &args.report {
        write(&report, dir)?;
    }
    outcome
}

/// Adds all runs to the report, or those before an error.
fn measure(plan: &options::Plan<'_>, report: &mut Report) -> Result<(), CliError> {
    for &distribution in &plan.distributions {
        for &threads in &plan.threads {
            let (runs, wrong) = series::run(plan, distribution, threads, &report.runs)?;
            report.runs.extend(runs);
            wrong.map_or(Ok(()), Err)?;
        }
    }
    Ok(())
}

/// Reads a file, up to a limit that no sensible list of keys or report exceeds.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    const LIMIT: u64 = 4 << 30;
    let failed = |error| CliError::File { path: path.to_path_buf(), error };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LIMIT).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}
