//! Creates, starts, stops, shows and changes a group of nodes on this machine.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{Client, Reply};
use crate::config::DurabilityArg;
use crate::folders::{self, NewFolders};
use crate::group::{self, Member};

use super::started::Started;

/// The file that lists the nodes.
const NODES: &str = "nodes";
/// What the list says of a node that is not yet a member of the groups of all partitions.
const JOINING: &str = "joining";
/// The distance of the ports between nodes from those for clients.
const PEERS_ABOVE: u32 = 1000;
/// The maximum time until a group has a leader.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command for a group of nodes on this machine.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum ClusterArgs {
    /// Create a group in a new folder, and start its nodes in the background
    Create {
        /// The folder
        dir: PathBuf,

        /// The number of nodes; 3 tolerate the failure of one, 5 of two
        #[arg(long, default_value_t = 3, value_name = "N")]
        nodes: u64,

        /// The partitions: each has a Raft group of its own, and on each node a thread and a port for clients.
        /// The nodes share the leadership of the groups. Cannot be changed later
        #[arg(long, default_value_t = 1, value_name = "N")]
        partitions: u16,

        /// The first port for clients, of as many as nodes times partitions; the ports between nodes are 1000
        /// higher; 0: choose free ports
        #[arg(long, default_value_t = 0, value_name = "PORT")]
        port: u16,

        /// What an acknowledged write survives on each node
        #[arg(long, default_value_t = DurabilityArg::Auto, value_name = "MODE")]
        durability: DurabilityArg,
    },
    /// Start the nodes that are not running
    Start {
        /// The folder
        dir: PathBuf,
    },
    /// Stop all nodes cleanly
    Stop {
        /// The folder
        dir: PathBuf,
    },
    /// Show the nodes: which one leads, or how many partitions it leads, and how far the others are behind
    Status {
        /// The folder
        dir: PathBuf,
    },
    /// Add and start a node; it votes when it has copied all records
    Add {
        /// The folder
        dir: PathBuf,
    },
    /// Remove a node from the group and stop it; also one that has lost its disk
    Remove {
        /// The folder
        dir: PathBuf,

        /// The number of the node
        node: u64,
    },
}

/// A node in the file.
#[derive(Clone, Debug)]
struct Node {
    id: u64,
    place: Member,
    /// `founder`, `joined`, `removed`.
    is: String,
}

impl Node {
    fn is_removed(&self) -> bool {
        self.is == "removed"
    }

    /// Connects to a partition of the node. Fails if that belongs to another group, as after its port was given to one.
    fn client(&self, partition: u16, group: Option<NonZeroU64>) -> Result<Client, Error> {
        let mut client = Client::connect(self.place.clients_of(partition.into()))?;
        let Some(group) = group else { return Ok(client) };
        match client.call(&["CLUSTER", "GROUP"])? {
            // 0: it does not know it yet.
            Reply::Bulk(Some(number))
                if number == b"0" || number == group.to_string().as_bytes() =>
            {
                Ok(client)
            }
            _ => Err(Error::Server("belongs to another group, or to none".into())),
        }
    }
}

/// The nodes in a folder.
struct Group {
    dir: PathBuf,
    durability: DurabilityArg,
    /// The number of founders, which are the first nodes.
    founders: usize,
    partitions: u16,
    /// The number of the group; `None` for one of before there were numbers.
    number: Option<NonZeroU64>,
    nodes: Vec<Node>,
}

/// Runs the command.
///
/// # Errors
/// The error, with the node.
pub fn cluster(args: &ClusterArgs) -> Result<(), Error> {
    match args {
        ClusterArgs::Create { dir, nodes, partitions, port, durability } => {
            Group::create(dir, (*nodes, *partitions), *port, *durability)?.show()
        }
        ClusterArgs::Start { dir } => {
            let group = Group::read(dir)?;
            group.start(false, &mut Vec::new())?;
            group.show()
        }
        ClusterArgs::Stop { dir } => Group::read(dir)?.stop(),
        ClusterArgs::Status { dir } => Group::read(dir)?.show(),
        ClusterArgs::Add { dir } => Group::read(dir)?.add(),
        ClusterArgs::Remove { dir, node } => Group::read(dir)?.remove(*node),
    }
}

/// The number of attempts to find consecutive ports that are free.
const ATTEMPTS: usize = 100;

/// The ports from which it chooses. Those above are given to outgoing connections: one of them could take the port
/// of a node that is not running, among them the connection of another node that tries to reach it.
const PORTS: Range<u16> = 15_000..32_000;

/// Returns the first of a number of consecutive ports that are free, and holds all of them.
fn free_ports(count: u16) -> Result<(Vec<TcpListener>, u16), Error> {
    let room = (PORTS.end - PORTS.start).saturating_sub(count);
    for _ in 0..ATTEMPTS.min(usize::from(room)) {
        let random = RandomState::new().build_hasher().finish();
        let port = PORTS.start + (random % u64::from(room)) as u16;
        let held = (port..port + count).map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
        if let Some(held) = held.collect::<Option<Vec<_>>>() {
            return Ok((held, port));
        }
    }
    Err(Error::Setting("there are not enough consecutive free ports; choose them with --port"))
}

/// Chooses ports for this number of nodes, which must be free. All ports are held until each node has its own.
fn places(count: u64, partitions: u16, port: u16) -> Result<Vec<Member>, Error> {
    let (mut held, mut places) = (Vec::new(), Vec::new());
    for number in 0..count as u16 {
        let (peers, clients) = if port == 0 {
            let ((one, peers), (more, clients)) = (free_ports(1)?, free_ports(partitions)?);
            held.extend(one.into_iter().chain(more));
            (peers, clients)
        } else {
            let clients = u32::from(port) + u32::from(number) * u32::from(partitions);
            let last = clients + u32::from(partitions) - 1;
            let peers = u32::from(port) + PEERS_ABOVE + u32::from(number);
            if last >= u32::from(port) + PEERS_ABOVE || peers > u32::from(u16::MAX) {
                return Err(Error::Setting(
                    "there are not enough ports from --port on: choose a lower one, or fewer partitions",
                ));
            }
            let ports = [peers].into_iter().chain(clients..=last);
            for port in ports {
                let address = format!("127.0.0.1:{port}");
                held.push(TcpListener::bind(&address).map_err(Error::io(address))?);
            }
            (peers as u16, clients as u16)
        };
        let on = |port: u16| format!("127.0.0.1:{port}");
        places.push(Member { peers: on(peers), clients: on(clients) });
    }
    Ok(places)
}

impl Group {
    /// Creates a group and starts it. If it cannot start, and has no records, all of it is removed again.
    fn create(
        dir: &Path,
        (count, partitions): (u64, u16),
        port: u16,
        durability: DurabilityArg,
    ) -> Result<Self, Error> {
        if !(1..=9).contains(&count) {
            return Err(Error::Setting("--nodes must be 1 to 9"));
        }
        if !(1..=1024).contains(&partitions) {
            return Err(Error::Setting("--partitions must be 1 to 1024"));
        }
        if matches!(durability, DurabilityArg::Periodic(_)) {
            return Err(Error::Setting(
                "--durability periodic needs --twin DIR for each node: start each with `rstore serve`",
            ));
        }
        folders::check(dir)?;
        if dir.join(NODES).exists() {
            let what = "it already has a group; start that with `rstore cluster start`".into();
            return Err(Error::Folder { path: dir.into(), what });
        }
        let places = places(count, partitions, port)?;
        let node = |(id, place)| Node { id, place, is: "founder".into() };
        let nodes = (1..).zip(places).map(node).collect();
        let founders = count as usize;
        let number = Some(group::random());
        let group = Self { dir: dir.into(), durability, founders, partitions, number, nodes };
        if let Some(path) =
            group.nodes.iter().map(|node| group.folder(node)).find(|dir| dir.exists())
        {
            let what = "this is of a node of another group, whose list `nodes` is missing; name another folder";
            return Err(Error::Folder { path, what: what.into() });
        }
        let _new = NewFolders::create(dir)?;
        let mut started = Vec::new();
        let done = group.write().and_then(|()| group.start(true, &mut started));
        match done {
            Ok(()) => Ok(group),
            Err(error) if group.remove_unused(&mut started) => Err(error),
            Err(error) => Err(group.refuses(format!(
                "{error}; the group stays, for it may have records: `rstore cluster start` continues, `stop` ends it"
            ))),
        }
    }

    /// Ends and removes a new group that cannot have acknowledged a write, because most of its nodes have no pool;
    /// returns `false` for another one.
    fn remove_unused(&self, started: &mut [Started]) -> bool {
        let is_pool = |name: &OsString| name.as_encoded_bytes().ends_with(b".pool");
        let has_pools = |node: &&Node| {
            let files = fs::read_dir(self.folder(node)).into_iter().flatten().flatten();
            files.map(|file| file.file_name()).any(|name| is_pool(&name))
        };
        let is_used = || 2 * self.nodes.iter().filter(has_pools).count() > self.nodes.len();
        if is_used() {
            return false;
        }
        started.iter_mut().for_each(Started::kill);
        // One may have created its pool meanwhile.
        if is_used() {
            return false;
        }
        for node in &self.nodes {
            let _ = fs::remove_dir_all(self.folder(node));
        }
        let _ = fs::remove_file(self.dir.join(NODES));
        true
    }

    /// Returns the folder of a node.
    fn folder(&self, node: &Node) -> PathBuf {
        self.dir.join(format!("node-{}", node.id))
    }

    fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NODES);
        let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::Folder {
                path: dir.into(),
                what: "no group is in this folder; create one with `rstore cluster create`".into(),
            },
            _ => Error::io(path.display())(source),
        })?;
        let wrong = || Error::Folder {
            path: path.clone(),
            what: "this is not a list of nodes as `rstore cluster create` writes it".into(),
        };
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let (head, number) = match head[..] {
            [_, _, _, number] => (&head[..3], Some(number.parse().map_err(|_| wrong())?)),
            _ => (&head[..], None),
        };
        let (founders, durability, partitions) = match *head {
            [founders, durability] => (founders.parse().ok(), durability.parse().ok(), Some(1)),
            [founders, durability, partitions] => {
                (founders.parse().ok(), durability.parse().ok(), partitions.parse().ok())
            }
            _ => return Err(wrong()),
        };
        let partitions = partitions.filter(|partitions| (1..=1024).contains(partitions));
        let (Some(founders), Some(durability), Some(partitions)) =
            (founders, durability, partitions)
        else {
            return Err(wrong());
        };
        let mut nodes = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, place, is] = words[..] else { return Err(wrong()) };
            let (id, place) = (id.parse().ok(), Member::parse(place));
            let (Some(id), Some(place)) = (id, place) else { return Err(wrong()) };
            nodes.push(Node { id, place, is: is.into() });
        }
        Ok(Self { dir: dir.into(), durability, founders, partitions, number, nodes })
    }

    fn write(&self) -> Result<(), Error> {
        let number = self.number.map_or_else(String::new, |number| format!(" {number}"));
        let mut text =
            format!("{} {} {}{number}\n", self.founders, self.durability, self.partitions);
        for Node { id, place, is } in &self.nodes {
            let _ = writeln!(text, "{id} {} {is}", place.text());
        }
        let (path, new) = (self.dir.join(NODES), self.dir.join("nodes.new"));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(Error::io(path.display()))
    }

    fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.is_removed())
    }

    /// Starts a node in the background.
    fn spawn(&self, node: &Node, is_new: bool) -> Result<Started, Error> {
        let dir = self.folder(node);
        fs::create_dir_all(&dir).map_err(Error::io(dir.display()))?;
        let log = dir.join("log");
        let file = fs::File::options().append(true).create(true).open(&log);
        let file = file.map_err(Error::io(log.display()))?;
        let logged = file.metadata().map_err(Error::io(log.display()))?.len();
        let program = std::env::current_exe().map_err(Error::io("this program"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &node.place.clients, "--peers", &node.place.peers]);
        command.args(["--node", &node.id.to_string(), "--dir"]).arg(&dir);
        command.args(["--durability", &self.durability.to_string()]);
        if self.partitions > 1 {
            command.args(["--partitions", &self.partitions.to_string()]);
        }
        if let Some(number) = self.number {
            command.args(["--group", &number.to_string()]);
        }
        if node.is == "founder" {
            let founders = self.nodes.iter().take(self.founders);
            let founders: Vec<String> =
                founders.map(|node| format!("{}={}", node.id, node.place.text())).collect();
            command.args(["--founders", &founders.join(",")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).process_group(0);
        let process = command.spawn().map_err(Error::io("starting a node"))?;
        let (address, pid) = (node.place.clients_of(0), dir.join("pid"));
        let mut started = Started { id: node.id, address, process, log, logged, is_new };
        if let Err(error) = fs::write(&pid, started.process.id().to_string()) {
            // Nothing could stop it, and its folder may be removed.
            started.kill();
            return Err(Error::io(pid.display())(error));
        }
        Ok(started)
    }

    /// Starts the nodes that are not running; waits until they serve and each partition has a leader.
    fn start(&self, is_new: bool, started: &mut Vec<Started>) -> Result<(), Error> {
        for node in self.members() {
            if node.client(0, self.number).is_err() {
                started.push(self.spawn(node, is_new)?);
            }
        }
        started.iter_mut().try_for_each(Started::wait)?;
        (0..self.partitions).try_for_each(|partition| self.elected(partition, started).map(drop))
    }

    /// Returns the members of a partition's group as its leader sees them: lines of `CLUSTER NODES`.
    fn seen(&self, partition: u16) -> Option<String> {
        for node in self.members() {
            let Ok(mut client) = node.client(partition, self.number) else { continue };
            let Ok(Reply::Bulk(Some(text))) = client.call(&["CLUSTER", "NODES"]) else { continue };
            let text = String::from_utf8_lossy(&text).into_owned();
            if text.lines().any(|line| line.contains("myself,master")) {
                let prefix = format!("{partition:08x}");
                let lines = text.lines().filter(|line| line.starts_with(&prefix));
                return Some(lines.fold(String::new(), |text, line| text + line + "\n"));
            }
        }
        None
    }

    /// Waits for a leader of a partition that answers; returns its lines.
    fn leader(&self, partition: u16) -> Result<String, Error> {
        self.elected(partition, &mut [])
    }

    /// Does the same, unless one of these nodes ends meanwhile.
    fn elected(&self, partition: u16, nodes: &mut [Started]) -> Result<String, Error> {
        let started = Instant::now();
        loop {
            if let Some(text) = self.seen(partition) {
                return Ok(text);
            }
            nodes.iter_mut().try_for_each(Started::check)?;
            if started.elapsed() > PATIENCE {
                return Err(self.refuses(format!(
                    "partition {partition} has no leader; see the file `log` of each node"
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a command to the leader of a partition; waits until there is a leader that can execute it.
    fn ask(&self, partition: u16, request: &[&str]) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let text = self.leader(partition)?;
            let leader = text.lines().find(|line| line.contains("myself,master"));
            let place = leader.and_then(|line| line.split([' ', '@']).nth(1)).unwrap_or_default();
            match Client::connect(place).and_then(|mut client| client.call(request)) {
                Ok(Reply::Simple(_)) => return Ok(()),
                // It was done before the connection ended.
                Ok(Reply::Error(error)) if error.ends_with("is no member") => return Ok(()),
                // It would be refused again.
                Ok(Reply::Error(error)) if error.starts_with("ERR") || error.starts_with("OOM") => {
                    return Err(Error::Server(format!("refuses the change: {error}")));
                }
                _ if started.elapsed() > PATIENCE => {
                    return Err(Error::Server("did not make the change in time: do most nodes run? (rstore cluster status)".into()));
                }
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn show(&self) -> Result<(), Error> {
        let seen: Vec<Option<String>> =
            (0..self.partitions).map(|number| self.seen(number)).collect();
        println!("{:<5} {:<22} {:<9} {:<7} behind", "node", "clients", "role", "process");
        for node in self.members() {
            let roles = seen
                .iter()
                .zip(0..)
                .filter_map(|(seen, partition)| Some(role(seen.as_deref()?, node.id, partition)));
            let (role, behind) = summary(&roles.collect::<Vec<_>>());
            let process = if node.client(0, self.number).is_ok() { "runs" } else { "down" };
            println!("{:<5} {:<22} {role:<9} {process:<7} {behind}", node.id, node.place.clients);
        }
        let missing = seen.iter().filter(|seen| seen.is_none()).count();
        if missing > 0 {
            let of = if self.partitions > 1 {
                format!(" of {missing} of its {} partitions", self.partitions)
            } else {
                String::new()
            };
            return Err(self.refuses(format!(
                "the group has no leader{of}: more than half of the nodes must run (rstore cluster start)"
            )));
        }
        Ok(())
    }

    /// Returns an error that names the folder.
    fn refuses(&self, what: String) -> Error {
        Error::Folder { path: self.dir.clone(), what }
    }

    fn stop(&self) -> Result<(), Error> {
        for node in self.members() {
            self.end(node);
        }
        Ok(())
    }

    /// Stops a node, and waits until its process has ended.
    fn end(&self, node: &Node) {
        let started = Instant::now();
        while let Ok(mut client) = node.client(0, self.number) {
            let _ = client.call(&["SHUTDOWN"]);
            if started.elapsed() > PATIENCE {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Adds a node, or goes on with one that an interrupted call has begun to add.
    fn add(mut self) -> Result<(), Error> {
        let begun = self.nodes.iter().position(|node| node.is == JOINING);
        let at = begun.unwrap_or(self.nodes.len());
        if begun.is_none() {
            let place = places(1, self.partitions, 0)?.remove(0);
            let id = self.nodes.iter().map(|node| node.id).max().unwrap_or(0) + 1;
            self.nodes.push(Node { id, place, is: JOINING.into() });
            self.write()?; // before its process: another call must find that
        }
        let node = self.nodes[at].clone();
        if node.client(0, self.number).is_err() {
            self.spawn(&node, false)?.wait()?;
        }
        (0..self.partitions).try_for_each(|partition| self.join(&node, partition))?;
        self.nodes[at].is = "joined".into();
        self.write()?;
        self.show()
    }

    /// Adds a node to the group of a partition, and waits until it votes.
    fn join(&self, node: &Node, partition: u16) -> Result<(), Error> {
        let (number, place) = (node.id.to_string(), node.place.text());
        let join = ["CLUSTER", "JOIN", &number, &place];
        self.ask(partition, &join)?;
        let started = Instant::now();
        loop {
            match role(&self.leader(partition)?, node.id, partition) {
                Role { is: "follower" | "leader", .. } => return Ok(()),
                // Another change was in progress.
                Role { is: "no member", .. } => self.ask(partition, &join)?,
                _ => {}
            }
            if started.elapsed() > PATIENCE {
                return Err(self.refuses(format!(
                    "node {number} has not caught up with the leader yet: see `rstore cluster status`"
                )));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Removes a node from the group of a partition, and waits until the leader has applied that: then it is
    /// agreed on by the members that remain.
    fn leave(&self, number: &str, id: u64, partition: u16) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            self.ask(partition, &["CLUSTER", "LEAVE", number])?;
            if role(&self.leader(partition)?, id, partition).is == "no member" {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(self.refuses(format!(
                    "node {number} is still a member of partition {partition}: do most nodes run? \
                     (rstore cluster status)"
                )));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn remove(mut self, id: u64) -> Result<(), Error> {
        let known = self.nodes.iter().position(|node| node.id == id && !node.is_removed());
        let at = known.ok_or(Error::Setting(
            "the group has no such node; `rstore cluster status` lists its nodes",
        ))?;
        let number = id.to_string();
        (0..self.partitions).try_for_each(|partition| self.leave(&number, id, partition))?;
        self.end(&self.nodes[at]);
        self.nodes[at].is = "removed".into();
        self.write()?;
        self.show()
    }
}

/// What a node is in the group of a partition, and by how many entries it is behind.
struct Role {
    is: &'static str,
    behind: u64,
}

/// Finds a node in the lines of a partition's leader.
fn role(seen: &str, id: u64, partition: u16) -> Role {
    let name = format!("{partition:08x}{id:032x}");
    let line = seen.lines().find(|line| line.starts_with(&name));
    let words: Vec<&str> = line.map_or_else(Vec::new, |line| line.split(' ').collect());
    let is = match words.get(2) {
        Some(role) if role.contains("master") => "leader",
        Some(role) if role.contains("learner") => "learner",
        Some(_) => "follower",
        None => "no member",
    };
    Role { is, behind: words.get(5).and_then(|word| word.parse().ok()).unwrap_or(0) }
}

/// Returns the words of a node for its roles in all groups that have a leader.
fn summary(roles: &[Role]) -> (String, String) {
    let Some(first) = roles.first() else { return ("?".into(), "?".into()) };
    let behind = roles.iter().map(|role| role.behind).sum::<u64>().to_string();
    let leads = roles.iter().filter(|role| role.is == "leader").count();
    let least = ["no member", "learner"].iter().find(|is| roles.iter().any(|role| role.is == **is));
    let role = match (least, leads) {
        _ if roles.len() == 1 => first.is.into(),
        (Some(is), _) => (*is).into(),
        (None, 0) => "follower".into(),
        (None, leads) => format!("leads {leads}"),
    };
    (role, behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_group_is_removed_unless_most_of_its_nodes_have_pools() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = Member::parse("127.0.0.1:1/127.0.0.1:2").expect("addresses");
        let node = |id| Node { id, place: place.clone(), is: "founder".into() };
        let group = Group {
            dir: dir.path().join("group"),
            durability: DurabilityArg::Auto,
            founders: 3,
            partitions: 1,
            number: None,
            nodes: (1..=3).map(node).collect(),
        };
        for pools in 0..=3 {
            let new = NewFolders::create(&group.dir).expect("created");
            for (node, number) in group.nodes.iter().zip(1..) {
                fs::create_dir(group.folder(node)).expect("created");
                let name = if number <= pools { "partition-0007.pool" } else { "log" };
                fs::write(group.folder(node).join(name), "x").expect("written");
            }
            group.write().expect("written");
            let is_removed = group.remove_unused(&mut []);
            drop(new);
            assert_eq!(is_removed, pools < 2, "{pools}");
            assert_eq!(group.dir.exists(), !is_removed);
            if !is_removed {
                let files = fs::read_dir(&group.dir).expect("it stays").count();
                assert_eq!(files, 4, "all of it");
                fs::remove_dir_all(&group.dir).expect("removed");
            }
        }
    }
}
