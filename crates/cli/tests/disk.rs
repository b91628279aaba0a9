//! Commands on a pool that has something beside it, as a person runs them: `compact`, and
//! `check --without-journal`.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

// What the program has compiled of the indexes, these tests share.
use pmindex_cli as _;

use pmindex::{AnyIndex, Index, Kind, Pool, PoolOptions, Store, StoreError, StoreOptions};
use pmindex_cceh::Cceh;
use serde_json::Value;

const RECORDS: u64 = 900;

/// A command line on a pool.
fn pmindex(command: &str, pool: &Path, rest: &[&OsStr]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pmindex"));
    program.arg(command).arg(pool).args(rest).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Runs, expects success, returns standard output.
fn works(command: &str, pool: &Path, rest: &[&str]) -> String {
    let rest: Vec<&OsStr> = rest.iter().map(OsStr::new).collect();
    let output = pmindex(command, pool, &rest);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs, expects this exit code, returns standard error.
fn fails(code: i32, command: &str, pool: &Path, rest: &[&str]) -> String {
    let rest: Vec<&OsStr> = rest.iter().map(OsStr::new).collect();
    let output = pmindex(command, pool, &rest);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stderr)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn journal_of(pool: &Path) -> PathBuf {
    let mut journal = pool.as_os_str().to_owned();
    journal.push(".journal");
    journal.into()
}

fn options() -> PoolOptions {
    PoolOptions::new().size(1 << 20).zone_bytes(128 << 10).slots(4)
}

/// Options of a pool that is filled quickly: nothing is written back until it is closed.
fn quick(size: u64) -> PoolOptions {
    PoolOptions::new().size(size).write_back(false)
}

/// In the folder, `name` and its journal as a kill leaves them, with all records.
fn killed(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let pool = Arc::new(Pool::create(&path, &options().journal(true)).expect("created"));
    let index = AnyIndex::<u64, u64>::create(&pool, "main", Kind::FpTree).expect("created");
    for key in 0..RECORDS {
        index.put(&key, &!key).expect("room");
    }
    drop(index);
    Arc::into_inner(pool).expect("nobody else has it").kill();
    path
}

/// What `scan` prints of all records.
fn all() -> String {
    (0..RECORDS).fold(String::new(), |text, key| text + &format!("{key}\t{}\n", !key))
}

#[test]
fn a_pool_without_its_journal_is_looked_at_and_saved_only_if_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = killed(folder.path(), "alone.pm");
    let saved = folder.path().join("saved.pm");
    let new = saved.to_str().expect("text");
    fs::remove_file(journal_of(&pool)).expect("removed");
    let before = fs::read(&pool).expect("a pool");

    for refused in [&[][..], &["--repair", new]] {
        let error = fails(1, "check", &pool, refused);
        assert!(error.contains("alone.pm.journal is missing"), "{error}");
        assert!(
            error.contains("hint: ") && error.contains("--without-journal --repair"),
            "{error}"
        );
        assert!(!saved.exists());
    }
    for (command, rest) in [("scan", &[][..]), ("put", &["1", "1"]), ("compact", &[])] {
        let error = fails(1, command, &pool, rest);
        assert!(error.contains("alone.pm.journal is missing"), "{command}: {error}");
    }

    let check = json(&works("check", &pool, &["--without-journal", "--json"]));
    assert_eq!(check["whole"], true);
    assert_eq!(check["indexes"][0]["records"], RECORDS);
    works("check", &pool, &["--without-journal", "--repair", new]);
    assert_eq!(works("scan", &saved, &[]), all());
    assert!(works("check", &saved, &[]).contains("main: whole, 900 records"));
    assert_eq!(fs::read(&pool).expect("a pool"), before, "it changed the pool");
    assert!(!journal_of(&pool).exists());

    // Never over something that is there.
    let kept = fs::read(&saved).expect("a pool");
    let error = fails(1, "check", &pool, &["--without-journal", "--repair", new]);
    assert!(error.contains("saved.pm"), "{error}");
    assert_eq!(fs::read(&saved).expect("a pool"), kept);
}

/// The journal is beside the file, wherever a link to that is.
#[test]
fn info_finds_the_journal_of_a_pool_behind_a_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pool, link) = (killed(folder.path(), "a.pm"), folder.path().join("link.pm"));
    std::os::unix::fs::symlink(&pool, &link).expect("linked");
    fs::write(journal_of(&link), "of another pool").expect("written");
    let info = json(&works("info", &link, &["--json"]));
    let journal = pool.canonicalize().map(|pool| journal_of(&pool)).expect("a pool");
    assert_eq!(info["beside"], json(&format!("[{journal:?}]")));
}

#[test]
fn a_journal_of_another_pool_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = killed(folder.path(), "a.pm");
    let other = killed(folder.path(), "b.pm");
    fs::copy(journal_of(&other), journal_of(&pool)).expect("copied");
    let files =
        || [fs::read(&pool).expect("a pool"), fs::read(journal_of(&pool)).expect("a journal")];
    let before = files();
    for (command, rest) in [("check", &[][..]), ("compact", &[]), ("put", &["1", "1"])] {
        let error = fails(1, command, &pool, rest);
        assert!(error.contains("is not its journal"), "{command}: {error}");
        assert!(error.contains("hint: "), "{command}: {error}");
    }
    let check = json(&works("check", &pool, &["--without-journal", "--json"]));
    assert_eq!(check["indexes"][0]["records"], RECORDS);
    assert!(files() == before, "something changed the pool or the journal");
}

#[test]
fn without_journal_of_what_is_no_such_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let new = folder.path().join("new.pm");
    let repair = ["--without-journal", "--repair", new.to_str().expect("text")];
    let missing = folder.path().join("missing.pm");
    assert!(fails(1, "check", &missing, &repair).contains("no such file"));
    let notes = folder.path().join("notes.txt");
    fs::write(&notes, "these are notes, not a pool\n".repeat(1000)).expect("written");
    assert!(fails(1, "check", &notes, &repair).contains("not a pmindex pool"));
    assert!(!new.exists(), "made for nothing");
    fails(2, "check", &missing, &["--repair"]);

    // With its journal, all of it is there; so it is with none to lose.
    let pool = killed(folder.path(), "a.pm");
    assert!(works("check", &pool, &["--without-journal"]).contains("main: whole, 900 records"));
    assert_eq!(works("scan", &pool, &[]), all());
    let plain = folder.path().join("plain.pm");
    works("put", &plain, &["k", "v", "--durability", "process"]);
    assert!(works("check", &plain, &["--without-journal"]).contains("main: whole, 1 record\n"));
}

#[test]
fn compact_gives_back_what_a_dropped_index_had() {
    let folder = tempfile::tempdir().expect("a folder");
    for journal in [false, true] {
        let path = folder.path().join(format!("{journal}.pm"));
        let options = PoolOptions::new().size(32 << 20).journal(journal);
        let pool = Arc::new(Pool::create(&path, &options).expect("created"));
        for (name, count) in [("stays", RECORDS), ("goes", 200_000)] {
            let index = AnyIndex::<u64, u64>::create(&pool, name, Kind::FpTree).expect("created");
            index.bulk_load(&mut (0..count).map(|key| (key, !key))).expect("room");
            index.close().expect("closed");
        }
        assert_eq!(AnyIndex::<u64, u64>::destroy(&pool, "goes"), Ok(true));
        Arc::into_inner(pool).expect("nobody else has it").close().expect("closed");

        let blocks = || fs::metadata(&path).expect("a file").blocks() * 512;
        let (before, len) = (blocks(), fs::metadata(&path).expect("a file").len());
        let report = json(&works("compact", &path, &["--json"]));
        let given = report["given_back"].as_u64().expect("a number");
        assert!(given >= 2 << 20, "{report}");
        assert!(blocks() + given <= before + (1 << 20), "{before} -> {}: {report}", blocks());
        assert_eq!(fs::metadata(&path).expect("a file").len(), len, "shorter");
        assert_eq!(report["size"], len);
        assert!(report["used"].as_u64().is_some_and(|used| used < len), "{report}");

        let again = works("compact", &path, &[]);
        assert!(again.contains(" went back to the system; the pool uses "), "{again}");
        works("put", &path, &["5000", "1", "--index", "stays"]);
        assert_eq!(works("scan", &path, &["--index", "stays"]), all() + "5000\t1\n");
        assert!(works("check", &path, &[]).contains("stays: whole, 901 records"));
    }
}

#[test]
fn compact_refuses_what_it_cannot_have() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(fails(1, "compact", &folder.path().join("missing.pm"), &[]).contains("no such file"));
    let notes = folder.path().join("notes.txt");
    let words = "these are notes, not a pool\n".repeat(1000);
    fs::write(&notes, &words).expect("written");
    assert!(fails(1, "compact", &notes, &[]).contains("not a pmindex pool"));
    assert_eq!(fs::read_to_string(&notes).expect("text"), words);
    fails(1, "compact", folder.path(), &[]);

    // In use by this process.
    let path = folder.path().join("a.pm");
    let pool = Pool::create(&path, &options().write_back(false)).expect("created");
    let error = fails(1, "compact", &path, &[]);
    assert!(error.contains("a.pm"), "{error}");
    pool.close().expect("closed");
    works("compact", &path, &[]);
    fails(1, "compact", &path, &["--durability", "fence"]);
    fails(2, "compact", &path, &["--durability", "for-ever"]);
}

#[test]
fn compact_rewrites_a_pool_into_a_small_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pm");
    let pool = Arc::new(Pool::create(&path, &quick(32 << 20)).expect("created"));
    let words = AnyIndex::<u64, u64>::create(&pool, "words", Kind::FpTree).expect("created");
    words.bulk_load(&mut (0..60_000).map(|key| (key, !key))).expect("room");
    words.remove_range(1000..).expect("removed");
    words.close().expect("closed");
    let texts = AnyIndex::<String, Vec<u8>>::create(&pool, "texts", Kind::Hart).expect("created");
    let large = vec![7; 600 << 10];
    texts.insert("large", &large).expect("room");
    texts.insert("small", b"").expect("room");
    texts.close().expect("closed");
    let uuid = pool.uuid();
    // In use.
    let error = fails(1, "compact", &path, &["--rewrite"]);
    assert!(error.contains("a.pm"), "{error}");
    Arc::into_inner(pool).expect("closed").close().expect("closed");
    let permissions = fs::Permissions::from_mode(0o640);
    fs::set_permissions(&path, permissions.clone()).expect("changed");
    let before = fs::metadata(&path).expect("a file").len();

    let report = json(&works("compact", &path, &["--rewrite", "--json"]));
    assert_eq!((&report["indexes"], &report["records"]), (&2.into(), &1002.into()), "{report}");
    assert_eq!((&report["replaced"], &report["size_before"]), (&true.into(), &before.into()));
    let file = fs::metadata(&path).expect("a file");
    assert!(file.len() <= 5 << 20, "{} bytes: {report}", file.len());
    assert_eq!(file.permissions().mode() & 0o777, permissions.mode());
    let pool = Arc::new(Pool::open(&path, &options()).expect("a pool"));
    assert_ne!(pool.uuid(), uuid);
    let words = AnyIndex::<u64, u64>::open(&pool, "words").expect("there");
    assert!((words.kind(), words.check()) == (Kind::FpTree, Ok(1000)));
    assert!(words.range(..).map(|item| item.expect("whole")).eq((0..1000).map(|key| (key, !key))));
    let texts = AnyIndex::<String, Vec<u8>>::open(&pool, "texts").expect("there");
    assert!((texts.kind(), texts.check()) == (Kind::Hart, Ok(2)));
    assert_eq!(texts.get("large").expect("whole"), Some(large));
    drop((words, texts));
    Arc::into_inner(pool).expect("closed").close().expect("closed");
    // It is as small as it gets.
    let again = works("compact", &path, &["--rewrite"]);
    assert!(again.contains("already"), "{again}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left behind");
}

/// The other name would lead to the old pool, which takes writes as before: two pools instead of one.
#[test]
fn a_pool_of_two_names_is_not_rewritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, other) = (dir.path().join("a.pm"), dir.path().join("other.pm"));
    let pool = Pool::create(&path, &PoolOptions::new().size(16 << 20)).expect("a pool");
    pool.close().expect("closed");
    fs::hard_link(&path, &other).expect("linked");
    let error = fails(1, "compact", &path, &["--rewrite"]);
    assert!(error.contains("another name"), "{error}");
    works("compact", &path, &[]);
    fs::remove_file(&other).expect("there");
    works("compact", &path, &["--rewrite"]);
}

/// A killed rewrite leaves the pool as it was, or the new one. When what is left of the attempt is removed, the
/// command works again.
#[test]
fn a_killed_rewrite_leaves_one_of_the_two_pools() {
    const ROUNDS: u32 = 12;
    let folder = tempfile::tempdir().expect("a folder");
    let [sparse, path, partial] =
        ["sparse.pm", "a.pm", "a.pm.partial"].map(|name| folder.path().join(name));
    let pool = Arc::new(Pool::create(&sparse, &quick(16 << 20)).expect("created"));
    let words = AnyIndex::<u64, u64>::create(&pool, "words", Kind::FpTree).expect("created");
    words.bulk_load(&mut (0..40_000).map(|key| (key, !key))).expect("room");
    words.remove_range(5000..).expect("removed");
    words.close().expect("closed");
    let old = pool.uuid();
    Arc::into_inner(pool).expect("closed").close().expect("closed");

    let rewrite = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmindex"));
        command.arg("compact").arg(&path).arg("--rewrite");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    };
    let mut seen = [0; 2];
    // From the new pool's appearance to its name, in a round that is not killed.
    let mut whole = Duration::ZERO;
    for round in 0..=ROUNDS {
        fs::copy(&sparse, &path).expect("copied");
        let mut child = rewrite();
        let mut ended = || child.try_wait().expect("a child").is_some();
        while !partial.exists() && !ended() {}
        let begun = Instant::now();
        while partial.exists()
            && !ended()
            && (round == 0 || begun.elapsed() < whole * round / ROUNDS)
        {}
        if round == 0 {
            whole = begun.elapsed();
        } else if round == ROUNDS {
            while partial.exists() && !ended() {} // until it has the name
        }
        child.kill().expect("killed");
        child.wait().expect("a child");

        let pool = Arc::new(Pool::open(&path, &PoolOptions::new()).expect("a pool"));
        let anew = pool.uuid() != old;
        seen[usize::from(anew)] += 1;
        assert!(!(anew && partial.exists()), "a rewritten pool, and what is not one yet");
        let words = AnyIndex::<u64, u64>::open(&pool, "words").expect("there");
        assert_eq!(words.check(), Ok(5000));
        let all = (0..5000).map(|key| (key, !key));
        assert!(words.range(..).map(|item| item.expect("whole")).eq(all));
        words.put(&5000, &1).expect("room");
        words.close().expect("closed");
        Arc::into_inner(pool).expect("closed").close().expect("closed");

        if partial.exists() {
            let error = fails(1, "compact", &path, &["--rewrite"]);
            assert!(error.contains("a.pm.partial"), "{error}");
            fs::remove_file(&partial).expect("there");
        }
        works("compact", &path, &["--rewrite"]);
        let pool = Arc::new(Pool::open(&path, &PoolOptions::new()).expect("a pool"));
        let words = AnyIndex::<u64, u64>::open(&pool, "words").expect("there");
        assert_eq!(words.check(), Ok(5001));
    }
    println!("killed {} times before the new pool had its name, {} times after", seen[0], seen[1]);
    assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
}

#[test]
fn compact_does_not_rewrite_what_it_would_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal.pm");
    Pool::create(&path, &options().journal(true)).expect("created").close().expect("closed");
    assert!(fails(1, "compact", &path, &["--rewrite"]).contains("a journal"));
    // Another attempt is under way, or was killed.
    let path = folder.path().join("twice.pm");
    Pool::create(&path, &options()).expect("created").close().expect("closed");
    let before = fs::read(&path).expect("a file");
    fs::write(folder.path().join("twice.pm.partial"), b"").expect("written");
    let error = fails(1, "compact", &path, &["--rewrite"]);
    assert!(error.contains("twice.pm.partial"), "{error}");
    fs::remove_file(folder.path().join("twice.pm.partial")).expect("there");
    // A type of a program's own.
    let pool = Arc::new(Pool::open(&path, &options()).expect("a pool"));
    let own = AnyIndex::<(u64, u64), u64>::create(&pool, "own", Kind::FpTree).expect("created");
    own.close().expect("closed");
    Arc::into_inner(pool).expect("closed").close().expect("closed");
    assert!(fails(1, "compact", &path, &["--rewrite"]).contains("own"));
    assert_eq!(fs::read(&path).expect("a file").len(), before.len());
    assert!(!folder.path().join("twice.pm.partial").exists());
}

#[test]
fn compact_rewrites_every_kind_and_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("all.pm");
    let pool = Arc::new(Pool::create(&path, &quick(64 << 20)).expect("created"));
    for kind in Kind::ALL {
        let index = AnyIndex::<String, u64>::create(&pool, kind.name(), *kind).expect("created");
        (0..300).for_each(|key| assert!(index.put(&format!("key {key:4}"), &key).expect("room")));
        index.close().expect("closed");
    }
    let hash = Cceh::<u64, String>::create(&pool, "hash").expect("created");
    (0..3000).for_each(|key| assert!(hash.put(&key, &key.to_string()).expect("room")));
    hash.close().expect("closed");
    Arc::into_inner(pool).expect("closed").close().expect("closed");
    let report = json(&works("compact", &path, &["--rewrite", "--json"]));
    let records = 300 * Kind::ALL.len() as u64 + 3000;
    assert_eq!((&report["replaced"], &report["records"]), (&true.into(), &records.into()));
    let pool = Arc::new(Pool::open(&path, &options()).expect("a pool"));
    for kind in Kind::ALL {
        let index = AnyIndex::<String, u64>::open(&pool, kind.name()).expect("there");
        assert_eq!((index.kind(), index.check().expect("whole")), (*kind, 300));
        assert!(index.range(..).map(|item| item.expect("whole").1).eq(0..300), "{kind:?}");
    }
    let hash = Cceh::<u64, String>::open(&pool, "hash").expect("there");
    assert_eq!(hash.check().expect("whole"), 3000);
    assert!((0..3000).all(|key| hash.get(&key).expect("whole") == Some(key.to_string())));
    drop(hash);
    Arc::into_inner(pool).expect("closed").close().expect("closed");

    let path = folder.path().join("store.pm");
    let options = StoreOptions::new().pool(quick(16 << 20));
    let store = Store::open_with(&path, &options).expect("created");
    let fruit = store.map::<String, u64>("fruit").expect("created");
    let counts = store.map::<u64, u64>("counts").expect("created");
    for key in 0..1000 {
        assert!(counts.put(&key, &1).expect("room"));
    }
    store
        .transaction(|tx| {
            tx.put(&fruit, "pear", &5)?;
            tx.put(&counts, &7, &9)?;
            Ok::<_, StoreError>(())
        })
        .expect("committed");
    drop((fruit, counts));
    store.close().expect("closed");
    let before = fs::metadata(&path).expect("a file").len();
    let report = json(&works("compact", &path, &["--rewrite", "--json"]));
    assert_eq!((&report["indexes"], &report["records"]), (&2.into(), &1001.into()), "{report}");
    assert!(fs::metadata(&path).expect("a file").len() < before);
    let store = Store::open(&path).expect("a store");
    let fruit = store.map::<String, u64>("fruit").expect("there");
    let counts = store.map::<u64, u64>("counts").expect("there");
    assert_eq!(fruit.get("pear").expect("whole"), Some(5));
    assert_eq!((counts.get(&7).expect("whole"), counts.len().expect("whole")), (Some(9), 1000));
}

/// The new pool takes every value that the old one took, whatever the old one was made for.
#[test]
fn a_rewritten_pool_takes_the_values_that_it_took() {
    let folder = tempfile::tempdir().expect("a folder");
    for zone in [128u64 << 10, 1 << 20, 4 << 20, 16 << 20] {
        for there in [false, true] {
            let path = folder.path().join(format!("{zone}-{there}.pm"));
            let options = quick(64 << 20).zone_bytes(zone);
            let pool = Arc::new(Pool::create(&path, &options).expect("created"));
            let texts =
                AnyIndex::<u64, Vec<u8>>::create(&pool, "t", Kind::FpTree).expect("created");
            texts.put(&0, b"small").expect("room");
            let mut largest = vec![7; (zone as usize).min(pmindex::MAX_VALUE_BYTES)];
            while texts.put(&1, &largest).is_err() {
                largest.truncate(largest.len() - 512);
            }
            if !there {
                texts.remove(&1).expect("there");
            }
            texts.close().expect("closed");
            Arc::into_inner(pool).expect("closed").close().expect("closed");
            let report = json(&works("compact", &path, &["--rewrite", "--json"]));
            assert_eq!(report["replaced"], true, "{zone}: {report}");
            let pool = Arc::new(Pool::open(&path, &quick(0)).expect("a pool"));
            let texts = AnyIndex::<u64, Vec<u8>>::open(&pool, "t").expect("there");
            for key in 1..4 {
                assert_eq!(
                    texts.put(&key, &largest),
                    Ok(key > 1 || !there),
                    "{zone}, {there}, {key}"
                );
            }
            assert_eq!(texts.check(), Ok(4));
        }
    }
}

/// In a user namespace that has only the caller, the owner of the pool has no number to give the file to.
#[test]
fn a_pool_whose_owner_the_user_namespace_lacks_is_rewritten_and_the_user_is_told() {
    let in_namespace = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", program]);
        command
    };
    let folder = tempfile::tempdir().expect("a folder");
    for json in [false, true] {
        let path = folder.path().join(format!("{json}.pm"));
        let pool = Arc::new(Pool::create(&path, &quick(64 << 20)).expect("created"));
        let words = AnyIndex::<u64, u64>::create(&pool, "n", Kind::FpTree).expect("created");
        words.put(&1, &2).expect("room");
        words.close().expect("closed");
        Arc::into_inner(pool).expect("closed").close().expect("closed");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("changed");
        let is_root = std::os::unix::fs::chown(&path, Some(12_345), Some(23_456)).is_ok();
        let has_namespaces = in_namespace("true").status().is_ok_and(|status| status.success());
        if !is_root || !has_namespaces {
            return eprintln!("skipped: it needs root, and user namespaces");
        }
        let before = fs::metadata(&path).expect("a file");
        let mut command = in_namespace(env!("CARGO_BIN_EXE_pmindex"));
        command.arg("compact").arg(&path).arg("--rewrite").args(json.then_some("--json"));
        let done = command.output().expect("started");
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
        let says = if json { "\"owner_kept\": false" } else { "(chown)" };
        assert!(told.contains(says), "{told}");
        assert_ne!(fs::metadata(&path).expect("a file").ino(), before.ino());
        let pool = Arc::new(Pool::open(&path, &quick(0)).expect("a pool"));
        let words = AnyIndex::<u64, u64>::open(&pool, "n").expect("there");
        assert_eq!(words.get(&1), Ok(Some(2)));
    }
    let left = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 2, "nothing is left behind");
}

#[test]
fn a_rewritten_pool_belongs_to_its_owner_and_has_as_many_writers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pm");
    let pool = Arc::new(Pool::create(&path, &quick(64 << 20).slots(100)).expect("created"));
    AnyIndex::<u64, u64>::create(&pool, "n", Kind::FpTree).expect("new").close().expect("closed");
    let slots = pool.slots();
    Arc::into_inner(pool).expect("closed").close().expect("closed");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
    let is_root = std::os::unix::fs::chown(&path, Some(12_345), Some(23_456)).is_ok();
    if !is_root {
        eprintln!("only root can give a file to another user: its owner is not tested");
    }
    let before = fs::metadata(&path).expect("a file");
    let report = json(&works("compact", &path, &["--rewrite", "--json"]));
    assert_eq!((&report["replaced"], &report["owner_kept"]), (&true.into(), &true.into()));
    let file = fs::metadata(&path).expect("a file");
    assert_eq!((file.uid(), file.gid(), file.mode()), (before.uid(), before.gid(), before.mode()));
    assert_ne!(file.ino(), before.ino());
    let pool = Pool::open(&path, &quick(0)).expect("a pool");
    assert_eq!((pool.slots(), slots), (100, 100));
}
