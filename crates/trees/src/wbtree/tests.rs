//! What goes wrong in other such trees, and does not here: each interrupted step is made by hand, then
//! the index is opened as after a crash. (The crash simulator takes the steps apart further.)

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool, Word};
use pmindex_record::Probe;

use super::layout::{LeafState, MAX_LEAF, Tail};
use super::leaf::Leaf;
use super::separator::Route;
use super::tree::WbTree;

pub(super) type Tree = WbTree<u64, u64, Mapped, 8, 4>;

pub(super) fn tree_of(keys: impl IntoIterator<Item = u64>) -> (Arc<Pool>, Tree) {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let mut tree = Tree::create(&pool, "t").expect("room");
    for key in keys {
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
    }
    (pool, tree)
}

pub(super) fn reopen(pool: &Arc<Pool>, tree: Tree) -> Tree {
    drop(tree); // no close: as if the process had died
    Tree::open(pool, "t").expect("recovery")
}

pub(super) fn assert_holds(pool: &Pool, tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    let wanted: Vec<(u64, u64)> = keys.into_iter().map(|key| (key, key * 10)).collect();
    assert_eq!(tree.len().expect("intact"), wanted.len() as u64);
    assert_eq!(tree.check().expect("intact"), wanted.len() as u64);
    assert_eq!(tree.iter().map(|item| item.expect("intact")).collect::<Vec<_>>(), wanted);
    let mut backwards: Vec<_> = tree.iter().rev().map(|item| item.expect("intact")).collect();
    backwards.reverse();
    assert_eq!(backwards, wanted);
    for (key, value) in wanted {
        assert_eq!(tree.get(&key).expect("intact"), Some(value));
    }
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

fn leaf_of(tree: &Tree, key: u64) -> Leaf<'_, u64, u64, 8> {
    let probe = Probe::<u64>::new(&key).expect("a key");
    tree.descend(&Route::to(&probe), |_| ()).expect("a leaf")
}

/// Returns the words of a leaf's first two lines: state and fingerprints, order.
fn lines(tree: &Tree, leaf: &Leaf<'_, u64, u64, 8>) -> [Vec<u64>; 2] {
    [leaf.line(), leaf.order_line()]
        .map(|line| line.iter().map(|w| tree.pm().load_word(w)).collect())
}

#[test]
fn pitfall_every_slot_of_the_largest_leaf_has_a_bit_beside_the_tag() {
    let all = (1 << MAX_LEAF) - 1;
    let state = LeafState::default().with_slots(all);
    assert_eq!((state.slots(), state.tag()), (all, 0));
    let state = state.with_tag(1);
    assert_eq!((state.slots(), state.tag()), (all, 1));
    assert!(MAX_LEAF <= 63 && state.is_valid(MAX_LEAF));
}

#[test]
fn pitfall_order_that_a_crash_left_behind_or_ahead_of_the_bitmap_is_made_anew() {
    // Before and after an insert, a removal with the insert that follows it, and a removal: whichever
    // of the two lines a crash keeps, the tree holds what the bitmap says.
    for key in (1..40).step_by(2) {
        for removed in [None, Some(key - 1), Some(key + 1)] {
            for keep in 0..4 {
                let (pool, mut tree) = tree_of((0..21).map(|i| i * 2));
                if let Some(removed) = removed.filter(|key| *key <= 40) {
                    assert!(tree.remove(&removed).expect("intact").is_some());
                }
                let offset = leaf_of(&tree, key).offset();
                let before = lines(&tree, &leaf_of(&tree, key));
                assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
                let slots = |word| LeafState::from_word(word).slots().count_ones();
                let leaf = leaf_of(&tree, key);
                if leaf.offset() != offset
                    || slots(tree.pm().load_word(leaf.state_cell())) != slots(before[0][0]) + 1
                {
                    continue; // it was split
                }
                let [line, order] = before;
                let restore = |cells: &[pmindex_core::PmU64], words: &[u64]| {
                    for (cell, word) in cells.iter().zip(words) {
                        tree.pm().store_word(cell, *word);
                    }
                };
                if keep & 1 == 0 {
                    restore(leaf.line(), &line);
                }
                if keep & 2 == 0 {
                    restore(leaf.order_line(), &order);
                }
                let tree = reopen(&pool, tree);
                let there = keep & 1 == 1;
                let held =
                    |n: &u64| (n.is_multiple_of(2) && Some(*n) != removed) || (*n == key && there);
                assert_holds(&pool, &tree, (0..=40).filter(held));
                // The tree can still be used.
                let mut tree = tree;
                tree.put(&key, &(key * 10)).expect("room");
                let held = |n: &u64| (n.is_multiple_of(2) && Some(*n) != removed) || *n == key;
                assert_holds(&pool, &tree, (0..=40).filter(held));
            }
        }
    }
}

#[test]
fn pitfall_order_that_was_half_written_is_that_of_no_state() {
    let (pool, tree) = tree_of((0..21).map(|i| i * 2));
    let leaf = leaf_of(&tree, 20);
    let order = leaf.order_line();
    for garbage in [0, u64::MAX, 0x0707_0707_0707_0707] {
        tree.pm().store_word(&order[7], Tail::INVALID.into_word());
        tree.pm().store_word(&order[0], garbage);
        assert_holds(&pool, &tree, (0..21).map(|i| i * 2));
    }
}

#[test]
fn record_that_did_not_become_durable_is_not_there_though_the_state_names_it() {
    for key in (1..40).step_by(2) {
        let (pool, mut tree) = tree_of((0..21).map(|i| i * 2));
        let slots_before = leaf_of(&tree, key).state(tree.pm()).slots();
        let cells: Vec<u64> =
            leaf_of(&tree, key).slots().iter().map(|w| tree.pm().load_word(w)).collect();
        let offset = leaf_of(&tree, key).offset();
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        let leaf = leaf_of(&tree, key);
        let state = leaf.state(tree.pm()).slots();
        if leaf.offset() != offset || state & slots_before != slots_before {
            continue; // it was split
        }
        // State and order became durable, the slot's line did not.
        for (cell, word) in leaf.slots().iter().zip(cells) {
            tree.pm().store_word(cell, word);
        }
        let mut tree = reopen(&pool, tree);
        assert_holds(&pool, &tree, (0..21).map(|i| i * 2));
        assert!(tree.update(&key, &0).expect("intact").is_err());
        assert_eq!(tree.remove(&key).expect("intact"), None);
        assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        let held = |n: &u64| n.is_multiple_of(2) || *n == key;
        assert_holds(&pool, &tree, (0..=40).filter(held));
    }
}

#[test]
fn opening_after_a_crash_reads_the_root_whatever_the_size() {
    let (pool, tree) = tree_of(0..5000);
    let tree = reopen(&pool, tree);
    let report = tree.recovery_report();
    assert_eq!((report.leaves, report.repaired), (0, 0));
    assert_holds(&pool, &tree, 0..5000);
}

#[test]
fn clean_shutdown_keeps_the_count_and_a_crash_after_it_does_not() {
    let (pool, tree) = tree_of(0..500);
    tree.close().expect("room");
    let mut tree = Tree::open(&pool, "t").expect("intact");
    assert_eq!(tree.recovery_report().records, 500);
    assert!(tree.try_insert(&500, &5000).expect("room").is_ok());
    assert_eq!(tree.len().expect("intact"), 501);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.recovery_report().records, 0, "not counted");
    assert_holds(&pool, &tree, 0..501);
}

#[test]
fn ends_of_a_scan_meet_and_neither_repeats_nor_misses() {
    let (_, tree) = tree_of(0..100);
    let key = |item: Option<Result<(u64, u64), _>>| item.map(|item| item.expect("intact").0);
    for pattern in 1..200u64 {
        let mut scan = tree.range(3..97);
        let (mut front, mut back) = (3, 97);
        for step in 0.. {
            if pattern >> (step % 8) & 1 == 0 {
                let wanted = (front < back).then_some(front);
                assert_eq!(key(scan.next()), wanted);
                front += 1;
            } else {
                back -= 1;
                assert_eq!(key(scan.next_back()), (front <= back).then_some(back));
            }
            if front >= back {
                break;
            }
        }
        assert!(scan.next().is_none() && scan.next_back().is_none());
    }
}

#[test]
fn leaves_that_give_to_their_neighbours_are_three_quarters_full() {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let mut tree = WbTree::<u64, u64>::create(&pool, "t").expect("room");
    let keys = 1..=60_000_u64;
    for key in keys.clone() {
        let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(tree.try_insert(&key, &!key).expect("room").is_ok());
    }
    let stats = tree.stats().expect("intact");
    assert_eq!(tree.check().expect("intact"), 60_000);
    assert!(100 * stats.records >= 72 * 52 * stats.leaves, "{stats:?}");
    for key in keys {
        let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert_eq!(tree.get(&key).expect("intact"), Some(!key));
    }
}

type Wide = WbTree<u64, u128, Mapped, 8, 4>;

/// Values that differ in both words.
fn wide(n: u64) -> u128 {
    u128::from(n) << 64 | u128::from(!n)
}

fn wide_tree_of(keys: impl IntoIterator<Item = u64>) -> (Arc<Pool>, Wide) {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let mut tree = Wide::create(&pool, "t").expect("room");
    for key in keys {
        assert!(tree.try_insert(&key, &wide(key)).expect("room").is_ok());
    }
    (pool, tree)
}

#[test]
fn the_last_two_updates_of_values_of_two_words_are_redone_where_they_are_not_in_place() {
    for lost in [[true, true], [true, false], [false, true]] {
        let (pool, mut tree) = wide_tree_of(0..6);
        for key in [1, 3, 5] {
            assert!(tree.update(&key, &wide(key + 100)).expect("intact").is_ok());
        }
        for (key, lost) in [(3, lost[0]), (5, lost[1])] {
            let probe = Probe::<u64>::new(&key).expect("a key");
            let leaf = tree.descend(&Route::to(&probe), |_| ()).expect("a leaf");
            let state = leaf.state(tree.pm());
            let slot = leaf.find(&pool, state, &probe).expect("intact").expect("there");
            // Torn, at that: of the two words one.
            if lost {
                tree.pm().store_word(&leaf.slot(slot)[1], 7);
            }
        }
        drop(tree);
        let mut tree = Wide::open(&pool, "t").expect("recovery");
        for key in [1, 3, 5] {
            assert_eq!(tree.get(&key).expect("intact"), Some(wide(key + 100)));
        }
        // The tree can still be used: the redo is complete.
        assert!(tree.update(&3, &wide(8)).expect("intact").is_ok());
        drop(tree);
        let tree = Wide::open(&pool, "t").expect("recovery");
        assert_eq!(tree.get(&3).expect("intact"), Some(wide(8)));
        assert_eq!(tree.get(&5).expect("intact"), Some(wide(105)));
    }
}

#[test]
fn redo_log_never_reaches_a_slot_that_has_another_record_by_then() {
    // A full leaf: the next insert takes the only free slot, or moves the others.
    for removed in 0..8 {
        for updates in 1..4 {
            let (pool, mut tree) = wide_tree_of(0..8);
            for key in (0..updates).map(|n| (removed + n) % 8).rev() {
                assert!(tree.update(&key, &wide(key + 100)).expect("intact").is_ok());
            }
            assert!(tree.remove(&removed).expect("intact").is_some());
            assert!(tree.try_insert(&20, &wide(20)).expect("room").is_ok());
            drop(tree);
            let tree = Wide::open(&pool, "t").expect("recovery");
            assert_eq!(tree.get(&20).expect("intact"), Some(wide(20)));
            assert_eq!(tree.check().expect("intact"), 8);
        }
    }
    for updated in 0..8 {
        let (pool, mut tree) = wide_tree_of(0..8);
        assert!(tree.update(&updated, &wide(100)).expect("intact").is_ok());
        for key in 8..30 {
            assert!(tree.try_insert(&key, &wide(key)).expect("room").is_ok());
        }
        for key in (0..100).map(|n| 1000 - n) {
            assert!(tree.try_insert(&key, &wide(key)).expect("room").is_ok());
        }
        drop(tree);
        let tree = Wide::open(&pool, "t").expect("recovery");
        for key in (0..30).chain(901..=1000) {
            let wanted = if key == updated { wide(100) } else { wide(key) };
            assert_eq!(tree.get(&key).expect("intact"), Some(wanted), "{key}");
        }
    }
}

#[test]
fn an_index_of_empty_leaves_is_loaded() {
    let (pool, mut tree) = tree_of(0..40);
    assert!(tree.top().expect("intact").level() > 1, "of three levels");
    // As a crash leaves it, each time between a removal and the end of its leaf.
    for key in 0..40 {
        let probe = Probe::<u64>::new(&key).expect("a key");
        let found = tree.seek_to_change(&probe).expect("intact");
        found.remove(&pool, found.slot.expect("there")).expect("emulated");
    }
    tree.count(0u64.wrapping_sub(40));
    assert_eq!(tree.bulk_load(&mut (0..30).map(|key| (key, key * 10))), Ok(30));
    assert_holds(&pool, &tree, 0..30);
    assert_eq!(pool.damage(), None);
    assert!(tree.try_insert(&99, &990).expect("room").is_ok());
    let tree = reopen(&pool, tree);
    assert_holds(&pool, &tree, (0..30).chain([99]));
}

#[test]
fn a_node_at_the_end_of_all_addresses_is_prefetched_without_a_panic() {
    let (pool, tree) = tree_of(0..9);
    let last = !63;
    tree.prefetch_leaf(last);
    tree.prefetch_slot(last, &Probe::<u64>::new(&5).expect("a key"));
    super::inner::Inner::<u64, u64, 8, 4>::prefetch(&pool, last);
}
