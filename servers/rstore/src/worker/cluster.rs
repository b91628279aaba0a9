//! `CLUSTER`: each partition is a node with a range of slots and its own port. With groups, each partition of
//! each member is a node: the leader of the partition's group has the slots, and the others are its replicas.

use std::net::SocketAddr;

use crate::command::Refusal;
use crate::group::{Member, View};
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
        if !self.common.groups.is_empty() {
            return self.groups(connection, &sub, args);
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

    /// `CLUSTER` of groups: the leader of a partition's group is the node that has the partition's slots.
    fn groups(
        &mut self,
        connection: &mut Connection,
        sub: &[u8],
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let partitions = self.common.partitions();
        let mut views: Vec<View> = (0..partitions).map(|number| self.common.view(number)).collect();
        let Some(group) = self.shard.group() else { return Err(Refusal::SYNTAX) };
        let me = group.id();
        if group.leads().is_ok() {
            views[self.number] = group.view(); // with the last change of members
        }
        match sub {
            b"INFO" => {
                let text = groups_info(&views);
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"MYID" => {
                let name = node_name(me, self.number);
                connection.answer(|reply| reply.bulk(name.as_bytes()));
            }
            b"GROUP" => {
                let number = group.number().map_or(0, std::num::NonZeroU64::get).to_string();
                connection.answer(|reply| reply.bulk(number.as_bytes()));
            }
            b"SLOTS" | b"SHARDS" => {
                let led: Vec<Node> = (0..)
                    .zip(&views)
                    .filter_map(|(number, view)| led(number, partitions, view))
                    .collect();
                if led.is_empty() {
                    return Err(Refusal::NO_LEADER);
                }
                let write: fn(&mut Reply, &[Node]) = if sub == b"SLOTS" { slots } else { shards };
                connection.answer(|reply| write(reply, &led));
            }
            b"NODES" => {
                let lines = (0..).zip(&views).map(|(number, view)| {
                    let myself = (number == self.number).then_some(me);
                    lines(number, partitions, view, myself)
                });
                let text: String = lines.collect();
                connection.answer(|reply| reply.verbatim(&text));
            }
            b"JOIN" | b"LEAVE" => {
                exactly(args, if sub == b"JOIN" { 4 } else { 3 })?;
                if let Err(leader) = group.leads() {
                    let first = slot::range(self.number, partitions).0;
                    let leader = leader.ok_or(Refusal::NO_LEADER)?;
                    return Err(format!("MOVED {first} {}", leader.clients_of(self.number)).into());
                }
                let number = integer(args.at(2)).and_then(|id| u64::try_from(id).ok());
                let id = number.filter(|id| *id > 0).ok_or(Refusal::of("ERR no id of a node"))?;
                let done = if sub == b"JOIN" {
                    let text = std::str::from_utf8(args.at(3)).ok();
                    let place = text.and_then(Member::parse);
                    let place =
                        place.ok_or(Refusal::of("ERR write its place as host:port/host:port"))?;
                    group.join(id, &place)
                } else if id == me && group.give_away() {
                    return Err(Refusal::of(
                        "TRYAGAIN the node leads, and another one is to lead first; try again later",
                    ));
                } else {
                    group.leave(id)
                };
                group.note_command();
                done?;
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

/// Returns the text of `CLUSTER INFO`.
fn groups_info(views: &[View]) -> String {
    let partitions = views.len();
    let served = (0..partitions).filter(|number| views[*number].leader.is_some());
    let slots = served.map(|number| {
        let (first, last) = slot::range(number, partitions);
        u32::from(last - first) + 1
    });
    let slots: u32 = slots.sum();
    let members = views.iter().map(|view| view.members.len()).sum::<usize>();
    format!(
        "cluster_enabled:1\r\ncluster_state:{}\r\ncluster_slots_assigned:{SLOTS}\r\n\
         cluster_slots_ok:{slots}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:{}\r\n\
         cluster_known_nodes:{members}\r\ncluster_size:{partitions}\r\ncluster_current_epoch:1\r\n\
         cluster_my_epoch:1\r\n",
        if slots == u32::from(SLOTS) { "ok" } else { "fail" },
        u32::from(SLOTS) - slots,
    )
}

/// Returns the leader of a partition, with the others as its replicas; `None` if it is not known.
fn led(number: usize, partitions: usize, view: &View) -> Option<Node> {
    let at = view.members.iter().position(|(id, ..)| Some(*id) == view.leader)?;
    let (first, last) = slot::range(number, partitions);
    let node = |(id, place, _): &(u64, Member, bool)| {
        let clients = place.clients_of(number);
        let (host, port) = clients.rsplit_once(':').unwrap_or(("", "0"));
        let (host, port) = (host.to_owned(), port.parse().unwrap_or(0));
        Node { first, last, host, port, id: node_name(*id, number), replicas: Vec::new() }
    };
    let mut nodes: Vec<Node> = view.members.iter().map(node).collect();
    let leader = nodes.swap_remove(at);
    Some(Node { replicas: nodes, ..leader })
}

/// Returns the lines of `CLUSTER NODES` for a partition.
fn lines(number: usize, partitions: usize, view: &View, myself: Option<u64>) -> String {
    let (first, last) = slot::range(number, partitions);
    let mut text = String::new();
    for (id, place, votes) in &view.members {
        let role = match (Some(*id) == view.leader, votes) {
            (true, _) => "master",
            (false, true) => "slave",
            (false, false) => "slave,learner",
        };
        let leader = view.leader.filter(|leader| leader != id);
        let leader = leader.map_or_else(|| "-".into(), |leader| node_name(leader, number));
        let behind = view.behind.iter().find(|(other, _)| other == id).map_or(0, |found| found.1);
        let slots = if role == "master" { format!(" {first}-{last}") } else { String::new() };
        text += &format!(
            "{} {}@{} {}{role} {leader} 0 {behind} 1 connected{slots}\n",
            node_name(*id, number),
            place.clients_of(number),
            place.peers.rsplit_once(':').map_or("0", |(_, port)| port),
            if myself == Some(*id) { "myself," } else { "" },
        );
    }
    text
}

/// Returns the name of a partition of a node: 40 hexadecimal digits.
fn node_name(id: u64, partition: usize) -> String {
    format!("{partition:08x}{id:032x}")
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
