//! Memory is given back to the system while the trees are in use and have readers.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_art::{KeyBuf, Nodes, Place, Root, Tree};
use pmindex_core::{Arena, PmError, Pool};

/// Places where keys fork: a node of 4 for each, and more of them than are released at once.
const FORKS: u64 = 20_000;
/// The number of leaves at each.
const LEAVES: u64 = 3;

/// Leaf 0 of a fork has the key that is a prefix of the others'.
fn key(leaf: u64) -> Vec<u8> {
    let mut key = (leaf / LEAVES).to_be_bytes()[5..].to_vec();
    if let more @ 1.. = leaf % LEAVES {
        key.push(more as u8);
    }
    key
}

#[allow(clippy::unnecessary_wraps, reason = "what the tree calls")]
fn load(leaf: u64, out: &mut KeyBuf) -> Result<(), PmError> {
    out.push(&key(leaf));
    Ok(())
}

type Loader = fn(u64, &mut KeyBuf) -> Result<(), PmError>;

fn with_tree(test: impl FnOnce(&Pool, &Nodes, &Tree<'_, Loader>)) {
    let (pool, nodes) = (Pool::volatile(1 << 16).unwrap(), Nodes::new(FORKS * LEAVES).unwrap());
    let roots: Arena<Root> = Arena::new(1).unwrap();
    let root = roots.get(roots.alloc().unwrap());
    let loader: Loader = load;
    test(&pool, &nodes, &Tree::new(&nodes, root, &loader));
}

/// All leaves but the first of each fork.
fn others() -> impl Iterator<Item = u64> {
    (0..FORKS * LEAVES).filter(|leaf| leaf % LEAVES > 0)
}

#[test]
fn removals_give_memory_back_and_what_was_found_before_stays_void() {
    with_tree(|pool, nodes, tree| {
        let pm = pool.pm();
        let mut found: Vec<Place<'_>> = Vec::new();
        let mut least = usize::MAX;
        let mut most = 0;
        for round in 0..3 {
            for leaf in 0..FORKS * LEAVES {
                let there = round > 0 && leaf % LEAVES == 0;
                assert_eq!(tree.insert(pm, &key(leaf), leaf).unwrap().is_some(), there);
            }
            assert!(found.iter().all(|place| !place.validate(pm)), "versions of an earlier round");
            most = most.max(nodes.bytes());
            found.extend(others().map(|leaf| tree.find(pm, &key(leaf)).unwrap()));
            for leaf in others() {
                assert_eq!(tree.remove(pm, &key(leaf)).unwrap(), Some(leaf));
            }
            assert!(found.iter().all(|place| !place.validate(pm)), "nodes that have gone");
            least = least.min(nodes.bytes());
            for leaf in 0..FORKS * LEAVES {
                let there = leaf % LEAVES == 0;
                assert_eq!(tree.get(pm, &key(leaf)).unwrap(), there.then_some(leaf));
            }
        }
        assert!(most - least >= 2 * 4096 * 64, "from {most} bytes to {least}");
        assert!(nodes.bytes() < most, "the last round, too");
    });
}

#[test]
fn readers_never_miss_a_key_while_the_nodes_before_it_come_and_go() {
    with_tree(|pool, nodes, tree| {
        let pm = pool.pm();
        for fork in 0..FORKS {
            tree.insert(pm, &key(fork * LEAVES), fork * LEAVES).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 1..=2 {
                let done = &done;
                scope.spawn(move || {
                    let mut n = reader;
                    while !done.load(Relaxed) {
                        n = (n * 48_271) % 2_147_483_647;
                        let leaf = n % (FORKS * LEAVES);
                        let got = tree.get(pm, &key(leaf)).unwrap();
                        let may = got.is_none() && !leaf.is_multiple_of(LEAVES);
                        assert!(may || got == Some(leaf), "{got:?} for {leaf}");
                    }
                });
            }
            let mut released = 0;
            for _ in 0..8 {
                for leaf in others() {
                    assert_eq!(tree.insert(pm, &key(leaf), leaf).unwrap(), None);
                }
                let before = nodes.bytes();
                for leaf in others() {
                    assert_eq!(tree.remove(pm, &key(leaf)).unwrap(), Some(leaf));
                }
                released += usize::from(nodes.bytes() < before);
            }
            done.store(true, Relaxed);
            assert_eq!(released, 8, "rounds in which memory went");
        });
        assert!(nodes.counts()[0] < 100);
    });
}
