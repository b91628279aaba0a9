//! Pages with any words: a buffer's sums show which words were written, not that they make sense.

use std::sync::Arc;

use pmindex_btree::PagedMap;
use pmindex_buffer::{Buffer, BufferOptions};
use pmindex_core::Pool;
use pmindex_wal::sim::{SimDisk, mix};

const PAGES: u64 = 60;
const KEYS: u64 = 120;

type Map = PagedMap<u64, Vec<u8>>;

fn map() -> Map {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let disk = Arc::new(SimDisk::new(512, PAGES as usize * 512));
    let options = BufferOptions::new(PAGES).page_bytes(512).identity(7);
    let buffer = Buffer::create(&pool, "pages", disk, &options).expect("a buffer");
    let map = Map::open(&Arc::new(buffer), "map").expect("a map");
    (0..KEYS).for_each(|key| drop(map.put(&key, &vec![key as u8; (key % 30) as usize])));
    map
}

/// Returns a word in the place of another.
fn instead(word: u64, seed: u64) -> u64 {
    let part = 16 * (mix(seed) % 4);
    match mix(seed + 1) % 5 {
        0 => mix(seed + 2),
        1 => word ^ 1 << (mix(seed + 2) % 64),
        2 => word ^ (mix(seed + 2) & 0xffff) << part, // a field of the head or of a slot
        3 => word & !(0xffff << part),
        _ => mix(seed + 2) % 64,
    }
}

/// Every operation ends, with a result or an error.
#[test]
fn whatever_words_a_page_has_every_operation_ends() {
    for seed in (0..400).map(|nth| nth << 20) {
        let map = map();
        let mut tx = map.buffer().begin();
        for nth in 0..=mix(seed) % 3 {
            let page = 1 + mix(seed + 10 * nth + 5) % 30;
            let Ok(draft) = tx.write(page) else { continue };
            let at = (mix(seed + 10 * nth + 6) % if nth % 2 == 0 { 4 } else { 60 }) as usize;
            draft.set(at, instead(draft.get(at), seed + 10 * nth + 7));
        }
        tx.commit().expect("no conflict");
        let _ = map.check();
        let _ = map.last_key_value();
        let _ = map.range(..).take(1000).try_for_each(|item| item.map(drop));
        for key in (0..40).map(|nth| mix(seed + nth) % KEYS) {
            let _ = map.get(&key);
            let _ = map.put(&key, &vec![1; (mix(seed + key) % 100) as usize]);
            let _ = map.remove(&key);
        }
        let _ = Map::open(map.buffer(), "another");
    }
}

/// Changes a word of a page, and returns what the check finds; then takes the change back.
fn fault(map: &Map, page: u64, at: usize, word: impl Fn(u64) -> u64) -> String {
    let set = |word: u64| {
        let mut tx = map.buffer().begin();
        tx.write(page).expect("the page").set(at, word);
        tx.commit().expect("no conflict");
    };
    let old = map.buffer().read(page, |view| view.word(at)).expect("the page");
    set(word(old));
    let found = map.check().expect_err("no fault is found").to_string();
    set(old);
    map.check().expect("the page as it was");
    found
}

/// A page, one of its words, what the fault makes of it, and what `check` says.
type Case = (u64, usize, fn(u64) -> u64, &'static str);

/// Each fault of a page is found, and named. For the layout see `node.rs`.
#[test]
fn a_check_finds_every_fault_of_a_page() {
    let map = map();
    let word = |page: u64, at: usize| map.buffer().read(page, |view| view.word(at)).unwrap();
    let level = |page: &u64| word(*page, 0) & 0xffff;
    let pages = || (2..PAGES).take_while(|&page| map.buffer().read(page, |_| ()).is_ok());
    let leaf = pages().find(|page| level(page) == 0 && word(*page, 1) != 0).expect("a leaf");
    let inner = pages().find(|page| level(page) > 0).expect("an inner node");
    let count = (word(leaf, 0) >> 16 & 0xffff) as usize;
    assert!(count > 2, "hardly any records");
    // The key of a page's first slot.
    let front = |page: u64| (word(page, 4) & 0xffff) as usize;
    let later = pages().find(|page| level(page) == 0 && word(*page, front(*page)) > 0);
    let later = later.expect("a leaf that is not the first");
    let (first, last) = (word(leaf, 4) & 0xffff, word(leaf, 3 + count) & 0xffff);
    let cases: [Case; 11] = [
        (leaf, 0, |head| head | 0x3f << 16, "slots and heap overlap"),
        (leaf, 4, |slot| slot & !0xffff | 5, "a record is not in the heap"),
        (leaf, 0, |head| head + (1 << 48), "the words of the heap are not all accounted for"),
        (leaf, 1, |_| 0, "a fence without a neighbour"),
        (leaf, first as usize, |_| u64::MAX, "keys are not in order"),
        (leaf, last as usize, |_| u64::MAX, "a key is not below the fence"),
        (inner, 2, |_| 0, "no leftmost page"),
        (inner, 2, |_| 2, "it is of another level"),
        (leaf, 1, |right| right + 1, "its neighbour is not its parent's next page"),
        (inner, front(inner), |key| key - 1, "its fence is not the key of its parent's next page"),
        (later, front(later), |_| 0, "a key is less than the parent's key of the page"),
    ];
    for (page, at, change, what) in cases {
        let found = fault(&map, page, at, change);
        assert!(found.contains(what), "{found}, not {what}");
    }
}
