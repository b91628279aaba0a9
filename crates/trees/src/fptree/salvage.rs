//! Reading the leaves of an index that may be too damaged to be opened.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Redone, Salvaged, salvage_leaves};

use super::layout::{Geometry, Root, Slot};
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
    /// least) elsewhere. Records whose fingerprints differ are left out. A value that was being replaced in place is
    /// what the redo log says.
    ///
    /// # Cost
    /// Reads every leaf once, the redo log, and the allocator's tables.
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
        let index = Self::open_entry(pool, name)?;
        let root = pool.get(index.root::<Root>())?;
        let leaves = (pool.pm().load(&root.head).offset(), Geometry::<K, V, LEAF>::BYTES);
        let has_redo = V::SHAPE.is_bytes() && index.layout == Geometry::<K, V, LEAF>::id();
        let (redone, mut damage) =
            if has_redo { Redone::read(pool, &root.redo) } else { Default::default() };
        let read = |offset| Ok(read(pool, &Leaf::<K, V, LEAF>::at(pool, offset)?, &redone));
        damage.extend(salvage_leaves(pool, leaves, foreign, &read, each));
        Ok(damage)
    }
}

/// Returns the records with the right fingerprints, and how many there are without; a leaf whose state
/// makes no sense counts as one without.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
    redone: &Redone,
) -> Salvaged<K, V> {
    let pm = pool.pm();
    let state = leaf.settled(pm);
    if !state.is_valid(LEAF) {
        return Salvaged { good: Vec::new(), bad: 1, next: leaf.next(pm) };
    }
    let is_right = |i, key: &K| Probe::of_stored(key).fingerprint() == leaf.fingerprint(pm, i);
    let slot = |i| leaf.slot(i);
    let (good, bad) = Slot::<K, V>::salvage_redone(pool, state.slots(), slot, is_right, redone);
    Salvaged { good, bad, next: leaf.next(pm) }
}
