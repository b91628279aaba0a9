//! Builds all towers at once from the ordered nodes: for recovery and bulk load.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;
use pmindex_record::Route;

use super::{Contents, F, LEVELS, Tower, Towers};

/// The initial number of towers in a block, which leaves room for more.
const FILL: usize = F - 2;

/// The first block of each level, ready to replace the present one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Built(Vec<Contents>);

impl<K: Key> Towers<K> {
    /// Makes a tower for a node, with the separator on its left: for [`prepare`](Self::prepare).
    pub(crate) fn tower(&self, separator: &Route<'_>, node: u64) -> Result<Tower, PmError> {
        let separator = self.tails.store::<K>(&self.dram, separator)?;
        Ok(Tower { separator, down: node })
    }

    /// Fills all blocks except the first one of each level: `first` is the first node, and `towers` belong to
    /// the others in order.
    ///
    /// # Errors
    /// [`PmError::Full`]: the memory reserved for towers is exhausted.
    pub(crate) fn prepare(&self, first: u64, towers: Vec<Tower>) -> Result<Built, PmError> {
        let mut writer = self.dram.lock(&self.writer);
        let mut level: Vec<(Tower, usize)> =
            towers.into_iter().map(|tower| (tower, writer.height())).collect();
        let mut built = Vec::new();
        let mut taken = Vec::new();
        while built.is_empty() || (!level.is_empty() && built.len() < LEVELS) {
            let down = if built.is_empty() { first } else { built.len() as u64 - 1 };
            match self.prepare_level(down, &level, &mut taken) {
                Ok((contents, above)) => {
                    built.push(contents);
                    level = above;
                }
                Err(error) => {
                    self.blocks.free_all(&taken);
                    return Err(error);
                }
            }
        }
        Ok(Built(built))
    }

    /// Prepares the first block of a level; returns it with the towers that go higher.
    fn prepare_level(
        &self,
        first: u64,
        towers: &[(Tower, usize)],
        taken: &mut Vec<u32>,
    ) -> Result<(Contents, Vec<(Tower, usize)>), PmError> {
        let mut blocks = vec![vec![Tower::first(first)]];
        let mut above = Vec::new();
        for &(tower, height) in towers {
            let last = blocks.last_mut().filter(|block| height == 1 && block.len() < FILL);
            if let Some(block) = last {
                block.push(tower);
                continue;
            }
            blocks.push(vec![tower]);
            if height > 1 {
                above.push((tower, height - 1, blocks.len() - 1));
            }
        }
        // From right to left: each block needs its right neighbour.
        let mut indices = vec![0; blocks.len()];
        let (mut right, mut bound) = (0, None);
        for (at, towers) in blocks.iter().enumerate().skip(1).rev() {
            let index = self.blocks.alloc()?;
            taken.push(index);
            self.write(index, &Contents { towers: towers.clone(), right, bound });
            (right, bound) = (index, Some(towers[0].separator));
            indices[at] = index;
        }
        let above = above
            .into_iter()
            .map(|(tower, height, at)| (Tower { down: u64::from(indices[at]), ..tower }, height));
        Ok((Contents { towers: blocks.swap_remove(0), right, bound }, above.collect()))
    }

    /// Replaces the only tower by the prepared ones.
    pub(crate) fn install(&self, built: &Built) {
        let (dram, _writer) = (&self.dram, self.dram.lock(&self.writer));
        let guards: Vec<_> =
            (0..built.0.len()).map(|level| self.blocks.get(level as u32).lock.lock(dram)).collect();
        for (level, contents) in built.0.iter().enumerate() {
            self.write(level as u32, contents);
        }
        self.set_top(built.0.len() - 1);
        drop(guards);
    }

    /// Frees towers that will not be used, and their blocks.
    pub(crate) fn discard(&self, built: &Built) {
        for (level, contents) in built.0.iter().enumerate() {
            let mut contents = contents.clone();
            loop {
                if level == 0 {
                    for tower in &contents.towers {
                        self.tails.free(tower.separator.tail);
                    }
                }
                if contents.right == 0 {
                    break;
                }
                let index = contents.right;
                contents = self.read(index);
                self.blocks.free(index);
            }
        }
    }

    /// Frees towers that were never prepared.
    pub(crate) fn forget(&self, towers: impl IntoIterator<Item = Tower>) {
        for tower in towers {
            self.tails.free(tower.separator.tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_right_and_what_is_discarded_leaves_nothing() {
        for count in [0, 1, 13, 14, 500, 3000] {
            let towers = Towers::<Vec<u8>>::new(4000, 64).expect("memory");
            let before = towers.blocks.len();
            let prepare = || {
                let all = (1..=count).map(|n: u64| {
                    let key = format!("a key that is longer than a word {n:06}");
                    towers.tower(&Route::to_bytes(key.as_bytes()), 64 * (n + 1)).expect("memory")
                });
                let all = all.collect();
                towers.prepare(64, all).expect("memory")
            };
            towers.discard(&prepare());
            assert_eq!(towers.blocks.len(), before);
            let built = prepare();
            towers.install(&built);
            let nodes: Vec<u64> = (0..=count).map(|n| 64 * (n + 1)).collect();
            towers.check(&nodes).expect("intact");
            let last = towers.node_for(&towers.dram, &Route::GREATEST);
            assert_eq!(last, 64 * (count + 1));
        }
    }
}
