//! Checks that every peer executes the measured operations correctly.
#![forbid(unsafe_code)]

use pmindex_peers::PEERS;
use pmindex_pibench::{
    BenchSubject, Length, Phase, Settings, Sizes, Step, Texts, Workload, measure,
};

/// Uses tmpfs, if it is mounted: stores that synchronise every commit are slow on a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// Runs every operation that a peer has.
fn runs<K: Send + Sync, V: Send + Sync>(
    name: &str,
    subject: &dyn BenchSubject<K, V>,
    mut work: Workload<K, V>,
) {
    assert_eq!(subject.name(), name);
    let phases = Phase::ALL.into_iter().map(Step::one);
    let mixes = ["read-intensive", "write-intensive"].map(|mix| Step::mix(mix).expect(mix));
    let steps: Vec<Step> = phases.chain(mixes).collect();
    for threads in [1, 2] {
        let settings = Settings { threads, sample: Some(1.0), ..Settings::default() };
        let steps = if threads == 1 { &steps[..] } else { &steps[1..] };
        let measured = measure(&[subject], &mut work, steps, &settings, &mut ())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let can = |phase: &Phase, step: &Step| step.share(*phase) == 0.0 || subject.can(*phase);
        let expected =
            steps.iter().filter(|step| Phase::ALL.iter().all(|phase| can(phase, step))).count();
        assert_eq!(measured[0].steps.len(), expected, "{name}");
    }
}

#[test]
fn every_peer_does_every_operation_it_has() {
    for peer in PEERS {
        let dir = folder();
        let subject = (peer.make)(dir.path()).unwrap_or_else(|e| panic!("{}: {e}", peer.name));
        runs(peer.name, subject.as_ref(), Workload::new(1000, 400, 1));
        drop(subject);
        let files = std::fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(files > 0, peer.files, "{}", peer.name);
    }
}

#[test]
fn every_peer_that_takes_byte_strings_does_so() {
    let peers = PEERS.iter().filter_map(|peer| Some((peer.name, peer.bytes?)));
    for (name, make) in peers {
        let dir = folder();
        let subject = make(dir.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let texts =
            Texts::new(1, false, b"key", Length { min: 8, max: 20 }, Length { min: 0, max: 100 });
        runs(name, subject.as_ref(), Workload::of(Box::new(texts), Sizes::new(1000, 400, 1)));
    }
}
