//! What a connection may do, and what belongs to the connection alone: permissions, transactions, channels, cursors.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rstore_server::{Client, Reply};

use super::{Server, bulk, call, ok, refused, strings};

fn queued() -> Reply {
    Reply::Simple("QUEUED".into())
}

/// Sends lines to the port of memcached, and returns the reply.
fn memcached(server: &Server, lines: &str) -> String {
    let mut stream = TcpStream::connect(server.address("memcached on ")).expect("it listens");
    stream.write_all(format!("{lines}\r\nquit\r\n").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn clients_of_memcached_must_be_allowed_what_they_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let more = ["--memcached", "127.0.0.1:0", "--requirepass", "secret"];
    let server = Server::start(dir.path(), &more);
    let mut client = server.client();
    assert_eq!(call(&mut client, "AUTH secret"), ok());
    assert_eq!(call(&mut client, "SET a 1"), ok());
    for line in [
        "get a",
        "gat 9 a",
        "set a 0 0 1\r\nx",
        "delete a",
        "incr a 1",
        "touch a 9",
        "mg a v",
        "ms a 1\r\nx",
        "md a",
        "ma a",
        "flush_all",
        "flush_all noreply",
        "stats",
    ] {
        let reply = memcached(&server, line);
        assert!(reply.starts_with("CLIENT_ERROR unauthenticated\r\n"), "{line}: {reply}");
        assert!(!reply.contains("STAT ") && !reply.contains("VALUE"), "{line}: {reply}");
    }
    assert_eq!(call(&mut client, "GET a"), bulk("1"));
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--memcached", "127.0.0.1:0"]);
    let reply = memcached(&server, "set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nstats");
    assert!(reply.starts_with("STORED\r\nOK\r\nEND\r\nSTAT pid "), "{reply}");
}

#[test]
fn times_of_memcached_are_times_of_redis() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--memcached", "127.0.0.1:0"]);
    let mut client = server.client();
    for time in ["9223372036854775807", "9223372036854775", "18446744073709551", "99999999999"] {
        let line = format!("set a 0 {time} 1\r\nx\r\nmg a t v");
        let reply = memcached(&server, &line);
        assert!(reply.starts_with("STORED\r\nVA 1 t"), "{time}: {reply}");
        let mut replies = ["TTL a", "PTTL a", "EXPIRETIME a", "PEXPIRETIME a"].map(|line| {
            let Reply::Integer(number) = call(&mut client, line) else { panic!("no number") };
            assert!(number > 1_000_000, "{time}, {line}: {number}");
            number
        });
        replies.sort_unstable();
        assert!(replies[0] > replies[3] / 2000, "seconds and milliseconds: {replies:?}");
        assert_eq!(call(&mut client, "EXPIRE a 100 LT"), Reply::Integer(1));
    }
}

/// Every command in a transaction is queued, or refused so that the transaction is too, or one that Redis runs
/// there at once: nothing else runs before `EXEC`.
#[test]
fn what_is_not_queued_ends_the_transaction() {
    let at_once = ["discard", "exec", "multi", "quit", "reset", "watch"];
    let dir = tempfile::tempdir().expect("a folder");
    for partitions in ["1", "3"] {
        let dir = dir.path().join(partitions);
        let server = Server::start(&dir, &["--partitions", partitions]);
        let mut client = server.client();
        let Reply::Array(commands) = call(&mut client, "COMMAND") else { panic!("no commands") };
        assert!(commands.len() > 100);
        assert_eq!(call(&mut client, "SET kept 1"), ok());
        for command in commands {
            let Reply::Array(parts) = command else { panic!("{command:?}") };
            let [Reply::Bulk(Some(name)), Reply::Integer(arity), ..] = &parts[..] else {
                panic!("{parts:?}")
            };
            let name = String::from_utf8(name.clone()).expect("text");
            if at_once.contains(&name.as_str()) {
                continue;
            }
            let words = usize::try_from(arity.abs()).expect("a count");
            let mut request = vec![name.as_str()];
            request.resize(words, "0");
            let mut client = server.client();
            client.patience(Duration::from_secs(60)).expect("a limit");
            assert_eq!(call(&mut client, "MULTI"), ok());
            let reply = client.call(&request).expect("a reply");
            let exec = "EXEC";
            if reply == queued() {
                assert!(matches!(call(&mut client, exec), Reply::Array(_) | Reply::Error(_)));
                continue;
            }
            let error = "ERR Command not allowed inside a transaction";
            assert_eq!(reply, Reply::Error(error.into()), "{request:?}");
            refused(&mut client, exec, "EXECABORT");
            refused(&mut client, exec, "ERR EXEC without MULTI");
        }
        assert_eq!(call(&mut client, "MULTI"), ok());
        for line in ["FLUSHALL", "FLUSHDB", "SAVE", "SUBSCRIBE c", "AUTH x", "HELLO 3", "SHUTDOWN"]
        {
            refused(&mut client, line, "not allowed inside a transaction");
        }
        refused(&mut client, "WATCH a", "ERR WATCH inside MULTI is not allowed");
        refused(&mut client, "MULTI", "ERR MULTI calls can not be nested");
        assert_eq!(call(&mut client, "DISCARD"), ok());
        assert_eq!(call(&mut client, "GET kept"), bulk("1"));
        for sole in [&["KEYS *", "SCAN 0", "DBSIZE"][..], &["UNWATCH", "PING", "TIME", "SELECT 0"]]
        {
            for line in sole {
                assert_eq!(call(&mut client, "MULTI"), ok());
                let reply = call(&mut client, line);
                let is_queued = partitions == "1" || sole.len() == 4;
                assert_eq!(reply == queued(), is_queued, "{partitions}: {line}: {reply:?}");
                assert_eq!(call(&mut client, "DISCARD"), ok());
            }
        }
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_eq!(call(&mut client, "RESET"), Reply::Simple("RESET".into()));
        refused(&mut client, "EXEC", "ERR EXEC without MULTI");
    }
}

#[test]
fn a_refused_exec_ends_the_transaction() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(call(&mut client, "WATCH a"), ok());
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, "SET a 1"), queued());
    refused(&mut client, "EXEC now", "EXECABORT Transaction discarded because of: wrong number of");
    assert_eq!(call(&mut client, "GET a"), Reply::Bulk(None));
    // The watches have ended, too.
    assert_eq!(call(&mut other, "SET a 2"), ok());
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, "EXEC"), Reply::Array(Vec::new()));
}

#[test]
fn a_time_set_again_is_a_change_for_those_who_watch() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(call(&mut client, "SET a 1 PXAT 9000000000000"), ok());
    for (line, changes) in [
        ("GETEX a PXAT 9000000000000", true),
        ("GETEX a EXAT 9000000000", true),
        ("PEXPIREAT a 9000000000000", true),
        ("SET a 1 KEEPTTL", true),
        ("GETEX a", false),
        ("GETEX a PERSIST", true),
        ("GETEX a PERSIST", false),
        ("PERSIST a", false),
    ] {
        assert_eq!(call(&mut client, "WATCH a"), ok());
        call(&mut other, line);
        assert_eq!(call(&mut client, "MULTI"), ok());
        let reply = call(&mut client, "EXEC");
        assert_eq!(reply == Reply::Bulk(None), changes, "{line}");
    }
}

/// Subscribes to a channel, and returns the connection.
fn listener(server: &Server, request: &str) -> Client {
    let mut listener = server.client();
    listener.patience(Duration::from_secs(60)).expect("a limit");
    let Reply::Array(joined) = call(&mut listener, request) else { panic!("not subscribed") };
    assert_eq!(joined[2], Reply::Integer(1));
    listener
}

#[test]
fn messages_of_a_transaction_are_sent_when_it_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    for partitions in ["1", "3"] {
        let dir = dir.path().join(partitions);
        let server = Server::start(&dir, &["--partitions", partitions]);
        let mut listeners: Vec<_> = (0..5).map(|_| listener(&server, "SUBSCRIBE c")).collect();
        let (mut client, mut other) = (server.client(), server.client());
        let mut heard = |texts: &[&str]| {
            for listener in &mut listeners {
                for text in texts {
                    let message = listener.receive().expect("a message");
                    assert_eq!(message, strings(&["message", "c", text]));
                }
            }
        };
        let five = || Reply::Integer(5);
        for key in ["a", "b", "c", "d"] {
            for line in ["MULTI", "PUBLISH c one", "HSET h{#} f 1", "HGETALL h{#}", "PUBLISH c two"]
            {
                client.send(&line.replace('#', key).split(' ').collect::<Vec<_>>()).expect("sent");
            }
            // What follows in the pipeline comes after the transaction's messages.
            for line in ["GET none{#}", "PUBLISH none x", "EXEC", "PUBLISH c three"] {
                client.send(&line.replace('#', key).split(' ').collect::<Vec<_>>()).expect("sent");
            }
            client.flush().expect("sent");
            assert_eq!(client.receive().expect("a reply"), ok());
            for _ in 0..6 {
                assert_eq!(client.receive().expect("a reply"), queued());
            }
            let pair = strings(&["f", "1"]);
            let (added, none) = (Reply::Integer(1), Reply::Integer(0));
            let all = vec![five(), added, pair, five(), Reply::Bulk(None), none];
            assert_eq!(client.receive().expect("a reply"), Reply::Array(all));
            assert_eq!(client.receive().expect("a reply"), five());
            heard(&["one", "two", "three"]);
            assert_eq!(call(&mut client, &format!("DEL h{{{key}}}")), Reply::Integer(1));
            // A transaction that does not run sends nothing.
            for end in ["DISCARD", "EXEC", "RESET"] {
                assert_eq!(call(&mut client, &format!("WATCH w{{{key}}}")), ok());
                assert_eq!(call(&mut client, "MULTI"), ok());
                assert_eq!(call(&mut client, "PUBLISH c never"), queued());
                assert!(matches!(call(&mut other, &format!("INCR w{{{key}}}")), Reply::Integer(_)));
                assert!(!matches!(call(&mut client, end), Reply::Array(_)));
            }
            assert_eq!(call(&mut client, "PUBLISH c end"), five());
            heard(&["end"]);
        }
        // One without any keys.
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_eq!(call(&mut client, "PUBLISH c alone"), queued());
        assert_eq!(call(&mut client, "EXEC"), Reply::Array(vec![five()]));
        heard(&["alone"]);
    }
}

#[test]
fn channels_are_listed_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--partitions", "3"]);
    let mut listeners = Vec::new();
    for _ in 0..6 {
        listeners.push(listener(&server, "SUBSCRIBE news"));
        listeners.push(listener(&server, "PSUBSCRIBE n*"));
    }
    listeners.push(listener(&server, "SUBSCRIBE other"));
    listeners.push(listener(&server, "PSUBSCRIBE o*"));
    let mut client = server.client();
    let Reply::Array(channels) = call(&mut client, "PUBSUB CHANNELS") else {
        panic!("no channels")
    };
    assert_eq!(channels.len(), 2, "{channels:?}");
    let channels: BTreeSet<_> = channels.iter().map(|name| format!("{name:?}")).collect();
    assert_eq!(channels, [bulk("news"), bulk("other")].map(|name| format!("{name:?}")).into());
    assert_eq!(call(&mut client, "PUBSUB CHANNELS n*"), strings(&["news"]));
    assert_eq!(call(&mut client, "PUBSUB CHANNELS x*"), strings(&[]));
    assert_eq!(call(&mut client, "PUBSUB NUMPAT"), Reply::Integer(2));
    let counts = vec![bulk("news"), Reply::Integer(6), bulk("none"), Reply::Integer(0)];
    assert_eq!(call(&mut client, "PUBSUB NUMSUB news none"), Reply::Array(counts));
    assert_eq!(call(&mut client, "PUBSUB NUMSUB"), Reply::Array(Vec::new()));
}

#[test]
fn a_cursor_from_before_a_restart_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    for number in 0..1000 {
        call(&mut client, &format!("SADD set {number}"));
        call(&mut client, &format!("SET k{number:03} 1"));
    }
    let cursor = |client: &mut Client, line: &str| {
        let Reply::Array(parts) = call(client, line) else { panic!("{line}") };
        let Reply::Bulk(Some(cursor)) = &parts[0] else { panic!("{parts:?}") };
        String::from_utf8(cursor.clone()).expect("digits")
    };
    let old = cursor(&mut client, "SCAN 0 COUNT 10");
    let old_of_members = cursor(&mut client, "SSCAN set 0 COUNT 10");
    server.kill();
    let server = Server::start(dir.path(), &[]);
    let mut client = server.client();
    assert_ne!(cursor(&mut client, "SCAN 0 COUNT 500"), old);
    assert_ne!(cursor(&mut client, "SSCAN set 0 COUNT 500"), old_of_members);
    refused(&mut client, &format!("SCAN {old}"), "invalid cursor");
    refused(&mut client, &format!("SSCAN set {old_of_members}"), "invalid cursor");
}

/// Returns the most bytes of memory that a process has had.
fn most_memory(server: &Server) -> u64 {
    let status = format!("/proc/{}/status", server.process.id());
    let status = std::fs::read_to_string(status).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a figure");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Queues messages in a transaction, at most this number, or as many as it takes; returns their number.
fn queue_messages(client: &mut Client, most: usize) -> usize {
    const PART: usize = 1000;
    assert_eq!(call(client, "MULTI"), ok());
    let (mut count, mut is_refused) = (0, false);
    while count < most && !is_refused {
        for _ in 0..PART {
            client.send(&["PUBLISH", "c", "x"]).expect("sent");
        }
        client.flush().expect("sent");
        for _ in 0..PART {
            match client.receive().expect("a reply") {
                reply if reply == queued() => count += 1,
                Reply::Error(text) if text.contains("too large") => is_refused = true,
                other => panic!("{other:?}"),
            }
        }
    }
    count
}

#[test]
fn many_messages_of_a_transaction_take_little_more_than_its_queue() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--partitions", "3"]);
    let (mut client, mut slow) = (server.client(), listener(&server, "SUBSCRIBE c"));
    let most = queue_messages(&mut client, usize::MAX) / 2000 * 1000;
    assert!(most > 100_000, "{most}");
    refused(&mut client, "EXEC", "EXECABORT");
    let before = most_memory(&server);
    assert_eq!(queue_messages(&mut client, most), most);
    let Reply::Array(counts) = call(&mut client, "EXEC") else { panic!("no array") };
    assert_eq!(counts.len(), most);
    assert!(counts.iter().all(|count| *count == Reply::Integer(1)));
    // The queue was twice as long before; now there are the messages of the listener, and the counts.
    let more = most_memory(&server).saturating_sub(before);
    assert!(more < 64 << 20, "{more} bytes for {most} messages");
    let message = strings(&["message", "c", "x"]);
    assert!((0..1000).all(|_| slow.receive().is_ok_and(|heard| heard == message)));
}

/// A reply that comes from another partition does not let the requests behind a `WATCH` run before the versions of the
/// watched keys are there.
#[test]
fn a_transaction_elsewhere_does_not_end_the_wait_for_a_watch() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--partitions", "4"]);
    let mut client = server.client();
    for round in 0..500 {
        // Their partitions differ, in all ways.
        let (one, two) = (format!("a{}", round % 16), format!("b{}", round / 16 % 16));
        for line in
            ["MULTI", "SET 1 x", "EXEC", "WATCH 2", "MULTI", "SET 2 y", "EXEC", "GET 2", "DEL 2"]
        {
            let line = line.replace('1', &one).replace('2', &two);
            client.send(&line.split(' ').collect::<Vec<_>>()).expect("sent");
        }
        client.flush().expect("sent");
        let replies: Vec<_> = (0..9).map(|_| client.receive().expect("a reply")).collect();
        let done = Reply::Array(vec![ok()]);
        let expected = [
            ok(),
            queued(),
            done.clone(),
            ok(),
            ok(),
            queued(),
            done,
            bulk("y"),
            Reply::Integer(1),
        ];
        assert_eq!(replies, expected, "round {round}");
    }
}
