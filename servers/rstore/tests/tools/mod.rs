//! The tools that try a server: they leave nothing behind, and touch no data of others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Server, call, ok};

fn rstore(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rstore")).args(words).output().expect("it runs")
}

/// Returns the files below a folder, with their bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            all.insert(path.clone(), Vec::new());
            all.extend(files(&path));
        } else {
            all.insert(path.clone(), std::fs::read(&path).expect("readable"));
        }
    }
    all
}

#[test]
fn trial_and_comparison_leave_a_folder_of_data_as_it_was() {
    let base = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let data = base.path().join("data");
    let mut server = Server::start(&data, &["--size", "2MiB"]);
    assert_eq!(call(&mut server.client(), "SET user:1 Ada"), ok());
    server.kill();
    let before = files(base.path());
    let (data, fresh) = (data.to_str().expect("a path"), base.path().join("a/new/folder"));
    let fresh = fresh.to_str().expect("a path");
    for command in ["trial", "compare"] {
        for dir in [data, fresh] {
            let output = rstore(&[command, dir, "--records", "500", "--durability", "process"]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command} {dir}: {text}");
            let after = files(base.path());
            assert!(after == before, "{command} {dir} left {:?}", after.keys());
        }
    }
}

#[test]
fn a_trial_with_twins_leaves_other_twins_as_they_were() {
    let base = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let disk = tempfile::tempdir().expect("a folder");
    let twins = disk.path().join("twins");
    std::fs::create_dir(&twins).expect("created");
    std::fs::write(twins.join("partition-0000.twin"), "of another server").expect("written");
    let before = files(&twins);
    let (dir, twins) = (base.path().join("new"), twins.to_str().expect("a path"));
    let dir = dir.to_str().expect("a path");
    let output =
        rstore(&["trial", dir, "--records", "500", "--durability", "periodic", "--twin", twins]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(files(Path::new(twins)) == before);
    assert!(files(base.path()).is_empty());
}

#[test]
fn a_load_names_the_server_that_it_does_not_reach() {
    // No process listens at port 0.
    let address = "127.0.0.1:0";
    let output = rstore(&["load", "--connect", address]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(address), "{text}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn no_connections_and_no_requests_are_refused() {
    for words in [
        &["load", "--connections", "0"][..],
        &["load", "--pipeline", "0"],
        &["trial", "/none/x", "--connections", "0"],
        &["compare", "/none/x", "--connections", "0"],
    ] {
        let output = rstore(words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(words[words.len() - 2]), "{text}");
    }
}
