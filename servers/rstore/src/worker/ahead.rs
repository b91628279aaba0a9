//! Looking ahead: the keys of the next requests of a pipeline are searched together, so that their cache misses
//! overlap. Only keys of this thread's partition: the records of the others are in other pools.

use crate::keyspace::item::Keys;
use crate::shard::Shard;
use crate::wire::{Limits, Parsed, Parser};

/// The number of requests that are looked at together.
const REQUESTS: usize = 16;
/// Longer keys are left out.
const LONGEST: usize = 256;

/// The buffers for looking ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    parser: Parser,
    keys: Keys,
}

impl Ahead {
    /// Fetches the records of the first keys of the next requests in `input` into the caches. Returns the bytes of
    /// these requests. It decides nothing: what is wrong with a request is found when it runs.
    pub(super) fn look(
        &mut self,
        input: &[u8],
        limits: &Limits,
        shard: &Shard,
        is_here: impl Fn(&[u8]) -> bool,
    ) -> usize {
        let mut used = 0;
        self.keys.clear();
        for _ in 0..REQUESTS {
            self.parser.reset();
            let rest = &input[used..];
            let Ok(Parsed::Request(length)) = self.parser.parse(rest, limits) else { break };
            let key = self.parser.args(rest).get(1);
            if let Some(key) = key.filter(|key| key.len() <= LONGEST && is_here(key)) {
                self.keys.push(key);
            }
            used += length;
        }
        if used > 0 {
            shard.prefetch(&self.keys);
        }
        used
    }
}
