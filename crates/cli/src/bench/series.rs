//! One series: all indexes in turns, with one number of threads and one distribution.

use std::path::Path;

use pmindex_pibench::{
    BenchSubject, CHUNKS, Distribution, Measured, Phase, Pinned, Records, Run, Settings, Step,
    Workload, measure,
};

use crate::bench::bed::{Bench, Generated, Makers, Reopened, Setup};
use crate::bench::costs;
use crate::bench::options::{Data, Plan, integers};
use crate::error::CliError;
use crate::memory;
use crate::progress::Progress;
use crate::registry::Entry;
use crate::temp_file::{TMPFS, TempFile, has_room};

/// The runs of a series, and what was wrong with one of them after its measurement.
pub(super) type Series = (Vec<Run>, Option<CliError>);

/// Measures every index of the plan. Costs that `earlier` runs counted are not counted again.
pub(super) fn run(
    plan: &Plan<'_>,
    distribution: Distribution,
    threads: usize,
    earlier: &[Run],
) -> Result<Series, CliError> {
    let ascending = distribution == Distribution::Monotonic;
    let seed = plan.sizes(distribution).seed;
    match &plan.data {
        Data::Integers => {
            let records = || Ok(integers(seed, ascending));
            let types = Types { makers: |entry| Some(&entry.integers), records: &records };
            of(plan, distribution, threads, &types, earlier)
        }
        Data::Bytes(bytes) => {
            let records = || bytes.records(seed, ascending);
            let types = Types { makers: |entry| entry.bytes.as_ref(), records: &records };
            of(plan, distribution, threads, &types, earlier)
        }
    }
}

/// The functions that make the indexes and the records of certain types.
struct Types<'r, K: 'static, V: 'static> {
    makers: fn(&'static Entry) -> Option<&'static Makers<K, V>>,
    records: &'r dyn Fn() -> Result<Box<dyn Records<K, V>>, CliError>,
}

fn of<K: Generated, V: Generated>(
    plan: &Plan<'_>,
    distribution: Distribution,
    threads: usize,
    types: &Types<'_, K, V>,
    earlier: &[Run],
) -> Result<Series, CliError> {
    let mut work = Workload::of((types.records)()?, plan.sizes(distribution));
    let mut places = Vec::new();
    let mut benches: Vec<Box<dyn Bench<K, V>>> = Vec::new();
    let room = plan.room();
    let mut pools = 0;
    for &entry in &plan.entries {
        pools += u64::from(makers(types, entry)?.subprocess.is_some());
    }
    let wanted = room.saturating_mul(pools);
    let tmpfs = Path::new(TMPFS);
    if pools > 0 && plan.dir.is_none() && plan.medium.is_auto() && !has_room(tmpfs, wanted) {
        return Err(CliError::NoRoom { wanted });
    }
    for &entry in &plan.entries {
        let name = format!("bench-{}", entry.name);
        let place = TempFile::new((plan.dir, plan.medium), &name, wanted, false)?;
        let (name, path, medium) = (entry.name, place.path(), plan.medium);
        let setup = Setup { name, path, medium, write_latency: plan.write_latency, room };
        benches.push((makers(types, entry)?.make)(setup)?);
        places.push(place);
    }
    if earlier.is_empty() {
        announce(plan, types, &benches, &places)?;
    }
    let settings = plan.settings(threads);
    let (measured, sizes) = throughput(plan, &settings, &benches, &mut work)?;
    let (mut runs, mut wrong) = (Vec::new(), None);
    for (((entry, bench), measured), size) in
        plan.entries.iter().zip(benches).zip(&measured).zip(sizes)
    {
        let mut run = describe(plan, &settings, bench.as_ref(), measured, &work);
        (run.pm_bytes_per_record, run.dram_bytes_per_record) = (size.pm, size.dram);
        // Only if it is not less than the records have.
        run.dram_bytes_per_record = run.memory().map(|(_, dram)| dram);
        if costs::copy(earlier, &mut run) {
            // Costs do not depend on the number of threads.
        } else if let Some(counting) = makers(types, entry)?.counting {
            let (counted, records) = (counting(entry.name)?, (types.records)()?);
            let counted =
                costs::count(entry, &counted, records, &plan.steps, *work.sizes(), &mut run);
            // What was measured before is not lost.
            wrong = wrong.or(counted.err());
        }
        match reopened(entry, bench, &work) {
            Ok(Some(reopened)) => {
                run.recovery_ms = Some(reopened.killed.as_secs_f64() * 1e3);
                run.clean_open_ms = Some(reopened.closed.as_secs_f64() * 1e3);
            }
            Ok(None) => {}
            Err(error) => wrong = wrong.or(Some(error)),
        }
        runs.push(run);
    }
    Ok((runs, wrong))
}

/// Says where the pools are and which mode they have, before anything is measured.
fn announce<K: Generated, V: Generated>(
    plan: &Plan<'_>,
    types: &Types<'_, K, V>,
    benches: &[Box<dyn Bench<K, V>>],
    places: &[TempFile],
) -> Result<(), CliError> {
    for ((entry, bench), place) in plan.entries.iter().zip(benches).zip(places) {
        if makers(types, entry)?.subprocess.is_some() {
            let folder = place.path().parent().unwrap_or(Path::new("."));
            eprintln!("pools in {}, mode {}", folder.display(), bench.durability().0);
            break;
        }
    }
    Ok(())
}

fn makers<K, V>(
    types: &Types<'_, K, V>,
    entry: &'static Entry,
) -> Result<&'static Makers<K, V>, CliError> {
    (types.makers)(entry).ok_or_else(|| CliError::Usage {
        what: format!("{} can be measured with 8-byte keys and values only", entry.name),
    })
}

fn describe<K: Generated, V: Generated>(
    plan: &Plan<'_>,
    settings: &Settings,
    bench: &dyn Bench<K, V>,
    measured: &Measured,
    work: &Workload<K, V>,
) -> Run {
    let (durability, words) = bench.durability();
    let mut run = Run::new(measured, work.sizes(), &durability);
    run.durability_words = words;
    run.peer = bench.is_peer();
    run.pinned = settings.pin;
    run.write_latency_ns = plan.write_latency.as_nanos() as u64;
    (run.key, run.value) = plan.data.fields();
    run
}

/// Measures how long an index takes to open, after its process was killed and after it was closed.
fn reopened<K, V>(
    entry: &Entry,
    bench: Box<dyn Bench<K, V>>,
    work: &Workload<K, V>,
) -> Result<Option<Reopened>, CliError> {
    let Some(reopened) = bench.crash_and_open()? else { return Ok(None) };
    // The killed process may have written one record more.
    let records = reopened.records;
    if !(work.live()..=work.live() + 1).contains(&records) {
        let (index, expected) = (entry.name, work.live());
        return Err(CliError::Recovered { index, records, expected });
    }
    Ok(Some(reopened))
}

/// What a record takes right after loading, in bytes.
struct Size {
    pm: Option<f64>,
    dram: Option<f64>,
}

/// Runs the steps: loads, measures sizes, then runs the rest.
fn throughput<K: Generated, V: Generated>(
    plan: &Plan<'_>,
    settings: &Settings,
    benches: &[Box<dyn Bench<K, V>>],
    work: &mut Workload<K, V>,
) -> Result<(Vec<Measured>, Vec<Size>), CliError> {
    let _pinned = (settings.pin && settings.threads == 1).then(|| Pinned::to_core(0));
    let subjects: Vec<&dyn BenchSubject<K, V>> =
        benches.iter().map(|bench| bench.subject()).collect();
    let (load, rest) = plan.steps.split_at(1);
    let mut watch = Watch::new(&subjects, settings, rest.len());
    let mut measured = measure(&subjects, work, load, settings, &mut watch)?;
    let sizes = benches
        .iter()
        .zip(&watch.grown)
        .map(|(bench, grown)| size(bench.as_ref(), *grown, work.records()))
        .collect::<Result<_, _>>()?;
    let more = measure(&subjects, work, rest, settings, &mut watch)?;
    watch.progress.end();
    for (all, more) in measured.iter_mut().zip(more) {
        all.steps.extend(more.steps);
    }
    Ok((measured, sizes))
}

#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn size<K, V>(bench: &dyn Bench<K, V>, grown: u64, records: u64) -> Result<Size, CliError> {
    let per_record = |bytes: u64| bytes as f64 / records as f64;
    let pm = Some(bench.stored_bytes().map_or(0.0, per_record));
    // Stores in memory and peers do not know their size; so ask the operating system how much `load` added.
    let own = bench.stored_bytes().is_some() && !bench.is_peer();
    let stats = bench.subject().stats()?.filter(|_| own);
    let dram = stats.map_or_else(|| per_record(grown), |stats| per_record(stats.dram_bytes));
    Ok(Size { pm, dram: Some(dram) })
}

/// Draws progress, and records how much memory loading each subject takes.
struct Watch {
    progress: Progress,
    done: u64,
    names: Vec<String>,
    before: u64,
    grown: Vec<u64>,
}

impl Watch {
    fn new<K, V>(subjects: &[&dyn BenchSubject<K, V>], settings: &Settings, steps: usize) -> Self {
        let rounds = 1 + steps * (1 + usize::from(settings.sample.is_some()));
        Self {
            progress: Progress::new("loading", (subjects.len() * rounds * CHUNKS) as u64),
            done: 0,
            names: subjects.iter().map(|subject| subject.name().to_owned()).collect(),
            before: 0,
            grown: vec![0; subjects.len()],
        }
    }
}

impl pmindex_pibench::Watch for Watch {
    fn chunk(&mut self, step: &Step, subject: usize, _: usize) {
        self.progress.at(self.done, format!("{} {step}", self.names[subject]));
        if step.phase() == Some(Phase::Load) {
            self.before = memory::resident_anonymous().unwrap_or_default();
        }
    }

    fn chunk_done(&mut self, step: &Step, subject: usize, _: usize) {
        if step.phase() == Some(Phase::Load) {
            let now = memory::resident_anonymous().unwrap_or_default();
            self.grown[subject] += now.saturating_sub(self.before);
        }
        self.done += 1;
    }
}
