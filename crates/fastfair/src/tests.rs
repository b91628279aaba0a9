//! What goes wrong in other such trees, and does not here: each interrupted step is made by hand,
//! then the index is opened as after a crash. (The crash simulator takes the steps apart further.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::IndexError;

use super::entry::Sought;
use super::leaf::Leaf;
use super::shift::place;
use super::tree::FastFair;

pub(super) type Tree = FastFair<u64, u64, Mapped, 8, 4>;

pub(super) fn tree_of(keys: impl IntoIterator<Item = u64>) -> (Arc<Pool>, Tree) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    for key in keys {
        assert!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok());
    }
    (pool, tree)
}

pub(super) fn reopen(pool: &Arc<Pool>, tree: Tree) -> Tree {
    drop(tree); // no close: as if the process had died
    Tree::open(pool, "t").expect("recovery")
}

pub(super) fn assert_holds(tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    let wanted: Vec<(u64, u64)> = keys.into_iter().map(|key| (key, key / 4)).collect();
    assert_eq!(tree.check().expect("intact"), wanted.len() as u64);
    assert_eq!(tree.iter().map(|item| item.expect("intact")).collect::<Vec<_>>(), wanted);
    let mut backwards: Vec<_> = tree.iter().rev().map(|item| item.expect("intact")).collect();
    backwards.reverse();
    assert_eq!(backwards, wanted);
    for (key, value) in wanted {
        assert_eq!(tree.get(&key).expect("intact"), Some(value));
    }
}

fn head(tree: &Tree) -> Leaf<'_, u64, u64, 8> {
    let root = tree.root().expect("a root");
    tree.leaf(tree.pm().load(&root.head).offset()).expect("a leaf")
}

/// P1 and P2 of the first leaf's split, and P3 if wanted; never P4.
fn half_split(tree: &Tree, drop_ids: bool) {
    let left = head(tree);
    let image = left.image(tree.pm());
    let records: Vec<usize> = image.records(8).collect();
    let (kept, moved) = records.split_at(records.len() / 2);
    tree.link_right(&left, &image, kept[kept.len() - 1], moved).expect("room");
    if drop_ids {
        for &i in moved {
            tree.pm().store_word(left.id_cell(i), 0);
        }
    }
}

#[test]
fn pitfall_sibling_that_no_parent_knows_is_found_and_made_known() {
    for drop_ids in [false, true] {
        let (pool, tree) = tree_of((0..40).map(|i| i * 2));
        half_split(&tree, drop_ids);
        let tree = reopen(&pool, tree);
        assert_holds(&tree, (0..40).map(|i| i * 2)); // readers alone
        pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        for key in (0..40).map(|i| i * 2 + 1) {
            assert!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok());
            assert!(tree.try_insert(&(key - 1), &0).expect("room").is_err(), "a second copy");
        }
        assert_holds(&tree, 0..80);
        let known = tree.known_leaves().expect("a tree").len() as u64;
        assert_eq!(known, tree.stats().expect("intact").leaves, "a leaf no parent knows");
        pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    }
}

/// A leaf splits while the leaf behind it is one that no inner node knows, since there was no room to make it known:
/// that one is then behind the new leaf, where writers look for it.
#[test]
fn pitfall_a_split_hides_a_sibling_that_no_parent_knows() {
    for splits in [2, 3] {
        let (pool, mut tree) = tree_of(0..8);
        for split in 0..splits {
            if split == 1 || splits == 3 {
                tree = reopen(&pool, tree);
            }
            half_split(&tree, true);
            tree.doubt(&head(&tree)); // the split did not come to its end
        }
        assert_holds(&tree, 0..8);
        assert!(tree.update(&0, &0).expect("room").is_ok(), "the writer that repairs");
        assert_holds(&tree, 0..8);
        for key in 0..8 {
            assert!(tree.update(&key, &(key / 4)).expect("room").is_ok(), "{key} of {splits}");
            assert!(tree.try_insert(&key, &0).expect("room").is_err(), "a second copy");
        }
        assert_holds(&tree, 0..8);
        let known = tree.known_leaves().expect("a tree").len() as u64;
        assert_eq!(known, tree.stats().expect("intact").leaves, "a leaf no parent knows");
        pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        assert_holds(&reopen(&pool, tree), 0..8);
    }
}

#[test]
fn pitfall_moved_records_do_not_return_when_their_new_leaf_goes() {
    let (pool, tree) = tree_of(0..8);
    half_split(&tree, false); // the old leaf still has copies of what has moved
    let tree = reopen(&pool, tree);
    for key in 4..8 {
        assert_eq!(tree.remove(&key).expect("room"), Some(key / 4));
    }
    // The new leaf is empty and gone, the old one's range is wide again.
    assert_eq!(tree.stats().expect("intact").leaves, 1);
    assert_holds(&tree, 0..4);
    let tree = reopen(&pool, tree);
    assert_holds(&tree, 0..4);
}

#[test]
fn pitfall_transient_duplicates_do_not_survive_a_delete() {
    // Every prefix of the shift that inserts 35, the last one excepted, then every delete.
    let keys = [10u64, 20, 30, 40, 50, 60];
    let mut prefix = 0;
    loop {
        let mut stores_in_all = 0;
        for victim in keys {
            let (pool, tree) = tree_of(keys);
            let leaf = head(&tree);
            let mut image = leaf.image(tree.pm());
            let gap = tree.gap(&image, &Sought::of_word(35)).expect("intact");
            let mut stores = Vec::new();
            place(&mut image, 8, gap, [35, 777], |at, word| stores.push((at, word)));
            stores_in_all = stores.len();
            for &(at, word) in &stores[..prefix] {
                tree.pm().store(&leaf.words()[at], word);
            }
            let tree = reopen(&pool, tree);
            assert_holds(&tree, keys);
            assert_eq!(tree.remove(&victim).expect("room"), Some(victim / 4));
            assert_holds(&tree, keys.into_iter().filter(|key| *key != victim));
            let tree = reopen(&pool, tree);
            assert_holds(&tree, keys.into_iter().filter(|key| *key != victim));
        }
        prefix += 1;
        if prefix == stores_in_all {
            return;
        }
    }
}

#[test]
fn pitfall_delete_that_ignores_duplicates_would_bring_the_record_back() {
    // The faulty order: a leaf that passes for whole though a shift was interrupted in it.
    let (pool, tree) = tree_of([10, 20, 30]);
    let leaf = head(&tree);
    let image = leaf.image(tree.pm());
    let last = image.records(8).last().expect("a record");
    let [id, other] = image.entry(last);
    tree.pm().store(leaf.other_cell(last + 1), other);
    tree.pm().store(leaf.id_cell(last + 1), id);
    assert_eq!(tree.remove(&30).expect("room"), Some(7));
    assert_eq!(tree.get(&30).expect("intact"), Some(7), "the duplicate came to life");
    // The same interruption, found by its era.
    tree.pm().store(leaf.id_cell(last), id);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.remove(&30).expect("room"), Some(7));
    assert_eq!(tree.get(&30).expect("intact"), None);
}

#[test]
fn pitfall_root_split_interrupted_before_the_new_root_loses_nothing() {
    let (pool, tree) = tree_of(0..8);
    assert_eq!(tree.top().expect("a tree").level(), 0, "one leaf");
    half_split(&tree, true); // the new root is not there
    let tree = reopen(&pool, tree);
    assert_eq!(tree.top().expect("a tree").level(), 0);
    assert_holds(&tree, 0..8);
    assert!(tree.try_insert(&100, &25).expect("room").is_ok());
    assert!(tree.update(&0, &0).expect("room").is_ok(), "the writer that repairs");
    assert_eq!(tree.top().expect("a tree").level(), 1);
    assert_holds(&tree, (0..8).chain([100]));
}

#[test]
fn pitfall_zero_and_equal_adjacent_values_and_the_key_zero() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    for key in [5u64, 0, u64::MAX, 1, 7, 6, 3] {
        assert!(tree.try_insert(&key, &0).expect("room").is_ok());
    }
    assert_eq!(tree.get(&0).expect("intact"), Some(0));
    assert_eq!(tree.remove(&0).expect("room"), Some(0));
    assert_eq!(tree.get(&0).expect("intact"), None);
    assert_eq!(tree.remove(&6).expect("room"), Some(0));
    assert!(tree.try_insert(&0, &0).expect("room").is_ok());
    let tree = reopen(&pool, tree);
    let keys: Vec<u64> = tree.iter().map(|item| item.expect("intact").0).collect();
    assert_eq!(keys, [0, 1, 3, 5, 7, u64::MAX]);
    assert_eq!(tree.check().expect("intact"), 6);
}

#[test]
fn pitfall_locks_of_a_dead_process_are_void() {
    let (pool, tree) = tree_of(0..20);
    {
        let held = tree.hold(&Sought::of_word(3), |_| true).expect("intact").expect("wanted");
        std::mem::forget(held.change); // its process dies with it
    }
    let tree = reopen(&pool, tree);
    assert!(tree.update(&3, &0).expect("no lock is held").is_ok());
    assert_holds(&tree, 0..20);
}

#[test]
fn pitfall_reader_waits_for_what_a_crash_could_take_back() {
    let (_pool, tree) = tree_of(0..20);
    let held = tree.hold(&Sought::of_word(7), |_| true).expect("intact").expect("wanted");
    let cell = held.leaf.other_cell(held.found.expect("present").0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The new value is visible and not durable; then it is as if it had never been.
        tree.pm().store(cell, 666);
        let reader = scope.spawn(|| {
            let value = tree.get(&7);
            done.store(true, Ordering::Release);
            value
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!done.load(Ordering::Acquire), "a reader that did not wait");
        tree.pm().store(cell, 1);
        held.change.done();
        assert_eq!(reader.join().expect("no panic").expect("intact"), Some(1));
    });
}

#[test]
fn clean_shutdown_keeps_the_era_and_a_crash_does_not() {
    let (pool, tree) = tree_of(0..500);
    let era = tree.era;
    tree.close().expect("room");
    let tree = Tree::open(&pool, "t").expect("intact");
    assert_eq!((tree.era, tree.recovery_report().records), (era, 500));
    assert_holds(&tree, 0..500);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.era, era + 1);
    assert!(!head(&tree).state(tree.pm()).is_of(tree.era), "a leaf of an earlier era");
    assert_holds(&tree, 0..500);
}

#[test]
fn damaged_child_words_are_errors() {
    let (pool, tree) = tree_of(0..500);
    let top = tree.top().expect("a tree");
    let cells: Vec<_> = tree.child_cells(top).expect("a node").collect();
    for word in [
        0,
        u64::MAX,
        super::layout::Child::new(top.offset(), 9).0,
        pool.len() & !63 | (top.level() - 1),
    ] {
        let old = tree.pm().load(cells[0]);
        tree.pm().store(cells[0], word);
        assert!(tree.get(&0).is_err(), "{word:#x}");
        assert!(tree.check().is_err(), "{word:#x}");
        tree.pm().store(cells[0], old);
    }
    assert_holds(&tree, 0..500);
}

/// A leaf of an era to come: it, or the root's era, by which leaves pass for whole, is damaged.
#[test]
fn eras_that_contradict_each_other_are_damage() {
    let (pool, tree) = tree_of(0..20);
    let tree = reopen(&pool, tree); // of era 2 or more
    assert!(tree.try_insert(&100, &25).expect("room").is_ok());
    let damaged = |found: Result<Option<u64>, IndexError>| {
        assert!(matches!(found, Err(IndexError::Pool(PmError::Corrupt { .. }))), "{found:?}");
        assert!(pool.damage().is_some());
    };
    assert_eq!(pool.damage(), None);
    tree.pm().store(&tree.root().expect("a root").era, 0);
    let tree = reopen(&pool, tree); // of era 1
    damaged(tree.get(&100));
    assert!(tree.try_insert(&101, &25).is_err());
}

/// The word beside a record's block is the beginning of its key: searches go by it, scans do not.
#[test]
fn a_prefix_that_is_not_its_keys_is_damage() {
    type Texts = FastFair<Vec<u8>, Vec<u8>, Mapped, 8, 4>;
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Texts::create(&pool, "t").expect("room");
    assert!(tree.try_insert(b"a key that is long", b"a value").expect("room").is_ok());
    assert_eq!(tree.check(), Ok(1));
    let head = tree.pm().load(&tree.root().expect("a root").head).offset();
    let leaf = tree.leaf(head).expect("a leaf");
    let entries = leaf.image(tree.pm());
    let i = entries.records(8).next().expect("a record");
    tree.pm().store_word(leaf.other_cell(i), entries.entry(i)[1] + 1);
    assert!(tree.iter().any(|item| item.is_err()));
    assert!(tree.check().is_err() && pool.damage().is_some());
}

/// The copy of the inner nodes follows splits, merges, a lower and a higher tree, a load and a load that is refused; and
/// searches read it.
#[test]
fn the_copy_in_dram_is_what_searches_read_and_follows_every_change() {
    let (pool, tree) = tree_of((0..300).map(|n| n * 7 % 600));
    let tree = reopen(&pool, tree).cached().expect("a tree");
    let mut keys: std::collections::BTreeSet<u64> = (0..300).map(|n| n * 7 % 600).collect();
    let hold = |keys: &std::collections::BTreeSet<u64>| assert_holds(&tree, keys.iter().copied());
    hold(&keys);
    for n in 0..1_600u64 {
        // Grows, shrinks to nothing, and grows again.
        let key = n * 389 % 600;
        if (600..1_200).contains(&n) {
            assert_eq!(tree.remove(&key).expect("room").is_some(), keys.remove(&key));
        } else {
            assert_eq!(tree.try_insert(&key, &(key / 4)).expect("room").is_ok(), keys.insert(key));
        }
        if n % 100 == 0 {
            hold(&keys);
        }
    }
    assert!(tree.top().expect("a tree").level() >= 2);
    hold(&keys);
    // Without the inner nodes in PM, a search that read them would come to the first leaf.
    let top = tree.pm().load(&tree.root().expect("a root").top);
    tree.pm().store(&tree.root().expect("a root").top, 0);
    assert!(keys.iter().all(|key| tree.get(key).expect("intact") == Some(key / 4)));
    tree.pm().store(&tree.root().expect("a root").top, top);
    for key in std::mem::take(&mut keys) {
        assert!(tree.remove(&key).expect("room").is_some());
    }
    let refused = tree.bulk_load(&mut [(1, 0), (2, 0), (3, 0), (2, 0)].into_iter());
    assert!(matches!(refused, Err(IndexError::NotSorted { .. })), "{refused:?}");
    hold(&keys);
    assert_eq!(tree.bulk_load(&mut (0..400).map(|key| (key, key / 4))).expect("room"), 400);
    hold(&(0..400).collect());
}

/// While a bulk load looks at the second leaf of an empty index, another thread gives it back, and its memory is used for
/// something else: that is no low, and no damage.
#[test]
fn a_load_reads_no_low_of_a_leaf_that_is_gone() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = FastFair::<Vec<u8>, u64, Mapped, 8, 4>::create(&pool, "t").expect("room");
    let key = |n: u64| n.to_be_bytes().to_vec();
    for n in 0..9 {
        assert!(tree.try_insert(&key(n), &n).expect("room").is_ok());
    }
    for n in 0..8 {
        assert_eq!(tree.remove(&key(n)).expect("intact"), Some(n));
    }
    let head = tree.leaf(tree.pm().load(&tree.root().expect("a root").head).offset());
    let head = head.expect("a leaf");
    let second = head.next(tree.pm());
    assert_ne!(second, 0);
    let mut calls = 0;
    let low = tree.second_low(&head, || {
        calls += 1;
        if calls == 1 {
            assert_eq!(tree.remove(&key(8)).expect("intact"), Some(8));
            assert_eq!(head.next(tree.pm()), 0, "it was given back");
            let words = tree.pool.words(second, 8).expect("memory");
            for word in words {
                tree.pm().store_word(word, u64::MAX);
            }
        }
    });
    assert!(matches!(low, Ok(None)), "{low:?}");
    assert_eq!(calls, 2);
}
