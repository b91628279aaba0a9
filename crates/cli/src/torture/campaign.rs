//! Rounds of writing, dying and verifying.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pmindex::Kind;
use pmindex::core::PoolOptions;
use pmindex_pibench::KeySpace;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::place::Place;
use crate::trial::crash::{End, Moment, Plan};
use crate::trial::model::{Model, Verdict};
use crate::trial::round::{Round, Trial};
use crate::trial::source::Source;
use crate::trial::store::Store;
use crate::trial::universe;

/// Integers of a trial; twice as many keys.
const INTEGERS: usize = 20_000;
/// A new pool begins after so many rounds.
const ROUNDS_OF_A_POOL: u64 = 20;
/// The size of a new pool in bytes: it has to grow.
const FIRST_SIZE: u64 = 2 << 20;
/// Room that a campaign wants, in bytes.
const ROOM: u64 = 512 << 20;

/// What one kind of index has to endure.
pub(super) struct Campaign<'a> {
    pub(super) kind: Kind,
    pub(super) medium: MediumArgs,
    pub(super) dir: Option<&'a Path>,
    pub(super) kills: u64,
    pub(super) until: Option<Instant>,
    pub(super) seed: u64,
}

/// What it has endured.
#[derive(Clone, Debug, Default)]
pub(super) struct Survived {
    /// Kills.
    pub(super) kills: u64,
    /// Of them, before the first write: in the middle of opening.
    pub(super) while_opening: u64,
    /// Proper ends.
    pub(super) closed: u64,
    /// Rounds with stops and continuations.
    pub(super) paused: u64,
    /// Pools made.
    pub(super) pools: u64,
    /// Growths seen.
    pub(super) grown: u64,
    /// Acknowledged writes.
    pub(super) writes: u64,
    /// Records compared.
    pub(super) verified: u64,
    /// Changes in flight at a kill.
    pub(super) in_flight: u64,
    /// Of them, found done.
    pub(super) in_flight_done: u64,
    /// Records that were lost, should not be there, or have a wrong value.
    pub(super) bad: u64,
    /// Some of them, in words.
    pub(super) examples: Vec<String>,
    /// How long openings after an end took, ascending.
    pub(super) openings: Vec<Duration>,
}

impl Survived {
    pub(super) fn holds(&self) -> bool {
        self.bad == 0 && self.kills > 0
    }

    fn take(&mut self, verdict: Verdict) {
        self.verified += verdict.records;
        self.in_flight += verdict.in_flight;
        self.in_flight_done += verdict.in_flight_done;
        self.bad += verdict.lost + verdict.ghosts + verdict.wrong;
        self.examples.extend(verdict.examples);
    }
}

impl Campaign<'_> {
    /// All rounds, or until something is wrong.
    pub(super) fn run(&self, bar: &ProgressBar) -> Result<Survived, CliError> {
        // Fewer words than there are, in a file for the child: a round is to be short.
        let keys = Place::new(self.dir, &format!("torture-keys-{}", self.kind), ROOM, false)?;
        let words = universe::words().sample(INTEGERS);
        std::fs::write(keys.path(), words.keys().join(&b'\n'))?;
        let source = Source { keys: Some(keys.path().into()), integers: INTEGERS };
        let universes = source.universes()?;
        let mut random = KeySpace::new(self.seed ^ self.kind.name().len() as u64);
        let mut survived = Survived::default();
        let more = |survived: &Survived| {
            survived.bad == 0
                && survived.kills < self.kills
                && self.until.is_none_or(|until| Instant::now() < until)
        };
        while more(&survived) {
            let place = Place::new(self.dir, &format!("torture-{}", self.kind), ROOM, false)?;
            let options = self.medium.apply(PoolOptions::new().size(FIRST_SIZE));
            Store::create(place.path(), &options, self.kind)?.close()?;
            survived.pools += 1;
            let mut trial = Trial {
                path: place.path(),
                source: &source,
                universes: &universes,
                medium: self.medium,
                model: Model::empty(&universes),
            };
            let mut rounds = 0;
            while rounds < ROUNDS_OF_A_POOL && more(&survived) {
                bar.set_message(format!("{}: {} writes", self.kind, survived.writes));
                round(&mut trial, &mut random, &mut survived)?;
                bar.set_position(survived.kills);
                rounds += 1;
            }
        }
        survived.openings.sort_unstable();
        Ok(survived)
    }
}

/// One round of a trial.
fn round(
    trial: &mut Trial<'_>,
    random: &mut KeySpace,
    survived: &mut Survived,
) -> Result<(), CliError> {
    let plan = plan(random);
    let run = (1 + random.below(4) as usize, random.random());
    let before = std::fs::metadata(trial.path)?.len();
    let (store, Round { acknowledged, opened, verdicts }) = trial.round(run, plan, &|_| ())?;
    for verdict in verdicts {
        survived.take(verdict);
    }
    // The next round begins after a clean end, or after one more crash.
    if random.below(2) == 0 {
        store.close()?;
    } else {
        store.abandon();
    }
    match plan.end {
        End::Kill => survived.kills += 1,
        End::Close => survived.closed += 1,
    }
    survived.while_opening += u64::from(plan.end == End::Kill && acknowledged.total() == 0);
    survived.paused += u64::from(plan.pauses);
    survived.writes += acknowledged.total();
    survived.grown += u64::from(std::fs::metadata(trial.path)?.len() > before);
    survived.openings.push(opened.time);
    Ok(())
}

/// How a round ends: one in ten properly, the others by a kill, one in four of them near opening.
fn plan(random: &mut KeySpace) -> Plan {
    let end = if random.below(10) == 0 { End::Close } else { End::Kill };
    let moment = if end == End::Kill && random.below(4) == 0 {
        Moment::AfterStart(Duration::from_micros(random.below(12_000)))
    } else {
        Moment::AfterFirstWrite(Duration::from_micros(random.below(100_000)))
    };
    Plan { moment, end, pauses: random.below(8) == 0 }
}
