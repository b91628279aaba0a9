//! Reading the nodes of an index that may be too damaged to be opened.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Salvaged, salvage_leaves};

use crate::layout::{Geometry, LINE_PAIRS, Root, mark, window};
use crate::list::SkipList;
use crate::node::{Node, key_of, value_of};

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Hands every record in nodes that can be told to be nodes to `each`, in no order, until that says
    /// `false`; returns what is wrong. Nothing is opened, recovered or written, so this works where
    /// [`open`](Self::open) fails.
    ///
    /// First the list of nodes, as far as it leads; then, if `foreign` can say of a block whether another
    /// index owns it, all other live blocks that could be nodes. A node is believed if its records have the
    /// marks of their keys: half of them in the list, all of them (two at least) elsewhere. Records whose
    /// marks differ are left out.
    ///
    /// # Cost
    /// Reads every record once, and the allocator's tables.
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
        let nodes = (head, Geometry::<K, V, LINES>::BYTES);
        let read = |offset| Ok(read(pool, &Node::<LINES>::at(pool, offset)?));
        Ok(salvage_leaves(pool, nodes, foreign, &read, each))
    }
}

/// The records with the right marks in places of theirs, and how many there are without; a line whose
/// state makes no sense counts as one without.
fn read<K: Key, V: Value, M: Medium, const LINES: usize>(
    pool: &Pool<M>,
    node: &Node<'_, LINES>,
) -> Salvaged<K, V> {
    let pm = pool.pm();
    let mut bad = (0..LINES).filter(|&line| !node.state(pm, line).is_valid()).count();
    let mut good = Vec::new();
    for entry in node.entries(pm) {
        let key = key_of::<K, V, M>(pool, entry.pair);
        let is_there = window::<LINES>(entry.mark).any(|line| line == entry.place / LINE_PAIRS);
        let right = |key: &K| mark(&Probe::<K>::of_stored(key)) == entry.mark && is_there;
        match (key, value_of::<K, V, M>(pool, entry.pair[1])) {
            (Ok(key), Ok(value)) if right(&key) => good.push((key, value)),
            _ => bad += 1,
        }
    }
    Salvaged { good, bad, next: node.next(pm) }
}
