//! The measuring itself, on the yardstick and on subjects that lie.
#![forbid(unsafe_code)]

use std::sync::Mutex;

use pmindex_index::IndexError;
use pmindex_pibench::{BenchError, Job, Phase, Report, Run, Subject, Workload, Yardstick, measure};

#[test]
fn every_phase_of_the_yardstick_does_what_it_should() {
    let map = Yardstick::default();
    let mut work = Workload::new(5000, 1000, 1);
    let measured = measure(&[&map], &mut work, &Phase::ALL, 1, &mut ()).expect("it works");
    assert_eq!(measured.len(), 1);
    for phase in Phase::ALL {
        let result = measured[0].phase(phase).expect("measured");
        assert_eq!(result.ops, work.ops(phase), "{phase}");
        assert!(result.mops() > 0.0, "{phase}");
    }
    let records = map.stats().expect("it can tell").expect("it does").records;
    assert_eq!(records, work.live());
    assert_eq!(records, 5000 + 1000 - 1000 + 1000);
}

/// Says how many operations were done without doing any; records what it was asked to do.
struct Liar {
    misses: u64,
    threads: bool,
    seen: Mutex<Vec<usize>>,
}

impl Subject for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }
    fn concurrent(&self) -> bool {
        self.threads
    }
    fn run(&self, job: Job<'_>) -> Result<u64, IndexError> {
        self.seen.lock().expect("no panic").push(job.len());
        Ok(job.len() as u64 - self.misses)
    }
}

fn liar(misses: u64, threads: bool) -> Liar {
    Liar { misses, threads, seen: Mutex::default() }
}

#[test]
fn operations_that_did_nothing_void_the_measurement() {
    let mut work = Workload::new(5000, 1000, 1);
    let outcome = measure(&[&liar(1, true)], &mut work, &Phase::ALL, 1, &mut ());
    let Err(BenchError::Wrong { phase, ops, done, .. }) = outcome else {
        panic!("accepted: {outcome:?}");
    };
    assert_eq!((phase, ops, done), (Phase::Load, 1000, 999));
}

#[test]
fn threads_share_a_chunk_and_single_threaded_subjects_run_it_alone() {
    let mut work = Workload::new(5000, 1000, 1);
    let (many, one) = (liar(0, true), liar(0, false));
    let measured =
        measure(&[&many, &one], &mut work, &[Phase::Load], 4, &mut ()).expect("nothing fails");
    assert_eq!((measured[0].threads, measured[1].threads), (4, 1));
    for liar in [many, one] {
        let seen = liar.seen.into_inner().expect("no panic");
        assert_eq!(seen.len(), 20, "5 chunks in 4 parts");
        assert!(seen.iter().all(|n| *n == 250));
    }
}

#[test]
fn a_run_has_the_fields_that_tools_rely_on() {
    let map = Yardstick::default();
    let mut work = Workload::new(1000, 500, 1);
    let measured = measure(&[&map], &mut work, &Phase::ALL, 1, &mut ()).expect("it works");
    let report = Report { runs: vec![Run::new(&measured[0], work.records(), "volatile")] };
    let json = serde_json::to_value(&report).expect("it serializes");
    let run = &json["runs"][0];
    assert_eq!(run["index"], "btreemap");
    assert_eq!(run["threads"], 1);
    assert_eq!(run["records"], 1000);
    assert_eq!(run["durability"], "volatile");
    for field in ["pm_bytes_per_record", "dram_bytes_per_record", "recovery_ms"] {
        assert!(run.get(field).is_some(), "{field}");
    }
    let phases = run["phases"].as_array().expect("a list");
    let names: Vec<&str> = phases.iter().filter_map(|p| p["op"].as_str()).collect();
    assert_eq!(
        names,
        [
            "load",
            "get",
            "get_miss",
            "scan",
            "insert",
            "update",
            "delete",
            "get_many",
            "insert_many"
        ]
    );
    for phase in phases {
        for field in ["ops", "seconds", "mops", "flushed_lines_per_op", "fences_per_op"] {
            assert!(phase.get(field).is_some(), "{field}");
        }
        assert!(phase["ops"].as_u64().is_some_and(|ops| ops > 0));
    }
}
