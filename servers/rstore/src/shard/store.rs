//! The records of a shard: an engine of its own, or one that a group replicates.

use pmindex_rstore::Partition;

use crate::group::Group;
use crate::keyspace::Records;

#[derive(Debug)]
pub(crate) enum Store {
    Alone(Box<Partition>),
    Group(Box<Group>),
}

impl Store {
    pub(super) fn records(&self) -> &dyn Records {
        match self {
            Self::Alone(engine) => &**engine,
            Self::Group(group) => &**group,
        }
    }

    /// Fetches the records of keys into the caches.
    pub(super) fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        match self {
            Self::Alone(engine) => engine.prefetch(keys),
            Self::Group(group) => group.prefetch(keys),
        }
    }

    pub(super) fn stats(&self) -> pmindex_rstore::Stats {
        match self {
            Self::Alone(engine) => engine.stats(),
            Self::Group(group) => group.stats(),
        }
    }

    /// Returns the engine if it belongs to this process alone.
    pub(super) fn alone(&mut self) -> Result<&mut Partition, String> {
        match self {
            Self::Alone(engine) => Ok(engine),
            Self::Group(_) => {
                Err("not of a node of a group: back up its folder while it is stopped".into())
            }
        }
    }
}
