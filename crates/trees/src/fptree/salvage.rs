//! Reading the leaves of an index that may be too damaged to be opened.

use std::collections::HashSet;

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::Probe;

use super::layout::{Geometry, Root, Slot, bits};
use super::leaf::Leaf;
use super::tree::FpTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Hands every record in leaves that can be told to be leaves to `each`, in no order, until that
    /// says `false`; returns what is wrong. Nothing is opened, recovered or written, so this works
    /// where [`open`](Self::open) fails. A record may be given twice: what a split had moved.
    ///
    /// First the list of leaves, as far as it leads; then, if `foreign` can say of a block whether
    /// another index owns it, all other live blocks that could be leaves. A leaf is believed if its
    /// records have the fingerprints of their keys: half of them in the list, all of them (two at
    /// least) elsewhere. Records whose fingerprints differ are left out.
    ///
    /// # Cost
    /// Reads every leaf once, and the allocator's tables.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the root
    /// cannot be read.
    pub fn salvage(
        pool: &Pool<M>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Vec<PmError>, IndexError> {
        let index = Self::listed().open(pool, name)?;
        let head = pool.pm().load(&pool.get(index.root::<Root>())?.head).offset();
        let mut damage = Vec::new();
        let mut seen = HashSet::new();
        let mut next = head;
        while next != 0 && seen.insert(next) {
            let leaf = match Leaf::<K, V, LEAF>::at(pool, next) {
                Ok(leaf) => leaf,
                Err(error) => {
                    damage.push(error);
                    break;
                }
            };
            let (good, bad) = read(pool, &leaf);
            if bad > 0 {
                damage.push(PmError::Corrupt { what: "a leaf", offset: next });
            }
            if good.len() >= bad && !good.into_iter().all(|(key, value)| each(key, value)) {
                return Ok(damage);
            }
            next = leaf.next(pool.pm());
        }
        let Some(foreign) = foreign else { return Ok(damage) };
        let blocks = match pool.live_blocks() {
            Ok(blocks) => blocks,
            Err(error) => {
                damage.push(error);
                return Ok(damage);
            }
        };
        let bytes = Geometry::<K, V, LEAF>::BYTES;
        let sized = |&&(_, size): &&(u64, u64)| (bytes..bytes * 5 / 4).contains(&size);
        for &(offset, _) in blocks.iter().filter(sized) {
            if seen.contains(&offset) || foreign(offset) {
                continue;
            }
            let (good, bad) = read(pool, &Leaf::<K, V, LEAF>::at(pool, offset)?);
            if good.len() < 2 || bad > 0 {
                continue;
            }
            let what = "the list of leaves does not lead to a leaf";
            damage.push(PmError::Corrupt { what, offset });
            if !good.into_iter().all(|(key, value)| each(key, value)) {
                break;
            }
        }
        Ok(damage)
    }
}

/// The records with the right fingerprints, and how many there are without; a leaf whose state
/// makes no sense counts as one without.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> (Vec<(K, V)>, usize) {
    let pm = pool.pm();
    let state = leaf.settled(pm);
    if !state.is_valid(LEAF) {
        return (Vec::new(), 1);
    }
    let (mut good, mut bad) = (Vec::new(), 0);
    for i in bits(state.slots()) {
        let key = Slot::<K, V>::key(pool, leaf.slot(i));
        let right = |key: &K| Probe::of_stored(key).fingerprint() == leaf.fingerprint(pm, i);
        match (key, Slot::<K, V>::value(pool, leaf.slot(i))) {
            (Ok(key), Ok(value)) if right(&key) => good.push((key, value)),
            _ => bad += 1,
        }
    }
    (good, bad)
}
