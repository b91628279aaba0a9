//! A disk that fails, at each write-back in turn.
//!
//! On a disk whose write-back failed, a page holds what was written back last, or later stores, or part of
//! them. The process continues with what it has in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::PmError;
use pmindex_index::{IndexError, Shape, Storable};

use crate::crash::Rng;

use super::bed::OnDisk;
use super::contents::same_contents;
use super::operation::{ModelOf, Operation};
use super::sample::{SampleKey, SampleValue};
use super::subject::{IndexOf, Maker, Rig, Types};
use super::verdict::{Failure, Verdict, Within, brief, ensure, ensure_eq};

type OperationOf<S> = Operation<<S as Types>::Key, <S as Types>::Value>;
/// The records that refused writes may have changed.
type MaybeOf<S> = BTreeMap<<S as Types>::Key, Option<<S as Types>::Value>>;

/// The mixtures of pages that are opened for each failure: everything stored, everything written back, and
/// some of both.
const MIXTURES: u64 = 4;

/// Operations that change every kind of structure of an index.
fn script<S: Types>(of: Maker<S>) -> Vec<OperationOf<S>> {
    let key = |i: u64| S::Key::nth(i);
    let value = |i: u64| S::Value::tagged(i * 32 + 29 + i % 3);
    let first = (0..20).map(|i| (key(7 * i), value(i)));
    let mut script = vec![if of.loads_at_once() {
        Operation::BulkLoad(first.collect())
    } else {
        Operation::TryInsertMany(first.collect())
    }];
    script.extend((0..50).map(|i| Operation::TryInsert(key(i * 37 % 50 * 3 + 1), value(i))));
    script.extend((0..10).map(|i| Operation::Update(key(i * 7), value(i + 1))));
    script.extend((0..10).map(|i| Operation::Update(key(i % 3 * 7), value(i + 3))));
    script.extend((0..12).map(|i| Operation::Put(key(i * 5), value(i + 2))));
    script.push(Operation::TryInsertMany((0..30).map(|i| (key(i * 2), value(i))).collect()));
    script.extend((0..90).map(|i| Operation::Remove(key(i * 2 % 90))));
    script.extend((0..8).map(|i| Operation::TryInsert(key(i * 11 + 3), value(i))));
    script
}

fn is_lost(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(PmError::DurabilityLost(_)))
}

/// Runs a write. An acknowledged one goes into the model, a refused one into `maybe`; returns whether any was
/// refused.
fn attempt<S: Types>(
    index: &IndexOf<S>,
    model: &mut ModelOf<S>,
    maybe: &mut MaybeOf<S>,
    operation: &OperationOf<S>,
) -> Verdict<bool> {
    let present = |key: &S::Key, model: &ModelOf<S>| model.contains_key(key);
    let mut wanted: Vec<(S::Key, Option<S::Value>)> = Vec::new();
    let refused = match operation {
        Operation::TryInsert(key, value) => {
            if !present(key, model) {
                wanted.push((key.clone(), Some(value.clone())));
            }
            index.try_insert(key.borrowed(), value.borrowed()).err()
        }
        Operation::Update(key, value) => {
            if present(key, model) {
                wanted.push((key.clone(), Some(value.clone())));
            }
            index.update(key.borrowed(), value.borrowed()).err()
        }
        Operation::Put(key, value) => {
            wanted.push((key.clone(), Some(value.clone())));
            index.put(key.borrowed(), value.borrowed()).err()
        }
        Operation::Remove(key) => {
            wanted.push((key.clone(), None));
            index.remove(key.borrowed()).err()
        }
        Operation::BulkLoad(records) => {
            wanted.extend(records.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
            index.bulk_load(&mut records.clone().into_iter()).err()
        }
        Operation::TryInsertMany(records) => {
            let done = index.try_insert_many(records);
            let mut seen: BTreeSet<&S::Key> = BTreeSet::new();
            for (i, (key, value)) in records.iter().enumerate() {
                if present(key, model) || !seen.insert(key) {
                    continue;
                }
                if i < done.inserted.len() {
                    model.insert(key.clone(), value.clone());
                } else {
                    wanted.push((key.clone(), Some(value.clone())));
                }
            }
            done.stopped
        }
        _ => return Err(Failure::new("a script of writes")),
    };
    if let Some(error) = refused {
        ensure!(is_lost(&error), "refused for another reason: {error}");
        maybe.extend(wanted);
        return Ok(true);
    }
    for (key, value) in wanted {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
    Ok(false)
}

/// Checks that every later write is refused and changes nothing.
fn refuses_writes<S: Types>(index: &IndexOf<S>) -> Verdict {
    let (old, new) = (S::Key::nth(1), S::Key::nth(4001));
    let value = S::Value::tagged(77);
    let answers = [
        ("insert", index.try_insert(new.borrowed(), value.borrowed()).err()),
        ("update", index.update(old.borrowed(), value.borrowed()).err()),
        ("put", index.put(old.borrowed(), value.borrowed()).err()),
        ("remove", index.remove(old.borrowed()).err()),
        ("try_insert_many", index.try_insert_many(&[(new.clone(), value.clone())]).stopped),
    ];
    for (name, answer) in answers {
        match answer {
            Some(error) if is_lost(&error) => {}
            Some(error) => return Err(Failure::new(format!("{name} afterwards: {error}"))),
            None => return Err(Failure::new(format!("{name} afterwards: acknowledged"))),
        }
    }
    Ok(())
}

/// Checks that the index has the model's records, except those that may have changed.
fn contents_but<S: Types>(
    index: &IndexOf<S>,
    model: &ModelOf<S>,
    maybe: &MaybeOf<S>,
) -> Verdict<ModelOf<S>> {
    use std::ops::Bound::Unbounded;
    let found: Result<ModelOf<S>, _> = index.range_bounds(Unbounded, Unbounded).collect();
    let found = found.within("all records")?;
    for key in model.keys().chain(found.keys()).chain(maybe.keys()) {
        let (now, then) = (found.get(key), model.get(key));
        let changed = maybe.get(key).is_some_and(|may_be| now == may_be.as_ref());
        ensure!(
            now == then || changed,
            "{} is {}, was acknowledged as {}",
            brief(key),
            brief(&now),
            brief(&then)
        );
    }
    same_contents(index, &found)?;
    Ok(found)
}

/// Write-back `n` of the script fails, for every `n` (or every third). In the process the operation is
/// refused, later writes are refused, and every read returns acknowledged data. Afterwards, whatever part of
/// the stores reached the disk, the index opens with all acknowledged records, and works.
pub fn failing_disk<S: Types<Bed = OnDisk>>(of: Maker<S>) -> Verdict {
    let script = script::<S>(of);
    // Every third, if records take more than one line.
    let one_line = matches!((S::Key::SHAPE, S::Value::SHAPE), (Shape::Inline(1), Shape::Inline(1)));
    let step = if one_line { 1 } else { 3 };
    let mut failing = 0;
    while one_failure(of, &script, failing).within(format_args!("write-back {failing} fails"))? {
        failing += step;
    }
    ensure!(failing > 100, "the script hardly writes");
    Ok(())
}

/// Whether write-back number `failing` was reached.
fn one_failure<S: Types<Bed = OnDisk>>(
    of: Maker<S>,
    script: &[OperationOf<S>],
    failing: u64,
) -> Verdict<bool> {
    let mut rng = Rng::new(failing);
    let mut rig = Rig::with_pool(of, 0)?;
    let (mut model, mut maybe) = (ModelOf::<S>::new(), MaybeOf::<S>::new());
    rig.bed.fail_after(failing);
    let mut refused = None;
    for (at, operation) in script.iter().enumerate() {
        let place = format!("operation {at}, {}", brief(operation));
        if attempt::<S>(rig.index(), &mut model, &mut maybe, operation).within(&place)? {
            refused = Some(place);
            break;
        }
    }
    let Some(place) = refused else { return Ok(false) };
    for turn in ["after it was refused", "after more was refused"] {
        same_contents(rig.index(), &model).within(turn).within(&place)?;
        refuses_writes::<S>(rig.index()).within(&place)?;
    }
    let mixture = failing % MIXTURES;
    let place = format!("{place}, opened again (mixture {mixture})");
    if failing % 8 < MIXTURES {
        rig.try_close(); // else it is dropped
    }
    rig.drop_and(|bed| {
        bed.open_left(|| match mixture {
            0 => false,
            1 => true,
            _ => rng.below(2) == 0,
        })
    })
    .within(&place)?;
    let mut model = contents_but::<S>(rig.index(), &model, &maybe).within(&place)?;
    rig.audit().within(&place)?;
    for operation in script.iter().skip(1).step_by(5) {
        let lost = attempt::<S>(rig.index(), &mut model, &mut maybe, operation).within(&place)?;
        ensure!(!lost, "{place}: refused on a new disk");
    }
    same_contents(rig.index(), &model).within(&place).within("at the end")?;
    rig.audit().within(&place).within("at the end")?;
    Ok(true)
}

/// The disk fails while several threads write: each gets the right answer.
pub fn failing_disk_among_threads<S: Types<Bed = OnDisk>>(of: Maker<S>, rounds: u64) -> Verdict {
    (0..rounds).try_for_each(|round| one_among_threads(of, round).within(format!("round {round}")))
}

fn one_among_threads<S: Types<Bed = OnDisk>>(of: Maker<S>, round: u64) -> Verdict {
    const THREADS: u64 = 3;
    let mut rng = Rng::new(round);
    let mut rig = Rig::with_pool(of, 0)?;
    rig.bed.fail_after(20 + rng.below(400) as u64);
    let (index, wrong, refused) = (rig.index(), AtomicBool::new(false), AtomicBool::new(false));
    // Each thread has keys of its own, which lie between those of the others.
    let work = |thread: u64| -> Verdict<(ModelOf<S>, MaybeOf<S>)> {
        let (mut model, mut maybe) = (ModelOf::<S>::new(), MaybeOf::<S>::new());
        let mut rng = Rng::new(round * THREADS + thread);
        for i in 0..5000 {
            let key = S::Key::nth(rng.below(60) as u64 * THREADS + thread);
            let value = S::Value::tagged(i * THREADS + thread);
            let operation = match rng.below(5) {
                0 | 1 => Operation::TryInsert(key, value),
                2 => Operation::Put(key, value),
                3 => Operation::Update(key, value),
                _ => Operation::Remove(key),
            };
            if wrong.load(Relaxed) {
                break;
            }
            if attempt::<S>(index, &mut model, &mut maybe, &operation)? {
                refused.store(true, Relaxed);
                break;
            }
        }
        Ok((model, maybe))
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (work, wrong) = (&work, &wrong);
                scope.spawn(move || work(thread).inspect_err(|_| wrong.store(true, Relaxed)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let (mut model, mut maybe) = (ModelOf::<S>::new(), MaybeOf::<S>::new());
    for done in done {
        let (known, perhaps) = done?;
        model.extend(known);
        maybe.extend(perhaps);
    }
    // The failed write-back may have been for tidying up after a durable write, so no write was refused.
    ensure_eq!(refused.into_inner(), true, "a write was refused");
    same_contents(rig.index(), &model).within("after the failure")?;
    refuses_writes::<S>(rig.index())?;
    same_contents(rig.index(), &model).within("after more was refused")?;
    let all = rng.below(2) == 0;
    rig.drop_and(|bed| bed.open_left(|| all || rng.below(2) == 0)).within("opened again")?;
    contents_but::<S>(rig.index(), &model, &maybe).within("opened again")?;
    rig.audit().within("opened again")
}
