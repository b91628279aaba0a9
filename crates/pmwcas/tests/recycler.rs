//! Values that own more than one block: a recycler lists the blocks to free with them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Mapped, Medium, PPtr, PmError, PmPtr, PmU64, Pool};
use pmindex_pmwcas::{Config, Memory, Mwcas, Policy, Recycler, RecyclerId, Recyclers};

const CONFIG: Config = Config { partitions: 2, per_partition: 8, words: 4 };
const PAIRS: RecyclerId = RecyclerId::custom(0);

type Block = [PmU64; 4];
type Link = PmPtr<Block>;

/// The value is a block whose first word points to another block; both are freed.
struct Pairs(Arc<AtomicU64>);

impl Recycler for Pairs {
    fn blocks(
        &self,
        memory: &Memory<'_, Mapped>,
        value: u64,
        blocks: &mut Vec<u64>,
    ) -> Result<(), PmError> {
        self.0.fetch_add(1, Relaxed);
        let second = memory.read(memory.pool().get(PPtr::<Link>::new(value))?)?;
        blocks.extend([value, second.offset()]);
        Ok(())
    }
}

/// A pool with three words: operations change two, the third holds the descriptors.
struct Bed {
    pool: Arc<Pool>,
    base: u64,
    table: u64,
}

impl Bed {
    fn new() -> Self {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let entry = pool
            .create_index::<[PmU64; 3]>("words", *b"words   ", 0, |words| {
                for word in words {
                    pool.pm().store(word, 0);
                }
                pool.pm().flush(words)
            })
            .expect("room");
        let at = PPtr::<PmPtr<u64>>::new(entry.block() + 16);
        let dest = pool.get(at).expect("in bounds");
        Mwcas::allocate_table(&pool, dest, CONFIG).expect("room");
        let table = pool.pm().load(dest).offset();
        Self { pool, base: entry.block(), table }
    }

    /// The two words that operations change.
    fn link(&self, i: u64) -> &Link {
        self.pool.get(PPtr::new(self.base + 8 * i)).expect("in bounds")
    }

    /// Opens the descriptors with a recycler that counts.
    fn open(&self) -> (Mwcas, Arc<AtomicU64>) {
        let asked = Arc::new(AtomicU64::new(0));
        let recyclers: Recyclers<Mapped> = vec![Box::new(Pairs(Arc::clone(&asked)))];
        (Mwcas::open_at(&self.pool, self.table, recyclers).expect("intact"), asked)
    }

    /// Puts a pair into the first word.
    fn put_pair(&self, mwcas: &Mwcas) {
        let mut session = mwcas.session().expect("free");
        let mut change = session.descriptor();
        for i in 0..2 {
            let policy = Policy::FreeNewOnFailure;
            change.reserve_entry(self.link(i), PPtr::NULL, policy).expect("room");
            let fill = |block: &Block| {
                for word in block {
                    self.pool.pm().store(word, 0);
                }
            };
            change.allocate(self.link(i), fill).expect("room");
        }
        assert!(change.execute().expect("emulated"));
        let [first, second] = [0, 1].map(|i| mwcas.read(self.link(i)).expect("intact"));
        let mut change = session.descriptor();
        let inner: &Link = self.pool.get(first.cast()).expect("in bounds");
        change.add_word(inner, PPtr::NULL, second).expect("room");
        change.add_word(self.link(1), second, PPtr::NULL).expect("room");
        assert!(change.execute().expect("emulated"));
    }

    /// Removes the pair from the first word; `expected` may be wrong.
    fn take(&self, mwcas: &Mwcas, expected: PPtr<Block>) -> bool {
        let mut session = mwcas.session().expect("free");
        let mut change = session.descriptor_with(PAIRS);
        change.reserve_entry(self.link(0), expected, Policy::FreeOldOnSuccess).expect("room");
        change.set(self.link(0), PPtr::NULL).expect("no block");
        change.add_word(self.link(1), PPtr::NULL, PPtr::NULL).expect("room");
        change.execute().expect("emulated")
    }

    /// Checks that the pool's live blocks are the roots, the descriptors, and `more`.
    fn audit(&self, more: &[u64]) {
        let roots = self.pool.indexes().expect("intact");
        let owned = roots.iter().map(pmindex_core::IndexEntry::block).chain([self.table]);
        self.pool.audit(owned.chain(more.iter().copied())).expect("each block is owned once");
    }

    /// The blocks of the pair in the first word.
    fn pair(&self, mwcas: &Mwcas) -> [u64; 2] {
        let first = mwcas.read(self.link(0)).expect("intact");
        let inner: &Link = self.pool.get(first.cast()).expect("in bounds");
        [first.offset(), mwcas.read(inner).expect("intact").offset()]
    }
}

#[test]
fn a_value_goes_with_the_blocks_that_its_recycler_names() {
    let bed = Bed::new();
    let (mwcas, asked) = bed.open();
    for round in 1..=100 {
        bed.put_pair(&mwcas);
        mwcas.quiesce().expect("emulated");
        let pair = bed.pair(&mwcas);
        bed.audit(&pair);
        assert!(!bed.take(&mwcas, PPtr::new(pair[1])), "it is the other one");
        mwcas.quiesce().expect("emulated");
        bed.audit(&pair);
        assert_eq!(asked.load(Relaxed), round - 1, "a failure asks no recycler");
        assert!(bed.take(&mwcas, PPtr::new(pair[0])));
        mwcas.quiesce().expect("emulated");
        bed.audit(&[]);
        assert_eq!(asked.load(Relaxed), round, "once");
    }
}

#[test]
fn recovery_asks_the_recycler_of_what_was_not_recycled() {
    let bed = Bed::new();
    for _ in 0..20 {
        let (mwcas, _) = bed.open();
        bed.put_pair(&mwcas);
        mwcas.quiesce().expect("emulated");
        let pair = bed.pair(&mwcas);
        assert!(bed.take(&mwcas, PPtr::new(pair[0])));
        drop(mwcas); // its process dies
        let (mwcas, asked) = bed.open();
        assert_eq!(asked.load(Relaxed), 1);
        bed.audit(&[]);
        mwcas.quiesce().expect("emulated");
        bed.audit(&[]);
    }
}

#[test]
fn recovery_without_the_recycler_is_refused_and_loses_nothing() {
    let bed = Bed::new();
    let (mwcas, _) = bed.open();
    bed.put_pair(&mwcas);
    mwcas.quiesce().expect("emulated");
    let pair = bed.pair(&mwcas);
    assert!(bed.take(&mwcas, PPtr::new(pair[0])));
    drop(mwcas);
    let refused = Mwcas::open_at(&bed.pool, bed.table, Vec::new()).map(|_| ());
    assert!(
        matches!(refused, Err(PmError::Corrupt { what: "a recycler that was not given", .. })),
        "{refused:?}"
    );
    bed.audit(&pair);
    drop(bed.open());
    bed.audit(&[]);
}
