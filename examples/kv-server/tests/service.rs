//! The server as its users meet it: its commands, the protocol's edges, kills, a clean end.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use kv_server::{Client, Reply};

struct Server {
    process: Child,
    address: String,
    greeting: String,
    _stdout: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    fn start(pool: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv-server"));
        let rest = ["--listen", "127.0.0.1:0", "--durability", "process", "--size", "8"];
        Self::started(command.arg("serve").arg(pool).args(rest))
    }

    fn started(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).expect("readable");
        let address = greeting.split(' ').nth(2).expect("ready on ADDRESS").to_owned();
        Self { process, address, greeting, _stdout: stdout }
    }

    fn client(&self) -> Client {
        Client::connect(&self.address).expect("it listens")
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

#[test]
fn commands_do_what_redis_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("kv.pool"));
    let mut client = server.client();
    let mut call = |line: &str| client.call(&line.split(' ').collect::<Vec<_>>()).expect("a reply");
    assert_eq!(call("PING"), Reply::Simple("PONG".into()));
    assert_eq!(call("ECHO hello"), bulk("hello"));
    assert_eq!(call("GET a"), Reply::Bulk(None));
    assert_eq!(call("SET a 1"), ok());
    assert_eq!(call("set a 2"), ok());
    assert_eq!(call("SET a 3 NX"), Reply::Bulk(None));
    assert_eq!(call("SET b 4 XX"), Reply::Bulk(None));
    assert_eq!(call("SET a 5 XX"), ok());
    assert_eq!(call("SETNX b 6"), Reply::Integer(1));
    assert_eq!(call("SETNX b 7"), Reply::Integer(0));
    assert_eq!(call("GETSET d 8"), Reply::Bulk(None));
    assert_eq!(call("SET d 9 GET"), bulk("8"));
    assert_eq!(call("GETDEL d"), bulk("9"));
    assert_eq!(call("MGET a b c"), Reply::Array(vec![bulk("5"), bulk("6"), Reply::Bulk(None)]));
    assert_eq!(call("MSET user:3 z user:1 x user:2 yy"), ok());
    assert_eq!(call("EXISTS a c user:1 a"), Reply::Integer(3));
    assert_eq!(call("STRLEN user:2"), Reply::Integer(2));
    assert_eq!(call("DBSIZE"), Reply::Integer(5));
    assert_eq!(call("KEYS user:*"), strings(&["user:1", "user:2", "user:3"]));
    assert_eq!(call("KEYS *[a3]"), strings(&["a", "user:3"]));
    assert_eq!(call("RANGE b user:3"), strings(&["b", "6", "user:1", "x", "user:2", "yy"]));
    assert_eq!(call("RANGE - + LIMIT 1 REV"), strings(&["user:3", "z"]));
    assert_eq!(call("RANGE z a"), strings(&[]));
    assert_eq!(call("GETDEL user:2"), bulk("yy"));
    assert_eq!(call("DEL user:1 user:2 a"), Reply::Integer(2));
    assert_eq!(call("DBSIZE"), Reply::Integer(2));

    for (line, error) in [
        ("GET", "wrong number of arguments"),
        ("MSET a", "wrong number of arguments"),
        ("FLY away", "unknown command 'FLY'"),
        ("SET a 1 EX", "syntax error"),
        ("SCAN x", "invalid cursor"),
        ("SCAN 77", "invalid cursor"),
        ("SELECT 1", "out of range"),
    ] {
        let reply = call(line);
        assert!(matches!(&reply, Reply::Error(text) if text.contains(error)), "{line}: {reply:?}");
    }
    let long_key = "k".repeat(5000);
    let reply = call(&format!("SET {long_key} 1"));
    assert!(matches!(&reply, Reply::Error(text) if text.contains("5000 bytes")), "{reply:?}");
    let Reply::Bulk(Some(info)) = call("INFO") else { panic!("INFO is text") };
    let info = String::from_utf8(info).expect("text");
    assert!(info.contains("db0:keys=2,") && info.contains("durability:process"), "{info}");
    assert_eq!(call("FLUSHDB"), ok());
    assert_eq!(call("DBSIZE"), Reply::Integer(0));
}

#[test]
fn scan_visits_every_key_that_stays() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("kv.pool"));
    let mut client = server.client();
    for i in 0..1000 {
        client.send(&["SET", &format!("k{i:04}"), "v"]).expect("sent");
    }
    client.flush().expect("sent");
    for _ in 0..1000 {
        assert_eq!(client.receive().expect("a reply"), ok());
    }
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let request = ["SCAN", &cursor, "COUNT", "37", "MATCH", "k*[02468]"];
        let reply = client.call(&request).expect("a reply");
        let Reply::Array(parts) = reply else { panic!("{reply:?}") };
        let [Reply::Bulk(Some(next)), Reply::Array(found)] = &parts[..] else {
            panic!("{parts:?}")
        };
        keys.extend(found.iter().cloned());
        cursor = String::from_utf8(next.clone()).expect("digits");
        if cursor == "0" {
            break;
        }
        // What comes and goes meanwhile disturbs nothing.
        client.call(&["SET", &format!("k{}x", keys.len()), "v"]).expect("a reply");
        client.call(&["DEL", "k0001"]).expect("a reply");
    }
    let expected: Vec<Reply> = (0..1000).step_by(2).map(|i| bulk(&format!("k{i:04}"))).collect();
    assert_eq!(keys, expected);
}

#[test]
fn nonsense_ends_its_own_connection_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(&dir.path().join("kv.pool"));
    let mut bystander = server.client();
    assert_eq!(bystander.call(&["SET", "a", "1"]).expect("a reply"), ok());
    let endless = vec![b'x'; 200_000];
    for nonsense in [&b"*1\r\n$99999999999\r\n"[..], b"*2\r\n:1\r\n", &endless] {
        let mut stream = TcpStream::connect(&server.address).expect("it listens");
        // It may hang up before everything is sent.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = Vec::new();
        if stream.read_to_end(&mut reply).is_ok() {
            assert!(reply.starts_with(b"-ERR Protocol error"), "{reply:?}");
        }
    }
    assert_eq!(bystander.call(&["GET", "a"]).expect("a reply"), bulk("1"));
}

/// Writes until the server is gone; counts what it acknowledged.
fn write_until_killed(address: &str, writer: u64, acknowledged: &AtomicU64) {
    let Ok(mut client) = Client::connect(address) else { return };
    for number in acknowledged.load(SeqCst).. {
        let key = format!("w{writer}:{number}");
        let Ok(reply) = client.call(&["SET", &key, &number.to_string()]) else { return };
        assert_eq!(reply, ok());
        acknowledged.store(number + 1, SeqCst);
    }
}

#[test]
fn what_was_acknowledged_is_there_after_each_kill() {
    const WRITERS: u64 = 3;
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("kv.pool");
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let total = || acknowledged.iter().map(|count| count.load(SeqCst)).sum::<u64>();
    for round in 1..=4 {
        let mut server = Server::start(&pool);
        assert_eq!(server.greeting.contains(": recovered "), round > 1, "{}", server.greeting);
        let address = server.address.clone();
        thread::scope(|scope| {
            for (writer, count) in (0..).zip(&acknowledged) {
                let address = &address;
                scope.spawn(move || write_until_killed(address, writer, count));
            }
            while total() < round * 1000 {
                thread::yield_now();
            }
            server.kill();
        });
        let server = Server::start(&pool);
        let mut client = server.client();
        for (writer, count) in acknowledged.iter().enumerate() {
            let count = count.load(SeqCst);
            for number in 0..count {
                let value = client.call(&["GET", &format!("w{writer}:{number}")]);
                assert_eq!(value.expect("a reply"), bulk(&number.to_string()), "writer {writer}");
            }
            // The write in flight may be there; nothing beyond it.
            let beyond = client.call(&["GET", &format!("w{writer}:{}", count + 1)]);
            assert_eq!(beyond.expect("a reply"), Reply::Bulk(None), "writer {writer}");
        }
    }
}

#[test]
fn a_shutdown_is_clean() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = dir.path().join("kv.pool");
    let mut server = Server::start(&pool);
    let mut client = server.client();
    let idle = server.client();
    assert_eq!(client.call(&["SET", "a", "1"]).expect("a reply"), ok());
    assert!(client.call(&["SHUTDOWN"]).is_err(), "no reply: the connection ends");
    assert!(server.process.wait().expect("it ends").success());
    drop(idle);
    let server = Server::start(&pool);
    assert!(server.greeting.contains(": clean "), "{}", server.greeting);
    assert_eq!(server.client().call(&["GET", "a"]).expect("a reply"), bulk("1"));
}

#[test]
fn the_trial_shows_its_times() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_kv-server"))
        .arg("trial")
        .arg(dir.path().join("kv.pool"))
        .args(["--records", "5000", "--connections", "2", "--durability", "process"])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("from the start of the process to its first reply: "), "{text}");
    assert!(text.contains("verified"), "{text}");
}

#[test]
fn the_comparison_loses_nothing_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_kv-server"))
        .arg("compare")
        .arg(dir.path())
        .args(["--records", "3000", "--connections", "2", "--durability", "process"])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for name in ["kv-server", "redis-server", "redb"] {
        assert!(text.contains(name), "a row or a word for each: {text}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}

#[test]
fn how_often_a_twin_is_written_stands_behind_the_mode() {
    for (word, said) in [
        ("periodic", Some("periodic:100ms")),
        ("periodic:5ms", Some("periodic:5ms")),
        ("periodic:2s", Some("periodic:2000ms")),
        ("journal", Some("journal")),
        ("periodic:100", None),
        ("periodic:s", None),
        ("periodic:", None),
        ("journal:1s", None),
    ] {
        let asked = word.parse::<kv_server::Wanted>().ok().map(|wanted| wanted.to_string());
        assert_eq!(asked.as_deref(), said, "{word}");
    }
    let memory = Path::new("/dev/shm").is_dir().then(|| tempfile::tempdir_in("/dev/shm"));
    let Some(Ok(memory)) = memory else { return };
    let disk = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let (pool, twin) = (memory.path().join("kv.pool"), disk.path().join("kv.twin"));
    let serve = |rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv-server"));
        command.arg("serve").arg(&pool).args(["--listen", "127.0.0.1:0", "--size", "8"]).args(rest);
        command
    };
    let refused = |rest: &[&str], why: &str| {
        let output = serve(rest).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(why), "{error}");
        assert!(!pool.exists());
    };
    refused(&["--durability", "periodic:5ms"], "needs --twin FILE");
    refused(&["--twin", "/var/tmp/nothing"], "--twin is for --durability periodic");
    refused(&["--durability", "periodic:5"], "write periodic:100ms");

    // The power fails, so to speak: what SAVE waited for is there again.
    let name = twin.to_str().expect("text");
    let periodic =
        || Server::started(&mut serve(&["--durability", "periodic:5ms", "--twin", name]));
    let mut server = periodic();
    assert_eq!(server.client().call(&["SET", "a", "1"]).expect("a reply"), ok());
    assert_eq!(server.client().call(&["SAVE"]).expect("a reply"), ok());
    server.kill();
    std::fs::remove_file(&pool).expect("removed");
    let server = periodic();
    assert_eq!(server.client().call(&["GET", "a"]).expect("a reply"), bulk("1"));
}
