//! Creates, starts, stops, shows and changes a group of nodes on this machine.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::{Client, Reply};
use crate::config::DurabilityArg;
use crate::group::Member;

/// The file that lists the nodes.
const NODES: &str = "nodes";
/// The maximum time until a group has a leader, or a node answers.
const PATIENCE: Duration = Duration::from_mins(1);

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

        /// The first port for clients; the ports between nodes are 100 higher; 0: choose free ports
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
    /// Show the nodes: which one leads, and how far the others are behind
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

    fn client(&self) -> Result<Client, Error> {
        Client::connect(&*self.place.clients)
    }
}

/// A group in a folder.
struct Group {
    dir: PathBuf,
    durability: DurabilityArg,
    /// The number of founders, which are the first nodes.
    founders: usize,
    nodes: Vec<Node>,
}

/// Runs the command.
///
/// # Errors
/// The error, with the node.
pub fn cluster(args: &ClusterArgs) -> Result<(), Error> {
    match args {
        ClusterArgs::Create { dir, nodes, port, durability } => {
            let group = Group::create(dir, *nodes, *port, *durability)?;
            group.start()?;
            group.show()
        }
        ClusterArgs::Start { dir } => {
            let group = Group::read(dir)?;
            group.start()?;
            group.show()
        }
        ClusterArgs::Stop { dir } => Group::read(dir)?.stop(),
        ClusterArgs::Status { dir } => Group::read(dir)?.show(),
        ClusterArgs::Add { dir } => Group::read(dir)?.add(),
        ClusterArgs::Remove { dir, node } => Group::read(dir)?.remove(*node),
    }
}

fn free_port() -> Result<(TcpListener, u16), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("a free port"))?;
    let port = listener.local_addr().map_err(Error::io("a free port"))?.port();
    Ok((listener, port))
}

/// Chooses ports for this number of nodes. All ports are held until each node has its own.
fn places(count: u64, port: u16) -> Result<Vec<Member>, Error> {
    let (mut held, mut places) = (Vec::new(), Vec::new());
    for number in 0..count as u16 {
        let (peers, clients) = if port == 0 {
            let ((one, peers), (two, clients)) = (free_port()?, free_port()?);
            held.extend([one, two]);
            (peers, clients)
        } else {
            (port.saturating_add(100 + number), port.saturating_add(number))
        };
        let on = |port: u16| format!("127.0.0.1:{port}");
        places.push(Member { peers: on(peers), clients: on(clients) });
    }
    Ok(places)
}

impl Group {
    fn create(dir: &Path, count: u64, port: u16, durability: DurabilityArg) -> Result<Self, Error> {
        if !(1..=9).contains(&count) {
            return Err(Error::Setting("--nodes must be 1 to 9"));
        }
        fs::create_dir_all(dir).map_err(Error::io(dir.display()))?;
        if dir.join(NODES).exists() {
            let what = "it already has a group; start that with `rstore cluster start`".into();
            return Err(Error::Folder { path: dir.into(), what });
        }
        let places = places(count, port)?;
        let node = |(id, place)| Node { id, place, is: "founder".into() };
        let nodes = (1..).zip(places).map(node).collect();
        let group = Self { dir: dir.into(), durability, founders: count as usize, nodes };
        group.write()?;
        Ok(group)
    }

    fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NODES);
        let text = fs::read_to_string(&path).map_err(Error::io(path.display()))?;
        let wrong = || Error::Folder {
            path: path.clone(),
            what: "this is not a list of nodes as `rstore cluster create` writes it".into(),
        };
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.split_once(' ')).ok_or_else(wrong)?;
        let (founders, durability) = (head.0.parse().ok(), head.1.parse().ok());
        let (Some(founders), Some(durability)) = (founders, durability) else {
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
        Ok(Self { dir: dir.into(), durability, founders, nodes })
    }

    fn write(&self) -> Result<(), Error> {
        let mut text = format!("{} {}\n", self.founders, self.durability);
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
    fn spawn(&self, node: &Node) -> Result<(), Error> {
        let dir = self.dir.join(format!("node-{}", node.id));
        fs::create_dir_all(&dir).map_err(Error::io(dir.display()))?;
        let log = fs::File::options().append(true).create(true).open(dir.join("log"));
        let log = log.map_err(Error::io(dir.display()))?;
        let program = std::env::current_exe().map_err(Error::io("this program"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &node.place.clients, "--peers", &node.place.peers]);
        command.args(["--node", &node.id.to_string(), "--dir"]).arg(&dir);
        command.args(["--durability", &self.durability.to_string()]);
        if node.is == "founder" {
            let founders = self.nodes.iter().take(self.founders);
            let founders: Vec<String> =
                founders.map(|node| format!("{}={}", node.id, node.place.text())).collect();
            command.args(["--founders", &founders.join(",")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let child = command.spawn().map_err(Error::io("starting a node"))?;
        let pid = dir.join("pid");
        fs::write(&pid, child.id().to_string()).map_err(Error::io(pid.display()))
    }

    fn start(&self) -> Result<(), Error> {
        for node in self.members() {
            if node.client().is_err() {
                self.spawn(node)?;
            }
        }
        self.leader().map(drop)
    }

    /// Returns the members as the leader sees them: lines of `CLUSTER NODES`.
    fn seen(&self) -> Result<Option<String>, Error> {
        for node in self.members() {
            let Ok(mut client) = node.client() else { continue };
            let Ok(Reply::Bulk(Some(text))) = client.call(&["CLUSTER", "NODES"]) else { continue };
            let text = String::from_utf8_lossy(&text).into_owned();
            if text.lines().any(|line| line.contains("myself,master")) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Waits for a leader that answers; returns its lines.
    fn leader(&self) -> Result<String, Error> {
        let started = Instant::now();
        loop {
            if let Some(text) = self.seen()? {
                return Ok(text);
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Server(format!(
                    "has no leader: see the file `log` of each node in {}",
                    self.dir.display()
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a command to the leader; waits until there is a leader that can execute it.
    fn ask(&self, request: &[&str]) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let text = self.leader()?;
            let leader = text.lines().find(|line| line.contains("myself,master"));
            let place = leader.and_then(|line| line.split([' ', '@']).nth(1)).unwrap_or_default();
            match Client::connect(place).and_then(|mut client| client.call(request)) {
                Ok(Reply::Simple(_)) => return Ok(()),
                // It was done before the connection ended.
                Ok(Reply::Error(error)) if error.ends_with("is no member") => return Ok(()),
                Ok(Reply::Error(error)) if error.starts_with("ERR") => {
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
        let seen = self.seen()?.unwrap_or_default();
        println!("{:<5} {:<22} {:<9} {:<7} behind", "node", "clients", "role", "process");
        for node in self.members() {
            let name = format!("{:040x}", node.id);
            let line = seen.lines().find(|line| line.starts_with(&name));
            let words: Vec<&str> = line.map_or_else(Vec::new, |line| line.split(' ').collect());
            let role = match words.get(2) {
                Some(role) if role.contains("master") => "leader",
                Some(role) if role.contains("learner") => "learner",
                Some(_) => "follower",
                None if seen.is_empty() => "?",
                None => "no member",
            };
            let process = if node.client().is_ok() { "runs" } else { "down" };
            let behind = words.get(5).copied().unwrap_or("?");
            println!("{:<5} {:<22} {role:<9} {process:<7} {behind}", node.id, node.place.clients);
        }
        if seen.is_empty() {
            return Err(Error::Server(
                "has no leader: more than half of the nodes must run (rstore cluster start)".into(),
            ));
        }
        Ok(())
    }

    fn stop(&self) -> Result<(), Error> {
        for node in self.members() {
            Self::end(node);
        }
        Ok(())
    }

    /// Stops a node, and waits until its process has ended.
    fn end(node: &Node) {
        let started = Instant::now();
        while let Ok(mut client) = node.client() {
            let _ = client.call(&["SHUTDOWN"]);
            if started.elapsed() > PATIENCE {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn add(mut self) -> Result<(), Error> {
        let place = places(1, 0)?.remove(0);
        let id = self.nodes.iter().map(|node| node.id).max().unwrap_or(0) + 1;
        let node = Node { id, place, is: "joined".into() };
        self.nodes.push(node.clone());
        self.write()?;
        self.spawn(&node)?;
        let (number, place) = (id.to_string(), node.place.text());
        let join = ["CLUSTER", "JOIN", &number, &place];
        self.ask(&join)?;
        let started = Instant::now();
        let name = format!("{id:040x}");
        loop {
            let seen = self.leader()?;
            let line = seen.lines().find(|line| line.starts_with(&name)).unwrap_or_default();
            if line.contains("slave ") {
                return self.show();
            }
            if line.is_empty() {
                // Another change was in progress.
                self.ask(&join)?;
            }
            if started.elapsed() > PATIENCE {
                return Err(Error::Server(format!(
                    "{id} has not caught up with the leader yet: see `rstore cluster status`"
                )));
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn remove(mut self, id: u64) -> Result<(), Error> {
        let known = self.nodes.iter_mut().find(|node| node.id == id && !node.is_removed());
        let node = known.ok_or(Error::Setting(
            "the group has no such node; `rstore cluster status` lists its nodes",
        ))?;
        let node = Node { is: std::mem::replace(&mut node.is, "removed".into()), ..node.clone() };
        self.ask(&["CLUSTER", "LEAVE", &id.to_string()])?;
        Self::end(&node);
        self.write()?;
        self.show()
    }
}
