//! Several threads transfer amounts between accounts in a pool file, two words at a time. Run it again, or
//! kill it: the sum stays the same.
//!
//! `cargo run --release -p pmindex-pmwcas --example transfer [FILE]`

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use pmindex_core::{Medium, PmU64, Pool, PoolOptions};
use pmindex_pmwcas::{Config, Mwcas, MwcasError};

const ACCOUNTS: usize = 16;
const START: u64 = 1000;
type Accounts = [PmU64; ACCOUNTS];

/// Moves up to `amount`; returns the amount moved.
fn transfer<M: Medium>(
    mwcas: &Mwcas<M>,
    from: &PmU64,
    to: &PmU64,
    amount: u64,
) -> Result<u64, MwcasError> {
    loop {
        let (rich, poor) = (mwcas.read(from)?, mwcas.read(to)?);
        let amount = amount.min(rich);
        let mut session = mwcas.session()?;
        let mut transfer = session.descriptor();
        transfer.add_word(from, rich, rich - amount)?;
        transfer.add_word(to, poor, poor + amount)?;
        if transfer.execute()? {
            return Ok(amount); // durable
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(
        || std::env::temp_dir().join(format!("pmwcas-transfer-{}.pool", std::process::id())),
        PathBuf::from,
    );
    let options = PoolOptions::new().size(8 << 20);
    let pool = Arc::new(if path.exists() {
        Pool::open(&path, &options)?
    } else {
        Pool::create(&path, &options)?
    });
    if pool.find_index("accounts")?.is_none() {
        pool.create_index::<Accounts>("accounts", *b"accounts", 0, |accounts| {
            for account in accounts {
                pool.pm().store(account, START);
            }
            pool.pm().flush(accounts)
        })?;
    }
    let mwcas = match pool.find_index("mwcas")? {
        Some(_) => Mwcas::open(&pool, "mwcas")?,
        None => Mwcas::create(&pool, "mwcas", Config::default())?,
    };
    println!("{}: {:?}", path.display(), mwcas.recovery());
    let entry = pool.open_index("accounts")?.ok_or("the pool has no index accounts")?;
    let accounts = pool.get(entry.root::<Accounts>())?;

    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let mwcas = &mwcas;
            scope.spawn(move || {
                for i in 0..5000usize {
                    let from = (i * 7 + thread) % ACCOUNTS;
                    let to = (from + 1 + i % (ACCOUNTS - 1)) % ACCOUNTS;
                    transfer(mwcas, &accounts[from], &accounts[to], 5).expect("intact");
                }
            });
        }
    });
    let mut sum = 0;
    for account in accounts {
        sum += mwcas.read(account)?;
    }
    assert_eq!(sum, START * ACCOUNTS as u64, "money was lost or made");
    println!("the sum is {sum}");
    Ok(())
}
