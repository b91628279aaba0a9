//! A full pool: each allocation fails in turn, and really full pools.

use pmindex_index::{IndexError, Storable};

use super::bed::Bed;
use super::contents::same_contents;
use super::operation::{Model, ModelOf, Operation, apply};
use super::sample::{SampleKey, SampleValue, family};
use super::subject::{IndexOf, Maker, NAME, Rig, Types};
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};
use crate::crash::Rng;

/// Bytes of a pool that is large enough for the script.
const ROOM: u64 = 4 << 20;

type OperationOf<S> = Operation<<S as Types>::Key, <S as Types>::Value>;

/// Operations that allocate in every place where an index may: leaves that fill, values that grow, batches.
fn script<S: Types>() -> Vec<OperationOf<S>> {
    let key = |i: u64| S::Key::nth(i);
    // Tags that make short and long values alternate.
    let value = |i: u64| S::Value::tagged(i * 32 + 29 + i % 3);
    let mut script: Vec<_> =
        (0..140).map(|i| Operation::TryInsert(key(i * 37 % 140 * 2), value(i))).collect();
    script.extend((0..20).map(|i| Operation::Update(key(i * 14), value(i + 1))));
    script.extend((0..20).map(|i| Operation::Put(key(i * 11), value(i + 2))));
    script.extend((0..30).map(|i| Operation::Remove(key(i * 4))));
    let batch = |from: u64| (from..from + 30).map(|i| (key(i * 3), value(i))).collect();
    script.push(Operation::TryInsertMany(batch(0)));
    script.push(Operation::TryInsertMany(batch(60)));
    script
}

fn is_full(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(error) if error.is_full())
}

/// Runs an operation that may find the pool full, unless it is a removal. Returns `true` if it did; the model
/// then has what the index must contain.
fn attempt<S: Types>(
    rig: &mut Rig<S>,
    model: &mut ModelOf<S>,
    operation: &OperationOf<S>,
) -> Verdict<bool> {
    let index = rig.index();
    let refused = match operation {
        Operation::TryInsert(key, value) => {
            index.try_insert(key.borrowed(), value.borrowed()).err()
        }
        Operation::Update(key, value) => index.update(key.borrowed(), value.borrowed()).err(),
        Operation::Put(key, value) => index.put(key.borrowed(), value.borrowed()).err(),
        Operation::Remove(key) => {
            index.remove(key.borrowed()).within("a removal, which needs no room")?;
            None
        }
        Operation::TryInsertMany(records) => {
            let done = index.try_insert_many(records);
            ensure!(done.inserted.len() <= records.len(), "try_insert_many: too many results");
            for ((key, value), inserted) in records.iter().zip(&done.inserted) {
                ensure_eq!(*inserted, !model.contains_key(key), "try_insert_many");
                model.entry(key.clone()).or_insert_with(|| value.clone());
            }
            let all = done.inserted.len() == records.len();
            ensure_eq!(all, done.stopped.is_none(), "try_insert_many: results for all records");
            done.stopped
        }
        _ => None,
    };
    let Some(error) = refused else {
        // It succeeded: what the model does. (A batch was compared above.)
        let mut quiet = model.clone();
        match operation {
            Operation::TryInsert(key, value) => {
                quiet.entry(key.clone()).or_insert_with(|| value.clone());
            }
            Operation::Update(key, value) => {
                quiet.entry(key.clone()).and_modify(|place| *place = value.clone());
            }
            Operation::Put(key, value) => {
                quiet.insert(key.clone(), value.clone());
            }
            Operation::Remove(key) => {
                quiet.remove(key);
            }
            _ => {}
        }
        *model = quiet;
        return Ok(false);
    };
    ensure!(is_full(&error), "in a full pool: {error}");
    Ok(true)
}

/// Allocation `n` of the script fails, for every `n`: the operation says that the pool is full and has
/// changed nothing (a batch: nothing from the failing record on); nothing is leaked; when there is room
/// again, the operation and all later ones succeed.
pub fn full_at_every_allocation<S: Types>(of: Maker<S>) -> Verdict {
    let script = script::<S>();
    let mut failing = 0u64;
    while one_failure(of, &script, failing).within(format_args!("allocation {failing} fails"))? {
        failing += 1 + failing / 40;
    }
    ensure!(failing > 0, "the script never allocates");
    Ok(())
}

/// Returns whether allocation number `failing` was reached.
fn one_failure<S: Types>(of: Maker<S>, script: &[OperationOf<S>], failing: u64) -> Verdict<bool> {
    let mut rig = Rig::with_pool(of, ROOM)?;
    let mut model = Model::new();
    let pool = rig.bed.pool().clone();
    pool.fail_allocation_after(Some(failing));
    let mut reached = false;
    for (at, operation) in script.iter().enumerate() {
        let place = format!("operation {at} ({operation:.0?})");
        if !attempt(&mut rig, &mut model, operation).within(&place)? {
            continue;
        }
        ensure!(!reached, "{place}: full again, though there is room");
        reached = true;
        same_contents(rig.index(), &model).within(&place).within("after it was refused")?;
        rig.audit().within(&place).within("after it was refused")?;
        pool.fail_allocation_after(None);
        apply(&mut rig, &mut model, operation).within(place).within("with room again")?;
    }
    pool.fail_allocation_after(None);
    drop(pool);
    same_contents(rig.index(), &model).within("at the end")?;
    rig.audit().within("at the end")?;
    rig.drop_and_open()?;
    same_contents(rig.index(), &model).within("at the end, opened")?;
    rig.audit().within("at the end, opened")?;
    Ok(reached)
}

/// Operations in a row find room for some of the blocks that they need, so that a split gets a leaf, time and again, and
/// nothing that leads to it: what is refused changes nothing, what was acknowledged stays, also over openings, and with
/// room again everything is whole.
pub fn scarce_room<S: Types>(of: Maker<S>, rounds: u64) -> Verdict {
    let mut refused = 0;
    for round in 0..rounds {
        refused += scarce(of, round).within(format_args!("round {round}"))?;
    }
    ensure!(refused > 0, "there was room for everything");
    Ok(())
}

/// Returns how many operations found no room.
fn scarce<S: Types>(of: Maker<S>, seed: u64) -> Verdict<u32> {
    let mut rng = Rng::new(seed);
    let mut below = |bound: u64| rng.next_u64() % bound;
    let mut rig = Rig::with_pool(of, ROOM)?;
    let mut model = Model::new();
    let mut refused = 0;
    for step in 0..600 {
        let scarce = step / 40 % 4 != 3;
        if scarce {
            // Some of the next reservations fail, or most.
            let which = below(u64::MAX) | if below(2) == 0 { below(u64::MAX) } else { 0 };
            rig.bed.pool().fail_allocations(which);
        } else {
            rig.bed.pool().fail_allocation_after(None);
        }
        let key = S::Key::nth(below(200));
        let value = S::Value::tagged(below(1 << 16));
        let operation = match below(10) {
            0..6 => Operation::TryInsert(key.clone(), value),
            6 => Operation::Update(key.clone(), value),
            7 => Operation::Put(key.clone(), value),
            _ => Operation::Remove(key.clone()),
        };
        let place = format!("operation {step} ({operation:.0?})");
        let is_full = attempt(&mut rig, &mut model, &operation).within(&place)?;
        ensure!(scarce || !is_full, "{place}: full, though there is room");
        refused += u32::from(is_full);
        let found = rig.index().get(key.borrowed()).within(&place)?;
        ensure_eq!(found.as_ref(), model.get(&key), "{place}: get");
        if below(8) == 0 {
            same_contents(rig.index(), &model).within(&place)?;
        }
        if below(50) == 0 {
            rig.bed.pool().fail_allocation_after(None);
            if below(3) == 0 { rig.close_and_open() } else { rig.drop_and_open() }
                .within(&place)?;
        }
    }
    rig.bed.pool().fail_allocation_after(None);
    same_contents(rig.index(), &model).within("at the end")?;
    rig.audit().within("at the end")?;
    rig.drop_and_open()?;
    same_contents(rig.index(), &model).within("at the end, opened")?;
    rig.audit().within("at the end, opened")?;
    Ok(refused)
}

/// `create` and `bulk_load` in a full pool leave no partial index, no partial load, and no leak.
pub fn full_at_creation_and_load<S: Types>(of: Maker<S>) -> Verdict {
    for failing in 0.. {
        let bed = S::Bed::new(ROOM)?;
        bed.pool().fail_allocation_after(Some(failing));
        match of.create(bed.pool(), NAME) {
            Ok(_) => break,
            Err(error) => ensure!(is_full(&error), "create in a full pool: {error}"),
        }
        ensure_eq!(bed.pool().find_index(NAME)?, None, "the directory after a refused create");
        let leaks = bed.pool().audit(std::iter::empty()).map_err(|e| Failure::new(e.to_string()));
        leaks.within(format_args!("create, allocation {failing} fails"))?;
        bed.pool().fail_allocation_after(None);
        of.create(bed.pool(), NAME).within("create, with room again")?;
    }
    let records = family::<S::Key, S::Value>(0..400);
    let mut failing = 0;
    loop {
        let rig = Rig::with_pool(of, ROOM)?;
        rig.bed.pool().fail_allocation_after(Some(failing));
        match rig.index().bulk_load(&mut records.clone().into_iter()) {
            Ok(_) => return Ok(()),
            Err(error) => ensure!(is_full(&error), "bulk_load in a full pool: {error}"),
        }
        let place = format!("bulk_load, allocation {failing} fails");
        rig.bed.pool().fail_allocation_after(None);
        same_contents(rig.index(), &Model::new()).within(&place)?;
        rig.audit().within(&place)?;
        rig.index().bulk_load(&mut records.clone().into_iter()).within(&place)?;
        same_contents(rig.index(), &records.iter().cloned().collect()).within(place)?;
        failing += 1 + failing / 16;
    }
}

/// Fills a small pool completely, twice: the index stays right, and deletes make room for about as many
/// records again.
pub fn filled_to_the_brim<S: Types>(of: Maker<S>) -> Verdict {
    let bed = S::Bed::new(of.simulated_bytes())?;
    if bed.pool().max_size() > bed.pool().len() {
        return Err(Failure::new("this property needs a bed whose pools do not grow"));
    }
    drop(bed);
    let mut rig = Rig::with_pool(of, of.simulated_bytes())?;
    let mut counts = Vec::new();
    for round in 0..4 {
        let mut model = Model::new();
        for i in 0.. {
            let (key, value) = (S::Key::nth(i * 7919 % 100_003), S::Value::tagged(i));
            match rig.index().try_insert(key.borrowed(), value.borrowed()) {
                Ok(Ok(())) => model.insert(key, value),
                Ok(Err(_)) => return Err(Failure::new("a new key was there already")),
                Err(error) if is_full(&error) => break,
                Err(error) => return Err(error.into()),
            };
        }
        same_contents(rig.index(), &model).within(format_args!("full, round {round}"))?;
        rig.audit().within(format_args!("full, round {round}"))?;
        counts.push(model.len());
        if round == 1 {
            rig.drop_and_open()?;
            same_contents(rig.index(), &model).within("full, and opened")?;
        }
        for key in model.keys() {
            ensure!(rig.index().remove(key.borrowed())?.is_some(), "remove: not there");
        }
        same_contents(rig.index(), &Model::new()).within(format_args!("emptied, round {round}"))?;
    }
    let (most, least) = (counts.iter().max(), counts.iter().min());
    let enough = least.zip(most).is_some_and(|(least, most)| least * 10 >= most * 8);
    ensure!(enough, "records until the pool was full, round by round: {counts:?}");
    Ok(())
}

/// The pool of [`full_then_emptied`].
const BRIM: u64 = 1 << 20;

/// Inserts records until there is no room; returns how many, and the error.
fn fill<S: Types>(index: &IndexOf<S>) -> Verdict<(u64, IndexError)> {
    for i in 0.. {
        let (key, value) = (S::Key::nth(nth(i)), S::Value::tagged(i));
        match index.try_insert(key.borrowed(), value.borrowed()) {
            Ok(new) => ensure!(new.is_ok(), "a new key was there already"),
            Err(error) if is_full(&error) => return Ok((i, error)),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::new("the pool is never full"))
}

/// Scatters the numbers of keys.
fn nth(i: u64) -> u64 {
    i * 7919 % 100_003
}

/// Removes the records that [`fill`] has inserted.
fn empty<S: Types>(index: &IndexOf<S>, records: u64, order: &str) -> Verdict {
    let mut keys: Vec<u64> = (0..records).map(nth).collect();
    match order {
        "ascending" => keys.sort_unstable(),
        "descending" => keys.sort_unstable_by(|a, b| b.cmp(a)),
        _ => keys.sort_unstable_by_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    }
    for key in keys {
        let gone =
            index.remove(S::Key::nth(key).borrowed()).within("a removal, which needs no room")?;
        ensure!(gone.is_some(), "remove {key}: it was not there");
    }
    Ok(())
}

/// Removing everything gives back the space of a pool that was filled to the brim, in any order, at once or after a kill
/// and an opening: at least 80 % of the bytes that an empty index leaves; another index can be filled. If two indexes
/// filled it, one after the other, emptying the first one gives back at least 80 % of the bytes that it took.
pub fn full_then_emptied<S: Types>(of: Maker<S>) -> Verdict {
    for (order, killed) in
        [("ascending", false), ("descending", true), ("scattered", false), ("scattered", true)]
    {
        one_emptied(of, order, killed).within(format_args!("{order}, killed: {killed}"))?;
    }
    Ok(())
}

fn one_emptied<S: Types>(of: Maker<S>, order: &str, killed: bool) -> Verdict {
    let mut rig = Rig::with_pool(of, BRIM)?;
    let pool = rig.bed.pool().clone();
    ensure!(pool.max_size() <= pool.len(), "this property needs a bed whose pools do not grow");
    let free = || -> Verdict<u64> {
        pool.trim()?;
        Ok(pool.len() - pool.used_bytes())
    };
    let before = free()?;
    let (records, _) = fill::<S>(rig.index())?;
    if killed {
        rig.drop_and_open()?;
    }
    empty::<S>(rig.index(), records, order)?;
    let after = free()?;
    ensure_eq!(rig.index().check()?, 0, "check");
    rig.audit()?;
    ensure!(
        after * 10 >= before * 8,
        "{after} of {before} bytes are free again, {records} records"
    );
    let other = of.create(&pool, "other").within("another index")?;
    let (others, error) = fill::<S>(&*other).within("another index")?;
    ensure!(others * 10 >= records * 8, "another index: {others} of {records} records: {error}");
    Ok(())
}

/// From allocation `n` of the script on every allocation fails, for some `n`, and every removal still
/// succeeds: at once, and after a kill and an opening.
pub fn removals_need_no_room<S: Types>(of: Maker<S>) -> Verdict {
    let script = script::<S>();
    let mut first = 0;
    let mut refused = true;
    while refused {
        for killed in [false, true] {
            let place = format!("no room from allocation {first} on, killed: {killed}");
            refused = emptied_without_room(of, &script, first, killed).within(place)?;
        }
        first += 1 + first / 8;
    }
    Ok(())
}

/// Whether allocation number `first` was reached.
fn emptied_without_room<S: Types>(
    of: Maker<S>,
    script: &[OperationOf<S>],
    first: u64,
    killed: bool,
) -> Verdict<bool> {
    let mut rig = Rig::with_pool(of, ROOM)?;
    let mut model = Model::new();
    rig.bed.pool().fail_allocation_after(Some(first));
    let mut refused = false;
    for (at, operation) in script.iter().enumerate() {
        let place = || format!("operation {at} ({operation:.0?})");
        refused |= attempt(&mut rig, &mut model, operation).within(place())?;
    }
    if killed {
        rig.drop_and_open()?;
        rig.bed.pool().fail_allocation_after(Some(0));
    }
    let mut keys: Vec<_> = model.keys().cloned().collect();
    if first % 3 == 1 {
        keys.reverse();
    }
    for (at, key) in keys.iter().enumerate() {
        let place = format!("removal {at} of {}", keys.len());
        let removed = rig.index().remove(key.borrowed()).within(place)?;
        ensure_eq!(removed, model.remove(key), "removal {at}");
    }
    same_contents(rig.index(), &model).within("emptied")?;
    rig.audit().within("emptied")?;
    rig.bed.pool().fail_allocation_after(None);
    for operation in script {
        apply(&mut rig, &mut model, operation).within("with room again")?;
    }
    same_contents(rig.index(), &model).within("with room again")?;
    rig.audit().within("with room again")?;
    Ok(refused)
}
