//! Torture: a few kills, and every fault.
#![forbid(unsafe_code)]

use std::process::Command;

use serde_json::Value;

#[test]
fn a_few_kills_and_every_fault_lose_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_pmindex"))
        .args(["torture", "--kills", "6", "--durability", "process", "--json", "--dir"])
        .arg(dir.path())
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let indexes = report["indexes"].as_array().expect("indexes");
    assert!(!indexes.is_empty());
    for index in indexes {
        assert_eq!((&index["holds"], &index["kills"]), (&true.into(), &6.into()), "{index}");
        assert!(index["verified"].as_u64().is_some_and(|records| records > 0), "{index}");
        let faults = index["faults"].as_array().expect("faults");
        assert_eq!(faults.len(), 6);
        for fault in faults {
            // A small disk of its own needs root.
            let needs_root = fault["fault"] == "disk full" || fault["fault"] == "read-only disk";
            let skipped = needs_root && fault["verdict"] == "skipped";
            assert!(skipped || fault["verdict"] == "holds", "{fault}");
        }
    }
    let bank = &report["store"];
    assert_eq!((&bank["holds"], &bank["kills"]), (&true.into(), &6.into()), "{bank}");
    assert!(bank["acknowledged"].as_u64().is_some_and(|transfers| transfers > 0), "{bank}");
    let left = std::fs::read_dir(dir.path()).expect("readable").count();
    assert_eq!(left, 0, "every pool is removed");
}

/// In too short a time nothing is shown, and nothing lost.
#[test]
fn no_kill_is_no_loss() {
    let dir = tempfile::tempdir().expect("a folder");
    for index in ["fptree", "store"] {
        let output = Command::new(env!("CARGO_BIN_EXE_pmindex"))
            .args(["torture", "--index", index, "--seconds", "0", "--durability", "process"])
            .arg("--dir")
            .arg(dir.path())
            .output()
            .expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{index}: {error}");
        assert!(error.contains("no process was killed"), "{index}: {error}");
        assert!(!error.contains("lost") && !error.contains("bug"), "{index}: {error}");
    }
}

/// What was wrong can be studied, and nothing else is left over.
#[test]
fn a_pool_with_a_lost_write_is_kept() {
    for index in ["fptree", "store"] {
        let dir = tempfile::tempdir().expect("a folder");
        let output = Command::new(env!("CARGO_BIN_EXE_pmindex"))
            .args(["torture", "--index", index, "--kills", "5", "--durability", "process"])
            .args(["--seed", "77", "--lose", "--json", "--dir"])
            .arg(dir.path())
            .output()
            .expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{index}: {error}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = if index == "store" { &report["store"] } else { &report["indexes"][0] };
        assert_eq!((&of["holds"], &report["seed"]), (&false.into(), &77.into()), "{report}");
        let kept = of["kept"].as_str().expect("a path");
        assert!(error.contains(&format!("kept: {kept}")) && error.contains("seed: 77"), "{error}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("readable").flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].path().to_str(), Some(kept));
    }
}

/// A pool with a twin is on tmpfs, where the command puts it.
#[test]
fn a_pool_with_a_twin_is_killed_too() {
    let tmpfs = rustix::fs::statvfs("/dev/shm");
    if !tmpfs.is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= 128 << 20) {
        println!("skipped: there is no tmpfs with room");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_pmindex"))
        .args(["torture", "--index", "fptree,store", "--kills", "3", "--json"])
        .args(["--durability", "periodic:20ms"])
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["indexes"][0]["kills"], &report["store"]["kills"]), (&3.into(), &3.into()));
}
