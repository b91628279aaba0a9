//! The limit of open files, of which each connection is one.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The number of open files in addition to the connections: pools, listening sockets, polls.
const OTHERS: u64 = 128;

/// Raises the limit of open files to what the connections need; logs a warning if the system allows fewer.
pub(super) fn raise(connections: usize) {
    let wanted = connections as u64 + OTHERS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
    let given = limit.current.unwrap_or(wanted);
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) if given >= wanted => {}
        Ok(()) => tracing::warn!(
            given,
            wanted,
            "the system allows fewer open files than --maxclients needs (LimitNOFILE, ulimit -n)"
        ),
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}
