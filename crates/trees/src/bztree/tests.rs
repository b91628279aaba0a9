//! One test for each way in which the paper's algorithms, or a careless version of ours, go wrong.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, PmError, Pool, Word};
use pmindex_index::IndexError;
use pmindex_pmwcas::{MAX_VALUE, Session};
use pmindex_record::Probe;

use super::access::Path;
use super::install::{Change, Refused};
use super::layout::{Entry, Geometry, INFO, Ptr, Status};
use super::record::RawRef;
use super::tree::BzTree;

type Words = BzTree<u64, u64, Mapped, 4, 3>;
type Bytes = BzTree<u64, Vec<u8>, Mapped, 20, 3>;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::emulated(4 << 20).unwrap())
}

/// Returns a tree of three levels.
fn tree(pool: &Arc<Pool>) -> Words {
    let tree = Words::create(pool, "t").unwrap();
    for key in 0..60 {
        assert!(tree.try_insert(&(10 * key), &key).unwrap().is_ok());
    }
    assert!(tree.stats().unwrap().height >= 3);
    tree
}

fn path(tree: &Words, key: u64) -> Path<'_> {
    let probe = Probe::<u64>::new(&key).unwrap();
    tree.path_to(RawRef::of(&probe)).unwrap()
}

/// Returns a key whose leaf has a right neighbour under the same parent, and a key of that.
fn neighbours(tree: &Words) -> (u64, u64) {
    (0..59u64)
        .map(|i| (10 * i, 10 * i + 10))
        .find(|&(left, right)| {
            let (left, right) = (path(tree, left), path(tree, right));
            left.leaf != right.leaf
                && left.steps().last().unwrap().node == right.steps().last().unwrap().node
        })
        .unwrap()
}

/// Returns the operation that replaces the leaf of `path` by two copies of it and copies its parent,
/// executed after `meanwhile`.
fn split_around(
    tree: &Words,
    session: &mut Session<'_, Mapped>,
    path: &Path<'_>,
    meanwhile: impl FnOnce(),
) -> bool {
    let leaf = tree.leaf(path.leaf).unwrap();
    let status = leaf.status(&tree.mwcas).unwrap();
    let items = leaf.items(&tree.mwcas, status).unwrap();
    let (left, right) = items.split_at(1);
    let separator = Words::separator(&left[0], &right[0]).unwrap();
    let mut op = session.descriptor();
    Words::add_status(&mut op, leaf.status_cell(), status, status.frozen()).unwrap();
    Words::add_free(&mut op, leaf.offset()).unwrap();
    let new = vec![
        tree.add_leaf(&mut op, left, false).unwrap(),
        tree.add_leaf(&mut op, right, false).unwrap(),
    ];
    let (depth, index) = (path.steps().len(), path.steps().last().unwrap().index);
    let (old, separators) = (&[path.leaf], vec![separator]);
    tree.add_change(&mut op, path, Change { depth, index, old, new, separators }).unwrap();
    meanwhile();
    op.execute().unwrap()
}

/// [P] Lost update: a split copies its parent, a neighbour is replaced in the old parent, and the
/// copy still has the old neighbour.
#[test]
fn bztree_split_that_copied_its_parent_fails_when_a_sibling_was_replaced() {
    let pool = pool();
    let tree = tree(&pool);
    let (left, right) = neighbours(&tree);
    let mut session = tree.mwcas.session().unwrap();
    let done = split_around(&tree, &mut session, &path(&tree, left), || {
        let mut other = tree.mwcas.session().unwrap();
        tree.restructure(&mut other, &path(&tree, right)).unwrap();
        drop(other);
        assert!(tree.update(&right, &77).unwrap().is_ok());
    });
    assert!(!done, "the parent's status has changed");
    drop(session);
    assert_eq!(tree.get(&right).unwrap(), Some(77));
    assert_eq!(tree.check().unwrap(), 60);
}

/// The same with a replacement that leaves the parent's status alone, as in the paper.
#[test]
fn bztree_without_the_parents_status_the_update_is_lost() {
    let pool = pool();
    let tree = tree(&pool);
    let (left, right) = neighbours(&tree);
    let mut session = tree.mwcas.session().unwrap();
    let done = split_around(&tree, &mut session, &path(&tree, left), || {
        let path = path(&tree, right);
        let leaf = tree.leaf(path.leaf).unwrap();
        let status = leaf.status(&tree.mwcas).unwrap();
        let items = leaf.items(&tree.mwcas, status).unwrap();
        let step = path.steps().last().unwrap();
        let parent = tree.inner(step.node).unwrap();
        let mut other = tree.mwcas.session().unwrap();
        let mut op = other.descriptor();
        Words::add_status(&mut op, leaf.status_cell(), status, status.frozen()).unwrap();
        let new = tree.add_leaf(&mut op, &items, false).unwrap();
        op.add_word(parent.child_cell(step.index), path.leaf.word(), new.word()).unwrap();
        assert!(op.execute().unwrap());
        drop(other);
        assert!(tree.update(&right, &77).unwrap().is_ok());
    });
    assert!(done, "nothing tells the split");
    drop(session);
    assert_ne!(tree.get(&right).unwrap(), Some(77), "an acknowledged update is gone");
}

/// [P] Frozen bits persist and have no owner after a crash: every operation goes on.
#[test]
fn bztree_leaf_frozen_before_a_crash_is_finished_by_the_next_writer() {
    let run = |write: &dyn Fn(&Words, u64)| {
        let pool = pool();
        let tree = tree(&pool);
        let path = path(&tree, 300);
        let leaf = tree.leaf(path.leaf).unwrap();
        let status = leaf.status(&tree.mwcas).unwrap();
        let mut session = tree.mwcas.session().unwrap();
        assert!(Words::set_status(&mut session, &leaf, status, status.frozen()).unwrap());
        drop(session);
        drop(tree); // the process dies
        let tree = Words::open(&pool, "t").unwrap();
        assert_eq!(tree.get(&300).unwrap(), Some(30));
        assert_eq!(tree.iter().count(), 60);
        write(&tree, 300);
        tree.check().unwrap();
        let leaf = tree.leaf(self::path(&tree, 300).leaf).unwrap();
        assert!(!leaf.status(&tree.mwcas).unwrap().is_frozen());
    };
    run(&|tree, key| assert!(tree.update(&key, &1).unwrap().is_ok()));
    run(&|tree, key| assert!(tree.try_insert(&(key + 1), &1).unwrap().is_ok()));
    run(&|tree, key| assert!(!tree.put(&key, &1).unwrap()));
    run(&|tree, key| assert_eq!(tree.remove(&key).unwrap(), Some(30)));
    run(&|tree, key| {
        assert_eq!(tree.try_insert_many(&[(key + 1, 1), (key, 2)]).inserted, [true, false]);
    });
}

/// [P] Waiting for a reservation that never resolves, frozen or not: no thread waits.
#[test]
fn bztree_reservations_of_others_stop_no_thread() {
    let pool = pool();
    let tree = Words::create(&pool, "t").unwrap();
    for round in 0..40u64 {
        let path = path(&tree, round);
        let leaf = tree.leaf(path.leaf).unwrap();
        let status = leaf.status(&tree.mwcas).unwrap();
        // Someone reserves an entry, and is never heard of again.
        let _ = tree.reserve(&leaf, status, 2).unwrap();
        assert!(tree.try_insert(&round, &round).unwrap().is_ok());
        assert!(tree.try_insert(&round, &0).unwrap().is_err());
        assert!(tree.update(&round, &(round + 1)).unwrap().is_ok());
    }
    assert_eq!(tree.check().unwrap(), 40);
    assert_eq!(tree.get(&7).unwrap(), Some(8));
}

/// [P] An older version comes back when the newest is removed.
#[test]
fn bztree_removed_record_does_not_give_way_to_its_predecessor() {
    let pool = pool();
    let tree = Bytes::create(&pool, "t").unwrap();
    for (round, len) in [1, 300, 2, 400, 500, 0].into_iter().enumerate() {
        assert_eq!(tree.put(&7, &vec![round as u8; len]).unwrap(), round == 0);
        assert_eq!(tree.get(&7).unwrap().unwrap().len(), len);
    }
    assert!(tree.remove(&7).unwrap().is_some());
    assert_eq!(tree.get(&7).unwrap(), None);
    assert_eq!(tree.iter().count(), 0);
    let probe = Probe::<u64>::new(&7).unwrap();
    let path = tree.path_to(RawRef::of(&probe)).unwrap();
    tree.restructure(&mut tree.mwcas.session().unwrap(), &path).unwrap();
    assert_eq!(tree.get(&7).unwrap(), None);
    assert_eq!(tree.check().unwrap(), 0);
    pool.audit(tree.blocks().unwrap().into_iter()).unwrap();
}

/// What a crash may leave of two reservations: the second alone. Then records of other lengths.
fn after_a_crash(bump: bool) -> (Vec<u8>, Option<Vec<u8>>) {
    let pool = pool();
    let tree = Bytes::create(&pool, "t").unwrap();
    let probe = Probe::<u64>::new(&0).unwrap();
    let leaf = tree.leaf(tree.path_to(RawRef::of(&probe)).unwrap().leaf).unwrap();
    let status = leaf.status(&tree.mwcas).unwrap();
    let first = tree.reserve(&leaf, status, 2).unwrap().unwrap();
    let second = tree.reserve(&leaf, status, 2).unwrap().unwrap();
    assert_eq!(second.at, first.at + 2);
    tree.pm().store(leaf.entry_cell(first.entry), Entry::EMPTY.word());
    if !bump {
        // As if the new epoch had not been durable: the next opening has the same one.
        let root = tree.root().unwrap();
        tree.pm().store(&root.epoch, tree.pm().load(&root.epoch) - 1);
    }
    drop(tree);
    let tree = Bytes::open(&pool, "t").unwrap();
    let long = vec![1; 80];
    assert!(tree.try_insert(&1, &long).unwrap().is_ok());
    assert!(tree.try_insert(&2, &[2; 60]).unwrap().is_ok());
    let found = tree.get(&1).unwrap();
    (long, found)
}

/// [P] The index epoch must be new before the first operation of an opening.
#[test]
fn bztree_reservations_of_a_dead_process_count_for_nothing() {
    let (long, found) = after_a_crash(true);
    assert_eq!(found, Some(long));
}

/// The same with the epoch of the process that died: two records share their words.
#[test]
fn bztree_with_the_epoch_of_the_dead_process_records_overlap() {
    let (long, found) = after_a_crash(false);
    assert_ne!(found, Some(long));
}

/// The epoch counts every opening, also over the end of its bits in a reservation.
#[test]
fn bztree_epoch_wraps() {
    let pool = pool();
    let tree = tree(&pool);
    let root = tree.root().unwrap();
    tree.pm().store(&root.epoch, u64::from(u32::MAX) - 1);
    drop(tree);
    for _ in 0..3 {
        let tree = Words::open(&pool, "t").unwrap();
        assert_eq!(tree.epoch, tree.pm().load(&tree.root().unwrap().epoch) & 0xffff_ffff);
        assert!(tree.put(&5, &5).is_ok());
        assert_eq!(tree.check().unwrap(), 61);
    }
}

/// Returns the widths of the operations that `run` executes, from the descriptors they leave: each has its
/// heading in its second word, and entries of three words.
fn widths(tree: &Words, run: impl FnOnce()) -> Vec<usize> {
    let config = tree.mwcas.config();
    let words = (2 + 3 * config.words as usize).next_multiple_of(8);
    let slots = (config.partitions * config.per_partition) as usize;
    let base = tree.mwcas.table_offset() + 128;
    let all = tree.pool.words(base, words * slots).unwrap();
    let load = |at: usize| tree.pm().load(&all[at]);
    let before: Vec<u64> = (0..slots).map(|slot| load(slot * words + 1)).collect();
    run();
    let mut widths: Vec<usize> = (0..slots)
        .filter(|&slot| load(slot * words + 1) != before[slot])
        .map(|slot| {
            let entries = (load(slot * words + 1) >> 30 & 31) as usize + 1;
            let target = |entry: &usize| load(slot * words + 2 + 3 * entry) << 16 != 0;
            let shown = load(slot * words + 1) >> 41 != 0; // with a record that is carried
            (0..entries).filter(target).count() + usize::from(shown)
        })
        .collect();
    widths.sort_unstable();
    widths
}

#[test]
fn bztree_operations_are_as_wide_as_table_1_says_or_less() {
    let pool = pool();
    let tree = Words::create(&pool, "t").unwrap();
    for key in 0..40u64 {
        assert!(tree.try_insert(&(100 * key), &key).unwrap().is_ok());
    }
    let key = 1000u64;
    let fresh = || {
        let path = path(&tree, key);
        tree.restructure(&mut tree.mwcas.session().unwrap(), &path).unwrap();
    };
    assert!(path(&tree, key).steps().len() >= 2, "it has a parent and a grandparent");
    // Consolidation: paper 1 and 2.
    let consolidation = widths(&tree, fresh);
    assert_eq!(consolidation, [3]);
    // Insert: paper 2 and 2. Update inline: paper 2 and 2. Delete: paper 2.
    assert_eq!(widths(&tree, || assert!(tree.try_insert(&(key + 1), &1).unwrap().is_ok())), [2]);
    assert_eq!(widths(&tree, || assert!(tree.update(&(key + 1), &2).unwrap().is_ok())), [2]);
    fresh();
    assert_eq!(widths(&tree, || assert!(tree.remove(&(key + 1)).unwrap().is_some())), [2]);
    // Split: paper 1 and 3; each full parent on the way up adds one.
    let mut splits = Vec::new();
    for more in 1..40u64 {
        let seen = widths(&tree, || assert!(tree.try_insert(&(key + more), &1).unwrap().is_ok()));
        splits.extend(seen.into_iter().filter(|width| *width > 3));
    }
    assert_eq!(splits.first(), Some(&4), "{splits:?}");
    assert!(splits.iter().all(|width| (4..8).contains(width)), "{splits:?}");
    // Merge: paper 2 and 3. An empty leaf is taken out: 4.
    let mut merges = Vec::new();
    for more in 1..40u64 {
        let seen = widths(&tree, || assert!(tree.remove(&(key + more)).unwrap().is_some()));
        merges.extend(seen.into_iter().filter(|width| *width > 3));
    }
    assert!(merges.contains(&5) && merges.iter().all(|width| *width <= 6), "{merges:?}");
    tree.check().unwrap();
}

/// Freezing by itself, and the freezing of two leaves.
#[test]
fn bztree_contended_changes_freeze_first_and_thaw_when_there_is_no_room() {
    let pool = pool();
    let tree = tree(&pool);
    let path = path(&tree, 300);
    let leaf = tree.leaf(path.leaf).unwrap();
    let status = leaf.status(&tree.mwcas).unwrap();
    let mut session = tree.mwcas.session().unwrap();
    assert!(Words::set_status(&mut session, &leaf, status, status.frozen()).unwrap());
    pool.fail_allocation_after(Some(0));
    assert!(tree.restructure(&mut session, &path).is_err());
    pool.fail_allocation_after(None);
    assert!(!leaf.status(&tree.mwcas).unwrap().is_frozen(), "thawed");
    drop(session);
    assert_eq!(tree.remove(&300).unwrap(), Some(30));
    assert_eq!(tree.check().unwrap(), 59);
}

/// Also where more nodes above are full than one operation can split.
#[test]
fn bztree_a_frozen_leaf_is_thawed_when_there_is_no_room_for_the_nodes_above() {
    let pool = Arc::new(Pool::emulated(32 << 20).unwrap());
    let tree = Words::create(&pool, "t").unwrap();
    for n in 0..1u64 << 16 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40; // scattered
        let _ = tree.try_insert(&key, &n).unwrap();
    }
    let mut wide = 0;
    for key in (0..1 << 24).step_by(997) {
        let path = path(&tree, key);
        let leaf = tree.leaf(path.leaf).unwrap();
        let status = leaf.status(&tree.mwcas).unwrap();
        let mut session = tree.mwcas.session().unwrap();
        assert!(Words::set_status(&mut session, &leaf, status, status.frozen()).unwrap());
        // Room for the split that turns out to be too wide, and none for that of the nodes above.
        for room in 0..32 {
            pool.fail_allocation_after(Some(room));
            let split = tree.try_restructure(&mut session, &path, &leaf, status.frozen());
            if matches!(split, Err(Refused::TooWide)) {
                wide += 1;
                pool.fail_allocation_after(Some(room));
                assert!(tree.restructure(&mut session, &path).is_err());
                assert!(!leaf.status(&tree.mwcas).unwrap().is_frozen(), "the leaf of {key}");
                break;
            }
        }
        pool.fail_allocation_after(None);
    }
    assert!(wide > 0);
}

/// Removing needs no room: it goes on where what a frozen leaf needs has none.
#[test]
fn bztree_removes_from_a_frozen_leaf_of_a_full_pool() {
    let pool = pool();
    let tree = tree(&pool);
    for key in [300, 310] {
        let path = path(&tree, key);
        let leaf = tree.leaf(path.leaf).unwrap();
        let status = leaf.status(&tree.mwcas).unwrap();
        let mut session = tree.mwcas.session().unwrap();
        assert!(Words::set_status(&mut session, &leaf, status, status.frozen()).unwrap());
        drop(session);
        pool.fail_allocation_after(Some(0));
        assert_eq!(tree.remove(&key), Ok(Some(key / 10)));
        pool.fail_allocation_after(None);
    }
    assert_eq!(tree.check().unwrap(), 58);
}

/// The number of records is there after closing, however many there are.
#[test]
fn bztree_closed_index_knows_its_number_of_records() {
    let pool = pool();
    let tree = tree(&pool);
    tree.close().unwrap();
    let tree = Words::open(&pool, "t").unwrap();
    assert_eq!((tree.recovery_report().records, tree.count.known()), (60, Some(60)));
    drop(tree);
    let tree = Words::open(&pool, "t").unwrap();
    assert_eq!(tree.count.known(), None, "not closed");
    assert_eq!((tree.len().unwrap(), tree.count.known()), (60, Some(60)));
}

#[test]
fn bztree_words_of_nodes_are_what_the_protocol_leaves_to_users() {
    type G = Geometry<u64, u64, 60, 64>;
    assert_eq!(8 * (G::records(60) + 120 + 2 * G::LATER), 1536, "a leaf of 8-byte records");
    assert!(Status::from_word(u64::MAX >> 2).frozen().into_word() >> 62 == 0);
    assert!(Ptr::new(64, 3, 8).word() >> 62 == 0);
}

/// The two ends of a scan take turns, and meet, while records come and go between them: whatever was
/// there all the time comes once, and nothing comes behind what was given before.
#[test]
fn bztree_ends_of_a_scan_never_cross_whatever_changes_between_them() {
    let pool = pool();
    let tree = Words::create(&pool, "t").unwrap();
    let keys: Vec<u64> = (1..=24).map(|n| 10 * n).collect();
    for key in &keys {
        assert!(tree.try_insert(key, key).unwrap().is_ok());
    }
    let key = |record: Result<(u64, u64), _>| record.unwrap().0;
    for late in keys.iter().flat_map(|key| [*key, key + 5]) {
        for from_the_back in 1..12 {
            tree.remove(&late).unwrap();
            for from_the_front in 1..=22 - from_the_back {
                let mut scan = tree.range(..);
                let mut back: Vec<u64> = scan.by_ref().rev().take(from_the_back).map(key).collect();
                let mut front: Vec<u64> = scan.by_ref().take(from_the_front).map(key).collect();
                tree.try_insert(&late, &0).unwrap().unwrap();
                while let Some(record) = scan.next() {
                    front.push(key(record));
                    back.extend(scan.next_back().map(key));
                }
                assert!(scan.next_back().is_none() && scan.next().is_none());
                back.reverse();
                front.extend(back);
                assert!(front.is_sorted_by(|a, b| a < b), "{late}: {front:?}");
                front.retain(|key| *key != late);
                assert!(front.iter().eq(keys.iter().filter(|key| **key != late)), "{late}");
                tree.remove(&late).unwrap();
            }
            if late % 10 == 0 {
                tree.try_insert(&late, &0).unwrap().unwrap();
            }
        }
    }
}

/// A value of one word changes in place if neither it nor the new one has its five highest bits set.
#[test]
fn bztree_one_word_values_change_in_place_unless_they_are_wide() {
    let pool = pool();
    let tree = BzTree::<u64, u64, Mapped, 60, 3>::create(&pool, "t").unwrap();
    let probe = Probe::<u64>::new(&0).unwrap();
    let leaf = || tree.leaf(tree.path_to(RawRef::of(&probe)).unwrap().leaf).unwrap();
    let used = || leaf().status(&tree.mwcas).unwrap().used();
    let update = |key: u64, value: u64| {
        let before = used();
        assert!(tree.update(&key, &value).unwrap().is_ok());
        assert_eq!(tree.get(&key).unwrap(), Some(value));
        assert_eq!(tree.iter().map(Result::unwrap).find(|r| r.0 == key), Some((key, value)));
        used() - before
    };
    let consolidate = || {
        let path = tree.path_to(RawRef::of(&probe)).unwrap();
        tree.restructure(&mut tree.mwcas.session().unwrap(), &path).unwrap();
        assert_eq!((tree.check().unwrap(), used()), (2, 0));
    };
    let (narrow, wide) = (MAX_VALUE, MAX_VALUE + 1);
    assert!(tree.try_insert(&1, &0).unwrap().is_ok() && tree.try_insert(&2, &0).unwrap().is_ok());
    assert_eq!(update(1, narrow), 0);
    assert_eq!(update(1, wide), 1);
    assert_eq!(update(1, u64::MAX), 1);
    assert_eq!(update(1, 7), 1);
    assert_eq!(update(1, 8), 0);
    consolidate();
    assert_eq!((update(1, 9), update(2, narrow)), (0, 0));
    assert_eq!(update(1, u64::MAX), 1);
    consolidate(); // each sorted record for itself
    assert_eq!((update(2, 3), update(2, narrow), update(1, u64::MAX - 1)), (0, 0, 1));
    consolidate();
    assert_eq!((update(1, narrow), update(1, 4), update(2, wide), update(2, 5)), (1, 0, 1, 1));
    assert_eq!(update(1, u64::MAX), 1);
    assert_eq!(tree.remove(&1).unwrap(), Some(u64::MAX));
    assert!(tree.try_insert(&1, &5).unwrap().is_ok());
    consolidate();
    assert_eq!((update(1, 6), update(2, 7)), (0, 0));
    assert_eq!(tree.check().unwrap(), 2);
    pool.audit(tree.blocks().unwrap().into_iter()).unwrap();
}

/// The last leaf does not stay as large as its records ever made it: with slabs of many pages, its
/// block would hold back a tenth of a tree.
#[test]
fn bztree_tree_without_records_is_as_small_as_a_new_one() {
    type Full = BzTree<Vec<u8>, u64>;
    const RECORDS: u64 = 600;
    let nth = |i: u64| {
        let tail = if i % 16 == 15 { 200 } else { i % 16 };
        let mut key = format!("family/{i:010}");
        key.extend((0..tail).map(|_| '~'));
        key.into_bytes()
    };
    let orders: [fn(u64) -> u64; 3] = [|i| i, |i| RECORDS - 1 - i, |i| i * 7 % RECORDS];
    for order in orders {
        let pool = pool();
        let tree = Full::create(&pool, "t").unwrap();
        let bytes = || tree.stats().unwrap().pm_bytes;
        let empty = bytes();
        for i in 0..RECORDS {
            assert!(tree.try_insert(&nth(i), &i).unwrap().is_ok());
        }
        let full = bytes();
        for i in 0..RECORDS {
            assert_eq!(tree.remove(&nth(order(i))).unwrap(), Some(order(i)));
            let left = RECORDS - 1 - i;
            assert!(left > 8 || bytes() - empty < (full - empty) / 16, "{left} records left");
        }
        assert_eq!((bytes(), tree.check().unwrap()), (empty, 0));
        pool.audit(tree.blocks().unwrap().into_iter()).unwrap();
    }
}

/// Damages a tree, finds it out, and tries to write.
#[track_caller]
fn finds_out<T>(damage: impl Fn(&Words), find: impl Fn(&Words) -> Result<T, IndexError>) {
    let pool = pool();
    let tree = tree(&pool);
    damage(&tree);
    assert_eq!(pool.damage(), None);
    assert!(matches!(find(&tree), Err(IndexError::Pool(PmError::Corrupt { .. }))));
    let refused = tree.try_insert(&5, &5);
    assert!(matches!(refused, Err(IndexError::Pool(PmError::Damaged { .. }))), "{refused:?}");
}

/// "No such key" would be a lie: a record is there that was put there under another key.
#[test]
fn a_lookup_of_a_damaged_key_says_so() {
    let damage = |tree: &Words| {
        let probe = Probe::<u64>::new(&300).unwrap();
        let leaf = tree.leaf(path(tree, 300).leaf).unwrap();
        let status = leaf.status(&tree.mwcas).unwrap();
        let found = leaf.find(&tree.mwcas, status, &probe).unwrap().unwrap();
        let other = 300 + (1 << 40);
        assert_ne!(Probe::<u64>::new(&other).unwrap().fingerprint(), probe.fingerprint());
        tree.pool.pm().store_word(&found.record.words[0], other);
    };
    finds_out(damage, |tree| tree.get(&300));
    finds_out(damage, |tree| tree.contains_key(&300));
    finds_out(damage, |tree| tree.get_many(&[10, 300], &mut [None, None]));
}

/// Through the tree's own methods, not those of the traits.
#[test]
fn damage_is_noted_whichever_way_it_is_found() {
    let damage = |tree: &Words| {
        for key in [0, 590] {
            let leaf = tree.leaf(path(tree, key).leaf).unwrap();
            tree.pool.pm().store_word(&leaf.words[INFO], u64::MAX);
        }
    };
    finds_out(damage, |tree| tree.range(..).next().unwrap());
    finds_out(damage, |tree| tree.range(..).next_back().unwrap());
    finds_out(damage, |tree| tree.scan(&0, 3, &mut Vec::new()));
    finds_out(damage, Words::first_key_value);
    finds_out(damage, Words::last_key_value);
    finds_out(damage, Words::is_empty);
    finds_out(damage, Words::check);
}
