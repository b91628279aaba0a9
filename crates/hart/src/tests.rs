//! What needs to see the inside: the image of a clean shutdown, locks, slots on their way.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Barrier, Mutex};

use pmindex_core::trace::{Event, EventKind, Space};
use pmindex_core::{Mapped, Medium, PPtr, PmError, Pool, PoolOptions, Traced};
use pmindex_index::{IndexError, Key, Shape, Storable, Value, Words};
use pmindex_record::Probe;

use crate::layout::{ImagePiece, SlotRef};
use crate::record::KeyBytes;
use crate::shutdown::{Title, checksum};
use crate::tree::Hart;

type Small = Hart<u64, u64, Mapped, 4, 1>;
type Text = Hart<Vec<u8>, Vec<u8>, Mapped, 4, 1>;

/// Keys in a few trees, with nodes of several sizes.
fn key(n: u64) -> u64 {
    (n % 3) << 56 | (n / 3 % 60) << 40 | n
}

fn filled(records: u64) -> (Arc<Pool>, Small) {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Small::create(&pool, "h").expect("room");
    for n in 0..records {
        assert!(hart.try_insert(&key(n), &n).expect("room").is_ok());
    }
    (pool, hart)
}

/// A removal has a sparse chunk in hand, to empty it, while others remove the rest and a load is refused.
#[test]
fn a_refused_load_gives_back_no_chunk_that_is_being_emptied() {
    type Wide = Hart<u64, u64, Mapped, 16, 1>;
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Wide::create(&pool, "h").expect("room");
    for n in 0..480 {
        assert!(hart.try_insert(&key(n), &n).expect("room").is_ok());
    }
    let mut keys: Vec<u64> = (0..480).collect();
    let sparse = loop {
        let n = keys.remove(7919 * keys.len() % 1009 % keys.len());
        assert_eq!(hart.remove(&key(n)).expect("sound"), Some(n));
        let found = (0..40).find_map(|number| hart.chunks.take_sparse(&pool, number));
        if let Some(sparse) = found {
            break sparse;
        }
    };
    assert!(keys.len() > 4);
    for &n in &keys {
        assert_eq!(hart.remove(&key(n)).expect("sound"), Some(n));
    }
    let refused = std::thread::scope(|scope| {
        let load = scope.spawn(|| hart.bulk_load(&mut [(2, 2), (1, 1)].into_iter()));
        // Time for it to go wrong in.
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(sparse);
        load.join().expect("no panic")
    });
    assert!(matches!(refused, Err(IndexError::NotSorted { .. })), "{refused:?}");
    for n in 0..100 {
        assert!(hart.try_insert(&key(n), &n).expect("room").is_ok());
    }
    assert_eq!(hart.check().expect("whole"), 100);
    pool.audit(hart.blocks().expect("intact").into_iter()).expect("no leak");
    drop(hart);
    let hart = Wide::open(&pool, "h").expect("recovery");
    assert_eq!(hart.check().expect("whole"), 100);
    assert!((0..100).all(|n| hart.get(&key(n)).expect("sound") == Some(n)));
}

fn assert_holds(hart: &Small, records: u64) {
    assert_eq!(hart.check().expect("whole"), records);
    for n in 0..records {
        assert_eq!(hart.get(&key(n)).expect("sound"), Some(n));
    }
}

#[test]
fn clean_shutdown_builds_no_tree_and_a_crash_after_it_does() {
    let (pool, hart) = filled(2000);
    for n in 1900..2000 {
        hart.remove(&key(n)).expect("sound"); // leaves nodes and slots unused
    }
    hart.close().expect("room");
    let hart = Small::open(&pool, "h").expect("sound");
    assert!(hart.recovery_report().from_image);
    assert_eq!(hart.recovery_report().records, 1900);
    assert_holds(&hart, 1900);
    pool.audit(hart.blocks().expect("known").into_iter()).expect("nothing lost, nothing twice");
    for n in 1900..2500 {
        assert!(hart.try_insert(&key(n), &n).expect("room").is_ok());
    }
    assert_holds(&hart, 2500);
    drop(hart); // as if the process had died
    let hart = Small::open(&pool, "h").expect("recovered");
    assert!(!hart.recovery_report().from_image);
    assert_holds(&hart, 2500);
    hart.close().expect("room");
    let other = Hart::<u64, u64, Mapped, 4, 2>::open(&pool, "h").expect("recovered");
    assert!(!other.recovery_report().from_image, "an image for another prefix");
    assert_eq!(other.check().expect("whole"), 2500);
}

#[test]
fn clean_shutdown_of_objects() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Text::create(&pool, "h").expect("room");
    let record = |n: usize| (vec![b'a' + n as u8 % 7; n % 60], vec![n as u8; n % 90]);
    let model: BTreeMap<Vec<u8>, Vec<u8>> = (0..400).map(record).collect();
    for (key, value) in &model {
        assert!(hart.try_insert(key, value).expect("room").is_ok());
    }
    hart.close().expect("room");
    let hart = Text::open(&pool, "h").expect("sound");
    assert!(hart.recovery_report().from_image);
    assert_eq!(hart.check().expect("whole"), model.len() as u64);
    assert!(hart.iter().map(|item| item.expect("sound")).eq(model.clone()));
    for (key, value) in &model {
        assert_eq!(hart.remove(key).expect("sound").as_ref(), Some(value));
    }
    pool.audit(hart.blocks().expect("known").into_iter()).expect("nothing lost, nothing twice");
}

#[test]
fn image_of_nothing() {
    let (pool, hart) = filled(0);
    hart.close().expect("room");
    let hart = Small::open(&pool, "h").expect("sound");
    assert!(hart.recovery_report().from_image);
    assert_holds(&hart, 0);
}

/// The pieces of a closed index.
fn pieces(pool: &Pool, root: PPtr<crate::layout::Root>) -> Vec<PPtr<ImagePiece>> {
    let mut next = pool.pm().load(&pool.get(root).expect("a root").image);
    let mut all = Vec::new();
    while !next.is_null() {
        all.push(next);
        next = pool.pm().load(&pool.get(next).expect("a piece").next);
    }
    all
}

#[test]
fn a_damaged_image_is_ignored() {
    let words = |pool: &Pool, piece: PPtr<ImagePiece>| {
        8 + pool.pm().load(&pool.get(piece).expect("a piece").words)
    };
    let (pool, hart) = filled(40);
    let root = hart.entry.root::<crate::layout::Root>();
    hart.close().expect("room");
    let all: Vec<u64> = pieces(&pool, root).iter().map(|&piece| words(&pool, piece)).collect();
    for (at, len) in all.iter().enumerate() {
        for word in 0..*len {
            let (pool, hart) = filled(40);
            hart.close().expect("room");
            let piece = pieces(&pool, root)[at].offset();
            let cell = &pool.words(piece + 8 * word, 1).expect("a word")[0];
            pool.pm().store_word(cell, pool.pm().load_word(cell) ^ 1 << (word % 64));
            let hart = Small::open(&pool, "h").expect("built from the records");
            assert!(!hart.recovery_report().from_image, "piece {at} word {word}");
            assert_holds(&hart, 40);
        }
    }
}

#[test]
fn a_list_of_an_image_that_leads_elsewhere_is_cut_off_there() {
    let (pool, hart) = filled(40);
    let root = hart.entry.root::<crate::layout::Root>();
    hart.close().expect("room");
    let count = pieces(&pool, root).len();
    // The root's pointer, and that of each piece.
    for at in 0..=count {
        for wrong in 0..6 {
            let (pool, hart) = filled(40);
            let mut chunks = Vec::new();
            let each = hart.chunks.each(hart.pm(), |_, chunk, _, _| {
                chunks.push(chunk.offset());
                Ok(())
            });
            each.expect("known");
            hart.close().expect("room");
            let all = pieces(&pool, root);
            let target = match wrong {
                0 => chunks[0], // would free what is in use
                1 => chunks[0] + 64,
                2 => all[0].offset(), // a circle, or a piece already freed
                3 => pool.len(),
                4 => root.offset(),
                _ => all[count - 1].offset() + 3,
            };
            let cell = match at.checked_sub(1) {
                None => &pool.get(root).expect("a root").image,
                Some(before) => &pool.get(all[before]).expect("a piece").next,
            };
            pool.pm().store(cell, PPtr::new(target));
            let hart = Small::open(&pool, "h").expect("built from the records");
            let report = hart.recovery_report();
            if at == 0 && wrong == 2 {
                assert!(report.from_image, "that is where it led");
            } else {
                assert!(!report.from_image && report.repaired == 1, "{at} {wrong}: {report:?}");
            }
            assert_holds(&hart, 40);
            // It is as good as new: what changes is there, and so is the next image.
            for n in 0..40 {
                let there = hart.contains_key(&key(n)).expect("sound");
                assert_eq!(hart.update(&key(n), &7).expect("room").is_ok(), there);
            }
            let all = hart.len().expect("counted");
            hart.close().expect("room");
            let hart = Small::open(&pool, "h").expect("sound");
            assert!(hart.recovery_report().from_image);
            assert_eq!(hart.check(), Ok(all));
        }
    }
}

/// The null that cuts a damaged list off is flushed and fenced before opening returns: else a crash
/// after the next change would bring the list back, and with it whatever it leads to.
#[test]
fn a_list_that_was_cut_off_stays_so() {
    let options = PoolOptions::new().size(256 << 10).zone_bytes(64 << 10).slots(4).slot_bytes(1024);
    let len = options.created_size().expect("a size") as usize;
    let space = Space::new(len, len);
    let pool = Arc::new(Pool::create_traced(&space, &options).expect("created"));
    let hart = Hart::<u64, u64, Traced, 4, 1>::create(&pool, "h").expect("room");
    for n in 0..40 {
        assert!(hart.try_insert(&key(n), &n).expect("room").is_ok());
    }
    let mut chunks = Vec::new();
    let each = hart.chunks.each(hart.pm(), |_, chunk, _, _| {
        chunks.push(chunk.offset());
        Ok(())
    });
    each.expect("known");
    let root = hart.entry.root::<crate::layout::Root>();
    hart.close().expect("room");
    let cell = &pool.get(root).expect("a root").image;
    pool.pm().store(cell, PPtr::new(chunks[0])); // in use, and no piece
    let word = (pool.pptr(cell.as_word()).offset() / 8) as u32;
    space.record(true);
    let hart = Hart::<u64, u64, Traced, 4, 1>::open(&pool, "h").expect("built from the records");
    space.record(false);
    assert_eq!(hart.recovery_report().repaired, 1);
    let trace = space.take_trace();
    let after = |from: usize, what: &dyn Fn(&Event) -> bool| {
        from + 1 + trace[from + 1..].iter().position(what).expect("a step of cutting off")
    };
    let stores = |e: &Event| e.kind.writes() && e.word == word;
    let cut = trace.iter().rposition(stores).expect("the null");
    assert_eq!(trace[cut].value, 0);
    let flushed = after(cut, &|e| e.kind == EventKind::Flush && e.word == word / 8 * 8);
    let fenced = after(flushed, &|e| e.kind == EventKind::Fence);
    let durable = [cut, flushed, fenced].map(|at| trace[at].thread);
    assert_eq!(durable, [durable[0]; 3]);
    drop(hart); // as if the process had died
    let hart = Hart::<u64, u64, Traced, 4, 1>::open(&pool, "h").expect("recovered");
    assert_eq!(hart.recovery_report().repaired, 0, "there is no damaged list any more");
    assert_eq!(hart.check().expect("whole"), 40);
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Changes words of an image and makes its checksum right again.
fn forge(pool: &Pool, root: PPtr<crate::layout::Root>, rng: &mut Rng) {
    let pm = pool.pm();
    let all = pieces(pool, root);
    let at = rng.below(all.len() as u64) as usize;
    let piece = pool.get(all[at]).expect("a piece");
    let cells = pool.words(all[at].offset() + 64, pm.load(&piece.words) as usize).expect("words");
    let mut words = vec![0; cells.len()];
    pm.read_words(cells, &mut words);
    for _ in 0..=rng.below(3) {
        let word = rng.below(words.len() as u64) as usize;
        words[word] = match rng.below(6) {
            0 => words[word] ^ 1 << rng.below(64),
            1 => words[rng.below(words.len() as u64) as usize],
            2 => words[word].wrapping_add(8),
            3 => words[word] ^ 1 << rng.below(6),
            4 => u64::MAX >> rng.below(64),
            _ => 0,
        };
    }
    pm.write_words(cells, &words);
    let title = Title {
        what: pm.load(&piece.what),
        first: pm.load(&piece.first),
        count: pm.load(&piece.count),
    };
    pm.store(&piece.checksum, checksum(at as u64, all.len() as u64, title, &words));
}

#[test]
fn whatever_an_image_says_ends_in_a_result() {
    let mut rng = Rng(0x5eed);
    let mut taken = 0;
    for _ in 0..3000 {
        let (pool, hart) = filled(200);
        let root = hart.entry.root::<crate::layout::Root>();
        hart.close().expect("room");
        forge(&pool, root, &mut rng);
        let Ok(hart) = Small::open(&pool, "h") else { continue };
        taken += u64::from(hart.recovery_report().from_image);
        let _ = hart.check();
        assert!(hart.iter().take(1000).count() <= 401, "a scan without end");
        assert!(hart.iter().rev().take(1000).count() <= 401, "a scan without end");
        for n in 0..300 {
            let _ = (hart.get(&key(n)), hart.put(&key(n), &1));
            if n % 2 == 0 {
                let _ = hart.remove(&key(n));
            }
        }
        let _ = (hart.stats(), hart.first_key_value(), hart.last_key_value(), hart.close());
    }
    assert!(taken > 100, "forged images were taken only {taken} times");
}

/// An image that is whole but not of these chunks: nothing of it may be left when the trees are built
/// from the records, whose objects must not seem to be another record's.
#[test]
fn an_image_of_other_slots_leaves_nothing_behind() {
    let record = |n: u8| (vec![n; 30], vec![n; 20]);
    // The head's count of records; the first and the last word of the slots that are taken.
    for wrong in 0..3 {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let hart = Text::create(&pool, "h").expect("room");
        for n in 0..100 {
            assert!(hart.try_insert(&record(n).0, &record(n).1).expect("room").is_ok());
        }
        let root = hart.entry.root::<crate::layout::Root>();
        hart.close().expect("room");
        let all = pieces(&pool, root);
        let at = if wrong == 0 { 0 } else { all.len() - 1 };
        let (pm, piece) = (pool.pm(), pool.get(all[at]).expect("a piece"));
        let len = pm.load(&piece.words) as usize;
        let cells = pool.words(all[at].offset() + 64, len).expect("words");
        let word = [1, 1, len - 1][wrong];
        pm.store_word(&cells[word], pm.load_word(&cells[word]) ^ 1);
        let words: Vec<u64> = cells.iter().map(|cell| pm.load_word(cell)).collect();
        let title = Title {
            what: pm.load(&piece.what),
            first: pm.load(&piece.first),
            count: pm.load(&piece.count),
        };
        pm.store(&piece.checksum, checksum(at as u64, all.len() as u64, title, &words));
        let hart = Text::open(&pool, "h").expect("built from the records");
        let from_image = hart.recovery_report().from_image;
        assert!(!from_image || wrong > 0, "a count that is wrong");
        if !from_image {
            assert_eq!(hart.check().expect("whole"), 100);
            for n in 0..100 {
                assert_eq!(hart.get(&record(n).0).expect("sound"), Some(record(n).1));
            }
        }
    }
}

static MEETING: Mutex<Option<Arc<(Barrier, Barrier)>>> = Mutex::new(None);

/// A value whose decoding waits in the middle of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slow(u64);

impl Storable for Slow {
    type Ref = Self;
    const SHAPE: Shape = Shape::Inline(1);

    fn type_name() -> String {
        "slow".into()
    }
    fn borrowed(&self) -> &Self {
        self
    }
    fn to_words(value: &Self) -> Words {
        [value.0, 0, 0, 0]
    }
    fn from_words(words: &[u64]) -> Self {
        let meeting = if words[0] == 13 { MEETING.lock().expect("whole").take() } else { None };
        if let Some(meeting) = meeting {
            meeting.0.wait();
            meeting.1.wait();
        }
        Self(words[0])
    }
    fn to_bytes(_: &Self) -> Cow<'_, [u8]> {
        unreachable!("an inline type")
    }
    fn from_bytes(_: &[u8]) -> Option<Self> {
        unreachable!("an inline type")
    }
}

/// The paper has one lock per tree. Here a removal that stands still in the middle, its key locked,
/// keeps no other writer of the same tree.
#[test]
fn writers_in_one_tree_do_not_wait_for_each_other() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Hart::<u64, Slow, Mapped, 56, 0>::create(&pool, "h").expect("room");
    assert!(hart.try_insert(&1, &Slow(13)).expect("room").is_ok());
    assert!(hart.try_insert(&2, &Slow(2)).expect("room").is_ok());
    let meeting = Arc::new((Barrier::new(2), Barrier::new(2)));
    *MEETING.lock().expect("whole") = Some(Arc::clone(&meeting));
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| hart.remove(&1).expect("sound"));
        meeting.0.wait(); // it holds the key's lock
        assert!(hart.update(&2, &Slow(3)).expect("room").is_ok());
        assert!(hart.try_insert(&3, &Slow(3)).expect("room").is_ok());
        assert_eq!(hart.remove(&2).expect("sound"), Some(Slow(3)));
        assert_eq!(hart.get(&3).expect("sound"), Some(Slow(3)));
        meeting.1.wait();
        assert_eq!(removal.join().expect("no panic"), Some(Slow(13)));
    });
    assert_eq!(hart.check().expect("whole"), 1);
}

/// The paper sets bitmaps only at commit, so two writers can be given one slot.
#[test]
fn a_slot_on_its_way_is_handed_out_once() {
    let (pool, hart) = filled(2);
    let root = hart.root().expect("a root");
    let mut slots = BTreeSet::new();
    let mut hands = [hart.chunks.hand(pool.pm()), hart.chunks.hand(pool.pm())];
    for i in 0..20 {
        let slot = hart.chunks.take_record(&pool, root, &mut hands[i % 2], 2).expect("room");
        assert!(slots.insert(slot.offset()), "a slot of two writers");
        let object = hart.chunks.take_object(&pool, root, 3).expect("room");
        assert!(slots.insert(object.offset()), "a slot of two writers");
    }
}

fn all_strings(prefix: &mut Vec<u8>, left: usize, all: &mut Vec<Vec<u8>>) {
    all.push(prefix.clone());
    if left > 0 {
        for byte in [0, b'a', 255] {
            prefix.push(byte);
            all_strings(prefix, left - 1, all);
            prefix.pop();
        }
    }
}

/// Keys shorter than the prefix that chooses the tree, and keys that are the beginning of others.
fn short_keys<const P: usize>() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let hart = Hart::<Vec<u8>, u64, Mapped, 4, P>::create(&pool, "h").expect("room");
    let mut keys = Vec::new();
    all_strings(&mut Vec::new(), 4, &mut keys);
    let mut model = BTreeMap::new();
    for (n, key) in (0..).zip(&keys) {
        assert!(hart.try_insert(key, &n).expect("room").is_ok());
        model.insert(key.clone(), n);
    }
    for key in &keys {
        assert_eq!(hart.get(key).expect("sound").as_ref(), model.get(key));
        let up = hart.range(key.clone()..).map(|item| item.expect("sound"));
        assert!(up.eq(model.range(key.clone()..).map(|(k, v)| (k.clone(), *v))));
        let down = hart.range(..key.clone()).rev().map(|item| item.expect("sound"));
        assert!(down.eq(model.range(..key.clone()).rev().map(|(k, v)| (k.clone(), *v))));
    }
    for (n, key) in keys.iter().enumerate() {
        let key = if n % 2 == 0 { key } else { &keys[keys.len() - 1 - n] };
        assert_eq!(hart.remove(key).expect("sound"), model.remove(key));
        assert_eq!(hart.check().expect("whole"), model.len() as u64);
    }
}

#[test]
fn short_keys_with_every_prefix() {
    short_keys::<0>();
    short_keys::<1>();
    short_keys::<2>();
    short_keys::<3>();
}

/// The slot of a key's record.
fn slot_of<K: Key, V: Value>(hart: &Hart<K, V, Mapped, 4, 1>, key: &K) -> SlotRef {
    let probe = Probe::of_stored(key);
    let found = hart.find(&probe, &KeyBytes::of(&probe)).expect("sound");
    SlotRef::from_number(found.expect("there").leaf)
}

/// Changes a word of a pool.
fn change(pool: &Pool, offset: u64, change: impl Fn(u64) -> u64) {
    let cell = &pool.words(offset, 1).expect("in the pool")[0];
    pool.pm().store_word(cell, change(pool.pm().load_word(cell)));
}

fn assert_damaged<T: std::fmt::Debug>(pool: &Pool, found: &Result<T, IndexError>, what: &str) {
    assert!(matches!(found, Err(IndexError::Pool(PmError::Corrupt { .. }))), "{what}: {found:?}");
    assert!(pool.damage().is_some(), "{what}");
}

/// A record with another key than the trees have for it: a search for that key returns an error.
#[test]
fn a_record_with_another_key_than_the_trees_have_is_damage() {
    type Call = fn(&Small, u64) -> Result<bool, IndexError>;
    let calls: [(&str, Call); 7] = [
        ("get", |hart, key| hart.get(&key).map(|found| found.is_some())),
        ("contains_key", |hart, key| hart.contains_key(&key)),
        ("get_many", |hart, key| hart.get_many(&[key], &mut [None]).map(|()| true)),
        ("insert", |hart, key| hart.try_insert(&key, &1).map(|done| done.is_ok())),
        ("update", |hart, key| hart.update(&key, &1).map(|done| done.is_ok())),
        ("put", |hart, key| hart.put(&key, &1)),
        ("remove", |hart, key| hart.remove(&key).map(|found| found.is_some())),
    ];
    for (name, call) in calls {
        let (pool, hart) = filled(500);
        call(&hart, key(77)).expect("sound");
        assert_eq!(hart.get(&(key(78) ^ 1 << 39)), Ok(None)); // leads to a record that is whole
        assert_eq!(pool.damage(), None);
        change(&pool, slot_of(&hart, &key(78)).offset(), |word| word ^ 1 << 60);
        assert_damaged(&pool, &call(&hart, key(78)), name);
    }
}

#[test]
fn a_record_whose_bit_is_clear_is_damage_to_who_meets_it() {
    let (pool, hart) = filled(2);
    assert_eq!(hart.get(&5), Ok(None));
    let slot = slot_of(&hart, &0);
    change(&pool, slot.line(), |word| word & !Small::bit_of(slot));
    assert_damaged(&pool, &hart.get(&5), "get");
}

/// A removal clears the bit before the record leaves its tree: a thread that finds the record in between
/// waits.
#[test]
fn a_record_on_its_way_out_is_no_damage() {
    let (pool, hart) = filled(2);
    let (slot, zero) = (slot_of(&hart, &0), 0_u64);
    let lock = hart.lock_of(Probe::of_stored(&zero).hash()).lock(pool.pm());
    change(&pool, slot.line(), |word| word & !Small::bit_of(slot));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| hart.get(&5));
        std::thread::sleep(std::time::Duration::from_millis(30));
        change(&pool, slot.line(), |word| word | Small::bit_of(slot));
        drop(lock);
        assert_eq!(reader.join().expect("no panic"), Ok(None));
    });
}

#[test]
fn keys_of_bytes_that_are_damaged_are_said_to_be() {
    // What to do to the record's words, by number, or to its object's.
    type Damage = fn(&Pool, SlotRef, u64);
    let damages: [(&str, Damage); 6] = [
        ("an impossible length", |pool, slot, _| change(pool, slot.offset(), |_| 1 << 40)),
        ("another length", |pool, slot, _| change(pool, slot.offset(), |len| len - 1)),
        ("no object", |pool, slot, _| change(pool, slot.offset() + 8, |_| 0)),
        ("an object elsewhere", |pool, slot, _| change(pool, slot.offset() + 8, |_| 1 << 45 | 2)),
        ("the object's length", |pool, _, object| change(pool, object, |len| len + 1)),
        ("the object's bytes", |pool, _, object| change(pool, object + 8, |word| !word)),
    ];
    for (name, damage) in damages {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let hart = Text::create(&pool, "h").expect("room");
        let long = |n: u8| [vec![b'l', n], vec![b'o'; 30]].concat();
        for n in 0..40 {
            assert!(hart.try_insert(&long(n), b"a value").expect("room").is_ok());
        }
        assert_eq!(hart.get(&[b'l', 7]), Ok(None));
        assert_eq!(hart.get(&[long(7), vec![0]].concat()), Ok(None)); // leads to another record
        assert_eq!(pool.damage(), None);
        let slot = slot_of(&hart, &long(7));
        let object = hart.records.key_out_of_line(slot).expect("sound").expect("out of line");
        damage(&pool, slot, object.offset());
        assert_damaged(&pool, &hart.get(&long(7)), name);
    }
}
