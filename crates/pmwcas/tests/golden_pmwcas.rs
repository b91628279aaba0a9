//! The cost of operations, batches of `settle` included.

use std::sync::Arc;

use pmindex_core::{Medium, PmU64, Pool};
use pmindex_pmwcas::{Config, Mwcas};
use pmindex_testkit::golden::{self, Row};

const OPERATIONS: u64 = 1024;
/// Words of the area: each operation's words lie on lines of their own.
const AREA: usize = 64 * 16;

struct Bed {
    mwcas: Mwcas,
    base: u64,
}

impl Bed {
    fn new() -> Self {
        let pool = Arc::new(Pool::counting(4 << 20).expect("memory"));
        let area = pool
            .create_index::<[PmU64; AREA]>("area", *b"area    ", 0, |area| pool.pm().flush(area))
            .expect("room");
        let mwcas = Mwcas::create(&pool, "mwcas", Config::default()).expect("room");
        let bed = Self { mwcas, base: area.block() };
        for cell in bed.cells() {
            bed.mwcas.pool().pm().store(cell, 0);
        }
        bed
    }

    fn cells(&self) -> &[PmU64] {
        self.mwcas.pool().words(self.base, AREA).expect("in bounds")
    }

    /// Adds 1 to `width` words, `stride` words apart, from word `first`.
    fn bump(&self, first: usize, width: usize, stride: usize) {
        let mut session = self.mwcas.session().expect("free");
        let mut d = session.descriptor();
        for i in 0..width {
            let cell = &self.cells()[(first + i * stride) % AREA];
            let old = self.mwcas.read(cell).expect("intact");
            d.add_word(cell, old, old + 1).expect("room");
        }
        assert!(d.execute().expect("emulated"), "no other thread competes");
    }

    fn measure(&self, name: &str, run: impl Fn(usize)) -> Row {
        golden::measure(self.mwcas.pool().pm(), name, OPERATIONS, || {
            for i in 0..OPERATIONS as usize {
                run(i);
            }
            self.mwcas.quiesce().expect("emulated");
        })
    }
}

#[test]
fn golden_pmwcas() {
    let mut rows = Vec::new();
    for width in [1u32, 2, 3, 4, 8, 12] {
        let bed = Bed::new();
        let name = format!("{width} words on {width} lines");
        let words = width as usize;
        let row = bed.measure(&name, |i| bed.bump(8 * words * i, words, 8));
        let target = (16 + 24 * width).div_ceil(64) + width + 2;
        assert!(row.lines() <= f64::from(target), "{name}: {} lines, target {target}", row.lines());
        assert!(row.fences() <= 4.0, "{name}: {} fences", row.fences());
        rows.push(row);
    }
    let bed = Bed::new();
    rows.push(bed.measure("the same 2 words every time", |_| bed.bump(0, 2, 8)));
    rows.push(bed.measure("2 words on one line", |i| bed.bump(8 * i, 2, 1)));
    rows.push(bed.measure("read", |i| {
        let value: u64 = bed.mwcas.read(&bed.cells()[i % AREA]).expect("intact");
        assert!(value <= 2 * OPERATIONS);
    }));
    rows.push(bed.measure("an expectation that does not hold", |_| {
        let mut session = bed.mwcas.session().expect("free");
        let mut d = session.descriptor();
        d.add_word(&bed.cells()[0], u64::MAX >> 2, 0).expect("room");
        assert!(!d.execute().expect("emulated"));
    }));
    golden::check("pmwcas", &rows);
}
