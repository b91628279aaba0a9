//! A bank whose money is neither created nor lost: threads transfer between accounts of two maps while the
//! process is killed (`kill -9`) again and again. After each kill the sum is right, and every acknowledged
//! transfer is present.
//!
//! ```console
//! cargo run --release --example bank
//! cargo run --release --example bank -- 20 journal bank.pool      # rounds, mode, file
//! ```
//!
//! Modes: `detected`, `process`, `flush` (emulated where the file is not on persistent memory), `fence` (refused there),
//! `msync`, `journal`, `periodic`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pmindex::{Durability, Index, Map, PoolOptions, Store, StoreError, StoreOptions};

const ACCOUNTS: u64 = 100;
const MONEY: u64 = 1000;
const TELLERS: u64 = 3;

type Failure = Box<dyn Error + Send + Sync>;

/// Accounts are in two maps; each teller counts its transfers in the same transactions.
struct Bank {
    store: Store,
    accounts: [Map<u64, u64>; 2],
    transfers: Map<u64, u64>,
}

impl Bank {
    fn open(path: &Path, mode: &str) -> Result<Self, Failure> {
        let pool = PoolOptions::new().size(16 << 20);
        let pool = match mode {
            "detected" => pool, // what the file is on: `Process` on tmpfs, `Msync` on a disk
            "process" => pool.write_back(false),
            "flush" => pool.emulate_pm(true),
            "fence" => pool.require(Durability::Fence),
            "msync" => pool.require(Durability::Msync),
            "journal" => pool.journal(true),
            "periodic" => pool.twin(path.with_extension("twin")),
            other => return Err(format!("there is no mode {other:?}").into()),
        };
        let store = Store::open_with(path, &StoreOptions::new().pool(pool))?;
        let accounts = [store.map("checking")?, store.map("savings")?];
        let transfers = store.map("transfers")?;
        let bank = Self { store, accounts, transfers };
        bank.store.transaction(|tx| {
            for (map, n) in
                bank.accounts.iter().flat_map(|map| (0..ACCOUNTS).map(move |n| (map, n)))
            {
                let _ = tx.try_insert(map, &n, &MONEY)?; // the first time
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(bank)
    }

    /// Transfers between two accounts, if the first has enough; returns the number of the teller's transfers.
    fn transfer(
        &self,
        teller: u64,
        from: (usize, u64),
        to: (usize, u64),
        sum: u64,
    ) -> Result<u64, StoreError> {
        let [source, target] = [from, to].map(|(map, account)| (&self.accounts[map], account));
        self.store.transaction(|tx| {
            let balance = tx.get(source.0, &source.1)?.unwrap_or(0);
            let number = tx.get(&self.transfers, &teller)?.unwrap_or(0);
            let Some(left) = balance.checked_sub(sum) else { return Ok(number) };
            tx.put(source.0, &source.1, &left)?;
            let balance = tx.get(target.0, &target.1)?.unwrap_or(0); // read afterwards: it may be the same account
            tx.put(target.0, &target.1, &(balance + sum))?;
            tx.put(&self.transfers, &teller, &(number + 1))?;
            Ok(number + 1)
        })
    }

    /// Returns the sum of all accounts at one moment.
    fn money(&self) -> Result<u64, StoreError> {
        let now = self.store.snapshot()?;
        let mut sum = 0;
        for map in &self.accounts {
            for record in map.at(&now).range(..) {
                sum += record?.1;
            }
        }
        Ok(sum)
    }
}

/// Transfers until it is killed, and prints each transfer that is durable.
fn work(path: &Path, mode: &str) -> Result<(), Failure> {
    let bank = Bank::open(path, mode)?;
    let teller = |teller: u64| {
        let mut random = teller + 1;
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % most
        };
        loop {
            let mut account = || (below(2) as usize, below(ACCOUNTS));
            let (from, to) = (account(), account());
            let number = bank.transfer(teller, from, to, below(50))?;
            writeln!(std::io::stdout(), "done {teller} {number}")?;
            if number % 100 == 0 && bank.money()? != 2 * ACCOUNTS * MONEY {
                return Err::<(), Failure>("a snapshot has other money".into());
            }
        }
    };
    thread::scope(|scope| {
        let tellers: Vec<_> = (0..TELLERS).map(|n| scope.spawn(move || teller(n))).collect();
        tellers.into_iter().try_for_each(|teller| teller.join().unwrap_or(Err("a panic".into())))
    })
}

/// Lets a process work, kills it, and checks the store.
fn round(mut worker: Command, path: &Path, mode: &str, time: Duration) -> Result<u64, Failure> {
    let mut worker = worker.stdout(Stdio::piped()).spawn()?;
    let said = BufReader::new(worker.stdout.take().ok_or("no output")?);
    let reader = thread::spawn(move || {
        let mut last = BTreeMap::new();
        for line in said.lines().map_while(Result::ok) {
            // A line that the kill cut off was not acknowledged.
            if let ["done", teller, number] = line.split(' ').collect::<Vec<_>>()[..]
                && let (Ok(teller), Ok(number)) = (teller.parse::<u64>(), number.parse::<u64>())
            {
                last.insert(teller, number);
            }
        }
        last
    });
    thread::sleep(time);
    worker.kill()?; // SIGKILL
    worker.wait()?;
    let acknowledged = reader.join().map_err(|_| "a panic")?;
    let bank = Bank::open(path, mode)?;
    if bank.money()? != 2 * ACCOUNTS * MONEY {
        return Err(format!("{} of money, not {}", bank.money()?, 2 * ACCOUNTS * MONEY).into());
    }
    for (teller, number) in &acknowledged {
        let there = bank.transfers.get(teller)?.unwrap_or(0);
        if there < *number {
            return Err(format!(
                "teller {teller} has {there} transfers, {number} were acknowledged"
            )
            .into());
        }
    }
    Ok(acknowledged.values().sum())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (rounds, mode) = (args.next(), args.next().unwrap_or_else(|| "detected".into()));
    let own = || std::env::temp_dir().join(format!("bank-{}.pool", std::process::id()));
    let given = args.next().map(PathBuf::from);
    let path = given.clone().unwrap_or_else(own);
    if rounds.as_deref() == Some("work") {
        return work(&path, &mode);
    }
    for n in 1..=rounds.map_or(Ok(5), |rounds| rounds.parse::<u64>())? {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.args(["work", &mode]).arg(&path);
        let all = round(worker, &path, &mode, Duration::from_millis(200 + n * 37 % 300))?;
        println!("killed {n}: all the money is there, and all of {all} transfers");
    }
    println!("{}", Bank::open(&path, &mode)?.store.report()?);
    if given.is_none() {
        std::fs::remove_file(&path)?;
        let _ = std::fs::remove_file(path.with_extension("twin"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "PMINDEX_BANK";

    /// The process that is killed.
    #[test]
    #[ignore = "another test runs it"]
    fn worker() {
        if let Some((mode, path)) =
            std::env::var(POOL).ok().as_deref().and_then(|it| it.split_once(' '))
        {
            work(Path::new(path), mode).unwrap();
        }
    }

    #[test]
    fn a_kill_in_the_middle_takes_no_money() {
        for mode in ["detected", "journal", "periodic"] {
            let folder = match mode {
                "periodic" => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()),
                _ => tempfile::tempdir(),
            };
            let folder = folder.unwrap();
            let path = folder.path().join("bank.pool");
            let mut transfers = 0;
            for n in 0..2 {
                let mut worker = Command::new(std::env::current_exe().unwrap());
                worker.args(["--exact", "tests::worker", "--ignored", "--nocapture"]);
                worker.env(POOL, format!("{mode} {}", path.display()));
                transfers +=
                    round(worker, &path, mode, Duration::from_millis(500 + 50 * n)).unwrap();
            }
            println!("{mode}: {transfers} transfers");
        }
    }
}
