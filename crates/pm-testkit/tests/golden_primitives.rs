//! Golden costs of the persistence primitives.

use pmindex_core::{Mapped, Medium, PmU64, Pool};
use pmindex_testkit::golden::{self, Row};

const OPERATIONS: u64 = 1000;

/// Measures `operation` on a different line each time, one in each 256-byte unit.
fn row(name: &str, operation: impl Fn(&Mapped, &[PmU64])) -> Row {
    let pool = Pool::counting(512 << 10).expect("memory");
    golden::measure(pool.pm(), name, OPERATIONS, || {
        for i in 0..OPERATIONS {
            operation(pool.pm(), pool.words(8192 + 256 * i, 32).expect("in bounds"));
        }
    })
}

#[test]
fn golden_primitives() {
    let rows = [
        row("persist a word", |pm, words| {
            pm.store(&words[0], 1);
            pm.persist(&words[0]).expect("emulated");
        }),
        row("store a word non-temporally, fence", |pm, words| {
            let flushed = pm.store_nt(&words[0], 1);
            pm.fence(flushed).expect("emulated");
        }),
        row("persist two lines under one fence", |pm, words| {
            pm.store(&words[0], 1);
            pm.store(&words[8], 1);
            let flushed = pm.flush(&words[0]).and(pm.flush(&words[8]));
            pm.fence(flushed).expect("emulated");
        }),
        row("stream 256 aligned bytes, fence", |pm, words| {
            let flushed = pm.stream_words(words, &[1; 32]);
            pm.fence(flushed).expect("emulated");
        }),
        row("stream 40 bytes across a line, fence", |pm, words| {
            let flushed = pm.stream_words(&words[6..], &[1; 5]);
            pm.fence(flushed).expect("emulated");
        }),
    ];
    golden::check("primitives", &rows);
}
