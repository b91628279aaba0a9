//! A partition under failures and at its limits, on one thread: alone, and as the only member of a group.

use std::path::Path;
use std::time::Duration;

use pmindex_core::Medium;

use super::{Folder, Shard, Store, Transaction};
use crate::command::table;
use crate::config::{DurabilityArg, Storage};
use crate::group::{Identity, Member};
use crate::wire::{Protocol, Reply, Request};

const NOW: u64 = 1_000_000;

fn storage(dir: &Path, durability: DurabilityArg, capacity: u64) -> Storage {
    Storage {
        dir: dir.to_owned(),
        partitions: None,
        cluster: false,
        durability,
        twin: None,
        size: 16 << 20,
        capacity: Some(capacity),
        salvage: false,
    }
}

/// Opens the only partition of a folder.
fn open(storage: &Storage) -> Shard {
    let folder = Folder::open(storage).expect("a folder");
    folder.partition(storage, 0, None).expect("it opens").shard
}

/// Opens the only partition of a folder, alone or as a member of a group that it leads.
fn open_as(storage: &Storage, grouped: bool) -> Shard {
    if grouped { open_group(storage, 1 << 30) } else { open(storage) }
}

/// Opens it as a member of a group whose entries have this number of bytes at most, and waits until it leads.
fn open_group(storage: &Storage, entry_bytes: usize) -> Shard {
    let mut shard = open_follower(storage, entry_bytes);
    while shard.group().is_some_and(|group| group.leads().is_err()) {
        end_turn(&mut shard);
        std::thread::sleep(Duration::from_millis(5));
    }
    shard
}

/// Opens it as a member of a group, which does not lead yet.
fn open_follower(storage: &Storage, entry_bytes: usize) -> Shard {
    let me = Member::parse("localhost:1/localhost:2").expect("addresses");
    let founders = vec![(1, me.clone())];
    let identity = Identity { id: 1, founders, me, group: None, entry_bytes };
    let folder = Folder::open(storage).expect("a folder");
    folder.partition(storage, 0, Some(&identity)).expect("it opens").shard
}

/// Ends a turn, and waits until its writes are applied.
fn end_turn(shard: &mut Shard) {
    if shard.round().is_none() {
        shard.end().expect("a disk");
        return;
    }
    for _ in 0..3 {
        shard.round().expect("a group").expect("not broken");
    }
}

/// Runs a command and returns its reply, without the end of the line.
fn run<T: AsRef<[u8]>>(shard: &mut Shard, words: &[T]) -> String {
    run_at(shard, words, NOW)
}

fn run_at<T: AsRef<[u8]>>(shard: &mut Shard, words: &[T], now: u64) -> String {
    let request = Request::new(words.iter().map(AsRef::as_ref));
    let spec = table::find(request.args().at(0)).expect("a command");
    let mut out = Reply::new(Protocol::Resp2);
    shard.run(spec, request.args(), now, &mut out);
    String::from_utf8_lossy(&out.bytes).trim_end().to_owned()
}

fn line(shard: &mut Shard, words: &str) -> String {
    run(shard, &words.split(' ').collect::<Vec<_>>())
}

/// Makes the next fence fail.
fn fail_next(shard: &Shard) {
    let Store::Alone(engine) = &shard.store else { panic!("no group") };
    engine.pool().pm().fail_write_back_after(0);
}

#[test]
fn after_a_failed_commit_no_reply_shows_its_writes_and_no_save_hides_it() {
    for saves in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open(&storage(dir.path(), DurabilityArg::Msync, 64 << 20));
        assert_eq!(line(&mut shard, "SET before 1"), "+OK");
        shard.end().expect("a disk");
        fail_next(&shard);
        assert_eq!(line(&mut shard, "SET lost 1"), "+OK");
        if saves {
            shard.sync().expect_err("the disk fails");
        }
        shard.end().expect_err("the replies of this turn must not be sent");
        for words in ["GET lost", "GET before", "EXISTS lost", "STRLEN lost", "KEYS *", "SET b 1"] {
            let reply = line(&mut shard, words);
            assert!(reply.starts_with("-ERR storage"), "{words}: {reply}");
        }
        shard.sync().expect_err("it was not durable");
        shard.end().expect("the replies of this turn are errors, which clients may read");
    }
}

#[test]
fn what_no_engine_takes_is_refused_and_everything_else_goes_on() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 1 << 30), grouped);
        let long = "k".repeat(17 << 10);
        let large = vec![7; 64 << 20];
        assert_eq!(line(&mut shard, "RPUSH list a b"), ":2");
        for words in [
            &[&b"SET"[..], long.as_bytes(), b"v"],
            &[b"HSET", b"hash", long.as_bytes(), b"v"][..],
            &[b"SADD", b"set", long.as_bytes()],
            &[b"ZADD", b"sorted", b"1", long.as_bytes()],
            &[b"RENAME", b"list", long.as_bytes()],
            &[b"MSET", b"a", b"1", long.as_bytes(), b"1", b"z", b"1"],
            &[b"SETRANGE", b"s", b"67108863", b"x"],
            &[b"SET", b"s", &large],
            &[b"RPUSH", b"list", b"c", &[&large[..], b"and one"].concat()],
        ] {
            let reply = run(&mut shard, words);
            assert!(reply.starts_with("-ERR ") && reply.contains("too l"), "{reply}");
            end_turn(&mut shard);
        }
        // Of a refused command nothing is there.
        assert_eq!(line(&mut shard, "DBSIZE"), ":1");
        assert_eq!(line(&mut shard, "LRANGE list 0 -1"), "*2\r\n$1\r\na\r\n$1\r\nb");
        assert_eq!(line(&mut shard, "SET s longest"), "+OK");
        assert_eq!(line(&mut shard, "SETRANGE s 67108862 x"), ":67108863");
        end_turn(&mut shard);
        assert_eq!(line(&mut shard, "APPEND s x").get(..4), Some("-ERR"));
        assert_eq!(line(&mut shard, "STRLEN s"), ":67108863");
        end_turn(&mut shard);
    }
}

#[test]
fn a_full_partition_refuses_what_adds_and_lets_remove() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 32 << 20), grouped);
        let value = "v".repeat(1000);
        assert_eq!(line(&mut shard, "HSET hash one 1 two 2"), ":2");
        let mut keys = 0;
        loop {
            let reply = line(&mut shard, &format!("SET key{keys} {value}"));
            // Several turns' writes may be under way when there is no more room.
            if keys % 16 == 0 || reply != "+OK" {
                end_turn(&mut shard);
            }
            if reply != "+OK" {
                assert!(reply.starts_with("-OOM"), "{reply}");
                break;
            }
            keys += 1;
        }
        let figures = shard.figures();
        let live = figures.live_bytes * 100 / figures.capacity;
        assert!(live >= if grouped { 80 } else { 90 } && live <= 95, "{live} of 100");
        assert!(!grouped || live <= 90, "{live} of 100");
        // Removing works, also from a collection, and so does replacing by as much.
        assert_eq!(line(&mut shard, "HDEL hash one"), ":1");
        assert_eq!(line(&mut shard, &format!("SET key1 {}", "w".repeat(1000))), "+OK");
        for key in 0..keys / 2 {
            assert_eq!(line(&mut shard, &format!("DEL key{key}")), ":1");
            if key % 16 == 0 {
                end_turn(&mut shard);
            }
        }
        for key in 0..keys / 4 {
            assert_eq!(line(&mut shard, &format!("SET key{key} {value}")), "+OK");
            if key % 16 == 0 {
                end_turn(&mut shard);
            }
        }
    }
}

#[test]
fn a_command_may_change_more_records_than_a_record_of_the_log_has_room_for() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 1 << 30), grouped);
        for _ in 0..60 {
            let words: Vec<&str> = ["RPUSH", "l"].into_iter().chain(["x"; 1000]).collect();
            assert!(run(&mut shard, &words).starts_with(':'));
            end_turn(&mut shard);
        }
        for (words, reply) in [
            ("LINSERT l BEFORE x y", ":60001"),
            ("COPY l copy", ":1"),
            ("LREM l 59999 x", ":59999"),
            ("LTRIM copy 0 0", "+OK"),
            ("LLEN l", ":2"),
            ("LRANGE copy 0 -1", "*1\r\n$1\r\ny"),
        ] {
            assert_eq!(line(&mut shard, words), reply, "{words}");
            end_turn(&mut shard);
        }
    }
}

/// Runs turns of some commands under load, a millisecond each, as the event loop does: a slice of upkeep is due
/// every ten milliseconds. Returns the most records that were there, and the most that a turn removed.
fn load(shard: &mut Shard, turns: u64, commands: impl Fn(u64) -> Vec<String>) -> (u64, u64) {
    let (mut most, mut removed) = (0, 0);
    for turn in 0..turns {
        let now = NOW + turn;
        for words in commands(turn) {
            let reply = run_at(shard, &words.split(' ').collect::<Vec<_>>(), now);
            assert!(!reply.starts_with('-'), "{words}: {reply}");
        }
        let before = shard.store.records().len();
        shard.upkeep(now, turn % 10 == 0).expect("room");
        let after = shard.store.records().len();
        removed = removed.max(before.saturating_sub(after));
        most = most.max(after);
        end_turn(shard);
    }
    (most, removed)
}

#[test]
fn writes_pay_for_the_removal_of_what_they_drop() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut shard = open(&storage(dir.path(), DurabilityArg::Process, 256 << 20));
    let many = |of: &str| (0..300).fold(of.to_owned(), |text, at| format!("{text} {at}"));
    line(&mut shard, &many("SADD source"));
    let small = |turn| {
        (0..5)
            .flat_map(|at| [format!("HSET h{turn}.{at} a 1 b 2"), format!("DEL h{turn}.{at}")])
            .collect()
    };
    let (most, removed) = load(&mut shard, 3000, small);
    assert!(most < 600 && removed < 600, "small hashes: {most}, {removed} at once");
    let (most, removed) = load(&mut shard, 200, |_| vec!["SUNIONSTORE dst source".into()]);
    assert!(most < 3000 && removed < 2000, "one set again and again: {most}, {removed} at once");
    // They expire after 200 ms. A walk, every 10 s, finds them, and has to overtake the new ones.
    let expiring = |turn| {
        (0..5)
            .flat_map(|at| {
                let key = format!("e{turn}.{at}");
                [format!("HSET {key} a 1 b 2"), format!("PEXPIREAT {key} {}", NOW + turn + 200)]
            })
            .collect()
    };
    let (most, removed) = load(&mut shard, 14_000, expiring);
    // 15 records a millisecond, until the walk begins; then they become fewer.
    let left = shard.store.records().len();
    assert!(most < 15 * 11_000 && removed < 5000, "expired hashes: {most}, {removed} at once");
    assert!(left < most * 4 / 5, "{left} of {most}");
}

#[test]
fn expired_records_are_removed_while_others_are_written() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 64 << 20), grouped);
        let before = shard.store.records().len();
        for key in 0..100 {
            assert_eq!(line(&mut shard, &format!("SET k{key} v PXAT {}", NOW + 5)), "+OK");
        }
        end_turn(&mut shard);
        // One of them is written anew when it has expired, and does not expire any more.
        load(&mut shard, 40, |turn| vec![format!("SET {} v", ["a", "k1"][turn as usize % 2])]);
        let after = shard.store.records().len();
        assert!(after <= before + 2, "{after} of {before} and 2");
        assert_eq!(line(&mut shard, "GET k1"), "$1\r\nv");
    }
}

#[test]
fn the_removal_of_large_collections_is_spread_over_turns_and_goes_on_when_idle() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 256 << 20), grouped);
        for part in 0..100 {
            let words =
                (0..1000).fold("SADD s".to_owned(), |text, at| format!("{text} {part}.{at}"));
            assert_eq!(line(&mut shard, &words), ":1000");
            shard.upkeep(NOW, false).expect("room");
            end_turn(&mut shard);
        }
        assert_eq!(line(&mut shard, "DEL s"), ":1");
        let (_, removed) = load(&mut shard, 20, |_| vec!["SET a 1".into()]);
        assert!(removed < 1000, "{removed}");
        let mut slices = 0;
        while shard.upkeep(NOW, true).expect("room") {
            end_turn(&mut shard);
            slices += 1;
        }
        end_turn(&mut shard);
        assert!(shard.store.records().len() < 10, "{:?}", shard.figures());
        assert!(slices > 50, "{slices}");
    }
}

#[test]
fn no_mixture_of_writes_ends_a_partition() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 64 << 20), grouped);
        let mut number = 1_u64;
        let mut draw = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) % below
        };
        let (mut refused, mut done) = (0, 0);
        for _ in 0..700 {
            let (key, part) = (draw(40), draw(1000));
            let long = vec![7; [100, 3000, 100_000, 9 << 20][draw(4) as usize]];
            let long = &long[..long.len() - draw(long.len() as u64 / 2) as usize];
            let many: Vec<String> = (0..draw(2000)).map(|at| format!("{part}.{at}")).collect();
            let name = format!("{}{key}", ["string", "list", "hash"][draw(3) as usize]);
            let mut words: Vec<&[u8]> = match (draw(12), &name[..1]) {
                (0, _) => vec![b"DEL", name.as_bytes()],
                (1, _) => vec![b"COPY", name.as_bytes(), b"copy", b"REPLACE"],
                (_, "s") => vec![b"SET", name.as_bytes(), long],
                (2, "l") => vec![b"LTRIM", name.as_bytes(), b"0", b"9"],
                (_, "l") => vec![b"RPUSH", name.as_bytes(), b"one"],
                _ => vec![b"HDEL", name.as_bytes(), b"one"],
            };
            if words[0] == b"RPUSH" || words[0] == b"HDEL" {
                words.extend(many.iter().map(String::as_bytes));
            }
            if words[0] == b"HDEL" && draw(3) > 0 {
                (words[0], words[2]) = (b"HSET", long);
                let odd = words.len() % 2;
                words.extend([&b"one"[..]; 1][..odd].iter());
            }
            let reply = run(&mut shard, &words);
            assert!(!reply.starts_with("-ERR storage"), "{reply}");
            refused += u64::from(reply.starts_with('-'));
            done += u64::from(!reply.starts_with('-'));
            if draw(3) == 0 {
                shard.upkeep(NOW, draw(10) == 0).expect("room");
                end_turn(&mut shard);
            }
        }
        assert!(refused > 20 && done > 400, "{refused} {done}");
    }
}

/// Fills a partition until it refuses even the shortest string; returns the number of large keys.
fn fill(shard: &mut Shard) -> usize {
    let mut large = 0;
    for (name, length) in [("large", 1000), ("small", 1), ("tiny", 1)] {
        let value = "v".repeat(length);
        for key in 0.. {
            let reply = line(shard, &format!("SET {name}{key} {value}"));
            if key % 64 == 0 || reply != "+OK" {
                end_turn(shard);
            }
            if reply != "+OK" {
                assert!(reply.starts_with("-OOM"), "{reply}");
                break;
            }
            large += usize::from(name == "large");
        }
    }
    large
}

#[test]
fn a_full_partition_does_what_frees_as_much_as_it_takes() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 32 << 20), grouped);
        let long = "v".repeat(900);
        for words in [
            format!("RPUSH list short {long} {long} {long} other short {long}"),
            "SADD from a b c".into(),
            "SADD to d".into(),
            "ZADD sorted 1 one 2 two".into(),
            "HSET hash f 1 g 2".into(),
            "SET renamed value".into(),
            "RPUSH moved x y".into(),
        ] {
            assert!(!line(&mut shard, &words).starts_with('-'), "{words}");
        }
        end_turn(&mut shard);
        let large = fill(&mut shard);
        assert!(large > 10_000, "{large}");
        // Each of them several times, so that tombstones come together, in one turn and in several.
        for round in 0..300 {
            for (words, reply) in [
                ("LREM list 1 short", ":1"),
                ("RPUSHX list short", ":7"),
                ("RENAME renamed renamee", "+OK"),
                ("RENAME renamee renamed", "+OK"),
                ("RENAME moved mover", "+OK"),
                ("RENAME mover moved", "+OK"),
                ("SMOVE from to a", ":1"),
                ("SMOVE to from a", ":1"),
                ("ZADD sorted 5 one", ":0"),
                ("ZADD sorted 1 one", ":0"),
                (
                    "LMOVE moved moved LEFT RIGHT",
                    if round % 2 == 0 { "$1\r\nx" } else { "$1\r\ny" },
                ),
                ("HSET hash f 3", ":0"),
            ] {
                if words.starts_with("RPUSHX") {
                    continue;
                }
                let reply = if words.starts_with("LREM") && round > 1 { ":0" } else { reply };
                assert_eq!(line(&mut shard, words), reply, "{words}, round {round}, {grouped}");
                if round % 3 == 0 {
                    end_turn(&mut shard);
                }
            }
            let key = round % large;
            assert_eq!(line(&mut shard, &format!("RENAME large{key} lorge{key}")), "+OK");
            assert!(line(&mut shard, &format!("COPY large{} copy", large - 1)).starts_with("-OOM"));
            shard.upkeep(NOW, true).expect("room");
            end_turn(&mut shard);
        }
        assert_eq!(line(&mut shard, "LPOP list"), format!("$900\r\n{long}"));
        end_turn(&mut shard);
        let figures = shard.figures();
        assert!(figures.live_bytes <= figures.capacity / 100 * 97, "{figures:?}");
        shard.close().expect("sound");
    }
}

#[test]
fn what_is_freed_makes_room_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 32 << 20), true);
    let value = "v".repeat(1500);
    for key in 0..100 {
        assert_eq!(line(&mut shard, &format!("SET twice{key} {value}")), "+OK");
    }
    end_turn(&mut shard);
    fill(&mut shard);
    // In one turn: what a key has given back before, it cannot give back again.
    for key in 0..100 {
        assert_eq!(line(&mut shard, &format!("SET twice{key} short")), "+OK");
        let reply = line(&mut shard, &format!("SET twice{key} {value}"));
        assert!(reply.starts_with("-OOM"), "{key}: {reply}");
        assert_eq!(line(&mut shard, &format!("DEL twice{key}")), ":1");
        let reply = line(&mut shard, &format!("SET twice{key} {value}"));
        assert!(reply.starts_with("-OOM"), "{key}: {reply}");
    }
    end_turn(&mut shard);
    assert_eq!(line(&mut shard, "SET twice1 value"), "+OK");
}

#[test]
fn a_large_value_is_replaced_only_if_there_is_room_for_both() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 32 << 20), grouped);
        for (key, length) in [("large", 3 << 20), ("less", 100_000)] {
            assert_eq!(line(&mut shard, &format!("SET {key} {}", "v".repeat(length))), "+OK");
            end_turn(&mut shard);
        }
        fill(&mut shard);
        for (key, length, is_done) in [("large", 3 << 20, false), ("less", 100_000, true)] {
            let reply = line(&mut shard, &format!("SET {key} {}", "w".repeat(length)));
            assert_eq!(reply == "+OK", is_done, "{key}: {reply}");
            end_turn(&mut shard);
            // The group goes on.
            assert_eq!(line(&mut shard, "SET small1 w"), "+OK");
            end_turn(&mut shard);
            assert_eq!(line(&mut shard, "GET small1"), "$1\r\nw");
        }
        let reply = line(&mut shard, "GET less");
        assert!(reply.ends_with("www"), "{}", &reply[reply.len() - 9..]);
    }
}

#[test]
fn a_full_group_takes_and_loses_members_or_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 32 << 20), true);
    fill(&mut shard);
    // A place of an absurd length stands for a group without any room.
    let long = format!("{}:1/localhost:2", "h".repeat(4 << 20));
    for (id, text, fits) in [(2, "localhost:3/localhost:4", true), (3, &long, false)] {
        let place = Member::parse(text).expect("addresses");
        let before = shard.group().expect("one").view();
        let joined = shard.group().expect("one").join(id, &place);
        end_turn(&mut shard);
        let group = shard.group().expect("one");
        assert!(group.leads().is_ok());
        let after = group.view();
        assert_eq!(joined.is_ok(), fits, "{:?}", joined.map_err(|error| error.0.len()));
        let known = after.members.iter().find(|(member, ..)| *member == id);
        assert_eq!(known.map(|(_, known, _)| known == &place), fits.then_some(true));
        assert_eq!(after.members.len(), before.members.len() + usize::from(fits));
        let stored = group.stored_members();
        assert_eq!(stored.iter().any(|(member, _)| *member == id), fits, "{}", stored.len());
    }
    shard.group().expect("one").leave(2).expect("it leaves");
    end_turn(&mut shard);
    let group = shard.group().expect("one");
    assert!(group.stored_members().iter().all(|(member, _)| *member != 2));
    assert_eq!(group.view().members.len(), 1);
}

#[test]
fn what_makes_an_entry_too_long_is_refused_and_the_rest_is_agreed_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut shard = open_group(&storage(dir.path(), DurabilityArg::Process, 64 << 20), 1 << 20);
    let (most, half) = ("v".repeat(2 << 20), "v".repeat(600_000));
    for round in 0..3 {
        assert_eq!(line(&mut shard, &format!("SET a{round} {half}")), "+OK");
        let reply = line(&mut shard, &format!("SET b{round} {half}"));
        assert!(reply.starts_with("-TRYAGAIN "), "{reply}");
        let reply = line(&mut shard, &format!("SET c{round} {most}"));
        assert!(reply.starts_with("-ERR ") && reply.contains("too l"), "{reply}");
        assert_eq!(line(&mut shard, &format!("SET d{round} 1")), "+OK");
        let round = shard.round().expect("a group").expect("not broken");
        assert!(!round.lost, "connections would be closed");
        end_turn(&mut shard);
    }
    assert_eq!(line(&mut shard, "EXISTS a0 a1 a2 b0 b1 b2 c0 c1 c2 d0 d1 d2"), ":6");
    assert_eq!(line(&mut shard, &format!("SET b0 {half}")), "+OK");
}

#[test]
fn a_commit_without_room_is_made_when_there_is_some_and_requests_are_served_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 16 << 20), false);
    assert_eq!(line(&mut shard, "SET before v"), "+OK");
    end_turn(&mut shard);
    let Store::Alone(engine) = &shard.store else { panic!("alone") };
    let pool = std::sync::Arc::clone(engine.pool());
    let options = pmindex_rstore::Options::new().capacity(64 << 20);
    let mut other = pmindex_rstore::Partition::create(&pool, "other", &options).expect("room");
    for length in [500_000, 20_000, 2_100] {
        let value = vec![7; length];
        while other.put_unweighed(&other.len().to_be_bytes(), &value, None).is_ok() {}
    }
    let mut turns = 0;
    while shard.end().is_ok() {
        line(&mut shard, &format!("SET k{} {}", turns % 100, "v".repeat(500)));
        turns += 1;
        assert!(turns < 100_000, "the pool is full");
    }
    // What was not acknowledged is not shown, and nothing is acknowledged.
    for words in ["GET before", "SET after v", "GET k0"] {
        let reply = line(&mut shard, words);
        assert!(reply.starts_with('-'), "{words}: {reply}");
        shard.upkeep(NOW, true).expect("it waits");
        shard.end().expect("said already");
    }
    drop(other);
    assert!(pmindex_rstore::Partition::destroy(&pool, "other").expect("sound"));
    drop(pool);
    shard.upkeep(NOW, true).expect("room");
    assert_eq!(line(&mut shard, "SET after v"), "+OK");
    end_turn(&mut shard);
    shard.close().expect("room");
    let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 16 << 20), false);
    for key in ["before", "after"] {
        assert_eq!(line(&mut shard, &format!("GET {key}")), "$1\r\nv");
    }
}

/// Damages the only value with these bytes, wherever it is stored.
fn damage(shard: &mut Shard, value: [u8; 8]) {
    let pool = match &shard.store {
        Store::Alone(engine) => engine.pool(),
        Store::Group(group) => group.pool(),
    };
    let (wanted, mut found) = (u64::from_le_bytes(value), 0);
    for page in (1..).map_while(|page| pool.words(page * 4096, 512).ok()) {
        for word in page {
            if pool.pm().load(word) == wanted {
                pool.pm().store(word, wanted + 1);
                found += 1;
            }
        }
    }
    assert!(found > 0);
}

#[test]
fn a_damaged_member_is_left_and_the_others_are_removed() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 64 << 20), grouped);
        let many =
            |of: &str| (0..500).fold(format!("HSET {of}"), |t, at| format!("{t} {at:03} .{at}"));
        // The middle one of a hash, and the owner of a hash that expires.
        for words in [many("first"), many("hurt"), "HSET hurt 250 DAMAGED!".into(), many("last")] {
            assert!(line(&mut shard, &words).starts_with(':'));
        }
        assert_eq!(line(&mut shard, "HSET -OWNED-! f v"), ":1"); // its owner's value
        assert_eq!(line(&mut shard, "HSET later f v"), ":1");
        end_turn(&mut shard);
        damage(&mut shard, *b"DAMAGED!");
        damage(&mut shard, *b"-OWNED-!");
        for key in ["first", "hurt", "last"] {
            assert_eq!(line(&mut shard, &format!("DEL {key}")), ":1");
        }
        assert_eq!(line(&mut shard, &format!("PEXPIREAT later {}", NOW + 5)), ":1");
        end_turn(&mut shard);
        for turn in 0..50 {
            shard.upkeep(NOW + 1000 * turn, true).expect("damage is no reason to stop");
            end_turn(&mut shard);
        }
        assert!(shard.place.dropped.is_empty());
        assert_eq!(shard.place.damaged.len(), 2, "{:?}", shard.place.damaged);
        // What is left: the damaged member and its owner, the damaged head and owner with their member, two counts.
        let left = shard.store.records().len();
        assert!(left <= 12, "{left}");
        assert_eq!(line(&mut shard, "HSET new f v"), ":1");
        assert_eq!(line(&mut shard, "HGETALL new"), "*2\r\n$1\r\nf\r\n$1\r\nv");
    }
}

/// Its counters are older than the records: it would give ids again that collections have.
#[test]
fn a_leader_that_cannot_read_its_counters_again_does_not_serve() {
    let dir = tempfile::tempdir().expect("a folder");
    let storage = storage(dir.path(), DurabilityArg::Process, 64 << 20);
    let mut shard = open_as(&storage, true);
    assert_eq!(line(&mut shard, "HSET -OWNED-! f v"), ":1");
    end_turn(&mut shard);
    shard.close().expect("a disk");
    let mut shard = open_follower(&storage, 1 << 30);
    damage(&mut shard, *b"-OWNED-!"); // the owner of the last collection
    let fails = |shard: &mut Shard| shard.round().is_some_and(|round| round.is_err());
    while !fails(&mut shard) {
        assert!(shard.group().expect("one").leads().is_err(), "it serves");
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..50 {
        assert!(!fails(&mut shard), "it fails once");
        assert!(shard.group().expect("one").leads().is_err(), "it serves");
        for words in ["HSET new f v", "SET a 1", "GET a"] {
            let reply = line(&mut shard, words);
            assert!(reply.starts_with("-ERR storage"), "{words}: {reply}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_that_fails_in_a_transaction_leaves_nothing_of_itself() {
    for grouped in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shard = open_as(&storage(dir.path(), DurabilityArg::Process, 64 << 20), grouped);
        for words in ["SET a 1", "SET b DAMAGED", "SET c 3"] {
            assert_eq!(line(&mut shard, words), "+OK");
        }
        end_turn(&mut shard);
        damage(&mut shard, *b"sDAMAGED"); // with the tag of a string
        let commands = ["INCR c", "DEL a b c", "INCR c"].map(|words| {
            let request = Request::new(words.split(' ').map(str::as_bytes));
            (table::find(request.args().at(0)).expect("a command"), request)
        });
        let transaction = Transaction { commands: commands.into(), watched: Vec::new() };
        let mut out = Reply::new(Protocol::Resp2);
        shard.transact(&transaction, NOW, &mut out);
        end_turn(&mut shard);
        let replies = String::from_utf8_lossy(&out.bytes).into_owned();
        let replies: Vec<&str> = replies.lines().collect();
        assert!(replies[2].starts_with("-ERR storage"), "{replies:?}");
        assert_eq!([replies[0], replies[1], replies[3]], ["*3", ":4", ":5"]);
        assert_eq!(line(&mut shard, "GET a"), "$1\r\n1");
        assert_eq!(line(&mut shard, "GET c"), "$1\r\n5");
    }
}
