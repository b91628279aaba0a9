//! Tests of the server as its users run it: real processes, kills, hostile and slow clients, a clean end.
#![forbid(unsafe_code)]

#[path = "group/mod.rs"]
mod group;
#[path = "sessions/mod.rs"]
mod sessions;
#[path = "start/mod.rs"]
mod start;
#[path = "tools/mod.rs"]
mod tools;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use rstore_server::{Client, Reply};

struct Server {
    process: Child,
    greeting: String,
    _stdout: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rstore"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--durability", "process", "--dir"]);
        command.arg(dir).args(more).env("RUST_LOG", "error");
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).expect("readable");
        assert!(greeting.starts_with("ready on "), "{greeting:?}");
        Self { process, greeting, _stdout: stdout }
    }

    /// Returns the address after these words of the greeting.
    fn address(&self, after: &str) -> &str {
        let (_, rest) = self.greeting.split_once(after).expect("it says where");
        rest.split([' ', ',', '\n']).next().expect("an address")
    }

    fn client(&self) -> Client {
        Client::connect(self.address("ready on ")).expect("it listens")
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address("ready on ")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    fn kill(&mut self) {
        let _ = self.process.kill(); // SIGKILL
        let _ = self.process.wait();
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.into()))
}

fn strings(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| bulk(text)).collect())
}

fn call(client: &mut Client, line: &str) -> Reply {
    client.call(&line.split(' ').collect::<Vec<_>>()).expect("a reply")
}

#[track_caller]
fn refused(client: &mut Client, line: &str, text: &str) {
    let reply = call(client, line);
    assert!(matches!(&reply, Reply::Error(error) if error.contains(text)), "{line}: {reply:?}");
}

#[test]
fn keys_of_all_partitions_are_one_keyspace() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--partitions", "3"]);
    let (mut one, mut two) = (server.client(), server.client());
    for number in 0..300 {
        one.send(&["SET", &format!("k{number:03}"), &number.to_string()]).expect("sent");
        one.send(&["INCR", &format!("k{number:03}")]).expect("sent");
    }
    one.flush().expect("sent");
    for number in 0..300 {
        assert_eq!(one.receive().expect("a reply"), ok());
        assert_eq!(one.receive().expect("a reply"), Reply::Integer(number + 1), "in order");
    }
    assert_eq!(call(&mut two, "DBSIZE"), Reply::Integer(300));
    assert_eq!(
        call(&mut two, "MGET k000 k150 none k299"),
        Reply::Array(vec![bulk("1"), bulk("151"), Reply::Bulk(None), bulk("300")])
    );
    assert_eq!(call(&mut two, "EXISTS k000 k001 k002 k003 none"), Reply::Integer(4));
    assert_eq!(
        call(&mut two, "RANGE k100 (k103"),
        strings(&["k100", "101", "k101", "102", "k102", "103"])
    );
    assert_eq!(call(&mut two, "RANGE - + LIMIT 2 REV KEYSONLY"), strings(&["k299", "k298"]));
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let reply = call(&mut two, &format!("SCAN {cursor} COUNT 17"));
        let Reply::Array(parts) = reply else { panic!("{reply:?}") };
        let [Reply::Bulk(Some(next)), Reply::Array(found)] = &parts[..] else {
            panic!("{parts:?}")
        };
        seen.extend(found.iter().map(|key| format!("{key:?}")));
        cursor = String::from_utf8(next.clone()).expect("digits");
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 300);
    refused(&mut one, "MSET k000 1 k001 2", "CROSSSLOT");
    assert_eq!(call(&mut one, "MSET {t}a 1 {t}b 2"), ok());

    // A transaction is atomic, whatever the slots of its keys; a changed key aborts it.
    for slot in ["a", "b", "c", "d"] {
        assert_eq!(call(&mut one, &format!("WATCH {{{slot}}}w")), ok());
        assert_eq!(call(&mut one, "MULTI"), ok());
        assert_eq!(call(&mut one, &format!("SET {{{slot}}}x 1")), Reply::Simple("QUEUED".into()));
        assert_eq!(call(&mut one, &format!("INCR {{{slot}}}x")), Reply::Simple("QUEUED".into()));
        assert_eq!(call(&mut one, "EXEC"), Reply::Array(vec![ok(), Reply::Integer(2)]));
        assert_eq!(call(&mut one, &format!("WATCH {{{slot}}}x")), ok());
        assert_eq!(call(&mut two, &format!("SET {{{slot}}}x other")), ok());
        assert_eq!(call(&mut one, "MULTI"), ok());
        assert_eq!(
            call(&mut one, &format!("SET {{{slot}}}x mine")),
            Reply::Simple("QUEUED".into())
        );
        assert_eq!(call(&mut one, "EXEC"), Reply::Bulk(None));
        assert_eq!(call(&mut one, &format!("GET {{{slot}}}x")), bulk("other"));
    }
    assert_eq!(call(&mut one, "MULTI"), ok());
    assert_eq!(call(&mut one, "GET a"), Reply::Simple("QUEUED".into()));
    refused(&mut one, "GET b", "CROSSSLOT");
    refused(&mut one, "EXEC", "EXECABORT");
    assert_eq!(call(&mut one, "FLUSHALL"), ok());
    assert_eq!(call(&mut two, "DBSIZE"), Reply::Integer(0));
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let mut server = Server::start(dir.path(), &["--partitions", "2"]);
    let mut acknowledged = [0_u64; 4];
    for round in 0..3 {
        let counts = [const { AtomicU64::new(0) }; 4];
        thread::scope(|scope| {
            for (writer, count) in counts.iter().enumerate() {
                let (address, first) =
                    (server.address("ready on ").to_owned(), acknowledged[writer]);
                scope.spawn(move || {
                    let mut client = Client::connect(address).expect("it listens");
                    for number in first.. {
                        let key = format!("w{writer}:{number}");
                        let value = format!("{number}.").repeat(1 + number as usize % 700);
                        // Also write a hash, so that the kill hits collections too.
                        let hash = [&b"HSET"[..], b"h", key.as_bytes(), b"x"];
                        let sent = client.call(&[&b"SET"[..], key.as_bytes(), value.as_bytes()]);
                        match sent.and_then(|reply| Ok((reply, client.call(&hash)?))) {
                            Ok((reply, Reply::Integer(_))) if reply == ok() => {
                                count.fetch_add(1, SeqCst)
                            }
                            Ok(other) => panic!("{other:?}"),
                            Err(_) => return,
                        };
                    }
                });
            }
            while counts.iter().map(|count| count.load(SeqCst)).sum::<u64>() < 400 {
                thread::sleep(Duration::from_millis(1));
            }
            server.kill();
        });
        for (all, new) in acknowledged.iter_mut().zip(&counts) {
            *all += new.load(SeqCst);
        }
        server = Server::start(dir.path(), &[]);
        let mut client = server.client();
        for (writer, count) in acknowledged.iter().enumerate() {
            for number in 0..*count {
                let key = format!("w{writer}:{number}");
                let value = format!("{number}.").repeat(1 + number as usize % 700);
                assert_eq!(call(&mut client, &format!("GET {key}")), bulk(&value), "round {round}");
                assert_eq!(call(&mut client, &format!("HGET h {key}")), bulk("x"), "round {round}");
            }
        }
        // The length of the hash is the number of its members.
        let Reply::Integer(length) = call(&mut client, "HLEN h") else { panic!("a number") };
        let Reply::Array(keys) = call(&mut client, "HKEYS h") else { panic!("a row") };
        assert_eq!(i64::try_from(keys.len()), Ok(length));
    }
}

#[test]
fn a_backup_is_a_folder_to_serve() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("live"), &["--partitions", "2"]);
    let mut client = server.client();
    for number in 0..500 {
        assert_eq!(call(&mut client, &format!("SET k{number} {number}")), ok());
    }
    assert_eq!(call(&mut client, "ZADD z 1 a 2 b"), Reply::Integer(2));
    let copy = dir.path().join("copy");
    assert_eq!(call(&mut client, &format!("BACKUP {}", copy.display())), ok());
    refused(&mut client, &format!("BACKUP {}", copy.display()), "backup");
    refused(&mut client, "BACKUP relative", "absolute");
    assert_eq!(call(&mut client, "SET k1 later"), ok());
    let copy = Server::start(&copy, &[]);
    let mut client = copy.client();
    assert_eq!(call(&mut client, "GET k1"), bulk("1"));
    assert_eq!(call(&mut client, "DBSIZE"), Reply::Integer(501));
    assert_eq!(call(&mut client, "ZRANGE z 0 -1"), strings(&["a", "b"]));
}

#[test]
fn hostile_and_slow_clients_harm_no_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &["--maxclients", "40", "--memcached", "127.0.0.1:0"]);
    let mut client = server.client();
    assert_eq!(call(&mut client, &format!("SET big {}", "x".repeat(1 << 20))), ok());
    let long = vec![b'a'; 100_000];
    let nonsense: [&[u8]; 6] = [
        b"*1\r\n$999999999999\r\n",
        b"*-5000000000000000000000\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n:1\r\n",
        &long,
        b"*2\r\n$4\r\nECHO\r\n$5\r\nab",
    ];
    for bytes in nonsense {
        let mut stream = server.stream();
        let _ = stream.write_all(bytes);
        // The server may have ended the connection already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"-ERR"), "{answer:?}");
    }
    // A client asks for gigabytes and reads nothing: the server does not build replies that are not read.
    let mut slow = server.stream();
    slow.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    for _ in 0..2000 {
        if slow.write_all(b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n").is_err() {
            break;
        }
    }
    assert_eq!(call(&mut client, "STRLEN big"), Reply::Integer(1 << 20));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id()));
    let status = status.expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a figure");
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(resident < 400 << 10, "{resident} kB");
    let others: Vec<_> = (0..60).map(|_| server.stream()).collect();
    let mut rejected = 0;
    for mut stream in &others {
        stream.write_all(b"PING\r\n").ok();
        let mut answer = [0; 64];
        let count = stream.read(&mut answer).unwrap_or(0);
        rejected += usize::from(answer[..count].starts_with(b"-ERR max number of clients reached"));
    }
    assert!((15..=30).contains(&rejected), "{rejected} of 60 over a limit of 40");
    assert_eq!(call(&mut client, "CONFIG SET timeout 1"), ok());
    drop(others);
    // Their places are free when the server has noticed that they disconnected.
    loop {
        let mut stream = server.stream();
        let mut answer = [0; 7];
        if stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"+PONG\r\n"
        {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let mut memcached = TcpStream::connect(server.address("memcached on ")).expect("it listens");
    memcached.write_all(b"set a 5 0 1\r\nb\r\ngets a\r\nincr a 1\r\nquit\r\n").expect("sent");
    let mut answer = String::new();
    memcached.read_to_string(&mut answer).expect("text");
    assert!(
        answer.starts_with("STORED\r\nVALUE a 5 1 ") && answer.contains("non-numeric"),
        "{answer}"
    );
    let mut idle = server.stream();
    assert_eq!(idle.read(&mut [0; 1]).expect("closed after a second"), 0);
    assert_eq!(call(&mut server.client(), "GET a"), bulk("b"));
}

#[test]
fn a_full_server_refuses_writes_and_does_the_rest() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let small = ["--size", "4MiB", "--capacity", "6MiB"];
    let mut server = Server::start(dir.path(), &small);
    let mut client = server.client();
    let value = "v".repeat(2000);
    let mut written = 0;
    loop {
        match call(&mut client, &format!("SET k{written} {value}")) {
            Reply::Error(error) => {
                let oom = "OOM command not allowed when used memory > 'maxmemory'.";
                assert_eq!(error, oom);
                break;
            }
            reply => assert_eq!(reply, ok()),
        }
        written += 1;
    }
    assert!(written > 500, "{written}");
    // A transaction without room is not executed at all.
    assert_eq!(call(&mut client, "MULTI"), ok());
    for key in ["a", "b", "c"] {
        let queued = call(&mut client, &format!("SET {key} {value}"));
        assert_eq!(queued, Reply::Simple("QUEUED".into()));
    }
    refused(&mut client, "EXEC", "OOM");
    assert_eq!(call(&mut client, "EXISTS a b c"), Reply::Integer(0));
    // Existing keys can be read, replaced and removed, which makes room.
    assert_eq!(call(&mut client, "GET k0"), bulk(&value));
    assert_eq!(call(&mut client, "DBSIZE"), Reply::Integer(written));
    for number in 0..written / 2 {
        assert_eq!(call(&mut client, &format!("DEL k{number}")), Reply::Integer(1));
    }
    for number in 0..written / 4 {
        assert_eq!(call(&mut client, &format!("SET n{number} {value}")), ok());
    }
    server.kill();
    let server = Server::start(dir.path(), &small);
    let mut client = server.client();
    let left = written - written / 2;
    assert_eq!(call(&mut client, "DBSIZE"), Reply::Integer(left + written / 4));
    for number in (written / 2..written).step_by(37) {
        assert_eq!(call(&mut client, &format!("GET k{number}")), bulk(&value));
    }
}

#[test]
fn users_do_what_they_may() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("rstore.toml");
    std::fs::write(
        &config,
        "requirepass = 'root'\n[[user]]\nname = 'app'\npassword = 'secret'\ncommands = ['read', 'write']\n\
         keys = ['app:*']\n",
    )
    .expect("written");
    let config = config.to_str().expect("a path").to_owned();
    let server = Server::start(&dir.path().join("data"), &["--config", &config]);
    let mut client = server.client();
    refused(&mut client, "GET a", "NOAUTH Authentication required.");
    refused(&mut client, "AUTH wrong", "WRONGPASS");
    assert_eq!(call(&mut client, "AUTH app secret"), ok());
    assert_eq!(call(&mut client, "SET app:1 x"), ok());
    refused(&mut client, "SET other x", "NOPERM");
    refused(&mut client, "SHUTDOWN", "NOPERM");
    assert_eq!(
        call(&mut client, "ACL WHOAMI"),
        Reply::Error("NOPERM this user has no permissions to run the 'acl' command".into())
    );
    assert_eq!(call(&mut client, "AUTH root"), ok());
    assert_eq!(call(&mut client, "ACL USERS"), strings(&["default", "app"]));
    // A client that has not authenticated cannot make the server buffer much.
    let mut stream = server.stream();
    stream.write_all(b"*1\r\n$1000000\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.contains("unauthenticated bulk length"), "{answer}");
}

#[test]
fn signals_and_shutdown_end_it_cleanly() {
    let dir = tempfile::tempdir().expect("a folder");
    for end in ["signal", "command"] {
        let mut server = Server::start(dir.path(), &["--metrics", "127.0.0.1:0"]);
        assert!(server.greeting.contains(": clean, "), "{}", server.greeting);
        let mut client = server.client();
        assert_eq!(
            call(&mut client, "INCR starts"),
            Reply::Integer(if end == "signal" { 1 } else { 2 })
        );
        if end == "signal" {
            let mut scrape = TcpStream::connect(server.address("metrics on ")).expect("it listens");
            scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
            let mut text = String::new();
            scrape.read_to_string(&mut text).expect("text");
            assert!(
                text.starts_with("HTTP/1.1 200 OK") && text.contains("rstore_keys{partition=\"0\"")
            );
            let pid = server.process.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        } else {
            client.send(&["SHUTDOWN"]).expect("sent");
            client.flush().expect("sent");
        }
        let status = server.process.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
    let refused = Command::new(env!("CARGO_BIN_EXE_rstore"))
        .args(["serve", "--partitions", "7", "--dir"])
        .arg(dir.path())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("number of partitions is 1,"), "{text}");
}

/// Tests with other people's clients; the script names those that are not installed.
#[test]
fn other_peoples_clients_find_what_they_expect() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/clients.sh");
    let output = Command::new(script).args([env!("CARGO_BIN_EXE_rstore"), "1"]).output();
    let output = output.expect("a shell");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{out}\n{err}");
    eprintln!("{out}");
}
