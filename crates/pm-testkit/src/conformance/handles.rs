//! One handle per index: a second opening in the same process is a clear error, and the index is free again
//! when the handle ends, in any way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pmindex_core::PmError;
use pmindex_index::{IndexError, Storable};

use super::bed::{Bed, Simulated};
use super::contents::same_contents;
use super::operation::Model;
use super::sample::{SampleValue, family};
use super::subject::{Maker, NAME, Rig, Types};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};
use crate::crash::quietly;

/// The largest number of accesses after which an opening is interrupted.
const POINTS: u64 = 4000;

fn is_open<T>(result: Result<T, IndexError>, what: &str) -> Verdict {
    match result {
        Err(IndexError::Pool(PmError::AlreadyOpen { what })) if what.contains(NAME) => Ok(()),
        Err(other) => Err(Failure::new(format!("{what}: {other}"))),
        Ok(_) => Err(Failure::new(format!("{what}: there are two handles"))),
    }
}

/// While an index is open it does not open a second time, and cannot be dropped; after it was closed or
/// dropped, it opens. Another index beside it is not affected.
pub fn one_handle<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let mut records: Model<_, _> = family::<S::Key, S::Value>(0..50).into_iter().collect();
    for (key, value) in &records {
        rig.index().try_insert(key.borrowed(), value.borrowed())??;
    }
    for round in 0..4u64 {
        let pool = rig.bed.pool().clone();
        is_open(of.open(&pool, NAME), "open of an open index")?;
        let exists = IndexError::IndexExists { name: NAME.into() };
        ensure_eq!(of.create(&pool, NAME).err(), Some(exists), "create of an open index");
        let drop_index =
            |name| pool.drop_index(name, |name| of.open(&pool, name).and_then(|it| it.blocks()));
        is_open(drop_index(NAME), "drop_index of an open index")?;
        ensure!(pool.find_index(NAME)?.is_some(), "it is still in the directory");
        let other = of.create(&pool, "another").within("create of another index")?;
        drop(other);
        ensure!(drop_index("another")?, "drop_index of a closed index");
        drop(pool);

        let value = S::Value::tagged(round);
        let key = family::<S::Key, S::Value>(0..1).remove(0).0;
        rig.index().put(key.borrowed(), value.borrowed())?;
        records.insert(key, value);
        if round % 2 == 0 {
            rig.close_and_open()?;
        } else {
            rig.drop_and_open()?;
        }
        same_contents(rig.index(), &records).within("opened again")?;
    }
    Ok(())
}

/// A panic at any access of an opening leaves the index free.
pub fn panics_while_opening<S: Types<Bed = Simulated>>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::with_pool(of, of.simulated_bytes())?;
    let records: Model<_, _> = family::<S::Key, S::Value>(0..20).into_iter().collect();
    for (key, value) in &records {
        rig.index().try_insert(key.borrowed(), value.borrowed())??;
    }
    for at in 0..POINTS {
        rig.close_index()?;
        rig.bed.space().limit_steps(at);
        let pool = rig.bed.pool().clone();
        let opened = quietly(|| catch_unwind(AssertUnwindSafe(|| of.open(&pool, NAME).map(drop))));
        rig.bed.space().limit_steps(u64::MAX);
        drop(pool);
        rig.open_index().within(format_args!("after a panic at access {at} of open"))?;
        same_contents(rig.index(), &records)?;
        if let Ok(opened) = opened {
            opened?;
            return Ok(());
        }
    }
    Err(Failure::new(format!("open did not end after {POINTS} accesses")))
}
