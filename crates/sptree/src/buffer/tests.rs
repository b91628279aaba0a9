//! Write buffers: recovery, the budget, the sweep, pieces.

mod preempted;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Mapped, Medium, Pool, PoolOptions};
use pmindex_record::{EncodedValue, Probe, Route};

use super::table::BufferTable;
use crate::SpTree;
use crate::log::{Location, SEQ_MAX};
use crate::order::Order;

type Buffered<M> = SpTree<u64, u64, M, 8, 4>;
type Tree = Buffered<Mapped>;

/// The most DRAM of a buffer of it.
const BYTES: u64 = BufferTable::<u64, u64>::bytes(4);

fn tree() -> (Arc<Pool>, Tree) {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = Tree::create(&pool, "t").expect("room");
    (pool, tree)
}

fn reopen(pool: &Arc<Pool>, tree: Tree) -> Tree {
    drop(tree);
    Tree::open(pool, "t").expect("intact")
}

#[test]
fn everything_comes_back_when_all_is_deleted_and_closed() {
    let (pool, mut tree) = tree();
    let size = |tree: &Tree| -> u64 {
        let blocks = tree.blocks().expect("sound").into_iter();
        blocks
            .map(|block| pool.block_size(pmindex_core::PPtr::<u64>::new(block)).expect("live"))
            .sum()
    };
    let empty = size(&tree);
    for key in 0..4000u64 {
        tree.try_insert(&key, &key).expect("room").expect("done");
    }
    for key in 0..4000u64 {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key));
    }
    tree.close().expect("intact");
    tree = Tree::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), 0);
    assert!(size(&tree) < empty + 1024, "{} bytes, {empty} at first", size(&tree));
}

/// Operations of a pool that was created small have few tickets, and its blocks are small, however far it grows: a
/// checkpoint of many buffers has more pieces than an operation can allocate, and free.
#[test]
fn a_checkpoint_fits_a_pool_that_was_created_small() {
    const RECORDS: u64 = 100_000;
    let options = PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(256);
    let options = options.max_size(64 << 20).emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
    pool.grow(16 << 20).expect("addresses"); // so that the log is as large as any
    let tree = Tree::create(&pool, "t").expect("room");
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut most = 0;
    for n in 0..RECORDS {
        let key = scattered(n);
        assert!(tree.try_insert(&key, &n).expect("room").is_ok());
        let log = &tree.buffers().expect("some").log;
        if n % 10_000 == 9_999 {
            most = most.max(log.bytes() / tree.stats().expect("sound").leaves);
            assert!(tree.make_checkpoint().expect("room"));
            assert!(!log.wants(), "{n}: no write makes another one");
        }
    }
    assert!(most < 2000, "{most} bytes of the log for each leaf");
    pool.audit(tree.blocks().expect("sound").into_iter()).expect("no leak");
    let tree = reopen(&pool, tree);
    assert_eq!(tree.check().expect("sound"), RECORDS);
    assert!((0..RECORDS).all(|n| tree.get(&scattered(n)).expect("intact") == Some(n)));
    tree.close().expect("room");
    let tree = Tree::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), RECORDS);
    pool.audit(tree.blocks().expect("sound").into_iter()).expect("no leak");
}

/// Every attempt to rebuild the layers says what is wrong with the log, not what the first attempt has left.
#[test]
fn a_chain_that_cannot_be_restored_is_said_to_be_so_each_time() {
    let (pool, tree) = tree();
    for key in 0..100u64 {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
    }
    assert!(tree.make_checkpoint().expect("room"));
    let buffers = tree.buffers().expect("some");
    let last = buffers.unabsorbed().last().expect("one");
    let entry = buffers.log.entry(buffers.table.chain(last).head).expect("whole");
    pool.pm().store(&entry.payload[0], 1000);
    drop(tree);
    let tree = Tree::open_serving(&pool, "t").expect("served");
    let attempt = || loop {
        if let Err(error) = tree.step() {
            break error.to_string();
        }
    };
    let first = attempt();
    assert!(first.contains("an entry of the log"), "{first}");
    assert_eq!(attempt(), first);
    assert_eq!(tree.len().map_err(|error| error.to_string()), Err(first));
}

#[test]
fn a_buffer_is_read_at_once_and_restored() {
    let (pool, tree) = tree();
    for key in 0..100u64 {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
    }
    for key in (0..100).step_by(3) {
        assert_eq!(tree.remove(&key).expect("intact"), Some(key));
        assert!(tree.update(&(key + 1), &0).expect("room").is_ok() == (key + 1 < 100));
    }
    let want = |key: u64| (!key.is_multiple_of(3)).then_some(if key % 3 == 1 { 0 } else { key });
    drop(tree);
    let tree = Tree::open_serving(&pool, "t").expect("intact");
    for key in (0..100).rev() {
        assert_eq!(
            tree.get(&key).expect("intact"),
            want(key),
            "{key}, before the buffers are back"
        );
    }
    while tree.step().expect("intact") {}
    for key in 0..100 {
        assert_eq!(tree.get(&key).expect("intact"), want(key), "{key}");
    }
    assert_eq!(tree.check().expect("sound"), 66);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.len().expect("intact"), 66);
}

#[test]
fn what_went_past_a_buffer_is_not_undone_by_its_chain() {
    let (pool, mut tree) = tree();
    // Full Bnodes: updates are in place; the chain has older values of the same keys.
    for round in 1..6u64 {
        for key in 0..40u64 {
            tree.put(&key, &(key * round)).expect("room");
        }
        for key in 0..40u64 {
            assert_eq!(tree.get(&key).expect("intact"), Some(key * round));
        }
        tree = reopen(&pool, tree);
        for key in 0..40u64 {
            assert_eq!(tree.get(&key).expect("intact"), Some(key * round), "round {round}");
        }
    }
    tree.check().expect("sound");
}

#[test]
fn a_bnode_in_reused_memory_has_no_chain() {
    let (pool, mut tree) = tree();
    for round in 0..30u64 {
        for key in 0..60u64 {
            assert!(
                tree.try_insert(&(key + round % 7), &round).expect("room").is_ok(),
                "{round} {key}"
            );
        }
        tree = reopen(&pool, tree);
        for key in 0..60u64 {
            assert_eq!(tree.remove(&(key + round % 7)).expect("intact"), Some(round));
        }
        if round % 3 == 0 {
            tree = reopen(&pool, tree);
        }
        assert_eq!(tree.check().expect("sound"), 0, "round {round}");
    }
}

#[test]
fn a_number_that_is_given_back_leaves_a_buffer_as_it_was() {
    let table = BufferTable::<u64, u64>::new(8).expect("memory");
    let buffer = table.alloc(1, true, SEQ_MAX, true).expect("room");
    let state = || (table.is_absorbed(buffer), table.chain(buffer).seq);
    assert_eq!(state(), (true, SEQ_MAX));
    let number = table.next_seq(buffer);
    assert_eq!((number.seq, state()), (SEQ_MAX + 1, (false, SEQ_MAX + 1)));
    table.give_back_seq(buffer, number);
    assert_eq!(state(), (true, SEQ_MAX), "nothing for the Bnode to absorb");
    // A write that a panic cut short leaves its number used: perhaps its entry is there.
    let _ = table.next_seq(buffer);
    let number = table.next_seq(buffer);
    table.give_back_seq(buffer, number);
    assert_eq!(state(), (false, SEQ_MAX + 1));
    table.clear(buffer);
    assert_eq!(state(), (true, SEQ_MAX + 1));
}

#[test]
fn what_a_full_buffer_says_does_not_touch() {
    let table = BufferTable::<u64, u64>::new(8).expect("memory");
    let buffer = table.alloc(3, true, SEQ_MAX, true).expect("room");
    let place = |n: u64| Location::from_bits(0xfff0_7fff ^ (n as u32) << 16 ^ n as u32);
    let room = BufferTable::<u64, u64>::room(14) as u64;
    for n in 0..room + 2 {
        let (key, value) = (n % room, u64::MAX - n); // the last two are written again
        let (probe, datum) =
            (Probe::<u64>::new(&key).unwrap(), EncodedValue::<u64>::new(&value).unwrap());
        let seq = table.next_seq(buffer).seq;
        let birth = SEQ_MAX + if n == 0 { 5 } else { n % 4 };
        assert!(table.birth(buffer).is_none() || n > 0);
        table.reserve(buffer, key as usize).expect("room");
        table.stage(buffer, key as usize, &probe, Some(&datum), n % 3 == 0);
        table.publish(buffer, key as usize, Some(&datum), (place(n), birth));
        let chain = table.chain(buffer);
        assert_eq!((chain.head, chain.seq), (place(n), seq));
        let least = SEQ_MAX + [5, 1, 1, 1].get(n as usize).copied().unwrap_or(0);
        assert_eq!(table.birth(buffer), Some(least), "the least of all");
    }
    for key in 0..room {
        let probe = Probe::<u64>::new(&key).unwrap();
        let hit = table.find(buffer, &probe).expect("there");
        assert_eq!((hit.entry as u64, hit.deleted), (key, false));
        assert_eq!(table.is_known(buffer, hit.entry), key % 3 == 0);
        let value = u64::MAX - if key < 2 { key + room } else { key };
        assert_eq!(table.value(buffer, hit.entry), value);
    }
    assert_eq!(table.new_keys(buffer) as u64, room - room.div_ceil(3));
    assert_eq!((table.state(buffer).node(), table.is_absorbed(buffer)), (3, false));
}

/// The keys of leaf `n` of [`spread`].
fn keys_of(leaf: u64) -> std::ops::Range<u64> {
    16 * leaf..16 * leaf + 8
}

/// Writes a key that is there as a buffer is needed for: it goes, and comes back.
fn rewrite<M: Medium>(tree: &Buffered<M>, key: u64, value: u64) {
    assert!(tree.remove(&key).expect("intact").is_some());
    assert!(tree.try_insert(&key, &value).expect("room").is_ok());
}

/// `leaves` leaves, drained, with a budget of `buffers` buffers, all of which the first leaves got.
fn spread<M: Medium>(pool: &Arc<Pool<M>>, leaves: u64, buffers: u64) -> Buffered<M> {
    let tree = Buffered::create(pool, "t").expect("room");
    tree.bulk_load(&mut (0..leaves).flat_map(keys_of).map(|key| (key, 0))).expect("room");
    tree.set_buffer_budget(BYTES * buffers);
    for leaf in 0..leaves {
        rewrite(&tree, 16 * leaf, 1);
    }
    assert_eq!(with_buffer(&tree).len() as u64, buffers);
    tree
}

/// The least keys of the leaves that have a buffer.
fn with_buffer<M: Medium>(tree: &Buffered<M>) -> Vec<u64> {
    let mut keys = Vec::new();
    let having = tree.walk(|node, bnode, _| {
        if tree.leaves.middle.buffer(node).is_some() {
            let order = Order::of(&tree.pool, bnode, bnode.taken(tree.pm()))?;
            keys.push(tree.pm().load_word(&bnode.slot(order.slot(0))[0]));
        }
        Ok(())
    });
    having.expect("intact");
    assert_eq!(keys.len() as u64, tree.buffers().expect("some").table.live());
    keys
}

/// Scattered numbers below `bound`.
fn scattered(bound: u64) -> impl Iterator<Item = u64> {
    let mut seed = 7u64;
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    })
}

#[test]
fn leaves_without_a_buffer_are_written_in_place() {
    let (pool, tree) = tree();
    tree.set_buffer_budget(2 * BYTES);
    for key in 0..500u64 {
        assert!(tree.try_insert(&(key * 7919 % 500), &key).expect("room").is_ok());
    }
    assert_eq!(with_buffer(&tree).len(), 2);
    let tree = reopen(&pool, tree);
    assert_eq!(tree.check().expect("sound"), 500);
}

#[test]
fn the_leaves_that_are_written_most_have_the_buffers() {
    const LEAVES: u64 = 192;
    const BUFFERS: u64 = 12;
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = spread(&pool, LEAVES, BUFFERS);
    let first: Vec<u64> = with_buffer(&tree);
    let mut numbers = scattered(1 << 20);
    let mut number = || numbers.next().unwrap_or(0);
    // Nine writes of ten go to some leaves at the far end, then to others.
    for hot in [150..160, 30..40, 175..185u64] {
        let leaves = |keys: &[u64]| keys.iter().filter(|&&key| hot.contains(&(key / 16))).count();
        assert!(leaves(&with_buffer(&tree)) <= 2, "the first ones: {first:?}");
        for round in 0..6000 {
            let leaf =
                if number() % 10 < 9 { hot.start + number() % 10 } else { number() % LEAVES };
            rewrite(&tree, 16 * leaf + number() % 8, round);
        }
        let now = with_buffer(&tree);
        assert_eq!(now.len() as u64, BUFFERS, "within the budget, and all of it");
        assert!(leaves(&now) >= 9, "{hot:?}: {now:?}");
    }
    assert_eq!(tree.check().expect("sound"), LEAVES * 8);
    drop(tree);
    let tree = Buffered::<Mapped>::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), LEAVES * 8);
}

/// The Mnode of a key.
fn mnode<M: Medium>(tree: &Buffered<M>, key: u64) -> &crate::middle::Mnode {
    let probe = Probe::<u64>::new(&key).expect("a key");
    tree.locate(&Route::to(&probe)).node
}

/// Fences of `writes` writes to leaves at random.
fn fences_at_random(buffers: u64, writes: usize) -> u64 {
    const LEAVES: u64 = 200;
    let pool = Arc::new(Pool::counting(8 << 20).expect("memory"));
    let tree: Buffered<Mapped> = spread(&pool, LEAVES, buffers);
    pool.pm().counter().expect("it counts").reset();
    for (leaf, slot) in scattered(LEAVES).zip(scattered(8)).take(writes) {
        rewrite(&tree, 16 * leaf + slot, 3);
    }
    pool.pm().counter().expect("it counts").counts().fences
}

#[test]
fn buffers_stay_where_they_are_while_all_leaves_are_written_alike() {
    let (none, some) = (fences_at_random(0, 20_000), fences_at_random(20, 20_000));
    assert_eq!(none, 3 * 20_000, "in place: one that goes takes 1, one that comes 2");
    // A tenth of them is buffered, which saves some of these. The rest is moves.
    assert!(some < none + none / 40, "{some} fences, {none} without buffers");
}

#[test]
fn a_smaller_budget_takes_buffers_away_and_none_takes_all() {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = spread(&pool, 50, 40);
    for most in [39, 7, 0] {
        tree.set_buffer_budget(most * BYTES);
        while tree.step().expect("room") {}
        assert_eq!(with_buffer(&tree).len() as u64, most);
        assert_eq!(tree.check().expect("sound"), 400);
    }
    for leaf in 0..50 {
        for round in 0..40 {
            rewrite(&tree, 16 * leaf, round);
        }
    }
    assert_eq!(with_buffer(&tree).len(), 0);
    tree.set_buffer_budget(u64::MAX);
    for leaf in 0..50 {
        rewrite(&tree, 16 * leaf, leaf);
    }
    assert_eq!(with_buffer(&tree).len(), 50);
    let tree = reopen(&pool, tree);
    for leaf in 0..50 {
        assert_eq!(tree.get(&(16 * leaf)).expect("intact"), Some(leaf));
    }
}

/// What costs a line and a fence anyway has no entry; whatever else is in the buffer, and wherever a
/// crash comes, nothing older comes back.
#[test]
fn updates_of_a_word_and_removals_past_the_buffer_leave_no_entry_and_are_not_undone() {
    let pool = Arc::new(Pool::counting(8 << 20).expect("memory"));
    let tree = Buffered::<Mapped>::create(&pool, "t").expect("room");
    tree.bulk_load(&mut (0..8).map(|key| (key, key))).expect("room");
    assert_eq!(tree.remove(&7).expect("intact"), Some(7));
    assert!(tree.try_insert(&100, &100).expect("room").is_ok(), "in the buffer");
    pool.pm().counter().expect("it counts").reset();
    assert!(tree.update(&1, &11).expect("room").is_ok());
    assert_eq!(tree.remove(&2).expect("room"), Some(2));
    let counts = pool.pm().counter().expect("it counts").counts();
    assert_eq!((counts.lines, counts.nt_lines, counts.fences), (2, 0, 2), "none in the log");
    // What the buffer has stays its business.
    assert!(tree.update(&100, &101).expect("room").is_ok());
    assert_eq!(tree.remove(&100).expect("intact"), Some(101));
    assert!(tree.try_insert(&101, &5).expect("room").is_ok());
    let want = [(0, 0), (1, 11), (3, 3), (4, 4), (5, 5), (6, 6), (101, 5)];
    let reopened = std::iter::once_with(|| Buffered::<Mapped>::open(&pool, "t").expect("intact"));
    for tree in std::iter::once(tree).chain(reopened) {
        let records: Vec<_> = tree.iter().map(|record| record.expect("intact")).collect();
        assert_eq!(records, want);
        assert_eq!(tree.check().expect("sound"), 7);
    }
}

/// The record that fills a buffer is absorbed with it: 3 entries, then all four by two fences.
#[test]
fn the_record_that_fills_a_buffer_takes_no_entry() {
    let pool = Arc::new(Pool::counting(8 << 20).expect("memory"));
    let tree = Buffered::<Mapped>::create(&pool, "t").expect("room");
    assert!(tree.try_insert(&0, &0).expect("room").is_ok(), "makes a segment");
    pool.pm().counter().expect("it counts").reset();
    for key in 1..3u64 {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
    }
    let counts = pool.pm().counter().expect("it counts").counts();
    assert_eq!((counts.lines, counts.nt_lines, counts.fences), (2, 2, 2));
    assert!(tree.try_insert(&3, &3).expect("room").is_ok());
    let counts = pool.pm().counter().expect("it counts").counts();
    assert_eq!((counts.lines, counts.nt_lines, counts.fences), (2 + 2 + 1, 2, 2 + 2));
    drop(tree);
    let tree = Buffered::<Mapped>::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), 4);
}

/// Log segments that a tree has, right after a checkpoint.
fn segments_of<M: Medium>(tree: &Buffered<M>) -> usize {
    assert!(tree.make_checkpoint().expect("room"));
    tree.buffers().expect("some").log.blocks().expect("sound").len()
}

/// A leaf that is written once and no more keeps its entry in the log until the sweep comes by: the log
/// is as long as one round of it, however much is written.
#[test]
fn the_log_is_as_long_as_a_round_of_the_sweep() {
    const LEAVES: u64 = 100;
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = spread(&pool, LEAVES, LEAVES);
    let buffers = tree.buffers().expect("some");
    let number = |leaf: u64| tree.leaves.middle.buffer(mnode(&tree, 16 * leaf)).expect("has one");
    let idle = number(LEAVES - 1);
    let (mut most, mut least) = (0, usize::MAX);
    for round in 0..20 {
        rewrite(&tree, 16 * (LEAVES - 1), round);
        assert!(!buffers.table.is_absorbed(idle), "an entry of its own");
        for (leaf, slot) in scattered(LEAVES - 1).zip(scattered(8)).take(600) {
            rewrite(&tree, 16 * leaf + slot, round);
        }
        assert!(buffers.table.is_absorbed(idle), "round {round}");
        let segments = segments_of(&tree);
        (most, least) = (most.max(segments), least.min(segments));
    }
    assert!(most <= least + least / 2, "{least} to {most} blocks");
    assert_eq!(tree.check().expect("sound"), LEAVES * 8);
    drop(tree);
    let tree = Buffered::<Mapped>::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), LEAVES * 8);
}

/// Sweeps on; returns whether that was due.
fn sweep<M: Medium>(tree: &Buffered<M>) -> bool {
    let swept = tree.buffers().expect("some").sweep(&tree.leaves).expect("room");
    let any = swept.is_some();
    tree.merge_nearly_empty(swept.unwrap_or_default());
    any
}

/// Eight buffers that the sweep absorbs together take two fences, and nothing is lost with the log.
#[test]
fn buffers_that_are_absorbed_together_share_their_fences() {
    let pool = Arc::new(Pool::counting(8 << 20).expect("memory"));
    let tree: Buffered<Mapped> = spread(&pool, 9, 9);
    let buffers = tree.buffers().expect("some");
    tree.drain().expect("room");
    // Nothing is due until the entries of eight leaves are old: by those of the ninth.
    let forget = || {
        buffers.log.take_appended(1, u32::MAX);
    };
    for leaf in 0..8 {
        rewrite(&tree, 16 * leaf, 2);
    }
    forget();
    for round in 0..100 {
        assert!(tree.remove(&128).expect("intact").is_some());
        forget();
        assert!(tree.try_insert(&128, &round).expect("room").is_ok());
        forget();
    }
    let absorbed = || {
        let number =
            |leaf: u64| tree.leaves.middle.buffer(mnode(&tree, 16 * leaf)).expect("has one");
        (0..8).filter(|&leaf| buffers.table.is_absorbed(number(leaf))).count()
    };
    assert_eq!(absorbed(), 0);
    buffers.swept.store(0, Relaxed);
    buffers.log.note_appended(16);
    pool.pm().counter().expect("it counts").reset();
    assert!(sweep(&tree));
    assert_eq!(pool.pm().counter().expect("it counts").counts().fences, 2);
    assert_eq!(absorbed(), 8);
    assert!(!sweep(&tree), "not due");
    drop(tree);
    let tree = Buffered::<Mapped>::open(&pool, "t").expect("intact");
    assert_eq!(tree.check().expect("sound"), 72);
}

/// Pieces of a tree's buffers.
fn pieces<M: Medium>(tree: &Buffered<M>) -> usize {
    tree.buffers().expect("some").table.check_pieces()
}

#[test]
fn pieces_are_taken_with_the_entries_and_given_back_with_the_buffer() {
    type Wide = SpTree<u64, u64, Mapped, 64, 14>;
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = Wide::create(&pool, "t").expect("room");
    let pieces = |tree: &Wide| tree.buffers().expect("some").table.check_pieces();
    for key in 0..12u64 {
        assert!(tree.try_insert(&key, &key).expect("room").is_ok());
        assert_eq!(pieces(&tree), 1 + key as usize / 4, "four to a piece");
        assert!(key > 2 || !tree.put(&key, &0).expect("room"), "its entry is there");
    }
    drop(tree);
    let tree = Wide::open(&pool, "t").expect("intact");
    tree.check().expect("sound");
    assert!(tree.try_insert(&99, &99).expect("room").is_ok());
    for key in 1000..3000u64 {
        assert!(tree.try_insert(&(100 + key * 7919 % 20_011), &key).expect("room").is_ok());
        pieces(&tree);
    }
    let most = pieces(&tree);
    assert!(most > 0);
    tree.drain().expect("room");
    assert_eq!(pieces(&tree), 0);
    for key in 1000..3000u64 {
        assert_eq!(tree.remove(&(100 + key * 7919 % 20_011)).expect("intact"), Some(key));
        pieces(&tree);
    }
    tree.drain().expect("room");
    assert_eq!(pieces(&tree), 0);
}

#[test]
fn pieces_go_with_the_buffers_that_are_taken_away() {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let tree = spread(&pool, 50, 40);
    assert_eq!(pieces(&tree), 40, "one entry in each");
    for most in [39, 7, 0] {
        tree.set_buffer_budget(most * BYTES);
        while tree.step().expect("room") {}
        assert_eq!(pieces(&tree) as u64, most);
    }
}

/// Where there are no more pieces, buffers are absorbed before they are full, and others stay empty.
#[test]
fn without_pieces_writes_are_in_place() {
    for some in [0, 1, 5] {
        let (pool, tree) = tree();
        for key in 0..200u64 {
            assert!(tree.try_insert(&key, &key).expect("room").is_ok());
        }
        let table = &tree.buffers().expect("some").table;
        tree.drain().expect("room");
        table.leave_pieces(some);
        let there =
            || table.state(tree.leaves.middle.buffer(mnode(&tree, 0)).expect("has one")).len();
        for key in 200..600u64 {
            assert!(tree.try_insert(&key, &key).expect("room").is_ok());
        }
        for key in 0..200u64 {
            assert_eq!(tree.remove(&key).expect("intact"), Some(key));
            assert!(tree.put(&key, &(key + 1)).expect("room"));
        }
        let many: Vec<(u64, u64)> = (600..900).map(|key| (key, key)).collect();
        assert_eq!(tree.try_insert_many(&many).inserted, vec![true; 300]);
        assert!(some > 0 || there() == 0, "no entry without a piece");
        assert_eq!(tree.check().expect("sound"), 900, "{some} pieces");
        let reopened = std::iter::once_with(|| Tree::open(&pool, "t").expect("intact"));
        for tree in std::iter::once(tree).chain(reopened) {
            for key in 0..900u64 {
                let want = if key < 200 { key + 1 } else { key };
                assert_eq!(tree.get(&key).expect("intact"), Some(want), "{key}, {some} pieces");
            }
        }
    }
}

/// Writers go on beside the sweep, which loses nothing of theirs.
#[test]
fn the_sweep_and_writers_race() {
    let (_, tree) = tree();
    let buffers = tree.buffers().expect("some");
    tree.bulk_load(&mut (0..4).flat_map(keys_of).map(|key| (key, 0))).expect("room");
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let tree = &tree;
            scope.spawn(move || {
                for round in 0..3000 {
                    rewrite(tree, 16 * (round % 4) + thread, round);
                }
            });
        }
        for _ in 0..3000 {
            buffers.log.note_appended(8);
            sweep(&tree);
        }
    });
    for leaf in 0..4 {
        for thread in 0..2 {
            assert_eq!(tree.get(&(16 * leaf + thread)).expect("intact"), Some(2996 + leaf));
        }
    }
    assert_eq!(tree.check().expect("sound"), 32);
    pieces(&tree);
}

#[test]
fn what_is_saved_of_a_damaged_index_is_what_its_log_says() {
    let (pool, tree) = tree();
    for key in 0..100u64 {
        tree.put(&key, &key).expect("room");
    }
    for key in (0..100).step_by(3) {
        tree.put(&key, &(key + 1000)).expect("room");
        tree.remove(&(key + 1)).expect("intact");
    }
    drop(tree);
    let mut saved = std::collections::BTreeMap::new();
    let damage = Tree::salvage(&pool, "t", None, &mut |key, value| {
        assert_eq!(saved.insert(key, value), None, "{key} twice");
        true
    });
    assert_eq!(damage.expect("an index"), []);
    let tree = Tree::open(&pool, "t").expect("intact");
    let records: Vec<_> = tree.iter().map(|record| record.expect("intact")).collect();
    assert!(records.iter().any(|&(key, value)| key != value), "{records:?}");
    assert_eq!(saved.into_iter().collect::<Vec<_>>(), records);
}
