//! Tests of reading a damaged index, and of the published code's mistake, which flushes a record's home line
//! even if the record is in one of the following lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_core::{Mapped, Medium, Pool, PoolOptions, Traced};
use pmindex_index::IndexError;

use crate::index::Cceh;
use crate::layout::{BASE, LINE_WORDS, position};
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

type Texts = Cceh<u64, String, Mapped, LINES, 4>;

/// Some values of records are zeros as long as a segment, whose blocks look like one.
fn value(n: u64) -> String {
    if n % 50 == 7 { "\0".repeat(960 + n as usize / 10) } else { "value ".repeat(n as usize % 9) }
}

/// An index of 600 records, and the offsets of its segments.
fn texts(pool: &Arc<Pool>) -> (Texts, Vec<u64>) {
    let index = Texts::create(pool, "index").expect("room");
    for n in 0..600 {
        index.put(&n, &value(n)).expect("room");
    }
    let mut segments = Vec::new();
    Texts::walk(pool, index.root().expect("a root"), |segment, _| {
        segments.push(segment.offset());
        Ok(())
    })
    .expect("a list");
    (index, segments)
}

/// Returns the number of records that are read without opening the index, and of errors.
fn salvaged(pool: &Arc<Pool>, foreign: Option<&dyn Fn(u64) -> bool>) -> (usize, usize) {
    let mut found = BTreeMap::new();
    let damage = Texts::salvage(pool, "index", foreign, &mut |key, value| {
        assert_eq!(found.insert(key, value), None, "{key} twice");
        true
    });
    assert!(found.iter().all(|(&key, found)| *found == value(key)));
    (found.len(), damage.expect("its name and types").len())
}

#[test]
fn records_behind_a_broken_list_are_salvaged() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let (index, segments) = texts(&pool);
    let broken = index.segment(segments[segments.len() / 2]).expect("a segment");
    pool.pm().store_word(broken.next_cell(), 64 * 7);
    drop(index);
    Texts::open(&pool, "index").expect_err("the list leads nowhere");
    let (found, damage) = salvaged(&pool, None);
    assert!((200..500).contains(&found) && damage > 0, "what the list still leads to: {found}");
    let (found, damage) = salvaged(&pool, Some(&|_| false));
    assert!(found == 600 && damage > 0, "and the segments behind it: {found}");
}

#[test]
fn a_value_that_looks_like_a_segment_hides_no_records() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let (index, segments) = texts(&pool);
    drop(index);
    assert_eq!(salvaged(&pool, Some(&|_| false)), (600, 0), "a whole index");
    // The blocks of a lost segment's records are live, and no segment that was found has them.
    for lost in [1, segments.len() / 3, segments.len() - 1] {
        let lost = Segment::<LINES, 4>::at(&pool, segments[lost]).expect("in bounds");
        let header = &lost.words()[..LINE_WORDS];
        let whole: Vec<u64> = header.iter().map(|word| pool.pm().load_word(word)).collect();
        for word in header {
            pool.pm().store_word(word, 0xa5a5);
        }
        let (found, damage) = salvaged(&pool, Some(&|_| false));
        let its = 4 * LINES;
        assert!((600 - its..600).contains(&found) && damage > 0, "{found}");
        for (word, old) in header.iter().zip(whole) {
            pool.pm().store_word(word, old);
        }
    }
}

/// The directory in DRAM has an array as long as the deepest segment needs: a file must not choose its length.
#[test]
fn a_segment_deeper_than_a_pool_can_have_is_corrupt() {
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let (index, _) = texts(&pool);
    for n in 600..2000 {
        index.put(&n, "").expect("room");
    }
    let mut segments = Vec::new();
    Texts::walk(&pool, index.root().expect("a root"), |segment, _| {
        segments.push(segment.offset());
        Ok(())
    })
    .expect("a list");
    // Each covers half of what the one after it covers.
    for deepest in [23, 24, 25, 32] {
        let bases = (1..=deepest).rev().map(|depth| 1u64 << (64 - depth));
        let mut next = 0;
        let list: Vec<u64> = [0].into_iter().chain(bases).collect();
        assert!(list.is_sorted() && list.len() <= segments.len());
        for (&base, &offset) in list.iter().zip(&segments).rev() {
            let segment = index.segment(offset).expect("in bounds");
            pool.pm().store_word(&segment.words()[BASE], base);
            pool.pm().store_word(segment.next_cell(), next);
            next = offset;
        }
        let walked = Texts::walk(&pool, index.root().expect("a root"), |_, _| Ok(()));
        assert_eq!(walked.is_ok(), deepest <= 24, "{deepest}: {walked:?}");
    }
    drop(index);
    assert!(Texts::open(&pool, "index").is_err());
}

/// Keys that were made alike, as someone may who knows the hash: the index refuses them before its directory grows
/// out of proportion.
#[test]
fn keys_made_alike_are_refused_while_the_directory_is_small() {
    type Tiny = Cceh<u64, u64, Mapped, 3, 2>;
    let pool = Arc::new(Pool::emulated(64 << 10).expect("memory"));
    let index = Tiny::create(&pool, "index").expect("room");
    let first = |key: &u64| Segment::<3, 2>::home(position(*key)) == 0;
    let alike: Vec<u64> =
        (0..).filter(|&key| position(key) >> 44 == 0x5_1234).filter(first).take(9).collect();
    for key in &alike[..8] {
        index.insert(key, &!key).expect("room in two lines");
    }
    let refused = index.insert(&alike[8], &0);
    assert!(matches!(refused, Err(IndexError::TooManyAlike { keys: 8 })), "{refused:?}");
    for key in &alike[..8] {
        assert_eq!(index.get(key), Ok(Some(!key)));
    }
    assert_eq!(index.check(), Ok(8));
    let dram = index.stats().expect("whole").dram_bytes;
    assert!(dram < 64 << 16, "{dram} bytes for a pool of 64 KiB");
    drop(index);
    assert_eq!(Tiny::open(&pool, "index").expect("whole").check(), Ok(8));
}
