//! A partition crashed in the simulator, with the right steps and with wrong ones.

use pmindex_core::trace::Space;
use pmindex_testkit::crash::{Config, CrashSubject, Explorer, Geometry, Plan, Rng, explore};

use crate::Options;
use crate::wrong::Wrong;

/// What `cargo xtask crash --index rstore` crashes.
#[path = "../../../../tests/crash/rstore.rs"]
mod rstore;

use rstore::{Case, Filling, Op, Partitioned, Ret, Right, Variant};

const WRONG: [(Wrong, &str); 14] = [
    (Wrong::VoidedEarly, "a block is free before the copies of its records are durable"),
    (Wrong::NewestByPlace, "recovery takes the last version that it reads"),
    (Wrong::NoTombstones, "tombstones are dropped at once"),
    (
        Wrong::SameGeneration,
        "blocks are used anew with the generation and the length that they had",
    ),
    (Wrong::CutEarly, "the log is cut before the blocks are durable"),
    (Wrong::LargeLate, "a large value is durable after its record in the log"),
    (Wrong::LargeFreedEarly, "a large value is freed before what replaces it is durable"),
    (Wrong::VoidedUncommitted, "a block is void before the writes are durable that emptied it"),
    (Wrong::BatchInParts, "each key of a batch has a record of the log"),
    (Wrong::FilledEarly, "a write takes a hole whose seal is not durable"),
    (Wrong::SealedEarly, "a record is sealed before the write is durable that replaced it"),
    (Wrong::OpenedEarly, "a record in a hole is open before its log entry is durable"),
    (Wrong::ForgottenEarly, "a tombstone goes before the seals of older versions are durable"),
    (Wrong::PartsCount, "a batch of several log records counts without the last one"),
];
/// The first of them about holes, and the one about batches of several records.
const HOLES: usize = 9;
const PARTS: usize = 13;

/// A record of the log has room for one key, so each batch has several.
struct InParts;

impl Variant for InParts {
    fn vary(options: Options) -> Options {
        options.logged_words(4)
    }
}

/// What a commit appends to the log finds no room at first, when a part of it is there.
struct Refused;

impl Variant for Refused {
    fn vary(options: Options) -> Options {
        options.logged_words(4).go_wrong(Wrong::NoRoom)
    }
}

/// One of the [`WRONG`].
struct Goes<const WRONG_STEP: usize>;

impl<const WRONG_STEP: usize> Variant for Goes<WRONG_STEP> {
    fn vary(options: Options) -> Options {
        let options = options.go_wrong(WRONG[WRONG_STEP].0);
        match WRONG_STEP {
            PARTS => InParts::vary(options),
            HOLES.. => Filling::vary(options),
            _ => options,
        }
    }
}

fn crash<S: CrashSubject>(seed: u64, states: u64) -> Result<u64, String> {
    let config = Config::new().seed(seed).states(states).threads(1);
    match explore::<S>(&config) {
        Ok(report) => Ok(report.states),
        Err(failure) => Err(failure.to_string()),
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let states =
        crash::<Partitioned<Right>>(3, 5_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 5_000, "{states}");
    let states =
        crash::<Partitioned<Filling>>(4, 5_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 5_000, "{states}");
    let states =
        crash::<Partitioned<InParts>>(5, 5_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 5_000, "{states}");
    let states =
        crash::<Partitioned<Refused>>(6, 5_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 5_000, "{states}");
}

/// Explores a run in which a step goes wrong, and must find that out.
fn is_caught<const WRONG_STEP: usize>(case: Case) {
    // A twelfth of the states for each run; with these seeds every step behind the setup is a crash point.
    let config = Config::new().seed(2).states(60_000).threads(1);
    let mut explorer = Explorer::<Partitioned<Goes<WRONG_STEP>>>::new(config);
    let caught = [2, 6, 10].into_iter().any(|seed| explorer.explore(&case.plan(), seed).is_err());
    assert!(caught, "{}: not noticed", WRONG[WRONG_STEP].1);
}

#[test]
fn wrong_collection_is_caught() {
    is_caught::<0>(Case::MovedClosed);
    is_caught::<3>(Case::Replaced);
    is_caught::<7>(Case::Removed);
}

#[test]
fn wrong_order_of_versions_is_caught() {
    is_caught::<1>(Case::Replaced);
}

#[test]
fn wrong_tombstones_are_caught() {
    is_caught::<2>(Case::TombstoneClosed);
}

#[test]
fn a_wrong_log_is_caught() {
    is_caught::<4>(Case::Large);
    is_caught::<8>(Case::Batch);
    is_caught::<PARTS>(Case::Batch);
}

#[test]
fn wrong_holes_are_caught() {
    is_caught::<9>(Case::Holes);
    is_caught::<10>(Case::Holes);
    is_caught::<11>(Case::Holes);
    is_caught::<12>(Case::TombstoneHole);
}

#[test]
fn wrong_large_values_are_caught() {
    is_caught::<5>(Case::Large);
    is_caught::<6>(Case::Large);
}

/// The least partition, of blocks that few records fill: at its limit all the time.
struct Tight;

impl Variant for Tight {
    const NAME: &'static str = "rstore-full";

    fn vary(options: Options) -> Options {
        options.block_bytes(256).capacity(8 * 256)
    }
}

/// Writes and removals of more than a [`Tight`] partition has room for, without a pattern.
fn crowd(random: &mut Rng, count: usize) -> Vec<Op> {
    let op = |_| {
        let (of, seed) = (random.below(rstore::KEYS.into()) as u8, 1 + random.below(200) as u8);
        match random.below(8) {
            0 => Op::Remove(of),
            1 => Op::Reopen { closed: random.one_in(2) },
            2 => Op::Write(vec![(of, None), ((of + 1) % rstore::KEYS, Some((seed, 24)))]),
            3 => Op::Get(of),
            _ => Op::Put(of, seed, 16 + random.below(16) as u16),
        }
    };
    (0..count).map(op).collect()
}

#[test]
fn what_was_acknowledged_at_the_limit_is_there_after_a_crash() {
    let (mut refused, mut random) = (0, Rng::new(9));
    let mut explorer = Explorer::<Partitioned<Tight>>::new(Config::new().states(3_000).threads(1));
    for seed in 0..8 {
        let run = crowd(&mut random, 60);
        let Geometry { len, capacity } = Partitioned::<Tight>::geometry();
        let tight = Partitioned::<Tight>::create(&Space::new(len, capacity)).expect("room");
        let fault = |fault| panic!("{fault:?}");
        refused +=
            run.iter().filter(|op| tight.apply(op).unwrap_or_else(fault) == Ret::Full).count();
        let (setup, tail) = (run[..45].to_vec(), crowd(&mut random, 10));
        let plan = Plan { setup, threads: vec![run[45..].to_vec()], tail };
        if let Err(failure) = explorer.explore(&plan, seed) {
            panic!("{failure}");
        }
    }
    assert!(refused > 20, "{refused} refused");
}
