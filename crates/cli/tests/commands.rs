//! The commands as a person runs them: output, exit codes, errors.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pmindex::{Pool, PoolOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn pmindex<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pmindex")).args(arguments).output().expect("it starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Runs, expects success, returns standard output.
fn works<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = pmindex(arguments);
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// Runs, expects exit code 1, returns standard error.
fn fails<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = pmindex(arguments);
    assert_eq!(output.status.code(), Some(1), "{}\n{}", stdout(&output), stderr(&output));
    stderr(&output)
}

/// Runs, expects the exit code of a wrong command line, returns standard error.
fn wrong_line<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = pmindex(arguments);
    assert_eq!(output.status.code(), Some(2), "{}\n{}", stdout(&output), stderr(&output));
    stderr(&output)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A command line on a pool.
fn line<'a>(command: &'a str, pool: &'a Path, rest: &'a [&'a str]) -> Vec<&'a OsStr> {
    let mut line = vec![OsStr::new(command), pool.as_os_str()];
    line.extend(rest.iter().map(OsStr::new));
    line
}

#[test]
fn records_come_back_from_another_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("fruit.pm");
    let put = |key, value| works(line("put", &pool, &[key, value, "--durability", "process"]));
    assert_eq!(put("pear", "green"), "added pear\n");
    assert_eq!(put("apple", "red"), "added apple\n");
    assert_eq!(put("apple", "yellow"), "replaced apple\n");
    assert_eq!(put("fig", "blue"), "added fig\n");

    assert_eq!(works(line("get", &pool, &["apple"])), "yellow\n");
    assert_eq!(works(line("scan", &pool, &[])), "apple\tyellow\nfig\tblue\npear\tgreen\n");
    let part = works(line("scan", &pool, &["--from", "b", "--to", "pear"]));
    assert_eq!(part, "fig\tblue\n");
    let last = works(line("scan", &pool, &["--reverse", "--limit", "1", "--json"]));
    assert_eq!(json(&last), json(r#"{ "key": "pear", "value": "green" }"#));

    let del = |key| pmindex(line("del", &pool, &[key, "--durability", "process"]));
    assert_eq!(stdout(&del("fig")), "removed fig\n");
    assert_eq!(del("fig").status.code(), Some(1));
    assert!(fails(line("get", &pool, &["fig"])).contains("no key \"fig\""));

    // Several at once: those that exist are removed, those that are missing are named.
    let keys = ["apple", "fig", "pear", "plum", "--durability", "process"];
    let several = pmindex(line("del", &pool, &keys));
    assert_eq!(stdout(&several), "removed apple\nremoved pear\n");
    let error = String::from_utf8_lossy(&several.stderr).into_owned();
    assert!(error.contains("no key \"fig\", \"plum\""), "{error}");
    assert_eq!(several.status.code(), Some(1));
    assert_eq!(works(line("scan", &pool, &[])), "");
}

/// A twin is a second file that has to be named each time: a name that is made up may be that of another pool's twin.
#[test]
fn no_command_finds_a_twin_for_a_pool_that_the_user_names() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = format!("twinless-{}.pm", std::process::id());
    let pool = dir.path().join(&name);
    let periodic = ["--durability", "periodic:20ms"];
    let refused = || {
        for (command, rest) in [
            ("put", &["k", "v"][..]),
            ("del", &["k"]),
            ("compact", &[]),
            ("compact", &["--rewrite"]),
        ] {
            let error = wrong_line(line(command, &pool, &[rest, &periodic].concat()));
            assert!(error.contains("periodic") && error.contains("twin"), "{command}: {error}");
        }
    };
    refused();
    assert!(!pool.exists(), "nothing is created");
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    refused();

    // What another pool of this name may have there.
    let other = Path::new("/var/tmp").join(format!("{name}.twin"));
    std::fs::write(&other, "of another pool").expect("written");
    let info = json(&works(line("info", &pool, &["--json"])));
    let rewritten = pmindex(line("compact", &pool, &["--rewrite"]));
    let kept = std::fs::read(&other).expect("there");
    std::fs::remove_file(&other).expect("removed");
    assert_eq!((&info["beside"], &kept[..]), (&json("[]"), &b"of another pool"[..]));
    assert!(rewritten.status.success(), "{}", stderr(&rewritten));
    // What lies beside it is its own.
    let beside = dir.path().join(format!("{name}.twin"));
    std::fs::write(&beside, "").expect("written");
    assert!(works(line("info", &pool, &[])).contains("mode periodic"));
    assert!(fails(line("compact", &pool, &["--rewrite"])).contains("a twin"));
}

#[test]
fn info_and_check_say_what_is_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("a.pm");
    works(line("put", &pool, &["k", "v", "--durability", "process", "--json"]));
    let info = json(&works(line("info", &pool, &["--json"])));
    assert_eq!(info["clean"], true);
    let (used, all) = (info["used_bytes"].as_u64(), info["bytes"].as_u64());
    assert!(used.zip(all).is_some_and(|(used, all)| used < all / 2), "{used:?} of {all:?}");
    assert!(all.is_some_and(|all| all < 5 << 20), "one record takes {all:?} bytes");
    assert_eq!(info["indexes"][0]["name"], "main");
    assert_eq!(info["indexes"][0]["type"], "fptree");
    assert_eq!(info["indexes"][0]["keys"], "bytes");
    assert_eq!(info["indexes"][0]["records"], 1);
    let text = works(line("info", &pool, &[]));
    assert!(text.contains("main"), "{text}");
    assert!(text.contains("kill -9 or crash of the process         survives"), "{text}");
    assert!(text.contains("crash of the operating system, power    "), "{text}");
    // What the pool's writer asked for is not known.
    assert!(text.contains("This file system gives, to a program with default options:"), "{text}");
    assert!(text.contains("may have chosen another mode"), "{text}");
    assert!(!text.contains("in mode journal") && info["beside"] == json("[]"), "{text}");
    let journal = dir.path().join("a.pm.journal");
    std::fs::write(&journal, "").expect("written");
    let text = works(line("info", &pool, &[]));
    assert!(text.contains("a.pm.journal is there") && text.contains("mode journal"), "{text}");
    std::fs::remove_file(journal).expect("removed");
    assert_eq!(info["durability"]["survives_process_crash"], true);
    assert!(info["durability"]["survives_power_failure"].is_boolean());
    let buffered = ["k", "v", "--index", "b", "--type", "sptree-buffered"];
    works(line("put", &pool, &[&buffered[..], &["--durability", "process"]].concat()));
    let info = json(&works(line("info", &pool, &["--json"])));
    assert_eq!(info["indexes"][1]["type"], "sptree-buffered");
    works(line("del", &pool, &["k", "--index", "b", "--durability", "process"]));

    let check = json(&works(line("check", &pool, &["--json"])));
    assert_eq!(check["whole"], true);
    assert_eq!(check["indexes"][0]["records"], 1);
    assert!(works(line("check", &pool, &[])).contains("main: whole, 1 record\n"));
}

#[test]
fn errors_say_what_to_do_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let missing = dir.path().join("missing.pm");
    let error = fails(line("get", &missing, &["k"]));
    assert!(error.contains("no such file") && error.contains("hint: "), "{error}");

    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "these are notes, not a pool\n".repeat(1000)).expect("written");
    assert!(fails(line("info", &text, &[])).contains("not a pmindex pool"));
    assert!(fails(line("put", &text, &["k", "v"])).contains("not a pmindex pool"));
    assert!(std::fs::read_to_string(&text).is_ok_and(|t| t.starts_with("these are notes")));

    let pool = dir.path().join("a.pm");
    for index in ["one", "two"] {
        works(line("put", &pool, &["k", "v", "--index", index, "--durability", "process"]));
    }
    let error = fails(line("get", &pool, &["k"]));
    assert!(error.contains("--index: one, two"), "{error}");
    assert!(fails(line("get", &pool, &["k", "--index", "three"])).contains("one, two"));
    assert_eq!(works(line("get", &pool, &["k", "--index", "two"])), "v\n");

    let error = wrong_line(["bench", "--index", "dbtree"]);
    assert!(error.contains("dbtree") && error.contains("btreemap"), "{error}");
    assert!(fails(["quickstart", "--dir", "no/such/folder"]).contains("not a folder"));
}

#[test]
fn a_damaged_pool_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("a.pm");
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    let whole = std::fs::read(&pool).expect("readable");
    let cut = dir.path().join("cut.pm");
    for len in [0, 1, 4095, 4096, 8192, 12_288, whole.len() / 2] {
        std::fs::write(&cut, &whole[..len]).expect("written");
        let error = fails(line("check", &cut, &[]));
        assert!(error.starts_with("error: "), "{len}: {error}");
    }
}

/// A file without a superblock may be a pool that can be restored.
#[test]
fn only_an_empty_file_may_be_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, empty) = (dir.path().join("a.pm"), dir.path().join("empty.pm"));
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    let mut image = std::fs::read(&pool).expect("readable");
    image[..8192].fill(0);
    std::fs::write(&pool, &image).expect("written");
    std::fs::write(&empty, "").expect("written");
    for command in [&["check"][..], &["dump"], &["info"], &["get", "k"]] {
        let error = fails(line(command[0], &pool, &command[1..]));
        assert!(error.contains("restore a backup") && error.contains("keep the file"), "{error}");
        assert!(!error.contains("remove") && !error.contains("pmindex put"), "{error}");
        let error = fails(line(command[0], &empty, &command[1..]));
        assert!(error.contains("the file is empty: remove it"), "{error}");
    }
}

#[test]
fn files_that_are_in_the_way_or_have_no_folder_are_explained() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, dump) = (dir.path().join("a.pm"), dir.path().join("a.jsonl"));
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    works(line("dump", &pool, &["--output", dump.to_str().expect("text")]));
    let missing = dir.path().join("none");
    let target = missing.join("b.pm");
    let target = target.to_str().expect("text");
    for rest in
        [&["backup", target][..], &["check", "--repair", target], &["dump", "--output", target]]
    {
        let error = fails(line(rest[0], &pool, &rest[1..]));
        assert!(error.contains(&format!("mkdir -p {}", missing.display())), "{rest:?}: {error}");
        assert!(!error.contains(".partial"), "{rest:?}: {error}");
    }
    assert!(!fails(line("restore", &dump, &[target])).contains(".partial"));

    std::fs::write(dir.path().join("c.pm.partial"), "").expect("written");
    let error = fails(line("restore", &dump, &[dir.path().join("c.pm").to_str().expect("text")]));
    assert!(error.contains("c.pm.partial") && error.contains("was interrupted"), "{error}");
    assert!(!error.contains("open it"), "{error}");

    let folder = dir.path().to_str().expect("text");
    for rest in [
        &["backup", folder][..],
        &["backup", folder, "--replace"],
        &["dump", "--output", folder],
        &["dump", "--replace", "--output", folder],
        &["check", "--repair", folder],
    ] {
        let error = fails(line(rest[0], &pool, &rest[1..]));
        assert!(error.contains("is a folder") && !error.contains("--replace"), "{error}");
        assert!(!error.contains("remove"), "{rest:?}: {error}");
    }
    let error = fails(line("restore", &dump, &[folder]));
    assert!(error.contains("is a folder") && !error.contains("remove"), "{error}");
}

#[test]
fn a_backup_is_a_verified_pool() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, copy) = (dir.path().join("a.pm"), dir.path().join("copy.pm"));
    for (key, index) in [("k", "one"), ("l", "two"), ("m", "two")] {
        works(line("put", &pool, &[key, "v", "--index", index, "--durability", "process"]));
    }
    let file = copy.to_str().expect("text");
    let text = works(line("backup", &pool, &[file]));
    assert!(text.ends_with(": 2 indexes, 3 records\n"), "{text}");
    works(line("put", &pool, &["n", "v", "--index", "two", "--durability", "process"]));
    assert_eq!(works(line("scan", &copy, &["--index", "two"])), "l\tv\nm\tv\n");

    let error = fails(line("backup", &pool, &[file]));
    assert!(error.contains("already exists") && error.contains("--replace"), "{error}");
    let report = json(&works(line("backup", &pool, &[file, "--replace", "--json"])));
    assert_eq!(report["records"], 4);
    let itself = fails(line("backup", &pool, &[pool.to_str().expect("text"), "--replace"]));
    assert!(itself.contains("the pool itself"), "{itself}");
    let nowhere = fails(line("backup", &pool, &["no/such/folder/copy.pm"]));
    assert!(nowhere.contains("no/such/folder"), "{nowhere}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 2, "nothing is left over");
}

#[test]
fn a_killed_backup_leaves_the_old_one_or_the_new_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, copy) = (dir.path().join("a.pm"), dir.path().join("copy.pm"));
    let put = |value: &str| works(line("put", &pool, &["k", value, "--durability", "process"]));
    let file = copy.to_str().expect("text").to_owned();
    put("0");
    works(line("backup", &pool, &[&file]));
    let mut last = 0;
    for round in 1..=12 {
        put(&round.to_string());
        let mut child = Command::new(env!("CARGO_BIN_EXE_pmindex"))
            .args(line("backup", &pool, &[&file, "--replace"]))
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(std::time::Duration::from_millis(round * 4));
        let _ = child.kill(); // it may have ended
        child.wait().expect("it ends");
        let found: u64 = works(line("get", &copy, &["k"])).trim().parse().expect("a number");
        assert!(found == last || found == round, "round {round}: {found}, {last} was there");
        works(line("check", &copy, &[]));
        last = found;
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = works(["completions", shell]);
        assert!(script.contains("quickstart") && script.contains("backup"), "{shell}");
    }
    assert_eq!(pmindex(["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn a_missing_folder_is_told_with_what_makes_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (folder, pool) = (dir.path().join("a/b"), dir.path().join("a/b/c.pm"));
    let error = fails(line("put", &pool, &["k", "v"]));
    assert!(error.contains(&format!("mkdir -p {}", folder.display())), "{error}");
    assert!(!error.contains("pmindex put"), "that is what was tried: {error}");
    std::fs::create_dir_all(&folder).expect("made");
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
}

#[test]
fn keys_and_values_may_begin_with_a_dash() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("a.pm");
    works(line("put", &pool, &["-1", "b", "--durability", "process"]));
    works(line("put", &pool, &["k", "-2.5", "--durability", "process"]));
    works(line("put", &pool, &["--durability", "process", "--", "-b", "--json"]));
    assert_eq!(works(line("get", &pool, &["-1"])), "b\n");
    assert_eq!(works(line("scan", &pool, &["--from", "-2"])), "-b\t--json\nk\t-2.5\n");
    let refused = pmindex(line("get", &pool, &["-b"]));
    assert!(stderr(&refused).contains("'-- -b'"), "{}", stderr(&refused));
    works(line("del", &pool, &["-1", "--durability", "process"]));
}

/// A path need not be UTF-8: in JSON it is like a key that is not.
#[test]
fn json_has_paths_that_are_no_text() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join(OsStr::from_bytes(b"a folder\xff"));
    std::fs::create_dir(&folder).expect("made");
    let at = |name: &[u8]| folder.join(OsStr::from_bytes(name));
    let (pool, copy, saved) = (at(b"a.pm"), at(b"copy.pm"), at(b"saved.pm"));
    let (dump, restored) = (at(b"a.jsonl"), at(b"restored.pm"));
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    works([OsStr::new("dump"), pool.as_os_str(), OsStr::new("-o"), dump.as_os_str()]);
    std::fs::write(at(b"a.pm.twin"), "").expect("written");
    let hex = |path: &Path| {
        let bytes = path.as_os_str().as_bytes().iter();
        let digits: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
        serde_json::json!({ "hex": digits.concat() })
    };
    let run = |command: &str, rest: &[&OsStr]| {
        let first = [OsStr::new(command), OsStr::new("--json")];
        json(&works(first.into_iter().chain(rest.iter().copied())))
    };
    let [repair, rewrite] = ["--repair", "--rewrite"].map(OsStr::new);
    let of = [pool.as_os_str()];
    let info = run("info", &of);
    assert_eq!((&info["pool"], &info["beside"][0]), (&hex(&pool), &hex(&at(b"a.pm.twin"))));
    std::fs::remove_file(at(b"a.pm.twin")).expect("there");
    for said in [run("check", &of), run("compact", &of), run("compact", &[of[0], rewrite])] {
        assert_eq!(said["pool"], hex(&pool));
    }
    let said = run("check", &[of[0], repair, saved.as_os_str()]);
    assert_eq!((&said["pool"], &said["repaired"]), (&hex(&pool), &hex(&saved)));
    let said = run("backup", &[of[0], copy.as_os_str()]);
    assert_eq!((&said["pool"], &said["file"]), (&hex(&pool), &hex(&copy)));
    let said = run("restore", &[dump.as_os_str(), restored.as_os_str()]);
    assert_eq!(said["pool"], hex(&restored));
    let _writer = Pool::open(&pool, &PoolOptions::new()).expect("a pool");
    let said = run("info", &of);
    assert_eq!((&said["pool"], &said["in_use"]), (&hex(&pool), &Value::Bool(true)));
}

/// A name may have any characters: none of them must act on the terminal, or look like a line of its own.
#[test]
fn names_of_indexes_do_nothing_to_the_terminal() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, saved) = (dir.path().join("a.pm"), dir.path().join("saved.pm"));
    let name = "red\u{1b}[31m\nmain: whole";
    for name in [name, "pe\u{e4}r"] {
        works(line("put", &pool, &["k", "v", "--index", name, "--durability", "process"]));
    }
    let saved = saved.to_str().expect("text");
    for rest in [&["info"][..], &["check"], &["check", "--repair", saved], &["scan"], &["get", "k"]]
    {
        let output = pmindex(line(rest[0], &pool, &rest[1..]));
        let said = stdout(&output) + &stderr(&output);
        assert!(said.contains("red\\x1b[31m\\x0amain: whole"), "{rest:?}: {said}");
        assert!(said.contains("pe\u{e4}r") && !said.contains('\u{1b}'), "{rest:?}: {said}");
    }
    let _writer = Pool::open(&pool, &PoolOptions::new()).expect("a pool");
    let said = works(line("info", &pool, &[]));
    assert!(said.contains("red\\x1b[31m\\x0amain") && !said.contains('\u{1b}'), "{said}");
    let info = json(&works(line("info", &pool, &["--json"])));
    assert_eq!(info["indexes"][0]["name"], name);
}

/// Standard output is not what a removal is about.
#[test]
fn keys_are_removed_wherever_the_output_goes() {
    for form in [&[][..], &["--json"]] {
        let dir = tempfile::tempdir().expect("a folder");
        let pool = dir.path().join("a.pm");
        for key in ["a", "b", "c"] {
            works(line("put", &pool, &[key, "v", "--durability", "process"]));
        }
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let rest = [&["a", "b", "c", "--durability", "process"], form].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmindex"));
        let output = command.args(line("del", &pool, &rest)).stdout(full).output();
        let output = output.expect("it starts");
        assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(works(line("scan", &pool, &[])), "");
    }
}

#[test]
fn check_tells_of_a_lost_copy_of_the_superblock() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("a.pm");
    let put = || works(line("put", &pool, &["k", "v", "--durability", "process"]));
    for copy in [0, 4096] {
        put();
        let check = || json(&works(line("check", &pool, &["--json"])));
        assert_eq!(check()["superblock_damaged"], false);
        let mut bytes = std::fs::read(&pool).expect("readable");
        bytes[copy + 40] ^= 1;
        std::fs::write(&pool, bytes).expect("written");
        assert_eq!(
            (&check()["superblock_damaged"], &check()["whole"]),
            (&true.into(), &true.into())
        );
        let text = works(line("check", &pool, &[]));
        assert!(text.contains("one of its two copies is damaged"), "{text}");
        assert!(works(line("info", &pool, &[])).contains("two copies"), "info says it too");
    }
    put();
    assert!(!works(line("check", &pool, &[])).contains("damaged"), "mended");
}

/// Starts a command; its standard error is a pipe.
fn start(arguments: &[&OsStr]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmindex"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// Waits until something is true.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: Signal) {
    let process = Pid::from_raw(child.id().cast_signed()).expect("a number");
    kill_process(process, signal).expect("it lives");
}

/// The files of a folder with this ending.
fn files(dir: &Path, ending: &str) -> usize {
    let entries = std::fs::read_dir(dir).expect("readable").flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|e| e == ending)).count()
}

#[test]
fn what_is_interrupted_removes_its_pools_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys = dir.path().join("keys.txt");
    let words: Vec<String> = (0..3000).map(|i| format!("key {i}")).collect();
    std::fs::write(&keys, words.join("\n")).expect("written");
    let keys = keys.to_str().expect("text");
    let quick = ["--rounds", "100000", "--integers", "5000", "--keys", keys];
    for (command, options, kept) in [
        ("quickstart", &quick[..], false),
        ("quickstart", &[&quick[..], &["--keep"]].concat(), true),
        (
            "bench",
            &["--index", "fptree,btreemap", "--seconds", "80000", "--records", "1000"],
            false,
        ),
        ("torture", &["--index", "fptree,hart", "--kills", "1000000"], false),
    ] {
        let mut arguments = vec![OsStr::new(command), OsStr::new("--dir"), dir.path().as_os_str()];
        arguments.extend(["--durability", "process"].map(OsStr::new));
        arguments.extend(options.iter().map(OsStr::new));
        let child = start(&arguments);
        wait_until("a pool", || files(dir.path(), "pm") > 0);
        signal(&child, Signal::TERM);
        let output = child.wait_with_output().expect("it ends");
        let said = stderr(&output);
        assert_eq!(output.status.signal(), Some(15), "{command}: {said}");
        assert!(said.contains("interrupted"), "{command}: {said}");
        assert!(said.contains(if kept { "kept " } else { "removed " }), "{command}: {said}");
        let left = files(dir.path(), "pm");
        assert_eq!(left, usize::from(kept), "{command}: {said}");
        for entry in std::fs::read_dir(dir.path()).expect("readable").flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "pm") {
                std::fs::remove_file(entry.path()).expect("removed");
            }
        }
    }
}

/// Starts a process that writes to a new pool until its standard input ends.
fn live_writer(pool: &Path, keys: &Path, durability: &str) -> Child {
    let lines: Vec<String> = (0..2000).map(|i| format!("key {i}")).collect();
    std::fs::write(keys, lines.join("\n")).expect("written");
    let mut arguments =
        line("trial-writer", pool, &["--threads", "2", "--script", "7", "--create"]);
    arguments.extend(["fptree", "--durability", durability, "--integers", "2000"].map(OsStr::new));
    let acks = keys.with_extension("acks");
    arguments.extend([
        OsStr::new("--keys"),
        keys.as_os_str(),
        OsStr::new("--acks"),
        acks.as_os_str(),
    ]);
    let child = start(&arguments);
    wait_until("the pool", || pool.exists());
    let indexes = || pmindex(line("info", pool, &["--json"]));
    wait_until("its indexes", || {
        let info = indexes();
        info.status.success()
            && json(&stdout(&info))["indexes"].as_array().is_some_and(|i| i.len() == 2)
    });
    child
}

#[test]
fn a_pool_that_is_written_to_can_be_looked_at_and_copied() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, copy) = (dir.path().join("live.pm"), dir.path().join("copy.pm"));
    let mut writer = live_writer(&pool, &dir.path().join("keys.txt"), "process");

    let info = json(&works(line("info", &pool, &["--json"])));
    assert_eq!((&info["in_use"], &info["generation"]), (&true.into(), &1.into()));
    assert_eq!(info["indexes"][0]["name"], "words");
    assert_eq!(info["writer"]["process"].as_u64(), Some(u64::from(writer.id())), "{info}");
    let text = works(line("info", &pool, &[]));
    assert!(text.contains("writes to it") && text.contains("survives"), "{text}");
    assert!(!text.contains("closed cleanly"), "{text}");

    for command in ["get", "put"] {
        let more: &[&str] = if command == "get" { &["k"] } else { &["k", "v"] };
        let error = fails(line(command, &pool, more));
        assert!(error.contains("in use") && error.contains("backup --pause"), "{error}");
        assert!(error.contains(&format!("process {}", writer.id())), "{error}");
    }
    let file = copy.to_str().expect("text");
    assert!(fails(line("backup", &pool, &[file])).contains("--pause"));
    assert!(!copy.exists());
    for round in 0..5 {
        let report = works(line("backup", &pool, &[file, "--pause", "--json", "--replace"]));
        let report = json(&report);
        assert_eq!((&report["indexes"], &report["damaged"]), (&2.into(), &0.into()), "{round}");
        assert!(report["pause_ms"].as_f64().is_some_and(|pause| pause > 0.0), "{report}");
        let whole = json(&works(line("check", &copy, &["--json"])));
        assert_eq!(whole["whole"], true);
    }
    assert!(fails(line("backup", &pool, &[file, "--pause"])).contains("already exists"));
    let itself = pool.to_str().expect("text");
    assert!(
        fails(line("backup", &pool, &[itself, "--pause", "--replace"])).contains("the pool itself")
    );
    assert_eq!(files(dir.path(), "partial"), 0);

    // It goes on, and ends as if nothing had been.
    drop(writer.stdin.take());
    assert!(writer.wait().expect("it ends").success());
    works(line("check", &pool, &[]));
}

/// What a backup writes on the way is a file without a name: no other file is in its way, and it is in the way of none.
#[test]
fn a_backup_leaves_every_other_file_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    // As named as if it were half a copy.
    let (pool, copy) = (dir.path().join("copy.pm.partial"), dir.path().join("copy.pm"));
    let mut writer = live_writer(&pool, &dir.path().join("keys.txt"), "process");
    let file = copy.to_str().expect("text");
    works(line("backup", &pool, &[file, "--pause"]));
    assert_eq!(json(&works(line("check", &copy, &["--json"])))["whole"], true);
    drop(writer.stdin.take());
    let output = writer.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&works(line("check", &pool, &["--json"])))["whole"], true);

    // Another process is restoring to the name.
    let (other, theirs) = (dir.path().join("other.pm"), dir.path().join("other.pm.partial"));
    std::fs::write(&theirs, "half a pool").expect("written");
    works(line("backup", &pool, &[other.to_str().expect("text")]));
    let live = dir.path().join("live.pm");
    let mut writer = live_writer(&live, &dir.path().join("words.txt"), "process");
    works(line("backup", &live, &[other.to_str().expect("text"), "--pause", "--replace"]));
    drop(writer.stdin.take());
    assert!(writer.wait().expect("it ends").success());
    assert!(std::fs::read(&theirs).is_ok_and(|there| there == b"half a pool"));
}

/// Ctrl-C removes nothing of another process.
#[test]
fn an_interrupted_backup_removes_no_file_of_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("a.pm");
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    let (copy, theirs) = (dir.path().join("copy.pm"), dir.path().join("copy.pm.partial"));
    for round in 0..20 {
        std::fs::write(&theirs, "half a pool").expect("written");
        let file = copy.to_str().expect("text");
        let mut child = start(&line("backup", &pool, &[file, "--replace"]));
        std::thread::sleep(Duration::from_millis(round));
        if child.try_wait().expect("a child").is_none() {
            signal(&child, Signal::TERM);
        }
        child.wait().expect("it ends");
        assert!(theirs.exists(), "round {round}");
    }
}

/// A pool that is being filled leaves nothing if it is interrupted at any moment, and takes nothing with it that it did
/// not create.
#[test]
fn an_interrupted_command_removes_the_pool_that_it_fills_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let (pool, dump, new) = (at("a.pm"), at("a.jsonl"), format!("new-{}.pm", std::process::id()));
    works(line("put", &pool, &["k", "v", "--durability", "process"]));
    works(line("dump", &pool, &["-o", dump.to_str().expect("text")]));
    let target = at(&new);
    let partial = at(&format!("{new}.partial"));
    // What others may have under such names.
    let journal = at(&format!("{new}.partial.journal"));
    let twin = Path::new("/var/tmp").join(format!("{new}.partial.twin"));
    let theirs = [journal.as_path(), twin.as_path()];
    for file in theirs {
        std::fs::write(file, "of others").expect("written");
    }
    let restore = [OsStr::new("restore"), OsStr::new("-"), target.as_os_str()];
    let mut found = Vec::new();
    for round in 0..=40 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmindex"));
        command.args(restore).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        // The input does not end: the first round waits for that.
        let input = child.stdin.take();
        wait_until("a partial pool", || partial.exists());
        std::thread::sleep(Duration::from_micros(if round == 0 { 500_000 } else { round * 250 }));
        signal(&child, Signal::TERM);
        let output = child.wait_with_output().expect("it ends");
        drop(input);
        assert_eq!(output.status.signal(), Some(15), "round {round}: {}", stderr(&output));
        if partial.exists() {
            found.push(format!("round {round}: the partial pool"));
            std::fs::remove_file(&partial).expect("removed");
        }
        for file in theirs.iter().filter(|file| !file.exists()) {
            found.push(format!("round {round}: no {}", file.display()));
            std::fs::write(file, "of others").expect("written");
        }
    }
    std::fs::remove_file(&twin).expect("removed");
    assert_eq!(found, Vec::<String>::new());
}

/// An index with pages in a file beside the pool, which a copy of the pool alone would lack.
#[test]
fn a_backup_of_a_pool_in_use_refuses_files_beside_it() {
    use pmindex::core::{Medium, PmU64};
    let dir = tempfile::tempdir().expect("a folder");
    let (path, copy) = (dir.path().join("a.pm"), dir.path().join("copy.pm"));
    let pool = Pool::create(&path, &PoolOptions::new().size(1 << 20)).expect("a pool");
    let root = |word: &PmU64| {
        pool.pm().store(word, 1);
        pool.pm().flush(word)
    };
    let open = pool.create_index::<PmU64>("pages", *b"paged\0\0\0", 1, root).expect("room");
    drop(open);
    for round in 0..2 {
        let error = fails(line("backup", &path, &[copy.to_str().expect("text"), "--pause"]));
        assert!(error.contains("\"pages\" has a file of its own"), "{round}: {error}");
        assert!(!copy.exists(), "{round}");
    }
    pool.close().expect("closed");
    let error = fails(line("backup", &path, &[copy.to_str().expect("text"), "--pause"]));
    assert!(error.contains("\"pages\" has a file of its own"), "{error}");
}

#[test]
fn a_copy_of_a_pool_in_use_needs_no_journal() {
    let dir = tempfile::tempdir().expect("a folder");
    if rustix::fs::statfs(dir.path()).is_ok_and(|stat| stat.f_type == 0x0102_1994) {
        eprintln!("skipped: temporary files are in memory, where no pool has a journal");
        return;
    }
    let (pool, copy) = (dir.path().join("live.pm"), dir.path().join("copy.pm"));
    let mut writer = live_writer(&pool, &dir.path().join("keys.txt"), "journal");
    works(line("backup", &pool, &[copy.to_str().expect("text"), "--pause"]));
    let whole = json(&works(line("check", &copy, &["--json"])));
    assert_eq!(whole["whole"], true);
    drop(writer.stdin.take());
    assert!(writer.wait().expect("it ends").success());
}

#[test]
fn a_process_goes_on_when_the_backup_that_stopped_it_is_gone() {
    let mut stopped = Command::new("sleep").arg("100").spawn().expect("it starts");
    let state = |child: &Child| {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    signal(&stopped, Signal::STOP);
    wait_until("the stop", || state(&stopped) == Some('T'));
    let number = stopped.id().to_string();
    let mut continuer = start(&["continue-later", &number].map(OsStr::new));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(state(&stopped), Some('T'), "not before the backup has ended");
    drop(continuer.stdin.take());
    assert!(continuer.wait().expect("it ends").success());
    wait_until("the continuation", || state(&stopped) != Some('T'));
    stopped.kill().and_then(|()| stopped.wait()).expect("it ends");
}
