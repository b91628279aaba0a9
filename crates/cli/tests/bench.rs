//! `bench` and `report` as a person runs them: figures, their form, and what is refused.
#![forbid(unsafe_code)]

use std::process::{Command, Output};

use serde_json::Value;

/// A durability that every folder gives: where tmpfs is too small for the pools, they are in the temporary folder.
const ANYWHERE: [&str; 2] = ["--durability", "process"];

fn pmindex<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pmindex")).args(arguments).output().expect("it starts")
}

/// Runs, expects this exit code, returns standard output and standard error.
fn ends<'a>(code: i32, arguments: impl IntoIterator<Item = &'a str>) -> [String; 2] {
    let output = pmindex(arguments);
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into());
    assert_eq!(output.status.code(), Some(code), "{texts:?}");
    texts
}

/// Returns the standard output of a success.
fn works<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let [printed, _] = ends(0, arguments);
    printed
}

/// Returns the standard error of a failure.
fn fails<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let [_, error] = ends(1, arguments);
    error
}

/// Returns the standard error of a wrong command line.
fn wrong_line<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let [_, error] = ends(2, arguments);
    error
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn bench_measures_and_its_json_keeps_its_form() {
    let report = works([
        "bench",
        "--index",
        "fptree,btreemap",
        "--records",
        "20000",
        "--ops",
        "4000",
        "--chunk-ms",
        "0",
        "--json",
        "--durability",
        "flush",
    ]);
    let report = json(&report);
    assert_eq!(report["schema"], 2);
    assert!(report["environment"]["cores"].as_u64().is_some_and(|cores| cores > 0));
    let runs = report["runs"].as_array().expect("runs");
    let names: Vec<&str> = runs.iter().filter_map(|run| run["index"].as_str()).collect();
    assert_eq!(names, ["fptree", "btreemap"]);
    let tree = &runs[0];
    assert_eq!(tree["durability"], "flush");
    assert_eq!(tree["records"], 20_000);
    assert!(tree["recovery_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(tree["clean_open_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert!(tree["pm_bytes_per_record"].as_f64().is_some_and(|bytes| bytes > 16.0));
    assert!(runs[1]["recovery_ms"].is_null());
    let phases = tree["phases"].as_array().expect("phases");
    let ops: Vec<&str> = phases.iter().filter_map(|phase| phase["op"].as_str()).collect();
    let usual = "load get get_miss scan insert update delete get_many insert_many";
    assert_eq!(ops.join(" "), usual);
    for phase in phases {
        let op = phase["op"].as_str().expect("a name");
        let writes = !matches!(op, "get" | "get_miss" | "get_many" | "scan");
        let fences = phase["fences_per_op"].as_f64().expect("counted");
        assert_eq!(fences > 0.0, writes, "{phase}");
        let media = phase["media_write_bytes_per_op"].as_f64().expect("counted");
        assert_eq!(media > 0.0, writes, "{phase}");
        assert!(phase["mops"].as_f64().is_some_and(|mops| mops > 0.0), "{phase}");
        // Each of insert, delete and insert_many runs twice, the second time for latencies.
        let live = match op {
            "load" => 0,
            "update" | "delete" => 28_000,
            _ => 20_000,
        };
        assert_eq!(phase["live_records"], live, "{phase}");
        assert_eq!(phase["latency_ns"].is_null(), op == "load", "{phase}");
    }
    let short = ["bench", "--records", "5000", "--phases", "get,scan", "--chunk-ms", "0"];
    let table = works([&short[..], &ANYWHERE, &["--threads", "2"]].concat());
    assert!(table.contains("fptree x2") && table.contains("ratio"), "{table}");
    let get = table.lines().find(|line| line.trim_start().starts_with("get ")).expect("a row");
    assert!(get.contains("5 000") && get.contains('(') && get.contains('-'), "{get}");
    assert!(table.contains("Chunks of less than 10 ms"), "{table}");
    assert!(!table.contains("\n  delete"), "only the chosen phases are rows:\n{table}");
}

#[test]
fn bench_mixes_byte_strings_threads_and_distributions() {
    let dir = tempfile::tempdir().expect("a folder");
    let words = dir.path().join("words.txt");
    let lines: Vec<String> = (0..9000).map(|i| format!("word-{i}")).collect();
    std::fs::write(&words, lines.join("\n")).expect("written");
    let report = json(&works([
        "bench",
        "--index",
        "hart,btreemap",
        "--records",
        "4000",
        "--ops",
        "500",
        "--threads",
        "1,2",
        "--distribution",
        "zipfian,monotonic",
        "--key-file",
        words.to_str().expect("text"),
        "--value-size",
        "5-40",
        "--mix",
        "read-intensive,balanced",
        "--mix",
        "get:1,upsert:3",
        "--durability",
        "flush",
        "--write-latency",
        "300",
        "--chunk-ms",
        "0",
        "--json",
    ]));
    let runs = report["runs"].as_array().expect("runs");
    let of = |run: &Value| {
        format!("{} {} {}", run["index"], run["threads"], run["distribution"]["name"])
    };
    let series: Vec<String> = runs.iter().map(of).collect();
    assert_eq!(series.len(), 8, "{series:?}");
    assert!(series.contains(&"\"hart\" 2 \"monotonic\"".to_owned()), "{series:?}");
    assert!(series.contains(&"\"btreemap\" 1 \"zipfian\"".to_owned()), "{series:?}");
    for run in runs {
        let phases = run["phases"].as_array().expect("phases");
        let ops: Vec<&str> = phases.iter().filter_map(|p| p["op"].as_str()).collect();
        assert_eq!(ops, ["load", "read-intensive", "balanced", "get:1,upsert:3"]);
        assert_eq!(run["write_latency_ns"], 300);
        assert_eq!(
            (&run["key"]["kind"], &run["value"]["max_bytes"]),
            (&"bytes".into(), &40.into())
        );
        assert_eq!(run["recovery_ms"].is_null(), run["index"] == "btreemap");
    }
    let keys = words.to_str().expect("text");
    let all = ["bench", "--records", "9000", "--ops", "400", "--chunk-ms", "0", "--key-file", keys];
    let table = works([&all[..], &ANYWHERE, &["--phases", "get,insert"]].concat());
    let insert = table.lines().find(|line| line.trim_start().starts_with("insert"));
    let cells: Vec<&str> = insert.unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        cells,
        ["insert", "9", "000", "-", "-", "-"],
        "no key is left to be inserted:\n{table}"
    );
}

#[test]
fn a_report_is_drawn_again_and_replaced_in_one_step() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("report");
    let folder = out.to_str().expect("text");
    let quick =
        ["bench", "--records", "3000", "--ops", "400", "--chunk-ms", "0", "--phases", "get"];
    works([&quick[..], &ANYWHERE, &["--report", folder]].concat());
    let page = std::fs::read_to_string(out.join("index.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("data-of=\"fptree\""));
    let again = dir.path().join("again");
    let measured = out.join("report.json");
    let (measured, into) = (measured.to_str().expect("text"), again.to_str().expect("text"));
    let printed = works(["report", measured, "--out", into]);
    assert_eq!(std::fs::read_to_string(printed.trim_end()).expect("a page"), page);
    // A file is replaced in one step, when the new one is complete.
    let (old, kept) = (again.join("index.html"), dir.path().join("kept.html"));
    std::fs::write(&old, "an old page")
        .and_then(|()| std::fs::hard_link(&old, &kept))
        .expect("new");
    works(["report", measured, "--out", into]);
    assert_eq!(std::fs::read_to_string(&old).expect("a page"), page);
    assert_eq!(std::fs::read_to_string(&kept).expect("a page"), "an old page");

    let rows = works([&quick[..], &ANYWHERE, &["--csv"]].concat());
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!(lines.len(), 5, "a heading, and two phases of two indexes:\n{rows}");
    assert!(lines[0].starts_with("index,threads,") && lines[1].starts_with("fptree,1,"), "{rows}");
}

#[test]
fn bench_has_leaves_of_other_sizes_and_refuses_what_it_cannot_measure() {
    // Their recovery included; the yardstick once.
    let sized = [
        "bench",
        "--records",
        "3000",
        "--ops",
        "400",
        "--chunk-ms",
        "0",
        "--phases",
        "get",
        "--csv",
    ];
    let rows = works([&sized[..], &ANYWHERE, &["--node-size", "13,28"]].concat());
    let names: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split(',').next()).collect();
    for (name, phases) in [("fptree-13", 2), ("fptree-28", 2), ("btreemap", 2)] {
        assert_eq!(names.iter().filter(|found| **found == name).count(), phases, "{rows}");
    }

    for (options, word) in [
        (&["--node-size", "14"][..], "13 and 28"),
        (&["--node-size", "13", "--index", "hart"], "have several: fptree"),
        (&["--node-size", "13", "--key-size", "20"], "fptree-13"),
        (&["--distribution", "normal"], "uniform"),
        (&["--mix", "get:50,put:50"], "get:50"),
        (&["--key-size", "0"], "--key-size"),
        (&["--key-size", "9000"], "4096"),
        (&["--threads", "0"], "--threads"),
        (&["--index", "bztree-volatile", "--value-size", "100"], "bztree-volatile"),
        (&["--ops", "0"], "from 320 to --records (1000)"),
        (&["--ops", "1001"], "from 320 to --records (1000)"),
        (&["--skew", "0.5"], "uniform has no skew"),
        (&["--key-size", "1"], "only 31 such keys"),
        (&["--seconds", "-1"], "must be a number from 0"),
        (&["--write-latency", "1000000001"], "1000000000"),
        (&["--chunk-ms", "1001"], "1000"),
        (&["--phases", "gets"], "get_many"),
        (&["--records", "0"], "at least 320"),
        (&["--records", "18446744073709551615"], "such keys"),
        (&["--records", "319"], "at least 320"),
        (&["--batch", "1000"], "at least 5000"),
    ] {
        let records = if options.contains(&"--records") { &[][..] } else { &["--records", "1000"] };
        let error = wrong_line([&["bench"][..], records, options].concat());
        assert!(error.contains(word), "{options:?}: {error}");
    }
    // Elsewhere these are right.
    for (options, word) in [
        (["--key-file", "no/such/file"], "no/such/file"),
        (["--records", "100000000000"], "are available"),
    ] {
        let error = fails([&["bench"][..], &options].concat());
        assert!(error.contains(word), "{options:?}: {error}");
    }
    assert!(wrong_line(["torture", "--seconds", "-1"]).contains("must be a number from 0"));
    assert!(wrong_line(["scan", "no.pm", "--limit", "-1"]).contains("invalid value '-1'"));
}

#[test]
fn bench_names_its_indexes_phases_and_mixes_and_measures_each_index_once() {
    let help = works(["bench", "--help"]);
    for name in ["fptree", "btreemap", "get_many", "zipfian", "read-intensive     get:70,insert:10"]
    {
        assert!(help.contains(name), "{name} is not in\n{help}");
    }
    assert!(!help.contains("fptree-13"), "--node-size tells of them:\n{help}");
    let quick =
        ["bench", "--records", "3000", "--ops", "400", "--chunk-ms", "0", "--phases", "get"];
    let both = ["--index", "fptree,fptree,btreemap", "--threads", "1", "--json"];
    let [report, errors] = ends(0, [&quick[..], &ANYWHERE, &both].concat());
    let runs = json(&report)["runs"].as_array().map(Vec::len);
    assert_eq!(runs, Some(2), "{errors}");
    assert!(errors.contains("pools in /") && errors.contains("mode "), "{errors}");
}

/// What cannot be written is known before anything is measured.
#[test]
fn bench_makes_the_folder_of_its_report_first() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let folder = file.join("report");
    // Few records: where it measures first, that ends too.
    let short = ["bench", "--records", "1000", "--phases", "get", "--chunk-ms", "0"];
    let report = ["--report", folder.to_str().expect("text")];
    let error = fails([&short[..], &ANYWHERE, &report].concat());
    assert!(error.contains("Not a directory") && error.contains("report"), "{error}");
    assert!(!error.contains("pools in /"), "it has begun to measure: {error}");
}

#[test]
fn bench_finds_the_golden_costs_of_every_index() {
    let indexes = "fptree,sptree,sptree-buffered,hart,nvtree,wbtree,fastfair,bztree,\
                   woart,pactree,skiplist,cceh";
    let sizes = ["bench", "--csv", "--records", "50000", "--ops", "320", "--index", indexes];
    let phases = ["--chunk-ms", "0", "--phases", "get,get_miss,scan,insert,update,delete"];
    let rows = works([&sizes[..], &phases, &ANYWHERE].concat());
    for index in indexes.split(',') {
        let wanted = format!("{index},");
        let phases = if index == "cceh" { 6 } else { 7 }; // an index by hash has no scan
        assert_eq!(rows.lines().filter(|row| row.starts_with(&wanted)).count(), phases, "{rows}");
    }
}
