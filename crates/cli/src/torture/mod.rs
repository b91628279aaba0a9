//! `pmindex torture`: kills a writing process many times, and verifies after each kill that nothing was lost.
//!
//! In every round a child process opens the pool, writes from several threads, and ends: usually by
//! SIGKILL, while it writes or while it opens the pool; sometimes by a clean close; sometimes it is stopped
//! and continued in between. Then the pool must hold every acknowledged write and nothing else. The parent
//! counts the acknowledgements outside the pool. A pool begins small, so that it grows under the kills;
//! after some rounds a new pool begins.
//!
//! `--index store` does the same to a store, with transactions over its maps: [`bank`].
//!
//! After the kills come other faults, in [`faults`]: a full disk, a file removed or cut short, a panic, a
//! read-only disk, a child process that outlives the pool.

pub(crate) mod bank;
mod campaign;
mod faults;
mod show;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pmindex::{Kind, UnknownKind};

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::output;
use crate::progress::Progress;

use campaign::{Campaign, Results};
use faults::Outcome;

/// What to try.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Kinds of index, separated by commas; `store` for transactions over several maps; or `all` [kinds:
    /// see `pmindex quickstart --help`]
    #[arg(long = "index", value_name = "KIND", default_value = "all", value_parser = selection)]
    selection: Selection,

    /// Kills of each kind
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,

    /// Stop each kind after this many seconds, even before the last kill
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = crate::seconds)]
    seconds: Option<f64>,

    /// Where to put the pools [default: tmpfs if it has room, else the temporary folder; /var/tmp for the modes msync and
    /// journal]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    medium: MediumArgs,

    /// The seed of keys and moments, to repeat a run [default: random]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Remove a record before each pool is verified, to see that it is missed
    #[arg(long, hide = true)]
    lose: bool,
}

const EXAMPLES: &str = "Examples:
  pmindex torture
  pmindex torture --index fptree,hart --kills 1000 --durability flush
  pmindex torture --index store --durability journal --dir /mnt/disk
  pmindex torture --index all --kills 10000 --seconds 600 --dir /mnt/disk";

/// The kinds of index, and whether to run the bank in a store.
#[derive(Clone, Debug)]
struct Selection {
    kinds: Vec<Kind>,
    bank: bool,
}

fn selection(name: &str) -> Result<Selection, String> {
    if name == "all" {
        return Ok(Selection { kinds: Kind::ALL.to_vec(), bank: true });
    }
    let names = || Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    let mut kinds: Vec<Kind> = Vec::new();
    let mut bank = false;
    for name in name.split(',').map(str::trim) {
        if name == bank::NAME {
            bank = true;
            continue;
        }
        let kind = name.parse().map_err(|_: UnknownKind| {
            let names = names();
            format!("{name:?} is no kind of index; choose from: all, {names}, {}", bank::NAME)
        })?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(Selection { kinds, bank })
}

/// The results of one kind of index.
struct KindReport {
    kind: Kind,
    results: Results,
    faults: Vec<(&'static str, Outcome)>,
}

impl KindReport {
    fn holds(&self) -> bool {
        self.results.tally.holds() && self.faults.iter().all(|(_, outcome)| outcome.holds())
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let seed = args.seed.unwrap_or_else(crate::trial::random_seed);
    let mut reports = Vec::new();
    for &kind in &args.selection.kinds {
        let progress = Progress::new(kind.name(), args.kills);
        let campaign = Campaign {
            kind,
            medium: args.medium,
            dir: args.dir.as_deref(),
            kills: args.kills,
            until: args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s)),
            seed,
            lose: args.lose,
        };
        let results = campaign.run(&progress)?;
        if results.tally.kills == 0 && results.tally.verdict.holds() {
            return Err(CliError::NoKill { of: kind.name() });
        }
        progress.say(format!("{kind}: faults"));
        let faults = faults::all(kind, args.medium, args.dir.as_deref(), seed)?;
        progress.end();
        let report = KindReport { kind, results, faults };
        let holds = report.holds();
        reports.push(report);
        if !holds {
            break;
        }
    }
    let holds = reports.iter().all(KindReport::holds);
    let bank = (args.selection.bank && holds).then(|| torture_bank(args, seed)).transpose()?;
    if bank.as_ref().is_some_and(|bank| bank.kills == 0 && bank.wrong.is_none()) {
        return Err(CliError::NoKill { of: bank::NAME });
    }
    if args.json {
        output::print_json(&show::json(&reports, bank.as_ref(), seed))?;
    } else {
        output::print(&show::text(&reports, bank.as_ref(), seed))?;
    }
    let holds = holds && bank.as_ref().is_none_or(|bank| bank.wrong.is_none());
    if holds {
        return Ok(());
    }
    let kept = reports.into_iter().find_map(|report| report.results.kept);
    match kept.or(bank.and_then(|bank| bank.kept)) {
        Some(pool) => Err(CliError::Kept { error: Box::new(CliError::Lost), pool, seed }),
        None => Err(CliError::Lost),
    }
}

fn torture_bank(args: &Args, seed: u64) -> Result<bank::Results, CliError> {
    let progress = Progress::new(bank::NAME, args.kills);
    let campaign = bank::Campaign {
        medium: args.medium,
        dir: args.dir.as_deref(),
        kills: args.kills,
        until: args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s)),
        lose: args.lose,
    };
    let results = campaign.run(seed, &progress);
    progress.end();
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_one_or_several_or_all() {
        let names = |text| selection(text).map(|selection| selection.kinds);
        assert_eq!(names("fptree"), Ok(vec![Kind::FpTree]));
        assert_eq!(names("hart, fptree,hart"), Ok(vec![Kind::Hart, Kind::FpTree]));
        assert_eq!(names("all"), Ok(Kind::ALL.to_vec()));
        assert!(
            names("fptree,cuckoo").is_err_and(|e| e.contains("cuckoo") && e.contains("wbtree"))
        );
        assert!(names("").is_err());
        let banks = |text| selection(text).map(|selection| selection.bank);
        assert_eq!((banks("store"), names("store")), (Ok(true), Ok(vec![])));
        assert_eq!((banks("all"), banks("fptree")), (Ok(true), Ok(false)));
    }
}
