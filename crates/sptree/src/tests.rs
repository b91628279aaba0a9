//! What goes wrong in other such trees, and does not here: each interrupted step is made by hand, then
//! the index is opened again.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};

use crate::SpTree;

type Tree = SpTree<u64, u64, Mapped, 4>;

fn tree_of(keys: impl Iterator<Item = u64>) -> (Arc<Pool<Mapped>>, Tree) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    for key in keys {
        assert!(tree.insert(&key, &(key * 10)).expect("room"));
    }
    (pool, tree)
}

fn reopen(pool: &Arc<Pool<Mapped>>, tree: Tree) -> Tree {
    drop(tree);
    Tree::open(pool, "t").expect("intact")
}

fn assert_holds(tree: &Tree, keys: impl Iterator<Item = u64>) {
    let want: Vec<(u64, u64)> = keys.map(|key| (key, key * 10)).collect();
    assert_eq!(tree.check().expect("sound"), want.len() as u64);
    let all = |items: &mut dyn Iterator<Item = Result<(u64, u64), _>>| {
        items.collect::<Result<Vec<_>, pmindex_index::IndexError>>().expect("intact")
    };
    assert_eq!(all(&mut tree.iter()), want);
    let mut down = all(&mut tree.iter().rev());
    down.reverse();
    assert_eq!(down, want);
}

#[test]
fn behaves_as_a_map_through_splits_merges_and_openings() {
    let (pool, mut tree) = tree_of(0..0);
    let mut model = BTreeMap::new();
    let mut seed = 1u64;
    for i in 0..20_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (seed >> 33) % 300;
        // Waves: it grows for a while, then shrinks.
        if seed >> 60 < if i / 2500 % 2 == 0 { 12 } else { 4 } {
            assert_eq!(
                tree.insert(&key, &(key * 10)).expect("room"),
                model.insert(key, key * 10).is_none()
            );
        } else {
            assert_eq!(tree.remove(&key).expect("room"), model.remove(&key));
        }
        assert_eq!(tree.get(&(key ^ 1)).expect("intact"), model.get(&(key ^ 1)).copied());
        if i % 1000 == 0 {
            tree = reopen(&pool, tree);
            pool.audit(tree.blocks().expect("intact").into_iter()).expect("no leak");
        }
        if i % 97 == 0 {
            assert_holds(&tree, model.keys().copied());
        }
    }
}
