//! Indexes of released formats open for ever: pools that earlier versions wrote are checked in under
//! `tests/images`, for each kind one that was closed and one whose process was killed.
//!
//! An image is text: the file's length, then each 64-byte line that is not zero, as its offset and eight
//! words. A new format adds images; those of a release are never rewritten. (Before a release a changed
//! format may replace them: remove the file and run the test twice.)

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex_core::{Mapped, Pool, PoolOptions};
use pmindex_index::{Index, IndexError, Key, Occupied, PmIndex, Value};

/// Records of each index, before some are removed.
const RECORDS: u64 = 90;

/// An index of numbers and one of texts, in one pool.
pub type Both<N, T> = Result<(N, T), IndexError>;
/// Makes or opens both.
pub type Make<N, T> = Box<dyn Fn(&Arc<Pool>) -> Both<N, T>>;

/// Creates and opens the two indexes of an image.
pub struct Fixture<N, T> {
    /// The image's name, without its version.
    pub name: String,
    /// Creates `numbers` and `texts`.
    pub create: Make<N, T>,
    /// Opens them.
    pub open: Make<N, T>,
    /// Closes them.
    pub close: fn(N, T) -> Result<(), IndexError>,
    /// Their blocks.
    pub blocks: fn(&N, &T) -> Result<Vec<u64>, IndexError>,
}

impl<N, T> std::fmt::Debug for Fixture<N, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the options of the pool of an image.
pub fn options() -> PoolOptions {
    let options = PoolOptions::new().size(192 << 10).zone_bytes(64 << 10).slots(2).slot_bytes(1024);
    options.uuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677).grow(false).write_back(false)
}

fn image_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/images").join(format!("{name}.txt"))
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

/// Returns an image; if it is missing, which must happen only for a new format, has `make` make a pool at a path,
/// and writes it.
///
/// # Panics
/// If it is new.
#[must_use]
pub fn image(name: &str, make: impl FnOnce(&Path)) -> Vec<u8> {
    let path = image_path(name);
    if !path.exists() {
        let directory = tempfile::tempdir().expect("a directory");
        let pool = directory.path().join("pool");
        make(&pool);
        fs::write(&path, encode(&fs::read(&pool).expect("readable"))).expect("written");
        panic!("{} is new: check it in, and run this again", path.display());
    }
    decode(&fs::read_to_string(path).expect("an image"))
}

/// Returns a text key: empty, short and long ones, in an order different from the numbers'.
fn text(n: u64) -> String {
    "key ".repeat(n as usize % 11) + &n.to_string().repeat(usize::from(n > 0))
}

fn bytes(n: u64) -> Vec<u8> {
    vec![n as u8; (n * n % 130) as usize]
}

/// Executes the operations of an image on an index: inserts, replacements, removals.
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

/// Returns the records that must be in it.
fn expected<K: Ord, V>(key: impl Fn(u64) -> K, value: impl Fn(u64) -> V) -> Vec<(K, V)> {
    let model = RefCell::new(BTreeMap::new());
    let upsert = |key, value| drop(model.borrow_mut().insert(key, value));
    change(key, value, upsert, |key| drop(model.borrow_mut().remove(&key)));
    model.into_inner().into_iter().collect()
}

fn all<K: Key, V: Value>(index: &impl Index<K, V>) -> Result<Vec<(K, V)>, IndexError> {
    index.range_bounds(Bound::Unbounded, Bound::Unbounded).collect()
}

impl<N, T> Fixture<N, T>
where
    N: PmIndex<u64, i64, Mapped>,
    T: PmIndex<String, Vec<u8>, Mapped>,
{
    /// Makes the fixture of an index of a known type.
    #[must_use]
    pub fn of() -> Self {
        Self {
            name: N::NAME.to_owned(),
            create: Box::new(|pool| Ok((N::create(pool, "numbers")?, T::create(pool, "texts")?))),
            open: Box::new(|pool| Ok((N::open(pool, "numbers")?, T::open(pool, "texts")?))),
            close: |numbers, texts| numbers.close().and_then(|()| texts.close()),
            blocks: |numbers, texts| Ok([numbers.blocks()?, texts.blocks()?].concat()),
        }
    }
}

impl<N: Index<u64, i64>, T: Index<String, Vec<u8>>> Fixture<N, T> {
    fn make(&self, closed: bool, path: &Path) -> Result<(), IndexError> {
        let pool = Arc::new(Pool::create(path, &options()).expect("created"));
        let (numbers, texts) = (self.create)(&pool)?;
        change(
            |n| n << 40,
            |n| -n.cast_signed(),
            |key, value| assert!(numbers.put(&key, &value).is_ok()),
            |key| assert!(numbers.remove(&key).is_ok_and(|old| old.is_some())),
        );
        change(
            text,
            bytes,
            |key, value| assert!(texts.put(&key, &value).is_ok()),
            |key| assert!(texts.remove(&key).is_ok_and(|old| old.is_some())),
        );
        if closed {
            (self.close)(numbers, texts)?;
            return Ok(Arc::into_inner(pool).expect("the only one").close()?);
        }
        // The file as it is now: a killed process leaves exactly this.
        let image = fs::read(path).expect("readable");
        drop((numbers, texts, pool));
        fs::write(path, image).expect("written");
        Ok(())
    }

    /// Returns the image of a pool that was closed, or whose process was killed; see [`image`].
    ///
    /// # Panics
    /// If it is new.
    #[must_use]
    pub fn image(&self, closed: bool) -> Vec<u8> {
        let name = format!("{}-v1-{}", self.name, if closed { "closed" } else { "killed" });
        image(&name, |path| self.make(closed, path).expect("made"))
    }

    /// Opens an image as a file, checks all of its contents, and continues to use it.
    ///
    /// # Panics
    /// If anything differs from what was written.
    pub fn opens(&self, closed: bool) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pool");
        fs::write(&path, self.image(closed)).expect("written");
        for round in 0..2u64 {
            let pool = Arc::new(Pool::open(&path, &options()).expect("opened"));
            assert_eq!(pool.was_clean(), closed || round > 0);
            let (numbers, texts) = (self.open)(&pool).expect("opened");
            let mut wanted = expected(|n| n << 40, |n: u64| -n.cast_signed());
            wanted.extend((round > 0).then_some((u64::MAX, 1)));
            assert_eq!(numbers.check(), Ok(wanted.len() as u64));
            assert_eq!(all(&numbers), Ok(wanted), "{}", self.name);
            let wanted = expected(text, bytes);
            assert_eq!(texts.check(), Ok(wanted.len() as u64));
            assert_eq!(all(&texts), Ok(wanted), "{}", self.name);
            let blocks = (self.blocks)(&numbers, &texts).expect("whole");
            pool.audit(blocks.into_iter()).expect("every block once");
            // It is also usable like any other pool.
            let wanted = if round == 0 { Ok(()) } else { Err(Occupied) };
            assert_eq!(numbers.try_insert(&u64::MAX, &1), Ok(wanted));
            assert_eq!(texts.try_insert("new", &vec![1; 500]), Ok(Ok(())));
            assert_eq!(texts.remove("new"), Ok(Some(vec![1; 500])));
            (self.close)(numbers, texts).expect("closed");
            Arc::into_inner(pool).expect("the only one").close().expect("closed");
        }
    }
}
