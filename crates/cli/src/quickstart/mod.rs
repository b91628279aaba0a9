//! `pmindex quickstart`: loads real keys into a real file, kills the writer, and verifies that nothing was
//! lost.
//!
//! 1. Load a word list and a million integers into two indexes of one pool; time every operation.
//! 2. A child process continues to write from several threads, and acknowledges every write.
//! 3. At a random moment it is killed (SIGKILL).
//! 4. Open the pool, which recovers it.
//! 5. Compare both indexes with the acknowledgements: every acknowledged write must be there, each write in
//!    flight completely or not at all, and nothing else.
//!
//! Steps 2 to 5 repeat with `--rounds`.

mod exercise;
mod show;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmindex::core::{Counter, Durability, Pool, PoolOptions};
use pmindex::{Index, IndexError, Key, Kind, Value};
use pmindex_pibench::KeySpace;

use crate::error::CliError;
use crate::kinds::kinds;
use crate::medium::MediumArgs;
use crate::progress::Progress;
use crate::temp_file::TempFile;
use crate::{output, progress};

use crate::trial::acks::MAX_THREADS;
use crate::trial::crash::{Moment, Plan};
use crate::trial::model::{Expected, Model};
use crate::trial::round::{Round, Tally, Trial};
use crate::trial::source::{Source, Universes};
use crate::trial::store::Store;
use crate::trial::universe::{self, Universe};

use exercise::{BothIndexes, OpLimit};

/// The size of the pool by default, in bytes.
const ROOM: u64 = 1 << 30;

/// What to try.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    /// Where to put the pool [default: tmpfs if it has room, else the temporary folder; /var/tmp for the modes msync and
    /// journal]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    medium: MediumArgs,

    /// The kind of index to try
    #[arg(long = "index", value_name = "KIND", default_value_t = Kind::FpTree,
          value_parser = kinds())]
    kind: Kind,

    /// Rounds of writing, killing, recovering and verifying
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,

    /// Threads that write while the process is killed
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new()
              .range(1..=MAX_THREADS as u64))]
    threads: usize,

    /// The seed of keys and moments, to repeat a run [default: random]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// Keep the pool
    #[arg(long)]
    keep: bool,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Remove a record before the pool is verified, to see that it is missed
    #[arg(long, hide = true)]
    lose: bool,
}

const EXAMPLES: &str = "Examples:
  pmindex quickstart
  pmindex quickstart --keys my-keys.txt --dir . --keep
  pmindex quickstart --durability flush
  pmindex quickstart --rounds 200 --integers 50000";

/// The results of a run.
struct Summary {
    seed: u64,
    pool: PathBuf,
    pool_bytes: u64,
    promise: crate::medium::Promise,
    loaded: [u64; 2],
    load_time: Duration,
    speeds: BothIndexes,
    costs: BothIndexes,
    rounds: Vec<Round>,
    tally: Tally,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let seed = args.seed.unwrap_or_else(crate::trial::random_seed);
    let mut place =
        TempFile::new((args.dir.as_deref(), args.medium), "quickstart", ROOM, args.keep)?;
    let summary = try_out(args, seed, &mut place)?;
    let lost = (!summary.tally.holds()).then(|| place.keep_for(CliError::Lost, seed));
    if args.json {
        output::print_json(&show::json(&summary))?;
    } else {
        output::print(&show::text(&summary, args.keep))?;
    }
    lost.map_or(Ok(()), Err)
}

fn try_out(args: &Args, seed: u64, place: &mut TempFile) -> Result<Summary, CliError> {
    let path = &place.path().to_path_buf();
    let universes = args.source.universes()?;
    let mut model = Model::empty(&universes);
    let started = Instant::now();
    let records = universes.words.len() + universes.integers.len().div_ceil(2);
    let loading = Progress::new("loading words and integers", records as u64);
    let store = create_to_load(path, args)?;
    let loaded = load(&store, &universes, &mut model, &|| loading.step())?;
    let store = loaded_store(store, path, args)?;
    loading.end();
    let load_time = started.elapsed();

    let bar = progress::stage("timing every operation");
    let limit = OpLimit { ops: 200_000, time: Duration::from_millis(400) };
    let speeds = exercise::both(&store, &universes, &mut model, limit, &|| (0, 0))?;
    let (promise, pool_bytes) = (store.promise(), store.pool().used_bytes());
    store.close()?;
    bar.finish_and_clear();
    let bar = progress::stage("counting flushes and fences");
    let costs = count_costs(&universes, args.kind)?;
    bar.finish_and_clear();

    let (source, medium) = (&args.source, args.medium);
    let lose = args.lose;
    let mut trial = Trial { path, source, universes: &universes, medium, model, lose };
    let mut random = KeySpace::new(seed);
    let (mut rounds, mut tally) = (Vec::new(), Tally::default());
    progress::announce("killing a writing process, recovering, and verifying");
    let progress = Progress::new("killing", args.rounds);
    while tally.kills < args.rounds && tally.verdict.holds() {
        progress.at(tally.kills, format!("round {}", tally.kills + 1));
        // From the first kill on, whatever goes wrong may be the fault of the pool.
        let round = crash_round(args, &mut trial, &mut random, &progress)
            .map_err(|error| place.keep_for(error, seed))?;
        tally.add(&round);
        rounds.push(round);
    }
    progress.end();
    Ok(Summary {
        seed,
        pool: path.into(),
        pool_bytes,
        promise,
        loaded,
        load_time,
        speeds,
        costs,
        rounds,
        tally,
    })
}

/// One crash, recovered and verified.
fn crash_round(
    args: &Args,
    trial: &mut Trial<'_>,
    random: &mut KeySpace,
    progress: &Progress,
) -> Result<Round, CliError> {
    let script = random.random();
    // A single round shows a crash in the middle of writing; of many rounds, some crash while the pool is
    // opened.
    let moment = if args.rounds == 1 {
        Moment::AfterFirstWrite(Duration::from_micros(200_000 + random.below(1_300_000)))
    } else if random.below(4) == 0 {
        Moment::AfterStart(Duration::from_micros(random.below(700_000)))
    } else {
        Moment::AfterFirstWrite(Duration::from_micros(random.below(300_000)))
    };
    let (store, round) = trial.round((args.threads, script), Plan::kill(moment), &|steps| {
        progress.say(format!("{steps} writes acknowledged"));
    })?;
    if round.verdict.holds() {
        store.close()?;
    } else {
        store.abandon(); // the file stays as it was verified
    }
    Ok(round)
}

/// Creates a pool for loading. In modes where each fence waits for the disk, loading does not wait; the
/// pool is written back once, after loading.
fn create_to_load(path: &Path, args: &Args) -> Result<Store, CliError> {
    let store = Store::create(path, &args.medium.apply(PoolOptions::new(), path), args.kind)?;
    if store.pool().durability() != Durability::Msync {
        return Ok(store);
    }
    store.close()?;
    Store::open_with(path, &PoolOptions::new().write_back(false))
}

/// Makes a loaded pool durable, and opens it in the requested mode.
fn loaded_store(store: Store, path: &Path, args: &Args) -> Result<Store, CliError> {
    if store.pool().durability() != Durability::Process {
        return Ok(store);
    }
    store.pool().sync()?;
    store.close()?;
    Store::open_with(path, &args.medium.apply(PoolOptions::new(), path))
}

/// Fills both indexes with all words and every other integer.
fn load(
    store: &Store,
    universes: &Universes,
    model: &mut Model,
    step: &dyn Fn(),
) -> Result<[u64; 2], IndexError> {
    Ok([
        fill(&store.words, &universes.words, &mut model.words, 1, step)?,
        fill(&store.integers, &universes.integers, &mut model.integers, 2, step)?,
    ])
}

/// Loads every `nth` key, and calls `step` for each.
fn fill<K: Key, V: Value>(
    index: &impl Index<K, V>,
    universe: &Universe<K, V>,
    expected: &mut Expected,
    nth: usize,
    step: &dyn Fn(),
) -> Result<u64, IndexError> {
    let places = (0..universe.len()).step_by(nth);
    let mut records = places
        .zip(1..)
        .inspect(|&(at, number)| {
            expected.set(at, Some(number));
            step();
        })
        .map(|(at, number)| (universe.key(at).clone(), universe.value(number)));
    index.bulk_load(&mut records)
}

/// Counts flushed lines and fences of every operation, on small copies in memory.
fn count_costs(universes: &Universes, kind: Kind) -> Result<BothIndexes, CliError> {
    let sample = Universes {
        words: universes.words.sample(20_000),
        integers: universe::integers(20_000, 1),
    };
    let mut model = Model::empty(&sample);
    let options = PoolOptions::new().emulate_pm(true);
    let store =
        Store::create_in(Pool::create_in_memory(&options, |pm| pm.counted(Duration::ZERO))?, kind)?;
    load(&store, &sample, &mut model, &|| ())?;
    let limit = OpLimit { ops: 4096, time: Duration::MAX };
    let meter = || {
        let counts = store.pool().pm().counter().map(Counter::counts).unwrap_or_default();
        (counts.lines, counts.fences)
    };
    Ok(exercise::both(&store, &sample, &mut model, limit, &meter)?)
}
