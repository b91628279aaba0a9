//! The tree against `BTreeMap`, with keys that share long parts and are prefixes of each other.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_art::{Direction, KeyBuf, LeafPath, Nodes, Root, Scratch, Search, Sorted, Tree};
use pmindex_core::{Arena, Mapped, PmError, Pool};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>),
    Upsert(Vec<u8>),
    Remove(Vec<u8>),
    Look(Vec<u8>),
    Walk(Vec<u8>, bool, usize),
}

/// Bytes that make nodes of every size, and common parts of every length.
fn keys() -> impl Strategy<Value = Vec<u8>> + Clone {
    let few = prop_oneof![Just(0u8), Just(1), Just(255)];
    let byte = prop_oneof![2 => few, 1 => any::<u8>()];
    let part = prop_oneof![6 => Just(0usize), 1 => 6..10usize, 1 => 16..20usize, 1 => Just(100)];
    let some = (part, proptest::collection::vec(byte, 0..4), 0..2usize)
        .prop_map(|(part, tail, more)| [vec![9; part], tail, vec![3; 9 * more]].concat());
    // Each is a prefix of the next, with forks on both sides.
    let fork = prop_oneof![6 => Just(vec![]), 1 => Just(vec![4]), 1 => Just(vec![6])];
    let chain = (0..40usize, fork).prop_map(|(len, fork)| [vec![5; len], fork].concat());
    // Two keys side by side in a large node: after one is removed, nodes with a single leaf remain.
    let pair =
        (any::<u8>(), 0..2u8).prop_map(|(n, tail)| [vec![7], vec![n; 20], vec![tail]].concat());
    prop_oneof![4 => some, 2 => chain, 3 => pair, 1 => Just(vec![7])]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => keys().prop_map(Step::Insert),
        1 => keys().prop_map(Step::Upsert),
        4 => keys().prop_map(Step::Remove),
        1 => keys().prop_map(Step::Look),
        1 => (keys(), any::<bool>(), 1..20usize).prop_map(|(k, up, n)| Step::Walk(k, up, n)),
    ];
    proptest::collection::vec(step, 1..400)
}

/// The keys of all leaves that ever existed.
#[derive(Default)]
struct Keys(RefCell<Vec<Vec<u8>>>);

impl Keys {
    fn next(&self, key: &[u8]) -> u64 {
        let mut keys = self.0.borrow_mut();
        keys.push(key.to_vec());
        keys.len() as u64 - 1
    }
}

type Model = BTreeMap<Vec<u8>, u64>;

fn walk<L: pmindex_art::Leaves>(
    tree: &Tree<'_, L>,
    pm: &Mapped,
    bound: Bound<&[u8]>,
    direction: Direction,
    limit: usize,
) -> Vec<u64> {
    let mut places = Vec::new();
    let more = tree.walk(pm, bound, direction, limit, &mut places).unwrap();
    assert_eq!(more, places.len() == limit);
    assert!(places.iter().all(|place| place.validate(pm)));
    places.iter().map(|place| place.leaf).collect()
}

fn neighbours<L: pmindex_art::Leaves>(tree: &Tree<'_, L>, pm: &Mapped, key: &[u8], model: &Model) {
    let leaf = |place: Option<pmindex_art::Place<'_>>| place.map(|place| place.leaf);
    let of = |bounds: (Bound<&[u8]>, Bound<&[u8]>)| model.range::<[u8], _>(bounds).map(|(_, l)| *l);
    let (least, most) = (Bound::Unbounded, Bound::Unbounded);
    let (at, past) = (Bound::Included(key), Bound::Excluded(key));
    assert_eq!(tree.get(pm, key).unwrap(), model.get(key).copied());
    assert_eq!(leaf(tree.floor(pm, key).unwrap()), of((least, at)).next_back());
    assert_eq!(leaf(tree.ceiling(pm, key).unwrap()), of((at, most)).next());
    let below = tree.nearest(pm, past, Direction::Descending).unwrap();
    assert_eq!(leaf(below), of((least, past)).next_back());
    let above = tree.nearest(pm, past, Direction::Ascending).unwrap();
    assert_eq!(leaf(above), of((past, most)).next());
    let near = tree.near(pm, key);
    let mut told = None;
    tree.near_many(pm, std::iter::once(key), |at, leaf| told = Some((at, leaf)));
    assert_eq!(told, Some((0, near)));
    let sides = [of((least, at)).next_back(), of((past, most)).next()];
    assert_eq!(near.is_none(), model.is_empty());
    assert!(near.is_none() || sides.contains(&near), "{near:?} is not one of {sides:?}");
}

fn run(steps: Vec<Step>) {
    let pool = Pool::volatile(1 << 16).unwrap();
    let pm = pool.pm();
    let roots: Arena<Root> = Arena::new(2).unwrap();
    let nodes = Nodes::new(10_000).unwrap();
    let all = Keys::default();
    let keys = |leaf: u64, key: &mut KeyBuf| -> Result<(), PmError> {
        key.push(&all.0.borrow()[leaf as usize]);
        Ok(())
    };
    let tree = Tree::new(&nodes, roots.get(roots.alloc().unwrap()), &keys);
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Insert(key) => {
                let leaf = all.next(&key);
                let old = tree.insert(pm, &key, leaf).unwrap();
                assert_eq!(old, model.get(&key).copied());
                model.entry(key).or_insert(leaf);
            }
            Step::Upsert(key) => {
                let leaf = all.next(&key);
                assert_eq!(tree.upsert(pm, &key, leaf).unwrap(), model.insert(key, leaf));
            }
            Step::Remove(key) => {
                assert_eq!(tree.remove(pm, &key).unwrap(), model.remove(&key));
            }
            Step::Look(key) => neighbours(&tree, pm, &key, &model),
            Step::Walk(key, up, limit) => {
                let bound = Bound::Included(&key[..]);
                if up {
                    let want: Vec<u64> =
                        model.range(key.clone()..).take(limit).map(|(_, l)| *l).collect();
                    assert_eq!(walk(&tree, pm, bound, Direction::Ascending, limit), want);
                } else {
                    let want: Vec<u64> =
                        model.range(..=key.clone()).rev().take(limit).map(|(_, l)| *l).collect();
                    assert_eq!(walk(&tree, pm, bound, Direction::Descending, limit), want);
                }
            }
        }
        assert_eq!(tree.check().unwrap(), model.len() as u64);
    }
    compare_all(&tree, pm, &nodes, &roots, &model);
    for (key, leaf) in std::mem::take(&mut model) {
        if leaf % 2 == 0 {
            remove_by_its_path(&tree, pm, &key, leaf);
        } else {
            assert_eq!(tree.remove(pm, &key).unwrap(), Some(leaf));
        }
        tree.check().unwrap();
    }
    assert!(tree.is_empty(pm));
}

/// Compares whole walks, batched searches, and the same tree built at once.
fn compare_all<L: pmindex_art::Leaves>(
    tree: &Tree<'_, L>,
    pm: &Mapped,
    nodes: &Nodes,
    roots: &Arena<Root>,
    model: &Model,
) {
    struct All<'m>(Vec<(&'m Vec<u8>, u64)>);
    impl Sorted for All<'_> {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn key(&self, at: usize) -> &[u8] {
            self.0[at].0
        }
        fn leaf(&self, at: usize) -> u64 {
            self.0[at].1
        }
    }
    let all: Vec<u64> = model.values().copied().collect();
    let limit = all.len() + 1;
    assert_eq!(walk(tree, pm, Bound::Unbounded, Direction::Ascending, limit), all);
    let down = walk(tree, pm, Bound::Unbounded, Direction::Descending, limit);
    assert!(down.iter().eq(all.iter().rev()));
    for pieces in [1, 2, 3, 7, 16, 50] {
        scan(tree, pm, model, pieces);
    }

    let root = roots.get(roots.alloc().unwrap());
    let before = nodes.counts();
    let sorted = All(model.iter().map(|(k, l)| (k, *l)).collect());
    nodes.forget(&nodes.builder().build(&sorted).unwrap());
    assert_eq!(nodes.counts(), before);
    nodes.install(pm, root, &nodes.builder().build(&sorted).unwrap());
    let built = Tree::new(nodes, root, &|_: u64, _: &mut KeyBuf| -> Result<(), PmError> {
        unreachable!("no key is needed")
    });
    assert_eq!(walk_unbounded(&built, pm, limit), all);
    let searches: Vec<Search<'_, '_>> = model.keys().map(|key| Search { root, key }).collect();
    let mut places = Vec::new();
    let mut told = Vec::new();
    nodes.find_many(pm, &searches, &mut places, |leaf| told.push(leaf));
    assert!(places.iter().map(|place| place.unwrap().leaf).eq(all.iter().copied()));
    told.sort_unstable();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert_eq!(told, sorted);
    let mut near = vec![None; all.len()];
    tree.near_many(pm, model.keys().map(Vec::as_slice), |at, leaf| near[at] = leaf);
    assert!(near.into_iter().flatten().eq(all));
    for (key, &leaf) in model {
        assert!(!built.remove_leaf(pm, key, leaf + 1).unwrap(), "another leaf stays");
        assert!(built.remove_leaf(pm, key, leaf).unwrap());
        assert!(!built.remove_leaf(pm, key, leaf).unwrap());
    }
    assert!(built.is_empty(pm));
    assert_eq!(nodes.counts(), before);
}

/// Walks all leaves in both directions, some at a time: each walk continues from the last key of the one
/// before.
fn scan<L: pmindex_art::Leaves>(tree: &Tree<'_, L>, pm: &Mapped, model: &Model, pieces: usize) {
    let keys: BTreeMap<u64, &Vec<u8>> = model.iter().map(|(key, leaf)| (*leaf, key)).collect();
    for direction in [Direction::Ascending, Direction::Descending] {
        let mut seen: Vec<u64> = Vec::new();
        loop {
            let last = seen.last().map(|leaf| &keys[leaf][..]);
            let bound = last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = walk(tree, pm, bound, direction, pieces);
            let ended = next.len() < pieces;
            seen.extend(next);
            if ended {
                break;
            }
        }
        if direction == Direction::Descending {
            seen.reverse();
        }
        assert!(seen.iter().eq(model.values()), "{direction:?}, {pieces} at a time");
    }
}

/// A removal whose `commit` fails leaves everything as it was; one with an outdated path does nothing, and
/// does not call `commit`.
fn remove_by_its_path<L: pmindex_art::Leaves>(
    tree: &Tree<'_, L>,
    pm: &Mapped,
    key: &[u8],
    leaf: u64,
) {
    let before = walk_unbounded(tree, pm, 1000);
    let mut path = LeafPath::default();
    assert_eq!(tree.find_path(pm, key, &mut path).map(|place| place.leaf), Some(leaf));
    let refused = tree.remove_path(pm, &path, || Err(PmError::ReadOnly));
    assert_eq!(refused, Err(PmError::ReadOnly));
    assert_eq!(tree.get(pm, key).unwrap(), Some(leaf));
    assert_eq!(walk_unbounded(tree, pm, 1000), before);
    assert_eq!(tree.check().unwrap(), before.len() as u64);
    // The first path led through nodes that were locked meanwhile.
    assert_eq!(tree.find_path(pm, key, &mut path).map(|place| place.leaf), Some(leaf));
    assert_eq!(tree.remove_path(pm, &path, || Ok(())), Ok(Some(())));
    assert_eq!(tree.remove_path(pm, &path, || panic!("of a way that is gone")), Ok(None));
    assert_eq!(tree.get(pm, key).unwrap(), None);
    assert_eq!(tree.check().unwrap(), before.len() as u64 - 1);
}

fn walk_unbounded<L: pmindex_art::Leaves>(
    tree: &Tree<'_, L>,
    pm: &Mapped,
    limit: usize,
) -> Vec<u64> {
    walk(tree, pm, Bound::Unbounded, Direction::Ascending, limit)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn behaves_as_a_sorted_map(steps in steps()) {
        run(steps);
    }
}

#[test]
fn nodes_of_every_size_fill_and_empty() {
    let steps = |up: bool| {
        let keys = (0..=255u8).flat_map(|a| [vec![a], vec![a, a], vec![a, 7, 7, 7]]);
        let mut keys: Vec<Vec<u8>> = keys.chain([vec![]]).collect();
        if !up {
            keys.reverse();
        }
        keys
    };
    for up in [true, false] {
        let mut all: Vec<Step> = steps(up).into_iter().map(Step::Insert).collect();
        all.extend(steps(true).into_iter().step_by(3).map(Step::Look));
        all.extend(steps(!up).into_iter().map(Step::Remove));
        run(all);
    }
}

#[test]
fn keys_that_begin_each_other_thousands_deep() {
    // As deep as the longest key, and walked without recursion.
    let key = vec![b'a'; 4096];
    let steps = (0..=4096).step_by(64).map(|len| Step::Insert(key[..len].to_vec()));
    let looks = (1..4096).step_by(511).map(|len| Step::Look(key[..len].to_vec()));
    run(steps.chain(looks).collect());
}

/// One of two keys with a long common part is removed: its node has a single leaf, where a walk expects two.
#[test]
fn walks_give_what_is_asked_for_where_nodes_have_a_single_leaf() {
    let key = |n: u8, tail: u8| [vec![n; 20], vec![tail]].concat();
    let all = (0..40).flat_map(|n| [key(n, 1), key(n, 2)]).map(Step::Insert);
    let gone = (0..40).map(|n| Step::Remove(key(n, 2 - n % 2)));
    let walks =
        (1..40).flat_map(|n| [true, false].map(|up| Step::Walk(key(n, 1), up, usize::from(n))));
    run(all.chain(gone).chain(walks).collect());
}

/// A walk that stops in a node because it expects enough leaves, and then has fewer, returns nothing that
/// comes after what it left out.
#[test]
fn walks_leave_nothing_out() {
    let pool = Pool::volatile(1 << 16).unwrap();
    let pm = pool.pm();
    let roots: Arena<Root> = Arena::new(1).unwrap();
    let nodes = Nodes::new(10_000).unwrap();
    let root = roots.get(roots.alloc().unwrap());
    for many in [40u8, 200] {
        // Nodes with a single leaf in a large node, with leaves before and after it, and one that ends at it.
        let deep = |n: u8, tail: u8| [vec![100], vec![n; 20], vec![tail]].concat();
        let mut all: Vec<Vec<u8>> = (0..=8).map(|n| vec![25 * n]).collect();
        all.extend((0..many).map(|n| deep(n, 1)));
        all.sort();
        let gone: Vec<Vec<u8>> = (0..many).map(|n| deep(n, 2)).collect();
        let keys = |leaf: u64, out: &mut KeyBuf| -> Result<(), PmError> {
            let at = leaf as usize;
            out.push(all.get(at).unwrap_or_else(|| &gone[at - all.len()]));
            Ok(())
        };
        let tree = Tree::new(&nodes, root, &keys);
        for (leaf, key) in (0..).zip(all.iter().chain(&gone)) {
            tree.insert(pm, key, leaf).unwrap();
        }
        for key in &gone {
            tree.remove(pm, key).unwrap().unwrap();
        }
        for (limit, up) in (1..=all.len()).flat_map(|n| [(n, true), (n, false)]) {
            let direction = if up { Direction::Ascending } else { Direction::Descending };
            let mut scratch = Scratch::new();
            let from = (Bound::Unbounded, direction);
            let more = tree.walk_on(pm, from, &[], limit, &mut scratch, |_| {}).unwrap();
            let got: Vec<u64> = scratch.places().iter().map(|place| place.leaf).collect();
            let want = 0..all.len() as u64;
            let want: Vec<u64> = if up { want.collect() } else { want.rev().collect() };
            assert_eq!(got, want[..got.len()], "{many} {limit} {up}");
            assert!(!got.is_empty() && more, "{many} {limit} {up}");
        }
        for key in &all {
            tree.remove(pm, key).unwrap().unwrap();
        }
    }
}

/// A walk through several trees is a walk through all their keys, wherever it begins and however many leaves
/// it wants.
#[test]
fn walks_go_on_into_the_trees_behind() {
    let pool = Pool::volatile(1 << 16).unwrap();
    let pm = pool.pm();
    let roots: Arena<Root> = Arena::new(5).unwrap();
    let nodes = Nodes::new(10_000).unwrap();
    // Leaf `1000 t + n` of tree `t`; one tree is empty, one has a single leaf.
    let sizes = [300u64, 0, 1, 40, 7];
    let key = |leaf: u64| (leaf % 1000 * 37).to_be_bytes()[5..].to_vec();
    let keys = |leaf: u64, out: &mut KeyBuf| -> Result<(), PmError> {
        out.push(&key(leaf));
        Ok(())
    };
    let trees = sizes.map(|_| Tree::new(&nodes, roots.get(roots.alloc().unwrap()), &keys));
    let all: Vec<u64> =
        (0..).zip(sizes).flat_map(|(t, n)| (0..n).map(move |n| 1000 * t + n)).collect();
    for &leaf in &all {
        trees[(leaf / 1000) as usize].insert(pm, &key(leaf), leaf).unwrap();
    }
    let mut told = Vec::new();
    for (up, limit, bound) in [true, false].into_iter().flat_map(|up| {
        let limits = [1, 2, 16, 100, 299, 300, 301, 341, 348, 1000];
        limits.into_iter().flat_map(move |limit| [None, Some(5), Some(299)].map(|b| (up, limit, b)))
    }) {
        let order: Vec<usize> = if up { (0..5).collect() } else { (0..5).rev().collect() };
        let beyond: Vec<&Root> = order[1..].iter().map(|&t| trees[t].root()).collect();
        let bytes = bound.map(key);
        let from = bytes.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let direction = if up { Direction::Ascending } else { Direction::Descending };
        let mut scratch = Scratch::new();
        told.clear();
        let first = trees[order[0]];
        let found = |leaf| told.push(leaf);
        let more =
            first.walk_on(pm, (from, direction), &beyond, limit, &mut scratch, found).unwrap();
        let inside = |leaf: &u64| match bound {
            Some(bound) if leaf / 1000 == order[0] as u64 => {
                if up {
                    leaf % 1000 > bound
                } else {
                    leaf % 1000 < bound
                }
            }
            _ => true,
        };
        let mut want: Vec<u64> = all.iter().copied().filter(inside).collect();
        if !up {
            want.reverse();
        }
        let got: Vec<u64> = scratch.places().iter().map(|place| place.leaf).collect();
        assert_eq!(got, want[..want.len().min(limit)], "{up} {limit} {bound:?}");
        assert_eq!(more, want.len() >= limit, "{up} {limit} {bound:?}");
        assert!(got.iter().all(|leaf| told.contains(leaf)), "{up} {limit} {bound:?}");
    }
}

/// The leaf at a walk's bound is removed while its key is read: the key that was read is discarded.
#[test]
fn a_leaf_that_goes_while_a_walk_reads_its_key_is_not_met() {
    let pool = Pool::volatile(1 << 16).unwrap();
    let pm = pool.pm();
    let roots: Arena<Root> = Arena::new(1).unwrap();
    let nodes = Nodes::new(100).unwrap();
    let root = roots.get(roots.alloc().unwrap());
    let keys = |leaf: u64, key: &mut KeyBuf| -> Result<(), PmError> {
        key.push(&[leaf as u8; 2]);
        Ok(())
    };
    let plain = Tree::new(&nodes, root, &keys);
    for (key, leaf) in [([1u8, 1], 1), ([2, 2], 2), ([3, 3], 3)] {
        plain.insert(pm, &key, leaf).unwrap();
    }
    for fails in [true, false] {
        let racing = |leaf: u64, key: &mut KeyBuf| -> Result<(), PmError> {
            assert!(plain.remove_leaf(pm, &[2, 2], leaf).unwrap());
            key.push(&[2, 0]); // of another leaf, before the bound
            if fails { Err(PmError::Corrupt { what: "", offset: 0 }) } else { Ok(()) }
        };
        let tree = Tree::new(&nodes, root, &racing);
        let found = tree.ceiling(pm, &[2, 1]).unwrap().map(|place| place.leaf);
        assert_eq!(found, Some(3), "{fails}");
        plain.insert(pm, &[2, 2], 2).unwrap();
    }
}

#[test]
fn keys_out_of_order_are_refused_by_build() {
    struct Wrong(Vec<&'static [u8]>);
    impl Sorted for Wrong {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn key(&self, at: usize) -> &[u8] {
            self.0[at]
        }
        fn leaf(&self, at: usize) -> u64 {
            at as u64
        }
    }
    let nodes = Nodes::new(100).unwrap();
    let build = |keys: &[&'static [u8]]| nodes.builder().build(&Wrong(keys.to_vec()));
    assert!(build(&[b"", b"a", b"aa", b"ab", b"b"]).is_ok());
    for keys in [
        &[&b"a"[..], b"a"][..],
        &[b"b", b"a"],
        &[b"aa", b"a"],
        &[b"a", b"c", b"b", b"d"],
        &[b"aaaaaaaaaaaa", b"aaaaaaaaaaaa"],
        &[b"x", b"a", b"x"],
    ] {
        assert!(matches!(build(keys), Err(PmError::Corrupt { .. })), "{keys:?}");
    }
    let in_order = [2, 0, 0, 0]; // the tree of the keys in order
    assert_eq!(nodes.counts(), in_order, "what failed took nothing");
}

#[test]
fn a_build_without_room_takes_nothing() {
    let nodes = Nodes::new(1).unwrap();
    let mut builder = nodes.builder();
    let mut refused = false;
    for number in 0..2000_u32 {
        // Long common parts: nodes of one child above those of many.
        let key = [&b"a long part in common"[..], &number.to_be_bytes()].concat();
        let pushed = builder.push(&[&number.to_be_bytes()[..], &key, b"a"].concat(), 1);
        let pushed = pushed
            .and_then(|()| builder.push(&[&number.to_be_bytes()[..], &key, b"b"].concat(), 2));
        if let Err(error) = pushed {
            assert!(matches!(error, PmError::Full { .. }), "{error}");
            refused = true;
            break;
        }
    }
    assert!(refused);
    nodes.forget(&builder.finish().unwrap()); // nothing
    drop(builder);
    assert_eq!(nodes.counts(), [0; 4]);
}

proptest! {
    /// Of a key that is no prefix of the next one, a tree needs the bytes that distinguish it from its neighbours.
    #[test]
    fn a_build_needs_only_what_distinguishes_keys(
        keys in proptest::collection::btree_set(proptest::collection::vec(0u8..4, 0..30), 1..60),
    ) {
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let (nodes, roots) = (Nodes::new(1000).unwrap(), Arena::<Root>::new(2).unwrap());
        let pool = Pool::volatile(1 << 16).unwrap();
        let common = |one: &[u8], two: &[u8]| one.iter().zip(two).take_while(|(a, b)| a == b).count();
        let mut builder = nodes.builder();
        for (at, key) in keys.iter().enumerate() {
            let before = at.checked_sub(1).map_or(0, |before| common(&keys[before], key));
            let after = keys.get(at + 1).map_or(0, |after| common(key, after));
            builder.push(&key[..key.len().min(before.max(after) + 1)], at as u64).unwrap();
        }
        let built = builder.finish().unwrap();
        let root = roots.get(roots.alloc().unwrap());
        nodes.install(pool.pm(), root, &built);
        let load = |leaf: u64, key: &mut KeyBuf| -> Result<(), PmError> {
            key.push(&keys[leaf as usize]);
            Ok(())
        };
        let tree = Tree::new(&nodes, root, &load);
        for (at, key) in (0..).zip(&keys) {
            prop_assert_eq!(tree.get(pool.pm(), key).unwrap(), Some(at));
        }
        let whole = Tree::new(&nodes, roots.get(roots.alloc().unwrap()), &load);
        for (at, key) in (0..).zip(&keys) {
            whole.insert(pool.pm(), key, at).unwrap();
        }
        prop_assert_eq!(tree.height(pool.pm()), whole.height(pool.pm()));
    }
}
