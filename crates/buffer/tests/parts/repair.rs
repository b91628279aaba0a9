//! Rot in frames and on the disk, and disks that fail.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use pmindex_buffer::{Buffer, BufferError, BufferOptions};
use pmindex_core::{Medium, Pool, PoolOptions};
use pmindex_wal::Disk;
use pmindex_wal::sim::{SimDisk, Survivors, mix};

const PAGES: u64 = 8;

fn disk() -> SimDisk {
    SimDisk::new(512, PAGES as usize * 4096)
}

fn buffer_on(disk: &SimDisk, options: &BufferOptions) -> Buffer {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("no failure"));
    Buffer::create(&pool, "pages", Arc::new(disk.clone()), options).expect("no failure")
}

fn set<M: Medium>(buffer: &Buffer<M>, page: u64, word: u64) {
    let mut tx = buffer.begin();
    match tx.write(page) {
        Ok(draft) => draft.set(9, word),
        Err(BufferError::NoPage { .. }) => tx.create(page).expect("no failure").set(9, word),
        Err(error) => panic!("{error}"),
    }
    tx.commit().expect("no failure");
}

fn get(buffer: &Buffer, page: u64) -> Result<u64, BufferError> {
    buffer.read(page, |view| view.word(9))
}

fn flip(buffer: &Buffer, page: u64, bit: usize) {
    let offset = buffer.frame_offset(page).expect("a frame");
    let word = &buffer.pool().words(offset, 512).expect("no failure")[bit / 64];
    let pm = buffer.pool().pm();
    pm.store(word, pm.load(word) ^ 1 << (bit % 64));
}

#[test]
fn rot_in_a_frame_is_mended_and_never_served_if_reads_verify() {
    let disk = disk();
    let buffer = buffer_on(&disk, &BufferOptions::new(4).verify_reads(true));
    set(&buffer, 1, 10);
    buffer.checkpoint().unwrap(); // the first value is on the disk, the second one in the log
    set(&buffer, 1, 20);
    let bits = (0..64).chain((0..60).map(|n| mix(n) as usize % (512 * 64)));
    for (nth, bit) in (1..).zip(bits) {
        flip(&buffer, 1, bit);
        assert_eq!(get(&buffer, 1).unwrap(), 20, "bit {bit}");
        assert_eq!(buffer.metrics().mended, nth, "bit {bit}");
    }
}

#[test]
fn rot_in_a_frame_never_reaches_the_disk() {
    let disk = disk();
    let buffer = buffer_on(&disk, &BufferOptions::new(4));
    for value in 1..30 {
        set(&buffer, 1, value);
        flip(&buffer, 1, (mix(value) % (512 * 64)) as usize);
        buffer.checkpoint().unwrap();
        assert_eq!(buffer.metrics().mended, value);
        assert_eq!(get(&buffer, 1).unwrap(), value);
    }
    set(&buffer, 2, 1);
    buffer.checkpoint().unwrap();
    flip(&buffer, 2, 5000);
    let scrubbed = buffer.scrub(1..PAGES).unwrap();
    assert_eq!((scrubbed.whole, scrubbed.mended, scrubbed.lost.len()), (2, 1, 0));
    assert_eq!(get(&buffer, 2).unwrap(), 1);
}

#[test]
fn rot_on_the_disk_is_written_over_from_a_frame_or_reported() {
    let disk = disk();
    let buffer = buffer_on(&disk, &BufferOptions::new(2));
    (1..6).for_each(|page| set(&buffer, page, page));
    buffer.checkpoint().unwrap();
    for page in 1..6 {
        let mut bytes = vec![0; 4096];
        disk.read(4096 * page, &mut bytes).unwrap();
        bytes[1000] ^= 4;
        disk.write(4096 * page, &bytes).unwrap();
    }
    let scrubbed = buffer.scrub(1..PAGES).unwrap();
    assert_eq!((scrubbed.whole, scrubbed.rewritten), (2, 2), "those with a frame");
    assert_eq!(scrubbed.lost.len(), 3);
    let mut served = 0;
    for page in 1..6 {
        match get(&buffer, page) {
            Ok(value) => {
                assert_eq!(value, page);
                served += 1;
            }
            Err(BufferError::Damaged { page: which, .. }) => assert_eq!(which, page),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(served, 2);
    // A page that begins anew needs nothing of what it was.
    let lost = scrubbed.lost[0];
    let mut tx = buffer.begin();
    tx.create(lost).unwrap().set(9, 77);
    tx.commit().unwrap();
    assert_eq!(get(&buffer, lost).unwrap(), 77);
    buffer.checkpoint().unwrap();
    assert_eq!(buffer.scrub(1..PAGES).unwrap().lost.len(), 2);
}

/// A page of zeros on the disk is one that was never created, unless it is known to exist.
#[test]
fn a_page_that_became_zeros_is_reported() {
    let disk = disk();
    let buffer = buffer_on(&disk, &BufferOptions::new(2));
    (1..6).for_each(|page| set(&buffer, page, page));
    buffer.checkpoint().unwrap();
    (1..PAGES).for_each(|page| disk.write(4096 * page, &[0; 4096]).unwrap());
    let lost = buffer.scrub(1..PAGES).unwrap().lost;
    assert_eq!(lost.len(), 3, "those without a frame");
    assert!(matches!(get(&buffer, lost[0]), Err(BufferError::Damaged { .. })));
    assert!(matches!(get(&buffer, 6), Err(BufferError::NoPage { page: 6 })));
}

/// Commits and checkpoints until the disk fails; then what was acknowledged is there, whatever the disk kept.
#[test]
fn a_disk_that_fails_at_any_step_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options = BufferOptions::new(3).staging(2);
    let pools = PoolOptions::new().size(1 << 20).emulate_pm(true);
    for step in 0..40 {
        let path = folder.path().join(format!("pool{step}"));
        let pool = Arc::new(Pool::create(&path, &pools).unwrap());
        let disk = disk();
        let buffer = Buffer::create(&pool, "pages", Arc::new(disk.clone()), &options).unwrap();
        let (begun, mut kept) = (disk.steps(), [0; PAGES as usize]);
        disk.fails_at(begun + step);
        for round in 1..20 {
            let page = 1 + round % 6;
            let mut tx = buffer.begin();
            let made = match tx.write(page).map(|draft| draft.set(9, round)) {
                Err(BufferError::NoPage { .. }) => tx.create(page).map(|draft| draft.set(9, round)),
                other => other,
            };
            match made.and_then(|()| tx.commit()) {
                Ok(_) => kept[page as usize] = round,
                Err(BufferError::Disk { .. }) => {}
                Err(error) => panic!("step {step}, round {round}: {error}"),
            }
            if round % 7 == 0 {
                let _ = buffer.checkpoint();
            }
        }
        drop(buffer);
        Arc::into_inner(pool).unwrap().kill();
        for which in
            [Survivors::None, Survivors::All, Survivors::Any(step), Survivors::Any(step + 99)]
        {
            let copy = folder.path().join("copy");
            std::fs::copy(&path, &copy).unwrap();
            let pool = Arc::new(Pool::open(&copy, &pools).unwrap());
            let disk = Arc::new(disk.survivors(which));
            let buffer = Buffer::open(&pool, "pages", disk, &options).unwrap().unwrap();
            for (page, &value) in kept.iter().enumerate().skip(1) {
                match get(&buffer, page as u64) {
                    Ok(found) => assert_eq!(found, value, "step {step}, {which:?}, page {page}"),
                    Err(BufferError::NoPage { .. }) => assert_eq!(value, 0),
                    Err(error) => panic!("step {step}, {which:?}, page {page}: {error}"),
                }
            }
            buffer.checkpoint().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn another_disk_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pools = PoolOptions::new().size(1 << 20).emulate_pm(true);
    let pool = Arc::new(Pool::create(&path, &pools).unwrap());
    let (own, other) = (disk(), disk());
    let options = BufferOptions::new(4);
    drop(Buffer::create(&pool, "pages", Arc::new(own.clone()), &options).unwrap());
    drop(Buffer::create(&pool, "others", Arc::new(other.clone()), &options).unwrap());
    let short = SimDisk::with_bytes(512, &own.bytes()[..4096 * 3]);
    for wrong in [other, short, disk()] {
        let opened = Buffer::open(&pool, "pages", Arc::new(wrong), &options);
        assert!(matches!(opened, Err(BufferError::WrongDisk { .. })), "{opened:?}");
    }
    assert!(Buffer::open(&pool, "pages", Arc::new(own), &options).unwrap().is_some());
    assert!(Buffer::open(&pool, "nothing", Arc::new(disk()), &options).unwrap().is_none());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    for options in [
        BufferOptions::new(4).page_bytes(2048),
        BufferOptions::new(4).page_bytes(5000),
        BufferOptions::new(4).page_bytes(128 << 10),
        BufferOptions::new(0),
        BufferOptions::new(u64::MAX),
        BufferOptions::new(4).staging(0),
        BufferOptions::new(4).sums(pmindex_buffer::Sums::Partitioned(65)),
        BufferOptions::new(4).sums(pmindex_buffer::Sums::Partitioned(1)),
    ] {
        let made = Buffer::create(&pool, "pages", Arc::new(disk()), &options);
        assert!(made.is_err(), "{options:?}");
    }
}

#[test]
fn data_of_many_times_the_frames_in_a_log_that_stays_small() {
    let disk = SimDisk::new(512, 600 * 4096);
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let options = BufferOptions::new(40);
    let buffer = Buffer::create(&pool, "pages", Arc::new(disk), &options).unwrap();
    let (mut last, mut most) = (vec![0; 600], 0);
    for round in 1..6000u64 {
        let page = 1 + mix(round) % 599;
        set(&buffer, page, round);
        last[page as usize] = round;
        if round % 100 == 0 {
            buffer.checkpoint().unwrap();
            most = most.max(buffer.log_bytes());
        }
    }
    let log = buffer.log_bytes();
    assert!(log < 256 << 10 && most < 256 << 10, "{log} {most}");
    for page in 1..600 {
        match get(&buffer, page) {
            Ok(value) => assert_eq!(value, last[page as usize]),
            Err(BufferError::NoPage { .. }) => assert_eq!(last[page as usize], 0),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A disk on which writes take long while `slow` is set.
#[derive(Debug)]
struct SlowDisk {
    disk: SimDisk,
    slow: AtomicBool,
    /// A write has begun.
    writing: AtomicBool,
    /// A checkpoint has returned.
    checked: AtomicBool,
    /// A checkpoint returned during a write.
    overtaken: AtomicBool,
}

impl Disk for SlowDisk {
    fn block(&self) -> usize {
        self.disk.block()
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.disk.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        if self.slow.swap(false, SeqCst) {
            self.writing.store(true, SeqCst);
            let started = Instant::now();
            while !self.checked.load(SeqCst) && started.elapsed() < Duration::from_millis(30) {
                std::thread::yield_now();
            }
            self.overtaken.store(self.checked.load(SeqCst), SeqCst);
        }
        self.disk.write(at, bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.disk.sync()
    }
}

/// A page that a thread writes to the disk, to reuse its frame, is not due any more; its log must stay until
/// the disk has it. (The explorer found this after eight million states.)
#[test]
fn a_checkpoint_waits_for_pages_on_their_way_to_the_disk() {
    let slow = SlowDisk {
        disk: disk(),
        slow: AtomicBool::new(false),
        writing: AtomicBool::new(false),
        checked: AtomicBool::new(false),
        overtaken: AtomicBool::new(false),
    };
    let slow = Arc::new(slow);
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let shared: Arc<dyn Disk> = slow.clone();
    let buffer = Buffer::create(&pool, "pages", shared, &BufferOptions::new(1)).unwrap();
    set(&buffer, 1, 5);
    set(&buffer, 2, 6);
    slow.slow.store(true, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(get(&buffer, 1).unwrap(), 5)); // the frame of page 2
        while !slow.writing.load(SeqCst) {
            std::thread::yield_now();
        }
        buffer.checkpoint().unwrap();
        slow.checked.store(true, SeqCst);
    });
    assert!(!slow.overtaken.load(SeqCst), "the log was cut before the disk had the page");
    assert_eq!(get(&buffer, 2).unwrap(), 6);
}
