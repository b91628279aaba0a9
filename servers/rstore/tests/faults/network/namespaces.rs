//! A network namespace for each node, and a bridge between them and this process. Needs the rights to make them.

use std::collections::BTreeSet;
use std::process::Command;

use super::Way;

/// An address of no host: the bridge delivers frames for it nowhere, so their sender learns nothing.
const NOWHERE: &str = "02:00:00:00:00:ff";

/// The hosts of the nodes. Named after this process; they go when this is dropped.
pub(crate) struct Namespaces {
    nodes: Vec<u64>,
    /// The name of the bridge, with which all names begin.
    bridge: String,
    /// The first three bytes of all addresses.
    net: String,
    cut: BTreeSet<Way>,
}

/// Runs `ip`, which must succeed.
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {error}");
}

impl Namespaces {
    pub(super) fn start(nodes: impl IntoIterator<Item = u64>) -> Self {
        let id = std::process::id();
        let net = format!("10.213.{}", id % 250);
        let bridge = format!("pmi{id}");
        ip(&format!("link add {bridge} type bridge"));
        let mut this = Self { nodes: Vec::new(), bridge, net, cut: BTreeSet::new() };
        ip(&format!("addr add {}.254/24 dev {}", this.net, this.bridge));
        ip(&format!("link set {} up", this.bridge));
        for node in nodes {
            let (space, host) = (this.space(node), this.host(node));
            ip(&format!("netns add {space}"));
            this.nodes.push(node);
            ip(&format!("link add {space} type veth peer name eth0 netns {space}"));
            ip(&format!("link set {space} master {} up", this.bridge));
            for words in
                ["link set lo up", "link set eth0 up", &format!("addr add {host}/24 dev eth0")]
            {
                ip(&format!("-n {space} {words}"));
            }
        }
        this
    }

    fn space(&self, node: u64) -> String {
        format!("{}v{node}", self.bridge)
    }

    pub(super) fn host(&self, node: u64) -> String {
        format!("{}.{node}", self.net)
    }

    pub(super) fn command(&self, node: u64, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.space(node))).arg(program);
        command
    }

    /// A direction is cut by a wrong link address of the receiver in the sender's table.
    pub(super) fn cut(&mut self, ways: impl IntoIterator<Item = Way>) {
        let ways: BTreeSet<Way> = ways.into_iter().collect();
        for &(from, to) in self.cut.difference(&ways) {
            ip(&format!("-n {} neigh del {} dev eth0", self.space(from), self.host(to)));
        }
        for &(from, to) in ways.difference(&self.cut) {
            let wrong = format!("{} lladdr {NOWHERE} dev eth0 nud permanent", self.host(to));
            ip(&format!("-n {} neigh replace {wrong}", self.space(from)));
        }
        self.cut = ways;
    }

    pub(super) fn reset(&self) {
        for state in ["down", "up"] {
            for &node in &self.nodes {
                ip(&format!("link set {} {state}", self.space(node)));
            }
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let delete = |words: &str| drop(Command::new("ip").args(words.split(' ')).output());
        for &node in &self.nodes {
            delete(&format!("netns del {}", self.space(node)));
        }
        delete(&format!("link del {}", self.bridge));
    }
}
