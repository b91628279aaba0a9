//! Checks that every peer executes the measured operations correctly.
#![forbid(unsafe_code)]

use pmindex_peers::PEERS;
use pmindex_pibench::{Phase, Settings, Step, Workload, measure};

/// Uses tmpfs, if it is mounted: stores that synchronise every commit are slow on a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

#[test]
fn every_peer_does_every_operation_it_has() {
    for peer in PEERS {
        let dir = folder();
        let subject = (peer.make)(dir.path()).unwrap_or_else(|e| panic!("{}: {e}", peer.name));
        assert_eq!(subject.name(), peer.name);
        let mut work = Workload::new(1000, 400, 1);
        let phases = Phase::ALL.into_iter().map(Step::one);
        let mixes = ["read-intensive", "write-intensive"].map(|mix| Step::mix(mix).expect(mix));
        let steps: Vec<Step> = phases.chain(mixes).collect();
        for threads in [1, 2] {
            let settings = Settings { threads, sample: Some(1.0), ..Settings::default() };
            let steps = if threads == 1 { &steps[..] } else { &steps[1..] };
            let measured = measure(&[subject.as_ref()], &mut work, steps, &settings, &mut ())
                .unwrap_or_else(|e| panic!("{}: {e}", peer.name));
            let missing = steps.iter().filter(|step| step.share(Phase::Scan) > 0.0).count();
            let expected = steps.len() - if subject.can(Phase::Scan) { 0 } else { missing };
            assert_eq!(measured[0].steps.len(), expected, "{}", peer.name);
        }
        drop(subject);
        let files = std::fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(files > 0, peer.files, "{}", peer.name);
    }
}
