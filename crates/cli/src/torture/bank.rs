//! A bank in a store, under kills: the total amount of money must not change.
//!
//! Tellers transfer money between the accounts of two maps, and count their transfers in a third map; each
//! transfer is one transaction. Now and then a teller adds up all money in one transaction. After each kill
//! the total must be right, every acknowledged transfer must be there, and at most one more of each teller.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use pmindex::core::PoolOptions;
use pmindex::{Index, Map, Store, StoreError, StoreOptions};
use pmindex_pibench::KeySpace;

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::progress::Progress;
use crate::temp_file::TempFile;
use crate::trial::acks::Acks;
use crate::trial::crash::{End, write_and_end};

/// The hidden command of the process that is killed.
pub(crate) const TELLER: &str = "trial-teller";
/// The name of the bank on the command line.
pub(super) const NAME: &str = "store";

/// The accounts of each map, and the initial money of each account.
const ACCOUNTS: u64 = 50;
const MONEY: u64 = 1000;
/// The total of money, and the number of accounts in both maps.
const ALL: (u64, u64) = (2 * ACCOUNTS * MONEY, 2 * ACCOUNTS);
/// Threads that transfer.
const TELLERS: usize = 3;
/// The number of transfers after which a teller adds up all money.
const SUM_AFTER: u64 = 64;
/// The number of rounds after which a new bank begins.
const ROUNDS_OF_A_BANK: u64 = 20;
/// The size of a new pool, and its maximum size, in bytes.
const SIZE: u64 = 4 << 20;
const ROOM: u64 = 64 << 20;

/// The arguments of the process that is killed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,

    #[command(flatten)]
    medium: MediumArgs,

    /// The seed of the transfers
    #[arg(long)]
    seed: u64,
}

/// The results of a bank.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    /// The number of kills.
    pub(super) kills: u64,
    /// The kills before the first acknowledgement.
    pub(super) while_opening: u64,
    /// The processes that ended cleanly.
    pub(super) closed: u64,
    /// Transfers that were acknowledged.
    pub(super) transfers: u64,
    /// Transfers that were durable and not yet acknowledged.
    pub(super) in_flight: u64,
    /// What was wrong, if anything.
    pub(super) wrong: Option<String>,
    /// The pool in which it was wrong, which is kept.
    pub(super) kept: Option<PathBuf>,
}

struct Bank {
    store: Store,
    accounts: [Map<u64, u64>; 2],
    transfers: Map<u64, u64>,
}

impl Bank {
    fn open(path: &Path, medium: MediumArgs) -> Result<Self, CliError> {
        let pool = medium.apply(PoolOptions::new().size(SIZE), path);
        let store = Store::open_with(path, &StoreOptions::new().pool(pool))?;
        let accounts = [store.map("checking")?, store.map("savings")?];
        let transfers = store.map("transfers")?;
        Ok(Self { store, accounts, transfers })
    }

    /// Creates the accounts in one transaction.
    fn create_accounts(&self) -> Result<(), StoreError> {
        self.store.transaction(|tx| {
            for map in &self.accounts {
                (0..ACCOUNTS).try_for_each(|account| tx.put(map, &account, &MONEY))?;
            }
            Ok(())
        })
    }

    /// Transfers money between two accounts if the source has enough; returns the teller's total of
    /// transfers.
    fn transfer(
        &self,
        teller: u64,
        from: (usize, u64),
        to: (usize, u64),
        sum: u64,
    ) -> Result<u64, StoreError> {
        let [source, target] = [from, to].map(|(map, account)| (&self.accounts[map], account));
        self.store.transaction(|tx| {
            let number = tx.get(&self.transfers, &teller)?.unwrap_or(0);
            let balance = tx.get(source.0, &source.1)?.unwrap_or(0);
            let Some(left) = balance.checked_sub(sum) else { return Ok(number) };
            tx.put(source.0, &source.1, &left)?;
            let balance = tx.get(target.0, &target.1)?.unwrap_or(0); // after: it may be the same account
            tx.put(target.0, &target.1, &(balance + sum))?;
            tx.put(&self.transfers, &teller, &(number + 1))?;
            Ok(number + 1)
        })
    }

    /// Returns how much money is in how many accounts, in one transaction.
    fn money(&self) -> Result<(u64, u64), StoreError> {
        let now = self.store.snapshot()?;
        let (mut sum, mut accounts) = (0, 0);
        for map in &self.accounts {
            for record in map.at(&now).range(..) {
                sum += record?.1;
                accounts += 1;
            }
        }
        Ok((sum, accounts))
    }

    /// Compares with `made`, the transfers of each teller before, which it updates, and with the transfers
    /// acknowledged since. Returns the number of unacknowledged transfers, and what is wrong.
    fn compare(
        &self,
        made: &mut [u64; TELLERS],
        acknowledged: &[u64],
        end: End,
    ) -> Result<(u64, Option<String>), CliError> {
        self.store.check()?;
        let (mut in_flight, mut wrong) = (0, None);
        let money = self.money()?;
        if money != ALL {
            let (sum, accounts) = money;
            wrong = Some(format!("there is {sum} of money in {accounts} accounts"));
        }
        for (teller, (made, acknowledged)) in made.iter_mut().zip(acknowledged).enumerate() {
            let now = self.transfers_of(teller)?;
            match now.checked_sub(*made + *acknowledged) {
                Some(0) => {}
                Some(1) if end == End::Kill => in_flight += 1,
                _ => {
                    wrong = Some(format!(
                        "teller {teller} had made {made} transfers, {acknowledged} more were \
                         acknowledged, and there are {now}"
                    ));
                }
            }
            *made = now;
        }
        Ok((in_flight, wrong))
    }

    /// Closes the store cleanly.
    fn close(self) -> Result<(), CliError> {
        let Self { store, accounts, transfers } = self;
        drop((accounts, transfers));
        Ok(store.close()?)
    }

    /// Ends as if this process were killed.
    fn abandon(self) {
        let pool = Arc::clone(self.store.pool());
        drop(self);
        if let Some(pool) = Arc::into_inner(pool) {
            pool.kill();
        }
    }

    fn transfers_of(&self, teller: usize) -> Result<u64, CliError> {
        Ok(self.transfers.get(&(teller as u64))?.unwrap_or(0))
    }
}

/// Transfers until standard input ends, or the process is killed.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let bank = Bank::open(&args.pool, args.medium)?;
    let acks = Acks::inherited().map_err(CliError::Pipe)?;
    let asked_to_end = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&asked_to_end);
    thread::spawn(move || {
        // Nothing is ever sent: this waits until standard input is closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        asked.store(true, Relaxed);
    });
    let (bank_of_all, is_over) = (&bank, &*asked_to_end);
    let teller = |teller: usize| {
        let mut random = KeySpace::new(args.seed ^ (teller as u64 + 1) << 48);
        let first = bank_of_all.transfers_of(teller)?;
        while !is_over.load(Relaxed) {
            let mut account = || (random.below(2) as usize, random.below(ACCOUNTS));
            let (from, to) = (account(), account());
            let made = bank_of_all.transfer(teller as u64, from, to, random.below(MONEY / 20))?;
            acks.acknowledge(teller, made - first).map_err(CliError::Pipe)?;
            if made % SUM_AFTER == 0 && bank_of_all.money()? != ALL {
                return Err(CliError::Lost);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let start = |number| {
            let teller = &teller;
            scope.spawn(move || {
                let done = teller(number);
                is_over.store(true, Relaxed); // whether asked to or failed: the others end, too
                done
            })
        };
        let tellers: Vec<_> = (0..TELLERS).map(start).collect();
        let ended = |teller: thread::ScopedJoinHandle<'_, _>| {
            teller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        tellers.into_iter().try_for_each(ended)
    })?;
    bank.close()
}

/// The settings of the torture of a bank.
pub(super) struct Campaign<'a> {
    pub(super) medium: MediumArgs,
    pub(super) dir: Option<&'a Path>,
    pub(super) kills: u64,
    pub(super) until: Option<Instant>,
    /// `true` to remove an account before each comparison.
    pub(super) lose: bool,
}

impl Campaign<'_> {
    /// Runs all rounds, or until something is wrong.
    pub(super) fn run(&self, seed: u64, progress: &Progress) -> Result<Results, CliError> {
        let mut random = KeySpace::new(seed);
        let mut results = Results::default();
        let more = |results: &Results| {
            results.wrong.is_none()
                && results.kills < self.kills
                && self.until.is_none_or(|until| Instant::now() < until)
        };
        while more(&results) {
            let mut place = TempFile::new((self.dir, self.medium), "torture-bank", ROOM, false)?;
            let path = place.path().to_path_buf();
            let bank = Bank::open(&path, self.medium)?;
            bank.create_accounts()?;
            bank.close()?;
            let (mut made, mut rounds) = ([0; TELLERS], 0);
            while rounds < ROUNDS_OF_A_BANK && more(&results) {
                progress.at(results.kills, format!("{NAME}: {} transfers", results.transfers));
                self.round(&path, &mut random, &mut made, &mut results)
                    .map_err(|error| place.keep_for(error, seed))?;
                rounds += 1;
            }
            if results.wrong.is_some() {
                place.keep();
                results.kept = Some(path);
            }
        }
        Ok(results)
    }

    /// Runs a process that makes transfers, ends it, and compares. `made` has the transfers of each teller.
    fn round(
        &self,
        path: &Path,
        random: &mut KeySpace,
        made: &mut [u64; TELLERS],
        results: &mut Results,
    ) -> Result<(), CliError> {
        let (plan, seed) = (super::campaign::plan(random), random.random());
        let mut command = Command::new(std::env::current_exe().map_err(CliError::Child)?);
        command.arg(TELLER).arg(path).args(self.medium.to_arguments());
        command.args(["--seed", &seed.to_string()]);
        let done = write_and_end(command, TELLERS, plan, &|_| ())?;
        match plan.end {
            End::Kill => results.kills += 1,
            End::Close => results.closed += 1,
        }
        results.while_opening += u64::from(plan.end == End::Kill && done.total() == 0);
        results.transfers += done.total();
        let bank = Bank::open(path, self.medium)?;
        if self.lose {
            bank.accounts[0].remove(&0)?;
        }
        let (in_flight, wrong) = bank.compare(made, &done.steps, plan.end)?;
        results.in_flight += in_flight;
        results.wrong = wrong;
        // The next round begins after a clean close, or after one more crash. A pool with something wrong is
        // not changed any more.
        if results.wrong.is_none() && random.below(2) == 0 {
            bank.close()?;
        } else {
            bank.abandon();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command line of a test.
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        medium: MediumArgs,
    }

    fn bank(folder: &tempfile::TempDir) -> Bank {
        let medium =
            <Line as clap::Parser>::parse_from(["pmindex", "--durability", "process"]).medium;
        let bank = Bank::open(&folder.path().join("bank.pm"), medium).unwrap();
        bank.create_accounts().unwrap();
        bank
    }

    #[test]
    fn money_and_transfers_are_those_of_a_bank() {
        let folder = tempfile::tempdir().unwrap();
        let bank = bank(&folder);
        assert_eq!(bank.transfer(1, (0, 3), (1, 4), MONEY).unwrap(), 1);
        assert_eq!(bank.transfer(1, (0, 3), (1, 4), 1).unwrap(), 1, "there is none left");
        assert_eq!(bank.transfer(1, (1, 4), (1, 4), 5).unwrap(), 2);
        assert_eq!(bank.accounts[1].get(&4).unwrap(), Some(2 * MONEY));
        assert_eq!(bank.money().unwrap(), ALL);
    }

    #[test]
    fn what_a_bank_lost_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let bank = bank(&folder);
        bank.transfer(2, (0, 3), (1, 4), 7).unwrap();
        let compare = |acknowledged: u64, end| {
            let mut made = [0; TELLERS];
            let found = bank.compare(&mut made, &[0, 0, acknowledged], end).unwrap();
            assert_eq!(made, [0, 0, 1]);
            (found.0, found.1.is_some())
        };
        assert_eq!(compare(1, End::Close), (0, false));
        assert_eq!(compare(0, End::Kill), (1, false), "durable, and not yet acknowledged");
        assert_eq!(compare(0, End::Close), (0, true));
        assert_eq!(compare(2, End::Kill), (0, true), "a transfer is lost");
        bank.accounts[0].put(&3, &MONEY).unwrap();
        assert_eq!(compare(1, End::Kill), (0, true), "half a transfer");
    }
}
