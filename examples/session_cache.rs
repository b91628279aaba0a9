//! A session cache: the logged-in users, and the expiry of each session. Sessions survive restarts, and
//! expired ones are found in order of time, without reading the others.
//!
//! ```console
//! cargo run --release --example session_cache
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use pmindex::{FpTree, Pool, PoolOptions};

/// A token: 128 random bits in a real service.
type Token = [u8; 16];
/// Seconds since any fixed moment.
type Time = u64;

/// Two indexes in one pool.
struct Sessions {
    /// The user and the expiry of each token.
    by_token: FpTree<Token, (u64, Time)>,
    /// Tokens in the order of their expiry.
    by_expiry: FpTree<(Time, Token), ()>,
}

impl Sessions {
    fn open(pool: &Arc<Pool>) -> Result<Self, Box<dyn Error>> {
        if pool.find_index("by token")?.is_none() {
            FpTree::<Token, (u64, Time)>::create(pool, "by token")?;
        }
        if pool.find_index("by expiry")?.is_none() {
            FpTree::<(Time, Token), ()>::create(pool, "by expiry")?;
        }
        let by_token = FpTree::open(pool, "by token")?;
        Ok(Self { by_token, by_expiry: FpTree::open(pool, "by expiry")? })
    }

    /// Two writes: each is atomic and durable, the pair is not. In this order a crash between them leaves an
    /// entry of `by_expiry` without its session, which `expire` tolerates; never a session without expiry.
    fn start(&self, token: Token, user: u64, until: Time) -> Result<(), Box<dyn Error>> {
        self.by_expiry.put(&(until, token), &())?;
        self.by_token.put(&token, &(user, until))?;
        Ok(())
    }

    /// Returns the user of a token that has not expired.
    fn user(&self, token: &Token, now: Time) -> Result<Option<u64>, Box<dyn Error>> {
        let session = self.by_token.get(token)?;
        Ok(session.and_then(|(user, until)| (now < until).then_some(user)))
    }

    /// Removes sessions that expired before `now`; the session first, for the same reason.
    fn expire(&self, now: Time) -> Result<u64, Box<dyn Error>> {
        let due: Vec<_> = self.by_expiry.range(..(now, [0; 16])).collect::<Result<_, _>>()?;
        let mut removed = 0;
        for ((until, token), ()) in due {
            // The session may have been prolonged: then it has another entry.
            if self.by_token.get(&token)?.is_some_and(|(_, current)| current <= until) {
                self.by_token.remove(&token)?;
                removed += 1;
            }
            self.by_expiry.remove(&(until, token))?;
        }
        Ok(removed)
    }
}

fn token(number: u64) -> Token {
    // Spread over the key space like random bits.
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sessions.pool");
    // On a disk, `write_back(false)` survives a crash of the service, not of the machine.
    let options = PoolOptions::new().write_back(false);
    let pool = Arc::new(Pool::create(&path, &options)?);
    let sessions = Sessions::open(&pool)?;
    for user in 0..100_000 {
        sessions.start(token(user), user, 1000 + user % 3600)?;
    }
    drop((sessions, pool));

    let started = Instant::now();
    let pool = Arc::new(Pool::open(&path, &options)?);
    let sessions = Sessions::open(&pool)?;
    let ready = started.elapsed();
    assert_eq!(sessions.user(&token(4711), 1500)?, Some(4711));
    println!("100,000 sessions are there again after {:.1} ms", ready.as_secs_f64() * 1e3);

    let removed = sessions.expire(2800)?;
    assert_eq!(sessions.user(&token(0), 0)?, None);
    assert_eq!(sessions.by_token.len()? + removed, 100_000);
    println!("{removed} had run out; {} are left", sessions.by_token.len()?);
    Ok(())
}

#[cfg(test)]
#[test]
fn it_holds_what_it_says() {
    main().expect("every step works");
}
