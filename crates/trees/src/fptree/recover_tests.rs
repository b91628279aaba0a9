//! Opening: from many places at once, and from the image of a clean shutdown, for every shape of
//! keys.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool, PoolOptions};
use pmindex_index::{Key, Shape};

use super::layout::LeafState;
use super::tree::FpTree;

type Tree<K> = FpTree<K, u64, Mapped, 8, 4>;

/// Records enough for leaves in several parts of the allocator.
const MANY: u64 = 60_000;

trait Numbered: Key + std::fmt::Debug {
    fn nth(n: u64) -> Self;
}

impl Numbered for u64 {
    fn nth(n: u64) -> Self {
        3 * n
    }
}

impl Numbered for [u8; 16] {
    fn nth(n: u64) -> Self {
        let mut key = *b"the same 8 bytes";
        key[8..].copy_from_slice(&n.to_be_bytes());
        key
    }
}

impl Numbered for Vec<u8> {
    /// Some short, some long, all with much in common.
    fn nth(n: u64) -> Self {
        let mut key = format!("key {n:06}").into_bytes();
        key.resize(10 + (n * n % 23) as usize, b'.');
        key
    }
}

fn tree_of<K: Numbered>(count: u64) -> (Arc<Pool>, Tree<K>) {
    let pool = Arc::new(Pool::emulated(64 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    for n in (0..count).map(|n| n * 7919 % count) {
        assert!(tree.try_insert(K::nth(n).borrowed(), &n).expect("room").is_ok());
    }
    (pool, tree)
}

/// Returns the leaves of a tree, in order.
fn leaves<K: Numbered>(tree: &Tree<K>) -> Vec<u64> {
    let mut leaves = Vec::new();
    tree.walk(|leaf, _| {
        leaves.push(leaf.offset());
        Ok(())
    })
    .expect("intact");
    leaves
}

fn assert_holds<K: Numbered>(tree: &Tree<K>, wanted: &[u64]) {
    assert_eq!(tree.check().expect("intact"), wanted.len() as u64);
    let found = tree.iter().map(|item| item.expect("intact").1);
    assert!(found.eq(wanted.iter().copied()), "upwards");
    let found = tree.iter().rev().map(|item| item.expect("intact").1);
    assert!(found.eq(wanted.iter().rev().copied()), "downwards");
    for &n in wanted.iter().step_by(7) {
        assert_eq!(tree.get(K::nth(n).borrowed()).expect("intact"), Some(n));
    }
}

fn recovers_from_many_places<K: Numbered>() {
    let (pool, tree) = tree_of::<K>(MANY);
    let mut gone = Vec::new();
    let mut repairs = 0;
    for (i, &offset) in leaves(&tree).iter().enumerate() {
        let leaf = tree.leaf(offset).expect("a leaf");
        let state = leaf.state(tree.pm());
        if i % 37 == 5 && state.len() > 1 {
            tree.split_but_do_not_shrink(&leaf, state);
            repairs += 1;
        } else if i % 53 == 6 && K::SHAPE != Shape::Bytes {
            // Emptied and not unlinked, next to a split sometimes.
            let keys = leaf.sorted(&pool, state).expect("intact");
            gone.extend(
                keys.iter()
                    .map(|(key, _)| tree.get(key.borrowed()).expect("intact").expect("present")),
            );
            let emptied = leaf.commit(tree.pm(), LeafState::default());
            tree.pm().fence(emptied).expect("emulated");
            repairs += 1;
        }
    }
    drop(tree); // as if the process had died
    let tree = Tree::<K>::open(&pool, "t").expect("recovery");
    let report = tree.recovery_report();
    let wanted: Vec<u64> = (0..MANY).filter(|n| !gone.contains(n)).collect();
    assert_eq!((report.repaired, report.records), (repairs, wanted.len() as u64));
    assert_eq!(report.leaves, leaves(&tree).len() as u64);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(report.threads, cores.min(8), "threads");
    assert_holds(&tree, &wanted);
    pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
    for n in gone {
        assert!(tree.try_insert(K::nth(n).borrowed(), &n).expect("room").is_ok());
    }
    assert_holds(&tree, &(0..MANY).collect::<Vec<_>>());
}

#[test]
fn recovery_from_many_places_at_once_of_words() {
    recovers_from_many_places::<u64>();
}

#[test]
fn recovery_from_many_places_at_once_of_wide_keys() {
    recovers_from_many_places::<[u8; 16]>();
}

#[test]
fn recovery_from_many_places_at_once_of_byte_strings() {
    recovers_from_many_places::<Vec<u8>>();
}

#[test]
fn leaves_of_a_neighbour_are_not_taken_for_ones_own() {
    let (pool, tree) = tree_of::<u64>(MANY / 2);
    let other = Tree::<u64>::create(&pool, "other").expect("room");
    for n in 0..MANY / 2 {
        other.try_insert(&n, &(n + 1)).expect("room").expect("done");
    }
    drop((tree, other));
    let tree = Tree::<u64>::open(&pool, "t").expect("recovery");
    assert_holds(&tree, &(0..MANY / 2).collect::<Vec<_>>());
    let other = Tree::<u64>::open(&pool, "other").expect("recovery");
    assert_eq!(other.check().expect("intact"), MANY / 2);
    assert_eq!(other.get(&7).expect("intact"), Some(8));
}

fn opens_from_image<K: Numbered>() {
    for count in [0, 1, 40, MANY / 4] {
        let (pool, tree) = tree_of::<K>(count);
        let wanted: Vec<u64> = (0..count).collect();
        tree.close().expect("room");
        let tree = Tree::<K>::open(&pool, "t").expect("intact");
        let report = tree.recovery_report();
        assert!(report.from_image, "{count}");
        assert_eq!((report.records, report.leaves), (count, leaves(&tree).len() as u64));
        assert_holds(&tree, &wanted);
        pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        drop(tree); // without an image
        let tree = Tree::<K>::open(&pool, "t").expect("intact");
        assert!(!tree.recovery_report().from_image, "an image counts once");
        assert_holds(&tree, &wanted);
    }
}

#[test]
fn clean_shutdown_of_words_skips_the_leaves() {
    opens_from_image::<u64>();
}

#[test]
fn clean_shutdown_of_wide_keys_skips_the_leaves() {
    opens_from_image::<[u8; 16]>();
}

#[test]
fn clean_shutdown_of_byte_strings_skips_the_leaves() {
    opens_from_image::<Vec<u8>>();
}

/// Whatever word of an image is damaged, the leaves are read instead.
fn ignores_damage<K: Numbered>() {
    let wanted: Vec<u64> = (0..300).collect();
    for word in (1..6).chain(8..40) {
        let (pool, tree) = tree_of::<K>(300);
        let root = tree.entry.root::<super::Root>();
        tree.close().expect("room");
        let root = pool.get(root).expect("a root");
        let image = pool.pm().load(&root.image).offset();
        let cell = &pool.words(image + 8 * word, 1).expect("a word")[0];
        pool.pm().store(cell, pool.pm().load(cell) ^ 1);
        let tree = Tree::<K>::open(&pool, "t").expect("intact");
        assert!(!tree.recovery_report().from_image, "word {word}");
        assert_holds(&tree, &wanted);
    }
}

#[test]
fn damaged_images_are_ignored() {
    ignores_damage::<u64>();
    ignores_damage::<[u8; 16]>();
    ignores_damage::<Vec<u8>>();
}

/// Returns the next of a sequence of numbers without pattern.
fn scramble(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

/// Opens a pool file in which some words are others, and uses the index if it opens.
fn survives_damage<K: Numbered>() {
    let dir = tempfile::tempdir().expect("a folder");
    let (whole, damaged) = (dir.path().join("whole"), dir.path().join("damaged"));
    let options = PoolOptions::new().size(4 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&whole, &options).expect("room"));
    let tree = Tree::<K>::create(&pool, "t").expect("room");
    for n in (0..9000).map(|n| n * 7919 % 9000) {
        tree.try_insert(K::nth(n).borrowed(), &n).expect("room").expect("done");
    }
    let leaves = leaves(&tree);
    assert!(leaves.len() > 1024, "enough for walks from many places");
    drop((tree, pool));
    let bytes = std::fs::read(&whole).expect("readable");
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let (mut rng, mut opened) = (0x9e37_79b9_7f4a_7c15, 0);
    for _ in 0..120 {
        let mut words = words.clone();
        for _ in 0..=scramble(&mut rng) % 5 {
            // Some word of some leaf, mostly its first or one near its end.
            let leaf = leaves[scramble(&mut rng) % leaves.len()] as usize / 8;
            let at = leaf + [0, 0, 3, 24, 24, 25, 26, 9][scramble(&mut rng) % 8];
            words[at] = match scramble(&mut rng) % 6 {
                0 => 0,
                1 => words[scramble(&mut rng) % words.len()],
                2 => words[at] ^ 1 << (scramble(&mut rng) % 64),
                3 => words[at] | 1 << 63, // a split in progress
                _ => leaves[scramble(&mut rng) % leaves.len()],
            };
        }
        let image: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(&damaged, image).expect("room");
        let Ok(pool) = Pool::open(&damaged, &options) else { continue };
        let pool = Arc::new(pool);
        let Ok(tree) = Tree::<K>::open(&pool, "t") else { continue };
        opened += 1;
        let _ = tree.check();
        let _ = tree.iter().take(20_000).flatten().count();
        let _ = tree.iter().rev().take(20_000).flatten().count();
        for n in (0..8000).step_by(97) {
            let _ = tree.get(K::nth(n).borrowed());
            let _ = tree.remove(K::nth(n).borrowed());
            let _ = tree.put(K::nth(n + 1).borrowed(), &n);
        }
        let _ = tree.close();
    }
    assert!(opened > 10, "only {opened} opened");
}

#[test]
fn damaged_leaves_are_an_error_or_an_answer_wherever_walks_start() {
    survives_damage::<u64>();
    survives_damage::<[u8; 16]>();
    survives_damage::<Vec<u8>>();
}
