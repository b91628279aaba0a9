//! What goes wrong in other such trees, and does not here: each interrupted step is made by hand, then the
//! index is opened as after a crash. (The crash simulator takes the steps apart further.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmindex_core::{Mapped, Medium, PmError, Pool, PoolOptions};
use pmindex_index::IndexError;
use pmindex_record::{EncodedValue, Probe, Slot};

use super::inner::Route;
use super::layout::{Hint, Mark};
use super::leaf::{Incoming, Leaf};
use super::tree::NvTree;

pub(super) type Tree = NvTree<u64, u64, Mapped, 8, 4>;

pub(super) fn tree_of(keys: impl IntoIterator<Item = u64>) -> (Arc<Pool>, Tree) {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
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
    assert_eq!(tree.check().expect("intact"), wanted.len() as u64);
    assert_eq!(tree.iter().map(|item| item.expect("intact")).collect::<Vec<_>>(), wanted);
    for (key, value) in wanted {
        assert_eq!(tree.get(&key).expect("intact"), Some(value));
    }
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

pub(super) fn leaf_of(tree: &Tree, key: u64) -> Leaf<'_, u64, u64, 8> {
    let probe = Probe::<u64>::new(&key).expect("a key");
    tree.leaf(tree.inner.leaf_of(tree.pm(), &Route::to(&probe))).expect("a leaf")
}

#[test]
fn an_index_of_empty_leaves_is_loaded() {
    let (pool, tree) = tree_of(0..60);
    assert!(tree.stats().expect("intact").leaves > 4);
    // As when no operation is free to give a leaf back that empties.
    for key in 0..60 {
        let probe = Probe::<u64>::new(&key).expect("a key");
        let held = tree.hold(&probe, |present| present).expect("intact").expect("there");
        held.leaf.remove(&pool, held.hint, held.slot.expect("there")).expect("emulated");
        tree.count(held.leaf.offset(), u64::MAX);
        tree.note_appended(&held.entry, held.hint.count() + 1);
    }
    assert!(tree.stats().expect("intact").leaves > 4);
    assert_eq!(tree.bulk_load(&mut (0..30).map(|key| (key, key * 10))), Ok(30));
    assert_holds(&pool, &tree, 0..30);
    let tree = reopen(&pool, tree);
    assert_holds(&pool, &tree, 0..30);
}

#[test]
fn pitfall_split_makes_two_leaves_and_one_link_decides_for_each_leaf_of_the_list() {
    let (_, tree) = tree_of((0..60).map(|i| i * 2));
    let leaves = tree.stats().expect("intact").leaves;
    assert!(leaves > 6);
    for victim in 0..60 {
        let (pool, tree) = tree_of((0..60).map(|i| i * 2));
        let leaf = leaf_of(&tree, victim * 2);
        let key = victim * 2;
        // Fill the leaf with versions, so that the next write makes room.
        while leaf.hint(tree.pm()).count() < 8 {
            assert!(tree.update(&key, &(key * 10)).expect("room").is_ok());
        }
        let before = leaf.offset();
        assert!(tree.update(&key, &(key * 10)).expect("room").is_ok());
        assert_ne!(leaf_of(&tree, key).offset(), before, "the full leaf was replaced");
        assert_holds(&pool, &tree, (0..60).map(|i| i * 2));
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, 0, "nothing to log, nothing to repair");
        assert_holds(&pool, &tree, (0..60).map(|i| i * 2));
    }
}

#[test]
fn hint_that_a_crash_left_behind_is_derived_anew_from_any_point() {
    for behind in 0..6 {
        let (pool, tree) = tree_of(0..6);
        let leaf = leaf_of(&tree, 0);
        // The header's stores after the first few appends were lost.
        let old = (0..behind).fold(Hint::default(), |hint, i| hint.appended(i, Mark::POSITIVE));
        leaf.put_hint(tree.pm(), old);
        (behind..6).for_each(|i| leaf.put_fingerprint(tree.pm(), i, 0));
        let tree = reopen(&pool, tree);
        assert_holds(&pool, &tree, 0..6);
    }
}

#[test]
fn cancelled_record_does_not_come_back_with_a_hint_left_behind() {
    let (pool, tree) = tree_of([]);
    tree.bulk_load(&mut (0..8).map(|key| (key, key * 10))).expect("room"); // one full leaf
    let leaf = leaf_of(&tree, 0);
    let full = leaf.hint(tree.pm());
    assert_eq!(tree.remove(&3).expect("no room needed"), Some(30));
    assert!(leaf.hint(tree.pm()).is_distrusted());
    // The announcement was durable before the record was cancelled; what followed it was lost.
    leaf.put_hint(tree.pm(), full.cancelling());
    let tree = reopen(&pool, tree);
    assert_holds(&pool, &tree, (0..8).filter(|key| *key != 3));
    // Without the announcement (the faulty order) the record would be back.
    let leaf = leaf_of(&tree, 0);
    leaf.put_hint(tree.pm(), full);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.get(&3).expect("read"), Some(30), "what the announcement is for");
    assert!(tree.check().is_err());
}

#[test]
fn batch_commits_the_slot_that_tells_of_the_others_first() {
    let (pool, tree) = tree_of([]);
    let leaf = leaf_of(&tree, 0);
    let (pm, hint) = (tree.pm(), leaf.hint(tree.pm()));
    let put = |slot: usize, key: u64| {
        let value = key + 1;
        let (probe, datum) =
            (Probe::new(&key).expect("a key"), EncodedValue::new(&value).expect("8"));
        leaf.write_slot(pm, slot, &Incoming { probe: &probe, datum: &datum }, 0);
        leaf.put_mark(pm, slot, Mark::POSITIVE);
    };
    // The faulty order: a record of the second segment is durable, those of the first are not.
    put(3, 30);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.get(&30).expect("read"), None, "nothing tells of it");
    // Ours: those of the first segment are durable first.
    let leaf = leaf_of(&tree, 0);
    leaf.put_mark(tree.pm(), 0, Mark::POSITIVE);
    assert!(leaf.is_behind(tree.pm(), hint));
    let tree = reopen(&pool, tree);
    assert_eq!(tree.get(&30).expect("read"), Some(31));
}

#[test]
fn pitfall_interrupted_removal_of_any_leaf_is_finished_and_follows_no_null() {
    let (_, tree) = tree_of(0..40);
    let leaves = tree.stats().expect("intact").leaves as usize;
    assert!(leaves > 3);
    for victim in 0..leaves {
        let (pool, tree) = tree_of(0..40);
        let mut leaf = tree.head().expect("a leaf");
        for _ in 0..victim {
            leaf = tree.leaf(leaf.next(tree.pm())).expect("a leaf");
        }
        let sorted = leaf.sorted(&pool, leaf.hint(tree.pm())).expect("intact");
        for (_, slot) in &sorted {
            // Emptied, and not yet unlinked.
            leaf.remove(&pool, leaf.hint(tree.pm()), *slot).expect("no room needed");
        }
        let gone: Vec<u64> = sorted.into_iter().map(|(key, _)| key).collect();
        let tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().repaired, u64::from(victim > 0));
        assert_holds(&pool, &tree, (0..40).filter(|key| !gone.contains(key)));
        for key in gone {
            assert!(tree.try_insert(&key, &(key * 10)).expect("room").is_ok());
        }
        assert_holds(&pool, &tree, 0..40);
    }
}

#[test]
fn pitfall_locks_of_a_dead_process_are_void_and_reads_take_none() {
    let (pool, tree) = tree_of(0..20);
    {
        let probe = Probe::new(&3).expect("a key");
        let held = tree.hold(&probe, |_| true).expect("intact").expect("wanted");
        std::mem::forget(held.guard); // its process dies with it
    }
    let tree = reopen(&pool, tree);
    assert!(tree.update(&3, &30).expect("no lock is held").is_ok());
    assert_holds(&pool, &tree, 0..20);
}

#[test]
fn pitfall_reader_waits_for_what_a_crash_could_take_back() {
    let (_pool, tree) = tree_of(0..20);
    let probe = Probe::new(&7).expect("a key");
    let held = tree.hold(&probe, |_| true).expect("intact").expect("wanted");
    let cell = &held.leaf.slot(held.slot.expect("present"))[Slot::<u64, u64>::KEY_WORDS];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A value is visible and not durable; then it is as if it had never been.
        tree.pm().store(cell, 666);
        let reader = scope.spawn(|| {
            let value = tree.get(&7);
            done.store(true, Ordering::Release);
            value
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!done.load(Ordering::Acquire), "a reader that did not wait");
        tree.pm().store(cell, 70);
        drop(held.guard);
        assert_eq!(reader.join().expect("no panic").expect("intact"), Some(70));
    });
}

#[test]
fn rebuilding_stops_no_thread_and_gives_everything_back() {
    let (pool, tree) = tree_of(0..2000); // ascending: parents split at the end of the list
    for step in 0..2000 {
        let rebuilt = tree.maintain().expect("memory");
        assert_eq!(tree.get(&(step % 2000)).expect("intact"), Some(step % 2000 * 10));
        if !rebuilt {
            break;
        }
        assert!(step < 1999, "background work without end");
    }
    let parents = tree.inner.size().0;
    assert_holds(&pool, &tree, 0..2000);
    for key in 0..1990 {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key * 10));
    }
    while tree.maintain().expect("memory") {}
    assert!(tree.inner.size().0 < parents / 4, "parents of leaves that are gone");
    assert_holds(&pool, &tree, 1990..2000);
}

#[test]
fn clean_shutdown_skips_the_leaves_and_a_crash_after_it_does_not() {
    let (pool, tree) = tree_of(0..500);
    tree.close().expect("room");
    let tree = Tree::open(&pool, "t").expect("intact");
    assert!(tree.recovery_report().from_image);
    assert_eq!(tree.recovery_report().records, 500);
    assert_holds(&pool, &tree, 0..500);
    assert!(tree.try_insert(&500, &5000).expect("room").is_ok());
    let tree = reopen(&pool, tree);
    assert!(!tree.recovery_report().from_image);
    assert_holds(&pool, &tree, 0..501);
}

#[test]
fn damaged_shutdown_image_is_ignored() {
    let (pool, tree) = tree_of(0..100);
    let root = tree.entry.root::<super::Root>();
    tree.close().expect("room");
    let root = pool.get(root).expect("a root");
    let image = pool.pm().load(&root.image).offset();
    let pair = &pool.words(image + 64 + 16, 1).expect("a pair")[0];
    pool.pm().store(pair, pool.pm().load(pair) ^ 1);
    let tree = Tree::open(&pool, "t").expect("intact");
    assert!(!tree.recovery_report().from_image);
    assert_holds(&pool, &tree, 0..100);
}

#[test]
fn a_long_shutdown_image_is_read_by_several_threads_and_damage_anywhere_in_it_is_noticed() {
    const RECORDS: u64 = 8 * 17 * 2044; // leaves of 8, pieces of 2044
    let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    tree.bulk_load(&mut (0..RECORDS).map(|key| (2 * key, 20 * key))).expect("room");
    for key in (1..2 * RECORDS).step_by(1000) {
        assert!(tree.try_insert(&key, &(10 * key)).expect("room").is_ok(), "splits a leaf");
    }
    let mut wanted: Vec<u64> = (0..RECORDS).map(|key| 2 * key).collect();
    wanted.extend((1..2 * RECORDS).step_by(1000));
    wanted.sort_unstable();
    tree.close().expect("room");
    let tree = Tree::open(&pool, "t").expect("intact");
    let report = tree.recovery_report();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(report.from_image);
    assert_eq!((report.records, report.threads), (wanted.len() as u64, cores.min(8)));
    assert_holds(&pool, &tree, wanted.iter().copied());
    let root = tree.entry.root::<super::Root>();
    drop(tree);
    for victim in [0, 9, 17] {
        Tree::open(&pool, "t").expect("intact").close().expect("room");
        let mut piece = pool.pm().load(&pool.get(root).expect("a root").image);
        for _ in 0..victim {
            piece = pool.pm().load(&pool.get(piece).expect("a piece").next);
        }
        let pair = &pool.words(piece.offset() + 64 + 16 * 100, 1).expect("a pair")[0];
        pool.pm().store(pair, pool.pm().load(pair) + 1);
        let tree = Tree::open(&pool, "t").expect("intact");
        assert!(!tree.recovery_report().from_image, "piece {victim}");
        assert_eq!(tree.len().expect("intact"), wanted.len() as u64);
    }
    let tree = Tree::open(&pool, "t").expect("intact");
    assert_holds(&pool, &tree, wanted);
}

fn waypoints(tree: &Tree) -> Vec<u64> {
    let root = tree.root().expect("a root");
    root.waypoints.iter().map(|cell| tree.pm().load(cell)).collect()
}

fn set_waypoints(tree: &Tree, offsets: &[u64]) {
    let root = tree.root().expect("a root");
    for (cell, offset) in root.waypoints.iter().zip(offsets) {
        tree.pm().store(cell, *offset);
    }
}

/// Returns the places of the waypoints along the list.
fn places(tree: &Tree) -> Vec<usize> {
    let mut leaves = Vec::new();
    tree.walk(|leaf, _| {
        leaves.push(leaf.offset());
        Ok(())
    })
    .expect("intact");
    let place = |waypoint| leaves.iter().position(|leaf| *leaf == waypoint);
    waypoints(tree).into_iter().filter_map(place).collect()
}

#[test]
fn waypoints_part_the_list_and_follow_its_leaves() {
    let (pool, tree) = tree_of((0..3001).map(|i| i * 7 % 3001));
    while tree.maintain().expect("memory") {}
    let leaves = tree.stats().expect("intact").leaves as usize;
    let parted = places(&tree);
    assert_eq!(parted.len(), 5);
    for (part, place) in parted.iter().enumerate() {
        let ideal = (part + 1) * leaves / 6;
        assert!(place.abs_diff(ideal) < leaves / 20, "{parted:?} of {leaves}");
    }
    // Every leaf gives way to another one, and some vanish.
    for round in 0..9 {
        for key in 0..3001 {
            tree.update(&key, &(key * round)).expect("room").expect("done");
        }
    }
    for key in (0..3001).filter(|key| key / 20 % 2 == 0) {
        tree.remove(&key).expect("intact");
    }
    for key in (0..3001).filter(|key| key / 20 % 2 == 1) {
        tree.put(&key, &(key * 10)).expect("room");
    }
    assert!(places(&tree).len() >= 4, "{:?}", places(&tree));
    let tree = reopen(&pool, tree);
    assert_holds(&pool, &tree, (0..3001).filter(|key| key / 20 % 2 == 1));
}

#[test]
fn waypoints_that_lead_nowhere_do_no_harm() {
    let (pool, mut tree) = tree_of(0..300);
    let mut leaves = Vec::new();
    tree.walk(|leaf, _| {
        leaves.push(leaf.offset());
        Ok(())
    })
    .expect("intact");
    let (first, last) = (leaves[0], leaves[leaves.len() - 1]);
    let root = tree.entry.root::<super::Root>().offset();
    // A leaf that is gone: its link leads into the list, or beside it.
    let gone = leaves[leaves.len() / 2];
    for key in 0..300 {
        tree.update(&key, &(key * 10)).expect("room").expect("done");
        tree.update(&key, &(key * 10)).expect("room").expect("done");
    }
    for bad in [
        [u64::MAX; 5],
        [root; 5],
        [8, 64, 4 << 20, (4 << 20) - 8, 1],
        [first, last, last, first, first],
        [last, gone, 0, first, gone],
        [gone, gone + 8, gone + 64, 0, last],
    ] {
        set_waypoints(&tree, &bad);
        tree = reopen(&pool, tree);
        assert_eq!(tree.recovery_report().leaves, tree.stats().expect("intact").leaves);
        assert_holds(&pool, &tree, 0..300);
    }
}

#[test]
fn list_without_end_is_noticed_from_every_waypoint() {
    let (pool, tree) = tree_of(0..300);
    while tree.maintain().expect("memory") {}
    let mut leaves = Vec::new();
    tree.walk(|leaf, _| {
        leaves.push(leaf.offset());
        Ok(())
    })
    .expect("intact");
    drop(tree);
    let next_of = |offset| &pool.words(offset, 8).expect("a leaf")[7];
    for (place, &leaf) in leaves.iter().enumerate() {
        for &to in &leaves[..=place] {
            let before = pool.pm().load_word(next_of(leaf));
            pool.pm().store_word(next_of(leaf), to);
            assert!(Tree::open(&pool, "t").is_err(), "{leaf} leads to {to}");
            pool.pm().store_word(next_of(leaf), before);
        }
    }
}

/// Returns the next of a sequence of numbers without pattern.
fn scramble(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

#[test]
fn damaged_leaves_and_waypoints_are_an_error_or_an_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let (whole, damaged) = (dir.path().join("whole"), dir.path().join("damaged"));
    let options = PoolOptions::new().size(2 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&whole, &options).expect("room"));
    let tree = Tree::create(&pool, "t").expect("room");
    for n in (0..4000).map(|n| n * 7919 % 4000) {
        tree.try_insert(&n, &n).expect("room").expect("done");
    }
    let root = tree.entry.root::<super::Root>().offset() as usize / 8;
    let mut leaves = Vec::new();
    tree.walk(|leaf, _| {
        leaves.push(leaf.offset());
        Ok(())
    })
    .expect("intact");
    drop((tree, pool));
    let bytes = std::fs::read(&whole).expect("readable");
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let (mut rng, mut opened) = (0x9e37_79b9_7f4a_7c15, 0);
    for _ in 0..150 {
        let mut words = words.clone();
        for _ in 0..=scramble(&mut rng) % 4 {
            let leaf = leaves[scramble(&mut rng) % leaves.len()] as usize / 8;
            // The hint, the link, a counter, the fence; or a waypoint.
            let at = match scramble(&mut rng) % 6 {
                0 => leaf,
                1 => leaf + 7,
                2 => leaf + 8,
                3 => leaf + 15,
                _ => root + 3 + scramble(&mut rng) % 5,
            };
            words[at] = match scramble(&mut rng) % 5 {
                0 => 0,
                1 => words[scramble(&mut rng) % words.len()],
                2 => words[at] ^ 1 << (scramble(&mut rng) % 64),
                _ => leaves[scramble(&mut rng) % leaves.len()],
            };
        }
        let image: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(&damaged, image).expect("room");
        let Ok(pool) = Pool::open(&damaged, &options) else { continue };
        let pool = Arc::new(pool);
        let Ok(tree) = Tree::open(&pool, "t") else { continue };
        opened += 1;
        let _ = tree.check();
        let _ = tree.iter().take(9000).flatten().count();
        let _ = tree.iter().rev().take(9000).flatten().count();
        for n in (0..4000).step_by(47) {
            let _ = tree.get(&n);
            let _ = tree.remove(&n);
            let _ = tree.put(&(n + 1), &n);
        }
        let _ = tree.close();
    }
    assert!(opened > 20, "only {opened} opened");
}

#[test]
fn an_empty_tree_in_a_damaged_pool_is_not_loaded() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = NvTree::<u64, u64>::create(&pool, "t").expect("room");
    pool.note_damage(&PmError::Corrupt { what: "a test", offset: 0 });
    let refused = tree.bulk_load(&mut std::iter::once((1, 1)));
    assert!(matches!(refused, Err(IndexError::Pool(PmError::Damaged { .. }))), "{refused:?}");
    assert_eq!(tree.get(&1).expect("read"), None);
}
