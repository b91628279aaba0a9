//! Insertion and removal of towers.

use parking_lot::MutexGuard;
use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::Key;
use pmindex_record::{Route, Separator};

use super::find::Step;
use super::{Contents, F, LEVELS, Tower, Towers};

/// The state of the writer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Blocks taken from the arena for promises.
    spare: Vec<u32>,
    /// The number of these that promises need.
    promised: usize,
    /// The state of the random heights.
    state: u64,
}

impl Writer {
    /// Returns a height: 1 or more, each greater one with an eighth of the probability.
    pub(super) fn height(&mut self) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        (1 + word.trailing_zeros() as usize / 3).min(LEVELS)
    }
}

/// Room for one tower, reserved before any persistent change, so that inserting the tower cannot fail.
#[derive(Debug)]
#[must_use]
pub(crate) struct Promise {
    separator: Separator,
    height: usize,
}

/// A change in progress: all of it becomes visible at once, when this is dropped.
pub(crate) struct Change<'t, K: Key> {
    towers: &'t Towers<K>,
    guards: Vec<VersionGuard<'t>>,
    emptied: Vec<u32>,
    // Dropped last: the next writer finds no lock held.
    writer: MutexGuard<'t, Writer>,
}

impl<K: Key> Towers<K> {
    /// Reserves room for a tower with this separator.
    ///
    /// # Errors
    /// [`PmError::Full`]: the memory reserved for towers is exhausted.
    pub(crate) fn promise(&self, separator: &Route<'_>) -> Result<Promise, PmError> {
        let mut writer = self.dram.lock(&self.writer);
        let height = writer.height();
        // At most a block of each level: the tower begins it, or it takes half of a full one.
        while writer.spare.len() < writer.promised + height {
            writer.spare.push(self.blocks.alloc()?);
        }
        let separator = self.tails.store::<K>(&self.dram, separator)?;
        writer.promised += height;
        Ok(Promise { separator, height })
    }

    /// Releases an unused promise.
    pub(crate) fn forgo(&self, promise: &Promise) {
        self.dram.lock(&self.writer).promised -= promise.height;
        self.tails.free(promise.separator.tail);
    }

    /// Begins a change.
    pub(crate) fn change(&self) -> Change<'_, K> {
        let writer = self.dram.lock(&self.writer);
        Change { towers: self, guards: Vec::new(), emptied: Vec::new(), writer }
    }

    /// Returns, for each level, the block with the last tower whose separator is less, and its position
    /// there. For the holder of `writer`.
    fn path(&self, route: &Route<'_>) -> [(u32, usize); LEVELS] {
        let mut path: [(u32, usize); LEVELS] = std::array::from_fn(|level| (level as u32, 0));
        let mut index = LEVELS as u32 - 1;
        for level in (0..LEVELS).rev() {
            loop {
                let block = self.blocks.get(index);
                match self.step(index, block, route) {
                    Step::Right(right) => index = right as u32,
                    Step::Down(at) => {
                        path[level] = (index, at);
                        index = self.dram.load_word(&block.downs[at]) as u32;
                        break;
                    }
                }
            }
        }
        path
    }
}

impl<K: Key> Change<'_, K> {
    /// Locks a block, unless it is locked already.
    fn hold(&mut self, index: u32) {
        let lock = &self.towers.blocks.get(index).lock;
        if !self.guards.iter().any(|guard| guard.is_of(lock)) {
            self.guards.push(lock.lock(&self.towers.dram));
        }
    }

    fn write(&mut self, index: u32, contents: &Contents) {
        self.hold(index);
        self.towers.write(index, contents);
    }

    /// Makes the tower at the end of `route` point to `node`. The locks of the nodes before and after are
    /// held.
    pub(crate) fn set(&mut self, route: &Route<'_>, node: u64) {
        let (index, at) = self.towers.path(route)[0];
        self.hold(index);
        self.towers.dram.store_word(&self.towers.blocks.get(index).downs[at], node);
    }

    /// Inserts a tower for `node` at the right of its separator, for which the promise was made. The lock of
    /// the node on its left is held.
    pub(crate) fn insert(&mut self, promise: &Promise, separator: &Route<'_>, node: u64) {
        self.writer.promised -= promise.height;
        let path = self.towers.path(separator);
        let mut tower = Tower { separator: promise.separator, down: node };
        for (level, &(index, at)) in path.iter().enumerate().take(promise.height) {
            let mut left = self.towers.read(index);
            if level + 1 == promise.height {
                left.towers.insert(at + 1, tower);
                if left.towers.len() <= F {
                    self.write(index, &left);
                } else {
                    let rest = left.towers.split_off(F / 2 + 1);
                    self.put_right(index, left, rest);
                }
            } else {
                // The tower goes higher, so it begins a block.
                let mut rest = left.towers.split_off(at + 1);
                rest.insert(0, tower);
                tower.down = u64::from(self.put_right(index, left, rest));
            }
        }
        let top = self.towers.top().max(promise.height - 1);
        self.towers.set_top(top);
    }

    /// Moves towers of a block to a new one on its right.
    #[allow(clippy::expect_used, reason = "a broken internal invariant, not an error")]
    fn put_right(&mut self, index: u32, mut left: Contents, rest: Vec<Tower>) -> u32 {
        let spare = self.writer.spare.pop().or_else(|| self.towers.blocks.alloc().ok());
        let made = spare.expect("a block was promised");
        let bound = rest.first().map(|tower| tower.separator);
        self.write(made, &Contents { towers: rest, right: left.right, bound: left.bound });
        (left.right, left.bound) = (made, bound);
        self.write(index, &left);
        made
    }

    /// Removes the tower with this separator: the keys of its node belong to the node before from now on. The
    /// locks of both nodes are held.
    pub(crate) fn remove(&mut self, separator: &Route<'_>) {
        let path = self.towers.path(separator);
        let mut gone = None;
        for &(index, at) in &path {
            let mut left = self.towers.read(index);
            let next = left.towers.get(at + 1).copied();
            if let Some(tower) = next {
                if gone.is_none_or(|gone| tower.down == gone) {
                    left.towers.remove(at + 1);
                    self.write(index, &left);
                    self.free_tail(&tower, gone);
                }
                break; // a tower that goes higher begins a block
            }
            let begins = (left.right != 0).then(|| self.towers.read(left.right));
            let Some(mut right) = begins else { break };
            let tower = right.towers[0];
            if gone.is_some_and(|gone| tower.down != gone) {
                break;
            }
            let block = left.right;
            right.towers.remove(0);
            if left.towers.len() + right.towers.len() <= F {
                left.towers.append(&mut right.towers);
                (left.right, left.bound) = (right.right, right.bound);
                self.hold(block);
                self.emptied.push(block);
            } else {
                left.bound = right.towers.first().map(|tower| tower.separator);
                self.write(block, &right);
            }
            self.write(index, &left);
            self.free_tail(&tower, gone);
            gone = Some(u64::from(block));
        }
        let mut top = self.towers.top();
        while top > 0 && self.is_bare(top) {
            top -= 1;
        }
        self.towers.set_top(top);
    }

    /// Frees the separator's tail, which the lowest level owns.
    fn free_tail(&self, tower: &Tower, gone: Option<u64>) {
        if gone.is_none() {
            self.towers.tails.free(tower.separator.tail);
        }
    }

    /// Returns `true` if a level has only the tower of the first node.
    fn is_bare(&self, level: usize) -> bool {
        let first = self.towers.read(level as u32);
        first.right == 0 && first.towers.len() == 1
    }
}

impl<K: Key> Drop for Change<'_, K> {
    fn drop(&mut self) {
        self.guards.clear();
        for index in self.emptied.drain(..) {
            self.towers.blocks.free(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u64) -> u64 {
        64 * (n + 1)
    }

    /// Node `n` has the keys greater than `10 n` and not greater than `10 n + 10`.
    fn insert(towers: &Towers<u64>, n: u64) {
        let words = [10 * n, 0, 0, 0];
        let separator = Route::to_words(&words);
        let promise = towers.promise(&separator).expect("memory");
        towers.change().insert(&promise, &separator, node(n));
    }

    #[test]
    fn towers_come_and_go_in_any_order() {
        const NODES: u64 = 600;
        for factor in [1, 7, 97, 598] {
            let order = || (1..NODES).map(move |n| (n * factor - 1) % (NODES - 1) + 1);
            let towers = Towers::<u64>::new(4 * NODES, node(0)).expect("memory");
            let mut there = vec![node(0)];
            for n in order() {
                insert(&towers, n);
                there.push(node(n));
                there.sort_unstable();
                if n % 16 == 0 {
                    towers.check(&there).expect("intact");
                }
            }
            assert!(towers.top() > 1, "of 600 towers some are higher than two");
            for n in 0..NODES {
                let (low, high) = ([10 * n + 1, 0, 0, 0], [10 * n + 10, 0, 0, 0]);
                for words in [low, high] {
                    assert_eq!(towers.node_for(&towers.dram, &Route::to_words(&words)), node(n));
                }
            }
            for n in order().map(|n| n * 11 % NODES).filter(|&n| n > 0) {
                if !there.contains(&node(n)) {
                    continue;
                }
                towers.change().remove(&Route::to_words(&[10 * n, 0, 0, 0]));
                there.retain(|&node_| node_ != node(n));
                if n % 16 == 0 {
                    towers.check(&there).expect("intact");
                }
                let words = [10 * n + 5, 0, 0, 0];
                let before = there.iter().rfind(|&&left| left < node(n));
                let found = towers.node_for(&towers.dram, &Route::to_words(&words));
                assert_eq!(Some(&found), before);
            }
            towers.check(&there).expect("intact");
        }
    }

    #[test]
    fn who_is_on_the_way_when_a_tower_goes_does_not_arrive_at_its_node() {
        let towers = Towers::<u64>::new(1000, node(0)).expect("memory");
        (1..200).for_each(|n| insert(&towers, n));
        for n in 1..200 {
            let words = [10 * n + 5, 0, 0, 0];
            let place = towers.find(&towers.dram, &Route::to_words(&words));
            assert!(place.validate(&towers.dram));
            let mut change = towers.change();
            change.remove(&Route::to_words(&[10 * n, 0, 0, 0]));
            drop(change);
            assert!(!place.validate(&towers.dram), "{n}");
            insert(&towers, n);
        }
    }
}
