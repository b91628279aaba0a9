//! Names, types and layouts; several indexes in one pool.

use pmindex_core::{Medium, PmError, PmU64, pm_struct};
use pmindex_index::{IndexError, Storable};

use super::bed::Bed;
use super::contents::same_contents;
use super::operation::Model;
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{Maker, NAME, Rig, Types};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};

pm_struct! {
    /// The root block of an index of no known type.
    #[align(64)]
    struct DecoyRoot: size 64 {
        words: [PmU64; 8],
    }
}

fn error_of<T>(result: Result<T, IndexError>, what: &str) -> Verdict<IndexError> {
    result.err().ok_or_else(|| Failure::new(format!("{what}: succeeded")))
}

fn decoy<S: Types>(rig: &Rig<S>, name: &str, kind: [u8; 8], layout: u64) -> Verdict {
    let pool = rig.bed.pool();
    pool.create_index(name, kind, layout, |root: &DecoyRoot| {
        for word in &root.words {
            pool.pm().store(word, 0x0123_4567_89ab_cdef);
        }
        pool.pm().flush(root)
    })?;
    Ok(())
}

/// A missing name, a taken name, an invalid name, another type and another layout are distinct errors, and
/// none of them changes anything.
pub fn refused_names<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let records: Model<_, _> = family::<S::Key, S::Value>(0..50).into_iter().collect();
    for (key, value) in &records {
        rig.index().try_insert(key.borrowed(), value.borrowed())??;
    }
    let pool = rig.bed.pool().clone();
    let entry = pool.find_index(NAME)?.ok_or_else(|| Failure::new("no entry in the directory"))?;
    decoy(&rig, "another type", *b"decoy   ", entry.layout)?;
    decoy(&rig, "another layout", entry.kind, entry.layout ^ 1)?;

    for name in ["missing", "subjec", "subject ", "Subject"] {
        let error = error_of(of.open(&pool, name), "open of a missing name")?;
        ensure_eq!(error, IndexError::NoSuchIndex { name: name.into() }, "open {name:?}");
    }
    let longest = "n".repeat(64);
    for name in ["", &format!("{longest}n"), &"\u{e9}".repeat(33)] {
        let error = error_of(of.create(&pool, name), "create of a bad name")?;
        let bad = PmError::BadName { len: name.len(), max: 64 };
        ensure_eq!(error, IndexError::Pool(bad), "create {name:?}");
        let error = error_of(of.open(&pool, name), "open of a bad name")?;
        ensure_eq!(error, IndexError::NoSuchIndex { name: name.into() }, "open {name:?}");
    }
    of.create(&pool, &longest).within("create of the longest name")?;
    of.open(&pool, &longest).within("open of the longest name")?;
    for name in [NAME, "another type"] {
        let error = error_of(of.create(&pool, name), "create of a taken name")?;
        ensure_eq!(error, IndexError::IndexExists { name: name.into() }, "create {name:?}");
    }
    match error_of(of.open(&pool, "another type"), "open of another type")? {
        IndexError::WrongType { name, found, .. } => {
            ensure_eq!((name.as_str(), found.as_str()), ("another type", "decoy"), "WrongType");
        }
        other => return Err(Failure::new(format!("open of another type: {other}"))),
    }
    match error_of(of.open(&pool, "another layout"), "open of another layout")? {
        IndexError::WrongLayout { name, .. } => {
            ensure_eq!(name.as_str(), "another layout", "WrongLayout");
        }
        other => return Err(Failure::new(format!("open of another layout: {other}"))),
    }
    drop(pool);
    same_contents(rig.index(), &records).within("after refused names")?;
    rig.close_and_open()?;
    same_contents(rig.index(), &records).within("after refused names, opened")
}

/// Indexes in one pool do not disturb each other, nor does opening one of them.
pub fn neighbours<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let mut models = [Model::new(), Model::new()];
    let name = "a neighbour with a longer name";
    let pool = rig.bed.pool().clone();
    let second = of.create(&pool, name)?;
    let mut tag = 0;
    for round in 0..300u64 {
        for (which, model) in models.iter_mut().enumerate() {
            let index = if which == 0 { rig.index() } else { &*second };
            let key = S::Key::nth((round * 17 + which as u64 * 5) % 120);
            tag += 1;
            let value = S::Value::tagged(tag);
            if (round + which as u64).is_multiple_of(3) {
                ensure_eq!(index.remove(key.borrowed())?, model.remove(&key), "remove");
            } else {
                let new = model.insert(key.clone(), value.clone()).is_none();
                ensure_eq!(index.put(key.borrowed(), value.borrowed())?, new, "put");
            }
        }
    }
    for (which, index) in [(0, rig.index()), (1, &*second)] {
        same_contents(index, &models[which]).within(format_args!("neighbour {which}"))?;
    }
    let (one, two) = (rig.index().blocks()?, second.blocks()?);
    ensure!(one.iter().all(|block| !two.contains(block)), "two indexes own one block");
    second.close()?;
    drop(pool);
    rig.close_and_open()?;
    let second = of.open(rig.bed.pool(), name)?;
    for (which, index) in [(0, rig.index()), (1, &*second)] {
        same_contents(index, &models[which]).within(format_args!("neighbour {which}, opened"))?;
    }
    Ok(())
}

/// Opens an index again and again, closed or dropped, with changes in between, in one process.
pub fn opened_often<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let mut model = Model::new();
    for round in 0..40u64 {
        for i in 0..10 {
            let key = S::Key::nth((round * 37 + i * 11) % 150);
            let value = S::Value::tagged(round * 100 + i);
            if i % 3 == 2 {
                ensure_eq!(rig.index().remove(key.borrowed())?, model.remove(&key), "remove");
            } else {
                let new = model.insert(key.clone(), value.clone()).is_none();
                ensure_eq!(rig.index().put(key.borrowed(), value.borrowed())?, new, "put");
            }
        }
        if round % 3 == 0 {
            rig.close_and_open()?;
        } else {
            rig.drop_and_open()?;
        }
        same_contents(rig.index(), &model).within(format_args!("opened the {round}th time"))?;
        let report = rig.index().recovery_report();
        let counted = report.records == 0 || report.records == model.len() as u64;
        ensure!(counted, "recovery_report: {} of {} records", report.records, model.len());
        ensure_eq!(report.repaired, 0, "recovery_report: repairs without a crash");
    }
    Ok(())
}
