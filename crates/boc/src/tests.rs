//! Runs the matrix through the conformance suite, logged and lost on crash; measures the writes of the
//! medium; and checks what a crash leaves.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use pmindex_cceh::Cceh;
use pmindex_core::{Mapped, Medium, PmError, Pool, PoolOptions, Traced};
use pmindex_fastfair::FastFair;
use pmindex_index::{Index, IndexError, InsertMany, PmIndex, RecoveryReport, Stats};
use pmindex_skiplist::SkipList;
use pmindex_testkit::Unordered;
use pmindex_testkit::conformance::{Simulated, Subject, ends, maker, scaled};
use pmindex_testkit::crash::{Campaign, CrashIndex, IndexSubject};

use crate::base::Base;
use crate::layout::Root;
use crate::{Buffered, ByHash, ByKey};

type Hashed<const LOGGED: bool> =
    Unordered<Buffered<ByHash<Cceh<u64, u64, Mapped, 3, 2>>, Mapped, LOGGED, 16>>;
type Tree<const LOGGED: bool> =
    Buffered<ByKey<FastFair<u64, u64, Mapped, 4, 4>>, Mapped, LOGGED, 8>;
/// The same with batches out of place, and searched in DRAM.
type HashedAnew<const LOGGED: bool> =
    Unordered<Buffered<ByHash<Cceh<u64, u64, Mapped, 3, 2>, true>, Mapped, LOGGED, 16>>;
type TreeAnew<const LOGGED: bool> =
    Buffered<ByKey<FastFair<u64, u64, Mapped, 4, 4>, true, true>, Mapped, LOGGED, 8>;
type List<const LOGGED: bool> = Buffered<ByKey<SkipList<u64, u64, Mapped, 2>>, Mapped, LOGGED, 8>;

pmindex_testkit::conformance! {
    hashed_logged: Hashed<true>, keys u64, values u64, groups [model];
    hashed_anew: HashedAnew<true>, keys u64, values u64, groups [checked, threads];
    tree_logged: Tree<true>, keys u64, values u64, groups [model, edges];
    tree_anew: TreeAnew<true>, keys u64, values u64, groups [model, checked, threads];
    list_logged: List<true>, keys u64, values u64, groups [checked];
    /// An index that loses its buffers in a crash fails every test that drops an index without closing it.
    tree_lost: Tree<false>, keys u64, values u64, groups [threads];
}

/// Small buffers and nodes, for the deterministic scheduler.
struct Scheduled<I>(PhantomData<I>);

impl<I: PmIndex<u64, u64, Traced> + 'static> Subject for Scheduled<I> {
    type Key = u64;
    type Value = u64;
    type Bed = Simulated;
    type Index = I;
}

#[test]
fn the_ends_are_of_one_moment_of_all_buffers() {
    type Tree<const ANEW: bool, const LOGGED: bool> =
        Buffered<ByKey<FastFair<u64, u64, Traced, 4, 4>, ANEW, ANEW>, Traced, LOGGED, 2>;
    type List = Buffered<ByKey<SkipList<u64, u64, Traced, 2>>, Traced, true, 2>;
    ends(maker::<Scheduled<Tree<false, true>>>(), scaled(10)).expect("one moment");
    ends(maker::<Scheduled<Tree<true, false>>>(), scaled(10)).expect("one moment");
    ends(maker::<Scheduled<List>>(), scaled(10)).expect("one moment");
}

/// Buffers without a log, for the crash explorer.
struct Lost<I>(PhantomData<I>);

impl<I: PmIndex<u64, u64, Traced> + 'static> CrashIndex for Lost<I> {
    type Key = u64;
    type Value = u64;
    type Index = I;
    const NAME: &'static str = "lost on crash";

    fn key(n: u64) -> u64 {
        n
    }

    fn value(n: u64) -> u64 {
        n
    }

    fn owns(_: &Location<'static>) -> bool {
        false
    }
}

/// Runs the crash explorer until it finds that a write is lost.
fn expect_loss<I: PmIndex<u64, u64, Traced> + 'static>() {
    let campaign = Campaign { states: 2_000, seed: 1, mutate: false, slots: None };
    let findings = campaign.run::<IndexSubject<Lost<I>>>();
    let failure = findings.failure.expect("a buffer is lost").to_string();
    assert!(failure.contains("not explained"), "{failure}");
}

/// An index that is marked as lost on crash does lose writes, and the crash explorer finds that.
#[test]
fn the_crash_explorer_finds_what_is_lost_without_a_log() {
    type LostTree<const ANEW: bool> =
        Buffered<ByKey<FastFair<u64, u64, Traced, 4, 4>, ANEW, ANEW>, Traced, false, 2>;
    type LostHash = Buffered<ByHash<Cceh<u64, u64, Traced, 2, 2>, true>, Traced, false, 2>;
    const { assert!(LostTree::<false>::LOST_ON_CRASH && LostTree::<true>::LOST_ON_CRASH) };
    const { assert!(LostHash::LOST_ON_CRASH) };
    expect_loss::<LostTree<false>>();
    expect_loss::<LostTree<true>>();
    expect_loss::<Unordered<LostHash>>();
}

/// A tree that panics in each batch while [`DIES`] is set, as a process that is killed there.
struct Dying(ByKey<FastFair<u64, u64, Mapped, 4, 4>>);

thread_local! {
    static DIES: Cell<bool> = const { Cell::new(false) };
}

impl Base<Mapped> for Dying {
    const NAME: &'static str = "dying";

    fn rank(key: u64) -> u64 {
        key
    }
    fn create(pool: &Arc<Pool>, name: &str) -> Result<Self, IndexError> {
        Base::create(pool, name).map(Self)
    }
    fn open(pool: &Arc<Pool>, name: &str) -> Result<Self, IndexError> {
        Base::open(pool, name).map(Self)
    }
    fn close(self) -> Result<(), IndexError> {
        Base::close(self.0)
    }
    fn destroy(pool: &Arc<Pool>, name: &str) -> Result<bool, IndexError> {
        <ByKey<FastFair<u64, u64, Mapped, 4, 4>> as Base<Mapped>>::destroy(pool, name)
    }
    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        Base::blocks(&self.0)
    }
    fn get(&self, key: u64) -> Result<Option<u64>, IndexError> {
        Base::get(&self.0, key)
    }
    fn put(&self, key: u64, value: u64) -> Result<(), IndexError> {
        Base::put(&self.0, key, value)
    }
    fn remove(&self, key: u64) -> Result<(), IndexError> {
        Base::remove(&self.0, key)
    }
    fn add(&self, records: &[(u64, u64)]) -> InsertMany {
        assert!(!DIES.get(), "killed");
        Base::add(&self.0, records)
    }
    fn records(&self) -> Result<u64, IndexError> {
        Base::records(&self.0)
    }
    fn check(&self) -> Result<u64, IndexError> {
        Base::check(&self.0)
    }
    fn stats(&self) -> Result<Stats, IndexError> {
        Base::stats(&self.0)
    }
    fn report(&self) -> RecoveryReport {
        Base::report(&self.0)
    }
}

/// No segment of the log is freed before the index has the writes in it. Records 0, 1 and 4 share a lane and, while
/// these are all, a buffer; the entry of record 0 is in the lane's first segment.
#[test]
fn a_kill_before_a_batch_loses_nothing_of_a_segment_that_would_be_freed_after_it() {
    type Frail = Buffered<Dying, Mapped, true, 2>;
    let pool = Arc::new(Pool::emulated(256 << 10).expect("memory"));
    let index = Frail::create_new(&pool, "i").expect("room");
    let write = |key, value| {
        let _ = index.write(key, |_| Some(Some(value))).expect("room");
    };
    write(0, 7);
    (0..40).for_each(|value| write(1, value));
    DIES.set(true);
    let killed = catch_unwind(AssertUnwindSafe(|| write(4, 4)));
    DIES.set(false);
    assert!(killed.is_err(), "the buffer was written to the index");
    drop(index);
    let index = Frail::open_old(&pool, "i").expect("sound");
    assert_eq!(index.look_up(0).expect("sound"), Some(7));
    assert_eq!(index.look_up(1).expect("sound"), Some(39));
}

/// The batch of one buffer frees no segment with an entry that another buffer needs.
#[test]
fn the_log_keeps_the_entries_of_other_buffers() {
    type Small = Buffered<ByKey<FastFair<u64, u64, Mapped, 4, 4>>, Mapped, true, 2>;
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let index = Small::create_new(&pool, "i").expect("room");
    let write = |key| {
        let _ = index.write(key, |_| Some(Some(key + 7))).expect("room");
    };
    let buffered = |key| index.base.get(key).expect("sound").is_none();
    // Neighbours on both sides, so that later keys have buffers of their own.
    (0..200).filter(|key| key % 10 != 0).for_each(write);
    (0..200).filter(|key| key % 10 == 0).for_each(write);
    let alone: Vec<u64> = (0..150).filter(|&key| buffered(key)).collect();
    assert!(!alone.is_empty(), "no buffer has a record");
    (1000..20_000).for_each(write);
    assert!(alone.iter().all(|&key| buffered(key)), "a buffer of few records was written");
    drop(index);
    let index = Small::open_old(&pool, "i").expect("sound");
    for key in alone {
        assert_eq!(index.look_up(key).expect("sound"), Some(key + 7), "{key}");
    }
}

/// A batch that is in the index is no longer in the buffer, also if the space of its entries cannot be freed: here the
/// only slot is taken.
#[test]
fn what_a_batch_wrote_is_not_written_again_if_the_log_keeps_its_space() {
    type Small = Buffered<ByKey<FastFair<u64, u64, Mapped, 4, 4>>, Mapped, true, 2>;
    let options = PoolOptions::new().size(1 << 20).slots(1).grow(false).emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
    let index = Small::create_new(&pool, "i").expect("room");
    let write = |value| {
        let _ = index.write(1, |_| Some(Some(value))).expect("room");
    };
    (0..400).for_each(write); // several segments
    let slot = pool.op().expect("free");
    let busy = index.drain();
    assert!(matches!(busy, Err(IndexError::Pool(PmError::Busy { .. }))), "{busy:?}");
    drop(slot);
    assert_eq!(index.base.get(1).expect("sound"), Some(399));
    write(1000);
    index.drain().expect("room");
    assert_eq!(index.look_up(1).expect("sound"), Some(1000));
}

fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes 40 records and drops the index as a crash does; returns the surviving ones.
fn survivors<I: PmIndex<u64, u64, Mapped>>() -> Vec<u64> {
    let pool = Arc::new(Pool::emulated(2 << 20).expect("memory"));
    let index = I::create(&pool, "i").expect("room");
    for n in 0..40 {
        index.try_insert(&scattered(n), &n).expect("room").expect("new");
    }
    drop(index);
    let index = I::open(&pool, "i").expect("sound");
    (0..40).filter(|&n| index.get(&scattered(n)).expect("sound") == Some(n)).collect()
}

#[test]
fn a_log_keeps_what_is_in_buffers_and_without_one_it_is_lost() {
    let all: Vec<u64> = (0..40).collect();
    assert_eq!(survivors::<HashedAnew<true>>(), all);
    assert_eq!(survivors::<TreeAnew<true>>(), all);
    assert_eq!(survivors::<List<true>>(), all);
    // Records that were written to the index survive; those still in a buffer do not.
    for left in [
        survivors::<Hashed<false>>(),
        survivors::<HashedAnew<false>>(),
        survivors::<TreeAnew<false>>(),
        survivors::<List<false>>(),
    ] {
        assert!((16..40).contains(&left.len()), "{} of 40", left.len());
    }
}

/// The log's space does not grow with the number of writes, and after closing there is nothing to replay.
#[test]
fn the_log_gives_back_its_space() {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let index = Tree::<true>::create(&pool, "i").expect("room");
    let mut used = 0;
    for round in 0..40u64 {
        for n in 0..1000 {
            index.put(&scattered(n), &(n + round)).expect("room");
        }
        if round == 4 {
            used = pool.used_bytes();
        }
    }
    assert!(pool.used_bytes() <= used + used / 2, "{} after {used}", pool.used_bytes());
    drop(index);
    let index = Tree::<true>::open(&pool, "i").expect("sound");
    assert!((1..40_000).contains(&index.replayed()), "{}", index.replayed());
    PmIndex::close(index).expect("room");
    let index = Tree::<true>::open(&pool, "i").expect("sound");
    assert_eq!(index.replayed(), 0);
    assert_eq!(index.len().expect("sound"), 1000);
    assert!((0..1000).all(|n| index.get(&scattered(n)).expect("sound") == Some(n + 39)));
}

/// A range is halved for new records, and not for new values of records that it has.
#[test]
fn updates_make_no_new_buffers() {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let index = Tree::<true>::create(&pool, "i").expect("room");
    let write = |round: u64| {
        for n in 0..1000 {
            index.put(&scattered(n), &(n + round)).expect("room");
        }
        index.stats().expect("sound").dram_bytes
    };
    write(0);
    let made = write(1);
    let later = (2..40).map(write).max();
    assert_eq!(later, Some(made));
}

/// Returns the bytes that the medium writes for each of many inserts in random order, after the same number
/// of inserts.
fn media_bytes<I: PmIndex<u64, u64, Mapped>>() -> f64 {
    const RECORDS: u32 = 20_000;
    let pool = Arc::new(Pool::counting(16 << 20).expect("memory"));
    let index = I::create(&pool, "i").expect("room");
    let insert =
        |n: u32| index.try_insert(&scattered(n.into()), &n.into()).expect("room").expect("new");
    (0..RECORDS).for_each(&insert);
    let before = pool.pm().counter().expect("it counts").counts();
    (RECORDS..2 * RECORDS).for_each(insert);
    let written =
        u32::try_from((pool.pm().counter().expect("it counts").counts() - before).media_written)
            .expect("some MB");
    f64::from(written) / f64::from(RECORDS)
}

/// The study's figure 2: buffers reduce the writes of the medium where inserts go to one place.
#[test]
fn buffers_write_less_to_the_medium() {
    type PlainHash = Cceh<u64, u64>;
    type PlainTree = FastFair<u64, u64>;
    type PlainList = SkipList<u64, u64>;
    type LostHash = Unordered<Buffered<ByHash<PlainHash>, Mapped, false>>;
    type LostTree = Buffered<ByKey<PlainTree>, Mapped, false>;
    type LostList = Buffered<ByKey<PlainList>, Mapped, false>;
    let hash = (media_bytes::<Unordered<PlainHash>>(), media_bytes::<LostHash>());
    let tree = (media_bytes::<PlainTree>(), media_bytes::<LostTree>());
    let list = (media_bytes::<PlainList>(), media_bytes::<LostList>());
    println!("bytes of an insert, without and with buffers: {hash:?}, {tree:?}, {list:?}");
    assert!(tree.1 < 0.8 * tree.0, "{tree:?}");
}

/// A damaged anchor of the log drops no write that only the log has, and takes no sequence that segments cannot have.
#[test]
fn a_damaged_anchor_of_the_log_drops_no_write() {
    type Small = Buffered<ByKey<FastFair<u64, u64, Mapped, 4, 4>>, Mapped, true, 2>;
    let damages: [fn(u64) -> u64; 5] =
        [|sound| sound + 5, |sound| sound | 1 << 46, |sound| sound | 1 << 47, |_| u64::MAX, |_| 0];
    for (n, damage) in damages.into_iter().enumerate() {
        let pool = Arc::new(Pool::emulated(2 << 20).expect("memory"));
        let index = Small::create_new(&pool, "i").expect("room");
        let write = |index: &Small, key| {
            let _ = index.write(key, |_| Some(Some(key + 7))).expect("room");
        };
        (0..40).for_each(|key| write(&index, key));
        index.close_base().expect("room");
        let mut index = Small::open_old(&pool, "i").expect("sound");
        assert_eq!(index.replayed(), 0);
        for round in 1..4 {
            (40 * round..40 * round + 40).for_each(|key| write(&index, key));
            let root: &Root =
                pool.get(index.journal.as_ref().expect("a log").entry.root()).expect("a root");
            let anchor = &pool.get(pool.pm().load(&root.log)).expect("a log").anchor;
            if round == 1 {
                pool.pm().store(anchor, damage(pool.pm().load(anchor)));
            }
            drop(index);
            index = Small::open_old(&pool, "i").expect("sound");
            for key in 0..40 * round + 40 {
                let found = index.look_up(key).expect("sound");
                assert_eq!(found, Some(key + 7), "damage {n}, round {round}");
            }
        }
        index.close_base().expect("room");
        let index = Small::open_old(&pool, "i").expect("sound");
        assert_eq!((index.replayed(), index.look_up(159).expect("sound")), (0, Some(166)));
    }
}
