//! A pool is used and closed by the last code of a thread that ends: by a thread-local variable of the program, which
//! may be destroyed after all of this crate. In a child process, which a panic there would abort.

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pmindex_core::sync::VersionLock;
use pmindex_core::{Durability, Mapped, Medium, PmError, PmU64, Pool, PoolOptions};

const CHILD: &str = "PMINDEX_TEST_ENDING_CHILD";
const MODES: [&str; 9] = [
    "volatile",
    "process",
    "periodic",
    "msync",
    "journal",
    "flush",
    "counted",
    "counting",
    "counted msync",
];

type Block = [PmU64; 8];

fn options(mode: &str, directory: &Path) -> PoolOptions {
    let opts = PoolOptions::new().size(256 << 10).zone_bytes(32 << 10).journal_bytes(64 << 10);
    match mode {
        "msync" | "counted msync" => opts.as_on_disk(true),
        "journal" => opts.as_on_disk(true).journal(true),
        "periodic" => opts.twin(directory.join("twin")),
        "flush" | "counted" | "counting" => opts.emulate_pm(true),
        _ => opts.write_back(false),
    }
}

fn create(mode: &str, directory: &Path) -> Option<Pool> {
    let opts = options(mode, directory);
    let medium = |mapped: Mapped| match mode {
        "counting" => mapped.counting(),
        "counted" | "counted msync" => mapped.counted(Duration::ZERO),
        _ => mapped,
    };
    let pool = match mode {
        "volatile" => Pool::volatile(256 << 10).expect("memory"),
        _ => match Pool::create_with(directory.join("pool"), &opts, medium) {
            Ok(pool) => pool,
            Err(error) if mode == "periodic" => {
                eprintln!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{mode}: {error}"),
        },
    };
    let expected = match mode {
        "volatile" => Durability::Volatile,
        "process" => Durability::Process,
        "periodic" => Durability::Periodic,
        "msync" | "counted msync" => Durability::Msync,
        "journal" => Durability::Journal,
        _ => Durability::Flush,
    };
    assert_eq!(pool.durability(), expected);
    Some(pool)
}

fn add(pool: &Pool, name: &str) -> Result<(), PmError> {
    let open = pool.create_index::<Block>(name, *b"blocks  ", 7, |block| {
        pool.pm().store(&block[0], 1);
        pool.pm().flush(block)
    })?;
    drop(open);
    Ok(())
}

fn value(pool: &Pool, name: &str) -> u64 {
    let open = pool.open_index(name).expect("sound").expect("there");
    pool.pm().load(&pool.get(open.root::<Block>()).expect("sound")[0])
}

/// What a thread does at its end with the pool.
struct AtTheEnd {
    pool: Arc<Pool>,
    uses: bool,
    fails: bool,
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        if self.uses {
            use_at_the_end(&self.pool);
        }
        if self.fails {
            fail_at_the_end(&self.pool);
        }
        assert_eq!(Arc::strong_count(&self.pool), 1, "the last handle");
        println!("ended");
    }
}

/// Everything that this crate does for a thread.
fn use_at_the_end(pool: &Pool) {
    add(pool, "late").expect("room");
    add(pool, "later").expect("room");
    assert_eq!(pool.drop_root("later"), Ok(true));
    drop(pool.pin());
    pool.sync().expect("durable");
    drop(VersionLock::lend(&[VersionLock::new()]));
    pool.complete(|| Ok(())).expect("nothing to do");
    drop(pool.recovery());
}

/// A thread that ends takes back what its failed fence did not make durable, like any other.
fn fail_at_the_end(pool: &Pool) {
    let open = pool.open_index("early").expect("sound").expect("there");
    let word = &pool.get(open.root::<Block>()).expect("sound")[0];
    drop(open);
    pool.check_writable().expect("so far");
    pool.pm().fail_write_back_after(0);
    pool.pm().store(word, 2);
    assert!(pool.pm().persist(word).is_err());
    assert_eq!(pool.pm().load(word), 1, "taken back");
    // But recovery completes a change, in memory.
    let complete = || {
        pool.pm().store(word, 3);
        pool.pm().persist(word)?;
        Ok(())
    };
    assert!(matches!(pool.complete(complete), Err(PmError::DurabilityLost(_))));
    assert_eq!(value(pool, "early"), 3);
}

thread_local! {
    /// Destroyed after the variables of this crate, if it is used before them.
    static KEPT: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

fn child(mode: &str, what: &str, directory: &Path) {
    let Some(pool) = create(mode, directory) else { return println!("ended") };
    let kept = AtTheEnd { pool: Arc::new(pool), uses: what == "uses", fails: what == "fails" };
    let thread = std::thread::spawn(move || {
        let pool = Arc::clone(&kept.pool);
        KEPT.set(Some(kept));
        add(&pool, "early").expect("room");
        drop(pool.pin());
        drop(VersionLock::lend(&[VersionLock::new()]));
        drop(pool.recovery());
    });
    thread.join().expect("a pool that is used");
}

#[test]
fn a_thread_that_ends_can_use_and_close_a_pool() {
    if let Ok(what) = std::env::var(CHILD) {
        let mut what = what.split('/');
        let (mode, what, directory) = (what.next(), what.next(), std::env::var_os("DIRECTORY"));
        let directory = directory.expect("a directory");
        return child(mode.expect("a mode"), what.expect("an action"), directory.as_ref());
    }
    let mut failed = Vec::new();
    for mode in MODES {
        for what in ["closes", "uses", "fails"] {
            if what == "fails" && !["msync", "journal"].contains(&mode) {
                continue; // no fence fails
            }
            let in_memory =
                ["process", "periodic"].contains(&mode) && Path::new("/dev/shm").exists();
            let folder = if in_memory { "/dev/shm".into() } else { std::env::temp_dir() };
            let directory = tempfile::tempdir_in(folder).expect("a directory");
            let ended = Command::new(std::env::current_exe().expect("this program"))
                .args(["a_thread_that_ends_can_use_and_close_a_pool", "--exact", "--nocapture"])
                .env(CHILD, format!("{mode}/{what}"))
                .env("DIRECTORY", directory.path())
                .output()
                .expect("a child");
            let told = String::from_utf8_lossy(&ended.stdout).into_owned();
            if !(ended.status.success() && told.contains("ended\n")) {
                let why = String::from_utf8_lossy(&ended.stderr).into_owned();
                failed.push(format!("{mode} {what}: {}\n{why}", ended.status));
                continue;
            }
            let path = directory.path().join("pool");
            if !path.exists() {
                continue;
            }
            let pool = Pool::open(&path, &options(mode, directory.path())).expect("whole");
            assert_eq!(pool.was_clean(), what != "fails", "{mode} {what}");
            let stored = value(&pool, "early");
            // What a fence refused may be in the file, as after a kill.
            assert!(stored == 1 || what == "fails" && stored == 2, "{mode} {what}: {stored}");
            let late = pool.find_index("late").expect("sound");
            assert_eq!(late.is_some(), what == "uses", "{mode} {what}");
            assert_eq!(pool.find_index("later"), Ok(None), "{mode} {what}");
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
