//! Starts that are refused: the message says what is wrong, and nothing is left behind.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rstore_server::Settings;

use super::{Server, call, ok};

/// Starts a server that must end by itself; returns what it says. One that serves is ended, and fails the test.
#[track_caller]
fn refused(dir: &Path, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rstore"));
    command.arg("serve").args(more).arg("--dir").arg(dir).env("RUST_LOG", "error");
    if !more.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let mut process =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let mut greeting = String::new();
    BufReader::new(stdout.expect("piped")).read_line(&mut greeting).expect("readable");
    if !greeting.is_empty() {
        process.kill().expect("it can be killed");
    }
    let mut text = String::new();
    stderr.expect("piped").read_to_string(&mut text).expect("text");
    let status = process.wait().expect("it ends");
    assert!(greeting.is_empty() && !status.success(), "{more:?} is served: {greeting}");
    text
}

#[track_caller]
fn refused_without_a_trace(more: &[&str], says: &str) {
    let base = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let dir = base.path().join("new/data");
    let text = refused(&dir, more);
    assert!(text.contains(says), "{more:?}: {text}");
    let left: Vec<_> = std::fs::read_dir(base.path()).expect("it is there").collect();
    assert!(left.is_empty(), "{more:?} left {left:?}");
    // What was wrong has no effect on a better start.
    let server = Server::start(&dir, &["--partitions", "2"]);
    assert_eq!(call(&mut server.client(), "SET a 1"), ok());
}

/// Writes a file of settings, and returns its path.
fn file(dir: &Path, text: &str) -> String {
    let path = dir.join("rstore.toml");
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a path").into()
}

#[test]
fn a_node_of_a_group_without_its_number_is_no_server_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let (peers, founders) = ("peers = '127.0.0.1:2'\n", "founders = '1=127.0.0.1:2/127.0.0.1:1'\n");
    for text in [peers.to_owned(), founders.to_owned(), [peers, founders].concat()] {
        let path = file(dir.path(), &text);
        refused_without_a_trace(&["--config", &path, "--durability", "process"], "--node");
    }
    refused_without_a_trace(&["--peers", "127.0.0.1:2"], "--node");
    refused_without_a_trace(&["--node", "1"], "--peers");
    // What the file has and what the flags say are one node.
    let path = file(dir.path(), "peers = '127.0.0.1:0'\n");
    Server::start(&dir.path().join("data"), &["--config", &path, "--node", "1"]);
}

#[test]
fn certificates_without_a_port_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(dir.path(), "tls-cert = '/none'\ntls-key = '/none'\n");
    refused_without_a_trace(&["--config", &path], "--tls-listen");
    let path = file(dir.path(), "tls-listen = '127.0.0.1:0'\n");
    refused_without_a_trace(&["--config", &path], "--tls-cert");
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    refused_without_a_trace(&["--size", "1"], "--size must be at least 1MiB");
    refused_without_a_trace(&["--size", "512KiB"], "--size must be at least 1MiB");
    refused_without_a_trace(&["--capacity", "1"], "--capacity must be at least 2MiB");
    refused_without_a_trace(&["--capacity", "4MiB", "--partitions", "3"], "for each partition");
    refused_without_a_trace(&["--max-value", "1GiB"], "--max-value must be");
    refused_without_a_trace(&["--max-value", "0"], "--max-value must be");
    refused_without_a_trace(&["--maxclients", "0"], "--maxclients must be");
    refused_without_a_trace(&["--durability", "journal"], "durability journal");
    refused_without_a_trace(&["--durability", "journal", "--partitions", "3"], "journal");
    refused_without_a_trace(&["--durability", "periodic", "--twin", "/none"], "/none");
    let tls = ["--tls-listen", "127.0.0.1:0", "--tls-cert", "/none", "--tls-key", "/none"];
    let says = if cfg!(feature = "tls") { "/none" } else { "without TLS" };
    refused_without_a_trace(&tls, says);
    let path = file(dir.path(), "[[user]]\nname = 'app'\n");
    refused_without_a_trace(&["--config", &path], "a user must have");
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("bound").to_string();
    for port in ["--listen", "--memcached", "--metrics"] {
        refused_without_a_trace(&[port, &taken], &taken);
    }
    refused_without_a_trace(&["--node", "1", "--peers", &taken], &taken);
    // What is wrong with the settings is said first.
    let port = ["--listen", &taken];
    let no_certificate = [&port[..], &["--tls-listen", "127.0.0.1:0"]].concat();
    assert!(refused(&dir.path().join("new"), &no_certificate).contains("--tls-cert"));
    drop(holder);
}

#[test]
fn a_folder_that_is_none_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = file(dir.path(), "");
    let text = refused(Path::new(&path), &[]);
    assert!(text.contains(&path) && text.contains("name a folder"), "{text}");
}

#[test]
fn a_pool_in_use_names_the_process_that_serves_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    let text = refused(dir.path(), &[]);
    let process = format!("process {} (rstore)", server.process.id());
    assert!(text.contains("in use") && text.contains(&process), "{text}");
    // The folder is as it was.
    assert_eq!(call(&mut server.client(), "SET a 1"), ok());
    drop(server);
    Server::start(dir.path(), &[]);
}

#[test]
fn wrong_settings_have_a_status_of_their_own() {
    for words in [&["serve"][..], &["serve", "--dir", "x", "--maxclients", "0"], &["serve", "--no"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_rstore")).args(words).output();
        assert_eq!(output.expect("it runs").status.code(), Some(2), "{words:?}");
    }
}

/// Each setting of the example file is one that the server knows, also if its line is a comment; and what is no
/// comment is complete.
#[test]
fn the_files_of_dist_are_valid() {
    let example = include_str!("../../dist/rstore.toml");
    let dir = tempfile::tempdir().expect("a folder");
    let settings = Settings::read(Path::new(&file(dir.path(), example))).expect("valid");
    assert!(settings.dir.is_some() && settings.node.is_none() && settings.peers.is_none());
    let is_setting = |line: &&str| line.starts_with("[[") || line.contains(" = ");
    let lines = example.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    let all: Vec<&str> = lines.filter(is_setting).collect();
    let all = Settings::read(Path::new(&file(dir.path(), &all.join("\n")))).expect("valid");
    assert!(all.node.is_some() && all.founders.is_some() && all.user.len() == 1);

    // A port or a disk may be missing for longer than five restarts take: systemd must not give up.
    let unit = include_str!("../../dist/rstore.service");
    let (head, service) = unit.split_once("[Service]").expect("a section");
    assert!(head.starts_with("[Unit]") && head.contains("\nStartLimitIntervalSec=0\n"), "{head}");
    assert!(service.contains("\nRestart=always\n"), "{service}");
    assert!(service.contains("\nRestartPreventExitStatus=2\n"), "{service}");
}
