//! `pmindex check --repair`: copies the readable records of a damaged pool into a new one.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use pmindex::core::{IndexEntry, PmError, Pool};
use pmindex::{Gap, IndexError, Store, StoreError};
use pmindex_named::{Handle, NamedError, Raw, Records, Sort, Type};
use serde_json::{Value, json};

use crate::error::{CliError, cause};
use crate::progress;
use crate::table::{counted, shown};

use super::fresh::FreshPool;
use super::store_log;

/// The number of gaps that are listed for each index.
const LISTED: usize = 20;

/// The result of saving one index.
pub(crate) struct Saved {
    name: String,
    outcome: Result<Rescue, CliError>,
}

struct Rescue {
    /// Records in the new pool.
    records: u64,
    /// Records that were read in the old one; interrupted transactions make the difference.
    read: u64,
    keys: &'static Type,
    /// The error of the index; `None` if it is whole.
    damage: Option<IndexError>,
    /// The number of records that the index claims to have.
    claimed: Option<u64>,
    gaps: Vec<Gap<Raw>>,
    /// The errors of its nodes, if they were read one by one.
    nodes: Vec<PmError>,
    /// Why interrupted transactions are not finished in the new pool.
    unfinished: Option<StoreError>,
}

/// Saves every index of a pool that can be opened, and finishes interrupted transactions in the new pool; returns
/// their number too.
pub(crate) fn repair(pool: &Arc<Pool>, target: &Path) -> Result<(Vec<Saved>, u64), CliError> {
    let fresh = FreshPool::create(target)?;
    let mut saved = Vec::new();
    let store = store_log::store(pool);
    let entries = store_log::indexes(pool)?;
    let mut owned: Vec<Option<HashSet<u64>>> =
        entries.iter().map(|entry| blocks_of_whole(pool, entry)).collect();
    owned.push(store.as_ref().ok().and_then(|store| blocks_of_log(store.as_ref())));
    let (store, broken) = match store {
        Ok(store) => (store, None),
        Err(error) => (None, Some(error)),
    };
    for (at, entry) in entries.into_iter().enumerate() {
        let bar = progress::spinner("saving records");
        let others = owned.iter().enumerate().filter(|(other, _)| *other != at);
        // The blocks that other indexes own, if all of these are whole.
        let others: Option<HashSet<u64>> = others
            .map(|(_, blocks)| blocks.as_ref())
            .collect::<Option<Vec<_>>>()
            .map(|all| all.into_iter().flatten().copied().collect());
        let outcome = match save((pool, store.as_ref()), &entry, others.as_ref(), &fresh) {
            // The error is in the new pool, not in the old one: nothing can be saved without it.
            Err(Fault::Target(error)) => return Err(error.in_pool(target)),
            Err(Fault::Source(error)) => Err(error),
            Ok(rescue) => Ok(rescue),
        };
        bar.finish_and_clear();
        saved.push(Saved { name: entry.name, outcome });
    }
    if let Some(error) = broken {
        saved.push(Saved { name: store_log::TITLE.into(), outcome: Err(error.into()) });
    }
    let unfinished = store.map_or(0, |store| store.unfinished_commits());
    fresh.finish()?;
    Ok((saved, unfinished))
}

/// Returns the blocks of the log of a store.
fn blocks_of_log(store: Option<&Store>) -> Option<HashSet<u64>> {
    let blocks = store.map_or(Ok(Vec::new()), Store::blocks).ok()?;
    Some(blocks.into_iter().collect())
}

/// Returns the blocks of an index if it is whole.
fn blocks_of_whole(pool: &Arc<Pool>, entry: &IndexEntry) -> Option<HashSet<u64>> {
    let index = pmindex_named::open_sort(pool, entry).ok()?;
    index.check().ok()?;
    Some(index.blocks().ok()?.into_iter().collect())
}

/// An index to read the records of.
enum Source {
    Ordered(Box<dyn Handle>),
    /// A whole one, and the number of its records.
    ByHash {
        index: Box<dyn Records>,
        records: u64,
    },
}

/// The pool that failed.
enum Fault {
    Source(CliError),
    Target(CliError),
}

fn save(
    (pool, store): (&Arc<Pool>, Option<&Store>),
    entry: &IndexEntry,
    others: Option<&HashSet<u64>>,
    fresh: &FreshPool,
) -> Result<Rescue, Fault> {
    let unknown = |error: NamedError| Fault::Source(error.into());
    let sort = Sort::of(entry).map_err(unknown)?;
    let (types, opened) = match sort {
        Sort::Ordered(_) => {
            let (types, opened) = pmindex_named::identify(pool, entry).map_err(unknown)?;
            (types, opened.map(Source::Ordered))
        }
        // Its records have no order that shows what is missing: they are read only if it is whole, else
        // segment by segment below.
        Sort::ByHash => {
            let (types, opened) = pmindex_named::identify_by_hash(pool, entry).map_err(unknown)?;
            let checked = opened.and_then(|index| Ok((index.check()?, index)));
            (types, checked.map(|(records, index)| Source::ByHash { index, records }))
        }
    };
    let changes = store.map(|store| pmindex_named::interrupted(store, &entry.name, types));
    let (changes, unfinished) = match changes.transpose() {
        Ok(changes) => (changes.unwrap_or_default(), None),
        Err(error) => (pmindex_named::Changes::default(), Some(error)),
    };
    let mut filling = fresh.index(&entry.name, sort, types).map_err(Fault::Target)?;
    let (mut failed, mut replaced) = (None, BTreeSet::new());
    let mut each = |key: Raw, value: Raw| {
        if changes.contains_key(&key) {
            replaced.insert(key);
            return true;
        }
        failed = filling.add(key, value).err();
        failed.is_none()
    };
    let mut rescue = Rescue {
        records: 0,
        read: 0,
        keys: types.keys,
        damage: None,
        claimed: None,
        gaps: Vec::new(),
        nodes: Vec::new(),
        unfinished,
    };
    match opened {
        Ok(Source::ByHash { index, records }) => {
            (rescue.claimed, rescue.damage) = (Some(records), index.for_each(&mut each).err());
        }
        Ok(Source::Ordered(index)) => {
            let salvage = index.salvage(&mut each);
            rescue.damage = salvage.damage;
            (rescue.claimed, rescue.gaps) = (salvage.claimed, salvage.gaps);
        }
        Err(error) => rescue.damage = Some(error),
    }
    if rescue.damage.is_some() {
        let foreign = others.map(|others| move |offset| others.contains(&offset));
        let foreign = foreign.as_ref().map(|foreign| foreign as &dyn Fn(u64) -> bool);
        let types = (sort, types);
        match pmindex_named::salvage_sort(pool, &entry.name, types, foreign, &mut each) {
            Ok(nodes) => rescue.nodes = nodes,
            Err(error) => rescue.damage = Some(error), // not even the root can be read
        }
    }
    let mut added = 0;
    for (key, value) in changes {
        if let (None, Some(value)) = (&failed, value) {
            added += 1;
            failed = filling.add(key, value).err();
        }
    }
    if let Some(error) = failed {
        return Err(Fault::Target(error.into()));
    }
    rescue.records = filling.finish().map_err(Fault::Target)?;
    rescue.read = (rescue.records + replaced.len() as u64).saturating_sub(added);
    Ok(rescue)
}

/// Returns a key as a sentence shows it: text in quotation marks.
fn quoted(keys: &Type, key: &Raw) -> String {
    match key {
        Raw::Bytes(_) => format!("\"{}\"", keys.show(key)),
        Raw::Word(_) => keys.show(key),
    }
}

impl Rescue {
    /// Returns `true` if records are or may be lost.
    fn is_damaged(&self) -> bool {
        self.damage.is_some() || self.unfinished.is_some()
    }
}

impl Saved {
    /// Returns `true` if records are or may be lost.
    pub(crate) fn is_damaged(&self) -> bool {
        self.outcome.as_ref().map_or(true, Rescue::is_damaged)
    }

    /// Returns the result as text.
    pub(crate) fn text(&self) -> String {
        let name = shown(&self.name);
        let rescue = match &self.outcome {
            Ok(rescue) => rescue,
            Err(error) => return format!("{name}: nothing could be saved: {}\n", cause(error)),
        };
        let records = counted(rescue.records, "record", "records");
        let unfinished = rescue.unfinished.as_ref().map_or_else(String::new, |error| {
            format!("  interrupted transactions are not finished in it: {}\n", cause(error))
        });
        let Some(damage) = &rescue.damage else {
            return format!("{name}: whole, {records}\n{unfinished}");
        };
        let damage = cause(damage);
        let mut text = format!("{name}: {records} saved; damaged: {damage}\n{unfinished}");
        if let Some(claimed) = rescue.claimed {
            let missing = claimed.saturating_sub(rescue.read);
            let missing = counted(missing, "record is", "records are");
            let _ = writeln!(text, "  the index says it has {claimed}: {missing} missing");
        } else {
            text += "  the number of missing records is unknown: the index does not record how many it has\n";
        }
        let gaps = &rescue.gaps;
        for Gap { after, before, error } in gaps.iter().take(LISTED) {
            let show = |key: &Option<Raw>, none: &str| {
                key.as_ref().map_or_else(|| none.into(), |key| quoted(rescue.keys, key))
            };
            let (after, before) = (show(after, "the beginning"), show(before, "the end"));
            let _ = writeln!(
                text,
                "  nothing could be read between {after} and {before}: {}",
                cause(error)
            );
        }
        if gaps.len() > LISTED {
            let _ = writeln!(text, "  and {} more such gaps", gaps.len() - LISTED);
        }
        for node in rescue.nodes.iter().take(LISTED) {
            let _ = writeln!(text, "  {}", cause(node));
        }
        if rescue.nodes.len() > LISTED {
            let _ = writeln!(text, "  and {} more of its nodes", rescue.nodes.len() - LISTED);
        }
        text
    }

    /// Returns the result as JSON.
    pub(crate) fn json(&self) -> Value {
        let rescue = match &self.outcome {
            Ok(rescue) => rescue,
            Err(error) => {
                return json!({ "name": self.name, "whole": false, "error": error.to_string(),
                               "saved": 0 });
            }
        };
        let key = |key: &Option<Raw>| key.as_ref().map(|key| rescue.keys.to_json(key));
        let gaps: Vec<Value> = rescue
            .gaps
            .iter()
            .map(|gap| {
                json!({ "after": key(&gap.after), "before": key(&gap.before),
                        "error": gap.error.to_string() })
            })
            .collect();
        json!({
            "name": self.name,
            "whole": !rescue.is_damaged(),
            "saved": rescue.records,
            "claimed": rescue.claimed,
            "error": rescue.damage.as_ref().map(ToString::to_string),
            "unfinished": rescue.unfinished.as_ref().map(ToString::to_string),
            "gaps": gaps,
            "nodes": rescue.nodes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_sentence_has_a_beginning_and_an_end() {
        let key = Raw::Bytes(b"and #>".to_vec());
        assert_eq!(quoted(pmindex_named::BYTES, &key), "\"and #>\"");
        assert_eq!(quoted(pmindex_named::BYTES, &Raw::Word(7)), "7");
    }
}
