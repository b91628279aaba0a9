//! What a connection may do, and what belongs to the connection alone: permissions, transactions, channels, cursors.

use std::io::{Read, Write};
use std::net::TcpStream;

use rstore_server::{Client, Reply};

use super::{Server, bulk, call, ok, refused};

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
