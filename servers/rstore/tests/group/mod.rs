//! A group of three processes: its leader is killed, nodes join and leave, and no acknowledged write is lost.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rstore_server::{Client, Reply};

/// The nodes of a group in a folder, which end when this is dropped.
struct Group<'d>(&'d Path);

impl Group<'_> {
    fn rstore(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rstore"));
        command.args(["cluster", words[0]]).arg(self.0).args(&words[1..]);
        command.output().expect("it runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.rstore(words);
        let (text, error) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{words:?}: {error}\n{}", self.logs());
        String::from_utf8_lossy(text).into_owned()
    }

    /// Returns the logs of all nodes.
    fn logs(&self) -> String {
        let log = |node: u64| std::fs::read_to_string(self.0.join(format!("node-{node}/log")));
        (1..5).filter_map(|node| Some(format!("node {node}:\n{}", log(node).ok()?))).collect()
    }

    /// Returns the number and the address of each node in the status, and its line.
    fn status(&self) -> Vec<(u64, String, String)> {
        let text = String::from_utf8_lossy(&self.rstore(&["status"]).stdout).into_owned();
        let mut nodes = Vec::new();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            nodes.push((words[0].parse().expect("a number"), words[1].into(), line.into()));
        }
        nodes
    }

    fn leader(&self) -> u64 {
        let started = Instant::now();
        loop {
            let leads = |(_, _, line): &&(u64, String, String)| line.contains(" leader ");
            if let Some((node, ..)) = self.status().iter().find(leads) {
                return *node;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "no leader\n{}", self.logs());
        }
    }

    /// Kills the addition of a node this time after the node is in the list.
    fn interrupt_add(&self, after: Duration) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rstore"));
        let mut add = command.args(["cluster", "add"]).arg(self.0).spawn().expect("it runs");
        let list = || std::fs::read_to_string(self.0.join("nodes")).expect("a list");
        while !list().contains(" joining") {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(after);
        add.kill().expect("it can be killed");
        add.wait().expect("it ended");
    }

    fn kill(&self, node: u64) {
        self.signal(node, "-9");
    }

    fn signal(&self, node: u64, signal: &str) {
        let pid = std::fs::read_to_string(self.0.join(format!("node-{node}/pid"))).expect("a pid");
        let sent = Command::new("kill").args([signal, pid.trim()]).status().expect("kill");
        assert!(sent.success());
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        for node in 1..10 {
            if let Ok(pid) = std::fs::read_to_string(self.0.join(format!("node-{node}/pid"))) {
                let _ = Command::new("kill").args(["-9", pid.trim()]).output();
            }
        }
    }
}

/// A client that asks another node if one does not answer, like the clients of Redis Cluster.
struct Follower {
    nodes: Vec<String>,
    next: usize,
    client: Option<Client>,
}

impl Follower {
    fn of(group: &Group<'_>) -> Self {
        let nodes = group.status().into_iter().map(|(_, address, _)| address).collect();
        Self { nodes, next: 0, client: None }
    }

    /// Repeats a request until a leader answers; it may be executed more than once.
    fn call(&mut self, request: &[&str]) -> Reply {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(120), "{request:?} is not answered");
            if self.client.is_none() {
                self.next = (self.next + 1) % self.nodes.len();
                self.client = Client::connect(&*self.nodes[self.next]).ok();
            }
            let Some(client) = &mut self.client else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            match client.call(request) {
                Ok(Reply::Error(error)) if error.starts_with("MOVED ") => {
                    let place = error.split(' ').nth(2).expect("an address");
                    self.client = Client::connect(place).ok();
                }
                Ok(Reply::Error(error))
                    if error.starts_with("CLUSTERDOWN") || error.starts_with("TRYAGAIN") =>
                {
                    thread::sleep(Duration::from_millis(5));
                    self.client = None;
                }
                Ok(reply) => return reply,
                Err(_) => self.client = None,
            }
        }
    }
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

#[test]
fn a_folder_without_a_group_is_said_to_have_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = Group(dir.path()).rstore(&["status"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no group is in this folder"), "{error}");
    assert!(!output.status.success());
}

#[test]
fn a_group_that_cannot_start_says_why_and_leaves_nothing() {
    let base = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let dir = base.path().join("a/group");
    let group = Group(&dir);
    let refused = |words: &[&str], says: &str| {
        let output = group.rstore(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{words:?}: {error}");
        let left: Vec<_> = std::fs::read_dir(base.path()).expect("it is there").collect();
        assert!(left.is_empty(), "{words:?} left {left:?}");
    };
    // A medium on which no journal can be kept: every node ends, and its log says so.
    refused(&["create", "--durability", "journal"], "durability journal was required");
    refused(&["create", "--durability", "journal", "--partitions", "2"], "durability journal");
    refused(&["create", "--durability", "periodic"], "--twin");
    // The port between nodes is 1000 above the first one.
    let (taken, port) = loop {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("bound").port();
        if port <= u16::MAX - 999 {
            break (taken, port);
        }
    };
    // The last port of the only node; another one may be taken too.
    let first = (port - 1).to_string();
    let ports = ["create", "--nodes", "1", "--partitions", "2", "--port", &first];
    refused(&ports, "Address already in use");
    drop(taken);
    group.done(&["create", "--durability", "process", "--nodes", "1"]);
    let output = group.rstore(&["create", "--durability", "process", "--nodes", "1"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("it already has a group"), "{error}");

    // A node that cannot open its pool: the group stays, and continues when that is mended.
    let mut client = Follower::of(&group);
    assert_eq!(client.call(&["SET", "a", "1"]), ok());
    group.done(&["stop"]);
    let (pool, away) = (dir.join("node-1/partition-0000.pool"), dir.join("away"));
    std::fs::rename(&pool, &away).expect("renamed");
    std::fs::create_dir(&pool).expect("created");
    let output = group.rstore(&["start"]);
    let error = String::from_utf8_lossy(&output.stderr);
    let says = ["node 1", "partition-0000.pool", "a directory", "node-1/log"];
    assert!(says.iter().all(|word| error.contains(word)), "{error}");
    std::fs::remove_dir(&pool).expect("removed");
    std::fs::rename(&away, &pool).expect("renamed");
    group.done(&["start"]);
    assert_eq!(client.call(&["GET", "a"]), Reply::Bulk(Some("1".into())));
}

#[test]
fn a_node_whose_number_is_not_kept_does_not_go_on() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let group = Group(dir.path());
    group.done(&["create", "--durability", "process", "--nodes", "1"]);
    let address = group.status()[0].1.clone();
    group.done(&["stop"]);
    let pid = dir.path().join("node-1/pid");
    let _ = std::fs::remove_file(&pid);
    std::fs::create_dir(&pid).expect("created");
    let output = group.rstore(&["start"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("node-1/pid"), "{error}");
    // One that was left would serve in much less time.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        assert!(Client::connect(&*address).is_err(), "the node serves");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_group_is_not_created_over_the_pools_of_another() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let pools = dir.path().join("node-2");
    std::fs::create_dir(&pools).expect("created");
    std::fs::write(pools.join("partition-0000.pool"), "records").expect("written");
    let output = Group(dir.path()).rstore(&["create", "--durability", "process"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("node-2"), "{error}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("it is there").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read(pools.join("partition-0000.pool")).expect("kept"), b"records");
}

#[test]
fn the_nodes_of_a_group_at_the_ports_of_another_are_none_of_that() {
    let dirs = [(); 2].map(|()| tempfile::tempdir_in("/dev/shm").expect("a folder"));
    let [first, second] = [&dirs[0], &dirs[1]].map(|dir| Group(dir.path()));
    first.done(&["create", "--durability", "process", "--nodes", "1"]);
    let (_, address, _) = first.status().remove(0);
    first.kill(1);
    let port = address.rsplit_once(':').expect("an address").1;
    // Until the killed process has left its ports.
    let create = ["create", "--durability", "process", "--nodes", "1", "--port", port];
    let started = Instant::now();
    while !second.rstore(&create).status.success() {
        assert!(started.elapsed() < Duration::from_secs(60), "{}", second.logs());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(second.status().remove(0).1, address);
    let (_, _, line) = first.status().remove(0);
    assert!(line.contains("down"), "{line}");
    first.rstore(&["stop"]);
    let mut client = Client::connect(address.as_str()).expect("it was not stopped");
    assert_eq!(client.call(&["SET", "k", "1"]).expect("a reply"), ok());
    second.done(&["stop"]);
    assert!(Client::connect(address.as_str()).is_err());
}

/// A node that does not lead refuses a transaction, and has forgotten it then.
fn exec_elsewhere(group: &Group<'_>, leader: u64) {
    let nodes = group.status();
    let (_, address, _) = nodes.iter().find(|(node, ..)| *node != leader).expect("another one");
    let mut client = Client::connect(address.as_str()).expect("it listens");
    let moved = |reply: Reply| matches!(reply, Reply::Error(text) if text.starts_with("MOVED "));
    for _ in 0..2 {
        assert_eq!(client.call(&["MULTI"]).expect("a reply"), ok());
        assert!(moved(client.call(&["EXEC"]).expect("a reply")));
        assert!(moved(client.call(&["GET", "k"]).expect("a reply")));
    }
}

#[test]
fn a_group_goes_on_without_its_leader() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let group = Group(dir.path());
    let text = group.done(&["create", "--durability", "process"]);
    assert_eq!(text.matches(" runs ").count(), 3, "{text}");
    let mut client = Follower::of(&group);
    let mut written = 0;
    let mut more = |client: &mut Follower, count: u32| {
        for number in written..written + count {
            let (key, value) = (format!("k{number}"), format!("v{number}"));
            assert_eq!(client.call(&["SET", &key, &value]), ok());
            assert!(matches!(client.call(&["SADD", "all", &key]), Reply::Integer(0 | 1)));
        }
        written += count;
        for number in (0..written).step_by(7) {
            let value = Reply::Bulk(Some(format!("v{number}").into()));
            assert_eq!(client.call(&["GET", &format!("k{number}")]), value);
        }
        let all = i64::from(written);
        assert_eq!(client.call(&["SCARD", "all"]), Reply::Integer(all));
        assert_eq!(client.call(&["DBSIZE"]), Reply::Integer(all + 1));
    };
    more(&mut client, 60);
    let first = group.leader();
    exec_elsewhere(&group, first);
    // The leader dies, and the two others continue; then it restarts.
    group.kill(first);
    more(&mut client, 60);
    assert_ne!(group.leader(), first);
    let text = group.done(&["start"]); // which returns when the node serves
    assert_eq!(text.matches(" runs ").count(), 3, "{text}");
    // A node joins, by a snapshot, although the command is killed meanwhile; another one leaves.
    group.interrupt_add(Duration::ZERO);
    let text = group.done(&["add"]);
    assert_eq!(text.matches(" runs ").count(), 4, "{text}");
    more(&mut client, 20);
    group.done(&["remove", &first.to_string()]);
    more(&mut client, 20);
    // Now the new node is needed: it and one other are two of three.
    let second = group.leader();
    group.kill(second);
    client = Follower::of(&group);
    more(&mut client, 20);
    assert_eq!(client.call(&["FLUSHALL"]), ok());
    assert_eq!(client.call(&["DBSIZE"]), Reply::Integer(0));
    // All nodes stop and start again.
    assert_eq!(client.call(&["SET", "last", "one"]), ok());
    group.done(&["stop"]);
    group.done(&["start"]);
    assert_eq!(client.call(&["GET", "last"]), Reply::Bulk(Some("one".into())));
    assert_eq!(client.call(&["DBSIZE"]), Reply::Integer(1));
}

/// Returns the ranges of slots with the ports of their leaders, as a node tells them; none while it starts.
fn slots(address: &str) -> Vec<(i64, i64, i64)> {
    let Ok(mut client) = Client::connect(address) else { return Vec::new() };
    let Ok(Reply::Array(ranges)) = client.call(&["CLUSTER", "SLOTS"]) else { return Vec::new() };
    let range = |range: Reply| {
        let Reply::Array(words) = range else { panic!("{range:?}") };
        let [Reply::Integer(first), Reply::Integer(last), Reply::Array(leader), others @ ..] =
            &words[..]
        else {
            panic!("{words:?}")
        };
        assert_eq!(others.len(), 2, "the other nodes are replicas");
        let Reply::Integer(port) = leader[1] else { panic!("{leader:?}") };
        (*first, *last, port)
    };
    ranges.into_iter().map(range).collect()
}

/// Waits until each of three nodes leads the partition that it should lead, as all of them tell: the first node
/// the first one. After an election another node may lead it for a while.
fn spread(group: &Group<'_>) -> Vec<(i64, i64, i64)> {
    let started = Instant::now();
    loop {
        let nodes = group.status();
        let leads = |(_, _, line): &&(u64, String, String)| line.contains(" leads 1 ");
        let told: Vec<_> = nodes.iter().map(|(_, address, _)| slots(address)).collect();
        // A node has a port for each partition, beginning with the one of its address.
        let port = |(nth, (_, address, _)): (i64, &(u64, String, String))| {
            address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0) + nth
        };
        let wanted: Vec<i64> = (0..).zip(&nodes).map(port).collect();
        let agree = told.iter().all(|ranges| ranges.iter().map(|range| range.2).eq(wanted.clone()));
        if nodes.len() == 3 && nodes.iter().filter(leads).count() == 3 && agree {
            return told[0].clone();
        }
        assert!(started.elapsed() < Duration::from_secs(180), "{nodes:?}\n{}", group.logs());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Publishes on each node; the subscribers of every node hear each message once.
fn publish_everywhere(group: &Group<'_>) {
    let nodes: Vec<String> = group.status().into_iter().map(|(_, address, _)| address).collect();
    let bulk = |text: &str| Reply::Bulk(Some(text.into()));
    let mut listeners: Vec<Client> = Vec::new();
    for node in &nodes {
        // One on each of the node's threads, as far as the kernel spreads them.
        for _ in 0..3 {
            let mut listener = Client::connect(node.as_str()).expect("it listens");
            listener.patience(Duration::from_secs(60)).expect("a limit");
            let joined = Reply::Array(vec![bulk("subscribe"), bulk("news"), Reply::Integer(1)]);
            assert_eq!(listener.call(&["SUBSCRIBE", "news"]).expect("a reply"), joined);
            listeners.push(listener);
        }
    }
    for node in &nodes {
        let mut publisher = Client::connect(node.as_str()).expect("it listens");
        let reply = publisher.call(&["PUBLISH", "news", node]).expect("a reply");
        assert_eq!(reply, Reply::Integer(3), "the subscribers of the node itself");
        for listener in &mut listeners {
            let heard = Reply::Array(vec![bulk("message"), bulk("news"), bulk(node)]);
            assert_eq!(listener.receive().expect("the message"), heard, "{}", group.logs());
        }
    }
}

/// A write that no other node has is not acknowledged, also if its reply waits for other threads of the node, or
/// behind one that does.
fn write_without_a_majority(group: &Group<'_>) {
    let address = group.status().remove(0).1;
    for lines in [&["PUBLISH c x", "SET KEY x"][..], &["MULTI", "PUBLISH t x", "SET KEY x", "EXEC"]]
    {
        spread(group);
        let mut client = Client::connect(address.as_str()).expect("it listens");
        client.patience(Duration::from_secs(60)).expect("a limit");
        let is_here = |key: &String| !matches!(client.call(&["GET", key]), Ok(Reply::Error(text)) if text.contains("MOVED"));
        let key = (0..1000).map(|number| format!("k{number}")).find(is_here).expect("a key");
        // On the ports of all partitions, so on all threads, of the node.
        let (host, port) = address.rsplit_once(':').expect("an address");
        let port: u16 = port.parse().expect("a port");
        let mut listeners: Vec<_> = (0..3)
            .map(|nth| {
                let mut listener = Client::connect((host, port + nth)).expect("it listens");
                listener.patience(Duration::from_secs(60)).expect("a limit");
                listener.call(&["SUBSCRIBE", "t"]).expect("a reply");
                listener
            })
            .collect();
        for node in [2, 3] {
            group.signal(node, "-STOP");
        }
        for line in lines {
            let line = line.replace("KEY", &key);
            client.send(&line.split(' ').collect::<Vec<_>>()).expect("sent");
        }
        client.flush().expect("sent");
        let replies: Vec<_> = lines.iter().map(|_| client.receive()).collect();
        for node in [2, 3] {
            group.signal(node, "-CONT");
        }
        assert!(matches!(replies.last(), Some(Err(_) | Ok(Reply::Error(_)))), "{replies:?}");
        // Of the transaction, which is not acknowledged, no message has left.
        let mut client = Client::connect(address.as_str()).expect("it listens");
        assert_eq!(client.call(&["PUBLISH", "t", "end"]).expect("a reply"), Reply::Integer(3));
        for listener in &mut listeners {
            let bulk = |text: &str| Reply::Bulk(Some(text.into()));
            let heard = Reply::Array(vec![bulk("message"), bulk("t"), bulk("end")]);
            assert_eq!(listener.receive().expect("a message"), heard);
        }
    }
}

#[test]
fn leaders_of_partitions_are_spread_over_the_nodes() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let group = Group(dir.path());
    group.done(&["create", "--durability", "process", "--partitions", "3"]);
    let ranges = spread(&group);
    publish_everywhere(&group);
    write_without_a_majority(&group);
    assert_eq!(spread(&group), ranges);
    let bounds: Vec<(i64, i64)> = ranges.iter().map(|(first, last, _)| (*first, *last)).collect();
    assert_eq!(bounds, [(0, 5461), (5462, 10922), (10923, 16383)]);
    let mut client = Follower::of(&group);
    let mut written = 0;
    let mut more = |client: &mut Follower, count: u32| {
        for number in written..written + count {
            let request = ["SET".to_owned(), format!("k{number}"), format!("v{number}")];
            assert_eq!(client.call(&request.each_ref().map(String::as_str)), ok());
        }
        written += count;
        for number in 0..written {
            let value = Reply::Bulk(Some(format!("v{number}").into()));
            assert_eq!(client.call(&["GET", &format!("k{number}")]), value);
        }
        written
    };
    let count = more(&mut client, 90);
    // Each partition has the keys of its slots, and refuses others with the place where they are.
    let mut keys = 0;
    for (first, last, port) in &ranges {
        let mut leader = Client::connect(("127.0.0.1", u16::try_from(*port).expect("a port")))
            .expect("it listens");
        let Ok(Reply::Integer(size)) = leader.call(&["DBSIZE"]) else { panic!("no size") };
        assert!(size > 0, "{ranges:?}");
        keys += size;
        let Ok(Reply::Error(moved)) = leader.call(&["GET", "k0"]) else { continue };
        let slot: i64 = moved.split(' ').nth(1).and_then(|slot| slot.parse().ok()).expect("a slot");
        assert!(!(first..=last).contains(&&slot), "{moved}");
        let at = ranges.iter().find(|(first, last, _)| (first..=last).contains(&&slot));
        assert!(moved.ends_with(&format!(":{}", at.expect("a range").2)), "{moved}");
    }
    assert_eq!(keys, i64::from(count));
    let error = client.call(&["MGET", "k0", "k1"]);
    assert!(matches!(&error, Reply::Error(text) if text.starts_with("CROSSSLOT")), "{error:?}");
    // A node dies: the others lead its partition too. It comes back, and leads it again.
    group.kill(2);
    more(&mut client, 60);
    group.done(&["start"]);
    assert_eq!(spread(&group), ranges);
    client = Follower::of(&group);
    more(&mut client, 30);
    // A node joins the groups of all partitions, and another one leaves them.
    group.interrupt_add(Duration::from_millis(300));
    let text = group.done(&["add"]);
    assert_eq!(text.matches(" runs ").count(), 4, "{text}");
    group.done(&["remove", "1"]);
    client = Follower::of(&group);
    more(&mut client, 30);
    group.done(&["stop"]);
    group.done(&["start"]);
    client = Follower::of(&group);
    more(&mut client, 10);
}
