//! One round of a trial: a child writes and ends, then the parent opens and verifies the pool. Also the sum
//! of many rounds.

use std::path::Path;
use std::time::Duration;

use crate::error::CliError;
use crate::medium::MediumArgs;

use super::crash::{self, Acknowledged, End, Plan};
use super::model::{Model, Verdict};
use super::source::{Source, Universes};
use super::store::{Opened, Store};
use super::writer;

/// A pool whose writers are ended, and its model.
pub(crate) struct Trial<'a> {
    /// The pool.
    pub(crate) path: &'a Path,
    /// Where the keys come from.
    pub(crate) source: &'a Source,
    /// The keys.
    pub(crate) universes: &'a Universes,
    /// How the pool is opened.
    pub(crate) medium: MediumArgs,
    /// What the pool must hold.
    pub(crate) model: Model,
    /// `true` to remove a record before the pool is compared, so that the comparison must fail.
    pub(crate) lose: bool,
}

/// The result of a round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// How the child was planned to end.
    pub(crate) plan: Plan,
    /// What the child acknowledged.
    pub(crate) acknowledged: Acknowledged,
    /// What opening took and did.
    pub(crate) opened: Opened,
    /// What was found.
    pub(crate) verdict: Verdict,
}

impl Trial<'_> {
    /// Runs a child that performs `threads` scripts of the seed `script` and ends as planned; calls
    /// `progress` with the number of acknowledged steps. Returns the pool too, open and verified.
    ///
    /// # Errors
    /// If the child or the pool fails. Wrong contents are a verdict, not an error.
    pub(crate) fn round(
        &mut self,
        (threads, script): (usize, u64),
        plan: Plan,
        progress: &dyn Fn(u64),
    ) -> Result<(Store, Round), CliError> {
        let child = writer::command(self.path, self.source, self.medium, (threads, script))?;
        let acknowledged = crash::write_and_end(child, threads, plan, progress)?;
        let killed = plan.end == End::Kill;
        let (store, opened, verdict) = self.compare(script, &acknowledged.steps, killed)?;
        Ok((store, Round { plan, acknowledged, opened, verdict }))
    }

    /// Opens the pool after `steps` of each thread's script were acknowledged, and compares it with the
    /// model.
    ///
    /// # Errors
    /// If the pool fails.
    pub(crate) fn compare(
        &mut self,
        script: u64,
        steps: &[u64],
        killed: bool,
    ) -> Result<(Store, Opened, Verdict), CliError> {
        self.model.follow(self.universes, script, steps, killed);
        let (store, opened) = Store::open(self.path, self.medium)?;
        store.check()?;
        if self.lose {
            store.lose_a_record()?;
        }
        let verdict = self.model.verify(&store, self.universes)?;
        Ok((store, opened, verdict))
    }
}

/// The sum of the results of rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Kills.
    pub(crate) kills: u64,
    /// Kills before the first acknowledgement, during opening.
    pub(crate) while_opening: u64,
    /// Clean ends.
    pub(crate) closed: u64,
    /// Rounds in which the child was stopped and continued.
    pub(crate) paused: u64,
    /// Acknowledged writes.
    pub(crate) writes: u64,
    /// The sum of all verdicts.
    pub(crate) verdict: Verdict,
    /// The durations of all openings, ascending.
    openings: Vec<Duration>,
}

impl Tally {
    /// Adds a round.
    pub(crate) fn add(&mut self, round: &Round) {
        let writes = round.acknowledged.total();
        match round.plan.end {
            End::Kill => self.kills += 1,
            End::Close => self.closed += 1,
        }
        self.while_opening += u64::from(round.plan.end == End::Kill && writes == 0);
        self.paused += u64::from(round.plan.pauses);
        self.writes += writes;
        self.verdict.add(&round.verdict);
        let at = self.openings.partition_point(|time| *time <= round.opened.time);
        self.openings.insert(at, round.opened.time);
    }

    /// Returns `true` if there was a kill, and after each kill every acknowledged write was there, and
    /// nothing else.
    pub(crate) fn holds(&self) -> bool {
        self.kills > 0 && self.verdict.holds()
    }

    /// Returns the median and the longest duration of an opening, if there was any.
    pub(crate) fn openings(&self) -> Option<(Duration, Duration)> {
        let median = self.openings.get(self.openings.len() / 2)?;
        Some((*median, *self.openings.last()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::crash::Moment;
    use super::*;

    fn round(end: End, steps: u64, millis: u64, lost: u64) -> Round {
        let moment = Moment::AfterStart(Duration::ZERO);
        Round {
            plan: Plan { moment, end, pauses: false },
            acknowledged: Acknowledged { steps: vec![steps], writing: Duration::ZERO },
            opened: Opened { time: Duration::from_millis(millis), reports: Default::default() },
            verdict: Verdict { lost, ..Verdict::default() },
        }
    }

    #[test]
    fn a_tally_adds_rounds_up_and_one_lost_record_breaks_it() {
        let mut tally = Tally::default();
        tally.add(&round(End::Close, 5, 30, 0));
        assert!(!tally.holds(), "no kill proves nothing");
        tally.add(&round(End::Kill, 0, 10, 0));
        tally.add(&round(End::Kill, 7, 20, 0));
        assert!(tally.holds());
        assert_eq!((tally.kills, tally.while_opening, tally.closed, tally.writes), (2, 1, 1, 12));
        let times = (Duration::from_millis(20), Duration::from_millis(30));
        assert_eq!(tally.openings(), Some(times));
        tally.add(&round(End::Kill, 7, 20, 1));
        assert!(!tally.holds());
    }
}
