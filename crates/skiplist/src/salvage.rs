//! Reads the nodes of an index that may be too damaged to open.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Salvaged, salvage_leaves};

use crate::layout::{Geometry, LINE_PAIRS, Root, mark, window};
use crate::list::SkipList;
use crate::node::{Node, key_of, value_of};

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Passes every record in recognizable nodes to `each`, in no order, until it returns `false`; returns
    /// the damage. Nothing is opened, recovered or written, so this works where [`open`](Self::open) fails.
    ///
    /// First reads the list of nodes, as far as it leads; then, if `foreign` can tell whether another index
    /// owns a block, all other live blocks that could be nodes. A node is accepted if its records have the
    /// marks of their keys: half of them in the list, all of them (at least two) elsewhere. Records with
    /// other marks are skipped.
    ///
    /// # Cost
    /// Reads every record once, and the allocator's tables.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; an unreadable
    /// root.
    pub fn salvage(
        pool: &Pool<M>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Vec<PmError>, IndexError> {
        let index = Self::index_format().open(pool, name)?;
        let head = pool.pm().load(&pool.get(index.root::<Root>())?.head).offset();
        let nodes = (head, Geometry::<K, V, LINES>::BYTES);
        let read = |offset| Ok(read(pool, &Node::<LINES>::at(pool, offset)?));
        Ok(salvage_leaves(pool, nodes, foreign, &read, each))
    }
}

/// Returns the records with the right marks in one of their places, and the number of others; a line with an
/// invalid state counts as one of these.
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
