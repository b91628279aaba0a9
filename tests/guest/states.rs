//! The states that a power failure could have left of a disk: everything durable, and any part of the later
//! writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::log::{self, Entry, SECTOR};
use super::setting;
use super::work::{self, Mark, THREADS};

/// The unit in bytes that a disk writes atomically, in these states.
const WHOLE: u64 = 4096;
const STATE: &str = "/dev/shm/state";

/// A generator of numbers (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The writes since the last flush that reached the disk.
#[derive(Clone, Copy, Debug)]
enum Since {
    Nothing,
    Everything,
    /// Some of the pages.
    Some,
}

/// A disk in memory: its pages that are not zero.
struct Image {
    pages: BTreeMap<u64, Vec<u8>>,
    len: u64,
}

impl Image {
    fn read(disk: &File, len: u64) -> Self {
        let mut pages = BTreeMap::new();
        let mut bytes = vec![0; 1 << 20];
        for at in (0..len).step_by(bytes.len()) {
            let part = bytes.len().min((len - at) as usize);
            disk.read_exact_at(&mut bytes[..part], at).expect("the disk");
            for (i, page) in (0..).zip(bytes[..part].chunks(WHOLE as usize)) {
                if page.iter().any(|&byte| byte != 0) {
                    pages.insert(at + i * WHOLE, page.to_vec());
                }
            }
        }
        Self { pages, len }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        for (sector, bytes) in (at / SECTOR..).zip(bytes.chunks(SECTOR as usize)) {
            let (page, within) =
                (sector * SECTOR / WHOLE * WHOLE, (sector * SECTOR % WHOLE) as usize);
            let page = self.pages.entry(page).or_insert_with(|| vec![0; WHOLE as usize]);
            page[within..within + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Writes the state to a file.
    fn store(&self, path: &Path) -> File {
        let file = File::create(path).expect("memory");
        file.set_len(self.len).expect("memory");
        for (&at, page) in &self.pages {
            file.write_all_at(page, at).expect("memory");
        }
        file
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let done =
        Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    let why = || String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if done.status.success() { Ok(()) } else { Err(format!("{program} {arguments:?}: {}", why())) }
}

/// Passes the data of an entry to `write`, in units that a disk writes atomically.
fn apply(log: &File, entry: &Entry, mut write: impl FnMut(u64, &[u8])) {
    let &Entry::Write { at, len, data } = entry else { return };
    for start in (0..len).step_by(WHOLE as usize) {
        let mut bytes = vec![0; WHOLE.min(len - start) as usize];
        log.read_exact_at(&mut bytes, data + start).expect("the log");
        write(at + start, &bytes);
    }
}

/// Mounts a state, looks, and unmounts it.
fn look(least: [Mark; THREADS as usize], seed: u64) -> Result<String, String> {
    let (system, disk) =
        (setting("FS").expect("the host says it"), setting("DISK").expect("likewise"));
    run("mount", &["-t", &system, "-o", "loop", STATE, &disk])?;
    let found = work::look(&least.map(|mark| mark.synced), &least.map(|mark| mark.acked), seed);
    let unmounted = run("umount", &["-d", &disk]);
    let found = found?;
    unmounted.map(|()| found)
}

fn number(name: &str) -> u64 {
    setting(name).expect("the host says it").parse().expect("a number")
}

/// Verifies states of the disk that was logged, all of them, or the number that the host requests.
pub(super) fn verify() {
    let log = File::open("/dev/vdb").expect("the log");
    let entries = log::read(&log, number("MARKS_AT"));
    let count = |is: fn(&Entry) -> bool| entries.iter().filter(|entry| is(entry)).count() as u64;
    let marks = count(|entry| matches!(entry, Entry::Mark(..)));
    let flushes = count(|entry| matches!(entry, Entry::Flush));
    let forced = count(|entry| matches!(entry, Entry::Forced));
    println!("{} entries, {flushes} flushes, {forced} forced writes, {marks} marks", entries.len());
    assert!(marks > THREADS, "the writer has written marks");
    let base = setting("BASE").unwrap_or_else(|| "/dev/vda".into());
    let disk = File::open(base).expect("the disk");
    let image = Image::read(&disk, number("DISK_BYTES"));
    let states = if setting("FLUSHES").is_some() {
        at_flushes(&log, &entries, image)
    } else {
        at_marks(&log, &entries, marks, image)
    };
    println!("{states} states, each with what was acknowledged");
}

/// Verifies the states at flushes and forced writes of a log that has a write with the flush that made it
/// durable: all that is in it before them, and nothing else.
fn at_flushes(log: &File, entries: &[Entry], mut image: Image) -> u64 {
    let is_durable = |entry: &Entry| matches!(entry, Entry::Flush | Entry::Forced);
    let all = entries.iter().filter(|entry| is_durable(entry)).count() as u64;
    let step = all.div_ceil(number("STATES")).max(1);
    let mut told = [Mark::default(); THREADS as usize];
    let (mut marks, mut points, mut states) = (0, 0, 0);
    for (place, entry) in entries.iter().enumerate() {
        apply(log, entry, |at, bytes| image.write(at, bytes));
        if let Entry::Mark(thread, mark) = entry {
            told[*thread as usize] = *mark;
            marks += 1;
        }
        points += u64::from(is_durable(entry));
        // Before both threads have a mark the pool need not be there.
        if marks >= THREADS && is_durable(entry) && points % step == 0 {
            drop(image.store(Path::new(STATE)));
            states += 1;
            if let Err(why) = look(told, points) {
                panic!(
                    "at entry {place}, {entry:?} {points}, what is since the last flush is lost, told {told:?}: {why}"
                );
            }
        }
    }
    states
}

/// Verifies the states at marks, with none, some or all of the writes since the last flush.
fn at_marks(log: &File, entries: &[Entry], marks: u64, mut durable_image: Image) -> u64 {
    let step = (marks - THREADS).div_ceil(number("STATES")).max(1);
    let mut rng = Rng(number("SEED").wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut told = [Mark::default(); THREADS as usize];
    let (mut durable, mut seen, mut states) = (0, 0, 0);
    for (place, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Flush => {
                for entry in &entries[durable..place] {
                    apply(log, entry, |at, bytes| durable_image.write(at, bytes));
                }
                durable = place;
            }
            Entry::Mark(thread, mark) => {
                told[*thread as usize] = *mark;
                seen += 1;
                // Before both threads have one the pool need not be there.
                if seen < THREADS || !(seen - THREADS).is_multiple_of(step) {
                    continue;
                }
                let since = match rng.below(4) {
                    0 | 1 => Since::Nothing,
                    2 => Since::Everything,
                    _ => Since::Some,
                };
                let state = durable_image.store(Path::new(STATE));
                for entry in &entries[durable..place] {
                    apply(log, entry, |at, bytes| {
                        let reaches = match since {
                            Since::Nothing => false,
                            Since::Everything => true,
                            Since::Some => rng.below(2) == 0,
                        };
                        if reaches {
                            state.write_all_at(bytes, at).expect("memory");
                        }
                    });
                }
                drop(state);
                states += 1;
                if let Err(why) = look(told, seen) {
                    panic!(
                        "at entry {place}, mark {seen}, {since:?} since the last flush, told {told:?}: {why}"
                    );
                }
            }
            Entry::Write { .. } | Entry::Forced => {}
        }
    }
    states
}
