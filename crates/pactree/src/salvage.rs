//! Reading the nodes of an index that may be too damaged to be opened.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Salvaged, salvage_leaves};

use crate::layout::{Geometry, Root, Slot};
use crate::node::Node;
use crate::tree::PacTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    /// Passes every record in recognizable nodes to `each`, in no order, until that says
    /// `false`; returns what is wrong. Nothing is opened, recovered or written, so this works where
    /// [`open`](Self::open) fails. A record may be given twice: what a split or a merge had moved.
    ///
    /// First the list of nodes, as far as it leads; then, if `foreign` can say of a block whether another
    /// index owns it, all other live blocks that could be nodes. A node is believed if its records have the
    /// fingerprints of their keys: half of them in the list, all of them (two at least) elsewhere. Records
    /// whose fingerprints differ are left out.
    ///
    /// # Cost
    /// Reads every node once, and the allocator's tables.
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
        let nodes = (head, Geometry::<K, V, LEAF>::BYTES);
        let read = |offset| Ok(read(pool, &Node::<K, V, LEAF>::at(pool, offset)?));
        Ok(salvage_leaves(pool, nodes, foreign, &read, each))
    }
}

/// Returns the records with the right fingerprints, and the number of those without; a node whose bitmap makes no
/// sense counts as one without.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    node: &Node<'_, K, V, LEAF>,
) -> Salvaged<K, V> {
    let pm = pool.pm();
    let (bitmap, next) = (node.bitmap(pm), node.next(pm).offset());
    if bitmap & !Geometry::<K, V, LEAF>::ALL != 0 {
        return Salvaged { good: Vec::new(), bad: 1, next };
    }
    let is_right = |i, key: &K| Probe::of_stored(key).fingerprint() == node.fingerprint(pm, i);
    let (good, bad) = Slot::<K, V>::salvage(pool, bitmap, |i| node.slot(i), is_right);
    Salvaged { good, bad, next }
}
