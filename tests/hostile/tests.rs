//! Attacks by chance, the same every time, and those that once succeeded.

use std::cell::Cell;
use std::path::Path;

use pmindex::Kind;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::{Damage, End, How, Paper, Running, Seen, Target, carry_out, kept};

/// Attacks of one target; `PMINDEX_LONG=n` multiplies them, and all the numbers of this file.
const ATTACKS: usize = 40;

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        any::<u8>().prop_map(How::Flip),
        prop_oneof![Just(0), Just(u64::MAX), Just(8), 0..1u64 << 20, any::<u64>()]
            .prop_map(How::Set),
        any::<u32>().prop_map(How::CopyOf),
        any::<u32>().prop_map(How::PointTo),
        any::<i8>().prop_map(How::Add),
    ]
}

pub(crate) fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let damage = (any::<u32>(), how()).prop_map(|(at, how)| Damage { at, how });
    prop::collection::vec(damage, 1..6)
}

/// Damage that once made a scan run in circles: a cycle in the list of leaves, found behind a
/// clean-shutdown image.
#[test]
fn a_list_of_leaves_without_end_is_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::new(dir.path(), Kind::FpTree, false, true);
    let damages = [
        Damage { at: 2_950_621_277, how: How::Set(16_498_882_163_620_739_055) },
        Damage { at: 2_586_475_481, how: How::PointTo(2_493_294_611) },
        Damage { at: 177_240_931, how: How::CopyOf(2_777_938_282) },
        Damage { at: 3_720_774_235, how: How::PointTo(2_024_282_011) },
    ];
    assert!(target.attack(&damages, false));
    // Every used word leads to several others, independent of the present layout.
    for at in 0..target.words() {
        for to in (at % 61..target.words()).step_by((97 * 8 / times()).max(1)) {
            target.attack(&[Damage { at, how: How::PointTo(to) }], true);
        }
    }
}

/// Regression: this damage made a full leaf, about to give records to its neighbour, look for a separator of
/// keys that are out of order.
#[test]
fn a_leaf_whose_keys_are_out_of_order_is_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target::new(dir.path(), Kind::WbTree, true, true);
    let damages = [
        Damage { at: 0x3120, how: How::Flip(0x65) },
        Damage { at: 0x6d6f, how: How::CopyOf(0x6e6f) },
        Damage { at: 0x7869, how: How::Set(0) },
        Damage { at: 0x2e47, how: How::PointTo(0x2e2e) },
    ];
    assert!(target.attack(&damages, false));
    // Wherever a leaf lies today: some word of the order is another's.
    for at in (0..target.words()).step_by((23 / times()).max(1)) {
        target.attack(&[Damage { at, how: How::CopyOf(at + 1) }], true);
    }
}

#[test]
fn whatever_a_file_contains_is_an_error_or_an_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    for target in Target::all(dir.path()) {
        assert!(target.is_sound(), "{}", target.name);
        let opened = Cell::new(0);
        // The same attacks every time: a fuzzer tries others.
        let cases = (ATTACKS * times()) as u32;
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let outcome = runner.run(&(damages(), any::<bool>()), |(damages, forge)| {
            opened.set(opened.get() + u32::from(target.attack(&damages, forge)));
            Ok(())
        });
        outcome.unwrap_or_else(|e| panic!("{}: {e}", target.name));
        let opened = opened.get();
        assert!(opened > cases / 10, "{}: only {opened} attacks got in", target.name);
    }
}

/// One in this number of the inputs that the fuzzer keeps, because each takes some milliseconds.
const SHARE: usize = 8;

#[test]
fn what_the_fuzzer_keeps_is_an_error_or_an_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let targets = Target::all(dir.path());
    let mut tried = 0;
    for bytes in kept().step_by(SHARE) {
        carry_out(&targets, &bytes);
        tried += 1;
    }
    assert!(tried >= 100, "only {tried} inputs are kept");
}

/// Blots of one file.
const BLOTS: usize = 16;

/// Returns `true` if no page of an index can become zeros without notice: after a kill, a zeroed first leaf
/// of NV-Tree and of SPTree looks like an empty tree, and a zeroed page of the log of a buffered SPTree like
/// its end.
fn tells(kind: Kind, closed: bool) -> bool {
    closed || !matches!(kind, Kind::NvTree | Kind::SpTree | Kind::BufferedSpTree)
}

/// Returns a folder, in memory if possible.
fn folder() -> tempfile::TempDir {
    let place = Path::new("/dev/shm");
    let dir = if place.exists() { tempfile::tempdir_in(place) } else { tempfile::tempdir() };
    dir.expect("a folder")
}

/// What `PMINDEX_LONG` says.
pub(crate) fn times() -> usize {
    std::env::var("PMINDEX_LONG").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Damages of one killed pool.
const DAMAGES: usize = 20;

#[test]
fn what_is_acknowledged_after_a_damage_is_kept_or_an_error_says_so() {
    assert!(std::panic::catch_unwind(|| std::hint::black_box(u8::MAX) + 1).is_err());
    let dir = folder();
    let (mut broken, mut kept) = (Vec::new(), 0);
    for kind in Kind::ALL {
        for bytes_as_keys in [false, true] {
            let running = Running::new(dir.path(), *kind, bytes_as_keys);
            let ends = (0..(DAMAGES * times()) as u64).map(|seed| running.attack(seed));
            let (mut refused, mut noticed, mut good) = (0, 0, 0);
            for end in ends {
                match end {
                    End::Refused => refused += 1,
                    End::Noticed => noticed += 1,
                    End::Kept => good += 1,
                    End::Broken(why) => {
                        eprintln!("{}: {why}", running.name);
                        broken.push(format!("{}: {why}", running.name));
                    }
                }
            }
            let name = &running.name;
            eprintln!("{name}: {refused} refused, {noticed} noticed, {good} kept");
            kept += good;
        }
    }
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
    assert!(kept > 100, "only {kept} went on");
}

#[test]
fn a_check_that_passes_means_that_all_answers_agree() {
    let (dir, times) = (folder(), times());
    let mut wrong = Vec::new();
    for kind in Kind::ALL {
        for (bytes_as_keys, closed) in [(false, true), (true, true), (false, false)] {
            let paper = Paper::new(dir.path(), *kind, bytes_as_keys, closed);
            let blots = paper.blots(BLOTS * times);
            let (mut agreed, mut lossy, mut missed) = (0, 0, 0);
            for blot in &blots {
                match paper.with(blot) {
                    Seen::Found => {}
                    Seen::Agreed { lost, changed } => {
                        agreed += 1;
                        lossy += usize::from(lost + changed > 0);
                        if lost > 0 && blot.is_lost_page() && tells(*kind, closed) {
                            wrong.push(format!("{}, {blot:?}: {lost} lost", paper.name));
                        }
                    }
                    Seen::Missed(what) => {
                        missed += 1;
                        wrong.push(format!("{}, {blot:?}: {what}", paper.name));
                    }
                }
            }
            eprintln!(
                "{}: of {} blots {missed} missed, {agreed} passed, {lossy} of them with losses",
                paper.name,
                blots.len()
            );
        }
    }
    assert!(wrong.is_empty(), "{} missed:\n{}", wrong.len(), wrong.join("\n"));
}
