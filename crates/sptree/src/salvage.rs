//! Reading the Bnodes of an index that may be too damaged to be opened.

use std::collections::HashSet;
use std::sync::Arc;

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Route, Slot};

use crate::buffer::follow;
use crate::layout::{Geometry, Root, tag_of};
use crate::leaf::Bnode;
use crate::log::{Kind, Log};
use crate::tree::SpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Passes every record of every Bnode that can be recognised to `each`, in no order, until that returns
    /// `false`; returns the damage found. Nothing is opened, recovered or written, so this works where
    /// [`open`](Self::open) fails. Ghosts (records of the next Bnode) are left out; if the next Bnode cannot
    /// be read, they are passed last.
    ///
    /// After an unclean end, entries of a Bnode's chain in the log that the Bnode has not absorbed replace its
    /// records; they are lost if the Bnode or the log cannot be read.
    ///
    /// Of a bulk load that did not end, the records are passed that it has written: the word that says so may be damaged
    /// like any other, and opening, which discards them, is not what this is for.
    ///
    /// Reads the list of Bnodes first, as far as it leads; then, if `foreign` can tell whether another
    /// index owns a block, all other live blocks that could be Bnodes. A Bnode counts as one if its
    /// records have the tags of their keys: half of them in the list, all of them (two at
    /// least) elsewhere. Records with other tags are left out.
    ///
    /// # Cost
    /// Reads every Bnode once, and the allocator's tables.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the root
    /// cannot be read.
    pub fn salvage(
        pool: &Arc<Pool<M>>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Vec<PmError>, IndexError> {
        let index = Self::index_format().open(pool, name)?;
        let root = pool.get(index.root::<Root>())?;
        let head = pool.pm().load(&root.head).offset();
        let mut damage = Vec::new();
        let logged = !pool.pm().load(&root.log).is_null();
        let log = match logged.then(|| Log::open(pool, &root.log)).transpose() {
            Ok(log) => log,
            Err(error) => {
                damage.push(error);
                None
            }
        };
        let mut seen = HashSet::new();
        let mut next = head;
        let mut unconfirmed = Vec::new();
        while next != 0 && seen.insert(next) {
            let bnode = match Bnode::<K, V, LEAF>::at(pool, next) {
                Ok(bnode) => bnode,
                Err(error) => {
                    damage.push(error);
                    break;
                }
            };
            let (mut good, bad) = read(pool, &bnode);
            let link = bnode.next(pool.pm());
            if link.ghosts() {
                let after = Bnode::<K, V, LEAF>::at(pool, link.offset());
                match after.and_then(|after| after.low(pool)) {
                    Ok(low) => good.retain(|(key, _)| is_below(key, &low)),
                    Err(_) => unconfirmed.append(&mut good),
                }
            }
            if bad > 0 {
                damage.push(PmError::Corrupt { what: "a Bnode", offset: next });
            }
            if good.len() < bad {
                good.clear();
            } else if let Err(error) = apply_chain(pool, log.as_ref(), &bnode, &mut good) {
                damage.push(error);
            }
            if !good.into_iter().all(|(key, value)| each(key, value)) {
                return Ok(damage);
            }
            next = link.offset();
        }
        let give_unconfirmed = |each: &mut dyn FnMut(K, V) -> bool| {
            unconfirmed.into_iter().all(|(key, value)| each(key, value))
        };
        let Some(foreign) = foreign else {
            give_unconfirmed(each);
            return Ok(damage);
        };
        if Self::salvage_strays(pool, log.as_ref(), &seen, foreign, &mut damage, each)? {
            give_unconfirmed(each);
        }
        Ok(damage)
    }

    /// As [`salvage`](Self::salvage), for live blocks outside of the list; returns `false` if `each` did.
    fn salvage_strays(
        pool: &Arc<Pool<M>>,
        log: Option<&Log<M>>,
        seen: &HashSet<u64>,
        foreign: &dyn Fn(u64) -> bool,
        damage: &mut Vec<PmError>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<bool, IndexError> {
        let blocks = match pool.live_blocks() {
            Ok(blocks) => blocks,
            Err(error) => {
                damage.push(error);
                return Ok(true);
            }
        };
        let bytes = Geometry::<K, V, LEAF>::BYTES;
        let sized = |&&(_, size): &&(u64, u64)| (bytes..bytes * 5 / 4).contains(&size);
        for &(offset, _) in blocks.iter().filter(sized) {
            if seen.contains(&offset) || foreign(offset) {
                continue;
            }
            let bnode = Bnode::<K, V, LEAF>::at(pool, offset)?;
            let (mut good, bad) = read(pool, &bnode);
            if good.len() < 2 || bad > 0 {
                continue;
            }
            let link = bnode.next(pool.pm());
            if link.ghosts() {
                let after = Bnode::<K, V, LEAF>::at(pool, link.offset());
                let low = after.and_then(|after| after.low(pool));
                good.retain(|(key, _)| low.as_ref().is_ok_and(|low| is_below(key, low)));
            }
            if let Err(error) = apply_chain(pool, log, &bnode, &mut good) {
                damage.push(error);
            }
            let what = "the list of Bnodes does not lead to a Bnode";
            damage.push(PmError::Corrupt { what, offset });
            if !good.into_iter().all(|(key, value)| each(key, value)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Applies a Bnode's chain in the log to its records.
fn apply_chain<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    log: Option<&Log<M>>,
    bnode: &Bnode<'_, K, V, LEAF>,
    records: &mut Vec<(K, V)>,
) -> Result<(), PmError> {
    let Some(log) = log else { return Ok(()) };
    let keys = Slot::<K, V>::KEY_WORDS.min(4);
    let mut newest: Vec<(K, Option<V>)> = Vec::new();
    let read = follow(pool.pm(), log, bnode, |_, words, kind| {
        let key = K::from_words(&words[..keys]);
        if !newest.iter().any(|(known, _)| *known == key) {
            let value = || V::from_words(&words[keys..Slot::<K, V>::WORDS]);
            newest.push((key, (kind == Kind::Put).then(value)));
        }
        true
    });
    records.retain(|(key, _)| !newest.iter().any(|(known, _)| known == key));
    records.extend(newest.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))));
    read
}

/// Returns `true` if a key is less than a Bnode's low key.
fn is_below<K: Key>(key: &K, low: &[u8]) -> bool {
    let probe = Probe::of_stored(key);
    Route::to(&probe).encoded::<K>(&mut [0; 32]) < low
}

/// Returns the records with the right tags, and the number of the others; a Bnode with an impossible bitmap or
/// link counts as one other.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    bnode: &Bnode<'_, K, V, LEAF>,
) -> (Vec<(K, V)>, usize) {
    let pm = pool.pm();
    let (taken, pending) = (bnode.taken_without_lost(pm), bnode.pending_slot(pm));
    if !taken.is_valid(LEAF) || !bnode.next(pm).is_valid() {
        return (Vec::new(), 1);
    }
    let is_right = |i: usize, key: &K| {
        let tag = pm.load_word(&bnode.tag_cells()[i / 8]).to_le_bytes()[i % 8];
        pending == Some(i) || tag_of(&Probe::of_stored(key)) == tag
    };
    Slot::<K, V>::salvage(pool, taken.slots(), |i| bnode.slot(i), is_right)
}
