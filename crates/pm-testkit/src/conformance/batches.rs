//! `bulk_load` and the batches at every size.

use pmindex_core::PmError;
use pmindex_index::{IndexError, Storable};

use super::bed::Bed;
use super::contents::same_contents;
use super::operation::Model;
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{Maker, Rig, Types};
use super::verdict::{Verdict, Within, ensure, ensure_eq};

/// Loads every number of records around the node boundaries, then inserts between them.
pub fn bulk_load_sizes<S: Types>(of: Maker<S>) -> Verdict {
    let sizes = (0..70).chain((70..600).step_by(37)).chain([4000]);
    for count in sizes {
        let mut rig = Rig::new(of)?;
        let records = family::<S::Key, S::Value>((0..count).map(|i| 2 * i));
        let loaded = rig.index().bulk_load(&mut records.clone().into_iter())?;
        ensure_eq!(loaded, count, "bulk_load");
        let mut model: Model<_, _> = records.into_iter().collect();
        same_contents(rig.index(), &model).within(format_args!("bulk_load of {count}"))?;
        rig.drop_and_open()?;
        for (key, value) in family::<S::Key, S::Value>((0..count.min(70)).map(|i| 2 * i + 1)) {
            let new = rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok();
            ensure_eq!(new, true, "insert into {count} loaded records");
            model.insert(key, value);
        }
        same_contents(rig.index(), &model)
            .within(format_args!("inserts into {count} loaded records"))?;
    }
    Ok(())
}

/// Bad input of `bulk_load` is named by its position and leaves the index empty and usable.
pub fn bulk_load_refusals<S: Types>(of: Maker<S>) -> Verdict {
    let rig = Rig::new(of)?;
    let blocks = rig.index().blocks()?.len();
    for (swap, at) in [((0, 1), 1), ((50, 51), 51), ((198, 199), 199), ((3, 3), 4)] {
        let mut records = family::<S::Key, S::Value>(0..200);
        if swap.0 == swap.1 {
            records[swap.0 + 1].0 = records[swap.0].0.clone(); // a duplicate
        } else {
            records.swap(swap.0, swap.1);
        }
        let result = rig.index().bulk_load(&mut records.into_iter());
        ensure_eq!(result, Err(IndexError::NotSorted { at }), "bulk_load out of order at {at}");
        same_contents(rig.index(), &Model::new()).within("after a refused bulk_load")?;
        ensure_eq!(rig.index().blocks()?.len(), blocks, "blocks after a refused bulk_load");
    }
    let (key, value) = (S::Key::nth(7), S::Value::tagged(7));
    ensure_eq!(rig.index().try_insert(key.borrowed(), value.borrowed())?.is_ok(), true, "insert");
    let result = rig.index().bulk_load(&mut family::<S::Key, S::Value>(0..5).into_iter());
    ensure_eq!(result, Err(IndexError::NotEmpty), "bulk_load into an index with a record");
    same_contents(rig.index(), &Model::from([(key.clone(), value)]))?;
    rig.index().remove(key.borrowed())?;
    ensure_eq!(
        rig.index().bulk_load(&mut family::<S::Key, S::Value>(0..300).into_iter())?,
        300,
        "bulk_load, emptied"
    );
    same_contents(rig.index(), &family::<S::Key, S::Value>(0..300).into_iter().collect())
}

/// Damage is found in the pool, in another index perhaps, while records are loaded, which are then refused: none of them is
/// seen, though the pool takes no more writes.
pub fn damage_beside_a_load<S: Types>(of: Maker<S>) -> Verdict {
    let rig = Rig::new(of)?;
    let pool = rig.bed.pool().clone();
    let mut records = family::<S::Key, S::Value>(0..200);
    records.swap(150, 151);
    let mut records = records.into_iter().enumerate().map(|(n, record)| {
        if n == 100 {
            pool.note_damage(&PmError::Corrupt { what: "in another index", offset: 0 });
        }
        record
    });
    ensure!(rig.index().bulk_load(&mut records).is_err(), "bulk_load, out of order");
    same_contents(rig.index(), &Model::new()).within("after a refused bulk_load")?;
    let (key, value) = (S::Key::nth(7), S::Value::tagged(7));
    let refused = rig.index().try_insert(key.borrowed(), value.borrowed());
    let is_refused = matches!(refused, Err(IndexError::Pool(PmError::Damaged { .. })));
    ensure!(is_refused, "a write to a damaged pool: {refused:?}");
    Ok(())
}

/// Batches of every size, with duplicates inside the batch and with keys already there.
pub fn batches<S: Types>(of: Maker<S>) -> Verdict {
    let mut rig = Rig::new(of)?;
    let mut model = Model::new();
    for size in (0..20u64).chain([63, 64, 65, 127, 128, 129, 1000]) {
        // Every key is in the batch twice or three times, each time with another value.
        let numbers = (0..size).map(|i| (size * 31 + i * 7) % (size / 2 + 1) + size * 3);
        let records: Vec<_> = numbers
            .enumerate()
            .map(|(at, i)| (S::Key::nth(i), S::Value::tagged(size * 10_000 + at as u64)))
            .collect();
        let wanted: Vec<bool> = records
            .iter()
            .map(|(key, value)| {
                let new = !model.contains_key(key);
                model.entry(key.clone()).or_insert_with(|| value.clone());
                new
            })
            .collect();
        let done = rig.index().try_insert_many(&records);
        ensure_eq!(done.stopped, None, "try_insert_many of {size}");
        ensure_eq!(done.inserted, wanted, "try_insert_many of {size}");
        same_contents(rig.index(), &model).within(format_args!("try_insert_many of {size}"))?;

        // Half of the keys are present.
        let numbers = (0..size).map(|i| (size * 31 + i * 7) % (size / 2 + 1) + size * 7 / 2);
        let records: Vec<_> = numbers
            .enumerate()
            .map(|(at, i)| (S::Key::nth(i), S::Value::tagged(size * 20_000 + at as u64)))
            .collect();
        rig.index().put_many(&records)?;
        model.extend(records);
        same_contents(rig.index(), &model).within(format_args!("put_many of {size}"))?;

        let keys: Vec<_> = (0..size).map(|i| S::Key::nth(i * 3)).collect();
        let mut found = vec![Some(S::Value::tagged(0)); keys.len()];
        rig.index().get_many(&keys, &mut found)?;
        let wanted: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
        ensure_eq!(found, wanted, "get_many of {size}");

        // Replaces a part of them twice, then takes a part out, once.
        let numbers = (0..size).map(|i| i % (size / 2 + 1) + size * 4);
        let records: Vec<_> = numbers
            .enumerate()
            .map(|(at, i)| (S::Key::nth(i), S::Value::tagged(size * 30_000 + at as u64)))
            .collect();
        let mut replaced = vec![Some(S::Value::tagged(0)); records.len()];
        rig.index().insert_many(&records, &mut replaced)?;
        let insert = |(key, value): &(S::Key, S::Value)| model.insert(key.clone(), value.clone());
        let wanted: Vec<_> = records.iter().map(insert).collect();
        ensure_eq!(replaced, wanted, "insert_many of {size}");
        same_contents(rig.index(), &model).within(format_args!("insert_many of {size}"))?;

        let keys: Vec<_> =
            (0..size).map(|i| S::Key::nth(i * 2 % (size + 1) + size * 7 / 2)).collect();
        let mut removed = vec![Some(S::Value::tagged(0)); keys.len()];
        rig.index().remove_many(&keys, &mut removed)?;
        let wanted: Vec<_> = keys.iter().map(|key| model.remove(key)).collect();
        ensure_eq!(removed, wanted, "remove_many of {size}");
        same_contents(rig.index(), &model).within(format_args!("remove_many of {size}"))?;
    }
    rig.drop_and_open()?;
    same_contents(rig.index(), &model).within("batches, opened")
}
