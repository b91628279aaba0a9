//! The memory that deletes give back; churn must not grow the pool.

use pmindex_index::Storable;

use super::bed::Bed;
use super::sample::{SampleKey, SampleValue};
use super::subject::{Maker, Rig, Types};
use super::verdict::{Verdict, ensure, ensure_eq};

fn put<S: Types>(rig: &Rig<S>, i: u64, tag: u64) -> Verdict {
    let (key, value) = (S::Key::nth(i), S::Value::tagged(tag));
    ensure_eq!(
        rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(),
        true,
        "insert {i}"
    );
    Ok(())
}

fn used<S: Types>(rig: &Rig<S>) -> Verdict<u64> {
    rig.bed.pool().trim()?;
    Ok(rig.bed.pool().used_bytes())
}

/// Deleting everything gives at least 90 % of the PM that the records took back to the allocator, in any
/// order.
pub fn deletes_give_back<S: Types>(of: Maker<S>) -> Verdict {
    const RECORDS: u64 = 4000;
    for order in ["ascending", "descending", "scattered"] {
        let mut rig = Rig::new(of)?;
        let empty = used(&rig)?;
        for i in 0..RECORDS {
            put(&rig, i * 7919 % RECORDS, i)?;
        }
        let full = used(&rig)?;
        ensure!(full > empty, "{RECORDS} records took no memory");
        for i in 0..RECORDS {
            let i = match order {
                "ascending" => i,
                "descending" => RECORDS - 1 - i,
                _ => i * 7907 % RECORDS,
            };
            let gone = rig.index().remove(S::Key::nth(i).borrowed())?;
            ensure!(gone.is_some(), "remove {i}: it was not there");
        }
        rig.close_and_open()?; // whatever is given back in the background is given back now
        let left = used(&rig)?.saturating_sub(empty);
        ensure!(
            left * 10 <= full - empty,
            "deleting everything, {order}: {left} of {} bytes are still in use",
            full - empty
        );
        ensure_eq!(rig.index().check()?, 0, "check");
        rig.audit()?;
    }
    Ok(())
}

/// Inserts and deletes at a constant number of records, and updates of a constant set of keys: the memory in
/// use reaches a plateau.
pub fn churn_reaches_a_plateau<S: Types>(of: Maker<S>) -> Verdict {
    const RECORDS: u64 = 1000;
    const ROUNDS: u64 = 12;
    let rig = Rig::new(of)?;
    let empty = used(&rig)?;
    for i in 0..RECORDS {
        put(&rig, i, i)?;
    }
    let mut plateau = 0;
    for round in 0..ROUNDS {
        for i in 0..RECORDS {
            // The window of keys moves, so that leaves empty at one end and fill at the other.
            let oldest = S::Key::nth(round * RECORDS + i);
            ensure!(rig.index().remove(oldest.borrowed())?.is_some(), "remove: not there");
            put(&rig, (round + 1) * RECORDS + i, i)?;
            let (key, value) = (S::Key::nth(round * RECORDS + RECORDS / 2 + i), i * 31 + round);
            if i < RECORDS / 2 {
                let value = S::Value::tagged(value);
                rig.index().update(key.borrowed(), value.borrowed())??;
            }
        }
        if round == ROUNDS / 3 {
            plateau = used(&rig)? - empty;
        }
    }
    let last = used(&rig)? - empty;
    ensure!(
        last <= plateau + plateau / 4,
        "churn at {RECORDS} records: {plateau} bytes in use after {} rounds, {last} after {ROUNDS}",
        ROUNDS / 3 + 1
    );
    ensure_eq!(rig.index().check()?, RECORDS, "check");
    rig.audit()
}
