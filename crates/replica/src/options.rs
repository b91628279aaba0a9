//! How a replica runs.

/// How a replica runs. The defaults suit ticks of 20 to 100 ms.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) id: u64,
    pub(crate) seed: u64,
    pub(crate) heartbeat_ticks: usize,
    pub(crate) election_ticks: usize,
    pub(crate) log_bytes: usize,
    pub(crate) wrong: Option<crate::wrong::Wrong>,
}

impl Options {
    /// The replica of this id, which is not 0. No two replicas of a group ever have the same, also when
    /// one of them has lost its pool: it comes back with another id, as a new member.
    #[must_use]
    pub fn new(id: u64) -> Self {
        let (heartbeat_ticks, election_ticks) = (2, 10);
        Self { id, seed: id, heartbeat_ticks, election_ticks, log_bytes: 64 << 20, wrong: None }
    }

    /// Where the numbers begin by which elections are put off, so that replicas seldom stand at once.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Ticks between two heartbeats of a leader (2), and the fewest without one before an election (10);
    /// at most twice as many.
    #[must_use]
    pub fn ticks(mut self, heartbeat: usize, election: usize) -> Self {
        (self.heartbeat_ticks, self.election_ticks) = (heartbeat, election);
        self
    }

    /// Bytes of entries that are kept, in DRAM and in the pool each (64 MiB, or an eighth of a smaller pool).
    /// A follower that lacks more gets a snapshot.
    #[must_use]
    pub fn log_bytes(mut self, bytes: usize) -> Self {
        self.log_bytes = bytes;
        self
    }

    #[cfg(test)]
    pub(crate) fn go_wrong(mut self, wrong: crate::wrong::Wrong) -> Self {
        self.wrong = Some(wrong);
        self
    }
}
