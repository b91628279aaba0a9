//! Crash exploration of any subject of the suite.

use std::marker::PhantomData;
use std::panic::Location;

use pmindex_core::PoolOptions;
use pmindex_index::PmIndex;

use super::bed::Simulated;
use super::sample::{SampleKey, SampleValue};
use super::subject::Subject;
use super::verdict::{Failure, Verdict, ensure};
use crate::crash::{Config, CrashIndex, IndexSubject, Persistency, explore};

/// A [`Subject`] for the crash explorer: `IndexSubject<CrashOf<S>>`.
#[derive(Debug)]
pub struct CrashOf<S>(PhantomData<fn() -> S>);

impl<S: Subject<Bed = Simulated>> CrashIndex for CrashOf<S> {
    type Key = S::Key;
    type Value = S::Value;
    type Index = S::Index;

    const NAME: &'static str = S::Index::NAME;
    const KEYS: u64 = 24;

    fn key(n: u64) -> S::Key {
        S::Key::nth(n)
    }

    fn value(n: u64) -> S::Value {
        S::Value::tagged(n)
    }

    fn options() -> PoolOptions {
        Simulated::options(S::SIMULATED_BYTES)
    }

    /// The files of a folder with the index's name.
    fn owns(site: &Location<'static>) -> bool {
        site.file().split('/').any(|part| part == S::Index::NAME)
    }
}

fn explored<S: Subject<Bed = Simulated>>(config: &Config) -> Verdict {
    let report = explore::<IndexSubject<CrashOf<S>>>(config)
        .map_err(|failure| Failure::new(failure.to_string()))?;
    ensure!(report.states > 100, "hardly anything explored:\n{report}");
    let never = report.uncovered().next();
    ensure!(
        never.is_none(),
        "no crash state at {}:\n{report}",
        never.map_or(String::new(), |step| step.site.to_string())
    );
    Ok(())
}

/// Explores crash states of one thread's runs: flushed lines, then eADR and msync, together `states`; some
/// just before each persistence step that was executed. (A [`Campaign`](crate::crash::Campaign) shows that
/// every step of the sources is executed.)
pub fn crashes<S: Subject<Bed = Simulated>>(states: u32) -> Verdict {
    let states = u64::from(states);
    let lines = Config::new().states(states * 3 / 4).setup(40);
    explored::<S>(&lines)?;
    for persistency in [Persistency::Eadr, Persistency::Pages] {
        explored::<S>(&lines.clone().states(states / 8).persistency(persistency))?;
    }
    Ok(())
}

/// Explores crash states of two and three threads at once, under the deterministic scheduler: a linearization
/// that contains every completed operation, reads included, must explain what survives.
pub fn concurrent_crashes<S: Subject<Bed = Simulated>>(states: u32) -> Verdict {
    let states = u64::from(states);
    explored::<S>(&Config::new().states(states * 2 / 3).threads(2))?;
    explored::<S>(&Config::new().states(states / 3).threads(3))
}
