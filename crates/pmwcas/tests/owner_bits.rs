//! The bits by which tickets tell which incarnation of a descriptor owns blocks come back after 256 uses. No ticket
//! that is not durably void names them by then: a crash would make the block live that it freed.

use std::sync::Arc;

use pmindex_core::{Medium, PPtr, PmPtr, PmU64, Pool};
use pmindex_pmwcas::{Config, Mwcas, Policy};

const CONFIG: Config = Config { partitions: 1, per_partition: 4, words: 4 };
/// The incarnations with different bits.
const INCARNATIONS: u64 = 256;

/// Returns the status words of the descriptors.
fn statuses<'p>(pool: &'p Pool, mwcas: &Mwcas) -> Vec<&'p PmU64> {
    let bytes = 8 * (2 + 3 * u64::from(CONFIG.words)).next_multiple_of(8);
    let first = mwcas.table_offset() + 128;
    let status = |n| &pool.words(first + n * bytes, 1).expect("in bounds")[0];
    (0..u64::from(CONFIG.per_partition)).map(status).collect()
}

#[test]
fn tickets_are_settled_before_the_owner_bits_that_they_name_come_back() {
    let pool = Arc::new(Pool::counting(4 << 20).expect("memory"));
    let root = pool.create_index::<[PmPtr<PmU64>; 2]>("root", *b"root    ", 0, |root| {
        for cell in root {
            pool.pm().store(cell, PPtr::NULL);
        }
        pool.pm().flush(root)
    });
    let root = root.expect("room").root::<[PmPtr<PmU64>; 2]>();
    let [link, word] = pool.get(root).expect("there");
    let mwcas = Mwcas::create(&pool, "mwcas", CONFIG).expect("room");
    // A block that is replaced, and given up by the descriptor of that operation.
    for _ in 0..2 {
        let old = mwcas.read(link).expect("intact");
        let mut session = mwcas.session().expect("free");
        let mut op = session.descriptor();
        op.reserve_entry(link, old, Policy::FreeOne).expect("room");
        op.allocate(link, |_| ()).expect("room");
        assert!(op.execute().expect("memory"));
    }
    mwcas.quiesce().expect("memory");
    // Operations that own nothing, until each descriptor has had all bits.
    let statuses = statuses(&pool, &mwcas);
    let bits = |cell: &PmU64| pool.pm().load(cell) >> 4 & (INCARNATIONS - 1);
    let (mut before, mut uses) = ([0; 4], [0; 4]);
    for n in 0.. {
        let mut session = mwcas.session().expect("free");
        let mut op = session.descriptor();
        op.add_word(word, PPtr::new(64 * n), PPtr::new(64 * (n + 1))).expect("room");
        assert!(op.execute().expect("memory"));
        for (nth, cell) in statuses.iter().enumerate() {
            uses[nth] += u64::from(bits(cell) != before[nth]);
            before[nth] = bits(cell);
        }
        if uses.iter().all(|uses| *uses >= INCARNATIONS) {
            break;
        }
        assert!(n < 100 * INCARNATIONS, "a descriptor is never used: {uses:?}");
    }
    let fences = || pool.pm().counter().expect("it counts").counts().fences;
    let before = fences();
    for status in statuses {
        pool.settle(status).expect("memory");
    }
    assert_eq!(fences() - before, 0, "a ticket was left");
}
