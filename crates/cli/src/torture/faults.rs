//! Other faults of a pool and its medium: each must give a clear error, and lose nothing.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pmindex::core::{Durability, OpenError, PmError, PoolOptions};
use pmindex::{AnyIndex, Index, IndexError, Kind};

use crate::error::CliError;
use crate::interrupt::{Fate, Registered};
use crate::medium::MediumArgs;
use crate::temp_file::TempFile;
use crate::trial::crash::{self, Moment, Plan};
use crate::trial::source::Source;
use crate::trial::store::Store;
use crate::trial::writer;

/// The outcome of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The pool behaved as it should; with what was seen.
    Held(String),
    /// The fault cannot be tried here; with the reason.
    Skipped(String),
    /// Something went wrong; with the description.
    Failed(String),
}

impl Outcome {
    pub(super) fn holds(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// The size of a pool here, in bytes.
const ROOM: u64 = 64 << 20;
/// The size of the disk that becomes full.
const SMALL_DISK: &str = "4M";

/// Tries every fault on an index of this kind.
pub(super) fn all(
    kind: Kind,
    medium: MediumArgs,
    dir: Option<&Path>,
    seed: u64,
) -> Result<Vec<(&'static str, Outcome)>, CliError> {
    let options = |place: &TempFile| medium.apply(PoolOptions::new().size(8 << 20), place.path());
    // For a small tmpfs, which may give less than the options ask for.
    let small = PoolOptions::new().size(2 << 20);
    let small = |place: &TempFile| {
        if medium.has_twin() {
            return small.clone();
        }
        medium.apply(small.clone(), place.path()).require(Durability::Volatile)
    };
    let with_twin = || Outcome::Skipped("a pool with a twin is read from the twin".into());
    // A pool in which something is wrong is kept.
    let tried = |title, name: &str, fault: &dyn Fn(&TempFile) -> Result<Outcome, CliError>| {
        let mut place =
            TempFile::new((dir, medium), &format!("torture-{name}-{kind}"), ROOM, false)?;
        let outcome = match fault(&place) {
            Ok(Outcome::Failed(what)) if place.path().exists() => {
                place.keep();
                Outcome::Failed(format!("{what}; the pool is kept: {}", place.path().display()))
            }
            outcome => outcome.map_err(|error| place.keep_for(error, seed))?,
        };
        Ok((title, outcome))
    };
    [
        tried("disk full", "disk", &|place| disk_full(kind, &small(place), place)),
        tried("file removed", "removed", &|place| {
            if medium.has_twin() { Ok(with_twin()) } else { removed(kind, &options(place), place) }
        }),
        tried("file cut short", "cut", &|place| {
            if medium.has_twin() {
                return Ok(with_twin());
            }
            cut_short(kind, medium, &options(place), place)
        }),
        tried("a thread panics", "panic", &|place| panics(kind, &options(place), place)),
        tried("read-only disk", "read-only", &|place| read_only_disk(kind, &small(place), place)),
        tried("a child outlives the pool", "outlived", &|place| {
            outlived(kind, &options(place), place)
        }),
    ]
    .into_iter()
    .collect()
}

/// Inserts the keys from `from` on until the pool refuses one; returns how many it took, and the error.
fn fill(index: &AnyIndex<u64, u64>, from: u64) -> (u64, IndexError) {
    let mut key = from;
    loop {
        match index.try_insert(&key, &!key) {
            Ok(_) => key += 1,
            Err(error) => return (key - from, error),
        }
    }
}

/// Returns how an index differs from these keys, each of which has its complement as its value.
fn differs(
    index: &AnyIndex<u64, u64>,
    keys: impl Iterator<Item = (u64, bool)>,
) -> Result<Option<String>, IndexError> {
    let mut count = 0;
    for (key, present) in keys {
        count += u64::from(present);
        if index.get(&key)? != present.then_some(!key) {
            return Ok(Some(format!("key {key} is lost, wrong, or should not be there")));
        }
    }
    let records = index.check()?;
    Ok((records != count).then(|| format!("{records} records, there should be {count}")))
}

/// Returns all keys below `count`.
fn all_below(count: u64) -> impl Iterator<Item = (u64, bool)> {
    (0..count).map(|key| (key, true))
}

fn is_full(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(PmError::NoSpace { .. } | PmError::Full { .. }))
}

/// Returns what was found wrong, or else what was seen.
fn judge(wrong: Option<String>, seen: String) -> Outcome {
    wrong.map_or(Outcome::Held(seen), Outcome::Failed)
}

/// A small file system, mounted until this is dropped.
struct Disk {
    dir: PathBuf,
    _registered: Registered,
}

impl Disk {
    /// Makes it read-only.
    fn protect(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,ro"]).arg(&self.dir);
        match mount.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn mount(dir: PathBuf) -> Result<Self, String> {
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let size = format!("size={SMALL_DISK}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "pmindex-torture"])
            .arg(&dir)
            .output();
        let registered = Registered::new(&dir, Fate::Unmount);
        let disk = Self { dir, _registered: registered };
        match mounted {
            Ok(output) if output.status.success() => Ok(disk),
            Ok(_) => Err("only root may mount a small tmpfs".into()),
            Err(e) => Err(format!("cannot run mount: {e}")),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Fails if mounting failed; the folder is removed in any case.
        let _ = Command::new("umount").arg(&self.dir).output();
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// A disk that fills up: the write that does not fit gets an error, and everything before it is there.
fn disk_full(kind: Kind, options: &PoolOptions, place: &TempFile) -> Result<Outcome, CliError> {
    let disk = match Disk::mount(place.path().with_extension("disk")) {
        Ok(disk) => disk,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let path = disk.dir.join("pool");
    let store = Store::create(&path, options, kind)?;
    let mode = store.promise().mode;
    let (count, error) = fill(&store.integers, 0);
    if !is_full(&error) || count == 0 {
        return Ok(Outcome::Failed(format!("after {count} records the error was: {error}")));
    }
    // The index is still usable. An index that copies nodes may refuse a removal too, and loses nothing.
    let mut present = vec![true; count as usize];
    let mut refused = 0;
    for key in count - count / 4..count {
        match store.integers.remove(&key) {
            Ok(_) => present[key as usize] = false,
            Err(error) if is_full(&error) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    for key in (count - count / 4..count).step_by(2) {
        match store.integers.try_insert(&key, &!key) {
            Ok(_) => present[key as usize] = true,
            Err(error) if is_full(&error) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let expected = || (0..).zip(present.iter().copied());
    if let Some(wrong) = differs(&store.integers, expected())? {
        return Ok(Outcome::Failed(wrong));
    }
    store.close()?;
    let reopened = Store::open_with(&path, options)?;
    let wrong = differs(&reopened.integers, expected())?;
    reopened.close()?;
    let too = match refused {
        0 => String::new(),
        refused => format!("; {refused} later changes refused too"),
    };
    let seen = format!("on a small tmpfs, mode {mode}: {count} records, then \"{error}\"{too}");
    Ok(judge(wrong, seen))
}

/// A file that is removed while the pool is open: the pool works until it is closed.
fn removed(kind: Kind, options: &PoolOptions, place: &TempFile) -> Result<Outcome, CliError> {
    let store = Store::create(place.path(), options, kind)?;
    let insert = |keys: std::ops::Range<u64>| {
        keys.into_iter().try_for_each(|key| store.integers.try_insert(&key, &!key).map(drop))
    };
    insert(0..1000)?;
    std::fs::remove_file(place.path())?;
    insert(1000..50_000)?;
    let wrong = differs(&store.integers, all_below(50_000))?;
    store.close()?;
    let gone = match Store::open_with(place.path(), options) {
        Err(CliError::Open(OpenError::NotFound { .. })) => None,
        Err(error) => Some(format!("opening it said: {error}")),
        Ok(_) => Some("a pool is there again".into()),
    };
    Ok(judge(wrong.or(gone), "used to the end, then gone".into()))
}

/// A file that is cut short: the process dies by SIGBUS, and the next opening gets an error that says why.
fn cut_short(
    kind: Kind,
    medium: MediumArgs,
    options: &PoolOptions,
    place: &TempFile,
) -> Result<Outcome, CliError> {
    Store::create(place.path(), options, kind)?.close()?;
    let source = Source { keys: None, integers: 10_000 };
    let path = place.path().to_path_buf();
    let cut = std::sync::Once::new();
    let plan = Plan::kill(Moment::AfterFirstWrite(Duration::from_secs(20)));
    let child = writer::command(place.path(), &source, medium, (1, 7))?;
    let ended = crash::write_and_end(child, 1, plan, &|steps| {
        if steps > 0 {
            cut.call_once(|| {
                let file = std::fs::OpenOptions::new().write(true).open(&path);
                // If this fails, the child is not killed, and the parent notices.
                let _ = file.and_then(|file| file.set_len(4096 * 4));
            });
        }
    });
    match ended {
        Err(CliError::ChildEnded { status }) if status.signal() == Some(7) => {}
        Err(error) => return Ok(Outcome::Failed(format!("the writing process: {error}"))),
        Ok(_) => return Ok(Outcome::Failed("the writing process did not notice".into())),
    }
    Ok(match Store::open_with(place.path(), options) {
        Err(CliError::Open(error @ OpenError::Truncated { .. })) => {
            let text = error.to_string();
            let short = text.split(": ").last().unwrap_or_default().to_owned();
            Outcome::Held(format!("SIGBUS, then \"{short}\""))
        }
        Err(error) => Outcome::Failed(format!("opening it said: {error}")),
        Ok(_) => Outcome::Failed("it opened".into()),
    })
}

/// A thread that panics during a scan: other threads continue, and no lock is left.
fn panics(kind: Kind, options: &PoolOptions, place: &TempFile) -> Result<Outcome, CliError> {
    let store = Store::create(place.path(), options, kind)?;
    let index = &store.integers;
    for key in 0..1000 {
        index.put(&key, &!key)?;
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let panicked = std::thread::scope(|threads| {
        let scanner = threads.spawn(|| {
            let range = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            let seen = index.range_bounds(range.0, range.1).take(500).count();
            std::panic::panic_any(seen);
        });
        scanner.join().is_err()
    });
    std::panic::set_hook(hook);
    for key in 1000..20_000 {
        index.put(&key, &!key)?;
    }
    let wrong =
        differs(index, all_below(20_000))?.or((!panicked).then(|| "it did not panic".into()));
    store.close()?;
    Ok(judge(wrong, "the others went on".into()))
}

/// A disk that is read-only when the pool of a killed process is opened: opening for writing gets a clear
/// error, and opening for reading recovers in memory.
fn read_only_disk(
    kind: Kind,
    options: &PoolOptions,
    place: &TempFile,
) -> Result<Outcome, CliError> {
    let disk = match Disk::mount(place.path().with_extension("disk")) {
        Ok(disk) => disk,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let path = disk.dir.join("pool");
    let store = Store::create(&path, options, kind)?;
    for key in 0..5000 {
        store.integers.put(&key, &!key)?;
    }
    let mode = store.promise().mode;
    store.abandon();
    if let Err(why) = disk.protect() {
        return Ok(Outcome::Skipped(why));
    }
    let refused = match Store::open_with(&path, options) {
        Err(CliError::Open(error)) => error.to_string(),
        Err(error) => return Ok(Outcome::Failed(format!("opening it said: {error}"))),
        Ok(_) => return Ok(Outcome::Failed("it opened for writing".into())),
    };
    let store = Store::open_with(&path, &options.clone().read_only(true))?;
    let wrong = differs(&store.integers, all_below(5000))?;
    let written = match store.integers.try_insert(&5000, &0) {
        Err(IndexError::Pool(PmError::ReadOnly)) => None,
        other => Some(format!("writing said: {other:?}")),
    };
    let why = refused.split(": ").last().unwrap_or_default().to_owned();
    Ok(judge(
        wrong.or(written),
        format!("on a small tmpfs, mode {mode}: \"{why}\", and readable all the same"),
    ))
}

/// A child process that was started while the pool was open, and outlives it: it keeps neither the pool nor
/// its lock.
fn outlived(kind: Kind, options: &PoolOptions, place: &TempFile) -> Result<Outcome, CliError> {
    let store = Store::create(place.path(), options, kind)?;
    store.integers.put(&0, &!0)?;
    let mut child = match Command::new("sleep").arg("60").spawn() {
        Ok(child) => child,
        Err(e) => return Ok(Outcome::Skipped(format!("cannot run sleep: {e}"))),
    };
    store.integers.put(&1, &!1)?;
    let closed = store.close();
    let reopened = closed.and_then(|()| Store::open_with(place.path(), options));
    let lives = matches!(child.try_wait(), Ok(None));
    child.kill().and_then(|()| child.wait()).map_err(CliError::Child)?;
    let store = match reopened {
        Ok(store) => store,
        Err(error) => return Ok(Outcome::Failed(format!("opening it again said: {error}"))),
    };
    let wrong = differs(&store.integers, all_below(2))?;
    store.close()?;
    let gone = (!lives).then(|| "the child had ended".to_owned());
    Ok(judge(wrong.or(gone), "opened again while it lived".into()))
}
