//! What the paper's algorithms do to live values, and what this HART does instead.
//!
//! [`Paper`] is the persistent state of the paper's `EPallocator` and its Algorithms 1 to 3 as they
//! are printed, with one chunk of each kind. The same histories run on both.
#![forbid(unsafe_code)]

use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_hart::Hart;

type Small = Hart<u64, u128, Mapped, 4, 1>;

/// A leaf: key, and `p_value`, the slot of its value.
#[derive(Clone, Copy, Default)]
struct Leaf {
    key: u64,
    value: Option<usize>,
}

/// An update log (section III-B2).
#[derive(Clone, Copy)]
struct UpdateLog {
    leaf: usize,
    old: usize,
    new: usize,
}

#[derive(Default)]
struct Paper {
    leaves: [Leaf; 4],
    leaf_bits: [bool; 4],
    values: [u128; 4],
    value_bits: [bool; 4],
    log: Option<UpdateLog>,
}

impl Paper {
    /// Algorithm 2, for a leaf.
    fn malloc_leaf(&mut self) -> usize {
        let free = self.leaf_bits.iter().position(|bit| !bit).expect("a free leaf");
        if let Some(value) = self.leaves[free].value.filter(|&value| self.value_bits[value]) {
            self.value_bits[value] = false; // lines 13 and 14
        }
        self.leaves[free].value = None; // line 16
        free
    }

    /// Algorithm 2, for a value.
    fn malloc_value(&self) -> usize {
        self.value_bits.iter().position(|bit| !bit).expect("a free value")
    }

    /// Algorithm 1, of an absent key.
    fn insert(&mut self, key: u64, value: u128) {
        let leaf = self.malloc_leaf();
        let at = self.malloc_value();
        self.values[at] = value;
        self.leaves[leaf] = Leaf { key, value: Some(at) };
        self.value_bits[at] = true;
        self.leaf_bits[leaf] = true;
    }

    fn find(&self, key: u64) -> usize {
        (0..4).find(|&leaf| self.leaf_bits[leaf] && self.leaves[leaf].key == key).expect("the key")
    }

    fn get(&self, key: u64) -> u128 {
        self.values[self.leaves[self.find(key)].value.expect("a value")]
    }

    /// Algorithm 3, up to line 10: what is left is to reclaim the log.
    fn update_but_the_log(&mut self, key: u64, value: u128) {
        let leaf = self.find(key);
        let old = self.leaves[leaf].value.expect("a value");
        let new = self.malloc_value();
        self.values[new] = value;
        self.log = Some(UpdateLog { leaf, old, new });
        self.resume_update();
    }

    /// Lines 7 to 10.
    fn resume_update(&mut self) {
        let UpdateLog { leaf, old, new } = self.log.expect("a log");
        self.value_bits[new] = true;
        self.leaves[leaf].value = Some(new);
        self.value_bits[old] = false;
    }

    fn update(&mut self, key: u64, value: u128) {
        self.update_but_the_log(key, value);
        self.log = None;
    }

    /// Deletion (Algorithm 5): the bits are reset, `p_value` is not.
    fn remove(&mut self, key: u64) {
        let leaf = self.find(key);
        self.leaf_bits[leaf] = false;
        self.value_bits[self.leaves[leaf].value.expect("a value")] = false;
    }
}

fn small() -> (Arc<Pool>, Small) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Small::create(&pool, "small").expect("room");
    (pool, hart)
}

/// Key 2's new value takes the slot that key 1's dead leaf still points to; the next leaf that is
/// allocated is that one.
#[test]
fn a_dead_leaf_frees_no_live_value() {
    let mut paper = Paper::default();
    paper.insert(1, 10);
    paper.insert(2, 20);
    paper.remove(1);
    paper.update(2, 21);
    paper.insert(3, 30);
    assert_eq!(paper.get(2), 30, "as printed: key 3's value stands where key 2's was");

    let (pool, hart) = small();
    hart.try_insert(&1, &10).expect("room").expect("done");
    hart.try_insert(&2, &20).expect("room").expect("done");
    hart.remove(&1).expect("sound");
    hart.update(&2, &21).expect("room").expect("done");
    hart.try_insert(&3, &30).expect("room").expect("done");
    let check = |hart: &Small| {
        assert_eq!(hart.get(&2).expect("sound"), Some(21));
        assert_eq!(hart.get(&3).expect("sound"), Some(30));
        assert_eq!(hart.check().expect("whole"), 2);
    };
    check(&hart);
    drop(hart);
    check(&Small::open(&pool, "small").expect("recovered"));
}

/// The old value's slot is key 3's before the update's log is reclaimed; recovery resumes the update.
#[test]
fn a_resumed_update_frees_no_live_value() {
    let mut paper = Paper::default();
    paper.insert(1, 10);
    paper.update_but_the_log(1, 11);
    paper.insert(3, 30);
    paper.resume_update(); // a crash before line 11
    paper.insert(4, 40);
    assert_eq!(paper.get(3), 40, "as printed: key 4's value stands where key 3's was");

    let (pool, hart) = small();
    hart.try_insert(&1, &10).expect("room").expect("done");
    hart.update(&1, &11).expect("room").expect("done");
    hart.try_insert(&3, &30).expect("room").expect("done");
    drop(hart); // there is no log to resume
    let hart = Small::open(&pool, "small").expect("recovered");
    hart.try_insert(&4, &40).expect("room").expect("done");
    for (key, value) in [(1, 11), (3, 30), (4, 40)] {
        assert_eq!(hart.get(&key).expect("sound"), Some(value));
    }
    assert_eq!(hart.check().expect("whole"), 3);
    pool.audit(hart.blocks().expect("known").into_iter()).expect("nothing lost, nothing twice");
}
