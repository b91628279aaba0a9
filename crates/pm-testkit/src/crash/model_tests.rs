//! Compares the memory model with images written down by hand.

use std::collections::BTreeSet;

use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_core::{Flushed, Medium, PPtr, PmU64, Traced};

use super::image::{Coverage, Images};
use super::memory::{Memory, Persistency, word_hash};
use super::mutate::{Change, Mutation};
use super::rng::Rng;
use super::schedule::interleave;
use super::site::Site;

/// The words that the tests watch: two on one line, one on another line, one on another page.
const WATCHED: [usize; 4] = [512, 513, 520, 1024];

struct Bench {
    space: Space,
    pm: Traced,
}

impl Bench {
    fn new() -> Self {
        let space = Space::new(16 << 10, 16 << 10);
        space.record(true);
        Self { pm: space.medium(), space }
    }

    fn word(&self, i: usize) -> &PmU64 {
        self.space.get(PPtr::new(8 * WATCHED[i] as u64)).unwrap()
    }

    fn store(&self, i: usize, value: u64) {
        self.pm.store(self.word(i), value);
    }

    fn flush(&self, i: usize) -> Flushed {
        self.pm.flush(self.word(i))
    }

    fn fence(&self) {
        self.pm.fence(Flushed::nothing()).unwrap();
    }

    /// Returns the values that the watched words may have after a crash at the end.
    fn images(&self, kind: Persistency) -> BTreeSet<[u64; 4]> {
        self.images_of_mutant(kind, None)
    }

    /// Does the same as [`images`](Self::images), with the only barrier dropped.
    fn images_without_barrier(&self, kind: Persistency) -> BTreeSet<[u64; 4]> {
        let barrier = |event: &Event| event.kind == EventKind::InOrder;
        let site =
            self.space.with_trace(|trace| trace.iter().find(|e| barrier(e)).and_then(Site::of));
        let site = site.expect("a barrier");
        self.images_of_mutant(kind, Some(Mutation { site, change: Change::Drop }))
    }

    fn images_of_mutant(
        &self,
        kind: Persistency,
        mutation: Option<Mutation>,
    ) -> BTreeSet<[u64; 4]> {
        let trace = self.space.with_trace(<[_]>::to_vec);
        self.space.undo();
        let mut memory = Memory::new();
        memory.begin(&self.space, 2048, kind, mutation, 0);
        for event in &trace {
            memory.apply(&self.space, event).unwrap();
        }
        self.images_at(&mut memory)
    }

    /// Returns the values that the watched words may have now.
    fn images_at(&self, memory: &mut Memory) -> BTreeSet<[u64; 4]> {
        let mut images = Images::default();
        let coverage = images.derive(memory, &self.space, 1 << 12, 0, &mut Rng::new(1));
        assert_eq!(coverage, Coverage::Exhaustive);
        let mut found = BTreeSet::new();
        for i in 0..images.hashes.len() {
            let mut overwritten = Vec::new();
            images.apply(memory, &self.space, i, &mut overwritten);
            let values = WATCHED.map(|word| self.space.peek(word));
            let hash = WATCHED.iter().zip(values).fold(0, |hash, (&word, value)| {
                hash ^ word_hash(word as u32, 0) ^ word_hash(word as u32, value)
            });
            assert_eq!(images.hashes[i], hash, "the hash of an image is that of its words");
            assert!(found.insert(values), "{values:?} twice");
            for (word, old) in overwritten.into_iter().rev() {
                self.space.poke(word as usize, old);
            }
        }
        memory.roll_back(&self.space);
        assert!(self.space.snapshot().iter().all(|&word| word == 0), "rolled back");
        found
    }
}

fn set<const N: usize>(images: [[u64; 4]; N]) -> BTreeSet<[u64; 4]> {
    images.into_iter().collect()
}

#[test]
fn stores_to_a_line_persist_as_a_prefix() {
    let bench = Bench::new();
    bench.store(0, 1);
    bench.store(1, 2);
    bench.store(0, 3);
    assert_eq!(
        bench.images(Persistency::Lines),
        set([[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0], [3, 2, 0, 0]])
    );
}

#[test]
fn stores_to_a_line_persist_in_any_order_but_for_barriers() {
    let program = |barrier: bool| {
        let bench = Bench::new();
        bench.store(0, 1);
        if barrier {
            bench.pm.in_order();
        }
        bench.store(1, 2);
        bench.store(2, 3);
        bench
    };
    let line = [[0, 0], [1, 0], [1, 2]];
    let with = |line: [u64; 2]| [[line[0], line[1], 0, 0], [line[0], line[1], 3, 0]];
    let ordered: BTreeSet<_> = line.into_iter().flat_map(with).collect();
    let any: BTreeSet<_> = ordered.iter().copied().chain(with([0, 2])).collect();
    assert_eq!(program(true).images(Persistency::Lines), ordered);
    assert_eq!(program(false).images(Persistency::Lines), ordered);
    assert_eq!(program(true).images(Persistency::Barriers), ordered);
    assert_eq!(program(false).images(Persistency::Barriers), any);
    assert_eq!(program(true).images_without_barrier(Persistency::Barriers), any);
    assert_eq!(program(true).images_without_barrier(Persistency::Lines), ordered);
}

#[test]
fn lines_are_independent_and_pages_and_store_buffers_are_not() {
    let program = || {
        let bench = Bench::new();
        bench.store(0, 1);
        bench.store(2, 2);
        bench
    };
    let ordered = set([[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 2, 0]]);
    let mut independent = ordered.clone();
    independent.insert([0, 0, 2, 0]);
    assert_eq!(program().images(Persistency::Lines), independent);
    assert_eq!(program().images(Persistency::Pages), ordered);
    assert_eq!(program().images(Persistency::Eadr), ordered);
    let bench = program();
    bench.store(3, 3);
    let pages = bench.images(Persistency::Pages);
    assert!(pages.contains(&[0, 0, 0, 3]) && !pages.contains(&[0, 0, 2, 3]));
}

#[test]
fn a_flush_counts_with_the_later_fence_and_covers_what_was_before_it() {
    let bench = Bench::new();
    bench.store(0, 1);
    let _ = bench.flush(0);
    bench.store(1, 2);
    assert_eq!(bench.images(Persistency::Lines).len(), 3, "no fence yet: nothing is sure");
    bench.store(0, 1);
    let _ = bench.flush(0);
    bench.store(1, 2);
    bench.fence();
    assert_eq!(bench.images(Persistency::Lines), set([[1, 0, 0, 0], [1, 2, 0, 0]]));
}

#[test]
fn a_fence_without_a_flush_makes_nothing_durable_but_with_persistent_caches_all() {
    let program = || {
        let bench = Bench::new();
        bench.store(0, 1);
        bench.store(2, 2);
        bench.fence();
        bench
    };
    assert_eq!(program().images(Persistency::Lines).len(), 4);
    assert_eq!(program().images(Persistency::Pages).len(), 3);
    assert_eq!(program().images(Persistency::Eadr), set([[1, 0, 2, 0]]));
}

#[test]
fn a_page_is_written_back_whole() {
    let bench = Bench::new();
    bench.store(0, 1);
    bench.store(2, 2);
    let _ = bench.flush(0);
    bench.fence();
    assert_eq!(bench.images(Persistency::Pages), set([[1, 0, 2, 0]]));
}

#[test]
fn words_of_a_copy_persist_in_any_subset() {
    let program = |stream: bool| {
        let bench = Bench::new();
        let words = bench.space.get(PPtr::<[PmU64; 2]>::new(4096)).unwrap();
        if stream {
            let _ = bench.pm.stream_words(words, &[1, 2]);
        } else {
            bench.pm.write_words(words, &[1, 2]);
        }
        bench
    };
    let any = set([[0, 0, 0, 0], [1, 0, 0, 0], [0, 2, 0, 0], [1, 2, 0, 0]]);
    let all = set([[1, 2, 0, 0]]);
    for kind in [Persistency::Lines, Persistency::Eadr, Persistency::Pages] {
        assert_eq!(program(true).images(kind), any, "{kind:?}");
        assert_eq!(program(false).images(kind), any, "{kind:?}");
        let streamed = program(true);
        streamed.fence();
        assert_eq!(streamed.images(kind), all, "{kind:?}: a fence covers what was streamed");
    }
    let copied = program(false);
    copied.fence();
    assert_eq!(copied.images(Persistency::Lines), any, "a copy in the caches needs a flush");
    let copied = program(false);
    let _ = copied.flush(0);
    copied.fence();
    assert_eq!(copied.images(Persistency::Lines), all);
}

/// The line of a copy, by another thread, whose fence the one that copied has not come to. What is streamed is in no
/// cache.
#[test]
fn a_reader_makes_the_line_of_a_copy_durable_but_no_other_line_of_it() {
    for kind in [Persistency::Lines, Persistency::Eadr, Persistency::Barriers] {
        let program = |flushed: usize| {
            let bench = Bench::new();
            let near = bench.space.get(PPtr::<[PmU64; 2]>::new(4096)).unwrap();
            let far = bench.space.get(PPtr::<[PmU64; 1]>::new(8 * WATCHED[2] as u64)).unwrap();
            bench.pm.write_words(near, &[1, 2]);
            bench.pm.write_words(far, &[3]);
            let panics = interleave(1, 0, |_| {
                let _ = bench.flush(flushed);
                bench.fence();
            });
            assert_eq!(panics, [None]);
            bench
        };
        let near = set([[1, 2, 0, 0], [1, 2, 3, 0]]);
        assert_eq!(program(0).images(kind), near, "{kind:?}");
        let far = set([[0, 0, 3, 0], [1, 0, 3, 0], [0, 2, 3, 0], [1, 2, 3, 0]]);
        assert_eq!(program(2).images(kind), far, "{kind:?}");
    }
}

#[test]
fn a_read_modify_write_is_an_ordinary_store() {
    let bench = Bench::new();
    bench.store(0, 1);
    let _ = bench.flush(0);
    bench.pm.cas(bench.word(2), 0, 5).unwrap();
    assert_eq!(
        bench.images(Persistency::Lines),
        set([[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 5, 0], [1, 0, 5, 0]])
    );
}

#[test]
fn durable_words_never_go_back() {
    let bench = Bench::new();
    bench.store(0, 1);
    bench.store(1, 1);
    let words = bench.space.get(PPtr::<[PmU64; 1]>::new(4096)).unwrap();
    // a newer value of word 0 becomes durable before the older ones of its line
    let _ = bench.pm.stream_words(words, &[7]);
    bench.fence();
    assert_eq!(bench.images(Persistency::Lines), set([[7, 0, 0, 0], [7, 1, 0, 0]]));
}

#[test]
fn many_pending_lines_give_the_adversarial_mix() {
    let bench = Bench::new();
    let lines = bench.space.get(PPtr::<[PmU64; 256]>::new(4096)).unwrap();
    for (i, word) in lines.iter().step_by(8).enumerate() {
        bench.pm.store(word, i as u64 + 1);
    }
    let trace = bench.space.with_trace(<[_]>::to_vec);
    bench.space.undo();
    let mut memory = Memory::new();
    memory.begin(&bench.space, 2048, Persistency::Lines, None, 0);
    for event in &trace {
        memory.apply(&bench.space, event).unwrap();
    }
    let mut images = Images::default();
    let coverage = images.derive(&mut memory, &bench.space, 64, 8, &mut Rng::new(1));
    assert_eq!(coverage, Coverage::Sampled);
    let mut persisted = Vec::new();
    for i in 0..images.hashes.len() {
        let mut overwritten = Vec::new();
        images.apply(&memory, &bench.space, i, &mut overwritten);
        persisted.push((0..32).filter(|l| bench.space.peek(512 + 8 * l) != 0).collect::<Vec<_>>());
        for (word, old) in overwritten.into_iter().rev() {
            bench.space.poke(word as usize, old);
        }
    }
    assert!(persisted.contains(&vec![]) && persisted.contains(&(0..32).collect()));
    for line in 0..32 {
        assert!(persisted.contains(&vec![line]), "line {line} alone");
        assert!(persisted.contains(&(0..32).filter(|&l| l != line).collect()), "all but {line}");
    }
}

#[test]
fn a_dead_process_leaves_its_stores_to_the_next_flush_and_none_to_the_next_fence() {
    for (kind, kept) in [(Persistency::Lines, false), (Persistency::Eadr, true)] {
        let bench = Bench::new();
        bench.store(0, 1);
        let _ = bench.flush(0); // the process that started it dies: no fence of another process completes it
        bench.store(2, 2);
        let dead = bench.space.trace_len();
        bench.fence();
        let _ = bench.flush(2);
        bench.fence();
        let trace = bench.space.with_trace(<[_]>::to_vec);
        bench.space.undo();
        let (mut before, mut after) = (Memory::new(), Memory::new());
        before.begin(&bench.space, 2048, kind, None, 0);
        for event in &trace[..dead] {
            before.apply(&bench.space, event).unwrap();
        }
        let mut shown = Vec::new();
        before.show_caches(&bench.space, &mut shown);
        let caches = WATCHED.map(|word| bench.space.peek(word));
        assert_eq!(caches, [1, 0, 2, 0], "the next process finds everything");
        for (word, old) in shown.into_iter().rev() {
            bench.space.poke(word as usize, old);
        }
        after.begin_after(&bench.space, 2048, &before);
        for event in &trace[dead..] {
            after.apply(&bench.space, event).unwrap();
        }
        let durable = WATCHED.map(|word| bench.space.peek(word));
        assert_eq!(durable, [u64::from(kept), 0, 2, 0], "{kind:?}");
        assert_eq!(after.dirty.is_empty(), kept, "{kind:?}");
        after.roll_back(&bench.space);
        assert_eq!(WATCHED.map(|word| bench.space.peek(word)), [0; 4]);
    }
}

#[test]
fn a_write_back_makes_everything_durable() {
    for kind in [Persistency::Lines, Persistency::Eadr, Persistency::Pages] {
        let bench = Bench::new();
        for word in 0..4 {
            bench.store(word, 1);
        }
        bench.pm.written_back();
        bench.store(0, 2);
        assert_eq!(bench.images(kind), [[1, 1, 1, 1], [2, 1, 1, 1]].into(), "{kind:?}");
    }
}

#[test]
fn what_the_next_process_stores_comes_after_what_the_dead_one_stored() {
    let bench = Bench::new();
    bench.store(0, 1);
    let dead = bench.space.trace_len();
    bench.store(1, 2);
    let trace = bench.space.with_trace(<[_]>::to_vec);
    bench.space.undo();
    let (mut before, mut after) = (Memory::new(), Memory::new());
    before.begin(&bench.space, 2048, Persistency::Barriers, None, 0);
    for event in &trace[..dead] {
        before.apply(&bench.space, event).unwrap();
    }
    after.begin_after(&bench.space, 2048, &before);
    for event in &trace[dead..] {
        after.apply(&bench.space, event).unwrap();
    }
    assert_eq!(bench.images_at(&mut after), set([[0; 4], [1, 0, 0, 0], [1, 2, 0, 0]]));
}
