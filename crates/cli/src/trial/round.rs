//! One round of a trial: a child writes and ends, and the pool is opened and compared.

use std::path::Path;

use crate::error::CliError;
use crate::medium::MediumArgs;

use super::crash::{self, Acknowledged, End, Plan};
use super::model::{Model, Verdict};
use super::source::{Source, Universes};
use super::store::{Opened, Store};

/// A pool whose writers die, and what it must hold.
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
}

/// What a round came to.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// What the child got done.
    pub(crate) acknowledged: Acknowledged,
    /// What opening took.
    pub(crate) opened: Opened,
    /// Of the words and of the integers.
    pub(crate) verdicts: [Verdict; 2],
}

impl Round {
    /// Whether every acknowledged write is there, and nothing else.
    pub(crate) fn holds(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }
}

impl Trial<'_> {
    /// A child performs `threads` scripts of the seed `script` and ends as planned; `progress` hears how
    /// many steps were acknowledged so far. Returns the pool too, open and compared.
    ///
    /// # Errors
    /// If the child or the pool fails. A pool that holds something else is no error but a verdict.
    pub(crate) fn round(
        &mut self,
        (threads, script): (usize, u64),
        plan: Plan,
        progress: &(impl Fn(u64) + Sync),
    ) -> Result<(Store, Round), CliError> {
        let run = (threads, script);
        let acknowledged =
            crash::write_and_end(self.path, self.source, self.medium, run, plan, progress)?;
        let killed = plan.end == End::Kill;
        let (store, opened, verdicts) = self.compare(script, &acknowledged.steps, killed)?;
        Ok((store, Round { acknowledged, opened, verdicts }))
    }

    /// Opens the pool after `steps` of each thread's script were acknowledged, and compares.
    ///
    /// # Errors
    /// If the pool fails.
    pub(crate) fn compare(
        &mut self,
        script: u64,
        steps: &[u64],
        killed: bool,
    ) -> Result<(Store, Opened, [Verdict; 2]), CliError> {
        self.model.follow(self.universes, script, steps, killed);
        let (store, opened) = Store::open(self.path, self.medium)?;
        store.check()?;
        let verdicts = self.model.verify(&store, self.universes)?;
        Ok((store, opened, verdicts))
    }
}
