//! `pmindex bench`: measures indexes, in turns, and compares them with `std`'s `BTreeMap`.

use indicatif::ProgressBar;
use pmindex_pibench::{
    CHUNKS, Measured, Phase, Report, Run, Subject, Workload, Yardstick, measure,
};

use crate::error::CliError;
use crate::table::{Table, digits, thousands};
use crate::{memory, progress, registry};

/// What to measure.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Indexes, by name, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "btreemap")]
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

    /// Another seed gives other keys
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  pmindex bench --index btreemap --records 100000
  pmindex bench --index btreemap --json";

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
    let subjects: Vec<Box<dyn Subject>> = args
        .index
        .iter()
        .map(|name| (registry::find(name)?.make)())
        .collect::<Result<_, CliError>>()?;
    let subjects: Vec<&dyn Subject> = subjects.iter().map(AsRef::as_ref).collect();
    let phases = chosen(&args.phases);

    let mut watch = Watch::new(&subjects, phases.len());
    let measured = measure(&subjects, &mut work, &phases, args.threads, &mut watch)?;
    let grown = watch.finish();

    let mut report = Report::default();
    for ((subject, measured), grown) in subjects.iter().zip(&measured).zip(grown) {
        report.runs.push(describe(*subject, measured, &work, grown)?);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// The phases in their order, `load` always among them.
fn chosen(wanted: &[Phase]) -> Vec<Phase> {
    let all = Phase::ALL.into_iter();
    all.filter(|p| wanted.is_empty() || *p == Phase::Load || wanted.contains(p)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn describe(
    subject: &dyn Subject,
    measured: &Measured,
    work: &Workload,
    grown: u64,
) -> Result<Run, CliError> {
    let mut run = Run::new(measured, work.records(), "volatile");
    if let Some(stats) = subject.stats()? {
        let per_record = |bytes: u64| Some(bytes as f64 / stats.records.max(1) as f64);
        run.pm_bytes_per_record = per_record(stats.pm_bytes);
        run.dram_bytes_per_record = per_record(stats.dram_bytes);
        if subject.name() == Yardstick::NAME {
            // It cannot tell, the operating system can: what its chunks of `load` added.
            run.dram_bytes_per_record = Some(grown as f64 / work.records() as f64);
        }
    }
    Ok(run)
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

    fn finish(self) -> Vec<u64> {
        self.bar.finish_and_clear();
        self.grown
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

/// The report as tables: one of throughput, with ratios to the yardstick, one of sizes.
fn print(report: &Report) {
    let yardstick = report.runs.iter().find(|run| run.index == Yardstick::NAME);
    for run in &report.runs {
        println!(
            "\n{}: {} records, {} thread{}, durability {}",
            run.index,
            thousands(run.records),
            run.threads,
            if run.threads == 1 { "" } else { "s" },
            run.durability
        );
        let mut table = Table::new(["operation", "Mops/s", "x btreemap", "lines/op", "fences/op"]);
        for row in &run.phases {
            let base = yardstick.and_then(|base| base.phase(row.op)).map(|base| base.mops);
            table.row([
                row.op.name().to_owned(),
                digits(row.mops),
                base.map_or("-".into(), |base| digits(row.mops / base)),
                row.flushed_lines_per_op.map_or("-".into(), digits),
                row.fences_per_op.map_or("-".into(), digits),
            ]);
        }
        print!("{}", table.render());
        let bytes = |b: Option<f64>| b.map_or("unknown".into(), |b| format!("{b:.1} B"));
        println!(
            "  a record takes {} of PM and {} of DRAM; recovery {}",
            bytes(run.pm_bytes_per_record),
            bytes(run.dram_bytes_per_record),
            run.recovery_ms.map_or("-".into(), |ms| format!("{} ms", digits(ms))),
        );
    }
}
