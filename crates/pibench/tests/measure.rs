//! The measuring itself, on the yardstick and on subjects that follow a script.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pmindex_pibench::{
    BenchError, BenchSubject, Distribution, Fault, Job, LONGEST, Length, Lines, Measurable, Phase,
    Report, Run, Sampler, Session, Settings, Sizes, Step, Store, Texts, Ticks, Workload, Yardstick,
    measure,
};

fn steps() -> Vec<Step> {
    Phase::ALL.into_iter().map(Step::one).collect()
}

fn settings(threads: usize) -> Settings {
    Settings { threads, sample: Some(1.0), ..Settings::default() }
}

#[test]
fn every_phase_of_the_yardstick_does_what_it_should() {
    let map = Yardstick::subject();
    let mut work = Workload::new(5000, 1000, 1);
    let measured = measure(&[&map], &mut work, &steps(), &settings(1), &mut ()).expect("it works");
    assert_eq!(measured.len(), 1);
    for step in steps() {
        let result = measured[0].phase(step.phase().expect("one")).expect("measured");
        assert_eq!(result.ops, work.ops(&step), "{step}");
        assert!(result.mops() > 0.0, "{step}");
        assert!(!result.windows.is_empty(), "{step}");
        let samples = result.latency.as_ref().map_or(0, |latency| latency.samples);
        let calls = match step.phase() {
            Some(Phase::Load) => 0,
            Some(Phase::GetMany | Phase::InsertMany) => 5 * 200_u64.div_ceil(64),
            _ => work.ops(&step),
        };
        assert_eq!(samples, calls, "{step}");
    }
    let records = map.stats().expect("it can tell").expect("it does").records;
    assert_eq!(records, work.live());
    // Each of insert, insert_many and delete ran twice: latencies are taken in a second round.
    assert_eq!(records, 5000 + 2000 + 2000 - 2000);
}

#[test]
fn bytes_and_mixes_and_every_distribution_work_on_the_yardstick() {
    let mixes: Vec<Step> = ["read-intensive", "scan-mostly", "write-intensive"]
        .into_iter()
        .map(|mix| Step::mix(mix).expect(mix))
        .collect();
    let steps: Vec<Step> = [Phase::Load.into()].into_iter().chain(mixes).collect();
    for name in Distribution::NAMES {
        let distribution = Distribution::named(name, None).expect(name);
        let ascending = distribution == Distribution::Monotonic;
        let (key, value) = (Length { min: 5, max: 16 }, Length { min: 1, max: 100 });
        let sizes = Sizes { distribution, ..Sizes::new(3000, 1000, 2) };
        let mut work = Workload::of(Box::new(Texts::new(2, ascending, b"k", key, value)), sizes);
        let map = Yardstick::subject();
        let measured = measure(&[&map], &mut work, &steps, &settings(2), &mut ()).expect(name);
        assert_eq!(measured[0].steps.len(), steps.len());
        assert_eq!(map.stats().expect("stats").map(|stats| stats.records), Some(work.live()));
    }
}

/// Says how many operations were done without doing any; records what it was asked to do.
struct Liar {
    misses: u64,
    threads: bool,
    seen: Mutex<Vec<usize>>,
}

impl BenchSubject for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }
    fn concurrent(&self) -> bool {
        self.threads
    }
    fn run(&self, job: Job<'_>, _: &mut Ticks) -> Result<u64, Fault> {
        self.seen.lock().expect("no panic").push(job.len());
        Ok(job.len() as u64 - self.misses)
    }
    fn run_sampled(&self, job: Job<'_>, _: &mut Sampler) -> Result<u64, Fault> {
        Ok(job.len() as u64)
    }
}

fn liar(misses: u64, threads: bool) -> Liar {
    Liar { misses, threads, seen: Mutex::default() }
}

#[test]
fn operations_that_did_nothing_void_the_measurement() {
    let mut work = Workload::new(5000, 1000, 1);
    let outcome = measure(&[&liar(1, true)], &mut work, &steps(), &settings(1), &mut ());
    let Err(BenchError::Wrong { step, ops, done, .. }) = outcome else {
        panic!("accepted: {outcome:?}");
    };
    assert_eq!((step.as_str(), ops, done), ("load", 1000, 999));
}

#[test]
fn threads_share_a_chunk_and_single_threaded_subjects_run_it_alone() {
    let mut work = Workload::new(5000, 1000, 1);
    let (many, one) = (liar(0, true), liar(0, false));
    let measured = measure(&[&many, &one], &mut work, &steps()[..1], &settings(4), &mut ())
        .expect("nothing fails");
    assert_eq!((measured[0].threads, measured[1].threads), (4, 1));
    for liar in [many, one] {
        let seen = liar.seen.into_inner().expect("no panic");
        assert_eq!(seen.len(), 20, "5 chunks in 4 parts");
        assert!(seen.iter().all(|n| *n == 250));
    }
}

/// A store whose every operation takes as long as a script says, by its number.
struct Scripted {
    calls: Mutex<u64>,
    slow_every: u64,
    slow: Duration,
}

struct Act<'s>(&'s Scripted);

impl Store<u64, u64> for Scripted {
    type Session<'s> = Act<'s>;
    fn session(&self) -> Act<'_> {
        Act(self)
    }
    fn can(&self, phase: Phase) -> bool {
        phase != Phase::Scan
    }
}

impl Act<'_> {
    fn act(&self) {
        let mut calls = self.0.calls.lock().expect("no panic");
        *calls += 1;
        if calls.is_multiple_of(self.0.slow_every) {
            std::thread::sleep(self.0.slow);
        }
    }
}

impl Session<u64, u64> for Act<'_> {
    fn get(&mut self, _: &u64) -> Result<bool, Fault> {
        self.act();
        Ok(true)
    }
    fn insert(&mut self, _: &u64, _: &u64) -> Result<bool, Fault> {
        self.act();
        Ok(true)
    }
    fn update(&mut self, _: &u64, _: &u64) -> Result<bool, Fault> {
        self.act();
        Ok(true)
    }
    fn upsert(&mut self, _: &u64, _: &u64) -> Result<(), Fault> {
        self.act();
        Ok(())
    }
    fn remove(&mut self, _: &u64) -> Result<bool, Fault> {
        self.act();
        Ok(true)
    }
    fn scan(&mut self, _: &u64, _: usize) -> Result<usize, Fault> {
        Err("it cannot".into())
    }
}

fn scripted(slow_every: u64, slow: Duration) -> Measurable<Scripted> {
    Measurable::new("scripted", Scripted { calls: Mutex::new(0), slow_every, slow })
}

#[test]
fn slow_calls_show_in_the_percentiles_they_belong_to() {
    let slow = Duration::from_millis(5);
    let store = scripted(500, slow);
    let mut work = Workload::new(2000, 2000, 1);
    let steps = [Phase::Load.into(), Phase::Get.into()];
    let measured = measure(&[&store], &mut work, &steps, &settings(1), &mut ()).expect("it works");
    let latency = measured[0].phase(Phase::Get).and_then(|row| row.latency.clone());
    let latency = latency.expect("taken");
    assert_eq!(latency.samples, 2000);
    let nanos = slow.as_nanos() as u64;
    // One call in 500 is slow: at most 99.8 % are not.
    assert!(latency.p99_9.is_some_and(|p| p >= nanos * 99 / 100), "{latency:?}");
    assert!(latency.p50 < nanos && latency.max >= nanos * 99 / 100, "{latency:?}");
    assert!(latency.p99_99.is_none(), "2000 samples know nothing of it: {latency:?}");
    let calls = *store.store().calls.lock().expect("no panic");
    assert_eq!(calls, 2000 + 2000 + 2000, "load, get, get with a clock at each call");
}

#[test]
fn windows_and_counts_are_those_of_the_script() {
    // Every operation of ten takes a millisecond or more: 400 operations, 40 of them slow.
    let store = scripted(10, Duration::from_millis(1));
    let mut work = Workload::new(2000, 400, 1);
    let run = Settings { sample: None, ..settings(1) };
    let measured =
        measure(&[&store], &mut work, &[Phase::Get.into()], &run, &mut ()).expect("it works");
    let row = measured[0].phase(Phase::Get).expect("measured");
    assert_eq!(row.ops, 400);
    assert_eq!(row.chunks.len(), 5);
    assert!(row.time >= Duration::from_millis(40), "{:?}", row.time);
    assert!(row.latency.is_none());
    // All operations are in the windows, and no window is faster than the script lets it be.
    assert!(row.windows.iter().all(|mops| *mops > 0.0 && *mops <= 0.0101), "{:?}", row.windows);
}

#[test]
fn what_a_subject_cannot_do_is_passed_over() {
    let (store, map) = (scripted(1_000_000, Duration::ZERO), Yardstick::subject());
    let mut work = Workload::new(1000, 500, 1);
    let mix = Step::mix("scan-mostly").expect("a mix");
    let steps = [Phase::Load.into(), Phase::Scan.into(), mix, Phase::Get.into()];
    let subjects: [&dyn BenchSubject; 2] = [&store, &map];
    let measured = measure(&subjects, &mut work, &steps, &settings(1), &mut ()).expect("it works");
    let names = |at: usize| -> Vec<&str> {
        measured[at].steps.iter().map(|result| result.step.name()).collect()
    };
    assert_eq!(names(0), ["load", "get"]);
    assert_eq!(names(1), ["load", "scan", "scan-mostly", "get"]);
}

#[test]
fn a_run_by_time_lasts_as_long_as_asked_and_leaves_the_records_as_they_were() {
    let map = Yardstick::subject();
    let mut work = Workload::new(20_000, 20_000, 1);
    let run = Settings { seconds: Some(0.25), sample: None, ..settings(1) };
    let steps = [Phase::Load.into(), Phase::Get.into(), Phase::Delete.into()];
    let measured = measure(&[&map], &mut work, &steps, &run, &mut ()).expect("it works");
    let row = measured[0].phase(Phase::Get).expect("measured");
    assert!(row.time >= Duration::from_millis(250), "{:?}", row.time);
    assert!(row.ops > 20_000 && row.windows.len() >= 2, "{} {:?}", row.ops, row.windows);
    let deleted = measured[0].phase(Phase::Delete).expect("measured");
    assert!(deleted.ops > 20_000 && deleted.time >= Duration::from_millis(250), "{deleted:?}");
    let records = map.stats().expect("it can tell").expect("it does").records;
    assert_eq!((records, work.live()), (20_000, 20_000));
}

/// A phase by time meets the records that it is about, however fast the others are.
#[test]
fn every_phase_by_time_meets_the_records_that_were_loaded() {
    for threads in [1, 2] {
        let (map, slow) = (Yardstick::subject(), scripted(1000, Duration::from_millis(1)));
        let mut work = Workload::new(2000, 2000, 1);
        let run = Settings { seconds: Some(0.002), sample: None, ..settings(threads) };
        let mixes = ["read-intensive", "write-intensive"].map(|mix| Step::mix(mix).expect("a mix"));
        let phases = [Phase::Load, Phase::Insert, Phase::Delete, Phase::InsertMany, Phase::GetMany];
        let steps: Vec<Step> = phases.into_iter().map(Step::one).chain(mixes).collect();
        let subjects: [&dyn BenchSubject; 2] = [&map, &slow];
        let measured = measure(&subjects, &mut work, &steps, &run, &mut ()).expect("it works");
        let live: Vec<u64> = measured[0].steps.iter().map(|result| result.live).collect();
        assert_eq!(live, [0, 2000, 2000, 2000, 2000, 2000, 2000]);
        let records = map.stats().expect("it can tell").expect("it does").records;
        assert_eq!(records, 2000);
    }
}

#[test]
fn chunks_are_long_enough_for_the_clock_and_not_too_long_for_the_slowest() {
    let phases = [Phase::Load, Phase::Get, Phase::Insert, Phase::Delete];
    let steps = phases.map(Step::one);
    let map = Yardstick::subject();
    let mut work = Workload::new(2000, 1000, 1);
    let least = Duration::from_millis(10);
    let run = Settings { chunk: least, sample: None, ..settings(1) };
    let measured = measure(&[&map], &mut work, &steps, &run, &mut ()).expect("it works");
    for row in &measured[0].steps[1..] {
        assert_eq!(row.chunks.len(), 5, "{}", row.step);
        assert!(row.time >= 5 * least, "{}: {:?}", row.step, row.time);
        assert!(row.ops > 1000, "{}: {}", row.step, row.ops);
    }
    assert_eq!(measured[0].steps[0].ops, 2000, "all are loaded once");
    // As many records as without additional operations.
    assert_eq!(work.live(), 2000);

    // The slowest subject bounds them: 400 of its operations take 4 ms or more, so there is no time for more
    // operations than these, on any machine.
    let (map, slow) = (Yardstick::subject(), scripted(400, Duration::from_millis(4)));
    let most = 400 * LONGEST.as_millis() as u64 / 4;
    let mut work = Workload::new(10_000, 10_000, 1);
    let run = Settings { chunk: 2 * LONGEST, seconds: Some(0.000_001), ..run };
    let subjects: [&dyn BenchSubject; 2] = [&map, &slow];
    let steps = [Phase::Load.into(), Phase::Get.into()];
    let measured = measure(&subjects, &mut work, &steps, &run, &mut ()).expect("it works");
    let (fast, slow) = (&measured[0].steps[1], &measured[1].steps[1]);
    assert_eq!((fast.ops, fast.chunks.len()), (slow.ops, 1));
    assert!(slow.time >= LONGEST, "{:?}", slow.time);
    // The last part has at least a quarter of the planned 2000 operations.
    assert!(slow.ops <= most + 500, "{} of {most} operations", slow.ops);
}

/// Holds a number of records; knows the most that it ever held. Nodes of a tree split where records are added, and
/// removal leaves room in them: only an insert beyond the most costs what an insert costs.
#[derive(Default)]
struct Level {
    held: AtomicU64,
    most: AtomicU64,
    calls: AtomicU64,
}

struct Filling<'s>(&'s Level);

impl Store<u64, u64> for Level {
    type Session<'s> = Filling<'s>;
    fn session(&self) -> Filling<'_> {
        Filling(self)
    }
}

impl Session<u64, u64> for Filling<'_> {
    fn get(&mut self, _: &u64) -> Result<bool, Fault> {
        Ok(true)
    }
    /// A hundred inserts take a millisecond or more.
    fn insert(&mut self, _: &u64, _: &u64) -> Result<bool, Fault> {
        let held = self.0.held.fetch_add(1, Relaxed) + 1;
        self.0.most.fetch_max(held, Relaxed);
        if self.0.calls.fetch_add(1, Relaxed) % 100 == 99 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }
    fn update(&mut self, _: &u64, _: &u64) -> Result<bool, Fault> {
        Ok(true)
    }
    fn upsert(&mut self, _: &u64, _: &u64) -> Result<(), Fault> {
        Ok(())
    }
    fn remove(&mut self, _: &u64) -> Result<bool, Fault> {
        self.0.held.fetch_sub(1, Relaxed);
        Ok(true)
    }
    fn scan(&mut self, _: &u64, _: usize) -> Result<usize, Fault> {
        Err("it cannot".into())
    }
}

#[test]
fn inserts_find_no_room_that_undone_ones_have_left() {
    for phase in [Phase::Insert, Phase::InsertMany] {
        let level = Measurable::new("level", Level::default());
        let mut work = Workload::new(10_000, 500, 1);
        let steps = [Phase::Load.into(), phase.into()];
        let run = Settings { chunk: Duration::from_millis(5), ..settings(1) };
        let measured = measure(&[&level], &mut work, &steps, &run, &mut ()).expect("it works");
        let ops = measured[0].steps[1].ops;
        // More than planned, as many as a millisecond for each hundred allows in five chunks.
        assert!((501..=5 * 700).contains(&ops), "{ops}");
        let [held, most] = [&level.store().held, &level.store().most].map(|n| n.load(Relaxed));
        assert_eq!(most, 10_000 + ops + 500, "those that were timed one by one come on top");
        assert_eq!((held, work.live()), (11_000, 11_000), "the additional ones are gone");
    }
    // A step by time may add more than that: it grows to twice the records, and begins again.
    let level = Measurable::new("level", Level::default());
    let mut work = Workload::new(1000, 500, 1);
    let run = Settings { seconds: Some(0.05), sample: None, ..settings(2) };
    let mix = Step::mix("get:1,insert:1").expect("a mix");
    let steps = [Phase::Load.into(), Phase::Insert.into(), mix];
    let measured = measure(&[&level], &mut work, &steps, &run, &mut ()).expect("it works");
    assert!(measured[0].steps[1..].iter().all(|row| row.time >= Duration::from_millis(50)));
    let [held, most] = [&level.store().held, &level.store().most].map(|n| n.load(Relaxed));
    assert!((2000..2100).contains(&most), "{most}");
    assert_eq!((held, work.live()), (1000, 1000));
}

/// A file of keys may have few that are not loaded.
#[test]
fn a_step_by_time_adds_the_same_keys_again_if_there_are_no_others() {
    let words: Vec<String> = (0..1101).map(|i| format!("word{i}")).collect();
    let length = Length { min: 8, max: 8 };
    let text = words.join("\n");
    let lines = || Box::new(Lines::new(text.as_bytes(), 1, false, b"", length).expect("keys"));
    let mut work = Workload::of(lines(), Sizes::new(1000, 500, 1));
    let map = Yardstick::subject();
    let run = Settings { seconds: Some(0.01), sample: None, ..settings(1) };
    let steps = [Phase::Load.into(), Phase::Insert.into()];
    let measured = measure(&[&map], &mut work, &steps, &run, &mut ()).expect("it works");
    let row = &measured[0].steps[1];
    assert!(row.time >= Duration::from_millis(10) && row.ops > 300, "{row:?}");
    let held = |map: &dyn BenchSubject<Vec<u8>, Vec<u8>>| {
        map.stats().expect("it can tell").expect("it does").records
    };
    assert_eq!((held(&map), work.live()), (1000, 1000));
    // Those that are timed one by one find keys too: a hundred.
    let run = Settings { sample: Some(1.0), ..run };
    let mut work = Workload::of(lines(), Sizes { batch: 20, ..Sizes::new(1000, 100, 1) });
    let map = Yardstick::subject();
    let measured = measure(&[&map], &mut work, &steps, &run, &mut ()).expect("it works");
    let samples = measured[0].steps[1].latency.as_ref().map(|latency| latency.samples);
    assert_eq!((samples, held(&map), work.live()), (Some(100), 1100, 1100));
}

/// Every field of the form, by name: who adds one adds it here and to `docs/bench-schema.md`.
#[test]
fn a_report_has_the_fields_that_tools_rely_on() {
    let map = Yardstick::subject();
    let mut work = Workload::new(1000, 500, 1);
    let measured = measure(&[&map], &mut work, &steps(), &settings(1), &mut ()).expect("it works");
    let mut report = Report::here();
    report.runs.push(Run::new(&measured[0], work.sizes(), "volatile"));
    let json = serde_json::to_value(&report).expect("it serializes");
    let documented = include_str!("../../../docs/bench-schema.md");
    let mut fields = BTreeSet::new();
    names(&json, &mut fields);
    for field in &fields {
        assert!(documented.contains(&format!("`{field}`")), "{field} is not documented");
    }
    for field in REQUIRED.iter().chain(&ENVIRONMENT).flat_map(|line| line.split(' ')) {
        assert!(fields.contains(field), "{field} is gone");
    }
    assert_eq!(json["schema"], 2);
    let run = &json["runs"][0];
    assert_eq!(run["index"], "btreemap");
    assert_eq!(run["distribution"]["name"], "uniform");
    let ops: Vec<&str> =
        run["phases"].as_array().expect("a list").iter().filter_map(|p| p["op"].as_str()).collect();
    assert_eq!(
        ops.join(" "),
        "load get get_miss scan insert update upsert delete get_many insert_many"
    );
    let back: Report = serde_json::from_value(json).expect("it can be read again");
    assert_eq!(back.runs[0].phases.len(), 10);
}

const REQUIRED: [&str; 5] = [
    "schema environment runs index peer threads pinned records durability durability_words phases",
    "write_latency_ns distribution name skew key value kind min_bytes max_bytes prefix file seed",
    "pm_bytes_per_record dram_bytes_per_record recovery_ms clean_open_ms scan_length batch op mix",
    "live_records ops seconds mops",
    "chunks_mops windows_mops window_stddev latency_ns samples mean min p50 p90 p99 p99_9 p99_99 \
     p99_999 max flushed_lines_per_op fences_per_op media_write_bytes_per_op counters",
];
const ENVIRONMENT: [&str; 1] =
    ["unix_time cpu cores memory_bytes system tmpfs_huge_pages version \
                                 commit build hardware_counters"];

/// The names of all fields, but for those of `mix`, which are operations.
fn names(value: &serde_json::Value, into: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                into.insert(name.clone());
                if name != "mix" {
                    names(value, into);
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, into)),
        _ => {}
    }
}
