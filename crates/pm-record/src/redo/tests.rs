//! Two threads at one ring, one of them parked between the names of the blocks and the entry; and damaged rings.

use std::cell::RefCell;
use std::sync::mpsc;
use std::time::Duration;

use pmindex_core::{PPtr, Pool};

use super::*;

std::thread_local! {
    /// Run once by this thread, when the ring has the new name and the medium not yet the entry.
    static NAMED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A point of the replacement that a test can park a thread at.
pub(super) fn named() {
    if let Some(run) = NAMED.take() {
        run();
    }
}

/// A pool without an index: where the root's word, the log and three records with values of 40 bytes are.
struct Places {
    pool: Pool,
    cell: u64,
    log: u64,
    records: [u64; 3],
}

impl Places {
    fn new() -> Self {
        let pool = Pool::counting(1 << 20).expect("memory");
        let init = |root: &[PmU64; 5]| {
            for cell in root {
                pool.pm().store_word(cell, 0);
            }
            pool.pm().flush_words(root)
        };
        let index = pool.create_index("t", *b"test    ", 0, init).expect("room");
        let cell = index.root::<[PmU64; 5]>().offset();
        drop(index);
        // Blocks, to which the words of the root lead.
        let make = |nth: u64, bytes| {
            let cell = &pool.words(cell, 5).expect("in bounds")[nth as usize];
            let mut op = pool.op().expect("a slot");
            let block = op.reserve_bytes(bytes, LINE as u64).expect("room");
            let offset = block.ptr().offset();
            op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })
                .expect("room");
            op.prepare(Flushed::nothing()).expect("memory");
            link(&pool, op, cell, offset).expect("memory");
            offset
        };
        let log = make(0, 8 * WORDS as u64);
        let records = [1, 2, 3].map(|nth| make(nth, RecordBlock::size_for(3, 200)));
        let places = Self { pool, cell, log, records };
        places.store(&[entry::fresh_ring(); RINGS].concat());
        places.records.iter().for_each(|&record| places.fill(record, 1));
        places
    }

    fn cell(&self) -> &PmU64 {
        &self.pool.words(self.cell, 1).expect("in bounds")[0]
    }

    fn log(&self) -> &[PmU64] {
        self.pool.words(self.log, WORDS).expect("in bounds")
    }

    /// Returns the first words of the log.
    fn words(&self, count: usize) -> Vec<u64> {
        self.log()[..count].iter().map(|cell| self.pool.pm().load_word(cell)).collect()
    }

    /// Overwrites the first words of the log.
    fn store(&self, words: &[u64]) {
        self.log().iter().zip(words).for_each(|(cell, &w)| self.pool.pm().store_word(cell, w));
    }

    fn fill(&self, record: u64, byte: u8) {
        RecordBlock::fill(&self.pool, PPtr::new(record), b"key", &[byte; 40]).expect("in bounds");
    }

    /// Makes it a record with a value of 200 bytes, which takes 4 lines of an entry.
    fn fill_long(&self, record: u64, byte: u8) {
        RecordBlock::fill(&self.pool, PPtr::new(record), b"key", &[byte; 200]).expect("in bounds");
    }

    fn value(&self, record: u64) -> Vec<u8> {
        RecordBlock::at(&self.pool, record).expect("intact").value(self.pool.pm())
    }

    fn open(&self) -> Result<(RedoLog, bool), PmError> {
        RedoLog::open(&self.pool, self.cell())
    }

    fn replace(&self, log: &RedoLog, record: u64, byte: u8) -> bool {
        log.replace(&self.pool, self.cell(), record, &[byte; 40]).expect("intact")
    }

    /// Replaces a value of 200 bytes.
    fn replace_long(&self, log: &RedoLog, record: u64, byte: u8) -> bool {
        log.replace(&self.pool, self.cell(), record, &[byte; 200]).expect("intact")
    }
}

/// Parks the update whose entry overwrites that of record A, and has another thread do something to A by then. Once
/// that has happened, and no sooner, the block may hold another record: recovery must not touch it, whether or not the
/// update was lost.
fn parked(other: fn(&RedoLog, &Places, u64)) {
    let places = Places::new();
    let [a, b, c] = places.records;
    let (log, _) = places.open().expect("intact");
    LAST.set(1);
    assert!(places.replace(&log, a, 2) && places.replace(&log, b, 2));
    let (parks, is_parked) = mpsc::channel();
    let (goes_on, go_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (log, places) = (&log, &places);
        scope.spawn(move || {
            LAST.set(1);
            NAMED.set(Some(Box::new(move || {
                parks.send(()).expect("the test waits");
                // Until the other thread is through, or waits for the ring.
                let _ = go_on.recv_timeout(Duration::from_millis(300));
            })));
            assert!(places.replace(log, c, 3));
        });
        is_parked.recv().expect("the ring is locked");
        LAST.set(0); // recovery looks at the ring of the parked thread after this one
        other(log, places, a);
        // A crash now: what is on the medium is stored by recovery.
        let held = places.value(a);
        places.open().expect("intact");
        assert_eq!(places.value(a), held);
        let _ = goes_on.send(());
    });
}

#[test]
fn a_block_is_named_until_the_entry_that_overwrites_its_own_is_durable() {
    parked(|log, places, a| {
        log.leave(&places.pool, a).expect("intact");
        places.fill(a, 9);
    });
}

#[test]
fn no_other_ring_takes_a_block_whose_entry_is_still_valid() {
    parked(|log, places, a| {
        if !places.replace(log, a, 9) {
            log.leave(&places.pool, a).expect("intact");
            places.fill(a, 9);
        }
    });
}

#[test]
fn two_threads_that_replace_one_value_in_turn_take_one_ring() {
    let places = Places::new();
    let a = places.records[0];
    let (log, _) = places.open().expect("intact");
    for (ring, byte) in [(0, 2), (5, 3), (0, 4), (7, 5)] {
        LAST.set(ring);
        assert!(places.replace(&log, a, byte));
    }
    let numbers = log.rings.each_ref().map(|ring| ring.number.load(Relaxed));
    assert_eq!(numbers, [4, 0, 0, 0, 0, 0, 0, 0]);
    log.check(&places.pool).expect("whole");
}

/// Words that damage leaves.
fn damages(word: u64) -> impl Iterator<Item = u64> {
    let bits = (0..64).step_by(3).map(move |bit| word ^ 1 << bit);
    bits.chain([0, 1, 2, u64::MAX, entry::LAST, entry::LAST + 1, 1 << 63, word.wrapping_add(1)])
}

#[test]
fn no_damaged_bit_of_a_seal_makes_a_void_ring_count() {
    let places = Places::new();
    let [a, b, _] = places.records;
    let (log, _) = places.open().expect("intact");
    LAST.set(0);
    assert!(places.replace(&log, a, 2) && places.replace(&log, b, 3));
    let _ = places.open().expect("intact");
    let void = places.words(WORDS);
    for at in (0..RING_WORDS).step_by(8) {
        for bit in 0..64 {
            places.store(&void);
            places.fill(a, 7);
            places.fill(b, 7);
            places.pool.pm().store_word(&places.log()[at], void[at] ^ 1 << bit);
            let opened = places.open().map(drop);
            assert!(matches!(opened, Ok(()) | Err(PmError::Corrupt { .. })), "{opened:?}");
            assert_eq!([a, b].map(|record| places.value(record)), [[7; 40]; 2], "{at}: {bit}");
        }
    }
}

/// Damages each word of a ring whose last two updates are not in place: each of them is there, or damage is told.
fn damaged(update: impl Fn(&Places, &RedoLog)) {
    let places = Places::new();
    let [a, b, c] = places.records;
    places.records.iter().for_each(|&record| places.fill_long(record, 7));
    let (log, _) = places.open().expect("intact");
    LAST.set(0);
    update(&places, &log);
    let whole = places.words(WORDS);
    let mut told = 0;
    for at in 0..2 * RING_WORDS {
        for damage in damages(whole[at]).filter(|damage| *damage != whole[at]) {
            places.store(&whole);
            for record in [a, b, c] {
                places.fill_long(record, 7);
            }
            places.pool.pm().store_word(&places.log()[at], damage);
            let (redone, damages) = Redone::read(&places.pool, places.cell());
            let opened = places.open();
            match &opened {
                Ok((log, _)) => {
                    log.check(&places.pool).expect("whole");
                    // Whatever number it goes on with, it takes the next ones or none.
                    for n in 0..3 {
                        places.replace_long(log, c, n);
                    }
                    assert!(places.open().is_ok(), "{at}: {damage:x}");
                    places.fill_long(c, 7);
                }
                Err(PmError::Corrupt { .. }) => told += 1,
                Err(error) => panic!("word {at} is {damage:x}: {error}"),
            }
            assert_eq!(opened.is_err(), !damages.is_empty(), "{at}: {damage:x}");
            for (record, new) in [(a, 2), (b, 3), (c, 7)] {
                // All of the value that the log says or, if damage is told, all of the old one; what is salvaged is
                // never another.
                let salvaged = redone.value(&places.pool, record).expect("a block");
                assert!(salvaged.is_none_or(|value| value == [new; 200]), "{at}: {damage:x}");
                let wanted = if opened.is_ok() { new } else { 7 };
                assert_eq!(places.value(record), [wanted; 200], "{at}: {damage:x}");
            }
        }
    }
    assert!(told > 400, "{told}");
}

#[test]
fn damage_is_told_or_does_nothing_whatever_word_of_a_fresh_ring_it_hits() {
    damaged(|places, log| {
        let [a, b, _] = places.records;
        assert!(places.replace_long(log, a, 2) && places.replace_long(log, b, 3));
    });
}

#[test]
fn damage_is_told_or_does_nothing_whatever_word_of_a_used_ring_it_hits() {
    damaged(|places, log| {
        let [a, b, c] = places.records;
        for byte in [9, 8, 7] {
            assert!(places.replace_long(log, c, byte));
        }
        assert!(places.replace_long(log, a, 2) && places.replace_long(log, b, 3));
    });
}

#[test]
fn lines_of_zeros_and_lines_of_an_earlier_entry_are_damage() {
    let places = Places::new();
    let [a, b, c] = places.records;
    let (log, _) = places.open().expect("intact");
    LAST.set(0);
    assert!(places.replace(&log, a, 2) && places.replace(&log, b, 2));
    let earlier = places.words(RING_WORDS);
    assert!(places.replace(&log, c, 3) && places.replace(&log, a, 3));
    let whole = places.words(RING_WORDS);
    let stays = |words: &[u64], line: &str| {
        places.store(words);
        assert!(matches!(places.open(), Err(PmError::Corrupt { .. })), "{line}");
    };
    // Of the entry numbers 3 and 4, which stand at 4 and 0, both of one line.
    for line in [0, 4] {
        let mut words = whole.clone();
        words[line * 8..][..8].fill(0);
        stays(&words, "zeros");
        stays(&[0; RING_WORDS], "all zeros");
    }
    // Entry number 3 was durable before number 4 was begun.
    let mut words = whole.clone();
    words[4 * 8..][..8].copy_from_slice(&earlier[4 * 8..][..8]);
    stays(&words, "the earlier line");
    places.store(&whole);
    assert!(places.open().expect("intact").1);
}

/// Opens what a crash can leave of the entry of C: each of its lines as it was, stored in part, or new. The one before
/// it, of B, counts if the ring is not void.
fn torn(places: &Places, before: &[u64], after: &[u64], is_void: bool) {
    let [a, b, c] = places.records;
    let changed: Vec<usize> = (0..RING_WORDS / 8)
        .filter(|line| before[line * 8..][..8] != after[line * 8..][..8])
        .collect();
    assert_eq!(changed.len(), 4);
    for state in 0..3_usize.pow(4) {
        let mut words = before.to_vec();
        for (nth, line) in changed.iter().enumerate() {
            let new = &after[line * 8..][..8];
            let line = &mut words[line * 8..][..8];
            match state / 3_usize.pow(nth as u32) % 3 {
                0 => {}
                1 => {
                    line[1..4].copy_from_slice(&new[1..4]);
                    line[0] = entry::in_part(new[0]);
                }
                _ => line.copy_from_slice(new),
            }
        }
        places.store(&words);
        places.fill(a, 7);
        places.fill_long(b, 7);
        places.fill_long(c, 7);
        let (_, redone) = places.open().expect("a crash is no damage");
        let is_new = words == after;
        assert_eq!(redone, !is_void || is_new, "{state}");
        let wanted = [if is_void { 7 } else { 3 }, if is_new { 4 } else { 7 }];
        assert_eq!([b, c].map(|record| places.value(record)[0]), wanted, "{state}");
    }
}

#[test]
fn what_a_crash_leaves_of_an_entry_is_no_damage() {
    // Entries of one line and of several, or none, are in the ring before.
    for updates in 0..5 {
        for is_void in [false, true] {
            let places = Places::new();
            let [a, b, c] = places.records;
            places.fill_long(b, 7);
            places.fill_long(c, 7);
            let (mut log, _) = places.open().expect("intact");
            let put_long = |log: &RedoLog, record, byte| {
                LAST.set(0);
                places.replace_long(log, record, byte)
            };
            for n in 0..updates {
                LAST.set(0);
                assert!(if n % 2 == 0 { places.replace(&log, a, n) } else { put_long(&log, b, n) });
            }
            assert!(put_long(&log, b, 3));
            if is_void {
                (log, _) = places.open().expect("intact");
            }
            let before = places.words(RING_WORDS);
            assert!(put_long(&log, c, 4));
            torn(&places, &before, &places.words(RING_WORDS), is_void);
        }
    }
}

#[test]
fn many_blocks_leave_under_one_fence_and_the_callers() {
    let places = Places::new();
    let [a, b, c] = places.records;
    let (log, _) = places.open().expect("intact");
    for (ring, record) in [(3, a), (1, b), (5, c)] {
        LAST.set(ring);
        assert!(places.replace(&log, record, 2));
    }
    let pm = places.pool.pm();
    let fences = || pm.counter().expect("it counts").counts().fences;
    let before = fences();
    let (leaving, voided) = log.leave_all(&places.pool, [a, b, 64]).expect("intact");
    // Not ended, they are named as before.
    drop(leaving);
    assert_eq!([a, b, c].map(|record| log.named_by(record)), [Some(3), Some(1), Some(5)]);
    pm.fence(voided).expect("memory");
    let (leaving, voided) = log.leave_all(&places.pool, [b, a]).expect("intact");
    pm.fence(voided).expect("memory");
    leaving.end();
    assert_eq!([a, b, c].map(|record| log.named_by(record)), [None, None, Some(5)]);
    assert_eq!(fences() - before, 4);
    let (leaving, voided) = log.leave_all(&places.pool, [b, a]).expect("intact");
    pm.fence(voided).expect("memory");
    leaving.end();
    assert_eq!(fences() - before, 5, "nothing to do");
    log.check(&places.pool).expect("whole");
    for record in places.records {
        places.fill(record, 9);
    }
    assert!(places.open().expect("intact").1);
    assert_eq!([a, b, c].map(|record| places.value(record)[0]), [9, 9, 2]);
}

#[test]
fn an_entry_that_names_no_record_or_one_of_another_length_is_refused() {
    let places = Places::new();
    let [a, b, c] = places.records;
    RecordBlock::fill(&places.pool, PPtr::new(b), b"key", &[1; 32]).expect("in bounds");
    places.pool.pm().store_word(&places.pool.words(c, 1).expect("in bounds")[0], u64::MAX);
    let ring = &places.log()[..RING_WORDS];
    for block in [b, c, a + 8, 0, 8, places.pool.len(), u64::MAX >> 8] {
        for number in [1, 2] {
            let words = entry::words_of_turn(ring, (number % 2) as usize);
            let _ = entry::write(places.pool.pm(), words, number, block, &[5; 40]);
            let error = places.open().expect_err("refused");
            assert!(matches!(error, PmError::Corrupt { .. }), "{block:x}: {error}");
            places.store(&entry::fresh_ring());
        }
    }
    let words = entry::words_of_turn(ring, 1);
    let _ = entry::write(places.pool.pm(), words, 1, a, &[5; 40]);
    assert!(places.open().expect("whole").1);
    assert_eq!(places.value(a), [5; 40]);
}

#[test]
fn a_cell_that_leads_to_no_block_of_the_size_is_refused() {
    let places = Places::new();
    for cell in [places.records[0], places.log + 64, places.log + 8, 8, u64::MAX, places.pool.len()]
    {
        places.pool.pm().store_word(places.cell(), cell);
        let error = places.open().expect_err("refused");
        assert!(matches!(error, PmError::Corrupt { .. }), "{cell:x}: {error}");
        let (_, damage) = Redone::read(&places.pool, places.cell());
        assert!(matches!(&damage[..], [PmError::Corrupt { .. }]), "{cell:x}: {damage:?}");
    }
}

#[test]
fn check_tells_a_value_that_is_not_what_the_log_says() {
    let places = Places::new();
    let [a, b, _] = places.records;
    let (log, _) = places.open().expect("intact");
    assert!(places.replace(&log, a, 2) && places.replace(&log, b, 3));
    log.check(&places.pool).expect("whole");
    for record in [a, b] {
        let held = places.value(record)[0];
        places.fill(record, 8);
        let error = log.check(&places.pool).expect_err("told");
        assert!(matches!(error, PmError::Corrupt { .. }), "{error}");
        places.fill(record, held);
    }
    log.check(&places.pool).expect("whole");
}
