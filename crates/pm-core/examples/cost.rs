//! What safe access costs against hand-written code with raw pointers.
//!
//! ```text
//! cargo run --release -p pmindex-core --example cost              # paired times
//! valgrind --tool=callgrind ./target/release/examples/cost write safe
//! valgrind --tool=callgrind ./target/release/examples/cost write raw
//! ```
//!
//! Two loops, each written twice: `write` stores a word, flushes its line and fences; `read` is an
//! optimistic lookup in a leaf (bounds check, version, fingerprint match, key compare, value,
//! validation). Under callgrind the difference of the instruction counts of two runs with different
//! numbers of rounds, divided by the rounds, is the cost of one round.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_ptr_alignment,
    clippy::multiple_unsafe_ops_per_block,
    reason = "one half is what hand-written code looks like"
)]

use core::arch::asm;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::hint::black_box;
use std::time::Instant;

use pmindex_core::sync::VersionTable;
use pmindex_core::{FlushInstruction, Mapped, Medium, PPtr, PmU64, Pool, pm_struct};

pm_struct! {
    /// A leaf of 56 records: the commit word, the fingerprints, the records.
    #[align(64)]
    struct Leaf: size 960 {
        state @ 0: PmU64,
        fingerprints @ 8: [PmU64; 7],
        records @ 64: [[PmU64; 2]; 56],
    }
}

const SLOTS: u64 = 56;

/// A pool full of leaves, and a table of version locks.
struct Bench {
    pool: Pool<Mapped>,
    versions: VersionTable,
    leaves: u64,
    first: u64,
}

fn key_of(leaf: u64, slot: u64) -> u64 {
    leaf * SLOTS + slot
}

fn fingerprint(key: u64) -> u8 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Bench {
    fn new(leaves: u64) -> Self {
        let first = 1 << 20;
        let pool = Pool::emulated((first + 1024 * (leaves + 1)) as usize).expect("memory");
        for leaf in 0..leaves {
            let at = pool.get(PPtr::<Leaf>::new(first + 1024 * leaf)).expect("in bounds");
            let mut prints = [0u64; 7];
            for slot in 0..SLOTS {
                let key = key_of(leaf, slot);
                pool.pm().write_words(&at.records[slot as usize], &[key, !key]);
                prints[slot as usize / 8] |= u64::from(fingerprint(key)) << (8 * (slot % 8));
            }
            pool.pm().write_words(&at.fingerprints, &prints);
            pool.pm().store(&at.state, u64::MAX >> 8);
        }
        Self { pool, versions: VersionTable::new(16), leaves, first }
    }

    fn offset(&self, leaf: u64) -> u64 {
        self.first + 1024 * leaf
    }
}

/// The optimistic lookup, safe.
#[inline(never)]
fn read_safe(pool: &Pool<Mapped>, versions: &VersionTable, leaf: PPtr<Leaf>, key: u64) -> u64 {
    let pm = pool.pm();
    loop {
        let lock = versions.of(leaf.offset());
        let version = lock.begin_read(pm);
        let Ok(node) = pool.get(leaf) else { return 0 };
        let header = pmindex_core::words_of(node).first_chunk::<8>().expect("a leaf has a header");
        let live = pm.load(&node.state);
        let mut hits = (pm.match_byte(header, fingerprint(key)) >> 8) & live;
        let mut value = 0;
        while hits != 0 {
            let Some(record) = node.records.get(hits.trailing_zeros() as usize) else { break };
            if pm.load(&record[0]) == key {
                value = pm.load(&record[1]);
                break;
            }
            hits &= hits - 1;
        }
        if lock.validate(pm, version) {
            return value;
        }
    }
}

/// The same by hand: addresses, no checks, the vector load of the CPU.
#[inline(never)]
fn read_raw(base: *const u8, locks: *const AtomicU64, shift: u32, leaf: u64, key: u64) -> u64 {
    loop {
        let index = (leaf.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize;
        // SAFETY: the table has `1 << (64 - shift)` locks.
        let lock = unsafe { &*locks.add(index) };
        let version = lock.load(Acquire);
        if version & 1 != 0 {
            continue;
        }
        // SAFETY: `leaf` is the offset of a leaf.
        let node = unsafe { base.add(leaf as usize) };
        // SAFETY: the first word of the leaf.
        let live = unsafe { &*node.cast::<AtomicU64>() }.load(Acquire);
        let matches: u64;
        // SAFETY: reads the header line.
        unsafe {
            if avx512() {
                asm!("vpbroadcastb zmm16, {b:e}", "vpcmpeqb k1, zmm16, [{p}]", "kmovq {r}, k1",
                    p = in(reg) node, b = in(reg) u32::from(fingerprint(key)), r = lateout(reg) matches,
                    out("xmm16") _, out("k1") _, options(nostack, preserves_flags, readonly));
            } else {
                asm!("vmovd xmm0, {b:e}", "vpbroadcastb ymm0, xmm0", "vpcmpeqb ymm1, ymm0, [{p}]",
                    "vpcmpeqb ymm2, ymm0, [{p} + 32]", "vpmovmskb {r:e}, ymm1",
                    "vpmovmskb {h:e}, ymm2", "vzeroupper", "shl {h}, 32", "or {r}, {h}",
                    p = in(reg) node, b = in(reg) u32::from(fingerprint(key)), r = out(reg) matches,
                    h = out(reg) _, out("xmm0") _, out("xmm1") _, out("xmm2") _,
                    options(nostack, readonly));
            }
        }
        let mut hits = (matches >> 8) & live;
        let mut value = 0;
        while hits != 0 {
            // SAFETY: `hits` has bits below 56 only.
            let record =
                unsafe { node.add(64 + 16 * hits.trailing_zeros() as usize) }.cast::<AtomicU64>();
            // SAFETY: the record's key.
            if unsafe { &*record }.load(Acquire) == key {
                // SAFETY: the record's value.
                value = unsafe { &*record.add(1) }.load(Acquire);
                break;
            }
            hits &= hits - 1;
        }
        fence(Acquire);
        if lock.load(Relaxed) == version {
            return value;
        }
    }
}

/// Whether the CPU has CLWB: hand-written code would ask too.
static CLWB: AtomicBool = AtomicBool::new(false);
static AVX512: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn avx512() -> bool {
    AVX512.load(Relaxed) == 1
}

#[inline(never)]
fn write_safe(pool: &Pool<Mapped>, leaf: PPtr<Leaf>, value: u64) {
    let pm = pool.pm();
    if let Ok(node) = pool.get(leaf) {
        pm.store(&node.state, value);
        let flushed = pm.flush(&node.state);
        let _ = pm.fence(flushed);
    }
}

#[inline(never)]
fn write_raw(base: *const u8, leaf: u64, value: u64) {
    // SAFETY: `leaf` is the offset of a leaf.
    let state = unsafe { base.add(leaf as usize) }.cast::<AtomicU64>();
    // SAFETY: its first word.
    unsafe { &*state }.store(value, Relaxed);
    if CLWB.load(Relaxed) {
        // SAFETY: writes its line back.
        unsafe { asm!("clwb [{0}]", in(reg) state, options(nostack, preserves_flags)) }
    } else {
        // SAFETY: as above, by the instruction of valgrind's CPU.
        unsafe { asm!("clflush [{0}]", in(reg) state, options(nostack, preserves_flags)) }
    }
    // SAFETY: a fence.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Runs `rounds` rounds of one loop; returns something that depends on them.
fn run(bench: &Bench, write: bool, safe: bool, rounds: u64, seed: u64) -> u64 {
    let base = std::ptr::from_ref(bench.pool.words(4096, 1).expect("in bounds")).cast::<u8>();
    let base = base.wrapping_sub(4096);
    let locks = std::ptr::from_ref(bench.versions.of(0)).cast::<AtomicU64>(); // lock 0
    let (mut random, mut sum) = (seed, 0u64);
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let leaf = (random >> 33) % bench.leaves;
        let (offset, key) = (bench.offset(leaf), key_of(leaf, (random >> 20) % SLOTS));
        let found = match (write, safe) {
            (true, true) => {
                write_safe(&bench.pool, PPtr::new(offset), u64::MAX >> 8);
                round
            }
            (true, false) => {
                write_raw(base, offset, u64::MAX >> 8);
                round
            }
            (false, true) => read_safe(&bench.pool, &bench.versions, PPtr::new(offset), key),
            (false, false) => read_raw(base, locks, 64 - 16, offset, key),
        };
        assert!(write || found == !key, "a lookup missed");
        sum = sum.wrapping_add(found);
    }
    sum
}

/// Times both variants in turns; prints the medians and their ratio.
fn compare(bench: &Bench, write: bool, name: &str, rounds: u64) {
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..15u64 {
        for safe in [0, 1] {
            let start = Instant::now();
            black_box(run(bench, write, safe == 1, rounds, turn * 77 + 1));
            times[safe].push(start.elapsed().as_secs_f64() * 1e9 / rounds as f64);
        }
    }
    for all in &mut times {
        all.sort_by(f64::total_cmp);
    }
    let (raw, safe) = (times[0][7], times[1][7]);
    println!("{name:<28} raw {raw:7.2} ns   safe {safe:7.2} ns   safe / raw {:.3}", safe / raw);
}

fn main() {
    #[cfg(target_arch = "x86_64")]
    AVX512.store(u64::from(std::arch::is_x86_feature_detected!("avx512bw")), Relaxed);
    let bench = Bench::new(256);
    let clwb = bench.pool.pm().instruction() == FlushInstruction::Clwb;
    CLWB.store(clwb, Relaxed);
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, variant, rounds] = args.as_slice() {
        let rounds = rounds.parse().expect("a number of rounds");
        println!("{}", run(&bench, kind == "write", variant == "safe", rounds, 1));
        return;
    }
    let (small, large) = (bench, Bench::new(500_000));
    compare(&small, false, "lookup, in cache", 1_000_000);
    compare(&large, false, "lookup, out of cache", 1_000_000);
    compare(&small, true, "persist a word, in cache", 200_000);
    compare(&large, true, "persist a word, out of cache", 200_000);
}
