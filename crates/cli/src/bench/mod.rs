//! `pmindex bench`: measures indexes, in turns, and compares them with `std`'s `BTreeMap`.

mod costs;
mod print;
pub(crate) mod victim;

use std::path::PathBuf;

use indicatif::ProgressBar;
use pmindex_pibench::{CHUNKS, Measured, Phase, Report, Run, Subject, Workload, measure};

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::place::Place;
use crate::registry::{Bench, Entry};
use crate::{memory, output, progress, registry};

/// What to measure.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Indexes, by name, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "fptree,btreemap")]
    index: Vec<String>,

    /// Records to load before the other phases
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,

    /// Operations a phase [default: a quarter of the records]
    #[arg(long)]
    ops: Option<u64>,

    /// Threads that share the operations (btreemap always runs on one)
    #[arg(long, default_value_t = 1)]
    threads: usize,

    /// Phases, separated by commas [default: all of them]
    #[arg(long, value_delimiter = ',', value_parser = phase)]
    phases: Vec<Phase>,

    /// Where to put the pools [default: tmpfs if there is room, else the temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    medium: MediumArgs,

    /// Another seed gives other keys
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  pmindex bench
  pmindex bench --index fptree,btreemap --records 10000000 --durability flush
  pmindex bench --index fptree --threads 2 --phases get,insert --json";

fn phase(name: &str) -> Result<Phase, String> {
    Phase::ALL.into_iter().find(|phase| phase.name() == name).ok_or_else(|| {
        let all: Vec<&str> = Phase::ALL.iter().map(|phase| phase.name()).collect();
        format!("the phases are {}", all.join(", "))
    })
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let ops = args.ops.unwrap_or_else(|| Workload::default_ops(args.records));
    let mut work = Workload::new(args.records, ops, args.seed);
    let entries: Vec<&Entry> =
        args.index.iter().map(|name| registry::find(name)).collect::<Result<_, _>>()?;
    let room = work.peak() * BYTES_PER_RECORD * entries.len() as u64;
    let mut places = Vec::new();
    let mut benches: Vec<Box<dyn Bench>> = Vec::new();
    for entry in &entries {
        let place = Place::new(args.dir.as_deref(), &format!("bench-{}", entry.name), room, false)?;
        benches.push((entry.make)(place.path(), args.medium)?);
        places.push(place);
    }
    let (measured, sizes) = throughput(args, &benches, &mut work)?;
    let mut report = Report::default();
    for (((entry, bench), measured), size) in entries.iter().zip(benches).zip(&measured).zip(sizes)
    {
        let durability = bench.promise().map_or("volatile".into(), |promise| promise.mode);
        let mut run = Run::new(measured, work.records(), &durability);
        run.pm_bytes_per_record = size.pm;
        run.dram_bytes_per_record = size.dram;
        costs::count(entry, &mut run, args.seed)?;
        if let Some((time, records)) = bench.crash_and_open()? {
            // The process that was killed may have been at its one record more.
            if !(work.live()..=work.live() + 1).contains(&records) {
                let (name, expected) = (entry.name, work.live());
                return Err(CliError::Recovered { index: name, records, expected });
            }
            run.recovery_ms = Some(time.as_secs_f64() * 1e3);
        }
        report.runs.push(run);
    }
    if args.json {
        output::print_json(&serde_json::to_value(&report)?)
    } else {
        output::print(&print::text(&report))
    }
}

/// Bytes a record of the hungriest index takes, about.
const BYTES_PER_RECORD: u64 = 128;

/// What a record takes right after loading, in bytes.
struct Size {
    pm: Option<f64>,
    dram: Option<f64>,
}

/// Runs the phases: loads, looks at sizes, then runs the rest.
fn throughput(
    args: &Args,
    benches: &[Box<dyn Bench>],
    work: &mut Workload,
) -> Result<(Vec<Measured>, Vec<Size>), CliError> {
    let subjects: Vec<&dyn Subject> = benches.iter().map(|bench| bench.subject()).collect();
    let rest = chosen(&args.phases);
    let mut watch = Watch::new(&subjects, 1 + rest.len());
    let mut measured = measure(&subjects, work, &[Phase::Load], args.threads, &mut watch)?;
    let sizes = benches
        .iter()
        .zip(&watch.grown)
        .map(|(bench, grown)| size(bench.as_ref(), *grown, work.records()))
        .collect::<Result<_, _>>()?;
    let more = measure(&subjects, work, &rest, args.threads, &mut watch)?;
    watch.bar.finish_and_clear();
    for (all, more) in measured.iter_mut().zip(more) {
        all.phases.extend(more.phases);
    }
    Ok((measured, sizes))
}

/// The phases after `load`, in their order.
fn chosen(wanted: &[Phase]) -> Vec<Phase> {
    let all = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Load);
    all.filter(|phase| wanted.is_empty() || wanted.contains(phase)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn size(bench: &dyn Bench, grown: u64, records: u64) -> Result<Size, CliError> {
    let per_record = |bytes: u64| bytes as f64 / records as f64;
    let pm = Some(bench.pool_bytes().map_or(0.0, per_record));
    // The yardstick cannot tell, the operating system can: what its chunks of `load` added.
    let dram = match bench.pool_bytes() {
        None => Some(per_record(grown)),
        Some(_) => bench.subject().stats()?.map(|stats| per_record(stats.dram_bytes)),
    };
    Ok(Size { pm, dram })
}

/// Draws progress and notes what memory the loading of each subject takes.
struct Watch {
    bar: ProgressBar,
    names: Vec<String>,
    before: u64,
    grown: Vec<u64>,
}

impl Watch {
    fn new(subjects: &[&dyn Subject], phases: usize) -> Self {
        Self {
            bar: progress::bar((subjects.len() * phases * CHUNKS) as u64),
            names: subjects.iter().map(|subject| subject.name().to_owned()).collect(),
            before: 0,
            grown: vec![0; subjects.len()],
        }
    }
}

impl pmindex_pibench::Watch for Watch {
    fn chunk(&mut self, phase: Phase, subject: usize, _: usize) {
        self.bar.set_message(format!("{} {phase}", self.names[subject]));
        if phase == Phase::Load {
            self.before = memory::resident_anonymous().unwrap_or_default();
        }
    }

    fn chunk_done(&mut self, phase: Phase, subject: usize, _: usize) {
        if phase == Phase::Load {
            let now = memory::resident_anonymous().unwrap_or_default();
            self.grown[subject] += now.saturating_sub(self.before);
        }
        self.bar.inc(1);
    }
}
