//! The public interface, also used by real threads.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Mapped, Medium, PPtr, PmPtr, PmU64, Pool, PoolOptions};
use pmindex_pmwcas::{Config, MAX_VALUE, Mwcas, MwcasError, Policy};

const WORDS: usize = 64;
const CONFIG: Config = Config { partitions: 4, per_partition: 8, words: 4 };

struct Bed {
    mwcas: Mwcas,
    base: u64,
}

impl Bed {
    fn on(pool: Pool, config: Config) -> Self {
        let pool = Arc::new(pool);
        let words = pool
            .create_index::<[PmU64; WORDS]>("words", *b"words   ", 0, |words| {
                for word in words {
                    pool.pm().store(word, 0);
                }
                pool.pm().flush(words)
            })
            .expect("room");
        let mwcas = Mwcas::create(&pool, "mwcas", config).expect("room");
        Self { mwcas, base: words.block() }
    }

    fn new() -> Self {
        Self::on(Pool::emulated(4 << 20).expect("memory"), CONFIG)
    }

    fn word(&self, i: usize) -> &PmU64 {
        &self.mwcas.pool().words(self.base, WORDS).expect("in bounds")[i]
    }

    /// A word that points to a block.
    fn pointer(&self, i: usize) -> &PmPtr<[PmU64; 4]> {
        let ptr = PPtr::<PmPtr<[PmU64; 4]>>::new(self.base + 8 * i as u64);
        self.mwcas.pool().get(ptr).expect("in bounds")
    }

    fn read(&self, i: usize) -> u64 {
        self.mwcas.read(self.word(i)).expect("intact")
    }

    fn fill(&self, block: &[PmU64; 4]) {
        self.mwcas.pool().pm().store(&block[0], 7);
    }

    /// Checks for leaks: the pool's live blocks are the roots, the descriptors, and the block that word 0
    /// points to.
    fn audit(&self) {
        self.mwcas.quiesce().expect("emulated");
        let pool = self.mwcas.pool();
        let mut owned: Vec<u64> =
            pool.indexes().expect("intact").iter().map(pmindex_core::IndexEntry::block).collect();
        owned.push(self.mwcas.table_offset());
        owned.extend(Some(self.read(0)).filter(|&block| block != 0));
        pool.audit(owned.into_iter()).expect("each block is owned once");
    }
}

#[test]
fn several_words_change_together_or_not_at_all() {
    let bed = Bed::new();
    let mut session = bed.mwcas.session().expect("free");
    let mut change = session.descriptor();
    for i in [3, 0, 2, 1] {
        change.add_word(bed.word(i), 0, 10 + i as u64).expect("room");
    }
    assert!(change.execute().expect("emulated"));
    let mut change = session.descriptor();
    change.add_word(bed.word(0), 10, 20).expect("room");
    change.add_word(bed.word(1), 99, 21).expect("room");
    assert!(!change.execute().expect("emulated"));
    assert_eq!([0, 1, 2, 3].map(|i| bed.read(i)), [10, 11, 12, 13]);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_operation_as_it_was() {
    let bed = Bed::new();
    let mut session = bed.mwcas.session().expect("free");
    let mut change = session.descriptor();
    change.add_word(bed.word(0), 0, 1).expect("room");
    let offset = bed.base;
    assert_eq!(change.add_word(bed.word(0), 0, 2), Err(MwcasError::Duplicate { offset }));
    assert_eq!(
        change.reserve_entry(bed.word(0), 0, Policy::None),
        Err(MwcasError::Duplicate { offset })
    );
    let value = MAX_VALUE + 1;
    assert_eq!(change.add_word(bed.word(1), 0, value), Err(MwcasError::ValueTooLarge { value }));
    for i in 1..4 {
        change.add_word(bed.word(i), 0, MAX_VALUE).expect("room");
    }
    assert_eq!(change.add_word(bed.word(4), 0, 1), Err(MwcasError::TooManyWords { max: 4 }));
    change.remove_word(bed.word(3)).expect("it is part of it");
    let offset = bed.base + 24;
    assert_eq!(change.remove_word(bed.word(3)), Err(MwcasError::NoSuchWord { offset }));
    assert_eq!(change.set(bed.word(3), 1), Err(MwcasError::NoSuchWord { offset }));
    assert!(change.execute().expect("emulated"));
    assert_eq!([0, 1, 2, 3].map(|i| bed.read(i)), [1, MAX_VALUE, MAX_VALUE, 0]);
}

#[test]
fn a_reserved_entry_needs_a_value_that_fits_its_policy() {
    let bed = Bed::new();
    let mut session = bed.mwcas.session().expect("free");
    let mut change = session.descriptor();
    change.reserve_entry(bed.pointer(0), PPtr::NULL, Policy::FreeNewOnFailure).expect("room");
    change.reserve_entry(bed.pointer(1), PPtr::NULL, Policy::FreeOldOnSuccess).expect("room");
    assert_eq!(change.set(bed.pointer(0), PPtr::NULL), Err(MwcasError::WrongPolicy));
    let refused = change.allocate(bed.pointer(1), |block| bed.fill(block));
    assert_eq!(refused.map(|_| ()), Err(MwcasError::WrongPolicy));
    let block = change.allocate(bed.pointer(0), |block| bed.fill(block)).expect("room");
    let again = change.allocate(bed.pointer(0), |block| bed.fill(block));
    assert_eq!(again.map(|_| ()), Err(MwcasError::WrongPolicy));
    assert_eq!(change.execute(), Err(MwcasError::Unset { offset: bed.base + 8 }));
    assert_eq!(bed.read(0), 0, "{block:?} is not installed");
}

#[test]
fn blocks_go_where_the_policy_says() {
    let bed = Bed::new();
    let put = |expected: PPtr<[PmU64; 4]>, policy| {
        let mut session = bed.mwcas.session().expect("free");
        let mut change = session.descriptor();
        change.reserve_entry(bed.pointer(0), expected, policy).expect("room");
        change.allocate(bed.pointer(0), |block| bed.fill(block)).expect("room");
        // The second word decides the outcome, after the block belongs to the descriptor.
        change.add_word(bed.word(9), 0, 0).expect("room");
        change.execute().expect("emulated")
    };
    assert!(put(PPtr::NULL, Policy::FreeNewOnFailure));
    let first = bed.mwcas.read(bed.pointer(0)).expect("intact");
    bed.audit();
    assert!(!put(PPtr::NULL, Policy::FreeOne), "the word is not null any more");
    bed.audit(); // the new block went back
    assert!(put(first, Policy::FreeOne));
    bed.audit(); // the old block went back

    let mut session = bed.mwcas.session().expect("free");
    let mut change = session.descriptor();
    change.allocate_extra(|block: &[PmU64; 4]| bed.fill(block)).expect("room");
    change.discard();
    let old = bed.mwcas.read(bed.pointer(0)).expect("intact");
    let mut change = session.descriptor();
    change.reserve_entry(bed.pointer(0), old, Policy::FreeOldOnSuccess).expect("room");
    change.set(bed.pointer(0), PPtr::NULL).expect("no block");
    assert!(change.execute().expect("emulated"));
    drop(session);
    bed.audit();
}

#[test]
fn a_block_that_is_filled_at_last_belongs_to_its_operation() {
    let bed = Bed::new();
    let words: Vec<u64> = (1..=13).collect();
    let put = |expected: u64| {
        let mut session = bed.mwcas.session().expect("free");
        let mut change = session.descriptor();
        let words = words.clone();
        let fill = move |pm: &Mapped, block: &[PmU64]| pm.stream_words(&block[..13], &words);
        let block = change.allocate_extra_later(128, 64, fill).expect("room");
        change.add_word(bed.word(0), expected, block.offset()).expect("room");
        change.execute().expect("emulated")
    };
    assert!(put(0));
    let block = bed.mwcas.pool().words(bed.read(0), words.len()).expect("in bounds");
    let found: Vec<u64> = block.iter().map(|word| bed.mwcas.pool().pm().load(word)).collect();
    assert_eq!(found, words);
    bed.audit();
    assert!(!put(0), "the word is not 0 any more");
    bed.audit(); // the new block went back
}

/// Threads move amounts between the words; returns the numbers of failed attempts and of all attempts.
fn transfers(bed: &Bed, threads: usize, words: usize, rounds: usize) -> (u64, u64) {
    let (failed, attempts) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (failed, attempts) = (&failed, &attempts);
            scope.spawn(move || {
                for i in 0..rounds {
                    let from = (i * 5 + thread) % words;
                    let to = (from + 1 + i % (words - 1)) % words;
                    loop {
                        let (rich, poor) = (bed.read(from), bed.read(to));
                        let amount = rich.min(3);
                        let mut session = bed.mwcas.session().expect("free in the end");
                        let mut change = session.descriptor();
                        change.add_word(bed.word(from), rich, rich - amount).expect("room");
                        change.add_word(bed.word(to), poor, poor + amount).expect("room");
                        attempts.fetch_add(1, Relaxed);
                        if change.execute().expect("emulated") {
                            break;
                        }
                        failed.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    (failed.into_inner(), attempts.into_inner())
}

fn sums_stay(bed: &Bed, words: usize) {
    for i in 0..words {
        bed.mwcas.pool().pm().store(bed.word(i), 100);
    }
    let (failed, attempts) = transfers(bed, 4, words, 3000);
    let sum: u64 = (0..words).map(|i| bed.read(i)).sum();
    assert_eq!(sum, 100 * words as u64, "{failed} of {attempts} attempts failed");
}

#[test]
fn threads_on_few_words_lose_nothing() {
    sums_stay(&Bed::new(), 3);
}

#[test]
fn threads_that_help_at_once_lose_nothing() {
    let mut bed = Bed::new();
    bed.mwcas = bed.mwcas.with_patience(0);
    sums_stay(&bed, 3);
}

#[test]
fn more_threads_than_partitions_take_turns() {
    let config = Config { partitions: 2, per_partition: 4, words: 2 };
    let bed = Bed::on(Pool::emulated(4 << 20).expect("memory"), config);
    sums_stay(&bed, 5);
}

#[test]
fn a_volatile_pool_has_the_same_interface() {
    let bed = Bed::on(Pool::<Mapped>::volatile(4 << 20).expect("memory"), CONFIG);
    sums_stay(&bed, 3);
    let mut session = bed.mwcas.session().expect("free");
    let mut change = session.descriptor();
    change.reserve_entry(bed.pointer(40), PPtr::NULL, Policy::FreeOne).expect("room");
    change.allocate(bed.pointer(40), |block| bed.fill(block)).expect("room");
    assert!(change.execute().expect("volatile"));
}

#[test]
fn what_has_committed_succeeds_though_tidying_up_afterwards_cannot() {
    let options = PoolOptions::new().size(4 << 20).slots(1).grow(false).emulate_pm(true);
    let pool = Pool::create_in_memory(&options, |mapped| mapped).expect("memory");
    let bed = Bed::on(pool, CONFIG);
    let mut session = bed.mwcas.session().expect("free");
    for _ in 0..3 {
        let old = bed.mwcas.read(bed.pointer(0)).expect("intact");
        let mut change = session.descriptor();
        change.reserve_entry(bed.pointer(0), old, Policy::FreeOne).expect("room");
        change.allocate(bed.pointer(0), |block| bed.fill(block)).expect("room");
        assert!(change.execute().expect("emulated"));
    }
    // Descriptors that own blocks cannot be tidied up without a slot of the allocator.
    let op = bed.mwcas.pool().op().expect("the only slot");
    let mut value = 0;
    for _ in 0..16 {
        let began = std::time::Instant::now();
        let mut change = session.descriptor();
        change.add_word(bed.word(1), value, value + 1).expect("room");
        if change.execute().expect("needs no slot") {
            value += 1;
        }
        assert_eq!(bed.read(1), value);
        if began.elapsed().as_secs() > 0 {
            break; // it waited for the slot: no need to do so many times
        }
    }
    drop(op);
    drop(session);
    bed.audit();
}
