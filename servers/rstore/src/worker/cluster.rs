//! `CLUSTER`: each partition is a node with a range of slots and its own port.

use std::net::SocketAddr;

use crate::command::Refusal;
use crate::keyspace::slot::{self, SLOTS};
use crate::wire::{Args, Reply, Shape, integer};

use super::connection::Connection;
use super::run::Worker;
use super::session::{exactly, unknown_subcommand};

impl Worker {
    /// Returns the host name that clients get.
    pub(super) fn announced(&self, address: SocketAddr) -> String {
        let host = self.common.settings.announce.clone();
        host.unwrap_or_else(|| address.ip().to_string())
    }

    pub(super) fn cluster(
        &mut self,
        connection: &mut Connection,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let sub = args.at(1).to_ascii_uppercase();
        if sub == b"KEYSLOT" {
            exactly(args, 3)?;
            let slot = slot::of(args.at(2));
            connection.answer(|reply| reply.integer(slot.into()));
            return Ok(());
        }
        if self.shard.group().is_some() {
            return self.group(connection, &sub, args);
        }
        if !self.common.cluster {
            return Err(Refusal::of("ERR This instance has cluster support disabled"));
        }
        match sub.as_slice() {
            b"INFO" => {
                let nodes = self.common.partitions();
                let text = format!(
                    "cluster_enabled:1\r\ncluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\n\
                     cluster_slots_ok:{SLOTS}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n\
                     cluster_known_nodes:{nodes}\r\ncluster_size:{nodes}\r\ncluster_current_epoch:1\r\n\
                     cluster_my_epoch:1\r\n"
                );
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"MYID" => {
                let id = self.common.node(self.number);
                connection.answer(|reply| reply.bulk(id.as_bytes()));
            }
            b"SLOTS" => {
                let nodes = self.nodes();
                connection.answer(|reply| slots(reply, &nodes));
            }
            b"SHARDS" => {
                let nodes = self.nodes();
                connection.answer(|reply| shards(reply, &nodes));
            }
            b"NODES" => {
                let text = self.nodes_text();
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"COUNTKEYSINSLOT" => {
                exactly(args, 3)?;
                let wanted = integer(args.at(2)).and_then(|slot| u16::try_from(slot).ok());
                wanted.filter(|slot| *slot < SLOTS).ok_or(Refusal::of("ERR Invalid slot"))?;
                return Err(Refusal::of("ERR keys are not kept by slot; SCAN the node instead"));
            }
            _ => return Err(unknown_subcommand(args)),
        }
        Ok(())
    }

    /// `CLUSTER` of a group: its leader is the node that has all slots.
    fn group(
        &mut self,
        connection: &mut Connection,
        sub: &[u8],
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let Some(group) = self.shard.group() else { return Err(Refusal::SYNTAX) };
        let (members, leader) = group.all();
        let me = group.id();
        match sub {
            b"INFO" => {
                let ok = leader.is_some();
                let assigned = if ok { SLOTS } else { 0 };
                let text = format!(
                    "cluster_enabled:1\r\ncluster_state:{}\r\ncluster_slots_assigned:{SLOTS}\r\n\
                     cluster_slots_ok:{assigned}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n\
                     cluster_known_nodes:{}\r\ncluster_size:1\r\ncluster_current_epoch:1\r\n\
                     cluster_my_epoch:1\r\n",
                    if ok { "ok" } else { "fail" },
                    members.len(),
                );
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"MYID" => connection.answer(|reply| reply.bulk(node_name(me).as_bytes())),
            b"SLOTS" | b"SHARDS" => {
                let node = leading(&members, leader)?;
                let write: fn(&mut Reply, &[Node]) = if sub == b"SLOTS" { slots } else { shards };
                connection.answer(|reply| write(reply, &[node]));
            }
            b"NODES" => {
                let behind = group.behind();
                let mut text = String::new();
                for (id, place, votes) in members {
                    let role = match (Some(id) == leader, votes) {
                        (true, _) => "master",
                        (false, true) => "slave",
                        (false, false) => "slave,learner",
                    };
                    let leader = leader.filter(|&leader| leader != id).map(node_name);
                    let behind = behind.iter().find(|(other, _)| *other == id).map_or(0, |b| b.1);
                    let slots = if role == "master" { " 0-16383" } else { "" };
                    text += &format!(
                        "{} {}@{} {}{role} {} 0 {behind} 1 connected{slots}\n",
                        node_name(id),
                        place.clients,
                        place.peers.rsplit_once(':').map_or("0", |(_, port)| port),
                        if id == me { "myself," } else { "" },
                        leader.as_deref().unwrap_or("-"),
                    );
                }
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"JOIN" | b"LEAVE" => {
                exactly(args, if sub == b"JOIN" { 4 } else { 3 })?;
                if let Err(leader) = group.leads() {
                    let place = leader.map_or("", |leader| leader.clients.as_str());
                    return Err(format!("MOVED 0 {place}").into());
                }
                let number = integer(args.at(2)).and_then(|id| u64::try_from(id).ok());
                let id = number.filter(|id| *id > 0).ok_or(Refusal::of("ERR no id of a node"))?;
                let done = if sub == b"JOIN" {
                    let text = std::str::from_utf8(args.at(3)).ok();
                    let place = text.and_then(crate::group::Member::parse);
                    let place =
                        place.ok_or(Refusal::of("ERR write its place as host:port/host:port"))?;
                    group.join(id, &place)
                } else {
                    group.leave(id)
                };
                group.note_command();
                done.map_err(|what| Refusal::from(format!("ERR {what}")))?;
                connection.answer(Reply::ok);
            }
            _ => return Err(unknown_subcommand(args)),
        }
        Ok(())
    }

    fn nodes(&self) -> Vec<Node> {
        let partitions = self.common.partitions();
        let addresses = self.common.addresses.iter().enumerate();
        addresses
            .map(|(number, address)| {
                let (first, last) = slot::range(number, partitions);
                let host = self.announced(*address);
                let (port, id) = (address.port(), self.common.node(number));
                Node { first, last, host, port, id, replicas: Vec::new() }
            })
            .collect()
    }

    fn nodes_text(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes().iter().enumerate() {
            let myself = if number == self.number { "myself," } else { "" };
            text += &format!(
                "{} {}:{}@{} {myself}master - 0 0 1 connected {}-{}\n",
                node.id, node.host, node.port, node.port, node.first, node.last
            );
        }
        text
    }
}

/// Returns the leader of a group, with the others as its replicas.
fn leading(
    members: &[(u64, crate::group::Member, bool)],
    leader: Option<u64>,
) -> Result<Node, Refusal> {
    let at = members.iter().position(|(id, ..)| Some(*id) == leader);
    let at = at.ok_or(Refusal::of("CLUSTERDOWN the group has no leader"))?;
    let node = |(id, place, _): &(u64, crate::group::Member, bool)| {
        let (host, port) = place.clients.rsplit_once(':').unwrap_or(("", "0"));
        let (host, port) = (host.to_owned(), port.parse().unwrap_or(0));
        let (last, id) = (SLOTS - 1, node_name(*id));
        Node { first: 0, last, host, port, id, replicas: Vec::new() }
    };
    let mut nodes: Vec<Node> = members.iter().map(node).collect();
    let leader = nodes.swap_remove(at);
    Ok(Node { replicas: nodes, ..leader })
}

/// Returns the name of a node of a group: 40 hexadecimal digits.
fn node_name(id: u64) -> String {
    format!("{id:040x}")
}

struct Node {
    first: u16,
    last: u16,
    host: String,
    port: u16,
    id: String,
    /// The other nodes with the same slots.
    replicas: Vec<Node>,
}

fn slots(reply: &mut Reply, nodes: &[Node]) {
    reply.array(nodes.len());
    for node in nodes {
        reply.array(3 + node.replicas.len());
        reply.integer(node.first.into());
        reply.integer(node.last.into());
        for node in std::iter::once(node).chain(&node.replicas) {
            reply.array(3);
            reply.bulk(node.host.as_bytes());
            reply.integer(node.port.into());
            reply.bulk(node.id.as_bytes());
        }
    }
}

fn shards(reply: &mut Reply, nodes: &[Node]) {
    reply.array(nodes.len());
    for node in nodes {
        reply.head(Shape::Map, 2);
        reply.bulk(b"slots");
        reply.array(2);
        reply.integer(node.first.into());
        reply.integer(node.last.into());
        reply.bulk(b"nodes");
        reply.array(1 + node.replicas.len());
        shard_node(reply, node, "master");
        for replica in &node.replicas {
            shard_node(reply, replica, "replica");
        }
    }
}

fn shard_node(reply: &mut Reply, node: &Node, role: &str) {
    reply.head(Shape::Map, 7);
    for (name, value) in [
        ("id", node.id.as_str()),
        ("endpoint", &node.host),
        ("ip", &node.host),
        ("role", role),
        ("health", "online"),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"port");
    reply.integer(node.port.into());
    reply.bulk(b"replication-offset");
    reply.integer(0);
}
