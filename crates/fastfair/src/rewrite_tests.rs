//! Leaves written anew, where there is room for them and not for the inner nodes that lead to them.

use std::collections::BTreeSet;

use pmindex_core::Medium;

use super::entry::Sought;
use super::inner::Separator;
use super::tests::{Tree, assert_holds, reopen, tree_of};

/// Whether some leaf is to be looked at again.
fn is_doubtful(tree: &Tree) -> bool {
    let mut doubtful = false;
    let walked = tree.walk(|leaf, _| {
        doubtful |= !leaf.state(tree.pm()).is_of(tree.era);
        Ok(())
    });
    walked.expect("intact");
    doubtful
}

/// The mark of a clean shutdown says that every leaf is as whole as it says in the medium.
#[test]
fn a_leaf_whose_follower_no_parent_knows_is_looked_at_again_after_a_clean_shutdown() {
    let mut doubts = 0;
    for (from, left) in (100..900).step_by(50).flat_map(|from| (0..6).map(move |left| (from, left)))
    {
        let (pool, tree) = tree_of((0..60).map(|n| n * 16));
        let mut keys: BTreeSet<u64> = (0..60).map(|n| n * 16).collect();
        let records: Vec<(u64, u64)> = (from..from + 12).map(|key| (key, key / 4)).collect();
        pool.fail_allocation_after(Some(left));
        let done = tree.try_insert_many_anew(&records);
        pool.fail_allocation_after(None);
        for ((key, _), inserted) in records.iter().zip(&done.inserted) {
            assert_eq!(*inserted, keys.insert(*key));
        }
        for key in &keys {
            assert_eq!(tree.get(key).expect("intact"), Some(key / 4));
        }
        let doubtful = is_doubtful(&tree);
        doubts += u64::from(doubtful);
        let root = tree.entry.root();
        tree.close().expect("room");
        let root: &super::layout::Root = pool.get(root).expect("a root");
        assert_ne!(pool.pm().load(&root.closed), 0, "from {from}, {left} allocations");
        let tree = Tree::open(&pool, "t").expect("intact");
        assert_eq!(is_doubtful(&tree), doubtful, "from {from}, {left} allocations");
        assert_holds(&tree, keys.iter().copied());
        for (key, _) in records.iter().filter(|(key, _)| !keys.contains(key)) {
            assert!(tree.try_insert(key, &(key / 4)).expect("room").is_ok());
        }
        keys.extend(from..from + 12);
        assert_holds(&tree, keys);
    }
    assert!(doubts > 0, "no leaf without one that leads to it");
}

/// The parent of a hidden leaf splits between the two words that lead to its left neighbour.
#[test]
fn pitfall_a_hidden_leaf_that_became_the_first_child_of_a_node_stays_hidden() {
    for crashed in [false, true] {
        let mut hidden = 0;
        for at in 1..20 {
            let (pool, mut tree) = tree_of((0..60).map(|n| n * 16));
            let mut keys: BTreeSet<u64> = (0..60).map(|n| n * 16).collect();
            let leaves = tree.known_leaves().expect("a tree");
            let Some(&[(_, left), (Some(Separator { word: low, .. }), leaf)]) =
                leaves.get(at - 1..=at)
            else {
                break;
            };
            let from = leaves[at - 1].0.map_or(0, |separator| separator.word);
            let to = leaves.get(at + 1).and_then(|(low, _)| *low).map_or(u64::MAX, |low| low.word);
            if tree.hide(&Sought::of_word(low), left, leaf).expect("a tree").is_none() {
                continue;
            }
            hidden += 1;
            // Others' leaves split, and their parents.
            for key in (0..960).filter(|key| *key <= from || *key > to) {
                let new = tree.try_insert(&key, &(key / 4)).expect("room").is_ok();
                assert_eq!(new, keys.insert(key));
            }
            if crashed {
                tree = reopen(&pool, tree);
            }
            let separator = Separator { word: low, block: 0 };
            tree.make_known(&Sought::of_word(low), separator, leaf, &[]).expect("room");
            assert_holds(&tree, keys.iter().copied());
            for key in 0..960 {
                let new = tree.try_insert(&key, &(key / 4)).expect("room").is_ok();
                assert_eq!(new, keys.insert(key));
            }
            assert_holds(&tree, keys);
            let known = tree.known_leaves().expect("a tree").len() as u64;
            assert_eq!(known, tree.stats().expect("intact").leaves, "a child twice");
        }
        assert!(hidden > 2, "{hidden} hidden");
    }
}
