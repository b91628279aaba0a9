//! Tests of reading a damaged index, and of the published code's mistake, which flushes a record's home line
//! even if the record is in one of the following lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_core::{Mapped, Medium, Pool, PoolOptions, Traced};

use crate::index::Cceh;
use crate::layout::{LINE_WORDS, position};
use crate::segment::Segment;

const LINES: usize = 15;
type Index = Cceh<u64, u64, Traced, LINES, 4>;

/// The words on the medium: those of lines that were flushed since they were stored.
struct Flushed {
    stored: Vec<u64>,
    durable: Vec<u64>,
}

impl Flushed {
    fn apply(&mut self, event: &Event) {
        let word = event.word as usize;
        if event.kind.writes() {
            self.stored[word] = event.value;
        }
        match event.kind {
            EventKind::Flush => {
                let line = word / LINE_WORDS * LINE_WORDS..(word / LINE_WORDS + 1) * LINE_WORDS;
                self.durable[line.clone()].copy_from_slice(&self.stored[line]);
            }
            EventKind::Stream => self.durable[word] = event.value,
            _ => {}
        }
    }
}

/// Inserts records one by one and cuts the power. `flushes` decides whether the line of a pair is flushed,
/// given that line and the home line of the key. Returns the number of lost records.
fn lost(flushes: impl Fn(u64, u64) -> bool) -> usize {
    const RECORDS: u64 = 90;
    let key = |n: u64| n << 32 | n;
    let options = PoolOptions::new().size(1 << 20).grow(false);
    let len = options.created_size().expect("a size") as usize;
    let space = Space::new(len, len);
    let pool = Arc::new(Pool::create_traced(&space, &options).expect("created"));
    let index = Index::create(&pool, "index").expect("room");
    let mut medium = Flushed { stored: space.snapshot(), durable: space.snapshot() };
    space.record(true);
    for n in 0..RECORDS {
        let position = position(key(n));
        let segment = index.directory.find(position).segment();
        index.try_insert(&key(n), &n).expect("room").expect("new");
        let split = index.directory.find(position).segment() != segment;
        let home = segment / 64 + 1 + Segment::<'_, LINES, 4>::home(position) as u64;
        for event in space.take_trace() {
            let line = u64::from(event.word) / LINE_WORDS as u64;
            let of_segment = (segment / 64 + 1..=segment / 64 + LINES as u64).contains(&line);
            let of_pair = event.kind == EventKind::Flush && of_segment && !split;
            if !of_pair || flushes(line, home) {
                medium.apply(&event);
            }
        }
    }
    space.record(false);
    drop((index, pool));
    space.restore(&medium.durable);
    let pool = Arc::new(Pool::open_traced(&space, &options).expect("opened"));
    let index = Index::open(&pool, "index").expect("opened");
    let gone = |&n: &u64| index.get(&key(n)).expect("sound") != Some(n);
    (0..RECORDS).filter(gone).count()
}

#[test]
fn the_line_that_was_written_is_flushed_not_the_home_line() {
    assert_eq!(lost(|_, _| true), 0);
    let away = lost(|line, home| line == home);
    assert!((1..90).contains(&away), "records away from home are lost, and no others: {away}");
}

#[test]
fn records_behind_a_broken_list_are_salvaged() {
    type Index = Cceh<u64, String, Mapped, LINES, 4>;
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let index = Index::create(&pool, "index").expect("room");
    let value = |n: u64| "value ".repeat(n as usize % 9);
    for n in 0..600 {
        index.put(&n, &value(n)).expect("room");
    }
    let mut segments = Vec::new();
    Index::walk(&pool, index.root().expect("a root"), |segment, _| {
        segments.push(segment.offset());
        Ok(())
    })
    .expect("a list");
    let broken = index.segment(segments[segments.len() / 2]).expect("a segment");
    pool.pm().store_word(broken.next_cell(), 64 * 7);
    drop(index);
    Index::open(&pool, "index").expect_err("the list leads nowhere");
    let salvaged = |foreign: Option<&dyn Fn(u64) -> bool>| {
        let mut found = BTreeMap::new();
        let damage = Index::salvage(&pool, "index", foreign, &mut |key, value| {
            assert_eq!(found.insert(key, value), None, "{key} twice");
            true
        });
        assert_ne!(damage.expect("its name and types").len(), 0);
        assert!(found.iter().all(|(&key, found)| *found == value(key)));
        found.len()
    };
    assert!((200..500).contains(&salvaged(None)), "what the list still leads to");
    assert_eq!(salvaged(Some(&|_| false)), 600, "and the segments behind it");
}
