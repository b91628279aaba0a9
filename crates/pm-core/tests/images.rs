//! Opens pools of released formats, of which images are checked in.
//!
//! An image is text: the length of the file, then each 64-byte line that is not zero, as its offset and eight
//! words. A new format adds images; existing images never change.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pmindex_core::trace::Space;
use pmindex_core::{
    Flushed, Medium, Owner, PPtr, PmCell, PmU64, Pool, PoolOptions, Traced, pm_struct,
};

pm_struct! {
    /// Pointers to blocks.
    #[align(64)]
    struct Root: size 128 {
        places: [PmCell<PPtr<PmU64>>; 8],
        words: [PmU64; 8],
    }
}

const KIND: [u8; 8] = *b"fixture ";
const LAYOUT: u64 = 0x1234_5678_9abc_def0;
/// A small block, a block with a slab of its own, and extents.
const SIZES: [u64; 5] = [24, 100, 2000, 9000, 12_289];

fn options() -> PoolOptions {
    let options = PoolOptions::new().size(64 << 10).zone_bytes(64 << 10).slots(2).slot_bytes(256);
    options.uuid(0x0123_4567_89ab_cdef_0011_2233_4455_6677).grow(false)
}

fn image_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(format!("{name}.txt"))
}

fn encode(words: &[u64]) -> String {
    let mut lines = vec![format!("{:x}\n", words.len() * 8)];
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

/// Makes the contents of the images: a filled block of each size, two indexes, and the directory entry of a
/// dropped index.
fn filled(space: &Space) -> Pool<Traced> {
    let pool = Pool::create_traced(space, &options()).expect("created");
    let fill = |root: &Root| {
        pool.pm().write_words(&root.words, &[1, 2, 3, 4, 5, 6, 7, 8]);
        pool.pm().flush(root)
    };
    for name in
        ["first", "dropped", "the second index has a name of 64 bytes, which is the longest..."]
    {
        pool.create_index::<Root>(name, KIND, LAYOUT, fill).expect("created");
    }
    assert!(pool.drop_root("dropped").expect("dropped"));
    let root = root_of(&pool, "first");
    for (place, &size) in SIZES.iter().enumerate() {
        put(&pool, root, place, size, 3);
    }
    pool
}

fn root_of<M: Medium>(pool: &Pool<M>, name: &str) -> PPtr<Root> {
    let entry = pool.open_index(name).expect("whole").expect("there");
    assert_eq!((entry.kind, entry.layout), (KIND, LAYOUT));
    entry.root()
}

/// Allocates a block for a pointer, up to a step: 1 staged, 2 committed and not sealed, 3 complete.
fn put<M: Medium>(pool: &Pool<M>, root: PPtr<Root>, place: usize, size: u64, steps: u8) {
    let (pm, dest) = (pool.pm(), &pool.get(root).expect("there").places[place]);
    let mut op = pool.op().expect("a slot");
    let block = op.reserve_bytes(size, 16).expect("room");
    let words = pool.words(block.ptr().offset(), size as usize / 8).expect("there");
    for (i, word) in (0..).zip(words) {
        pm.store(word, place as u64 * 1000 + i);
    }
    let filled = pm.flush_words(words);
    op.allocate(&block, Owner::pointer(dest, block.ptr())).expect("staged");
    op.prepare(filled).expect("durable");
    if steps > 1 {
        pm.store(dest, block.ptr());
        let _ = pm.flush(dest);
    }
    if steps < 3 {
        std::mem::forget(op);
        return;
    }
    let flushed: Flushed = op.seal().and(pm.flush(dest));
    let durable = pm.fence(flushed).expect("durable");
    op.finish(durable);
}

/// Writes an image if it does not exist, which is so for a new format only.
fn image(name: &str, make: impl FnOnce(&Space)) -> Vec<u8> {
    let path = image_path(name);
    if !path.exists() {
        let len = options().created_size().expect("a size") as usize;
        let space = Space::new(len, len);
        make(&space);
        fs::write(&path, encode(&space.snapshot()[..len / 8])).expect("written");
        panic!("{} is new: check it in, and run this again", path.display());
    }
    decode(&fs::read_to_string(path).expect("an image"))
}

/// Opens an image as a file and checks its contents; `more` are the blocks in addition to those of
/// [`filled`].
fn opens(image: &[u8], clean: bool, more: &[(usize, u64)]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    fs::write(&path, image).expect("written");
    let pool = Pool::open(&path, &PoolOptions::new().write_back(false)).expect("opened");
    assert_eq!(pool.was_clean(), clean);
    assert_eq!((pool.generation(), pool.uuid()), (2, 0x0123_4567_89ab_cdef_0011_2233_4455_6677));
    let names: Vec<String> = pool.indexes().expect("whole").into_iter().map(|e| e.name).collect();
    let second = "the second index has a name of 64 bytes, which is the longest...";
    assert_eq!(names, ["first", second]);
    let mut wanted: BTreeMap<usize, u64> = SIZES.into_iter().enumerate().collect();
    wanted.extend(more.iter().copied());
    let roots = [root_of(&pool, "first"), root_of(&pool, second)];
    let mut owned: Vec<u64> = roots.iter().map(|root| root.offset()).collect();
    for root in roots {
        let words = &pool.get(root).expect("there").words;
        assert_eq!(words.each_ref().map(|word| pool.pm().load(word)), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
    let places = &pool.get(roots[0]).expect("there").places;
    for (place, cell) in places.iter().enumerate() {
        let block = pool.pm().load(cell);
        let Some(&size) = wanted.get(&place) else {
            assert!(block.is_null(), "place {place}");
            continue;
        };
        let words = pool.words(block.offset(), size as usize / 8).expect("there");
        for (i, word) in (0..).zip(words) {
            assert_eq!(pool.pm().load(word), place as u64 * 1000 + i, "place {place}");
        }
        owned.push(block.offset());
    }
    pool.audit(owned.into_iter()).expect("every block once");
    // The pool can be used like any other.
    put(&pool, roots[1], 7, 500, 3);
    pool.free_from(&places[3]).expect("freed");
    pool.close().expect("closed");
    assert!(Pool::open(&path, &PoolOptions::new().write_back(false)).expect("opened").was_clean());
}

#[test]
fn pool_v1_closed_opens() {
    let image = image("pool-v1-closed", |space| filled(space).close().expect("closed"));
    opens(&image, true, &[]);
}

#[test]
fn pool_v1_killed_in_the_middle_of_operations_opens() {
    let image = image("pool-v1-killed", |space| {
        let pool = filled(space);
        let root = root_of(&pool, "first");
        put(&pool, root, 5, 100, 2);
        put(&pool, root, 6, 4000, 1);
        pool.kill();
    });
    opens(&image, false, &[(5, 100)]);
}
