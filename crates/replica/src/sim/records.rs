//! The state of the simulator's replicas: a partition of `RStore`.

use std::sync::Arc;

use pmindex_core::{Pool, Traced};
use pmindex_rstore::{Backup, Budget, Options, Partition};

use crate::{Part, State, StateError};

/// A small block, so that collection and the end of log segments occur early.
const BLOCK: u64 = 384;
const BLOCKS: u64 = 40;
/// The key of the record with the durable index.
const APPLIED: &[u8] = b"applied";

/// The content of an entry: a key's tag, or its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) key: u64,
    pub(super) tag: Option<u64>,
    /// The number of bytes after the tag: some entries are long.
    pub(super) padding: u64,
}

impl Write {
    pub(super) fn encode(self) -> Vec<u8> {
        let words = [self.key, u64::from(self.tag.is_some()), self.tag.unwrap_or(0)];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(bytes.len() + self.padding as usize, 7);
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("three words"))
        };
        Self {
            key: word(0),
            tag: (word(1) != 0).then(|| word(2)),
            padding: bytes.len() as u64 - 24,
        }
    }
}

pub(super) struct Records {
    pool: Arc<Pool<Traced>>,
    generation: u64,
    partition: Partition<Traced>,
    next: Option<(u64, Partition<Traced>)>,
    applied: u64,
    /// The last entry, and the old value of its key.
    pub(super) last: Vec<(u64, Option<u64>)>,
    /// The calls of `apply` that are still refused, as if there were no room.
    pub(super) refuses: u64,
    /// The calls that were.
    pub(super) waited: u64,
    /// The calls of `commit` that are still refused, and those that were.
    pub(super) undurable: u64,
    pub(super) postponed: u64,
}

fn name(generation: u64) -> String {
    format!("records.{generation}")
}

fn options() -> Options {
    Options::new().block_bytes(BLOCK).capacity(BLOCKS * BLOCK).records(1 << 10)
}

fn tag(partition: &Partition<Traced>, key: &[u8]) -> Result<Option<u64>, StateError> {
    let mut value = Vec::new();
    let found = partition.get_into(key, 0, &mut value)?;
    Ok(found.then(|| u64::from_le_bytes(value.try_into().expect("a word"))))
}

impl Records {
    pub(super) fn open(pool: &Arc<Pool<Traced>>, generation: u64) -> Result<Self, StateError> {
        let (partition, _) = Partition::open_or_create(pool, &name(generation), &options())?;
        let applied = tag(&partition, APPLIED)?.unwrap_or(0);
        let pool = Arc::clone(pool);
        let (next, last, refuses, waited) = (None, Vec::new(), 0, 0);
        let (undurable, postponed) = (0, 0);
        Ok(Self {
            pool,
            generation,
            partition,
            next,
            applied,
            last,
            refuses,
            waited,
            undurable,
            postponed,
        })
    }

    pub(super) fn get(&self, key: u64) -> Option<u64> {
        tag(&self.partition, &key.to_le_bytes()).expect("sound")
    }
}

impl State for Records {
    type View = Backup;

    fn applied(&self) -> u64 {
        self.applied
    }

    fn apply(&mut self, index: u64, data: &[u8]) -> Result<bool, StateError> {
        if let Some(left) = self.refuses.checked_sub(1) {
            (self.refuses, self.waited) = (left, self.waited + 1);
            return Ok(false);
        }
        let write = Write::decode(data);
        self.last.push((index, self.get(write.key)));
        let key = write.key.to_le_bytes();
        match write.tag {
            Some(tag) => self.partition.put(&key, &tag.to_le_bytes(), None)?,
            None => drop(self.partition.remove(&key)?),
        }
        Ok(true)
    }

    fn commit(&mut self, applied: u64) -> Result<bool, StateError> {
        if let Some(left) = self.undurable.checked_sub(1) {
            (self.undurable, self.postponed) = (left, self.postponed + 1);
            return Ok(false);
        }
        if applied != self.applied {
            self.partition.put(APPLIED, &applied.to_le_bytes(), None)?;
        }
        self.partition.commit()?;
        self.applied = applied;
        Ok(true)
    }

    fn view(&mut self) -> Result<Backup, StateError> {
        Ok(self.partition.backup()?)
    }

    fn read(
        &mut self,
        view: &mut Backup,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Part, StateError> {
        let visit = &mut |key: &[u8], value: &[u8], _: Option<u64>| {
            if key != APPLIED {
                out.extend(key);
                out.extend(value);
            }
        };
        match self.partition.back_up_part(view, Budget::bytes(bytes as u64), visit) {
            Ok(more) => Ok(if more { Part::More } else { Part::Last }),
            Err(pmindex_rstore::Error::BackupEnded) => Ok(Part::Ended),
            Err(error) => Err(error.into()),
        }
    }

    fn begin(&mut self, generation: u64) -> Result<bool, StateError> {
        self.abandon(generation)?;
        let partition = Partition::create(&self.pool, &name(generation), &options())?;
        self.next = Some((generation, partition));
        Ok(true)
    }

    fn restore(&mut self, data: &[u8]) -> Result<bool, StateError> {
        let Some((_, partition)) = &mut self.next else { return Ok(false) };
        assert_eq!(data.len() % 16, 0, "whole records");
        for record in data.chunks_exact(16) {
            partition.put(&record[..8], &record[8..], None)?;
        }
        partition.commit()?;
        Ok(true)
    }

    fn finish(&mut self, applied: u64) -> Result<bool, StateError> {
        let Some((_, partition)) = &mut self.next else { return Ok(false) };
        partition.put(APPLIED, &applied.to_le_bytes(), None)?;
        partition.commit()?;
        Ok(true)
    }

    fn abandon(&mut self, generation: u64) -> Result<(), StateError> {
        self.next = None;
        Partition::destroy(&self.pool, &name(generation))?;
        Ok(())
    }

    fn switch(&mut self, generation: u64) -> Result<(), StateError> {
        if let Some((made, partition)) = self.next.take_if(|(made, _)| *made == generation) {
            self.partition = partition;
            (self.generation, self.applied) = (made, tag(&self.partition, APPLIED)?.unwrap_or(0));
        }
        // The previous state, and the remains of an attempt that a crash ended.
        for other in [generation.wrapping_sub(1), generation + 1] {
            Partition::destroy(&self.pool, &name(other))?;
        }
        Ok(())
    }
}
