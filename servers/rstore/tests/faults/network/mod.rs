//! A network between the nodes that can be cut.

mod namespaces;
mod proxies;

use std::process::Command;

use namespaces::Namespaces;
use proxies::Proxies;

/// A direction between two nodes.
type Way = (u64, u64);

/// The network.
pub(crate) enum Network {
    /// Nodes share one host; a proxy before each one stops what others send.
    Proxies(Proxies),
    /// Nodes are hosts of their own, and packets between them are lost.
    Namespaces(Namespaces),
}

impl Network {
    /// Makes a network of the kind that `RSTORE_NETWORK` names, for these nodes.
    pub(crate) fn start(nodes: impl IntoIterator<Item = u64>) -> Self {
        match std::env::var("RSTORE_NETWORK").as_deref() {
            Ok("namespaces") => Self::Namespaces(Namespaces::start(nodes)),
            Ok("proxies") | Err(_) => Self::Proxies(Proxies::default()),
            Ok(other) => panic!("RSTORE_NETWORK={other}: there are proxies and namespaces"),
        }
    }

    /// Returns the name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Proxies(_) => "proxies",
            Self::Namespaces(_) => "namespaces",
        }
    }

    /// Returns the host of a node.
    pub(crate) fn host(&self, node: u64) -> String {
        match self {
            Self::Proxies(_) => "127.0.0.1".into(),
            Self::Namespaces(spaces) => spaces.host(node),
        }
    }

    /// Returns the address where the others reach a node that listens at this port.
    pub(crate) fn place(&self, node: u64, port: u16) -> String {
        match self {
            Self::Proxies(proxies) => format!("127.0.0.1:{}", proxies.place(node, port)),
            Self::Namespaces(spaces) => format!("{}:{port}", spaces.host(node)),
        }
    }

    /// Returns the command that runs a program on the host of a node.
    pub(crate) fn command(&self, node: u64, program: &str) -> Command {
        match self {
            Self::Proxies(_) => Command::new(program),
            Self::Namespaces(spaces) => spaces.command(node, program),
        }
    }

    /// Cuts these directions, and no others.
    pub(crate) fn cut(&mut self, ways: impl IntoIterator<Item = Way>) {
        let ways = ways.into_iter().filter(|(from, to)| from != to);
        match self {
            Self::Proxies(proxies) => proxies.cut(ways),
            Self::Namespaces(spaces) => spaces.cut(ways),
        }
    }

    /// Ends all connections between nodes, or loses all packets for a moment.
    pub(crate) fn reset(&mut self) {
        match self {
            Self::Proxies(proxies) => proxies.reset(),
            Self::Namespaces(spaces) => spaces.reset(),
        }
    }
}
