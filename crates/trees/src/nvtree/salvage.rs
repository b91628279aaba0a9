//! Reading the leaves of an index that may be too damaged to be opened.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Salvaged, Slot, bits, salvage_leaves};

use super::layout::{Geometry, Root};
use super::leaf::Leaf;
use super::tree::NvTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Hands every record in leaves that can be told to be leaves to `each`, in no order, until that
    /// says `false`; returns what is wrong. Nothing is opened, recovered or written, so this works
    /// where [`open`](Self::open) fails. A record may be given twice: what a split had moved.
    ///
    /// First the list of leaves, as far as it leads; then, if `foreign` can say of a block whether
    /// another index owns it, all other live blocks that could be leaves. A leaf is believed if its
    /// records have the fingerprints of their keys: half of them in the list, all of them (two at
    /// least) elsewhere. Records whose fingerprints differ are left out. (Where the header line is
    /// damaged there is none to compare with: such a leaf is believed if the list leads to it.)
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
        let index = Self::index_format().open(pool, name)?;
        let head = pool.pm().load(&pool.get(index.root::<Root>())?.head).offset();
        let leaves = (head, Geometry::<K, V, LEAF>::BYTES);
        let read = |offset| Ok(read(pool, &Leaf::<K, V, LEAF>::at(pool, offset)?));
        Ok(salvage_leaves(pool, leaves, foreign, &read, each))
    }
}

/// Returns the live records, and how many there are that do not have the fingerprints of their keys; a leaf
/// whose hint makes no sense counts as one more. Which are live the counters say, not the hint; a
/// record that the hint does not know yet may have no fingerprint.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> Salvaged<K, V> {
    let pm = pool.pm();
    let hint = leaf.hint(pm);
    let known = if hint.is_valid(LEAF) { hint.count() } else { 0 };
    let (mut good, mut bad) = (Vec::new(), usize::from(!hint.is_valid(LEAF)));
    for i in bits(newest(leaf, pm)) {
        let key = Slot::<K, V>::key(pool, leaf.slot(i));
        let right =
            |key: &K| i >= known || Probe::of_stored(key).fingerprint() == leaf.fingerprint(pm, i);
        match (key, Slot::<K, V>::value(pool, leaf.slot(i))) {
            (Ok(key), Ok(value)) if right(&key) => good.push((key, value)),
            _ => bad += 1,
        }
    }
    Salvaged { good, bad, next: leaf.next(pm) }
}

/// Returns the slots that the counters call live, whatever else they say.
fn newest<K: Key, V: Value, const LEAF: usize>(
    leaf: &Leaf<'_, K, V, LEAF>,
    pm: &impl Medium,
) -> u64 {
    let (mut live, mut gone) = (0u64, 0u64);
    for i in (0..LEAF).rev() {
        let mark = leaf.mark(pm, i);
        if mark.is_used() {
            gone |= mark.victim().map_or(0, |victim| 1 << victim);
            live |= u64::from(!mark.is_negative() && gone >> i & 1 == 0) << i;
        }
    }
    live
}
