//! Buffers: what recovery must not bring back, and what comes back to the pool.

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};

use crate::SpTree;

type Tree = SpTree<u64, u64, Mapped, 8, 4>;

fn tree() -> (Arc<Pool<Mapped>>, Tree) {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    (pool, tree)
}

fn reopen(pool: &Arc<Pool<Mapped>>, tree: Tree) -> Tree {
    drop(tree);
    Tree::open(pool, "t").expect("intact")
}

#[test]
fn everything_comes_back_when_all_is_deleted_and_closed() {
    let (pool, mut tree) = tree();
    let size = |tree: &Tree| -> u64 {
        let blocks = tree.blocks().expect("sound").into_iter();
        blocks
            .map(|block| pool.block_size(pmindex_core::PPtr::<u64>::new(block)).expect("live"))
            .sum()
    };
    let empty = size(&tree);
    for key in 0..4000u64 {
        tree.insert(&key, &key).expect("room");
    }
    for key in 0..4000u64 {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key));
    }
    tree.close().expect("intact");
    tree = Tree::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), 0);
    assert!(size(&tree) < empty + 1024, "{} bytes, {empty} at first", size(&tree));
}

#[test]
fn a_buffer_is_read_at_once_and_restored() {
    let (pool, tree) = tree();
    for key in 0..100u64 {
        assert!(tree.insert(&key, &key).expect("room"));
    }
    for key in (0..100).step_by(3) {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key));
        assert!(tree.update(&(key + 1), &0).expect("room") == (key + 1 < 100));
    }
    let want = |key: u64| (!key.is_multiple_of(3)).then_some(if key % 3 == 1 { 0 } else { key });
    drop(tree);
    let tree = Tree::open_serving(&pool, "t").expect("intact");
    for key in (0..100).rev() {
        assert_eq!(
            tree.get(&key).expect("intact"),
            want(key),
            "{key}, before the buffers are back"
        );
    }
    while tree.step().expect("intact") {}
    for key in 0..100 {
        assert_eq!(tree.get(&key).expect("intact"), want(key), "{key}");
    }
    assert_eq!(tree.check().expect("sound"), 66);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.len().expect("intact"), 66);
}

#[test]
fn what_went_past_a_buffer_is_not_undone_by_its_chain() {
    let (pool, mut tree) = tree();
    // Full Bnodes: updates go past the buffer; the chain says older things of the same keys.
    for round in 1..6u64 {
        for key in 0..40u64 {
            tree.upsert(&key, &(key * round)).expect("room");
        }
        for key in 0..40u64 {
            assert_eq!(tree.get(&key).expect("intact"), Some(key * round));
        }
        tree = reopen(&pool, tree);
        for key in 0..40u64 {
            assert_eq!(tree.get(&key).expect("intact"), Some(key * round), "round {round}");
        }
    }
    tree.check().expect("sound");
}

#[test]
fn a_bnode_in_reused_memory_has_no_chain() {
    let (pool, mut tree) = tree();
    for round in 0..30u64 {
        for key in 0..60u64 {
            assert!(tree.insert(&(key + round % 7), &round).expect("room"), "{round} {key}");
        }
        tree = reopen(&pool, tree);
        for key in 0..60u64 {
            assert_eq!(tree.remove(&(key + round % 7)).expect("intact"), Some(round));
        }
        if round % 3 == 0 {
            tree = reopen(&pool, tree);
        }
        assert_eq!(tree.check().expect("sound"), 0, "round {round}");
    }
}

#[test]
fn leaves_without_a_buffer_are_written_in_place() {
    let (pool, tree) = tree();
    tree.set_buffer_budget(2 * 384);
    for key in 0..500u64 {
        assert!(tree.insert(&(key * 7919 % 500), &key).expect("room"));
    }
    let buffers = tree.buffering().expect("some").buffers.size().0;
    assert_eq!(buffers, 2);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.check().expect("sound"), 500);
}

#[test]
fn what_is_saved_of_a_damaged_index_is_what_its_log_says() {
    let (pool, tree) = tree();
    for key in 0..100u64 {
        tree.upsert(&key, &key).expect("room");
    }
    for key in (0..100).step_by(3) {
        tree.upsert(&key, &(key + 1000)).expect("room");
        tree.remove(&(key + 1)).expect("intact");
    }
    drop(tree);
    let mut saved = std::collections::BTreeMap::new();
    let damage = Tree::salvage(&pool, "t", None, &mut |key, value| {
        assert_eq!(saved.insert(key, value), None, "{key} twice");
        true
    });
    assert_eq!(damage.expect("an index"), []);
    let tree = Tree::open(&pool, "t").expect("intact");
    let records: Vec<_> = tree.iter().map(|record| record.expect("intact")).collect();
    assert!(records.iter().any(|&(key, value)| key != value), "{records:?}");
    assert_eq!(saved.into_iter().collect::<Vec<_>>(), records);
}
