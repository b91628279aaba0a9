//! Indexes of released formats open for ever: pools that earlier versions wrote are checked in under
//! `tests/images`, of each kind one that was closed and one whose process was killed.
//!
//! An image is text: the file's length, then each 64-byte line that is not zero, as its offset and
//! eight words. A new format adds images; those of a release are never written again. (Before a
//! release a changed format may replace them: remove the file and run this test twice.)

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::OpenError;
use pmindex::{
    AnyIndex, FpTree, Index, IndexError, Kind, NvTree, Occupied, Pool, PoolOptions, WbTree,
};

/// Records of each index, before some are removed.
const RECORDS: u64 = 90;

fn options() -> PoolOptions {
    let options = PoolOptions::new().size(192 << 10).zone_bytes(64 << 10).slots(2).slot_bytes(1024);
    options.uuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677).grow(false).write_back(false)
}

fn image_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(format!("{name}.txt"))
}

fn encode(bytes: &[u8]) -> String {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let mut lines = vec![format!("{:x}\n", bytes.len())];
    for (line, words) in words.chunks(8).enumerate().filter(|(_, w)| w.iter().any(|&w| w != 0)) {
        let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
        lines.push(format!("{:x}: {}\n", line * 64, words.join(" ")));
    }
    lines.concat()
}

fn decode(text: &str) -> Vec<u8> {
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let mut lines = text.lines();
    let mut bytes = vec![0; number(lines.next().expect("a length")) as usize];
    for line in lines {
        let (offset, words) = line.split_once(": ").expect("an offset");
        for (i, word) in words.split(' ').enumerate() {
            let at = number(offset) as usize + 8 * i;
            bytes[at..at + 8].copy_from_slice(&number(word).to_le_bytes());
        }
    }
    bytes
}

/// A key of text: empty, short and long ones, in an order of their own.
fn text(n: u64) -> String {
    "key ".repeat(n as usize % 11) + &n.to_string().repeat(usize::from(n > 0))
}

fn bytes(n: u64) -> Vec<u8> {
    vec![n as u8; (n * n % 130) as usize]
}

/// What is done to an index: inserts, replacements, removals.
fn change<K: Ord, V>(
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
    mut upsert: impl FnMut(K, V),
    mut remove: impl FnMut(K),
) {
    for n in (0..RECORDS).map(|n| n * 37 % RECORDS) {
        upsert(key(n), value(n));
    }
    for n in (0..RECORDS).step_by(3) {
        upsert(key(n), value(n + 1));
    }
    for n in (0..RECORDS).step_by(5) {
        remove(key(n));
    }
}

/// What must be there.
fn expected<K: Ord, V>(key: impl Fn(u64) -> K, value: impl Fn(u64) -> V) -> Vec<(K, V)> {
    let model = std::cell::RefCell::new(BTreeMap::new());
    let upsert = |key, value| drop(model.borrow_mut().insert(key, value));
    change(key, value, upsert, |key| drop(model.borrow_mut().remove(&key)));
    model.into_inner().into_iter().collect()
}

fn make(kind: Kind, closed: bool, path: &Path) -> Result<(), IndexError> {
    let pool = Arc::new(Pool::create(path, &options()).expect("created"));
    let numbers = AnyIndex::<u64, i64>::create(&pool, "numbers", kind)?;
    let number = |n: u64| -n.cast_signed();
    change(
        |n| n << 40,
        number,
        |key, value| assert!(numbers.put(&key, &value).is_ok()),
        |key| assert!(numbers.remove(&key).is_ok_and(|old| old.is_some())),
    );
    let texts = AnyIndex::<String, Vec<u8>>::create(&pool, "texts", kind)?;
    change(
        text,
        bytes,
        |key, value| assert!(texts.put(&key, &value).is_ok()),
        |key| assert!(texts.remove(&key).is_ok_and(|old| old.is_some())),
    );
    if closed {
        numbers.close()?;
        texts.close()?;
        return Ok(Arc::into_inner(pool).expect("the only one").close()?);
    }
    // The file as it is now: a killed process leaves no more.
    let image = fs::read(path).expect("readable");
    drop((numbers, texts, pool));
    fs::write(path, image).expect("written");
    Ok(())
}

/// An image; written if there is none: only when a format is new.
fn image(kind: Kind, closed: bool) -> Vec<u8> {
    let name = format!("{kind}-v1-{}", if closed { "closed" } else { "killed" });
    let path = image_path(&name);
    if !path.exists() {
        let directory = tempfile::tempdir().expect("a directory");
        let pool = directory.path().join("pool");
        make(kind, closed, &pool).expect("made");
        fs::write(&path, encode(&fs::read(&pool).expect("readable"))).expect("written");
        panic!("{} is new: check it in, and run this again", path.display());
    }
    decode(&fs::read_to_string(path).expect("an image"))
}

/// Opens an image as a file, checks all that it holds, and goes on using it.
fn opens(kind: &str, closed: bool) {
    let kind: Kind = kind.parse().expect("a kind");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    fs::write(&path, image(kind, closed)).expect("written");
    for round in 0..2u64 {
        let pool = Arc::new(Pool::open(&path, &options()).expect("opened"));
        assert_eq!(pool.was_clean(), closed || round > 0);
        let numbers = AnyIndex::<u64, i64>::open(&pool, "numbers").expect("opened");
        let texts = AnyIndex::<String, Vec<u8>>::open(&pool, "texts").expect("opened");
        assert_eq!((numbers.kind(), texts.kind()), (kind, kind));
        let mut wanted = expected(|n| n << 40, |n: u64| -n.cast_signed());
        wanted.extend((round > 0).then_some((u64::MAX, 1)));
        assert_eq!(numbers.check(), Ok(wanted.len() as u64));
        assert_eq!(all(&numbers), Ok(wanted), "{kind}");
        let wanted = expected(text, bytes);
        assert_eq!(texts.check(), Ok(wanted.len() as u64));
        assert_eq!(all(&texts), Ok(wanted), "{kind}");
        let blocks = [numbers.blocks().expect("whole"), texts.blocks().expect("whole")].concat();
        pool.audit(blocks.into_iter()).expect("every block once");
        // And it is a pool like any other.
        let wanted = if round == 0 { Ok(()) } else { Err(Occupied) };
        assert_eq!(numbers.try_insert(&u64::MAX, &1), Ok(wanted));
        assert_eq!(texts.try_insert("new", &[1; 500]), Ok(Ok(())));
        assert_eq!(texts.remove("new"), Ok(Some(vec![1; 500])));
        numbers.close().expect("closed");
        texts.close().expect("closed");
        Arc::into_inner(pool).expect("the only one").close().expect("closed");
    }
}

fn all<K: pmindex::Key, V: pmindex::Value>(
    index: &AnyIndex<K, V>,
) -> Result<Vec<(K, V)>, IndexError> {
    index.range_bounds(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded).collect()
}

#[test]
fn fptree_v1_closed_opens() {
    opens("fptree", true);
}

#[test]
fn fptree_v1_killed_opens() {
    opens("fptree", false);
}

#[test]
fn fastfair_v1_closed_opens() {
    opens("fastfair", true);
}

#[test]
fn fastfair_v1_killed_opens() {
    opens("fastfair", false);
}

#[test]
fn hart_v1_closed_opens() {
    opens("hart", true);
}

#[test]
fn hart_v1_killed_opens() {
    opens("hart", false);
}

#[test]
fn bztree_v1_closed_opens() {
    opens("bztree", true);
}

#[test]
fn bztree_v1_killed_opens() {
    opens("bztree", false);
}

#[test]
fn nvtree_v1_closed_opens() {
    opens("nvtree", true);
}

#[test]
fn nvtree_v1_killed_opens() {
    opens("nvtree", false);
}

#[test]
fn wbtree_v1_closed_opens() {
    opens("wbtree", true);
}

#[test]
fn wbtree_v1_killed_opens() {
    opens("wbtree", false);
}

#[test]
fn sptree_v1_closed_opens() {
    opens("sptree", true);
}

#[test]
fn sptree_v1_killed_opens() {
    opens("sptree", false);
}

#[test]
fn sptree_buffered_v1_closed_opens() {
    opens("sptree-buffered", true);
}

#[test]
fn sptree_buffered_v1_killed_opens() {
    opens("sptree-buffered", false);
}

/// Opens an index as a certain type; the error, if it is refused.
type Refusal = fn(&Arc<Pool>, &str) -> Option<IndexError>;

/// Opens a file with these contents as a pool.
fn open_bytes(bytes: &[u8]) -> Result<Arc<Pool>, OpenError> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    fs::write(&path, bytes).expect("written");
    Pool::open(&path, &options()).map(Arc::new)
}

#[test]
fn a_truncated_a_zeroed_and_a_mistaken_file_each_have_an_error_of_their_own() {
    for (kind, closed) in
        ["fptree", "nvtree", "wbtree"].map(|kind| [(kind, true), (kind, false)]).concat()
    {
        let whole = image(kind.parse().expect("a kind"), closed);
        for cut in [4096, 8192, whole.len() / 2, whole.len() - 1] {
            let error = open_bytes(&whole[..cut]).expect_err("refused");
            assert!(
                matches!(error, OpenError::Truncated { len, expected, .. }
                    if len == cut as u64 && expected == whole.len() as u64),
                "{kind} cut to {cut}: {error}"
            );
        }
        let error = open_bytes(&vec![0; whole.len()]).expect_err("refused");
        assert!(matches!(error, OpenError::NotAPool { .. }), "{kind} zeroed: {error}");

        let pool = open_bytes(&whole).expect("opened");
        let names = ["numbers", "texts"];
        let others: [(&str, Refusal); 3] = [
            ("fptree", |pool, name| FpTree::<u64, i64>::open(pool, name).err()),
            ("nvtree", |pool, name| NvTree::<u64, i64>::open(pool, name).err()),
            ("wbtree", |pool, name| WbTree::<u64, i64>::open(pool, name).err()),
        ];
        for (other, open) in others.into_iter().filter(|(other, _)| *other != kind) {
            for wanted in names {
                let error = open(&pool, wanted).expect("refused");
                assert!(
                    matches!(&error, IndexError::WrongType { name, found, .. }
                        if name == wanted && found == kind),
                    "{kind} as {other}: {error}"
                );
            }
        }
        for (_, open) in others.into_iter().filter(|(other, _)| *other == kind) {
            let error = open(&pool, "texts").expect("refused");
            let IndexError::WrongLayout { name, .. } = &error else {
                panic!("{kind} of other types: {error}")
            };
            assert_eq!(name, "texts");
            let found = "has keys of type str and values of type";
            assert!(error.to_string().contains(found), "{kind}: {error}");
            assert!(open(&pool, "numbers").is_none(), "a refused opening changes nothing");
        }
        let error = FpTree::<u64, i64>::open(&pool, "none").err();
        assert_eq!(error, Some(IndexError::NoSuchIndex { name: "none".into() }));
    }
}
