//! Options of a replica.

/// Options of a replica. The defaults suit ticks of 20 to 100 ms.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) id: u64,
    pub(crate) seed: u64,
    pub(crate) heartbeat_ticks: usize,
    pub(crate) election_ticks: usize,
    pub(crate) log_bytes: usize,
    pub(crate) piece_bytes: usize,
    pub(crate) entry_bytes: usize,
    pub(crate) wrong: Option<crate::wrong::Wrong>,
}

impl Options {
    /// Sets the id, which is not 0. Two replicas of a group never have the same id: one that has lost its
    /// pool comes back with a new id, as a new member.
    #[must_use]
    pub fn new(id: u64) -> Self {
        let (heartbeat_ticks, election_ticks) = (2, 10);
        let (log_bytes, piece_bytes) = (64 << 20, 256 << 10);
        let (seed, entry_bytes, wrong) = (id, 1 << 30, None);
        Self {
            id,
            seed,
            heartbeat_ticks,
            election_ticks,
            log_bytes,
            piece_bytes,
            entry_bytes,
            wrong,
        }
    }

    /// Sets the seed of the random delays of elections, so that replicas rarely stand for election at the
    /// same time.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the ticks between two heartbeats of a leader (2), and the minimum without a heartbeat before an
    /// election (10); the maximum is twice as many.
    #[must_use]
    pub fn ticks(mut self, heartbeat: usize, election: usize) -> Self {
        (self.heartbeat_ticks, self.election_ticks) = (heartbeat, election);
        self
    }

    /// Sets the bytes of entries that are kept, both in DRAM and in the pool (64 MiB, or an eighth of a
    /// smaller pool). A follower that lacks more gets a snapshot; until it has fetched the entries after that, 16 times
    /// as many are kept, or a quarter of a smaller pool.
    #[must_use]
    pub fn log_bytes(mut self, bytes: usize) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// Sets the maximum bytes of a piece in which a snapshot is sent (256 KiB). The follower confirms each
    /// piece before the next one is read.
    #[must_use]
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Sets the maximum bytes of a proposed entry (1 GiB). A message has at least one entry, so this must be
    /// less than what can be sent.
    #[must_use]
    pub fn entry_bytes(mut self, bytes: usize) -> Self {
        self.entry_bytes = bytes;
        self
    }

    #[cfg(test)]
    pub(crate) fn go_wrong(mut self, wrong: crate::wrong::Wrong) -> Self {
        self.wrong = Some(wrong);
        self
    }
}
