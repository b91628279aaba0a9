//! Power failures of an ordinary disk: `cargo xtask crash --index NAME --disk [--mutate]`.
//!
//! A pool with an index of any kind, in mode `Journal` and in mode `Periodic`, on two simulated files. The
//! pool and the protocol of its disk are the library's own, over files in memory; the effects of a power
//! failure are simulated. A sector of 512 bytes survives as a whole, in its old or its new version, in any
//! subset of the sectors that were written since the last completed synchronisation. The kernel writes the
//! pages of a mapped pool back at any time, so each page, or each sector or line, survives in any version
//! that it had since. In a fourth of the runs in mode `Journal` a write or a synchronisation fails at any
//! point. Each state is opened, compared with the acknowledged writes, checked and written to again.
//!
//! A mutant is a disk that lies, or a protocol that does not ask: one of its steps makes nothing durable, or
//! does so one step later. Each must be caught.
//!
//! The protocol itself, two threads, and crashes during replay are explored in the tests of `pmindex-core`
//! (`pool/tests/journal_crash.rs`, `journal_again.rs`, `twin_crash.rs`).
//!
//! Under plain `cargo test` every kind is explored with few states. New kinds of the library are included
//! automatically.
#![forbid(unsafe_code)]

mod costs;
mod journal;
mod shadow;
mod twin;

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};
use std::io;
use std::ops::Bound;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Index, IndexError, Kind, Pool, PoolOptions};

use shadow::Canvas;

/// Operations of a run: enough for its log to wrap around some times.
const STEPS: u64 = 160;
/// Bytes of a journal, or of a twin's log.
const LOG: usize = 256 << 10;
/// About the number of moments of a run.
const MOMENTS_OF_RUN: u64 = 1500;
/// Images of a moment, if many are asked for.
const IMAGES: u64 = 12;
/// The fewest and the most states that are spent on one mutant: a head that is never written shows when the
/// log has gone round.
const MUTANT_STATES: [u64; 2] = [3000, 60_000];

type Model = BTreeMap<u64, u64>;

/// A change of a record: its key, and its new value; none if it is removed.
type Change = (u64, Option<u64>);

/// A mode of durability.
trait Mode {
    const NAME: &'static str;
    /// The mutants of its steps.
    const MUTANTS: &'static [Mutant];
    /// A state after a power failure, and the acknowledged writes.
    type Image: Image;

    /// Returns `true` if this machine supports it.
    fn is_possible() -> bool {
        true
    }

    /// Runs operations on an index, and passes every image to `take`, which returns `false` to stop.
    fn run(run: &Run, take: &mut dyn FnMut(Self::Image) -> bool) -> Result<(), String>;
}

/// A state after a power failure.
trait Image {
    /// The same for two images that are the same, with what may be found in them.
    fn digest(&self) -> u64;

    /// Describes it.
    fn what(&self) -> &str;

    /// Opens it, compares and checks it, and writes on.
    fn check(&self, kind: Kind, bench: &mut Bench) -> Result<(), String>;
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Run {
    kind: Kind,
    seed: u64,
    /// One moment in this number is shown, by this many images.
    thin: u64,
    images: u64,
    mutant: Option<Mutant>,
}

/// A step that makes something durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The write of a batch to the log.
    Batch,
    /// The synchronisation of the pool's file, or of the base of a twin.
    Checkpoint,
    /// The write of the log's head.
    Head,
    /// The log is durable up to the copy of a page, before that is written to the base.
    Page,
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dropped,
    /// Behind the next one.
    Moved,
}

/// A step that fails to make something durable.
type Mutant = (Step, Fate);

/// Decides when a write becomes durable, if ever.
struct Durable {
    batch: Option<JournalMoment>,
    /// The pool's file, or the base of a twin.
    checkpoint: Option<JournalMoment>,
    head: Option<JournalMoment>,
}

/// With this mutant, or none.
fn durable(mutant: Option<Mutant>) -> Durable {
    let of = |step, usual, late| match mutant {
        Some((mutated, Fate::Dropped)) if mutated == step => None,
        Some((mutated, Fate::Moved)) if mutated == step => Some(late),
        _ => Some(usual),
    };
    Durable {
        // Late: at the beginning of the next one.
        batch: of(Step::Batch, JournalMoment::Written, JournalMoment::Writing),
        checkpoint: of(Step::Checkpoint, JournalMoment::Synchronised, JournalMoment::Truncated),
        head: of(Step::Head, JournalMoment::Truncated, JournalMoment::Written),
    }
}

/// Files that images are written to, to be opened: a pool's, and that of its journal or twin.
struct Bench {
    pool: Canvas,
    log: Canvas,
}

/// The findings in one mode.
struct Found {
    mode: &'static str,
    states: u64,
    duplicates: u64,
    runs: u64,
    failure: Option<String>,
    seconds: f64,
}

/// Explores power failures of pools on an ordinary disk.
#[derive(Parser)]
#[command(name = "cargo xtask crash --disk")]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
struct Args {
    /// The kind of index [default: all]
    #[arg(long)]
    index: Option<String>,
    /// The number of distinct states to check, per kind, half of them in each mode
    #[arg(long, default_value_t = 400)]
    states: u64,
    /// Where all choices come from; a failure prints the seed that replays it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also let each step of the protocol do nothing, or do it late, one at a time: each must be caught
    #[arg(long)]
    mutate: bool,
    /// Print the names of the kinds
    #[arg(long)]
    list: bool,
    /// Parts of names, as for any test binary
    filters: Vec<String>,
    /// Ignored: the test runner passes it to every binary
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    /// Ignored, as above
    #[arg(long, hide = true)]
    nocapture: bool,
    /// Ignored, as above
    #[arg(long, short, hide = true)]
    quiet: bool,
    /// Ignored, as above
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl Args {
    fn wants(&self, kind: Kind) -> bool {
        self.index.as_ref().is_none_or(|index| index == kind.name())
            && (self.filters.is_empty() || self.names(&format!("disk {kind}")))
    }

    /// Whether a filter is part of the name of a test.
    fn names(&self, test: &str) -> bool {
        self.filters.iter().any(|filter| test.contains(filter.as_str()))
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for kind in Kind::ALL {
            println!("disk {kind}: test");
        }
        println!("{}: test", costs::NAME);
        return ExitCode::SUCCESS;
    }
    let is_golden = args.index.is_none()
        && twin::Periodic::is_possible()
        && (args.filters.is_empty() || args.names(costs::NAME));
    if is_golden && let Err(why) = costs::are_golden() {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    let wanted: Vec<Kind> = Kind::ALL.iter().copied().filter(|&kind| args.wants(kind)).collect();
    if wanted.is_empty() && args.filters.is_empty() {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        eprintln!("no such kind; there are: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    if args.mutate {
        // A mutant may cause panics, which are reported with the mutant.
        panic::set_hook(Box::new(|_| {}));
    }
    let (next, all_hold) = (AtomicUsize::new(0), AtomicBool::new(true));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(&kind) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !explores(kind, &args) {
                        all_hold.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if all_hold.into_inner() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores a kind in both modes and prints the findings; returns `true` if all states hold.
fn explores(kind: Kind, args: &Args) -> bool {
    let explores = |explores: fn(Kind, &Args, &Path) -> bool| match folder() {
        Ok(folder) => explores(kind, args, folder.path()),
        Err(error) => {
            println!("{kind}, on a disk: no folder for it: {error}");
            false
        }
    };
    [explores_mode::<journal::Journal>, explores_mode::<twin::Periodic>].map(explores) == [true; 2]
}

fn explores_mode<M: Mode>(kind: Kind, args: &Args, folder: &Path) -> bool {
    if !M::is_possible() {
        println!("{kind}, {}: skipped: no tmpfs", M::NAME);
        return true;
    }
    let bench = &mut Bench::in_folder(folder);
    let found = explore::<M>(kind, args.states / 2, args.seed, None, bench);
    println!("{kind}, {found}");
    found.failure.is_none() && (!args.mutate || mutants::<M>(kind, args, bench))
}

fn mutants<M: Mode>(kind: Kind, args: &Args, bench: &mut Bench) -> bool {
    let [fewest, most] = MUTANT_STATES;
    let states = args.states.clamp(fewest, most);
    let mut told = String::new();
    let mut survived = 0;
    for &(step, fate) in M::MUTANTS {
        let found = explore::<M>(kind, states, args.seed, Some((step, fate)), bench);
        let verdict = found.failure.as_deref().and_then(|failure| failure.lines().next());
        survived += usize::from(verdict.is_none());
        let verdict = verdict.unwrap_or("SURVIVED: redundant, or not tested");
        let _ = writeln!(told, "  {step:?} {fate:?}: {verdict}");
    }
    let all = M::MUTANTS.len();
    println!("{told}{kind}, {}: {all} mutants, {} caught", M::NAME, all - survived);
    survived == 0
}

/// Runs until `states` are checked, or one breaks the contract.
fn explore<M: Mode>(
    kind: Kind,
    states: u64,
    seed: u64,
    mutant: Option<Mutant>,
    bench: &mut Bench,
) -> Found {
    let mut found =
        Found { mode: M::NAME, states: 0, duplicates: 0, runs: 0, failure: None, seconds: 0.0 };
    let (started, mut known) = (Instant::now(), HashSet::new());
    // Few states are of a whole run, too. A mutant may show late.
    let (thin, images) = match mutant {
        None if states < MOMENTS_OF_RUN * IMAGES => (MOMENTS_OF_RUN / states.max(1), 1),
        None => (1, IMAGES),
        Some(_) => (4, 4),
    };
    let thin = thin.max(1);
    while found.states < states && found.failure.is_none() {
        let run = Run { kind, seed: mix(seed ^ mix(found.runs)), thin, images, mutant };
        found.runs += 1;
        let before = found.states;
        let ran = M::run(&run, &mut |image| {
            if !known.insert(image.digest()) {
                found.duplicates += 1;
                return true;
            }
            found.states += 1;
            let checked = panic::catch_unwind(AssertUnwindSafe(|| image.check(kind, bench)));
            if let Err(why) = checked.unwrap_or_else(|_| Err("it panicked".into())) {
                let runs = found.runs;
                found.failure = Some(format!("{why}; {}, seed {seed}, run {runs}", image.what()));
            }
            found.failure.is_none() && found.states < states
        });
        if let Err(why) = ran {
            found.failure.get_or_insert(format!("seed {seed}, run {}: {why}", found.runs));
        }
        if found.states == before && found.failure.is_none() {
            found.failure = Some(format!("run {} shows nothing new", found.runs));
        }
    }
    found.seconds = started.elapsed().as_secs_f64();
    found
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, states, duplicates, runs, seconds, .. } = self;
        let verdict = self.failure.as_ref().map_or("holds", |_| "BROKEN");
        write!(f, "{mode}: {states} states of {runs} runs ({duplicates} known ones), ")?;
        write!(f, "{seconds:.0} s, {verdict}")?;
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, "\n  {failure}"))
    }
}

impl Bench {
    fn in_folder(folder: &Path) -> Self {
        // A pool `pool` has a journal of this name, and the twin of such a pool may have it.
        let [pool, log] = ["pool", "pool.journal"].map(|name| Canvas::at(folder.join(name)));
        Self { pool, log }
    }
}

/// The sizes of a pool: small, since each state is written and read.
fn sizes() -> PoolOptions {
    let options = PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4);
    options.slot_bytes(1024).huge_pages(false)
}

/// Returns a folder in memory, if possible.
fn folder() -> io::Result<tempfile::TempDir> {
    let shm = Path::new("/dev/shm");
    tempfile::tempdir_in(shm).or_else(|_| tempfile::tempdir())
}

/// The operations of a run: always the same of a seed.
struct Operations(u64);

impl Operations {
    /// Returns the changes of the next operation: of one record, or of six.
    fn next(&mut self) -> Vec<Change> {
        self.0 = mix(self.0);
        let random = self.0;
        let key = (random >> 8) % 80 * 7 + 2;
        match random % 32 {
            0 => (0..6).map(|i| (key + 5 * i, Some(random | 1))).collect(),
            1..9 => vec![(key, None)],
            _ => vec![(key, Some(random | 1))],
        }
    }
}

/// Does what [`Operations::next`] says.
fn apply(index: &AnyIndex<u64, u64>, changes: &[Change]) -> Result<(), IndexError> {
    match *changes {
        [(key, Some(value))] => index.put(&key, &value).map(drop),
        [(key, None)] => index.remove(&key).map(drop),
        _ => {
            let records: Vec<_> =
                changes.iter().filter_map(|&(key, value)| Some((key, value?))).collect();
            index.put_many(&records)
        }
    }
}

fn change(model: &mut Model, changes: &[Change]) {
    for &(key, wanted) in changes {
        match wanted {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

/// Returns `true` if `found` is `model`, except for the records of an operation in progress, each of which
/// may be old or new.
/// old or new.
fn is_between(found: &Model, model: &Model, pending: &[Change]) -> bool {
    let is_pending = |key: &u64| pending.iter().any(|change| change.0 == *key);
    let settled = |(key, value): (&u64, &u64)| (!is_pending(key)).then_some((*key, *value));
    found
        .iter()
        .filter_map(|(k, v)| settled((k, v)))
        .eq(model.iter().filter_map(|(k, v)| settled((k, v))))
        && pending.iter().all(|&(key, wanted)| {
            let now = found.get(&key).copied();
            now == wanted || now == model.get(&key).copied()
        })
}

/// Checks that an index that was opened after a power failure has the right records, is intact, and works.
fn verify(pool: &Arc<Pool>, is_right: impl FnOnce(&Model) -> bool) -> Result<(), String> {
    let told = |what: &'static str| move |e: IndexError| format!("{what}: {e}");
    let index = AnyIndex::<u64, u64>::open(pool, "index").map_err(|e| format!("opening: {e}"))?;
    let all = index.range_bounds(Bound::Unbounded, Bound::Unbounded);
    let found: Model = all.collect::<Result<_, _>>().map_err(told("reading"))?;
    if !is_right(&found) {
        return Err(format!("{} records are not what was acknowledged", found.len()));
    }
    let checked = index.check().map_err(told("checking"))?;
    if checked != found.len() as u64 {
        return Err(format!("{checked} records counted, {} found", found.len()));
    }
    for key in [1, 703, u64::MAX - 1] {
        index.put(&key, &key).map_err(told("writing on"))?;
        if index.remove(&key).map_err(told("writing on"))? != Some(key) {
            return Err(format!("record {key} was written and is not there"));
        }
    }
    Ok(())
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
