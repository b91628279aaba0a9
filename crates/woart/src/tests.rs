//! Damaged files: what reads all of a tree ends.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::IndexError;
use pmindex_record::RecordBlock;

use crate::Woart;
use crate::layout::{Child, Kind};

type Tree = Woart<Vec<u8>, u64, Mapped>;

fn is_corrupt<T>(result: &Result<T, IndexError>) -> bool {
    matches!(result, Err(IndexError::Pool(PmError::Corrupt { .. })))
}

/// A leaf is not where its key leads: what discards an interrupted load never gets rid of it.
#[test]
fn a_leaf_in_a_wrong_place_does_not_keep_an_opening_from_its_end() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let index = Tree::create(&pool, "t").expect("room");
    for key in [b"a1", b"b1", b"c1"] {
        index.try_insert(key.as_slice(), &1).expect("room").expect("new");
    }
    let mut leaves = Vec::new();
    let node = index.tree.top_cell().expect("sound");
    let top = crate::node::Node::at(&pool, Child(pool.pm().load(node))).expect("sound");
    leaves.extend(top.branches(pool.pm()).into_iter().map(|(_, leaf)| leaf.offset()));
    let wrong = RecordBlock::write(&pool, PPtr::<PmU64>::new(leaves[0]), b"z1", &[1; 8]);
    pool.pm().fence(wrong.expect("bounds")).expect("memory");
    pool.pm().store(&index.root().expect("sound").bulk_load, 1);
    drop(index);
    assert!(is_corrupt(&Tree::open(&pool, "t")));
}

/// Nodes all of whose children are one node: as many paths as there are keys of so many bytes.
#[test]
fn a_walk_of_what_is_no_tree_ends() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let index = Tree::create(&pool, "t").expect("room");
    index.try_insert(b"leaf".as_slice(), &1).expect("room").expect("new");
    let (pm, top) = (pool.pm(), index.tree.top_cell().expect("sound"));
    let mut below = pm.load(top);
    let mut op = pool.op().expect("free");
    for depth in (0..8).rev() {
        let words = Kind::N256.words();
        let block = op.reserve_bytes(8 * words as u64, 64).expect("room");
        let offset = block.ptr().offset();
        let cells = pool.words(offset, words).expect("bounds");
        pm.store(&cells[0], depth);
        for cell in &cells[1..Kind::N256.children() + 256] {
            pm.store(cell, below);
        }
        below = Child::node(offset, Kind::N256, depth as usize).0;
    }
    pm.store(top, below);
    assert!(is_corrupt(&index.blocks()));
    assert!(is_corrupt(&index.stats()));
    assert!(is_corrupt(&index.check()));
}
