//! Partitions at their limit, for long: what frees space is never refused, and nothing acknowledged is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::crash::Rng;

use crate::{Budget, Error, Options, Partition};

/// A partition whose records change at its limit.
struct Full {
    name: String,
    partition: Option<Partition>,
    options: Options,
    random: Rng,
    /// The byte that each value consists of, and its length.
    model: BTreeMap<u64, (u8, usize)>,
    next: u64,
    /// The length of the longest value.
    lengths: usize,
    refused: u64,
    /// The steps between two openings.
    life: u64,
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn fits(outcome: Result<(), Error>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

impl Full {
    fn new(name: String, (block, blocks): (u64, u64), lengths: usize, life: u64) -> Self {
        let options = Options::new().block_bytes(block).capacity(block * blocks);
        let pool = Pool::emulated((2 * block * blocks) as usize + (4 << 20)).expect("memory");
        let partition = Partition::create(&Arc::new(pool), "p", &options).expect("room");
        let (partition, random) = (Some(partition), Rng::new(7 * life + lengths as u64));
        let (model, next, refused) = (BTreeMap::new(), 0, 0);
        Self { name, partition, options, random, model, next, lengths, refused, life }
    }

    fn partition(&mut self) -> &mut Partition {
        self.partition.as_mut().expect("open")
    }

    fn state(&self) -> String {
        format!("{}: {:?}", self.name, self.partition.as_ref().map(Partition::stats))
    }

    fn any(&mut self) -> Option<u64> {
        let from = self.random.next_u64() % self.next.max(1);
        self.model.range(from..).chain(self.model.range(..)).next().map(|(number, _)| *number)
    }

    fn put(&mut self, number: u64, len: usize) -> bool {
        let seed = self.random.next_u64() as u8;
        let done = fits(self.partition().put(&key(number), &vec![seed; len], None));
        if done {
            self.model.insert(number, (seed, len));
        }
        done
    }

    fn step(&mut self) {
        let len = self.random.below(self.lengths + 1);
        let Some(number) = self.any() else {
            self.next += 1;
            assert!(self.put(self.next, len), "it is empty");
            return;
        };
        let before = self.model[&number].1;
        match self.random.below(8) {
            // An overwrite by as much or less, and by anything.
            0..3 => {
                let len = len.min(before);
                let shorter = len.div_ceil(8) < before.div_ceil(8);
                let done = self.put(number, len);
                // In the smallest blocks, the ends that no record takes vary more than what collection frees.
                let small = self.partition().block_bytes() < 2048;
                assert!(done || (small && !shorter), "{}", self.state());
            }
            3 => {
                let done = self.put(number, len);
                self.refused += u64::from(!done);
            }
            4 => {
                let done = self.partition().remove(&key(number));
                let done = done.unwrap_or_else(|error| panic!("{error}: {}", self.state()));
                assert!(done, "it was there");
                self.model.remove(&number);
            }
            // New ones, until there is no more room.
            _ => {
                self.next += 1;
                let done = self.put(self.next, len);
                self.refused += u64::from(!done);
            }
        }
    }

    fn fill(&mut self) {
        loop {
            self.next += 1;
            let len = self.random.below(self.lengths + 1);
            if !self.put(self.next, len) {
                break;
            }
            if self.next.is_multiple_of(16) {
                self.partition().commit().expect("room");
            }
        }
    }

    /// Kills and opens it, or closes and opens it.
    fn reopen(&mut self, closes: bool) {
        let mut partition = self.partition.take().expect("open");
        partition.commit().expect("room");
        let pool = Arc::clone(partition.pool());
        if closes {
            partition.close().expect("room");
        } else {
            drop(partition);
        }
        self.partition = Some(Partition::open(&pool, "p", &self.options).expect("opened").0);
        self.verify();
    }

    fn verify(&mut self) {
        let model = std::mem::take(&mut self.model);
        let partition = self.partition();
        partition.check().expect("sound");
        assert_eq!(partition.len(), model.len() as u64);
        let mut value = Vec::new();
        for (number, (seed, len)) in &model {
            value.clear();
            assert!(partition.get_into(&key(*number), 0, &mut value).expect("sound"), "{number}");
            assert_eq!(value, vec![*seed; *len]);
        }
        self.model = model;
    }

    fn run(&mut self, steps: u64, turn: u64) {
        self.fill();
        for step in 0..steps {
            self.step();
            if step % turn == 0 {
                self.partition().commit().expect("room");
                if self.random.one_in(16) {
                    self.partition().collect(Budget::default()).expect("collected");
                }
            }
            if step % self.life == self.life - 1 {
                let closes = self.random.one_in(2);
                self.reopen(closes);
            }
        }
        self.verify();
        // All of it can be removed.
        while let Some((number, _)) = self.model.pop_first() {
            assert!(self.partition().remove(&key(number)).expect("room"), "it was there");
        }
        self.partition().commit().expect("room");
        assert!(self.refused > steps / 100, "{} refused: {}", self.refused, self.state());
    }
}

/// Sizes and numbers of blocks.
const SIZES: [(u64, u64); 6] =
    [(256, 12), (512, 20), (2048, 12), (2048, 100), (16 << 10, 60), (64 << 10, 16)];
/// Steps, those between two commits, and those between two openings.
const PACES: [(u64, u64, u64); 5] =
    [(6000, 1, 2000), (2000, 1, 37), (6000, 16, 1500), (6000, 1000, 1500), (2000, 1000, 333)];

#[test]
fn a_full_partition_of_small_records_takes_what_frees_space() {
    for ((block, blocks), lengths) in
        SIZES.into_iter().flat_map(|size| [0, 8, 40, 120].map(|lengths| (size, lengths)))
    {
        // Longer values have blocks of their own.
        if lengths as u64 > block / 8 {
            continue;
        }
        for pace in PACES {
            let name = format!("blocks: {blocks} of {block}, values: {lengths}, pace: {pace:?}");
            let mut full = Full::new(name, (block, blocks), lengths, pace.2);
            full.run(pace.0, pace.1);
        }
    }
}
