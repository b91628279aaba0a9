//! Tests of steps that no crash shows: of rot, and of states between two steps.

use std::sync::Arc;

use pmindex_core::{Medium, Pool};
use pmindex_wal::Disk;
use pmindex_wal::sim::SimDisk;

use crate::layout::staged_word;
use crate::{Buffer, BufferError, BufferOptions, Progress};

const PAGE: u64 = 4096;

fn made(options: &BufferOptions) -> (Arc<Pool>, SimDisk, Buffer) {
    let (pool, disk) = (Arc::new(Pool::emulated(1 << 20).unwrap()), SimDisk::new(512, 8 * 4096));
    let buffer = Buffer::create(&pool, "pages", Arc::new(disk.clone()), options).unwrap();
    (pool, disk, buffer)
}

/// Sets a word of pages, each in a transaction of its own.
fn set(buffer: &Buffer, pages: &[u64], word: u64) {
    for &page in pages {
        let mut tx = buffer.begin();
        match tx.write(page) {
            Ok(draft) => draft.set(9, word),
            Err(_) => tx.create(page).unwrap().set(9, word),
        }
        tx.commit().unwrap();
    }
}

fn rot(disk: &SimDisk, page: u64) {
    let mut bytes = vec![0; PAGE as usize];
    disk.read(PAGE * page, &mut bytes).unwrap();
    bytes[1000] ^= 4;
    disk.write(PAGE * page, &bytes).unwrap();
}

/// A frame whose page counts as written is not flushed by the next checkpoint. If it keeps its page, because
/// the eviction ends with an error, a power failure may bring an older image of the page back.
#[test]
fn a_damaged_page_ends_an_eviction_before_any_page_counts_as_written() {
    let (pool, disk, buffer) = made(&BufferOptions::new(4).staging(1));
    set(&buffer, &[1, 2], 10);
    buffer.checkpoint().unwrap();
    set(&buffer, &[1, 2], 20);
    rot(&disk, 2);
    let frame = |page: u64| buffer.pages[page as usize].place().unwrap().frame;
    let damaged = &buffer.frames.words(&pool, frame(2))[100];
    pool.pm().store(damaged, 7);
    let dirty = buffer.states[frame(1) as usize].dirty();
    assert!(dirty > 0);
    // More pages than the staging area takes at once.
    let written = buffer.write_victims(&[(1, frame(1)), (2, frame(2))]);
    assert!(matches!(written, Err(BufferError::Damaged { page: 2, .. })), "{written:?}");
    drop(written);
    assert_eq!(buffer.states[frame(1) as usize].dirty(), dirty, "page 1 counts as written");
}

/// The staging area may have an older copy of a page, which counts if a crash left the number of copies and not
/// the copies. The disk has a newer one, and the log no longer has what lies between the two.
#[test]
fn an_older_copy_in_the_staging_area_is_not_written_again() {
    let options = BufferOptions::new(4).staging(2);
    let (pool, disk, buffer) = made(&options);
    set(&buffer, &[1, 2], 10);
    buffer.checkpoint().unwrap(); // the second place has page 1
    set(&buffer, &[1], 20);
    buffer.checkpoint().unwrap(); // and now the first place too
    let root = pool.get(buffer.root).unwrap();
    pool.pm().store(&root.staged, staged_word(buffer.identity(), 2));
    drop(buffer);
    let read = || {
        let opened =
            Buffer::open(&pool, "pages", Arc::new(disk.clone()), &options.clone().cold(true));
        opened.unwrap().unwrap().read(1, |view| view.word(9))
    };
    assert_eq!(read().unwrap(), 20);
    rot(&disk, 1);
    let found = read();
    assert!(matches!(found, Err(BufferError::Damaged { page: 1, .. })), "rot is hidden: {found:?}");
}

/// A group of which a later record finds no room keeps none for the earlier ones.
#[test]
fn a_group_that_finds_no_room_in_the_log_takes_none() {
    let (_pool, _, buffer) = made(&BufferOptions::new(4));
    let group = |records: u64| {
        (1..=records).map(|page| {
            let mut tx = buffer.begin();
            let draft = tx.create(page)?;
            (0..500).for_each(|at| draft.set(at, 1 + at as u64 * page));
            Ok(tx)
        })
    };
    let mut refused = 0;
    while refused < 3 {
        let bytes = buffer.log_bytes();
        let txs: Vec<_> = group(3).collect::<Result<_, BufferError>>().unwrap();
        if buffer.commit_all(txs).is_err() {
            refused += 1;
            assert!(buffer.log_bytes() <= bytes, "{bytes}, {}", buffer.log_bytes());
        }
    }
    buffer.checkpoint().unwrap();
    set(&buffer, &[1], 7);
}

/// A frame that is older than the log, because the medium lost writes, says nothing: the disk and the log have the page.
#[test]
fn a_frame_from_before_the_log_is_built_anew() {
    let options = BufferOptions::new(4);
    let (pool, disk, buffer) = made(&options);
    let image = |buffer: &Buffer| {
        let frame = buffer.pages[1].place().unwrap().frame;
        let words = buffer.frames.words(&pool, frame);
        (frame, words.iter().map(|word| pool.pm().load(word)).collect::<Vec<_>>())
    };
    set(&buffer, &[1], 10);
    let (frame, old) = image(&buffer);
    set(&buffer, &[1], 20);
    buffer.checkpoint().unwrap(); // the log lacks this update now
    set(&buffer, &[1, 2], 30);
    assert_eq!(image(&buffer).0, frame);
    for (word, &old) in buffer.frames.words(&pool, frame).iter().zip(&old) {
        pool.pm().store(word, old);
    }
    drop(buffer);
    let opened = Buffer::open(&pool, "pages", Arc::new(disk.clone()), &options);
    let buffer = opened.unwrap().unwrap();
    while buffer.recover_step().unwrap() != Progress::Done {}
    assert_eq!(buffer.read(1, |view| view.word(9)).unwrap(), 30);
    assert_eq!(buffer.metrics().corrupted, 1);
    buffer.checkpoint().unwrap();
}
