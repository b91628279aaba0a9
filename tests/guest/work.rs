//! Two threads that write keys of their own, and the check of what survives.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use pmindex::{
    AnyIndex, Durability, Index, IndexError, Kind, OpenError, PmError, Pool, PoolOptions,
};

use super::setting;

pub(super) const THREADS: u64 = 2;
/// Bytes of a mark: those of a sector.
pub(super) const MARK: usize = 512;
/// The start of a mark.
const MAGIC: u64 = u64::from_le_bytes(*b"pmxmark1");
/// Keys of a thread.
const KEYS: u64 = 40;
const O_DIRECT: i32 = 0o40000;
const O_DSYNC: i32 = 0o10000;
/// Where the writer leaves its counts for the check of a disk that failed.
const COUNTS: &str = "/dev/shm/counts";

type Model = BTreeMap<u64, u64>;

/// The acknowledgements that a thread had when it wrote this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Writes that had returned.
    pub(super) acked: u64,
    /// Those before the last completed `sync`.
    pub(super) synced: u64,
}

impl Mark {
    /// The thread's number and its mark, if it is one.
    pub(super) fn decode(sector: &[u8]) -> Option<(u64, Self)> {
        let word =
            |at: usize| sector.get(8 * at..8 * at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let mark = Self { acked: word(2)?, synced: word(3)? };
        (word(0)? == MAGIC && word(1)? < THREADS).then_some((word(1)?, mark))
    }

    fn encode(self, thread: u64) -> [u8; MARK] {
        let mut sector = [0; MARK];
        for (i, word) in [MAGIC, thread, self.acked, self.synced].into_iter().enumerate() {
            sector[8 * i..8 * i + 8].copy_from_slice(&word.to_le_bytes());
        }
        sector
    }
}

/// The end of the disk, behind its file system: where the marks go.
struct Marks {
    disk: File,
    at: u64,
}

impl Marks {
    fn open() -> Option<Self> {
        let at = setting("MARKS_AT")?.parse().expect("a number");
        // Below the device mapper, whose log has a write with the next flush unless it is a forced one.
        let (path, flags) = match setting("MARKS_ON") {
            Some(path) => (path, O_DIRECT | O_DSYNC),
            None => ("/dev/vda".into(), O_DIRECT),
        };
        let mut options = File::options();
        let disk = options.write(true).custom_flags(flags).open(path).expect("the disk");
        Some(Self { disk, at })
    }

    /// Writes a mark, past all caches of the guest: it is in the host's log when this returns.
    fn write(&self, thread: u64, mark: Mark) {
        let mut memory = [0; 2 * MARK];
        let start = memory.as_ptr().addr().next_multiple_of(MARK) - memory.as_ptr().addr();
        let sector = &mut memory[start..start + MARK];
        sector.copy_from_slice(&mark.encode(thread));
        self.disk.write_all_at(sector, self.at + thread * MARK as u64).expect("a mark");
    }
}

/// A failure of the disk that the writer itself begins: another table for its mapping.
struct Fault {
    /// Before this step of the threads.
    at: u64,
    table: String,
    /// The disk tells of no error: what is acknowledged from then on is lost.
    lost: bool,
    has_begun: AtomicBool,
    /// Where the threads meet before it begins.
    all: Barrier,
}

impl Fault {
    fn asked_for() -> Option<Self> {
        let at = setting("FAULT_AT")?.parse().expect("a number");
        let table = setting("FAULT").expect("the host says it");
        let lost = setting("LOST").is_some_and(|lost| lost == "1");
        Some(Self {
            at,
            table,
            lost,
            has_begun: AtomicBool::new(false),
            all: Barrier::new(THREADS as usize),
        })
    }

    /// Exchanges the table of the mapping.
    fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
        let steps: [&[&str]; 3] = [
            &["suspend", "--noflush", "--nolockfs", "disk"],
            &["reload", "disk", "--table", &self.table],
            &["resume", "disk"],
        ];
        for step in steps {
            let done = Command::new("dmsetup").args(step).status().expect("dmsetup");
            assert!(done.success(), "dmsetup {step:?}");
        }
    }

    /// Returns `true` if an operation that has just returned may be lost.
    fn may_lose(&self) -> bool {
        self.lost && self.has_begun.load(Ordering::SeqCst)
    }
}

/// How the pool is durable.
fn mode() -> Durability {
    match setting("MODE").expect("the host says it").as_str() {
        "journal" => Durability::Journal,
        "msync" => Durability::Msync,
        "periodic" => Durability::Periodic,
        "process" => Durability::Process,
        other => panic!("no mode {other}"),
    }
}

fn pool_at() -> (PathBuf, PoolOptions) {
    let disk = PathBuf::from(setting("DISK").expect("the host says it"));
    let options = PoolOptions::new().size(4 << 20).grow(false).journal_bytes(1 << 20);
    match mode() {
        Durability::Journal => (disk.join("pool"), options.journal(true)),
        Durability::Periodic => {
            let twin = disk.join("twin");
            let every = std::time::Duration::from_millis(5);
            ("/dev/shm/pool".into(), options.twin(twin).twin_every(every))
        }
        // Which the states must tell from one that survives power failure.
        Durability::Process => (disk.join("pool"), options.write_back(false)),
        _ => (disk.join("pool"), options),
    }
}

fn kind() -> Kind {
    let name = setting("INDEX").expect("the host says it");
    *Kind::ALL.iter().find(|kind| kind.to_string() == name).expect("a kind of index")
}

/// Returns the next change of a thread: a put of this value, or a removal of the key.
fn step(thread: u64, n: u64) -> (u64, Option<u64>) {
    let hash = (thread << 32 | n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let key = thread * 1000 + hash % KEYS;
    (key, (hash >> 20 & 3 != 0).then_some(n << 8 | thread))
}

fn model(thread: u64, steps: u64) -> Model {
    let mut model = Model::new();
    for n in 0..steps {
        match step(thread, n) {
            (key, Some(value)) => drop(model.insert(key, value)),
            (key, None) => drop(model.remove(&key)),
        }
    }
    model
}

/// A pool with an index, durably; an error is one of the disk.
fn create() -> Result<(Arc<Pool>, AnyIndex<u64, u64>), String> {
    let (path, options) = pool_at();
    let pool = Pool::create(&path, &options).map_err(|error| {
        assert!(matches!(error, OpenError::Io { .. } | OpenError::Pool { .. }), "{error:?}");
        error.to_string()
    })?;
    assert_eq!(pool.durability(), mode(), "{}", pool.describe());
    let pool = Arc::new(pool);
    let index = AnyIndex::create(&pool, "index", kind()).map_err(|error| {
        assert!(is_the_disk(&error), "{error:?}");
        error.to_string()
    })?;
    pool.sync().map_err(|error| error.to_string())?;
    Ok((pool, index))
}

/// Writes; reports the progress of each thread, and the error that stopped it.
pub(super) fn write() {
    let steps: u64 = setting("STEPS").expect("the host says it").parse().expect("a number");
    let (marks, fault) = (Marks::open(), Fault::asked_for());
    let (pool, index) = match create() {
        Ok(created) => created,
        Err(why) if marks.is_none() => {
            println!("\nstopped before there was a pool: {why}");
            return;
        }
        Err(why) => panic!("{why}"),
    };
    if let Some(marks) = &marks {
        (0..THREADS).for_each(|thread| marks.write(thread, Mark::default()));
    }
    let mut last = [Mark::default(); THREADS as usize];
    std::thread::scope(|scope| {
        for (thread, last) in (0..THREADS).zip(&mut last) {
            let (index, pool, marks) = (&index, &pool, marks.as_ref());
            let fault = fault.as_ref();
            scope.spawn(move || {
                let mut mark = Mark::default();
                for n in 0..steps {
                    if let Some(fault) = fault.filter(|fault| n == fault.at) {
                        fault.all.wait();
                        if thread == 0 {
                            // These stand if a page that cannot be read ends the process.
                            leave_counts(&[n; THREADS as usize], &[steps; THREADS as usize]);
                            fault.begin();
                        }
                    }
                    let done = match step(thread, n) {
                        (key, Some(value)) => index.put(&key, &value).map(drop),
                        (key, None) => index.remove(&key).map(drop),
                    };
                    if let Err(error) = done {
                        assert!(is_the_disk(&error), "{error:?}");
                        println!("\nstopped {thread}: {error}");
                        return;
                    }
                    mark.acked = n + 1;
                    let waits = mode() != Durability::Periodic;
                    let survives = waits || n % 10 == 9 && pool.sync().is_ok();
                    if survives && !fault.is_some_and(Fault::may_lose) {
                        mark.synced = mark.acked;
                    }
                    *last = mark;
                    if let Some(marks) = marks {
                        marks.write(thread, mark);
                    }
                }
            });
        }
    });
    let counts = |of: fn(&Mark) -> u64| last.each_ref().map(of);
    let [acked, synced] = leave_counts(&counts(|mark| mark.synced), &counts(|mark| mark.acked));
    println!("\nacked {acked}\nsynced {synced}");
}

/// Leaves the acknowledged and the synchronised writes of each thread for the check, and returns them as text.
fn leave_counts(synced: &[u64], acked: &[u64]) -> [String; 2] {
    let text = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let [acked, synced] = [acked, synced].map(text);
    std::fs::write(COUNTS, format!("{synced}\n{acked}\n")).expect("memory");
    [acked, synced]
}

/// Returns the synchronised and the acknowledged writes of each thread, as the host says, or as the writer left
/// them.
pub(super) fn counts() -> [Vec<u64>; 2] {
    let told = match (setting("SYNCED"), setting("ACKED")) {
        (Some(synced), Some(acked)) => format!("{synced}\n{acked}"),
        _ => std::fs::read_to_string(COUNTS).expect("what the writer left"),
    };
    let numbers = |line: &str| line.split(',').map(|n| n.parse().expect("a number")).collect();
    let mut lines = told.lines().map(numbers);
    std::array::from_fn(|_| lines.next().expect("two lines"))
}

fn is_the_disk(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(PmError::DurabilityLost(_)))
}

/// Opens the pool on the disk and compares: it must have a prefix of each thread's writes, with at least the
/// synchronised ones, and at most one more than the acknowledged ones. Then continues to write.
pub(super) fn look(synced: &[u64], acked: &[u64], seed: u64) -> Result<String, String> {
    let (path, options) = pool_at();
    if mode() == Durability::Periodic {
        // The power has failed: the contents of memory are lost.
        let _ = std::fs::remove_file(&path);
    }
    let pool = Arc::new(Pool::open(&path, &options).map_err(|error| format!("opening: {error}"))?);
    let index: AnyIndex<u64, u64> =
        AnyIndex::open(&pool, "index").map_err(|error| format!("opening the index: {error}"))?;
    let mut all = Model::new();
    for item in index.range(..) {
        let (key, value) = item.map_err(|error| format!("scanning: {error}"))?;
        all.insert(key, value);
    }
    let mut found = Vec::new();
    for (thread, (&least, &most)) in (0..).zip(synced.iter().zip(acked)) {
        let here: Model =
            all.range(thread * 1000..(thread + 1) * 1000).map(|(k, v)| (*k, *v)).collect();
        let steps = (least..=most + 1).rev().find(|&steps| model(thread, steps) == here);
        let Some(steps) = steps else {
            return Err(format!(
                "of thread {thread} there is {here:?}, which no count of writes from {least} to {} \
                 makes; {least} make {:?}",
                most + 1,
                model(thread, least),
            ));
        };
        found.push(steps.to_string());
    }
    // Some faults show only when it is used again.
    for n in 0..20 {
        let key = 5000 + (seed + n) % 30;
        index.put(&key, &n).map_err(|error| format!("going on: {error}"))?;
        index.remove(&(n % 2 * 1000 + n)).map_err(|error| format!("going on: {error}"))?;
        if index.get(&key) != Ok(Some(n)) {
            return Err(format!("going on: key {key} is not what was put"));
        }
    }
    index.check().map_err(|error| format!("checking: {error}"))?;
    Ok(found.join(","))
}
