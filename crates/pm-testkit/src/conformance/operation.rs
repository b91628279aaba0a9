//! One operation of a random sequence, on the index and on the model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use pmindex_index::{IndexError, InsertMany, Storable};
use proptest::prelude::*;

use super::contents::{same_contents, same_get_into, same_range, same_scan_into};
use super::sample::{SampleKey, SampleValue, one_of};
use super::subject::{IndexOf, Rig, Types};
use super::verdict::{Verdict, Within, ensure, ensure_eq};

/// The expected contents of the index.
pub type Model<K, V> = BTreeMap<K, V>;

/// The model of a subject.
pub(crate) type ModelOf<S> = Model<<S as Types>::Key, <S as Types>::Value>;

/// One operation of a sequence.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named after the methods of `Index`")]
pub enum Operation<K, V> {
    Get(K),
    GetInto(K),
    Contains(K),
    Insert(K, V),
    TryInsert(K, V),
    Update(K, V),
    Put(K, V),
    Remove(K),
    /// With the present value, or with another one.
    RemoveExact(K, Option<V>),
    RemoveIf(K, bool),
    PopFirst,
    PopLast,
    RemoveBounds(Bound<K>, Bound<K>),
    /// Keeps the records whose position's bit is set.
    Retain(u32),
    /// Bit `i` of `turns` says from which end item `i` comes.
    Range {
        lower: Bound<K>,
        upper: Bound<K>,
        turns: u64,
    },
    Scan {
        from: K,
        limit: usize,
    },
    ScanInto {
        lower: Bound<K>,
        upper: Bound<K>,
        limit: usize,
    },
    FirstAndLast,
    Len,
    /// Removes every record, in key order or against it.
    RemoveAll {
        ascending: bool,
    },
    BulkLoad(BTreeMap<K, V>),
    GetMany(Vec<K>),
    TryInsertMany(Vec<(K, V)>),
    PutMany(Vec<(K, V)>),
    InsertMany(Vec<(K, V)>),
    RemoveMany(Vec<K>),
    Stats,
    Check,
    CloseAndOpen,
    DropAndOpen,
}

fn bound<K: SampleKey>() -> BoxedStrategy<Bound<K>> {
    one_of([
        (2, K::sample().prop_map(Bound::Included).boxed()),
        (2, K::sample().prop_map(Bound::Excluded).boxed()),
        (1, Just(Bound::Unbounded).boxed()),
    ])
}

/// Returns bounds that `BTreeMap::range` accepts.
fn bounds<K: SampleKey>() -> BoxedStrategy<(Bound<K>, Bound<K>)> {
    let ordered = |(lower, upper)| {
        if panics(&lower, &upper) { (upper, Bound::Unbounded) } else { (lower, upper) }
    };
    (bound::<K>(), bound::<K>()).prop_map(ordered).boxed()
}

/// Whether `BTreeMap::range` panics for these bounds.
pub(crate) fn panics<K: Ord>(lower: &Bound<K>, upper: &Bound<K>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match (lower, upper) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Excluded(a), Excluded(b)) => a >= b,
        (Included(a) | Excluded(a), Included(b) | Excluded(b)) => a > b,
    }
}

/// Makes an operation of what it is on.
type Made<T, K, V> = fn(T) -> Operation<K, V>;

/// Returns any operation.
///
/// Each part has a boxed type: nested types of strategies, for each pair of types, took half of the time of compiling
/// this crate.
pub fn operation<K: SampleKey, V: SampleValue>() -> BoxedStrategy<Operation<K, V>> {
    use proptest::collection::{btree_map, vec};
    let key = K::sample();
    let keys = vec(key.clone(), 0..40).boxed();
    let record = (key.clone(), V::sample()).boxed();
    let records = vec(record.clone(), 0..40).boxed();
    let bounds = bounds::<K>();
    let on_key = |make: Made<K, K, V>| key.clone().prop_map(make).boxed();
    let on_record = |make: Made<(K, V), K, V>| record.clone().prop_map(make).boxed();
    let on_keys = |make: Made<Vec<K>, K, V>| keys.clone().prop_map(make).boxed();
    let on_records = |make: Made<Vec<(K, V)>, K, V>| records.clone().prop_map(make).boxed();
    let alone = |operation: Operation<K, V>| Just(operation).boxed();
    let writes = one_of([
        (4, on_record(|(k, v)| Operation::TryInsert(k, v))),
        (2, on_record(|(k, v)| Operation::Update(k, v))),
        (2, on_record(|(k, v)| Operation::Put(k, v))),
        (2, on_record(|(k, v)| Operation::Insert(k, v))),
        (4, on_key(Operation::Remove)),
        (
            1,
            (key.clone(), proptest::option::of(V::sample()))
                .prop_map(|(k, v)| Operation::RemoveExact(k, v))
                .boxed(),
        ),
        (1, (key.clone(), any::<bool>()).prop_map(|(k, yes)| Operation::RemoveIf(k, yes)).boxed()),
        (1, one_of([(1, alone(Operation::PopFirst)), (1, alone(Operation::PopLast))])),
        (1, on_records(Operation::TryInsertMany)),
        (1, on_records(Operation::PutMany)),
        (1, on_records(Operation::InsertMany)),
        (1, on_keys(Operation::RemoveMany)),
    ]);
    let reads = one_of([
        (4, on_key(Operation::Get)),
        (2, on_key(Operation::GetInto)),
        (2, on_key(Operation::Contains)),
        (
            4,
            (bounds.clone(), any::<u64>())
                .prop_map(|((lower, upper), turns)| Operation::Range { lower, upper, turns })
                .boxed(),
        ),
        (
            2,
            (key.clone(), 0..50usize)
                .prop_map(|(from, limit)| Operation::Scan { from, limit })
                .boxed(),
        ),
        (
            2,
            (bounds.clone(), 0..50usize)
                .prop_map(|((lower, upper), limit)| Operation::ScanInto { lower, upper, limit })
                .boxed(),
        ),
        (2, on_keys(Operation::GetMany)),
        (1, alone(Operation::FirstAndLast)),
        (1, alone(Operation::Len)),
    ]);
    let rare = one_of([
        (2, any::<bool>().prop_map(|ascending| Operation::RemoveAll { ascending }).boxed()),
        (1, bounds.prop_map(|(lower, upper)| Operation::RemoveBounds(lower, upper)).boxed()),
        (1, (0..3u32).prop_map(Operation::Retain).boxed()),
        (2, btree_map(key.clone(), V::sample(), 0..60).prop_map(Operation::BulkLoad).boxed()),
        (1, alone(Operation::Stats)),
        (2, alone(Operation::Check)),
        (2, alone(Operation::CloseAndOpen)),
        (2, alone(Operation::DropAndOpen)),
    ]);
    one_of([(28, writes), (13, reads), (2, rare)])
}

/// Executes one operation on both and compares the results.
pub(crate) fn apply<S: Types>(
    rig: &mut Rig<S>,
    model: &mut Model<S::Key, S::Value>,
    operation: &Operation<S::Key, S::Value>,
) -> Verdict {
    match operation {
        Operation::Insert(..)
        | Operation::TryInsert(..)
        | Operation::Update(..)
        | Operation::Put(..)
        | Operation::Remove(_)
        | Operation::RemoveExact(..)
        | Operation::RemoveIf(..)
        | Operation::PopFirst
        | Operation::PopLast
        | Operation::RemoveBounds(..)
        | Operation::Retain(_)
        | Operation::RemoveAll { .. }
        | Operation::BulkLoad(_)
        | Operation::TryInsertMany(_)
        | Operation::PutMany(_)
        | Operation::InsertMany(_)
        | Operation::RemoveMany(_) => write::<S>(rig.index(), model, operation),
        Operation::CloseAndOpen => {
            rig.close_and_open()?;
            ensure_eq!(rig.index().len()?, model.len() as u64, "len after close and open");
            Ok(())
        }
        Operation::DropAndOpen => {
            rig.drop_and_open()?;
            ensure_eq!(rig.index().len()?, model.len() as u64, "len after drop and open");
            Ok(())
        }
        _ => read::<S>(rig, model, operation),
    }
}

fn write<S: Types>(
    index: &IndexOf<S>,
    model: &mut Model<S::Key, S::Value>,
    operation: &Operation<S::Key, S::Value>,
) -> Verdict {
    match operation {
        Operation::TryInsert(key, value) => {
            let new = !model.contains_key(key);
            ensure_eq!(index.try_insert(key.borrowed(), value.borrowed())?.is_ok(), new, "insert");
            model.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Operation::Update(key, value) => {
            let found = index.update(key.borrowed(), value.borrowed())?.is_ok();
            ensure_eq!(found, model.contains_key(key), "update");
            model.entry(key.clone()).and_modify(|place| *place = value.clone());
        }
        Operation::Put(key, value) => {
            let new = model.insert(key.clone(), value.clone()).is_none();
            ensure_eq!(index.put(key.borrowed(), value.borrowed())?, new, "put");
        }
        Operation::Insert(key, value) => {
            let there = model.insert(key.clone(), value.clone());
            ensure_eq!(index.insert(key.borrowed(), value.borrowed())?, there, "insert (replaces)");
        }
        Operation::RemoveExact(..)
        | Operation::RemoveIf(..)
        | Operation::PopFirst
        | Operation::PopLast
        | Operation::RemoveBounds(..)
        | Operation::Retain(_) => return take::<S>(index, model, operation),
        Operation::Remove(key) => {
            ensure_eq!(index.remove(key.borrowed())?, model.remove(key), "remove");
        }
        Operation::RemoveAll { ascending } => {
            while let Some((key, value)) =
                if *ascending { model.pop_first() } else { model.pop_last() }
            {
                ensure_eq!(index.remove(key.borrowed())?, Some(value), "remove (of all)");
            }
            ensure!(index.is_empty()?, "is_empty after all were removed");
        }
        Operation::BulkLoad(records) => return bulk_load::<S>(index, model, records),
        Operation::TryInsertMany(_)
        | Operation::PutMany(_)
        | Operation::InsertMany(_)
        | Operation::RemoveMany(_) => return several::<S>(index, model, operation),
        _ => unreachable!("a read"),
    }
    Ok(())
}

/// Executes the batches of writes.
fn several<S: Types>(
    index: &IndexOf<S>,
    model: &mut Model<S::Key, S::Value>,
    operation: &Operation<S::Key, S::Value>,
) -> Verdict {
    match operation {
        Operation::TryInsertMany(records) => {
            let InsertMany { inserted, stopped } = index.try_insert_many(records);
            ensure_eq!(stopped, None, "try_insert_many");
            let mut wanted = Vec::new();
            for (key, value) in records {
                wanted.push(!model.contains_key(key));
                model.entry(key.clone()).or_insert_with(|| value.clone());
            }
            ensure_eq!(inserted, wanted, "try_insert_many");
        }
        Operation::PutMany(records) => {
            index.put_many(records)?;
            model.extend(records.iter().cloned());
        }
        Operation::InsertMany(records) => {
            let mut replaced = former_contents(model, records.len());
            index.insert_many(records, &mut replaced)?;
            let insert =
                |(key, value): &(S::Key, S::Value)| model.insert(key.clone(), value.clone());
            let wanted: Vec<_> = records.iter().map(insert).collect();
            ensure_eq!(replaced, wanted, "insert_many");
        }
        Operation::RemoveMany(keys) => {
            let mut removed = former_contents(model, keys.len());
            index.remove_many(keys, &mut removed)?;
            let wanted: Vec<_> = keys.iter().map(|key| model.remove(key)).collect();
            ensure_eq!(removed, wanted, "remove_many");
            for key in keys {
                ensure_eq!(index.get(key.borrowed())?, None, "get after remove_many");
            }
        }
        _ => unreachable!("no batch"),
    }
    let (written, batch) = match operation {
        Operation::TryInsertMany(records) => (records, "try_insert_many"),
        Operation::PutMany(records) => (records, "put_many"),
        Operation::InsertMany(records) => (records, "insert_many"),
        _ => return Ok(()),
    };
    for (key, _) in written {
        let found = index.get(key.borrowed())?;
        ensure_eq!(found.as_ref(), model.get(key), "get after {batch}");
    }
    Ok(())
}

/// Returns what a batch finds in the buffer for its results: it does not matter.
fn former_contents<K, V: Clone>(model: &Model<K, V>, len: usize) -> Vec<Option<V>> {
    vec![model.values().next().cloned(); len]
}

/// Executes the removals that consist of several calls.
fn take<S: Types>(
    index: &IndexOf<S>,
    model: &mut Model<S::Key, S::Value>,
    operation: &Operation<S::Key, S::Value>,
) -> Verdict {
    match operation {
        Operation::RemoveExact(key, value) => {
            let there = model.get(key).cloned();
            let Some(value) = value.as_ref().or(there.as_ref()) else { return Ok(()) };
            let removed = index.remove_exact(key.borrowed(), value)?;
            let wanted = there.clone().filter(|there| there == value);
            if wanted.is_some() {
                model.remove(key);
            }
            ensure_eq!(removed, wanted, "remove_exact");
        }
        Operation::RemoveIf(key, yes) => {
            let mut asked = Vec::new();
            let removed = index.remove_if(key.borrowed(), &mut |value| {
                asked.push(value.clone());
                *yes && asked.len() == 1 // otherwise it might ask for ever
            })?;
            ensure_eq!(
                asked,
                Vec::from_iter(model.get(key).cloned()),
                "what remove_if asked about"
            );
            let wanted = if *yes { model.remove(key) } else { None };
            ensure_eq!(removed, wanted, "remove_if");
        }
        Operation::PopFirst => ensure_eq!(index.pop_first()?, model.pop_first(), "pop_first"),
        Operation::PopLast => ensure_eq!(index.pop_last()?, model.pop_last(), "pop_last"),
        Operation::RemoveBounds(lower, upper) => {
            let bounds = (lower.as_ref(), upper.as_ref());
            let gone: Vec<_> = model.range(bounds).map(|(key, _)| key.clone()).collect();
            model.retain(|key, _| gone.binary_search(key).is_err());
            let borrowed =
                (lower.as_ref().map(S::Key::borrowed), upper.as_ref().map(S::Key::borrowed));
            let removed = index.remove_bounds(borrowed.0, borrowed.1)?;
            ensure_eq!(removed, gone.len() as u64, "remove_bounds");
        }
        Operation::Retain(bit) => {
            let keep = |place: &mut u32| {
                *place += 1;
                *place >> bit & 1 == 1
            };
            let (mut of_index, mut of_model, before) = (0, 0, model.len());
            let removed = index.retain(&mut |_, _| keep(&mut of_index))?;
            model.retain(|_, _| keep(&mut of_model));
            ensure_eq!(removed, (before - model.len()) as u64, "retain");
        }
        _ => unreachable!("no removal"),
    }
    same_contents(index, model).within("after a removal of several")
}

fn bulk_load<S: Types>(
    index: &IndexOf<S>,
    model: &mut Model<S::Key, S::Value>,
    records: &BTreeMap<S::Key, S::Value>,
) -> Verdict {
    let result = index.bulk_load(&mut records.clone().into_iter());
    if model.is_empty() {
        ensure_eq!(result, Ok(records.len() as u64), "bulk_load");
        model.clone_from(records);
    } else if records.is_empty() {
        // Nothing to load: refused or not, nothing changes.
        ensure!(matches!(result, Ok(0) | Err(IndexError::NotEmpty)), "bulk_load: {result:?}");
    } else {
        ensure_eq!(result, Err(IndexError::NotEmpty), "bulk_load into an index with records");
    }
    same_contents(index, model).within("after bulk_load")
}

fn read<S: Types>(
    rig: &Rig<S>,
    model: &Model<S::Key, S::Value>,
    operation: &Operation<S::Key, S::Value>,
) -> Verdict {
    let index = rig.index();
    match operation {
        Operation::Get(key) => {
            ensure_eq!(index.get(key.borrowed())?.as_ref(), model.get(key), "get");
        }
        Operation::GetInto(key) => same_get_into(index, model, key)?,
        Operation::ScanInto { lower, upper, limit } => {
            same_scan_into(index, model, (lower, upper), *limit)?;
        }
        Operation::Contains(key) => {
            let found = index.contains_key(key.borrowed())?;
            ensure_eq!(found, model.contains_key(key), "contains_key");
        }
        Operation::Range { lower, upper, turns } => same_range(index, model, lower, upper, *turns)?,
        Operation::Scan { from, limit } => {
            // `scan` appends.
            let mut found: Vec<_> = family_head::<S>(model);
            let mut wanted = found.clone();
            index.scan(from.borrowed(), *limit, &mut found)?;
            wanted.extend(
                model.range(from..).take(*limit).map(|(key, value)| (key.clone(), value.clone())),
            );
            ensure_eq!(found, wanted, "scan");
        }
        Operation::FirstAndLast => {
            let pair = |(k, v): (&S::Key, &S::Value)| (k.clone(), v.clone());
            ensure_eq!(index.first_key_value()?, model.first_key_value().map(pair), "first");
            ensure_eq!(index.last_key_value()?, model.last_key_value().map(pair), "last");
            ensure_eq!(index.is_empty()?, model.is_empty(), "is_empty");
        }
        Operation::Len => ensure_eq!(index.len()?, model.len() as u64, "len"),
        Operation::GetMany(keys) => {
            let mut found = former_contents(model, keys.len());
            index.get_many(keys, &mut found)?;
            let wanted: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            ensure_eq!(found, wanted, "get_many");
        }
        Operation::Stats => stats_are_sane(rig, model.len() as u64)?,
        Operation::Check => {
            ensure_eq!(index.check().within("check")?, model.len() as u64, "check");
        }
        _ => unreachable!("a write"),
    }
    Ok(())
}

fn family_head<S: Types>(model: &Model<S::Key, S::Value>) -> Vec<(S::Key, S::Value)> {
    model.iter().take(2).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Checks that `stats` counts the records, and no more memory than the pool has handed out.
pub(crate) fn stats_are_sane<S: Types>(rig: &Rig<S>, records: u64) -> Verdict {
    use super::bed::Bed;
    let stats = rig.index().stats()?;
    ensure_eq!(stats.records, records, "records in stats");
    let used = rig.bed.pool().used_bytes();
    ensure!(stats.pm_bytes > 0, "stats: an index has a root block, but pm_bytes is 0");
    ensure!(stats.pm_bytes <= used, "stats: pm_bytes {} of {used} in use", stats.pm_bytes);
    let blocks = rig.index().blocks()?;
    let distinct: BTreeSet<_> = blocks.iter().collect();
    ensure_eq!(blocks.len(), distinct.len(), "blocks, and distinct blocks");
    ensure!(!blocks.is_empty(), "blocks: not even a root block");
    Ok(())
}
