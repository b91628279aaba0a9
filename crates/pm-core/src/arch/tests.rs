//! All variants against plain Rust: every count, every alignment, up against an unmapped page.

use core::cmp::Ordering;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::level::Level;
use super::portable;
use crate::cell::PmU64;

/// Two pages of cells; the page behind them faults when touched.
struct Guarded {
    cells: &'static [PmU64],
}

const CELLS: usize = 1024;

impl Guarded {
    fn new() -> Self {
        let bytes = CELLS * 8 + 4096;
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address the kernel chooses.
        let map = unsafe {
            rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, flags, MapFlags::PRIVATE)
        };
        let start = map.expect("two pages");
        let guard = start.wrapping_byte_add(CELLS * 8);
        // SAFETY: the last page of the mapping, to which no reference exists.
        let protected = unsafe { rustix::mm::mprotect(guard, 4096, MprotectFlags::empty()) };
        protected.expect("protecting a page");
        // SAFETY: the first pages are mapped, zeroed, aligned, and never unmapped.
        let cells = unsafe { core::slice::from_raw_parts(start.cast::<PmU64>(), CELLS) };
        Self { cells }
    }

    /// The last `count` cells before the guard but for `gap`, filled with `words`.
    fn place(&self, words: &[u64], gap: usize) -> &[PmU64] {
        let end = CELLS - gap;
        let cells = &self.cells[end - words.len()..end];
        for (cell, &word) in cells.iter().zip(words) {
            cell.atomic().store(word, core::sync::atomic::Ordering::Relaxed);
        }
        cells
    }
}

/// A small deterministic generator: xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Words of few distinct bytes and values, so that matches and ties are common.
    fn words(&mut self, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| match self.next() % 4 {
                0 => u64::from_le_bytes([(self.next() % 3) as u8; 8]),
                1 => u64::MAX - self.next() % 3,
                2 => (1 << 63) + self.next() % 3 - 1,
                _ => self.next() & 0x0303_0303_0303_0303,
            })
            .collect()
    }
}

/// The five reads of one variant.
struct Variant {
    name: &'static str,
    read_words: fn(&[PmU64], &mut [u64]),
    match_byte: fn(&[PmU64], u8) -> u64,
    match_word: fn(&[PmU64], u64) -> u64,
    match_less: fn(&[PmU64], u64) -> u64,
    count_less: fn(&[PmU64], u64) -> usize,
    cmp_prefix: fn(&[PmU64], &[u8]) -> Ordering,
}

macro_rules! variant {
    ($module:path) => {{
        use $module as m;
        Variant {
            name: stringify!($module),
            read_words: |src, dst| m::read_words(src, dst),
            match_byte: |src, byte| m::match_byte(src, byte),
            match_word: |src, word| m::match_word(src, word),
            match_less: |src, bound| m::match_less(src, bound),
            count_less: |src, bound| m::count_less(src, bound),
            cmp_prefix: |src, probe| m::cmp_prefix(src, probe),
        }
    }};
}

fn variants() -> Vec<Variant> {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut all = vec![variant!(portable)];
    #[cfg(target_arch = "x86_64")]
    {
        all.push(variant!(super::x86_64::baseline));
        if Level::detect() >= Level::Avx2 {
            all.push(variant!(super::x86_64::avx2));
        }
        if Level::detect() >= Level::Avx512 {
            all.push(variant!(super::x86_64::avx512));
        }
    }
    all
}

/// Every count, several distances from the unmapped page (0 included), several contents.
fn each_case(max: usize, mut case: impl FnMut(&[PmU64], &[u64], &mut Random)) {
    let memory = Guarded::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for count in 0..=max {
        for gap in [0, 1, 2, 3, 5, 7, 8, 9, 64, 507, 512] {
            for _ in 0..4 {
                let words = random.words(count);
                case(memory.place(&words, gap), &words, &mut random);
            }
        }
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn read_words_copies_what_both_have_and_no_more() {
    for v in variants() {
        each_case(70, |cells, words, random| {
            let room = words.len() + (random.next() % 3) as usize;
            let mut dst = vec![7; room];
            (v.read_words)(cells, &mut dst);
            assert_eq!(&dst[..words.len()], words, "{}", v.name);
            assert!(dst[words.len()..].iter().all(|&word| word == 7), "{}", v.name);
            let shorter = words.len() / 2;
            let mut dst = vec![7; shorter];
            (v.read_words)(cells, &mut dst);
            assert_eq!(dst, &words[..shorter], "{}", v.name);
        });
    }
}

#[test]
fn match_byte_finds_exactly_the_equal_bytes() {
    for v in variants() {
        each_case(9, |cells, words, _| {
            for byte in [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff] {
                let want = bytes_of(words)
                    .iter()
                    .take(64)
                    .enumerate()
                    .fold(0, |mask, (i, &b)| mask | u64::from(b == byte) << i);
                assert_eq!((v.match_byte)(cells, byte), want, "{} {words:x?} {byte}", v.name);
            }
        });
    }
}

#[test]
fn match_byte_tells_every_byte_from_every_other() {
    let memory = Guarded::new();
    for v in variants() {
        for stored in 0..=255u8 {
            let words = [u64::from_le_bytes([stored; 8]); 8];
            let cells = memory.place(&words, 0);
            for byte in 0..=255u8 {
                let want = if stored == byte { u64::MAX } else { 0 };
                assert_eq!((v.match_byte)(cells, byte), want, "{} {stored} {byte}", v.name);
            }
        }
    }
}

#[test]
fn word_searches_agree_with_plain_loops() {
    for v in variants() {
        each_case(70, |cells, words, random| {
            let mut probes = vec![0, 1, 1 << 63, (1 << 63) - 1, u64::MAX];
            probes.extend(words.first());
            probes.extend(words.last());
            probes.push(random.next());
            for probe in probes {
                let equal = words
                    .iter()
                    .take(64)
                    .enumerate()
                    .fold(0, |mask, (i, &w)| mask | u64::from(w == probe) << i);
                assert_eq!((v.match_word)(cells, probe), equal, "{} {words:x?}", v.name);
                let below = (0..)
                    .zip(words.iter().take(64))
                    .fold(0, |mask, (i, &w)| mask | u64::from(w < probe) << i);
                assert_eq!((v.match_less)(cells, probe), below, "{} {words:x?}", v.name);
                let less = words.iter().filter(|&&w| w < probe).count();
                assert_eq!((v.count_less)(cells, probe), less, "{} {words:x?}", v.name);
            }
        });
    }
}

#[test]
fn cmp_prefix_compares_as_byte_strings_do() {
    for v in variants() {
        each_case(24, |cells, words, random| {
            let stored = bytes_of(words);
            for cut in 0..8.min(stored.len() + 1) {
                let mut probe = stored[..stored.len() - cut].to_vec();
                assert_eq!((v.cmp_prefix)(cells, &probe), Ordering::Equal, "{}", v.name);
                if probe.is_empty() {
                    continue;
                }
                let at = (random.next() as usize) % probe.len();
                probe[at] = probe[at].wrapping_add(random.next() as u8 | 1);
                let want = stored[..probe.len()].cmp(&probe);
                assert_eq!((v.cmp_prefix)(cells, &probe), want, "{} at {at}", v.name);
            }
        });
    }
}

#[test]
fn byte_strings_of_unequal_length_compare_by_prefix_then_length() {
    let (memory, level) = (Guarded::new(), Level::detect());
    let text = [b"persistent memory".repeat(5), b"persist".to_vec(), b"p".to_vec(), vec![]];
    for stored in &text {
        let mut padded = stored.clone();
        padded.resize(stored.len().next_multiple_of(8), 0xff); // what follows must not count
        let words: Vec<u64> =
            padded.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        let cells = memory.place(&words, 0);
        for probe in &text {
            let got = super::bulk::cmp_bytes(level, cells, stored.len(), probe);
            assert_eq!(got, stored.cmp(probe), "{stored:?} {probe:?}");
            let equal = super::bulk::eq_bytes(level, cells, stored.len(), probe);
            assert_eq!(equal, stored == probe, "{stored:?} {probe:?}");
        }
        // A stored length beyond the words that exist (a damaged file) is no panic.
        assert!(!super::bulk::eq_bytes(level, cells, 10_000, b"x"));
        let _ = super::bulk::cmp_bytes(level, cells, 10_000, &[0xff; 200]);
    }
}

#[test]
fn stream_words_writes_exactly_the_words_whatever_the_alignment() {
    let instruction = super::best_flush();
    each_case(40, |cells, _, random| {
        let words = random.words(cells.len() + 1);
        super::stream_words(Level::detect(), instruction, cells, &words);
        super::store_fence();
        let mut back = vec![0; cells.len()];
        portable::read_words(cells, &mut back);
        assert_eq!(back, words[..cells.len()]);
        if let [first, .., last] = cells {
            super::stream_word(instruction, last, 77);
            super::store_fence();
            portable::read_words(cells, &mut back);
            assert_eq!(back[back.len() - 1], 77);
            assert_eq!(back[0], first.atomic().load(core::sync::atomic::Ordering::Relaxed));
            assert_eq!(back[..back.len() - 1], words[..back.len() - 1]);
        }
    });
}

#[test]
fn rank_sort_agrees_with_the_standard_sort() {
    let mut random = Random(7);
    for count in 0..=64usize {
        for kind in 0..60 {
            let base = random.next();
            let keys: Vec<u64> = (0..count as u64)
                .map(|i| match kind % 6 {
                    0 => random.next(),
                    1 => base.wrapping_sub(i), // dense, possibly across a power of two
                    2 => (1 << 40) - 20 + i,
                    3 => random.next() % 50,              // equal keys
                    4 => (i << 58) | (random.next() % 4), // cut to the same 31 bits
                    _ => u64::MAX - random.next() % 100,
                })
                .collect();
            let mut want: Vec<u8> = (0..count as u8).collect();
            want.sort_by_key(|&i| keys[usize::from(i)]);
            assert_eq!(super::rank_sort(&keys, &mut [0; 64]), want, "{keys:x?}");
            let mut padded = [keys.first().copied().unwrap_or(0); 64];
            padded[..count].copy_from_slice(&keys);
            let ranks = super::rank::portable(&padded, count);
            #[cfg(target_arch = "x86_64")]
            if count > 0 && Level::detect() >= Level::Avx2 {
                let vector = super::x86_64::rank_avx2::ranks(&padded, count);
                assert_eq!(vector[..count], ranks[..count], "{keys:x?}");
            }
            #[cfg(target_arch = "x86_64")]
            if count > 0 && Level::detect() == Level::Avx512 {
                let vector = super::x86_64::rank::ranks(&padded, count);
                assert_eq!(vector[..count], ranks[..count], "{keys:x?}");
            }
            for (key, &rank) in keys.iter().zip(&ranks) {
                let less = keys.iter().filter(|other| *other < key).count();
                assert!(rank as usize <= less, "the cut orders no two keys wrongly");
            }
        }
    }
}
