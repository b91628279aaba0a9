//! `dump`, `restore` and `check --repair` as a person runs them.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

// What the program has compiled of the indexes, these tests share.
use pmindex_cli as _;

use pmindex::{AnyIndex, Index, Key, Kind, Pool, PoolOptions, Value as Stored};
use pmindex_cceh::Cceh;
use serde_json::Value;

fn pmindex<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pmindex")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Runs, expects success, returns standard output.
fn works<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = pmindex(arguments);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs, expects exit code 1, returns standard error.
fn fails<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let output = pmindex(arguments);
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

/// Runs with this on standard input.
fn fed(arguments: &[&OsStr], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pmindex"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Runs with files of at most `bytes`; returns standard error.
fn fails_beyond(bytes: u64, arguments: &[&OsStr]) -> String {
    let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", bytes / 512);
    let mut command = Command::new("sh");
    command.arg("-c").arg(limited).arg(env!("CARGO_BIN_EXE_pmindex")).args(arguments);
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

fn options() -> PoolOptions {
    PoolOptions::new().size(1 << 20).zone_bytes(128 << 10).slots(4).write_back(false)
}

fn fill<K: Key, V: Stored>(pool: &Arc<Pool>, name: &str, kind: Kind, records: &[(K, V)]) {
    let index = AnyIndex::<K, V>::create(pool, name, kind).expect("created");
    assert!(index.try_insert_many(records).stopped.is_none());
    index.close().expect("closed");
}

/// An index of every kind, with many types.
fn sample(path: &Path) {
    let pool = Arc::new(Pool::create(path, &options()).expect("created"));
    for &kind in Kind::ALL {
        let words: Vec<(u64, i16)> = (0..300).map(|n| (n * n, -(n as i16))).collect();
        fill(&pool, &format!("{kind} words"), kind, &words);
        let texts: Vec<(String, u64)> =
            (0..100).map(|n| (format!("naïve \"{n}\"\n"), u64::MAX - n)).collect();
        fill(&pool, &format!("{kind} texts"), kind, &texts);
    }
    fill(&pool, "signs", Kind::FpTree, &[(i64::MIN, true), (-1, false), (0, true)]);
    fill(
        &pool,
        "bytes",
        Kind::FpTree,
        &[(vec![0xffu8, 0], vec![]), (b"k".to_vec(), vec![0x80u8; 3000])],
    );
    fill(&pool, "chars", Kind::FpTree, &[('é', ()), ('\u{0}', ())]);
    fill(&pool, "empty", Kind::FpTree, &[] as &[(u8, u32)]);
}

#[test]
fn what_was_dumped_is_restored() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name).into_os_string();
    sample(Path::new(&at("a.pm")));
    let dump = works([OsStr::new("dump"), &at("a.pm")]);
    assert!(dump.starts_with("{\"pmindex-dump\":1}\n"), "{dump}");
    assert!(dump.contains("\n[{\"hex\":\"ff00\"},\"\"]\n"), "{dump}");
    assert!(dump.contains("\n[-9223372036854775808,true]\n"), "{dump}");
    assert!(dump.contains(
        "{\"index\":\"signs\",\"type\":\"fptree\",\"keys\":\"i64\",\"values\":\"bool\"}\n"
    ));

    works([OsStr::new("dump"), &at("a.pm"), OsStr::new("--output"), &at("a.jsonl")]);
    assert_eq!(std::fs::read_to_string(at("a.jsonl")).expect("readable"), dump);
    let error = fails([OsStr::new("dump"), &at("a.pm"), OsStr::new("-o"), &at("a.jsonl")]);
    assert!(error.contains("already exists") && error.contains("--replace"), "{error}");

    let line = [OsStr::new("restore"), &at("a.jsonl"), &at("b.pm"), OsStr::new("--json")];
    let report: Value = serde_json::from_str(&works(line)).expect("JSON");
    assert_eq!(report["indexes"], 4 + 2 * Kind::ALL.len());
    assert_eq!(report["records"], 7 + 400 * Kind::ALL.len());
    assert_eq!(works([OsStr::new("dump"), &at("b.pm")]), dump);
    works([OsStr::new("check"), &at("b.pm")]);
    let error = fails([OsStr::new("restore"), &at("a.jsonl"), &at("b.pm")]);
    assert!(error.contains("already exists") && !error.contains("--replace"), "{error}");

    // Through a pipe, as another kind.
    let line = [
        OsStr::new("restore"),
        OsStr::new("-"),
        &at("c.pm"),
        OsStr::new("--type"),
        OsStr::new("wbtree"),
    ];
    assert!(fed(&line, &dump).status.success());
    let info: Value =
        serde_json::from_str(&works([OsStr::new("info"), &at("c.pm"), OsStr::new("--json")]))
            .expect("JSON");
    assert!(
        info["indexes"].as_array().expect("indexes").iter().all(|index| index["type"] == "wbtree")
    );
    assert_eq!(
        works([OsStr::new("scan"), &at("c.pm"), OsStr::new("--index"), OsStr::new("signs")]),
        "-9223372036854775808\ttrue\n-1\tfalse\n0\ttrue\n"
    );
}

/// As `restore` reads it from there.
#[test]
fn a_dash_is_standard_output() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("a.pm");
    sample(&pool);
    for rest in [&["-o", "-"][..], &["-o", "-", "--replace"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmindex"));
        command.arg("dump").arg(&pool).args(rest).current_dir(dir.path());
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout) == works([OsStr::new("dump"), pool.as_os_str()]), "{rest:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
}

#[test]
fn a_dump_that_is_cut_or_changed_makes_no_pool() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, new) = (dir.path().join("a.pm"), dir.path().join("new.pm"));
    for (key, value) in [("apple", "red"), ("fig", "blue"), ("pear", "green")] {
        works([
            OsStr::new("put"),
            pool.as_os_str(),
            OsStr::new(key),
            OsStr::new(value),
            OsStr::new("--durability"),
            OsStr::new("process"),
        ]);
    }
    let dump = works([OsStr::new("dump"), pool.as_os_str()]);
    let restore = [OsStr::new("restore"), OsStr::new("-"), new.as_os_str()];
    let refused = |input: &str| {
        let output = fed(&restore, input);
        assert_eq!(output.status.code(), Some(1), "{input}");
        let left = std::fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(left, 1, "nothing is left over after\n{input}");
        text(&output.stderr)
    };
    let lines: Vec<&str> = dump.lines().collect();
    for cut in 0..lines.len() {
        let error = refused(&lines[..cut].join("\n"));
        assert!(error.contains("ends before its last line"), "{cut}: {error}");
    }
    for at in 2..lines.len() - 2 {
        let without = [&lines[..at], &lines[at + 1..]].concat().join("\n");
        assert!(
            refused(&without)
                .contains("line 5: index \"main\" should have 3 records, but 2 were read")
        );
    }
    let twice = dump.replace("[\"fig\"", "[\"apple\"");
    assert!(refused(&twice).contains("1 key"), "{}", refused(&twice));
    assert!(
        refused(&dump.replace("\"blue\"", "7"))
            .contains("line 4: the value is not of the index's type, bytes")
    );
    assert!(refused(&dump.replace("fptree", "btree")).contains("\"btree\""));
    assert!(refused(&dump.replace("dump\":1", "dump\":2")).contains("version 2"));
    assert!(refused("{}\n").contains("not what `pmindex dump` writes"));
    assert!(refused("apple\n").contains("line 1"));
    // Of what stands after the end, nothing would be in the pool.
    for after in [dump.as_str(), "apple\n"] {
        let error = refused(&format!("{dump}\n{after}"));
        assert!(error.contains("line 9: ") && error.contains("after the end"), "{error}");
    }
    let again = [&lines[..6], &lines[1..6], &[r#"{"end":"pmindex-dump","indexes":2}"#]].concat();
    let error = refused(&again.join("\n"));
    assert!(error.contains("line 7: ") && error.contains("\"main\""), "{error}");
    // What no index takes.
    let (key, value) = ("k".repeat(4097), "v".repeat((4 << 20) + 1));
    for (long, line) in [
        (dump.replace("\"fig\"", &format!("{key:?}")), "line 4: a key of 4097 bytes"),
        (dump.replace("\"blue\"", &format!("{value:?}")), "line 4: a value of 4194305 bytes"),
        (dump.replace("\"main\"", "\"\""), "line 2: the name of an index must have 1 to 64"),
        (dump.replace("main", &"m".repeat(65)), "line 2: the name of an index must have 1 to 64"),
    ] {
        let output = fed(&restore, &long);
        let error = text(&output.stderr);
        assert!(error.contains(line) && output.status.code() == Some(1), "{line}: {error}");
        assert!(!new.exists());
    }
    assert!(fed(&restore, &format!("{dump}\n \r\n")).status.success());
    std::fs::remove_file(&new).expect("restored");
    // Any order is fine.
    let turned = [lines[0], lines[1], lines[4], lines[2], lines[3], lines[5], lines[6]].join("\n");
    assert!(fed(&restore, &turned).status.success());
    assert_eq!(works([OsStr::new("dump"), new.as_os_str()]), dump);
}

/// A pool whose only index has this many records of words, each with its complement.
fn words(path: &Path, kind: Kind, count: u64) {
    let pool = Arc::new(Pool::create(path, &options()).expect("created"));
    let records: Vec<(u64, u64)> = (0..count).map(|n| (n, !n)).collect();
    fill(&pool, "words", kind, &records);
    pool.find_index("words").expect("there");
    drop(pool);
}

/// The lines that hold one of these words, as offsets.
fn places(image: &[u8], word: u64) -> Vec<usize> {
    let words = image.as_chunks::<8>().0.iter().enumerate();
    words.filter(|(_, bytes)| **bytes == word.to_le_bytes()).map(|(at, _)| 8 * at).collect()
}

#[test]
fn what_is_left_of_a_damaged_pool_is_saved() {
    let dir = tempfile::tempdir().expect("a folder");
    for &kind in Kind::ALL {
        let at = |name: &str| -> PathBuf { dir.path().join(format!("{kind}-{name}")) };
        words(&at("whole"), kind, 4000);
        let (whole, saved) = (at("whole"), at("saved"));
        let line = |pool: &Path| {
            [
                OsStr::new("check"),
                pool.as_os_str(),
                OsStr::new("--repair"),
                saved.as_os_str(),
                OsStr::new("--json"),
            ]
            .map(OsStr::to_os_string)
        };
        let report: Value = serde_json::from_str(&works(line(&whole))).expect("JSON");
        assert_eq!(report["indexes"][0]["saved"], 4000, "{kind}: {report}");
        assert_eq!(report["whole"], true);
        std::fs::remove_file(&saved).expect("it was made");

        // The page with the record 2000 rots.
        let mut image = std::fs::read(&whole).expect("readable");
        let place = *places(&image, !2000).first().expect("the value is somewhere");
        let page = place / 512 * 512;
        image[page..page + 512].fill(0xa5);
        let rotten = at("rotten");
        std::fs::write(&rotten, &image).expect("written");
        let output = pmindex(line(&rotten));
        assert_eq!(output.status.code(), Some(1), "{kind}: {}", text(&output.stderr));
        let report: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        let index = &report["indexes"][0];
        println!("{kind}: {index}");
        assert_eq!(index["whole"], false, "{kind}: {report}");
        let count = index["saved"].as_u64().expect("a number");
        assert!(count >= 3700, "{kind}: {index}");
        // What is there is right, and the new pool is whole.
        let pool =
            Arc::new(Pool::open(&saved, &PoolOptions::new().read_only(true)).expect("a pool"));
        let index = AnyIndex::<u64, u64>::open(&pool, "words").expect("an index");
        assert_eq!(index.check(), Ok(count));
        let right = (0..4000).filter(|key| index.get(key) == Ok(Some(!key))).count() as u64;
        assert!(count - right < 40, "{kind}: {right} of {count} are right");
    }
}

/// A pool that is read is not to blame if the one that is written finds no room.
#[test]
fn an_error_names_the_pool_that_it_is_about() {
    let dir = tempfile::tempdir().expect("a folder");
    let [read, new, dump] =
        ["read.pm", "new.pm", "read.jsonl"].map(|name| dir.path().join(name).into_os_string());
    let pool = Arc::new(Pool::create(Path::new(&read), &options()).expect("created"));
    let index = AnyIndex::<u64, u64>::create(&pool, "main", Kind::FpTree).expect("created");
    index.bulk_load(&mut (0..900_000).map(|key| (key, !key))).expect("room");
    index.close().expect("closed");
    drop(pool);
    works([OsStr::new("dump"), &read, OsStr::new("--output"), &dump]);
    let [check, compact, restore, repair, rewrite] =
        ["check", "compact", "restore", "--repair", "--rewrite"].map(OsStr::new);
    for (line, named) in [
        (&[check, &read, repair, &new][..], "new.pm: "),
        (&[compact, &read, rewrite], "read.pm.partial: "),
        (&[restore, &dump, &new], "new.pm: "),
    ] {
        let error = fails_beyond(10 << 20, line);
        assert!(error.contains(named) && !error.contains("read.pm: "), "{line:?}: {error}");
        assert!(!Path::new(&new).exists());
    }
}

#[test]
fn repairing_says_what_it_could_not_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, saved) = (dir.path().join("a.pm"), dir.path().join("saved.pm"));
    words(&pool, Kind::FastFair, 4000);
    let mut image = std::fs::read(&pool).expect("readable");
    for word in [!1000u64, !3000] {
        let place = *places(&image, word).first().expect("the value is somewhere");
        image[place / 512 * 512..][..512].fill(0xa5);
    }
    std::fs::write(&pool, &image).expect("written");
    let output =
        pmindex([OsStr::new("check"), pool.as_os_str(), OsStr::new("--repair"), saved.as_os_str()]);
    let said = text(&output.stdout);
    assert!(said.contains("nothing could be read between"), "{said}");
    assert!(!said.contains("restore a backup"), "this is the advice that is followed: {said}");
    assert!(text(&output.stderr).contains("what could be saved is in"));
    let plain = fails([OsStr::new("check"), pool.as_os_str()]);
    assert!(plain.contains("--repair"), "{plain}");
    assert!(saved.exists());
    let scan = fails([OsStr::new("scan"), pool.as_os_str()]);
    assert!(scan.contains("a.pm: corrupt pool"), "the error names the file: {scan}");
}

#[test]
fn info_shows_what_is_whole_beside_a_damaged_index() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.pm");
    words(&path, Kind::FpTree, 4000);
    let pool = Arc::new(Pool::open(&path, &options()).expect("a pool"));
    fill::<u64, u64>(&pool, "whole", Kind::WbTree, &[(1, 2)]);
    drop(pool);
    let mut image = std::fs::read(&path).expect("readable");
    let place = *places(&image, !2000).first().expect("the value is somewhere");
    image[place / 512 * 512..][..512].fill(0xa5);
    std::fs::write(&path, &image).expect("written");
    let info = |json: Option<&str>| {
        let line = [OsStr::new("info"), path.as_os_str()];
        let output = pmindex(line.into_iter().chain(json.map(OsStr::new)));
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("1 index is damaged"), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = info(None);
    for expected in ["in use of", "words: damaged: corrupt pool", "wbtree"] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    assert!(!said.contains("restore a backup"), "{said}");
    let report: Value = serde_json::from_str(&info(Some("--json"))).expect("JSON");
    assert!(report["indexes"][0]["damaged"].is_string(), "{report}");
    assert_eq!(report["indexes"][1]["records"], 1, "{report}");
}

/// As the error says.
#[test]
fn what_is_left_of_a_pool_that_was_cut_short_is_saved_from_a_longer_copy() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, saved) = (dir.path().join("a.pm"), dir.path().join("saved.pm"));
    words(&path, Kind::FpTree, 4000);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
    let len = file.metadata().expect("there").len();
    // In the middle of the records.
    let image = std::fs::read(&path).expect("readable");
    let place = *places(&image, !2000).first().expect("the value is somewhere") as u64;
    file.set_len(place / 4096 * 4096).expect("cut");
    let repair = ["check", "a.pm", "--repair", "saved.pm"];
    let repair = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmindex"));
        command.current_dir(dir.path()).args(repair).output().expect("it starts")
    };
    let refused = repair();
    let error = text(&refused.stderr);
    assert_eq!((refused.status.code(), saved.exists()), (Some(1), false), "{error}");
    assert!(error.contains(&format!("truncate -s {len} COPY")), "{error}");
    file.set_len(len).expect("longer");
    let said = text(&repair().stdout);
    let pool = Arc::new(Pool::open(&saved, &PoolOptions::new().read_only(true)).expect("a pool"));
    let index = AnyIndex::<u64, u64>::open(&pool, "words").expect("an index");
    let count = index.check().expect("whole");
    assert!((1..4000).contains(&count), "{count}: {said}");
    let right = (0..4000).filter(|key| index.get(key) == Ok(Some(!key))).count() as u64;
    assert!(right >= count - count / 10, "{right} of {count}");
}

#[test]
fn an_index_by_hash_is_checked_and_saved_segment_by_segment() {
    let dir = tempfile::tempdir().expect("a folder");
    let (whole, rotten) = (dir.path().join("whole.pm"), dir.path().join("rotten.pm"));
    let pool = Arc::new(Pool::create(&whole, &options()).expect("a pool"));
    let index = Cceh::<u64, u64>::create(&pool, "words").expect("created");
    for key in 0..4000 {
        index.insert(&key, &!key).expect("room");
    }
    let blocks = index.blocks().expect("readable");
    index.close().expect("closed");
    drop(pool);
    let said = works([OsStr::new("check"), whole.as_os_str()]);
    assert!(said.contains("words: whole, 4"), "{said}");
    assert!(said.contains("records, load factor 0."), "{said}");
    let got = works([OsStr::new("get"), whole.as_os_str(), OsStr::new("77")]);
    assert_eq!(got, format!("{}\n", !77u64));
    for command in ["scan", "dump"] {
        let refused = fails([OsStr::new(command), whole.as_os_str()]);
        assert!(refused.contains("words: an index by hash has no order"), "{refused}");
    }
    let repaired = |from: &Path, to: &str| {
        let saved = dir.path().join(to);
        let line = [OsStr::new("check"), from.as_os_str(), OsStr::new("--repair")];
        let output = pmindex(line.into_iter().chain([saved.as_os_str(), OsStr::new("--json")]));
        let report: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        let pool = Pool::open(&saved, &PoolOptions::new().read_only(true)).expect("a pool");
        let index = Cceh::<u64, u64>::open(&Arc::new(pool), "words").expect("an index");
        let count = index.check().expect("the new one is whole");
        let right = (0..4000).filter(|key| index.get(key) == Ok(Some(!key))).count() as u64;
        assert_eq!((right, &report["indexes"][0]["saved"]), (count, &count.into()), "{report}");
        (report["whole"].clone(), count)
    };
    assert_eq!(repaired(&whole, "same.pm"), (true.into(), 4000));

    // The header of a segment in the middle of the list rots: those after it are found all the same.
    let mut image = std::fs::read(&whole).expect("readable");
    let segment = *blocks.get(blocks.len() / 2).expect("several segments") as usize;
    image[segment..segment + 64].fill(0xa5);
    std::fs::write(&rotten, &image).expect("written");
    fails([OsStr::new("check"), rotten.as_os_str()]);
    let (whole, count) = repaired(&rotten, "saved.pm");
    assert_eq!(whole, false);
    assert!((2000..4000).contains(&count), "{count}");
}

/// The block of a record with 16 KiB of zeros looks like a segment.
#[test]
fn repairing_a_whole_index_by_hash_loses_no_record_beside_a_value_like_a_segment() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, saved) = (dir.path().join("a.pm"), dir.path().join("saved.pm"));
    let pool = Arc::new(Pool::create(&path, &options()).expect("a pool"));
    let index = Cceh::<u64, Vec<u8>>::create(&pool, "pages").expect("created");
    for key in 0..1000 {
        let value = if key == 500 { vec![0; 16 << 10] } else { vec![7; 9] };
        index.insert(&key, &value).expect("room");
    }
    index.close().expect("closed");
    drop(pool);
    let line = [OsStr::new("check"), path.as_os_str(), OsStr::new("--repair"), saved.as_os_str()];
    let said = works(line);
    assert!(said.contains("pages: whole"), "{said}");
    let pool = Pool::open(&saved, &PoolOptions::new().read_only(true)).expect("a pool");
    let index = Cceh::<u64, Vec<u8>>::open(&Arc::new(pool), "pages").expect("an index");
    assert_eq!(index.check(), Ok(1000));
    assert_eq!(index.get(&500), Ok(Some(vec![0; 16 << 10])));
}

/// Also where the name of the text leads to the pool by a link.
#[test]
fn a_dump_never_replaces_the_pool_it_reads() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, hard) = (dir.path().join("a.pm"), dir.path().join("hard.pm"));
    sample(&path);
    std::fs::hard_link(&path, &hard).expect("linked");
    std::os::unix::fs::symlink(dir.path(), dir.path().join("folder")).expect("linked");
    let before = std::fs::read(&path).expect("readable");
    for output in [path.clone(), hard, dir.path().join("folder").join("a.pm")] {
        let line = [OsStr::new("dump"), path.as_os_str(), OsStr::new("--output")];
        let error = fails(line.into_iter().chain([output.as_os_str(), OsStr::new("--replace")]));
        assert!(error.contains("this is the pool itself"), "{error}");
        assert!(std::fs::read(&path).expect("readable") == before, "{}", output.display());
    }
}

/// A backup that was good is not given up for one of a pool that is damaged.
#[test]
fn a_backup_replaces_no_other_one_if_the_pool_is_damaged() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pool, copy) = (dir.path().join("a.pm"), dir.path().join("copy.pm"));
    let backup = |rest: &[&str]| {
        let line = [OsStr::new("backup"), pool.as_os_str(), copy.as_os_str()];
        line.into_iter().chain(rest.iter().map(OsStr::new)).map(OsStr::to_owned).collect::<Vec<_>>()
    };
    words(&pool, Kind::FastFair, 4000);
    works(backup(&[]));
    let good = std::fs::read(&copy).expect("readable");
    let mut image = std::fs::read(&pool).expect("readable");
    let place = *places(&image, !1000u64).first().expect("the value is somewhere");
    image[place / 512 * 512..][..512].fill(0xa5);
    std::fs::write(&pool, &image).expect("written");
    let error = fails(backup(&["--replace"]));
    assert!(error.contains("1 index is damaged") && error.contains("unchanged"), "{error}");
    assert!(std::fs::read(&copy).expect("readable") == good, "the good backup is gone");
    // A first copy is kept all the same: there is no better one.
    std::fs::remove_file(&copy).expect("it is there");
    let error = fails(backup(&["--replace"]));
    assert!(error.contains("1 index is damaged"), "{error}");
    assert!(copy.exists());
}

/// What `--json` prints is what `restore` reads, so that nothing is lost and no two records look alike.
#[test]
fn json_shows_keys_and_values_as_a_dump_has_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.pm");
    sample(&path);
    let pool = Arc::new(Pool::open(&path, &options()).expect("a pool"));
    let alike = [
        (vec![0xff], b"\t\n".to_vec()),
        (b"\\xff".to_vec(), vec![0xff]),
        (b"{\"hex\":\"ff\"}".to_vec(), b"\\xff".to_vec()),
    ];
    fill(&pool, "alike", Kind::FpTree, &alike);
    let hash = Cceh::<u64, Vec<u8>>::create(&pool, "hash").expect("created");
    hash.insert(&7, &[0xff]).expect("room");
    hash.close().expect("closed");
    drop(pool);

    let run = |command: &str, rest: &[&str]| {
        let rest = rest.iter().map(OsStr::new);
        works([OsStr::new(command), path.as_os_str()].into_iter().chain(rest))
    };
    let line = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let names = ["alike", "bytes", "chars", "empty", "fptree texts", "fptree words", "signs"];
    for name in names {
        let dump = run("dump", &["--index", name]);
        let lines: Vec<&str> = dump.lines().collect();
        let records: Vec<Value> = lines[2..lines.len() - 2].iter().map(|text| line(text)).collect();
        let scan = run("scan", &["--index", name, "--json"]);
        let found: Vec<Value> = scan.lines().map(line).collect();
        let as_record =
            |object: &Value| Value::from(vec![object["key"].clone(), object["value"].clone()]);
        assert_eq!(found.iter().map(as_record).collect::<Vec<_>>(), records, "{name}");
    }
    let get = |index, key| line(&run("get", &[key, "--index", index, "--json"]));
    let object =
        |key: Value, value: Value| serde_json::json!({ "key": key, "value": value, "found": true });
    let ff = serde_json::json!({ "hex": "ff" });
    assert_eq!(get("alike", "\\xff"), object("\\xff".into(), ff.clone()));
    assert_eq!(get("alike", "{\"hex\":\"ff\"}"), object("{\"hex\":\"ff\"}".into(), "\\xff".into()));
    assert_eq!(get("fptree words", "0x9"), object(9.into(), (-3).into()));
    assert_eq!(get("signs", "-1"), object((-1).into(), false.into()));
    assert_eq!(get("chars", "é"), object("é".into(), Value::Null));
    assert_eq!(get("hash", "7"), object(7.into(), ff.clone()));
    let missing = pmindex(["get", path.to_str().expect("text"), "8", "--index", "hash", "--json"]);
    assert_eq!(missing.status.code(), Some(1));
    let missing = line(&text(&missing.stdout));
    assert_eq!(missing, serde_json::json!({ "key": 8, "value": null, "found": false }));
    let put = run("put", &["0x9", "-4", "--index", "fptree words", "--json"]);
    assert_eq!(line(&put), serde_json::json!({ "key": 9, "new": false }));
    let del = run("del", &["9", "--index", "fptree words", "--json"]);
    assert_eq!(line(&del), object(9.into(), (-4).into()));
    let del = run("del", &["\\xff", "--index", "alike", "--json"]);
    assert_eq!(line(&del), object("\\xff".into(), ff));
    // For people, as before.
    assert_eq!(run("get", &["k", "--index", "bytes"]), "\\x80".repeat(3000) + "\n");
    assert_eq!(run("scan", &["--index", "alike"]), "{\"hex\":\"ff\"}\t\\xff\n\\xff\t\\x09\\x0a\n");
}

#[test]
fn get_writes_the_bytes_of_a_value_as_they_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.pm");
    let pool = Arc::new(Pool::create(&path, &options()).expect("created"));
    let bytes: Vec<u8> = (0..=255).collect();
    fill(
        &pool,
        "bytes",
        Kind::FpTree,
        &[(b"all".to_vec(), bytes.clone()), (b"none".to_vec(), vec![])],
    );
    fill(&pool, "texts", Kind::FpTree, &[(7u64, "naïve\n".to_owned())]);
    fill(&pool, "words", Kind::FpTree, &[(7u64, -7i64)]);
    drop(pool);
    let raw = |index: &str, key: &str| {
        let line = ["get", path.to_str().expect("text"), key, "--index", index, "--raw"];
        let output = pmindex(line);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    assert_eq!(raw("bytes", "all"), bytes);
    assert_eq!(raw("bytes", "none"), b"");
    assert_eq!(raw("texts", "7"), "naïve\n".as_bytes());
    assert_eq!(raw("words", "7"), b"-7");
    let help = works(["get", "--help"]);
    assert!(help.contains("--raw") && help.contains("{\"hex\""), "{help}");
}
