//! Real kills: a child process writes, dies by SIGKILL, and everything acknowledged is there.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn quickstart(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pmindex"))
        .arg("quickstart")
        .arg("--dir")
        .arg(dir)
        .args(arguments)
        .output()
        .expect("it starts")
}

/// Returns `true` if there is a file system in memory with this many free bytes.
fn tmpfs_has(room: u64) -> bool {
    rustix::fs::statvfs("/dev/shm").is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= room)
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A file of a few thousand keys, so that a round is short.
fn few_keys(dir: &Path) -> String {
    let keys: Vec<String> = (0..3000).map(|i| format!("key {}", i * 7919 % 10_007)).collect();
    let path = dir.join("keys.txt");
    std::fs::write(&path, keys.join("\n")).expect("written");
    path.to_str().expect("text").to_owned()
}

#[test]
fn twelve_kills_lose_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = few_keys(dir.path());
    let report = report(&quickstart(
        dir.path(),
        &[
            "--rounds",
            "12",
            "--integers",
            "5000",
            "--keys",
            &keys,
            "--durability",
            "process",
            "--threads",
            "3",
            "--json",
        ],
    ));
    assert_eq!(report["holds"], true);
    let rounds = report["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 12);
    let acknowledged: u64 = rounds.iter().filter_map(|round| round["acknowledged"].as_u64()).sum();
    assert!(acknowledged > 0, "no child ever wrote");
    for round in rounds {
        for bad in ["lost", "ghosts", "wrong"] {
            assert_eq!(round[bad], 0, "{round}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("readable").collect();
    assert_eq!(left.len(), 1, "the pool is removed, the keys stay: {left:?}");
}

#[test]
fn one_kill_in_the_middle_of_writing_is_told_in_a_table() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = few_keys(dir.path());
    let output = quickstart(
        dir.path(),
        &["--integers", "5000", "--keys", &keys, "--durability", "flush", "--keep"],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["3 000 words", "SIGKILL", "every acknowledged write is there", "flush"] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours outside a terminal");
    let pools = std::fs::read_dir(dir.path()).expect("readable").flatten();
    let kept = pools.filter(|entry| entry.path().extension().is_some_and(|e| e == "pm")).count();
    assert_eq!(kept, 1);
}

#[test]
fn a_pool_whose_fences_wait_for_the_disk_is_loaded_without_and_killed_with_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = few_keys(dir.path());
    let report = report(&quickstart(
        dir.path(),
        &["--integers", "2000", "--keys", &keys, "--durability", "msync", "--json"],
    ));
    assert_eq!((&report["holds"], &report["durability"]["mode"]), (&true.into(), &"msync".into()));
    assert_eq!((&report["words"], &report["integers"]), (&3000.into(), &2000.into()));
    let inserts = report["operations"].as_array().expect("operations").iter();
    let inserts = inserts.filter(|row| row["op"] == "insert" && row["ops"].as_u64() > Some(0));
    assert_eq!(inserts.count(), 2, "a slow medium has inserts too: {report}");
}

#[test]
fn a_pool_that_cannot_be_made_is_an_error_with_its_path() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = few_keys(dir.path());
    let missing = dir.path().join("nowhere");
    let output = quickstart(&missing, &["--keys", &keys]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere"));
}

/// A lost write, and the pool in which it can be studied.
#[test]
fn a_pool_with_a_lost_write_is_kept_with_its_journal_and_the_seed() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = few_keys(dir.path());
    let folder = tempfile::tempdir().expect("a folder");
    let options = ["--integers", "2000", "--keys", &keys, "--seed", "77", "--lose"];
    let output = quickstart(folder.path(), &[&options[..], &["--durability", "journal"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{error}");
    assert!(text.contains("FAILED: 1 lost") && text.contains("acknowledged and lost"), "{text}");
    assert!(error.contains("seed: 77") && error.contains("hint: this is a bug"), "{error}");
    let left = std::fs::read_dir(folder.path()).expect("readable").flatten();
    let left: Vec<_> = left.map(|entry| entry.path()).collect();
    assert_eq!(left.len(), 2, "the pool and its journal: {left:?}");
    let pool = left.iter().find(|path| path.extension().is_some_and(|e| e == "pm"));
    let pool = pool.and_then(|path| path.to_str()).expect("it is kept");
    assert!(error.contains(&format!("kept: {pool}")), "{error}");
}

/// Without a folder, a pool lies where it can have the durability that was asked for.
#[test]
fn modes_that_need_a_disk_and_the_mode_that_needs_memory_find_their_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = few_keys(dir.path());
    for durability in ["journal", "periodic:20ms"] {
        if durability.starts_with("periodic") && !tmpfs_has(128 << 20) {
            println!("skipped: {durability}: there is no tmpfs with room");
            continue;
        }
        let output = Command::new(env!("CARGO_BIN_EXE_pmindex"))
            .args(["quickstart", "--integers", "2000", "--keys", &keys, "--json"])
            .args(["--durability", durability])
            .output()
            .expect("it starts");
        let report = report(&output);
        let mode = durability.split(':').next();
        assert_eq!(report["durability"]["mode"].as_str(), mode, "{report}");
        let pool = report["pool"].as_str().expect("a path");
        assert!(!Path::new(pool).exists(), "{pool}");
    }
    let tmpfs = Path::new("/dev/shm");
    if tmpfs.is_dir() {
        let output = quickstart(tmpfs, &["--keys", &keys, "--durability", "journal"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("--dir FOLDER") && error.contains("on a disk"), "{error}");
    }
}
