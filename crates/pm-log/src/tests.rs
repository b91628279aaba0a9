//! The guarantees for a writer, a reader and a thread that frees space; limits, and damaged files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use pmindex_core::{Mapped, Medium, PPtr, PmError, PmPtr, PmU64, Pool, words_of};

use super::*;

type Cells = [PmU64; 8];

/// Makes a pool with a cell for a log.
fn cell_in<M: Medium>(pool: &Pool<M>) -> PPtr<Cells> {
    let entry = pool.create_index::<Cells>("log", *b"log     ", 1, |cells| {
        pool.pm().stream_words(words_of(cells), &[0; 8])
    });
    entry.expect("room").root()
}

fn cell<M: Medium>(pool: &Pool<M>, root: PPtr<Cells>) -> &PmPtr<PmU64> {
    pool.get(PPtr::new(root.offset())).expect("the root")
}

fn new_log(bytes: usize) -> (Arc<Pool>, PPtr<Cells>, Log) {
    let pool = Arc::new(Pool::emulated(bytes).expect("memory"));
    let root = cell_in(&pool);
    let log = Log::create(&pool, cell(&pool, root)).expect("room");
    (pool, root, log)
}

/// Returns the tags of a lane from a position on, and where they end.
fn tags<M: Medium>(log: &Log<M>, lane: usize, from: Position) -> (Vec<u64>, Position) {
    let (mut tags, mut end) = (Vec::new(), from);
    for found in log.read(lane, from) {
        let found = found.expect("whole");
        assert!(found.position >= end && found.end > found.position, "in order");
        end = found.end;
        tags.push(found.entry.tag);
    }
    (tags, end)
}

/// Returns the words of an entry.
fn words(log: &Log, entry: &Entry<'_>) -> Vec<u64> {
    entry.payload.iter().map(|word| log.pool().pm().load(word)).collect()
}

#[test]
fn a_lane_commits_several_times_and_is_read_up_to_the_last_commit() {
    let (pool, root, log) = new_log(1 << 20);
    let mut lane = log.lane();
    let at = lane.number();
    lane.push(1, [&[10]]).expect("room");
    lane.push(2, [&[20], &[21, 22], &[]]).expect("room");
    assert_eq!(tags(&log, at, Position::START).0, [0; 0], "not committed");
    lane.commit().expect("durable");
    let (two, end) = tags(&log, at, Position::START);
    assert_eq!(two, [1, 2]);
    lane.push(3, []).expect("room");
    assert_eq!(tags(&log, at, end).0, [0; 0], "not committed");
    lane.commit().expect("durable");
    lane.commit().expect("nothing to do");
    drop(lane);
    assert_eq!(tags(&log, at, end).0, [3]);
    drop(log);
    let log = Log::open(&pool, cell(&pool, root)).expect("sound");
    let all: Vec<_> = log.entries().collect::<Result<_, _>>().expect("sound");
    assert_eq!(all.iter().map(|found| found.entry.tag).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(words(&log, &all[1].entry), [20, 21, 22, 0, 0, 0]);
    assert_eq!(all[1].entry.first, [20, 21, 22, 0, 0, 0]);
    let later = log.append(4, &[]).expect("room");
    assert!(later.position > all[2].end, "positions go on");
}

#[test]
fn a_commit_is_one_fence_whatever_was_pushed() {
    let pool = Arc::new(Pool::counting(1 << 20).expect("memory"));
    let root = cell_in(&pool);
    let log: Log<Mapped> = Log::create(&pool, cell(&pool, root)).expect("room");
    log.append(1, &[]).expect("room"); // makes a segment
    pool.pm().counter().expect("it counts").reset();
    let mut lane = log.lane();
    lane.push(1, [&[1, 2, 3, 4, 5, 6]]).expect("room");
    lane.push(2, [&[7; 7]]).expect("room");
    lane.commit().expect("durable");
    drop(lane);
    let counts = pool.pm().counter().expect("it counts").counts();
    assert_eq!((counts.lines, counts.fences), (3, 1));
}

#[test]
fn room_that_was_made_is_there() {
    let (pool, root, log) = new_log(4 << 20);
    let (mut lane, mut before) = (log.lane_at(3), 0);
    for n in 0..300 {
        lane.make_room(6, 64).expect("room");
        let known: Vec<SegmentInfo> =
            log.segments().iter().filter(|known| known.lane == 3).collect();
        assert!(known.iter().all(|known| known.lines == 64));
        // With no room at all the entry is pushed all the same.
        pool.fail_allocation_after(Some(0));
        lane.push(n, [&[n; 6]]).expect("no segment is made");
        lane.commit().expect("durable");
        pool.fail_allocation_after(None);
        before = known.len();
    }
    assert_eq!(before, 5, "of 63 entries each");
    drop(lane);
    drop(log);
    let log = Log::open(&pool, cell(&pool, root)).expect("sound");
    assert_eq!(tags(&log, 3, Position::START).0, (0..300).collect::<Vec<_>>());
    let mut lane = log.lane_at(3);
    lane.make_room(6, 1).expect("room");
    lane.make_room(6, 64).expect("there is some");
    let at = lane.push(7, [&[7; 6]]).expect("room").location.segment();
    let lines = log.segments().get(at).expect("a segment").lines;
    assert_eq!(lines, usual_lines(&pool), "not a larger one than is usual");
}

#[test]
fn payloads_of_every_length_and_cut_are_what_was_pushed() {
    let (_, _, log) = new_log(4 << 20);
    let payload: Vec<u64> = (1..=200).collect();
    let mut lane = log.lane();
    for (length, cut) in (0..200).flat_map(|length| [0, 1, length / 2, length].map(|c| (length, c)))
    {
        let (one, other) = payload[..length].split_at(cut.min(length));
        let at = lane.push(length as u64, [one, other]).expect("room").location;
        let entry = log.entry(at).expect("whole");
        let (said, zeros) = (words(&log, &entry), entry.payload.len() - length);
        assert_eq!(said[..length], payload[..length], "{length} {cut}");
        assert!(said[length..].iter().all(|&word| word == 0) && zeros < LINE_WORDS);
        assert_eq!(entry.lines as usize, lines_for(length));
    }
}

#[test]
fn the_greatest_payload_fits_and_one_word_more_is_refused() {
    for bytes in [256 << 10, 64 << 20] {
        let (_, _, log) = new_log(bytes);
        let most = log.max_payload();
        let mut lane = log.lane();
        lane.push(1, [&[1]]).expect("room");
        let refused = lane.push(2, [&vec![2; most + 1]]).expect_err("too large");
        let PmError::TooLarge { wanted, max } = refused else { panic!("{refused}") };
        assert_eq!((wanted, max), (8 * most as u64 + 8, 8 * most as u64));
        lane.commit().expect("what was pushed before");
        // A pool may have no free block of the largest possible size.
        let (at, greatest) = (lane.number(), lane.push(3, [&vec![3; most]]));
        assert!(greatest.as_ref().map_or_else(PmError::is_full, |_| true));
        lane.commit().expect("durable");
        let all = if greatest.is_ok() { vec![1, 3] } else { vec![1] };
        assert_eq!(tags(&log, at, Position::START).0, all);
        assert!(greatest.is_ok() || bytes < 1 << 20);
    }
}

#[test]
fn what_is_abandoned_is_not_found_behind_what_comes_after_it() {
    let (pool, root, log) = new_log(256 << 10);
    let one = log.append(1, &[]).expect("room").position;
    let mut lane = log.lane();
    let at = lane.number();
    for tag in 0..40 {
        lane.push(100 + tag, [&[tag]]).expect("room"); // several segments
    }
    drop(lane);
    let again = log.append(2, &[]).expect("room").position;
    assert_eq!(again, Position::new(one.sequence(), one.line() + 1), "in the same lines");
    for tag in 3..30 {
        log.append(tag, &[]).expect("room");
    }
    assert_eq!(tags(&log, at, Position::START).0, (1..30).collect::<Vec<_>>());
    let log = Log::look(&pool, cell(&pool, root)).expect("sound");
    let found: Vec<u64> = log.entries().map(|found| found.expect("sound").entry.tag).collect();
    assert_eq!(found, (1..30).collect::<Vec<_>>());
}

#[test]
fn a_torn_entry_hides_what_was_pushed_after_it() {
    let (pool, root, log) = new_log(1 << 20);
    log.append(1, &[]).expect("room");
    let mut lane = log.lane();
    let places: Vec<u64> =
        (2..5).map(|tag| lane.push(tag, [&[tag]]).expect("room").payload).collect();
    std::mem::forget(lane); // a crash
    pool.pm().store(&pool.words(places[1], 1).expect("there")[0], 9);
    let log = Log::look(&pool, cell(&pool, root)).expect("sound");
    let found: Vec<u64> = log.entries().map(|found| found.expect("sound").entry.tag).collect();
    assert_eq!(found, [1, 2]);
}

#[test]
fn space_before_the_least_horizon_comes_back() {
    let (pool, root, log) = new_log(256 << 10);
    let append = |count: u64| {
        (0..count).map(|tag| log.append(tag, &[]).expect("room").position).collect::<Vec<_>>()
    };
    let at = log.lane().number();
    let positions = append(100);
    let before = log.segments().used();
    let (slow, quick) = (log.hold(), log.hold());
    assert_eq!(log.release(&[Position::END; LANES]).expect("sound"), 0, "all is held");
    slow.advance(at, positions[40]);
    quick.advance(at, Position::END);
    quick.advance(at, Position::START); // no way back
    let least = |log: &Log| tags(log, at, Position::START).0[0];
    log.release(&[Position::END; LANES]).expect("sound");
    assert!((34..=40).contains(&least(&log)), "from the segment that the slow one needs");
    drop(slow);
    let mut horizon = [Position::END; LANES];
    horizon[at] = positions[70];
    log.release(&horizon).expect("sound");
    assert!((64..=70).contains(&least(&log)), "from the horizon's");
    drop(quick);
    log.release(&[Position::END; LANES]).expect("sound");
    assert_eq!(log.segments().used(), 1, "the lane's own");
    assert!(before > 10);
    pool.audit(log.blocks().expect("sound").into_iter().chain([root.offset()])).expect("no leak");
    // Opening does not forget the used positions either, when no lane is in a segment.
    for _ in 0..3 {
        let log = Log::look(&pool, cell(&pool, root)).expect("sound");
        log.release(&[Position::END; LANES]).expect("sound");
        assert_eq!(log.segments().used(), 1, "the newest one");
    }
    drop(log);
}

#[test]
fn a_full_log_refuses_and_what_was_pushed_can_be_committed() {
    let (_, _, log) = new_log(256 << 10);
    let mut lane = log.lane();
    let at = lane.number();
    let mut pushed = 0;
    let refused = loop {
        match lane.push(pushed, []) {
            Ok(_) => pushed += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.is_full(), "{refused}");
    lane.commit().expect("durable");
    drop(lane);
    assert_eq!(tags(&log, at, Position::START).0, (0..pushed).collect::<Vec<_>>());
    assert!(log.release(&[Position::END; LANES]).expect("sound") > 0);
    log.append(1, &[]).expect("room again");
}

#[test]
fn a_reader_follows_writers_while_others_give_back() {
    const EACH: u64 = 4000;
    let (_, _, log) = new_log(4 << 20);
    let done = AtomicBool::new(false);
    let (log, done) = (&log, &done);
    std::thread::scope(|threads| {
        let hold = log.hold();
        let reader = threads.spawn(move || {
            let (mut next, mut from) = ([0; 3], [Position::START; LANES]);
            loop {
                let last = done.load(SeqCst);
                for (lane, from) in from.iter_mut().enumerate() {
                    for found in log.read(lane, *from) {
                        let Found { end, entry, .. } = found.expect("whole");
                        let (writer, number) = (entry.tag as usize, entry.first[0]);
                        assert_eq!(number, next[writer], "writer {writer}, in turn");
                        (next[writer], *from) = (number + 1, end);
                    }
                    hold.advance(lane, *from);
                }
                if last {
                    return next;
                }
            }
        });
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                threads.spawn(move || {
                    let mut lane = log.lane(); // its own, so that the reader sees them in turn
                    for number in 0..EACH {
                        lane.push(writer, [&[number]]).expect("room");
                        if number % 3 == 0 || number + 1 == EACH {
                            lane.commit().expect("durable");
                        }
                    }
                })
            })
            .collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            log.release(&[Position::END; LANES]).expect("sound");
        }
        done.store(true, SeqCst);
        assert_eq!(reader.join().expect("no panic"), [EACH; 3]);
    });
    log.release(&[Position::END; LANES]).expect("sound");
    assert!(log.segments().used() <= 3, "{}", log.segments().used());
}

#[test]
fn damage_before_the_tail_is_an_error_of_the_reader() {
    let (pool, _, log) = new_log(1 << 20);
    let at = log.lane().number();
    log.append(1, &[1]).expect("room");
    let place = log.append(2, &[2]).expect("room").payload;
    log.append(3, &[3]).expect("room");
    pool.pm().store(&pool.words(place, 1).expect("there")[0], 9);
    let mut entries = log.read(at, Position::START);
    assert_eq!(entries.next().expect("one").expect("whole").entry.tag, 1);
    assert!(matches!(entries.next(), Some(Err(PmError::Corrupt { .. }))));
    assert!(entries.next().is_none());
}

/// With any words in a log, opening and reading it ends.
#[test]
fn damaged_files_are_errors_or_fewer_entries() {
    let (pool, root, log) = new_log(256 << 10);
    for tag in 0..30 {
        log.append(tag, &[tag; 9]).expect("room");
    }
    let pm = pool.pm();
    for block in log.blocks().expect("sound") {
        let cells = pool.words(block, 64).expect("in bounds");
        for cell_of in cells {
            let sound = pm.load(cell_of);
            for value in [0, u64::MAX, sound ^ 1, sound ^ 1 << 40, sound << 1, block, 1 << 20] {
                pm.store(cell_of, value);
                if let Ok(log) = Log::look(&pool, cell(&pool, root)) {
                    assert!(log.entries().count() <= 30);
                }
            }
            pm.store(cell_of, sound);
        }
    }
    let log = Log::look(&pool, cell(&pool, root)).expect("sound again");
    assert_eq!(log.entries().count(), 30);
}

/// The only segment is freed, and its memory used again, with entries that are later ones also after an opening.
#[test]
fn a_lane_ends_its_segment_and_needs_no_second_one() {
    let (pool, root, mut log) = new_log(1 << 20);
    let mut last = Position::START;
    for round in 0..6 {
        let mut lane = log.lane_at(0);
        let appended = lane.push(round, [&[round]]).expect("room");
        lane.commit().expect("durable");
        assert!(appended.position > last, "round {round}");
        last = log.tail(0);
        assert_eq!(tags(&log, 0, Position::START).0, [round]);
        let used = log.segments().used();
        let segment = lane.end_segment().expect("one");
        assert_eq!(lane.end_segment(), None);
        log.free(&[segment]).expect("its");
        drop(lane);
        assert_eq!(log.segments().used(), used - 1);
        assert_eq!((log.tail(0), tags(&log, 0, Position::START).0.len()), (last, 0));
        if round % 2 == 1 {
            drop(log);
            log = Log::open(&pool, cell(&pool, root)).expect("sound");
            log.pass(last.sequence()).expect("its own");
        }
    }
}

/// Segments behind it would have sequences that the next opening refuses, or none.
#[test]
fn sequences_that_no_log_has_are_not_passed() {
    let (pool, root, mut log) = new_log(1 << 20);
    log.append(1, &[]).expect("room");
    for sequence in [1 << 47, (1 << 47) - 1, 1 << 48, u64::MAX - 1, u64::MAX] {
        let refused = log.pass(sequence);
        assert!(matches!(refused, Err(PmError::Corrupt { .. })), "{sequence:#x}: {refused:?}");
    }
    let now = log.segments().now();
    log.pass(now + 5).expect("a few openings later");
    assert!(log.segments().now() > now + 5);
    log.append(2, &[]).expect("room");
    drop(log);
    Log::open(&pool, cell(&pool, root)).expect("sound");
}
