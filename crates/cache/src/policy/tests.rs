//! Compares policies with models written directly from the papers: vectors that are searched linearly.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{Access, Lru, Policy, S3Fifo, TinyLfu, TwoQ};

#[derive(Clone, Debug)]
enum Op {
    Access(u8),
    Remove(u8),
    Pin(u8),
    Unpin(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let id = 0..14u8;
    let op = prop_oneof![
        12 => id.clone().prop_map(Op::Access),
        1 => id.clone().prop_map(Op::Remove),
        2 => id.clone().prop_map(Op::Pin),
        2 => id.prop_map(Op::Unpin),
    ];
    proptest::collection::vec(op, 1..300)
}

/// Counts pins, for the models.
#[derive(Default)]
struct Pins(HashMap<u8, u32>);

impl Pins {
    fn is_pinned(&self, id: u8) -> bool {
        self.0.get(&id).is_some_and(|&pins| pins > 0)
    }

    fn pin(&mut self, id: u8) {
        *self.0.entry(id).or_default() += 1;
    }

    /// Returns whether it was pinned, and whether it no longer is.
    fn unpin(&mut self, id: u8) -> (bool, bool) {
        let pins = self.0.entry(id).or_default();
        let was = *pins > 0;
        *pins = pins.saturating_sub(1);
        (was, was && *pins == 0)
    }
}

fn forget(queue: &mut Vec<u8>, id: u8) -> bool {
    let before = queue.len();
    queue.retain(|&other| other != id);
    queue.len() < before
}

/// Algorithm 3.1, line by line. The newest is the last of a vector.
struct Algorithm {
    am: Vec<u8>,
    a1: Vec<u8>,
    sizes: (usize, usize),
    pins: Pins,
    /// Removes promoted ids from A1.
    mended: bool,
}

impl Algorithm {
    fn new(am: usize, a1: usize, mended: bool) -> Self {
        Self { am: vec![], a1: vec![], sizes: (am, a1), pins: Pins::default(), mended }
    }

    fn a1_add(&mut self, id: u8) {
        self.a1.push(id);
        if self.a1.len() > self.sizes.1 {
            self.a1.remove(0);
        }
    }

    fn fix(&mut self, id: u8) -> Access<u8> {
        if forget(&mut self.am, id) {
            self.am.push(id);
            return Access::Hit;
        }
        let full = self.am.len() == self.sizes.0;
        if full && !self.a1.contains(&id) {
            self.a1_add(id);
            return Access::Below;
        }
        let mut evicted = None;
        if full {
            let Some(at) = self.am.iter().position(|&other| !self.pins.is_pinned(other)) else {
                return Access::Below;
            };
            if self.mended {
                forget(&mut self.a1, id);
            }
            let victim = self.am.remove(at);
            self.a1_add(victim);
            evicted = Some(victim);
        } else if self.mended {
            forget(&mut self.a1, id);
        }
        self.am.push(id);
        Access::Admitted { evicted }
    }
}

impl Policy<u8> for Algorithm {
    fn access(&mut self, id: u8) -> Access<u8> {
        self.fix(id)
    }
    fn contains(&self, id: u8) -> bool {
        self.am.contains(&id)
    }
    fn remove(&mut self, id: u8) -> bool {
        self.pins.0.remove(&id);
        forget(&mut self.a1, id);
        forget(&mut self.am, id)
    }
    fn pin(&mut self, id: u8) -> bool {
        let kept = self.contains(id);
        if kept {
            self.pins.pin(id);
        }
        kept
    }
    fn unpin(&mut self, id: u8) -> bool {
        let (was, free) = self.pins.unpin(id);
        if free && forget(&mut self.am, id) {
            self.am.push(id);
        }
        was
    }
    fn len(&self) -> usize {
        self.am.len()
    }
    fn capacity(&self) -> usize {
        self.sizes.0
    }
}

/// The three queues of S3-FIFO. The newest is the last of a vector.
struct Queues {
    ids: [Vec<u8>; 3],
    uses: HashMap<u8, u8>,
    sizes: (usize, usize, usize),
    pins: Pins,
}

impl Queues {
    fn new(capacity: usize) -> Self {
        let small = (capacity / 10).max(1);
        let sizes = (capacity, small, (capacity - small).max(1));
        Self { ids: Default::default(), uses: HashMap::new(), sizes, pins: Pins::default() }
    }

    fn oldest(&self, queue: usize) -> Option<u8> {
        self.ids[queue].iter().copied().find(|&id| !self.pins.is_pinned(id))
    }

    fn evict(&mut self) -> Option<u8> {
        loop {
            let main = self.oldest(1);
            let small = self.oldest(0);
            let small = small.filter(|_| main.is_none() || self.ids[0].len() >= self.sizes.1);
            let id = small.or(main)?;
            let uses = self.uses.entry(id).or_default();
            if small.is_some() {
                forget(&mut self.ids[0], id);
                if *uses > 1 {
                    *uses = 0;
                    self.ids[1].push(id);
                } else {
                    self.ids[2].push(id);
                    return Some(id);
                }
            } else {
                forget(&mut self.ids[1], id);
                if *uses == 0 {
                    return Some(id);
                }
                *uses -= 1;
                self.ids[1].push(id);
            }
        }
    }
}

impl Policy<u8> for Queues {
    fn access(&mut self, id: u8) -> Access<u8> {
        if self.contains(id) {
            let uses = self.uses.entry(id).or_default();
            *uses = (*uses + 1).min(3);
            return Access::Hit;
        }
        let mut evicted = None;
        if self.len() == self.sizes.0 {
            evicted = self.evict();
            if evicted.is_none() {
                return Access::Below;
            }
        }
        self.uses.insert(id, 0);
        let to = usize::from(forget(&mut self.ids[2], id));
        self.ids[to].push(id);
        if self.ids[2].len() > self.sizes.2 {
            self.ids[2].remove(0);
        }
        Access::Admitted { evicted }
    }
    fn contains(&self, id: u8) -> bool {
        self.ids[..2].iter().any(|queue| queue.contains(&id))
    }
    fn remove(&mut self, id: u8) -> bool {
        self.pins.0.remove(&id);
        forget(&mut self.ids[2], id);
        forget(&mut self.ids[0], id) | forget(&mut self.ids[1], id)
    }
    fn pin(&mut self, id: u8) -> bool {
        let kept = self.contains(id);
        if kept {
            self.pins.pin(id);
        }
        kept
    }
    fn unpin(&mut self, id: u8) -> bool {
        let (was, free) = self.pins.unpin(id);
        if free {
            for queue in &mut self.ids[..2] {
                if forget(queue, id) {
                    queue.push(id);
                }
            }
        }
        was
    }
    fn len(&self) -> usize {
        self.ids[0].len() + self.ids[1].len()
    }
    fn capacity(&self) -> usize {
        self.sizes.0
    }
}

fn same(policy: &mut dyn Policy<u8>, model: &mut dyn Policy<u8>, ops: &[Op]) {
    for (at, op) in ops.iter().enumerate() {
        match *op {
            Op::Access(id) => assert_eq!(policy.access(id), model.access(id), "{at}: {op:?}"),
            Op::Remove(id) => assert_eq!(policy.remove(id), model.remove(id), "{at}: {op:?}"),
            Op::Pin(id) => assert_eq!(policy.pin(id), model.pin(id), "{at}: {op:?}"),
            Op::Unpin(id) => assert_eq!(policy.unpin(id), model.unpin(id), "{at}: {op:?}"),
        }
        assert_eq!(policy.len(), model.len(), "{at}: {op:?}");
        assert!(policy.len() <= policy.capacity());
        (0..14).for_each(|id| assert_eq!(policy.contains(id), model.contains(id), "{at}: {id}"));
    }
}

proptest! {
    #[test]
    fn two_q_is_the_mended_algorithm(ops in ops(), am in 1..7usize, a1 in 1..5usize) {
        same(&mut TwoQ::with_ids(am, a1), &mut Algorithm::new(am, a1, true), &ops);
    }

    #[test]
    fn s3_fifo_is_its_queues(ops in ops(), capacity in 1..13usize) {
        same(&mut S3Fifo::new(capacity), &mut Queues::new(capacity), &ops);
    }

    #[test]
    fn tiny_lfu_answers_what_fits(ops in ops(), capacity in 1..13usize) {
        fits(&mut TinyLfu::new(capacity), &ops);
    }

    /// LRU is 2Q that promotes at once: with one id in A1, which is accessed twice.
    #[test]
    fn lru_keeps_what_was_used_last(ops in ops(), capacity in 1..7usize) {
        struct Used(Algorithm);
        impl Policy<u8> for Used {
            fn access(&mut self, id: u8) -> Access<u8> {
                match self.0.access(id) {
                    Access::Below => self.0.access(id),
                    other => other,
                }
            }
            fn contains(&self, id: u8) -> bool { self.0.contains(id) }
            fn remove(&mut self, id: u8) -> bool { self.0.remove(id) }
            fn pin(&mut self, id: u8) -> bool { self.0.pin(id) }
            fn unpin(&mut self, id: u8) -> bool { self.0.unpin(id) }
            fn len(&self) -> usize { self.0.len() }
            fn capacity(&self) -> usize { self.0.capacity() }
        }
        same(&mut Lru::new(capacity), &mut Used(Algorithm::new(capacity, 1, true)), &ops);
    }
}

/// W-TinyLFU has no model here: its answers must be consistent with its earlier ones.
fn fits(policy: &mut TinyLfu<u8>, ops: &[Op]) {
    let (mut kept, mut pins) = (std::collections::HashSet::new(), Pins::default());
    for (at, op) in ops.iter().enumerate() {
        match *op {
            Op::Access(id) => match policy.access(id) {
                Access::Hit => assert!(kept.contains(&id), "{at}: {op:?}"),
                Access::Admitted { evicted } => {
                    assert!(kept.insert(id), "{at}: {op:?}");
                    assert!(evicted.is_none_or(|old| kept.remove(&old) && !pins.is_pinned(old)));
                }
                Access::Below => {
                    assert!(!kept.contains(&id) && kept.iter().all(|&id| pins.is_pinned(id)));
                }
            },
            Op::Remove(id) => {
                pins.0.remove(&id);
                assert_eq!(policy.remove(id), kept.remove(&id), "{at}: {op:?}");
            }
            Op::Pin(id) => {
                assert_eq!(policy.pin(id), kept.contains(&id), "{at}: {op:?}");
                if kept.contains(&id) {
                    pins.pin(id);
                }
            }
            Op::Unpin(id) => assert_eq!(policy.unpin(id), pins.unpin(id).0, "{at}: {op:?}"),
        }
        assert!(policy.len() == kept.len() && kept.len() <= policy.capacity(), "{at}: {op:?}");
        (0..14).for_each(|id| assert_eq!(policy.contains(id), kept.contains(&id), "{at}: {id}"));
    }
}

/// As printed, the promoted `2` stays in A1, so that the victim `0` pushes out `1`, which was accessed and is
/// not kept: its next access counts as the first.
#[test]
fn the_algorithm_as_printed_forgets_a_block_that_is_asked_for_again() {
    let run = |policy: &mut dyn Policy<u8>| [0, 9, 1, 2, 2, 1].map(|id| policy.access(id));
    let mended = run(&mut TwoQ::with_ids(2, 2));
    assert_eq!(mended[4], Access::Admitted { evicted: Some(0) });
    assert_eq!(mended[5], Access::Admitted { evicted: Some(9) });
    assert_eq!(run(&mut Algorithm::new(2, 2, true)), mended);
    let printed = run(&mut Algorithm::new(2, 2, false));
    assert_eq!(printed[..5], mended[..5]);
    assert_eq!(printed[5], Access::Below);
}

/// Frequently used ids stay, whatever else is accessed once; former ones are forgotten in time.
#[test]
fn tiny_lfu_keeps_what_is_asked_for_often() {
    let mut policy = TinyLfu::new(100);
    let ask = |policy: &mut TinyLfu<u32>, hot: u32, rounds: u32| {
        (0..rounds).for_each(|round| {
            for id in (hot..hot + 50).chain((0..50).map(|n| 1000 + round * 50 + n)) {
                policy.access(id);
            }
        });
        (hot..hot + 50).filter(|&id| policy.contains(id)).count()
    };
    assert_eq!(ask(&mut policy, 0, 20), 50);
    assert_eq!(ask(&mut policy, 100, 60), 50);
    assert!((0..50).filter(|&id| policy.contains(id)).count() < 50, "none of them is forgotten");
}

#[test]
fn an_id_is_in_one_queue_and_there_is_at_least_one_place() {
    let mut policy = TwoQ::new(0);
    assert_eq!((policy.capacity(), policy.remembered()), (1, 0));
    assert_eq!(policy.access(1), Access::Admitted { evicted: None });
    assert_eq!(policy.access(2), Access::Below);
    assert_eq!(policy.remembered(), 1);
    assert_eq!(policy.access(2), Access::Admitted { evicted: Some(1) });
    assert_eq!(policy.remembered(), 1);
    assert!(policy.pin(2));
    assert_eq!(policy.access(1), Access::Below, "all are pinned");
    assert_eq!(policy.remembered(), 1);
    assert!(policy.unpin(2) && !policy.unpin(2));
    assert_eq!(policy.access(1), Access::Admitted { evicted: Some(2) });
    assert!(policy.remove(1) && !policy.remove(1) && policy.is_empty());
}
