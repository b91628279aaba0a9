//! `CLUSTER`: each partition is a node with a range of slots, and a port of its own.

use std::net::SocketAddr;

use crate::command::Refusal;
use crate::keyspace::slot::{self, SLOTS};
use crate::wire::{Args, Reply, Shape, integer};

use super::connection::Connection;
use super::run::Worker;
use super::session::{exactly, unknown_subcommand};

impl Worker {
    /// The host that clients are told.
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

    fn nodes(&self) -> Vec<Node> {
        let partitions = self.common.partitions();
        let addresses = self.common.addresses.iter().enumerate();
        addresses
            .map(|(number, address)| {
                let (first, last) = slot::range(number, partitions);
                let host = self.announced(*address);
                Node { first, last, host, port: address.port(), id: self.common.node(number) }
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

struct Node {
    first: u16,
    last: u16,
    host: String,
    port: u16,
    id: String,
}

fn slots(reply: &mut Reply, nodes: &[Node]) {
    reply.array(nodes.len());
    for node in nodes {
        reply.array(3);
        reply.integer(node.first.into());
        reply.integer(node.last.into());
        reply.array(3);
        reply.bulk(node.host.as_bytes());
        reply.integer(node.port.into());
        reply.bulk(node.id.as_bytes());
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
        reply.array(1);
        reply.head(Shape::Map, 7);
        for (name, value) in [
            ("id", node.id.as_str()),
            ("endpoint", &node.host),
            ("ip", &node.host),
            ("role", "master"),
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
}
