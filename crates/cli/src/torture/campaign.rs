//! Rounds of writing, ending and verifying.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmindex::Kind;
use pmindex::core::PoolOptions;
use pmindex_pibench::KeySpace;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::progress::Progress;
use crate::temp_file::TempFile;
use crate::trial::crash::{End, Moment, Plan};
use crate::trial::model::Model;
use crate::trial::round::{Tally, Trial};
use crate::trial::source::Source;
use crate::trial::store::Store;
use crate::trial::universe;

/// The integers to load; the universe has twice as many keys.
const INTEGERS: usize = 20_000;
/// The number of rounds after which a new pool begins.
const ROUNDS_OF_A_POOL: u64 = 20;
/// The size of a new pool in bytes: small, so that it has to grow.
const FIRST_SIZE: u64 = 2 << 20;
/// The free space that a campaign needs, in bytes.
const ROOM: u64 = 512 << 20;

/// The settings of the torture of one kind of index.
pub(super) struct Campaign<'a> {
    pub(super) kind: Kind,
    pub(super) medium: MediumArgs,
    pub(super) dir: Option<&'a Path>,
    pub(super) kills: u64,
    pub(super) until: Option<Instant>,
    pub(super) seed: u64,
    /// `true` to remove a record before each verification.
    pub(super) lose: bool,
}

/// Its results.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    /// The sum of all rounds.
    pub(super) tally: Tally,
    /// The number of pools created.
    pub(super) pools: u64,
    /// The number of growths seen.
    pub(super) grown: u64,
    /// The pool in which something was wrong, which is kept.
    pub(super) kept: Option<PathBuf>,
}

impl Campaign<'_> {
    /// Runs all rounds, or until something is wrong.
    pub(super) fn run(&self, progress: &Progress) -> Result<Results, CliError> {
        // A part of the words, in a file for the child, to keep rounds short.
        let keys = TempFile::new(
            (self.dir, self.medium),
            &format!("torture-keys-{}", self.kind),
            ROOM,
            false,
        )?;
        let words = universe::words().sample(INTEGERS);
        std::fs::write(keys.path(), words.keys().join(&b'\n'))?;
        let source = Source { keys: Some(keys.path().into()), integers: INTEGERS };
        let universes = source.universes()?;
        let mut random = KeySpace::new(self.seed ^ self.kind.name().len() as u64);
        let mut results = Results::default();
        let more = |results: &Results| {
            results.tally.verdict.holds()
                && results.tally.kills < self.kills
                && self.until.is_none_or(|until| Instant::now() < until)
        };
        while more(&results) {
            let name = format!("torture-{}", self.kind);
            let mut place = TempFile::new((self.dir, self.medium), &name, ROOM, false)?;
            let path = place.path().to_path_buf();
            let options = self.medium.apply(PoolOptions::new().size(FIRST_SIZE), &path);
            Store::create(&path, &options, self.kind)?.close()?;
            results.pools += 1;
            let mut trial = Trial {
                path: &path,
                source: &source,
                universes: &universes,
                medium: self.medium,
                model: Model::empty(&universes),
                lose: self.lose,
            };
            let mut rounds = 0;
            while rounds < ROUNDS_OF_A_POOL && more(&results) {
                let writes = format!("{}: {} writes", self.kind, results.tally.writes);
                progress.at(results.tally.kills, writes);
                round(&mut trial, &mut random, &mut results)
                    .map_err(|error| place.keep_for(error, self.seed))?;
                rounds += 1;
            }
            if !results.tally.verdict.holds() {
                place.keep();
                results.kept = Some(path);
            }
        }
        Ok(results)
    }
}

/// Runs one round of a trial.
fn round(
    trial: &mut Trial<'_>,
    random: &mut KeySpace,
    results: &mut Results,
) -> Result<(), CliError> {
    let plan = plan(random);
    let run = (1 + random.below(4) as usize, random.random());
    let before = std::fs::metadata(trial.path)?.len();
    let (store, round) = trial.round(run, plan, &|_| ())?;
    results.tally.add(&round);
    // The next round begins after a clean close, or after one more crash. A pool with something wrong is not
    // changed any more.
    if results.tally.verdict.holds() && random.below(2) == 0 {
        store.close()?;
    } else {
        store.abandon();
    }
    results.grown += u64::from(std::fs::metadata(trial.path)?.len() > before);
    Ok(())
}

/// Plans the end of a round: one in ten is clean, the others are kills, one in four of them during opening.
pub(super) fn plan(random: &mut KeySpace) -> Plan {
    let end = if random.below(10) == 0 { End::Close } else { End::Kill };
    let moment = if end == End::Kill && random.below(4) == 0 {
        Moment::AfterStart(Duration::from_micros(random.below(12_000)))
    } else {
        Moment::AfterFirstWrite(Duration::from_micros(random.below(100_000)))
    };
    Plan { moment, end, pauses: random.below(8) == 0 }
}
