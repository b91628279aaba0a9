//! The log's pitfalls, each with the faulty order first, its bounds, and files that lie.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, PPtr, PmError, PmPtr, PmU64, Pool, PoolOptions, words_of};
use pmindex_log::LANES;

use super::checkpoint::Heads;
use super::*;

type Cells = [PmU64; 8];

/// The log as the next process would open it, although it is open here.
fn reopened<T>(pool: &Arc<Pool<Mapped>>, cell: &PmPtr<T>) -> Result<Log<Mapped>, PmError> {
    let log = Log::look(pool, cell)?;
    while log.recover_step() {}
    Ok(log)
}

/// A pool with a cell for a log.
fn pool(bytes: usize) -> (Arc<Pool<Mapped>>, PPtr<Cells>) {
    let pool = Arc::new(Pool::emulated(bytes).expect("memory"));
    let entry = pool
        .create_index::<Cells>("log", *b"log     ", 1, |cells| {
            pool.pm().stream_words(words_of(cells), &[0; 8])
        })
        .expect("room");
    let root = entry.root();
    (pool, root)
}

fn cell(pool: &Pool<Mapped>, root: PPtr<Cells>) -> &PmPtr<PmU64> {
    pool.get(PPtr::new(root.offset())).expect("the root")
}

fn new_log(bytes: usize) -> (Arc<Pool<Mapped>>, PPtr<Cells>, Log) {
    let (pool, root) = pool(bytes);
    let log = Log::create(&pool, cell(&pool, root)).expect("room");
    (pool, root, log)
}

/// Appends an entry to a chain; returns its birth.
fn put(log: &Log, id: u64, chain: &mut Chain, value: u64) -> Result<u64, PmError> {
    chain.seq += 1;
    let (seq, next) = (chain.seq, chain.head);
    let record = Record { id, seq, next, kind: Kind::Put, payload: &[id, value] };
    let appended = log.append(&record)?;
    chain.head = appended.location;
    Ok(appended.birth)
}

/// The values that a chain says, the newest first.
fn values(log: &Log, id: u64) -> Vec<u64> {
    let mut values = Vec::new();
    log.follow(id, log.recovered(id), 100, |_, entry| {
        values.push(log.pool().pm().load(&entry.payload[1]));
        true
    })
    .expect("a whole chain");
    values
}

#[test]
fn chain_is_found_without_a_checkpoint_and_with_one() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chains = [Chain::default(); 3];
    for value in 0..30 {
        let n = value as usize % 3;
        put(&log, 64 * (n as u64 + 1), &mut chains[n], value).expect("room");
    }
    let reopen = || reopened(&pool, cell(&pool, root)).expect("a log");
    let want = vec![28, 25, 22, 19, 16, 13, 10, 7, 4, 1];
    assert_eq!(values(&reopen(), 128), want, "scanned");
    let all = |heads: &mut Heads| {
        for (n, chain) in chains.iter().enumerate() {
            heads.add(64 * (n as u64 + 1), *chain, 0);
        }
        Ok::<(), PmError>(())
    };
    assert!(log.checkpoint(all).expect("room"));
    let log = reopen();
    assert_eq!(values(&log, 128), want, "from the checkpoint");
    assert_eq!(log.all_recovered().count(), 3);
    assert!(!log.checkpoint(all).expect("no error"), "not before the chains are restored");
}

#[test]
fn a_chain_that_is_looked_for_alone_is_what_the_search_for_all_finds() {
    const CHAINS: usize = 40;
    let (pool, root, log) = new_log(1 << 20);
    let id = |n: usize| 64 * (n as u64 + 1);
    let mut chains = [Chain::default(); CHAINS];
    let write = |chains: &mut [Chain; CHAINS], log: &Log, count: u64| {
        for value in 0..count {
            let n = (value * value) as usize % CHAINS;
            put(log, id(n), &mut chains[n], value).expect("room");
        }
    };
    write(&mut chains, &log, 300);
    let all = |heads: &mut Heads| {
        for (n, chain) in chains.iter().enumerate() {
            heads.add(id(n), *chain, 0);
        }
        Ok::<(), PmError>(())
    };
    assert!(log.checkpoint(all).expect("room"));
    write(&mut chains, &log, 100);
    // Three entries under one fence, which a crash prevented: the second one is not whole.
    let mut batch = log.batch();
    let mut places = Vec::new();
    for n in [37, 38, 39] {
        let Chain { head: next, seq } = chains[n];
        let record = Record { id: id(n), seq: seq + 1, next, kind: Kind::Put, payload: &[7, 7] };
        places.push(batch.push(&record).expect("room").payload);
    }
    std::mem::forget(batch);
    let torn = pool.words(places[1], 1).expect("the entry");
    pool.pm().store(&torn[0], 8);
    chains[37].seq += 1;
    drop(log);
    let log = Log::open_serving(&pool, cell(&pool, root)).expect("a log");
    let alone: Vec<Chain> = (0..=CHAINS).map(|n| log.recovered(id(n))).collect();
    assert_eq!(log.all_recovered().count(), 0, "nothing is searched before it is asked for");
    let mut steps = 0;
    while log.recover_step() {
        steps += 1;
        assert!(steps < 100, "the search has an end");
    }
    for (n, alone) in alone.iter().enumerate() {
        assert_eq!(*alone, log.recovered(id(n)), "chain {n}");
        assert_eq!(alone.seq, chains.get(n).map_or(0, |chain| chain.seq), "chain {n}");
    }
}

#[test]
fn heads_before_tails_lose_an_entry_and_tails_before_heads_do_not() {
    for faulty in [true, false] {
        let (pool, root, log) = new_log(1 << 20);
        let mut chain = Chain::default();
        put(&log, 64, &mut chain, 1).expect("room");
        let heads = |chain: Chain| {
            let mut heads = Heads::new();
            heads.add(64, chain, 0);
            heads
        };
        if faulty {
            let heads = heads(chain);
            put(&log, 64, &mut chain, 2).expect("room"); // another thread's
            let tails = log.tails();
            log.put_checkpoint(&tails, &heads).expect("room");
        } else {
            let tails = log.tails();
            put(&log, 64, &mut chain, 2).expect("room");
            log.put_checkpoint(&tails, &heads(chain)).expect("room");
        }
        let log = reopened(&pool, cell(&pool, root)).expect("a log");
        let want = if faulty { vec![1] } else { vec![2, 1] };
        assert_eq!(values(&log, 64), want, "faulty order: {faulty}");
    }
}

#[test]
fn entries_of_a_chain_are_ordered_by_number_whatever_lane_they_are_in() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    // The first entry is in the last lane that is scanned, the second in the first.
    let occupied: Vec<_> = (1..LANES).map(|_| log.batch()).collect();
    std::thread::scope(|threads| {
        threads.spawn(|| put(&log, 64, &mut chain, 1).expect("room"));
    });
    drop(occupied);
    std::thread::scope(|threads| {
        threads.spawn(|| put(&log, 64, &mut chain, 2).expect("room"));
    });
    let lanes: Vec<usize> = log.segments().iter().map(|known| known.lane).collect();
    assert_eq!(lanes.len(), 2, "two lanes: {lanes:?}");
    assert_eq!(values(&reopened(&pool, cell(&pool, root)).expect("a log"), 64), [2, 1]);
}

#[test]
fn an_end_record_hides_what_is_before_it() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    put(&log, 64, &mut chain, 1).expect("room");
    let end = Record { id: 64, seq: 2, next: Location::NONE, kind: Kind::End, payload: &[] };
    log.append(&end).expect("room");
    let log = reopened(&pool, cell(&pool, root)).expect("a log");
    assert_eq!(log.recovered(64), Chain { head: Location::NONE, seq: 2 });
    assert_eq!(log.all_recovered().count(), 0);
    // Numbers go on: a later entry counts.
    let mut chain = log.recovered(64);
    put(&log, 64, &mut chain, 3).expect("room");
    assert_eq!(values(&reopened(&pool, cell(&pool, root)).expect("a log"), 64), [3]);
}

#[test]
fn space_is_bounded_by_the_oldest_chain_and_comes_back() {
    let (pool, root, log) = new_log(1 << 20);
    let (mut cold, mut hot) = (Chain::default(), Chain::default());
    let (mut cold_birth, mut most) = (0, 0);
    for round in 0..200_000u64 {
        if round % 500 == 0 {
            cold.head = Location::NONE; // absorbed
            cold_birth = put(&log, 64, &mut cold, round).expect("room");
        }
        hot.head = Location::NONE;
        let hot_birth = put(&log, 128, &mut hot, round).expect("room");
        if log.is_checkpoint_due() {
            log.checkpoint(|heads| {
                heads.add(64, cold, cold_birth);
                heads.add(128, hot, hot_birth);
                Ok::<(), PmError>(())
            })
            .expect("room");
        }
        most = most.max(log.bytes());
    }
    assert!(most < 100 << 10, "{most} bytes for 200,000 entries");
    pool.audit(log.blocks().expect("sound").into_iter().chain([root.offset()])).expect("no leak");
    let log = reopened(&pool, cell(&pool, root)).expect("a log");
    assert_eq!(values(&log, 64), [199_500], "the old entry kept its segment alive");
    assert_eq!(values(&log, 128), [199_999]);
}

/// Runs `call`, whose thread appends to this lane.
fn in_lane<T: Send>(log: &Log, lane: usize, call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            let mut others: Vec<_> = (0..LANES).map(|_| log.batch()).collect();
            drop(others.remove(lane));
            call()
        });
        thread.join().expect("no panic")
    })
}

/// Appends entries to a lane that no chain needs.
fn pass_time(log: &Log, lane: usize, entries: u64) {
    let mut chain = Chain { head: Location::NONE, seq: log.segments().now() << 20 };
    in_lane(log, lane, || {
        for value in 0..entries {
            chain.head = Location::NONE;
            put(log, 64 * 50, &mut chain, value).expect("room");
        }
    });
}

/// A checkpoint of one chain, or of none.
fn checkpoint_of(log: &Log, chain: Option<(Chain, u64)>) {
    let made = log.checkpoint(|heads| {
        if let Some((chain, birth)) = chain {
            heads.add(64, chain, birth);
        }
        Ok::<(), PmError>(())
    });
    assert!(made.expect("room"));
}

/// The segment of a lane that stood still is older than the chain's first entry, and yet has its
/// second one.
#[test]
fn an_old_segment_with_an_entry_of_a_young_chain_is_kept() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    pass_time(&log, 1, 1);
    pass_time(&log, 0, 50);
    let first = in_lane(&log, 0, || put(&log, 64, &mut chain, 1).expect("room"));
    let second = in_lane(&log, 1, || put(&log, 64, &mut chain, 2).expect("room"));
    assert!(log.birth_of(chain.head) < first, "it lies in the old one");
    pass_time(&log, 1, 20);
    pass_time(&log, 0, 20);
    let used = log.segments().used();
    checkpoint_of(&log, Some((chain, first.min(second))));
    assert!(log.segments().used() < used, "what is before goes");
    for _ in 0..3 {
        let log = reopened(&pool, cell(&pool, root)).expect("a log");
        assert_eq!(values(&log, 64), [2, 1]);
        // Nor does it go once nothing is known but where the entries are.
        let (mut birth, recovered) = (u64::MAX, log.recovered(64));
        log.follow(64, recovered, 10, |location, _| {
            birth = birth.min(log.birth_of(location));
            true
        })
        .expect("sound");
        log.set_restored();
        pass_time(&log, 0, 20);
        checkpoint_of(&log, Some((recovered, birth)));
    }
    let log = reopened(&pool, cell(&pool, root)).expect("a log");
    log.set_restored();
    checkpoint_of(&log, None);
    assert_eq!(log.segments().used(), 0, "no chain, and no lane is in any");
}

/// A writer that appends now and then, to a segment that was made long ago, keeps nothing of what
/// others append in between.
#[test]
fn a_lane_that_stands_still_does_not_keep_the_log() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    pass_time(&log, 1, 1);
    for value in 0..5 {
        chain.head = Location::NONE; // absorbed
        let birth = in_lane(&log, 1, || put(&log, 64, &mut chain, value).expect("room"));
        pass_time(&log, 0, 100);
        checkpoint_of(&log, Some((chain, birth)));
        let since = log.segments().now() - birth;
        assert!(since >= 14, "some were made: {since}");
        pass_time(&log, 0, 1);
        // Those since its birth, the two that were left about then, and its own.
        assert!(
            u64::from(log.segments().used()) <= since + 4,
            "{} segments",
            log.segments().used()
        );
        assert_eq!(values(&reopened(&pool, cell(&pool, root)).expect("a log"), 64), [value]);
    }
}

/// The log leaves the pool to others when that gets full.
#[test]
fn a_log_that_is_more_than_the_pool_has_left_is_tight() {
    let (pool, _, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    for value in 0..600 {
        put(&log, 64, &mut chain, value).expect("room");
    }
    assert!(!log.is_tight());
    let mut op = pool.op().expect("a slot");
    while op.reserve_bytes(4096, 64).is_ok() {}
    assert!(log.is_tight());
}

/// A checkpoint that failed is not tried again by each write: it would fail again.
#[test]
fn a_checkpoint_that_failed_waits_for_another_segment_or_for_refusals() {
    let (_pool, _, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    while !log.is_checkpoint_due() {
        put(&log, 64, &mut chain, 0).expect("room");
    }
    assert!(log.note_wants() && log.wants());
    log.note_failed();
    assert!(!log.note_wants() && !log.wants());
    let made = log.segments().used();
    while log.segments().used() == made {
        assert!(!log.wants());
        put(&log, 64, &mut chain, 0).expect("room");
    }
    assert!(log.wants());
    log.note_failed();
    while put(&log, 64, &mut chain, 0).is_ok() {
        log.note_failed();
    }
    assert!(!log.wants(), "there is no room for a segment");
    let refused = (1..1000).find(|_| put(&log, 64, &mut chain, 0).is_err() && log.wants());
    assert!(refused.is_some_and(|count| count > 10), "{refused:?}");
}

#[test]
fn a_full_log_refuses_and_stays_usable() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    let refused = loop {
        if let Err(error) = put(&log, 64, &mut chain, 1) {
            break error;
        }
    };
    assert!(matches!(refused, PmError::Full { .. }), "{refused}");
    assert!(log.is_tight());
    chain.head = Location::NONE;
    assert!(log.checkpoint(|_| Ok::<(), PmError>(())).expect("room"));
    put(&log, 64, &mut chain, 2).expect("room again");
    assert_eq!(values(&reopened(&pool, cell(&pool, root)).expect("a log"), 64), [2]);
}

#[test]
fn what_an_earlier_segment_left_is_no_entry() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    for round in 0..2000 {
        put(&log, 64, &mut chain, round).expect("room");
        if round % 100 == 99 {
            chain.head = Location::NONE;
            log.checkpoint(|_| Ok::<(), PmError>(())).expect("room");
            // An opening finds nothing: entries of dead segments are in reused memory.
            let opened = reopened(&pool, cell(&pool, root)).expect("a log");
            assert_eq!(opened.all_recovered().count(), 0, "round {round}");
        }
    }
}

#[test]
fn writers_append_at_once() {
    let (pool, root, log) = new_log(16 << 20);
    std::thread::scope(|threads| {
        for id in 1..=4u64 {
            let log = &log;
            threads.spawn(move || {
                let mut chain = Chain::default();
                for value in 0..3000 {
                    if value % 10 == 0 {
                        chain.head = Location::NONE;
                    }
                    put(log, 64 * id, &mut chain, value).expect("room");
                }
            });
        }
    });
    let log = reopened(&pool, cell(&pool, root)).expect("a log");
    for id in 1..=4 {
        assert_eq!(values(&log, 64 * id), (2990..3000).rev().collect::<Vec<_>>());
    }
}

#[test]
fn opening_reads_what_was_appended_since_the_checkpoint_and_no_more() {
    let options = PoolOptions::new().size(64 << 20).emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
    let entry = pool
        .create_index::<Cells>("log", *b"log     ", 1, |cells| {
            pool.pm().stream_words(words_of(cells), &[0; 8])
        })
        .expect("room");
    let root = entry.root();
    let log = Log::create(&pool, cell(&pool, root)).expect("room");
    let mut chains = vec![Chain::default(); 1000];
    let mut births = vec![u64::MAX; 1000];
    for value in 0..20_000 {
        let n = value as usize % 1000;
        let birth = put(&log, 64 * (n as u64 + 1), &mut chains[n], value).expect("room");
        births[n] = births[n].min(birth);
    }
    log.checkpoint(|heads| {
        for (n, chain) in chains.iter().enumerate() {
            heads.add(64 * (n as u64 + 1), *chain, births[n]);
        }
        Ok::<(), PmError>(())
    })
    .expect("room");
    put(&log, 64, &mut chains[0], 77).expect("room");
    // An entry before the tail is damaged: opening does not look at it, following its chain does.
    let damaged = log.entry(chains[5].head).expect("an entry");
    pool.pm().store(&damaged.payload[0], 1);
    let log = reopened(&pool, cell(&pool, root)).expect("not read");
    assert_eq!(values(&log, 64).len(), 21);
    let chain = log.recovered(64 * 6);
    assert!(log.follow(64 * 6, chain, 100, |_, _| true).is_err(), "found when it is read");
}

/// Flips bits and swaps words of everything that the log has; opening and following what it finds
/// may fail, and nothing else.
#[test]
fn damaged_files_are_errors() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chains = [Chain::default(); 4];
    for value in 0..40u64 {
        let n = value as usize % 4;
        put(&log, 64 * (n as u64 + 1), &mut chains[n], value).expect("room");
        if value == 20 {
            log.checkpoint(|heads| {
                for (n, chain) in chains.iter().enumerate() {
                    heads.add(64 * (n as u64 + 1), *chain, 0);
                }
                Ok::<(), PmError>(())
            })
            .expect("room");
        }
    }
    let pm = pool.pm();
    let look = |what: &str| {
        let Ok(log) = reopened(&pool, cell(&pool, root)) else { return };
        for (id, chain) in log.all_recovered() {
            let mut entries = 0;
            let _ = log.follow(id, chain, 28, |_, _| {
                entries += 1;
                true
            });
            assert!(entries <= 29, "{what}: {entries} entries");
        }
    };
    for block in log.blocks().expect("sound") {
        let words = pool.words(block, 64).expect("in bounds");
        for (i, word) in words.iter().enumerate() {
            let sound = pm.load(word);
            for value in [0, u64::MAX, sound ^ 1, sound ^ 1 << 40, sound << 1, block, 64, 1 << 20] {
                pm.store(word, value);
                look(&format!("word {i} of {block:#x} is {value:#x}"));
            }
            pm.store(word, sound);
        }
    }
    assert_eq!(values(&reopened(&pool, cell(&pool, root)).expect("sound again"), 64).len(), 10);
}

/// What the table says of a segment is believed with its checksum only: another sequence, and the
/// segment's entries would be none.
#[test]
fn damage_of_the_table_is_an_error() {
    let (pool, root, log) = new_log(1 << 20);
    let mut chain = Chain::default();
    put(&log, 64, &mut chain, 1).expect("room");
    let table = pmindex_log::table(&pool, log.base.root()).expect("sound");
    let used = table.iter().find(|segment| pool.pm().load(&segment[0]) != 0).expect("a segment");
    for (i, word) in used.iter().enumerate() {
        let sound = pool.pm().load(word);
        for bit in 0..64 {
            pool.pm().store(word, sound ^ 1 << bit);
            let opened = reopened(&pool, cell(&pool, root));
            assert!(opened.is_err(), "word {i}, bit {bit}");
        }
        pool.pm().store(word, sound);
    }
    assert_eq!(values(&reopened(&pool, cell(&pool, root)).expect("sound again"), 64), [1]);
}

/// A checkpoint whose pieces go round in a circle, with checksums that are right.
#[test]
fn checkpoint_in_a_circle_is_an_error() {
    let (pool, root, log) = new_log(1 << 20);
    log.checkpoint(|_| Ok::<(), PmError>(())).expect("room");
    let at = log.pieces().expect("one")[0];
    let piece = pool.get(PPtr::<CheckpointPiece>::new(at)).expect("there");
    let pm = pool.pm();
    pm.store(&piece.next, PPtr::new(at));
    let words = pool.words(at + 64, LANES).expect("there");
    let words: Vec<u64> = words.iter().map(|cell| pm.load(cell)).collect();
    for total in [LANES as u64, 2 * LANES as u64, u64::MAX] {
        pm.store(&piece.total, total);
        pm.store(&piece.checksum, super::layout::piece_checksum(at, total, &words));
        assert!(reopened(&pool, cell(&pool, root)).is_err(), "total {total}");
    }
}

/// A checkpoint of several pieces: each word counts, and so does each chain.
#[test]
fn a_large_checkpoint_is_read_where_it_lies_and_any_other_word_of_it_is_damage() {
    const CHAINS: u64 = 2100;
    let (pool, root, log) = new_log(1 << 20);
    let head = |n: u64| Chain { head: Location::new(3, n as u32 + 1), seq: n + 1 };
    let all = |heads: &mut Heads| {
        (0..CHAINS).for_each(|n| heads.add(64 * (n + 1), head(n), 0));
        Ok::<(), PmError>(())
    };
    assert!(log.checkpoint(all).expect("room"));
    let pieces = log.pieces().expect("there");
    assert!(pieces.len() >= 2, "{}", pieces.len());
    drop(log);
    let open = || Log::open_serving(&pool, cell(&pool, root));
    let log = open().expect("whole");
    let alone: Vec<Chain> = (0..CHAINS).step_by(50).map(|n| log.recovered(64 * (n + 1))).collect();
    let wanted: Vec<Chain> = (0..CHAINS).step_by(50).map(head).collect();
    assert_eq!(alone, wanted, "looked for alone");
    while log.recover_step() {}
    assert!((0..CHAINS).all(|n| log.recovered(64 * (n + 1)) == head(n)), "all");
    drop(log);
    let pm = pool.pm();
    for &at in &pieces {
        let piece = pool.get(PPtr::<CheckpointPiece>::new(at)).expect("there");
        let cells =
            pool.words(at + size_of::<CheckpointPiece>() as u64, pm.load(&piece.words) as usize);
        for cell in cells.expect("there").iter().step_by(97) {
            let word = pm.load_word(cell);
            pm.store_word(cell, word ^ 1 << 40);
            assert!(matches!(open(), Err(PmError::Corrupt { .. })), "a damaged word");
            pm.store_word(cell, word);
        }
    }
    assert!(open().is_ok());
    let late = |heads: &mut Heads| {
        heads.add(64, Chain { head: Location::new(3, 1), seq: SEQ_MAX + 1 }, 0);
        Ok::<(), PmError>(())
    };
    let log = reopened(&pool, cell(&pool, root)).expect("whole");
    log.set_restored();
    assert!(log.checkpoint(late).expect("room"));
    assert!(matches!(open(), Err(PmError::Corrupt { .. })), "a sequence number that none has");
}

/// A log that is made where another one was gets its memory, and has none of its entries.
#[test]
fn what_another_log_left_is_no_entry() {
    let (pool, root, mut log) = new_log(1 << 20);
    let mut chain = Chain::default();
    for value in 0..5 {
        put(&log, 64, &mut chain, value).expect("room");
    }
    log.end_lanes();
    log.set_restored();
    assert!(log.checkpoint(|_| Ok::<(), PmError>(())).expect("room"));
    drop(log);
    pool.free_from(cell(&pool, root)).expect("its root");
    let log = Log::create(&pool, cell(&pool, root)).expect("room");
    put(&log, 128, &mut Chain::default(), 7).expect("room");
    let log = reopened(&pool, cell(&pool, root)).expect("a log");
    assert_eq!(values(&log, 128), [7]);
    assert_eq!(values(&log, 64), [0; 0], "an entry of the log before");
}
