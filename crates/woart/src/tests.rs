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

/// A byte of a node is wrong, perhaps the place of a child: keys that lead to a leaf of another one are not added
/// there, and an insert ends.
#[test]
fn a_child_in_a_wrong_place_does_not_keep_an_insert_from_its_end() {
    let tree = |keys: u8| {
        let pool = Arc::new(Pool::emulated(256 << 10).expect("memory"));
        let index = Tree::create(&pool, "t").expect("room");
        for key in 0..keys {
            assert!(index.put(&[b'k', key * 4], &1).expect("room"));
        }
        (pool, index)
    };
    for (keys, every) in [(3, 1), (10, 1), (20, 1), (60, 7)] {
        let mut refused = 0;
        let mut bytes = 0..64;
        while let Some(at) = bytes.next() {
            for value in [0, 1, 2, 5, 17, 49] {
                let (pool, index) = tree(keys);
                let pm = pool.pm();
                let top = Child(pm.load(index.tree.top_cell().expect("sound")));
                let words = top.kind().expect("a node").words();
                bytes.end = 8 * words;
                let word = &pool.words(top.offset(), words).expect("bounds")[at / 8];
                let shift = at % 8 * 8;
                pm.store(word, pm.load(word) & !(0xff << shift) | value << shift);
                let puts = (0..keys).map(|key| index.put(&[b'k', key * 4], &2));
                refused += u64::from(puts.fold(false, |refused, put| refused | put.is_err()));
            }
            bytes.start = (at + every).min(bytes.end);
        }
        assert!(refused > 0, "{keys} keys");
    }
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
