//! Merging of runs: whatever was appended in whatever runs, the archive has each page as it is after all of its
//! changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pmindex_core::Pool;
use pmindex_wal::sim::SimDisk;
use proptest::prelude::*;

use super::shared::View;
use super::*;
use crate::runs::encode;

const USER: usize = 28;
const PAGE_WORDS: u64 = 32;
const TAG: u32 = 77;

fn owner() -> Owner {
    let mutant = Mutant::None;
    Owner {
        identity: 9,
        page_words: PAGE_WORDS,
        user_words: USER,
        horizon: 0,
        last: 1 << 40,
        tags: Tags { present: 0, next: TAG },
        mutant,
    }
}

/// A page's LSN and words.
type Model = BTreeMap<u64, (u64, Vec<u64>)>;

/// A page, the words to set, and what the change is.
type Step = (u64, Vec<(usize, u64)>, u8);

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let words = prop::collection::vec((0..USER, 0..5u64), 0..6);
    prop::collection::vec(prop::collection::vec((1..20u64, words, 0..8u8), 0..12), 1..30)
}

/// Makes a change of the model; some begin anew, and some are images of all words.
fn change(model: &mut Model, lsn: u64, (page, words, kind): Step) -> Change {
    let (before, mut now) = model.get(&page).cloned().unwrap_or((0, vec![0; USER]));
    let fresh = before == 0 || kind == 0;
    if fresh {
        now.fill(0);
    }
    let mut changed = [0; 1];
    for (at, word) in words {
        now[at] = word;
        changed[0] |= 1 << at;
    }
    let mut runs = Vec::new();
    encode(&now, &changed, &mut runs);
    model.insert(page, (lsn, now.clone()));
    if kind == 1 {
        return Change::image(page, lsn, &now);
    }
    Change { page, lsn, before: if fresh { 0 } else { before }, fresh, runs }
}

fn append(archive: &mut Archive, changes: &[Change], lsn: u64) {
    let words = changes.iter().map(Change::words).sum();
    archive.append(&|| Box::new(changes.iter().cloned().map(Ok)), words, lsn, TAG);
}

/// Returns a page as the archive has it, and the number of its changes.
fn found(archive: &Archive, page: u64) -> Option<((u64, Vec<u64>), usize)> {
    let changes = View::of(archive).find(page).changes.expect("a whole archive");
    let first = changes.iter().rposition(|change| change.fresh)?;
    let (mut lsn, mut words) = (0, vec![0; USER]);
    for change in &changes[first..] {
        assert!(change.fresh || change.before <= lsn, "a gap");
        if change.lsn > lsn {
            change.apply(&mut words);
            lsn = change.lsn;
        }
    }
    Some(((lsn, words), changes.len()))
}

proptest! {
    #[test]
    fn runs_that_are_merged_have_what_was_appended(batches in steps()) {
        let disk = SimDisk::new(512, 1024 + 40 * 2048);
        let mut archive = Archive::open(Arc::new(disk.clone()), owner()).unwrap();
        let (mut model, mut lsn) = (Model::new(), 0);
        for batch in batches {
            let mut changes: Vec<Change> = Vec::new();
            for step in batch {
                lsn += 1;
                changes.push(change(&mut model, lsn, step));
            }
            changes.sort_by_key(|change| (change.page, change.lsn));
            append(&mut archive, &changes, lsn);
            prop_assert!(matches!(archive.state(), ArchiveState::Complete));
            let opened = Archive::open(Arc::new(disk.clone()), owner()).unwrap();
            prop_assert_eq!((&opened.head, opened.upto()), (&archive.head, lsn));
            let runs = &archive.head.runs;
            prop_assert!(runs.windows(2).all(|pair| pair[0].chunks > 2 * pair[1].chunks));
            for page in 1..20 {
                let found = found(&opened, page);
                prop_assert_eq!(found.as_ref().map(|(page, _)| page), model.get(&page));
                prop_assert!(found.is_none_or(|(_, changes)| changes <= runs.len()));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_where_it_matters(batches in steps(), bit in 0..1_000_000usize) {
        let disk = SimDisk::new(512, 1024 + 40 * 2048);
        let mut archive = Archive::open(Arc::new(disk.clone()), owner()).unwrap();
        let (mut model, mut lsn) = (Model::new(), 0);
        for batch in batches {
            let mut changes: Vec<Change> = Vec::new();
            for step in batch {
                lsn += 1;
                changes.push(change(&mut model, lsn, step));
            }
            changes.sort_by_key(|change| (change.page, change.lsn));
            append(&mut archive, &changes, lsn);
        }
        let mut bytes = disk.bytes();
        let runs = archive.head.runs.clone();
        let Some(run) = runs.get(bit % runs.len().max(1)) else { return Ok(()) };
        let at = 1024 + run.first as usize * 2048 + bit % (run.chunks as usize * 2048);
        bytes[at] ^= 1 << (bit % 8);
        let disk = SimDisk::with_bytes(512, &bytes);
        let archive = Archive::open(Arc::new(disk), owner()).unwrap();
        for page in 1..20 {
            if View::of(&archive).find(page).changes.is_ok() {
                prop_assert_eq!(found(&archive, page).map(|(page, _)| page), model.get(&page).cloned());
            }
        }
    }
}

#[test]
fn changes_over_a_gap_are_not_put_together() {
    let change = |before, lsn| Change { page: 1, lsn, before, fresh: before == 0, runs: vec![] };
    let mut fold = change::Fold::new(USER);
    assert_eq!(fold.add(change(0, 3)), None);
    assert_eq!(fold.add(change(3, 5)), None);
    assert_eq!(fold.add(change(6, 7)), Some(change(0, 5)), "6 is missing");
    assert_eq!(fold.add(change(7, 9)), None);
    assert_eq!(fold.finish(), Some(change(6, 9)));
}

/// One of the first version, which had no tags, begins anew.
#[test]
fn an_archive_without_a_tag_begins_anew_and_one_with_another_tag_is_refused() {
    let archive_with = |version: u64, tag: u64| {
        let runs = vec![Run { first: 0, chunks: 1, last_page: 5, number: 3 }];
        let head = Head { sequence: 3, upto: 40, complete: true, tag: 0, runs };
        let mut words = head.encode(9, PAGE_WORDS);
        (words[1], words[6]) = (version, 1 | tag << 32);
        words[layout::HEAD - 1] = crate::layout::checksum(*b"arch", &words[..layout::HEAD - 1]);
        let mut bytes = vec![0; 1024 + 40 * 2048];
        for (word, to) in words.iter().zip(bytes[512..].as_chunks_mut().0) {
            *to = word.to_le_bytes();
        }
        let owner = Owner { horizon: 30, ..owner() };
        Archive::open(Arc::new(SimDisk::with_bytes(512, &bytes)), owner)
    };
    let new = archive_with(1, 0).unwrap();
    assert_eq!(new.head, Head { sequence: 3, upto: 30, ..Head::default() });
    assert_eq!(archive_with(2, TAG.into()).unwrap().head.runs.len(), 1);
    for (version, tag, why) in [(2, 5, "another state"), (3, TAG.into(), "a later version")] {
        let refused = archive_with(version, tag);
        assert!(
            matches!(&refused, Err(BufferError::WrongArchive { what }) if what.contains(why)),
            "{refused:?}"
        );
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A disk that calls something before its next read, or its next write.
struct Hooked {
    disk: SimDisk,
    reads: Mutex<Option<Hook>>,
    writes: Mutex<Option<Hook>>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

fn call(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().take();
    if let Some(hook) = hook {
        hook();
    }
}

impl Disk for Hooked {
    fn block(&self) -> usize {
        self.disk.block()
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        call(&self.reads);
        self.disk.read(at, into)
    }
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        call(&self.writes);
        self.disk.write(at, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
}

/// An archive with some changes of each of 20 pages, and the next LSN.
struct Bed {
    pool: Pool,
    disk: Arc<Hooked>,
    shared: Shared,
    next: Mutex<(Model, u64)>,
}

impl Bed {
    fn new() -> Self {
        let disk = SimDisk::new(512, 1024 + 40 * 2048);
        let disk = Arc::new(Hooked { disk, reads: Mutex::default(), writes: Mutex::default() });
        let archive = Archive::open(Arc::clone(&disk) as Arc<dyn Disk>, owner()).unwrap();
        let pool = Pool::volatile(1 << 16).unwrap();
        let next = Mutex::new((Model::new(), 0));
        let bed = Self { pool, disk, shared: Shared::new(archive), next };
        (0..5).for_each(|_| bed.append());
        bed
    }

    /// Appends a change of each page.
    fn append(&self) {
        let (model, lsn) = &mut *self.next.lock();
        let changes: Vec<Change> = (1..20)
            .map(|page| {
                *lsn += 1;
                change(model, *lsn, (page, vec![(*lsn as usize % USER, *lsn)], 2))
            })
            .collect();
        append(&mut self.shared.extend(self.pool.pm()).archive, &changes, *lsn);
    }

    /// Returns the words of a page as the archive has it.
    fn found(&self, page: u64) -> (u64, Vec<u64>) {
        let found = self.shared.find(self.pool.pm(), page);
        let (mut lsn, mut words) = (0, vec![0; USER]);
        for change in found.changes.expect("a whole archive") {
            change.apply(&mut words);
            lsn = change.lsn;
        }
        assert!(lsn <= found.upto);
        (lsn, words)
    }
}

#[test]
fn a_page_is_found_while_runs_are_merged() {
    let bed = Bed::new();
    let wanted = bed.next.lock().0[&7].clone();
    let (begun, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    *bed.disk.writes.lock() = Some(Box::new(move || {
        begun.send(()).unwrap();
        goes_on.recv().unwrap();
    }));
    thread::scope(|scope| {
        scope.spawn(|| bed.append());
        begins.recv().unwrap();
        let (find, finds) = mpsc::channel();
        let bed = &bed;
        scope.spawn(move || find.send((bed.found(7), bed.shared.state(bed.pool.pm()))));
        let found = finds.recv_timeout(Duration::from_secs(10));
        go_on.send(()).unwrap();
        let (found, state) = found.expect("it waits until the run is written");
        assert_eq!(found, wanted);
        assert!(matches!(state, ArchiveState::Complete));
    });
    assert_eq!(bed.found(7), bed.next.lock().0[&7]);
}

/// The chunks of the runs in which a page is looked for get other runs meanwhile.
#[test]
fn a_page_is_found_although_its_runs_are_written_over() {
    let bed = Arc::new(Bed::new());
    for times in 1..20 {
        let other = Arc::clone(&bed);
        // An attempt has several reads: those after the first one find other runs.
        let hook = move || (0..times).for_each(|_| other.append());
        *bed.disk.reads.lock() = Some(Box::new(hook));
        let found = bed.found(7);
        assert_eq!(found, bed.next.lock().0[&7], "{times}");
        assert!(bed.disk.reads.lock().is_none());
    }
}
