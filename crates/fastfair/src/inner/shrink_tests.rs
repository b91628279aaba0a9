//! Emptied leaves are given back where there is no room for a copy of an inner node.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_index::Key;

use crate::entry::Sought;
use crate::tree::FastFair;

/// Keys of one word, and byte strings of which four in a row begin with the same word.
trait Numbered: Key {
    fn nth(n: u64) -> Self;
}

impl Numbered for u64 {
    fn nth(n: u64) -> Self {
        n
    }
}

impl Numbered for Vec<u8> {
    fn nth(n: u64) -> Self {
        [(n / 4).to_be_bytes(), n.to_be_bytes()].concat()
    }
}

type Tree<K> = FastFair<K, u64, Mapped, 8, 4>;

fn check<K: Numbered>(pool: &Pool, tree: &Tree<K>, wanted: &[u64]) {
    assert_eq!(tree.check().expect("intact"), wanted.len() as u64);
    let keys: Vec<K> = tree.iter().map(|item| item.expect("intact").0).collect();
    assert!(keys.into_iter().eq(wanted.iter().map(|&n| K::nth(n))));
    for &n in wanted {
        assert_eq!(tree.get(K::nth(n).borrowed()).expect("intact"), Some(n));
    }
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
}

fn leaves<K: Numbered>(tree: &Tree<K>) -> u64 {
    tree.stats().expect("intact").leaves
}

/// Empties the leaves from `from` on, `count` of them, in ascending order or in descending, without room and in place;
/// then fills them again, without room as long as that goes.
fn emptied<K: Numbered>(
    open: impl Fn(Tree<K>) -> Tree<K>,
    from: usize,
    count: usize,
    up: bool,
) -> u64 {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = open(Tree::<K>::create(&pool, "t").expect("room"));
    let mut keys: Vec<u64> = (0..160).collect();
    for &n in &keys {
        assert!(tree.try_insert(K::nth(n).borrowed(), &n).expect("room").is_ok());
    }
    // The keys of each leaf: all but the last have seven or eight.
    let (before, mut of_leaf) = (leaves(&tree), Vec::new());
    tree.walk(|_, records| {
        of_leaf.push(records.len());
        Ok(())
    })
    .expect("intact");
    let skipped: usize = of_leaf.iter().take(from).sum();
    let gone: usize = of_leaf.iter().skip(from).take(count).sum();
    let mut gone: Vec<u64> = keys.drain(skipped..skipped + gone).collect();
    if !up {
        gone.reverse();
    }
    pool.fail_allocation_after(Some(0));
    for &n in &gone {
        let removed = tree.remove(K::nth(n).borrowed()).expect("no room needed");
        assert_eq!(removed, Some(n));
    }
    check(&pool, &tree, &keys);
    let given_back = before - leaves(&tree);
    for (at, &n) in gone.iter().enumerate() {
        if at > gone.len() / 2 {
            pool.fail_allocation_after(None);
        }
        if let Ok(new) = tree.try_insert(K::nth(n).borrowed(), &n) {
            assert!(new.is_ok());
        } else {
            pool.fail_allocation_after(None);
            assert!(tree.try_insert(K::nth(n).borrowed(), &n).expect("room").is_ok());
            pool.fail_allocation_after(Some(0));
        }
        keys.push(n);
        keys.sort_unstable();
        if at.is_multiple_of(8) {
            check(&pool, &tree, &keys);
        }
    }
    pool.fail_allocation_after(None);
    for n in 160..200 {
        assert!(tree.try_insert(K::nth(n).borrowed(), &n).expect("room").is_ok());
        keys.push(n);
    }
    check(&pool, &tree, &keys);
    for &n in &keys {
        assert_eq!(tree.remove(K::nth(n).borrowed()).expect("intact"), Some(n));
    }
    check(&pool, &tree, &[]);
    assert_eq!(leaves(&tree), 1);
    given_back
}

/// In each place and number; the first leaf stays, and the first child of a node until there is room.
fn everywhere<K: Numbered>(open: impl Fn(Tree<K>) -> Tree<K>) {
    for count in [1, 2, 3, 4, 9, 20] {
        let mut given_back = 0;
        for from in 0..20 {
            for up in [false, true] {
                given_back += emptied(&open, from, count, up);
            }
        }
        assert!(given_back > 20 * count.min(9) as u64 / 2, "{given_back} of {count} in a row");
    }
}

#[test]
fn leaves_of_words_are_given_back_without_room() {
    everywhere::<u64>(|tree| tree);
}

#[test]
fn leaves_of_byte_strings_are_given_back_without_room() {
    everywhere::<Vec<u8>>(|tree| tree);
}

#[test]
fn a_copy_in_dram_follows() {
    everywhere::<u64>(|tree| tree.cached().expect("intact"));
}

/// What there was no room for is done when the next leaf is given back.
#[test]
fn what_is_owed_is_given_back_later() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Tree::<u64>::create(&pool, "t").expect("room");
    for n in 0..160 {
        assert!(tree.try_insert(&n, &n).expect("room").is_ok());
    }
    pool.fail_allocation_after(Some(0));
    for n in 0..150 {
        assert_eq!(tree.remove(&n).expect("no room needed"), Some(n));
    }
    let left = leaves(&tree);
    assert!(left > 3 && left < 10, "{left} leaves of which most are first children");
    pool.fail_allocation_after(None);
    for n in 150..160 {
        assert_eq!(tree.remove(&n).expect("room"), Some(n));
    }
    assert_eq!(leaves(&tree), 1);
    check(&pool, &tree, &[]);
}

/// A crash leaves each subset of the words of step P2; then the leaf is emptied while there is still no room.
#[test]
fn a_separator_that_a_crash_left_names_no_freed_low() {
    let mut met = 0;
    for (at, words) in (0..20).flat_map(|at| (0..4).map(move |words| (at, words))) {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let mut tree = Tree::<Vec<u8>>::create(&pool, "t").expect("room");
        let mut keys: Vec<u64> = (0..160).collect();
        for &n in &keys {
            assert!(tree.try_insert(&Vec::<u8>::nth(n), &n).expect("room").is_ok());
        }
        let known = tree.known_leaves().expect("a tree");
        let (Some(separator), leaf) = known[at] else { continue };
        let low = tree.low_from(separator.block).expect("a low");
        let sought: Sought<'_> = low.successor::<Vec<u8>>();
        let (path, found) = tree.path(&sought).expect("a tree");
        assert_eq!(found.offset(), leaf);
        let Some(&(parent, place)) = path.last() else { continue };
        let node = tree.node(parent).expect("a node");
        if place == 0 || place + 1 == tree.children(node) {
            continue;
        }
        met += 1;
        let cell = |at| Tree::<Vec<u8>>::child_cell(node, at);
        tree.pm().store_word(cell(place), tree.pm().load_word(cell(place - 1)));
        let right = tree.separator(node, place);
        if words & 1 != 0 {
            tree.pm().store_word(&node[place - 1], right.word);
        }
        if words & 2 != 0 {
            tree.pm().store_word(&node[2 * 4 + 3 + place - 1], right.block);
        }
        drop(tree);
        tree = Tree::<Vec<u8>>::open(&pool, "t").expect("recovery");
        check(&pool, &tree, &keys);
        pool.fail_allocation_after(Some(0));
        let leaf = tree.leaf(leaf).expect("a leaf");
        let gone = tree.records_of(&leaf).expect("intact").len();
        let first = keys.iter().position(|&n| {
            Sought::new::<Vec<u8>>(&Vec::<u8>::nth(n)).expect("a key").cmp(&low).is_gt()
        });
        let first = first.expect("a key in the leaf");
        for n in keys.drain(first..first + gone) {
            let key: Vec<u8> = Numbered::nth(n);
            assert_eq!(tree.remove(&key).expect("no room needed"), Some(n));
        }
        check(&pool, &tree, &keys);
        for n in 0..160 {
            let key: Vec<u8> = Numbered::nth(n);
            assert_eq!(tree.get(&key).expect("intact").is_some(), keys.contains(&n));
        }
        pool.fail_allocation_after(None);
        for n in 160..400 {
            let key: Vec<u8> = Numbered::nth(n);
            assert!(tree.try_insert(&key, &n).expect("room").is_ok());
            keys.push(n);
        }
        check(&pool, &tree, &keys);
    }
    assert!(met >= 16, "{met} separators with two children");
}
