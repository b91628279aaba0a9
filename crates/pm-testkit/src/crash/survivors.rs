//! Mutation runs: they show whether every persistence step is needed, and whether some test notices its
//! absence.

use std::collections::BTreeSet;
use std::fmt;

use super::config::Config;
use super::erased::AnySubject;
use super::failure::Failure;
use super::memory::Persistency;
use super::mutate::{Change, Mutation};
use super::report::Report;
use super::search::{Scouted, explore, explore_mutant, scout};
use super::site::StepKind;

/// A mutant and its outcome.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The change.
    pub mutation: Mutation,
    /// The first failure it caused, if any.
    pub caught: Option<Box<Failure>>,
}

/// The mutants of a subject.
#[derive(Clone, Debug, Default)]
pub struct Mutants {
    /// All of them.
    pub all: Vec<Mutant>,
}

impl Mutants {
    /// Returns those that no crash state exposed.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutation> {
        self.all.iter().filter(|m| m.caught.is_none()).map(|m| &m.mutation)
    }
}

impl fmt::Display for Mutants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mutant in &self.all {
            let verdict = match &mutant.caught {
                Some(failure) => failure.what.lines().next().unwrap_or_default(),
                None => "SURVIVED: redundant, or not tested",
            };
            writeln!(f, "  {}: {verdict}", mutant.mutation)?;
        }
        let survivors = self.survivors().count();
        writeln!(
            f,
            "{} mutants, {} caught, {survivors} survived",
            self.all.len(),
            self.all.len() - survivors
        )
    }
}

/// Explores every mutant of the steps that `reports` list, each in every configuration until one
/// catches it.
///
/// Flushes and fences are explored where they are expected to matter, in the configurations with
/// [`Persistency::Lines`], and barriers in those with [`Persistency::Barriers`].
#[must_use]
pub(crate) fn mutants(subject: AnySubject, configs: &[Config], reports: &[Report]) -> Mutants {
    let sites: BTreeSet<_> = reports.iter().flat_map(|r| &r.steps).map(|step| step.site).collect();
    // First in runs that execute the step; then as in any run.
    let scouted: Vec<Scouted> = configs.iter().map(|config| scout(subject, config)).collect();
    let mut all = Vec::new();
    for site in sites {
        for &change in Change::of(site.kind) {
            let mutation = Mutation { site, change };
            let mutant = |config: &Config| Config {
                mutation: Some(mutation),
                shrink: false,
                // Only a process that dies alone leaves stores to write back.
                kill_every: if site.kind == StepKind::WriteBack { 2 } else { config.kill_every },
                ..config.clone()
            };
            let medium = match site.kind {
                StepKind::Barrier => Persistency::Barriers,
                _ => Persistency::Lines,
            };
            let here = || configs.iter().zip(&scouted).filter(|(c, _)| c.persistency == medium);
            let focused = here().find_map(|(config, scouted)| {
                explore_mutant(subject, &mutant(config), site, scouted).err()
            });
            let caught =
                focused.or_else(|| here().find_map(|(c, _)| explore(subject, &mutant(c)).err()));
            all.push(Mutant { mutation, caught });
        }
    }
    Mutants { all }
}
