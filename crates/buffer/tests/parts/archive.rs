//! Archives: pages that rot on the disk are built again, and archives that are of no use.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_buffer::{ArchiveFault, ArchiveState, Buffer, BufferError, BufferOptions, Mutant};
use pmindex_core::{Medium, Pool, PoolOptions};
use pmindex_wal::Disk;
use pmindex_wal::sim::{SimDisk, mix};

const PAGE: usize = 4096;
const PAGES: u64 = 40;

/// A pool in a file, which can be opened again, a disk, and an archive.
struct Bed {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    disk: SimDisk,
    archive: SimDisk,
}

fn archive_of(pages: usize) -> SimDisk {
    SimDisk::new(512, 1024 + pages * PAGE)
}

fn options() -> BufferOptions {
    BufferOptions::new(4).staging(2)
}

fn pools() -> PoolOptions {
    PoolOptions::new().size(1 << 20).emulate_pm(true)
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool");
        let (disk, archive) = (SimDisk::new(512, PAGES as usize * PAGE), archive_of(200));
        Self { _folder: folder, path, disk, archive }
    }

    fn create(&self, options: &BufferOptions) -> Buffer {
        let pool = Arc::new(Pool::create(&self.path, &pools()).expect("a pool"));
        let disk = Arc::new(self.disk.clone());
        Buffer::create(&pool, "pages", disk, options).expect("a buffer")
    }

    fn open(&self, options: &BufferOptions) -> Result<Buffer, BufferError> {
        let pool = Arc::new(Pool::open(&self.path, &pools()).expect("the pool"));
        let opened = Buffer::open(&pool, "pages", Arc::new(self.disk.clone()), options);
        opened.map(|buffer| buffer.expect("the buffer"))
    }

    /// The options with this archive.
    fn with(archive: &SimDisk) -> BufferOptions {
        options().archive(Arc::new(archive.clone()))
    }

    fn archived(&self) -> BufferOptions {
        Self::with(&self.archive)
    }
}

fn set<M: Medium>(buffer: &Buffer<M>, page: u64, word: u64) {
    let mut tx = buffer.begin();
    match tx.write(page) {
        Ok(draft) => draft.set(9, word),
        Err(BufferError::NoPage { .. }) => tx.create(page).expect("a page").set(9, word),
        Err(error) => panic!("{error}"),
    }
    tx.commit().expect("no failure");
}

fn get(buffer: &Buffer, page: u64) -> Result<u64, BufferError> {
    buffer.read(page, |view| view.word(9))
}

/// Flips a bit of a page, or with `seed` a multiple of four makes all of it zero.
fn rot(disk: &SimDisk, page: u64, seed: u64) {
    let mut bytes = vec![0; PAGE];
    disk.read(PAGE as u64 * page, &mut bytes).expect("the page");
    if seed.is_multiple_of(4) {
        bytes.fill(0);
    } else {
        bytes[mix(seed) as usize % PAGE] ^= 1 << (seed % 8);
    }
    disk.write(PAGE as u64 * page, &bytes).expect("room");
}

/// Sets pages to values, with a checkpoint after each.
fn fill(buffer: &Buffer, values: impl Iterator<Item = u64>) {
    for value in values {
        (1..12).for_each(|page| set(buffer, page, 100 * value + page));
        buffer.checkpoint().expect("no failure");
    }
}

fn is_lost<T: std::fmt::Debug>(found: &Result<T, BufferError>, why: &str) {
    let is_it = matches!(found, Err(error @ BufferError::Damaged { .. }) if error.to_string().contains(why));
    assert!(is_it, "{found:?}, not {why:?}");
}

#[test]
fn a_page_that_rots_on_the_disk_is_built_from_the_archive_and_written_again() {
    let bed = Bed::new();
    let buffer = bed.create(&bed.archived());
    fill(&buffer, 1..6);
    (1..6).for_each(|page| set(&buffer, page, 600 + page)); // in the log alone
    assert!(matches!(buffer.archive_state(), ArchiveState::Complete));
    (1..12).for_each(|page| rot(&bed.disk, page, page));
    let value = |page| if page < 6 { 600 + page } else { 500 + page };
    for page in 1..12 {
        assert_eq!(get(&buffer, page).expect("the page"), value(page));
    }
    buffer.checkpoint().expect("no failure");
    (1..12).for_each(|page| rot(&bed.disk, page, page + 2));
    let scrubbed = buffer.scrub(1..PAGES).expect("no failure");
    assert_eq!((scrubbed.whole, scrubbed.lost.len()), (11, 0), "{scrubbed:?}");
    assert_eq!(scrubbed.rewritten + scrubbed.rebuilt, 11, "{scrubbed:?}");
    buffer.checkpoint().expect("no failure");
    let again = buffer.scrub(1..PAGES).expect("no failure");
    assert_eq!((again.whole, again.rebuilt, again.rewritten), (11, 0, 0), "it was written again");
    // At a restart; then without the archive.
    drop(buffer);
    (1..12).for_each(|page| rot(&bed.disk, page, page + 3));
    let buffer = bed.open(&bed.archived().cold(true)).expect("the buffer");
    (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), value(page)));
    buffer.checkpoint().expect("no failure");
    drop(buffer);
    let buffer = bed.open(&options().cold(true)).expect("the buffer");
    (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), value(page)));
    // A page that was never created is still none, also where the disk rots.
    drop(buffer);
    rot(&bed.disk, 20, 1);
    let buffer = bed.open(&bed.archived()).expect("the buffer");
    assert!(matches!(get(&buffer, 20), Err(BufferError::NoPage { page: 20 })));
    assert!(matches!(get(&buffer, 21), Err(BufferError::NoPage { page: 21 })));
}

#[test]
fn an_archive_of_four_times_the_pages_is_enough_however_often_they_change() {
    const MANY: u64 = 150;
    let (disk, archive) = (SimDisk::new(512, MANY as usize * PAGE), archive_of(4 * MANY as usize));
    let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
    let options = BufferOptions::new(20).archive(Arc::new(archive));
    let buffer =
        Buffer::create(&pool, "pages", Arc::new(disk.clone()), &options).expect("a buffer");
    let mut model = vec![vec![0; buffer.page_words()]; MANY as usize];
    for round in 1..12_000u64 {
        let page = 1 + mix(round) % (MANY - 1);
        let mut tx = buffer.begin();
        if matches!(tx.write(page), Err(BufferError::NoPage { .. })) {
            tx.create(page).expect("a page");
        }
        let draft = tx.write(page).expect("the page");
        for nth in 0..mix(round + 1) % 40 {
            let at = mix(round + nth) as usize % buffer.page_words();
            draft.set(at, round);
            model[page as usize][at] = round;
        }
        tx.commit().expect("no failure");
        if round % 60 == 0 {
            buffer.checkpoint().expect("no failure");
            rot(&disk, page, round);
        }
    }
    buffer.checkpoint().expect("no failure");
    assert!(
        matches!(buffer.archive_state(), ArchiveState::Complete),
        "{:?}",
        buffer.archive_state()
    );
    (1..MANY).for_each(|page| rot(&disk, page, page));
    for page in 1..MANY {
        let mut found = vec![0; buffer.page_words()];
        buffer.read(page, |view| view.read(0, &mut found)).expect("the page");
        assert!(found == model[page as usize], "page {page}");
    }
    assert!(buffer.metrics().rebuilt > MANY / 2);
}

#[test]
fn an_archive_that_comes_later_has_what_is_created_since_and_what_a_scrub_copies() {
    let bed = Bed::new();
    let buffer = bed.create(&options());
    fill(&buffer, 1..3);
    drop(buffer);
    let buffer = bed.open(&bed.archived()).expect("the buffer");
    assert!(matches!(buffer.archive_state(), ArchiveState::Incomplete));
    set(&buffer, 15, 7);
    fill(&buffer, 3..5);
    (1..12).chain([15]).for_each(|page| rot(&bed.disk, page, 4 * page + 1));
    assert_eq!(get(&buffer, 15).expect("the page"), 7);
    is_lost(&get(&buffer, 1), "the archive is incomplete");
    (1..12).for_each(|page| rot(&bed.disk, page, 4 * page + 1)); // the same bits again
    buffer.scrub(1..8).expect("no failure");
    buffer.checkpoint().expect("no failure");
    assert!(matches!(buffer.archive_state(), ArchiveState::Incomplete));
    assert_eq!(buffer.scrub(8..PAGES).expect("no failure").lost, Vec::<u64>::new());
    assert!(matches!(buffer.archive_state(), ArchiveState::Complete));
    set(&buffer, 3, 77);
    buffer.checkpoint().expect("no failure");
    drop(buffer);
    (1..12).for_each(|page| rot(&bed.disk, page, page));
    let buffer = bed.open(&bed.archived().cold(true)).expect("the buffer");
    assert!(matches!(buffer.archive_state(), ArchiveState::Complete));
    let value = |page| if page == 3 { 77 } else { 400 + page };
    (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), value(page)));
}

/// Returns an archive from an earlier moment, and the buffer's pages since, all rotten on the disk.
fn older(bed: &Bed) -> SimDisk {
    let buffer = bed.create(&bed.archived());
    fill(&buffer, 1..3);
    let older = SimDisk::with_bytes(512, &bed.archive.bytes());
    fill(&buffer, 3..5);
    drop(buffer);
    (1..12).for_each(|page| rot(&bed.disk, page, page));
    older
}

#[test]
fn an_archive_that_lacks_records_is_not_used() {
    let bed = Bed::new();
    let older = older(&bed);
    let buffer = bed.open(&Bed::with(&older).cold(true)).expect("the buffer");
    assert!(matches!(buffer.archive_state(), ArchiveState::Incomplete));
    let lost = buffer.scrub(1..PAGES).expect("no failure").lost;
    // Those of zeros, of which nothing has a trace, are none any more.
    assert_eq!(lost, [1, 2, 3, 5, 6, 7, 9, 10, 11]);
    is_lost(&get(&buffer, 1), "the archive is incomplete");
    drop(buffer);
    // The one of this moment has them.
    let buffer = bed.open(&bed.archived().cold(true)).expect("the buffer");
    (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), 400 + page));
}

#[test]
fn a_gap_in_the_archive_is_noticed_and_a_buffer_that_does_not_look_serves_what_was() {
    let bed = Bed::new();
    let older = older(&bed);
    let unchained = Bed::with(&older).cold(true).mutant(Mutant::Unchained);
    let buffer = bed.open(&unchained).expect("the buffer");
    assert_eq!(get(&buffer, 1).expect("the page"), 201, "the fault shows");
    drop(buffer);
    // Now a run of later changes follows the gap.
    let bed = Bed::new();
    let gap = self::older(&bed);
    (1..12).for_each(|page| rot(&bed.disk, page, page)); // the same bits again, or zeros
    let unchained = Bed::with(&gap).mutant(Mutant::Unchained);
    let buffer = bed.open(&unchained).expect("the buffer");
    fill(&buffer, 5..6);
    drop(buffer);
    (1..12).for_each(|page| rot(&bed.disk, page, 4 * page + 1));
    let buffer = bed.open(&Bed::with(&gap).cold(true)).expect("the buffer");
    is_lost(&get(&buffer, 1), "an update of it is missing");
}

#[test]
fn an_archive_of_another_buffer_or_state_or_cut_or_damaged_is_refused_and_the_buffer_goes_on() {
    let bed = Bed::new();
    drop(older(&bed));
    let refused = |archive: &SimDisk, why: &str| {
        let before = archive.bytes();
        let opened = bed.open(&Bed::with(archive));
        let is_it =
            matches!(&opened, Err(BufferError::WrongArchive { what }) if what.contains(why));
        assert!(is_it, "{opened:?}, not {why:?}");
        assert!(archive.bytes() == before, "it was changed");
    };
    let bytes = bed.archive.bytes();
    let other = Bed::new();
    fill(&other.create(&other.archived()), 1..2);
    refused(&other.archive, "another buffer's");
    refused(&SimDisk::with_bytes(512, &vec![7; 64 << 10]), "no archive");
    refused(&SimDisk::new(512, 4096), "too short");
    refused(&SimDisk::with_bytes(512, &bytes[..1024 + 8 * PAGE]), "cut");
    let mut heads = bytes.clone();
    (heads[100], heads[612]) = (heads[100] ^ 1, heads[612] ^ 1);
    refused(&SimDisk::with_bytes(512, &heads), "both its heads are damaged");
    // A pool that was restored from a backup.
    let copy = bed.path.with_extension("copy");
    std::fs::copy(&bed.path, &copy).expect("a copy");
    let buffer = bed.open(&bed.archived()).expect("the buffer");
    fill(&buffer, 5..6);
    drop(buffer);
    std::fs::copy(&copy, &bed.path).expect("a copy");
    refused(&bed.archive, "later state");
    // Without, or with an empty one, the buffer goes on.
    drop(bed.open(&options()).expect("the buffer"));
    let buffer = bed.open(&Bed::with(&archive_of(100))).expect("the buffer");
    assert!(matches!(buffer.archive_state(), ArchiveState::Incomplete));
}

/// A moment of a pool, of its disk and of its archive, and the value of its pages.
struct Moment {
    pool: Vec<u8>,
    disk: Vec<u8>,
    archive: Vec<u8>,
    value: u64,
}

impl Bed {
    /// Sets all pages once more, with checkpoints or without, and notes the moment after it.
    fn go_on(&self, value: u64, ends_in_log: bool) -> Moment {
        let buffer = self.open(&self.archived()).expect("the buffer");
        fill(&buffer, value..=value);
        if ends_in_log {
            (1..12).for_each(|page| set(&buffer, page, 100 * value + page));
        }
        drop(buffer);
        let pool = std::fs::read(&self.path).expect("the pool");
        Moment { pool, disk: self.disk.bytes(), archive: self.archive.bytes(), value }
    }

    /// A pool and its disk put back to a moment, with the archive of one.
    fn put_back(&mut self, moment: &Moment, archive: &Moment) {
        std::fs::write(&self.path, &moment.pool).expect("room");
        self.disk = SimDisk::with_bytes(512, &moment.disk);
        self.archive = SimDisk::with_bytes(512, &archive.archive);
    }
}

/// Two histories that continue from one moment, of two more moments each.
fn histories(bed: &mut Bed, ends_in_log: bool) -> Vec<Moment> {
    fill(&bed.create(&bed.archived()), 1..2);
    let first = bed.go_on(2, ends_in_log);
    let mut moments = Vec::new();
    for value in [10, 20] {
        bed.put_back(&first, &first);
        moments.extend([bed.go_on(value, ends_in_log), bed.go_on(value + 1, ends_in_log)]);
    }
    moments.push(first);
    moments
}

/// Opens each moment's pool with each moment's archive, after some openings without it. Returns how often a page was
/// read that is of another moment.
fn mixed(mutant: Mutant) -> usize {
    let (mut foreign, mut refused, mut anew) = (0, 0, 0);
    for ends_in_log in [false, true] {
        let mut bed = Bed::new();
        let moments = histories(&mut bed, ends_in_log);
        for (nth, moment) in moments.iter().enumerate() {
            for (of, archive) in moments.iter().enumerate() {
                for openings in [0, 1, 4] {
                    bed.put_back(moment, archive);
                    for _ in 0..openings {
                        drop(bed.open(&options()).expect("the buffer"));
                    }
                    (1..12).for_each(|page| rot(&bed.disk, page, 4 * page + 1));
                    let buffer = match bed.open(&bed.archived().cold(true).mutant(mutant)) {
                        Ok(buffer) => buffer,
                        Err(error) => {
                            assert!(matches!(error, BufferError::WrongArchive { .. }), "{error}");
                            assert!(nth != of, "its own archive is refused: {error}");
                            refused += 1;
                            continue;
                        }
                    };
                    let is_complete = matches!(buffer.archive_state(), ArchiveState::Complete);
                    assert!(is_complete || nth != of, "its own archive begins anew");
                    anew += usize::from(!is_complete);
                    for page in 1..12 {
                        match get(&buffer, page) {
                            Ok(value) => foreign += usize::from(value != 100 * moment.value + page),
                            found => {
                                assert!(nth != of, "{found:?}");
                                is_lost(&found, "");
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 10 && anew > 10, "{refused} refused, {anew} begun anew");
    foreign
}

#[test]
fn an_archive_of_another_moment_or_history_is_never_used() {
    assert_eq!(mixed(Mutant::None), 0);
    assert!(mixed(Mutant::Untagged) > 0, "without a tag the fault shows");
}

#[test]
fn a_chunk_that_rots_costs_its_pages_and_no_others() {
    let bed = Bed::new();
    drop(older(&bed));
    let whole = bed.archive.bytes();
    let (mut read, mut lost) = (0, 0);
    for nth in 0..200 {
        let mut bytes = whole.clone();
        let at = 1024 + mix(nth) as usize % (bytes.len() - 1024);
        bytes[at] ^= 1 << (nth % 8);
        let archive = SimDisk::with_bytes(512, &bytes);
        let buffer = bed.open(&Bed::with(&archive).cold(true)).expect("the buffer");
        for page in 1..12 {
            match get(&buffer, page) {
                Ok(value) => {
                    assert_eq!(value, 400 + page, "byte {at}");
                    read += 1;
                }
                // Of a page of zeros nothing else has a trace.
                Err(BufferError::NoPage { .. }) if page % 4 == 0 => lost += 1,
                found => {
                    is_lost(&found, "the archive of it is damaged");
                    lost += 1;
                }
            }
        }
    }
    assert!(read > 1000, "{read} read, {lost} lost");
}

#[test]
fn a_full_archive_stops_and_the_buffer_goes_on() {
    let bed = Bed::new();
    let small = archive_of(8); // one chunk
    let buffer = bed.create(&Bed::with(&small));
    fill(&buffer, 1..2);
    assert!(matches!(buffer.archive_state(), ArchiveState::Complete));
    fill(&buffer, 2..4);
    let state = buffer.archive_state();
    assert!(matches!(state, ArchiveState::Stopped(ArchiveFault::Full)), "{state:?}");
    (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), 300 + page));
    (1..12).for_each(|page| rot(&bed.disk, page, 4 * page + 1));
    let lost = buffer.scrub(1..PAGES).expect("no failure").lost;
    assert_eq!(lost.len(), 7, "those without a frame");
    is_lost(&get(&buffer, lost[0]), "the archive is incomplete");
}

/// A disk with a page that cannot be read until it is written.
#[derive(Debug)]
struct Unreadable {
    disk: SimDisk,
    page: AtomicU64,
}

impl Disk for Unreadable {
    fn block(&self) -> usize {
        self.disk.block()
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        if at == PAGE as u64 * self.page.load(Relaxed) {
            return Err(std::io::Error::other("a bad sector"));
        }
        self.disk.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        let page = self.page.load(Relaxed);
        if (at..at + bytes.len() as u64).contains(&(PAGE as u64 * page)) {
            self.page.store(u64::MAX / PAGE as u64, Relaxed);
        }
        self.disk.write(at, bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.disk.sync()
    }
}

#[test]
fn a_page_that_cannot_be_read_is_built_too() {
    for with in [true, false] {
        let bed = Bed::new();
        let page = AtomicU64::new(u64::MAX / PAGE as u64);
        let disk = Arc::new(Unreadable { disk: bed.disk.clone(), page });
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let options = if with { bed.archived() } else { options() };
        let shared: Arc<dyn Disk> = disk.clone();
        let buffer = Buffer::create(&pool, "pages", shared, &options).expect("a buffer");
        fill(&buffer, 1..3);
        (8..12).for_each(|page| assert!(get(&buffer, page).is_ok())); // page 1 has no frame
        disk.page.store(1, Relaxed);
        if with {
            assert_eq!(get(&buffer, 1).expect("the page"), 201);
            buffer.checkpoint().expect("no failure");
            assert_ne!(disk.page.load(Relaxed), 1, "it was written again");
        } else {
            assert!(matches!(get(&buffer, 1), Err(BufferError::Disk { .. })));
        }
    }
}

/// The archive's disk fails at any step: the buffer goes on, and what is read is right.
#[test]
fn an_archive_whose_disk_fails_at_any_step_loses_nothing() {
    for step in 0..20 {
        let bed = Bed::new();
        bed.archive.fails_at(step);
        let buffer = bed.create(&bed.archived());
        fill(&buffer, 1..6);
        let state = buffer.archive_state();
        let failed = matches!(state, ArchiveState::Stopped(ArchiveFault::Disk(_)));
        assert_eq!(failed, bed.archive.steps() > step, "step {step}: {state:?}");
        assert!(failed || matches!(state, ArchiveState::Complete));
        drop(buffer);
        let buffer = bed.open(&bed.archived()).expect("the buffer");
        (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), 500 + page));
        buffer.scrub(1..PAGES).expect("no failure");
        buffer.checkpoint().expect("no failure");
        let state = buffer.archive_state();
        assert!(matches!(state, ArchiveState::Complete), "step {step}: {state:?}");
        drop(buffer);
        (1..12).for_each(|page| rot(&bed.disk, page, page));
        let buffer = bed.open(&bed.archived().cold(true)).expect("the buffer");
        (1..12).for_each(|page| assert_eq!(get(&buffer, page).expect("the page"), 500 + page));
    }
}
