//! The processes: each has a small disk of its own, a clock that can be wrong, and a place in the network.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rstore_server::{Client, Reply};

use crate::network::Network;

/// The ids of the nodes.
pub(crate) const NODES: std::ops::RangeInclusive<u64> = 1..=3;
/// The bytes of a node's disk.
const DISK: &str = "size=160m";

/// A node.
pub(crate) struct Node {
    pub(crate) id: u64,
    host: String,
    clients: u16,
    peers: u16,
    disk: PathBuf,
    clock: File,
    process: Option<Child>,
    /// It is mounted, so it can be filled.
    pub(crate) is_mounted: bool,
}

/// All nodes.
pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) partitions: u16,
    founders: String,
    shim: Option<PathBuf>,
    dir: PathBuf,
    program: String,
}

/// Returns the first of a number of consecutive ports that are free now.
fn free_ports(count: u16) -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = first.local_addr().expect("bound").port();
        let rest =
            (1..count).map(|next| TcpListener::bind(("127.0.0.1", port.checked_add(next)?)).ok());
        if rest.collect::<Option<Vec<_>>>().is_some() {
            return port;
        }
    }
}

/// Compiles the library that makes clocks wrong; `None` without a C compiler.
fn shim(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/clock.c");
    let library = dir.join("clock.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    cc.status().is_ok_and(|status| status.success()).then_some(library)
}

impl Nodes {
    /// Starts the nodes of a new group in this folder.
    pub(crate) fn start(dir: &Path, partitions: u16) -> Self {
        let network = Network::start(NODES);
        let shim = shim(dir);
        let (mut all, mut founders) = (Vec::new(), Vec::new());
        for id in NODES {
            let disk = dir.join(format!("disk-{id}"));
            fs::create_dir(&disk).expect("a folder");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", DISK, "none"]).arg(&disk).stderr(Stdio::null());
            let is_mounted = mount.status().is_ok_and(|status| status.success());
            let (clients, peers) = (free_ports(partitions), free_ports(1));
            let (place, host) = (network.place(id, peers), network.host(id));
            founders.push(format!("{id}={place}/{host}:{clients}"));
            let clock = dir.join(format!("clock-{id}"));
            fs::write(&clock, [0; 8]).expect("a file");
            let clock = File::options().write(true).open(clock).expect("a file");
            all.push(Node { id, host, clients, peers, disk, clock, process: None, is_mounted });
        }
        let founders = founders.join(",");
        let program = std::env::var("RSTORE_PROGRAM");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_rstore").into());
        let dir = dir.into();
        let mut this = Self { all, network, partitions, founders, shim, dir, program };
        NODES.for_each(|id| this.run(id));
        this
    }

    pub(crate) fn has_clocks(&self) -> bool {
        self.shim.is_some()
    }

    pub(crate) fn node(&mut self, id: u64) -> &mut Node {
        self.all.iter_mut().find(|node| node.id == id).expect("a node")
    }

    /// Starts a node that does not run.
    pub(crate) fn run(&mut self, id: u64) {
        let log = self.log(id);
        let log = File::options().append(true).create(true).open(log).expect("a file");
        let mut command = self.network.command(id, &self.program);
        command.args(["serve", "--durability", "process", "--size", "8MiB"]);
        command.args(["--capacity", &format!("{}MiB", 32 * self.partitions)]);
        command.args(["--founders", &self.founders, "--node", &id.to_string()]);
        if self.partitions > 1 {
            command.args(["--partitions", &self.partitions.to_string()]);
        }
        if let Some(shim) = &self.shim {
            command.env("LD_PRELOAD", shim);
            command.env("CLOCK_FILE", self.dir.join(format!("clock-{id}")));
        }
        let node = self.node(id);
        command.args(["--listen", &format!("{}:{}", node.host, node.clients)]);
        command.args(["--peers", &format!("{}:{}", node.host, node.peers), "--dir"]);
        command.arg(node.disk.join("rstore"));
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        node.process = Some(command.spawn().expect("it starts"));
    }

    /// Returns the file with a node's messages.
    pub(crate) fn log(&self, id: u64) -> PathBuf {
        self.dir.join(format!("log-{id}"))
    }

    /// Returns the addresses for clients.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let of = |node: &Node| {
            (node.clients..node.clients + self.partitions).map({
                let host = node.host.clone();
                move |port| format!("{host}:{port}")
            })
        };
        self.all.iter().flat_map(of).collect()
    }

    /// Returns the nodes that lead a partition, as they see it.
    pub(crate) fn leaders(&self) -> Vec<u64> {
        let mut leaders = Vec::new();
        for node in &self.all {
            for port in node.clients..node.clients + self.partitions {
                let reply = Client::connect((node.host.as_str(), port)).and_then(|mut client| {
                    client.patience(Duration::from_millis(200))?;
                    client.call(&["CLUSTER", "NODES"])
                });
                if let Ok(Reply::Bulk(Some(text))) = reply
                    && String::from_utf8_lossy(&text).contains("myself,master")
                {
                    leaders.push(node.id);
                }
            }
        }
        leaders
    }

    /// Starts the nodes that are dead, and those that an error has stopped.
    pub(crate) fn repair(&mut self) {
        for id in NODES {
            self.node(id).fill(false);
            let text = fs::read_to_string(self.log(id)).unwrap_or_default();
            let node = self.node(id);
            let is_broken =
                text.lines().rev().take(400).any(|line| line.contains("a commit failed"));
            if is_broken && node.is_alive() {
                node.kill();
            }
            if !node.is_alive() {
                if is_broken {
                    // What follows is about the new process.
                    let mut log = File::options().append(true).open(self.log(id)).expect("a file");
                    (0..400).for_each(|_| drop(writeln!(log, "-")));
                }
                self.run(id);
            }
        }
    }
}

impl Node {
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops the process, or lets it go on.
    pub(crate) fn pause(&self, stop: bool) {
        if let Some(process) = &self.process {
            let signal = if stop { "-STOP" } else { "-CONT" };
            let _ = Command::new("kill").args([signal, &process.id().to_string()]).status();
        }
    }

    /// Sets the number of milliseconds that its clock is ahead.
    pub(crate) fn set_clock(&self, ahead: i64) {
        self.clock.write_all_at(&ahead.to_le_bytes(), 0).expect("writable");
    }

    /// Fills the disk, or makes it as free as before.
    pub(crate) fn fill(&self, full: bool) {
        let filler = self.disk.join("filler");
        if !full {
            let _ = fs::remove_file(filler);
        } else if self.is_mounted
            && let Ok(mut file) = File::create(filler)
        {
            let zeros = vec![0; 256 << 10];
            while file.write_all(&zeros).is_ok() {}
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.all {
            node.kill();
            if node.is_mounted {
                let _ = Command::new("umount").arg("-l").arg(&node.disk).status();
            }
        }
    }
}
