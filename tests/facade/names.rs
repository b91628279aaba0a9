//! The names and the behaviour of the methods of every index: replacing, removing several, ranges of borrowed
//! keys, prefixes.

use std::ops::Bound;
use std::sync::Arc;

use pmindex::{
    AnyIndex, FpTree, Index, IndexError, Key, Kind, Missing, Occupied, Pool, RangeIter, Value,
};

fn every<K: Key, V: Value>(test: impl Fn(&AnyIndex<K, V>, Kind)) {
    for &kind in Kind::ALL {
        let pool = Arc::new(Pool::emulated(16 << 20).expect("memory"));
        test(&AnyIndex::create(&pool, "index", kind).expect("room"), kind);
    }
}

fn keys<K: Key, V: Value>(items: RangeIter<'_, K, V>) -> Vec<K> {
    items.map(|item| item.expect("sound").0).collect()
}

#[test]
fn a_write_that_meets_what_is_there_says_so() {
    every::<String, u64>(|users, kind| {
        assert_eq!(users.insert("ada", &1), Ok(None), "{kind}");
        assert_eq!(users.insert("ada", &2), Ok(Some(1)), "{kind}");
        assert_eq!(users.try_insert("ada", &3), Ok(Err(Occupied)), "{kind}");
        assert_eq!(users.get("ada"), Ok(Some(2)), "{kind}");
        assert_eq!(users.update("bob", &4), Ok(Err(Missing)), "{kind}");
        assert_eq!(users.put("bob", &5), Ok(true), "{kind}");
        assert_eq!(users.put("bob", &6), Ok(false), "{kind}");
        let all = |key: &str| -> Result<(), IndexError> { Ok(users.try_insert(key, &0)??) };
        assert_eq!(all("bob"), Err(IndexError::Occupied(Occupied)), "{kind}");
        assert_eq!(all("bob").unwrap_err().to_string(), "the key is in the index already");
        assert_eq!(Missing.to_string(), "the key is not in the index");
        assert_eq!(users.remove_exact("bob", &5), Ok(None), "{kind}");
        assert_eq!(users.remove_exact("bob", &6), Ok(Some(6)), "{kind}");
        assert_eq!(users.pop_last(), Ok(Some(("ada".into(), 2))), "{kind}");
        assert_eq!(users.pop_first(), Ok(None), "{kind}");
    });
}

/// What `==` says of a value is not what `retain` and `remove_if` go by.
#[test]
fn a_value_that_is_not_itself_can_be_removed() {
    every::<u64, f64>(|index, kind| {
        for key in 0..10 {
            index.put(&key, &if key % 2 == 0 { f64::NAN } else { 0.5 }).expect("room");
        }
        assert_eq!(
            index.remove_if(&4, &mut |value| value.is_nan()).map(|old| old.is_some()),
            Ok(true)
        );
        assert_eq!(index.remove_if(&5, &mut |value| value.is_nan()), Ok(None), "{kind}");
        assert_eq!(index.retain(&mut |_, value| !value.is_nan()), Ok(4), "{kind}");
        assert_eq!(keys(index.range(..)), [1, 3, 5, 7, 9], "{kind}");
        assert_eq!(index.remove_range(3..=7), Ok(3), "{kind}");
        index.clear().expect("sound");
        assert_eq!(index.len(), Ok(0), "{kind}");
    });
}

#[test]
fn ranges_take_borrowed_keys_and_prefixes() {
    every::<String, u64>(|index, kind| {
        for key in ["", "a", "ab", "ab\u{10ffff}", "ab\u{10ffff}c", "abc", "ac", "b"] {
            index.put(key, &0).expect("room");
        }
        assert_eq!(keys(index.range("ab".."ac")), ["ab", "abc", "ab\u{10ffff}", "ab\u{10ffff}c"]);
        assert_eq!(keys(index.range(String::from("ac")..)), ["ac", "b"], "{kind}");
        assert_eq!(keys(index.range((Bound::Excluded("a"), Bound::Included("ab")))), ["ab"]);
        assert_eq!(keys(index.prefix("ab\u{10ffff}")), ["ab\u{10ffff}", "ab\u{10ffff}c"], "{kind}");
        let mut both = index.prefix("ab");
        assert_eq!(both.next_back().expect("four").expect("sound").0, "ab\u{10ffff}c", "{kind}");
        assert_eq!(both.next().expect("four").expect("sound").0, "ab", "{kind}");
        assert_eq!(keys(both), ["abc", "ab\u{10ffff}"], "{kind}");
        assert_eq!(keys(index.prefix("")).len(), 8, "{kind}");
        assert_eq!(keys(index.prefix("abcd")), Vec::<String>::new(), "{kind}");
        assert_eq!(index.remove_range("ab".."ac"), Ok(4), "{kind}");
        assert_eq!(keys(index.range(..)), ["", "a", "ac", "b"], "{kind}");
    });
}

/// The key after the longest ones that begin with a prefix may be longer than a key can be.
#[test]
fn the_longest_prefix_is_one_too() {
    every::<String, u64>(|index, kind| {
        let longest = "\u{7f}".repeat(pmindex::MAX_KEY_BYTES);
        index.put(&longest, &1).expect("room");
        index.put("\u{80}", &2).expect("room");
        assert_eq!(keys(index.prefix(&longest)), std::slice::from_ref(&longest), "{kind}");
        assert_eq!(keys(index.prefix("\u{7f}")), std::slice::from_ref(&longest), "{kind}");
        assert_eq!(
            index.prefix(&longest).next_back().map(|item| item.map(|item| item.1)),
            Some(Ok(1))
        );
    });
    every::<Vec<u8>, u64>(|index, kind| {
        let longest = vec![0xff; pmindex::MAX_KEY_BYTES];
        index.put(&longest, &1).expect("room");
        index.put(&[0xff], &2).expect("room");
        assert_eq!(keys(index.prefix(&longest)), std::slice::from_ref(&longest), "{kind}");
        assert_eq!(keys(index.prefix(&[0xff])).len(), 2, "{kind}");
        assert_eq!(keys(index.prefix(&[0xfe])).len(), 0, "{kind}");
    });
}

/// Iterators live across an `.await`, and move to other threads.
#[test]
fn iterators_are_send() {
    fn send<T: Send>(item: T) -> T {
        item
    }
    every::<u64, u64>(|index, kind| {
        index.put(&1, &10).expect("room");
        let items = send(index.range(..));
        let found = std::thread::scope(|threads| {
            threads.spawn(move || items.count()).join().expect("no panic")
        });
        assert_eq!(found, 1, "{kind}");
    });
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let tree = FpTree::<u64, u64>::create(&pool, "tree").expect("room");
    assert_eq!(send(tree.iter()).count(), 0);
    assert_eq!(tree.pop_first(), Ok(None));
    assert_eq!(tree.retain(|_, _| true), Ok(0));
}
