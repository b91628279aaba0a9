//! Rebuilding the top, a step at a time.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::change::{Leaving, Writer};
use super::parent::{FIRST, InnerTree};
use pmindex_record::{Separator, Tail};

/// Parents that a step visits at least.
const STEP: u64 = 64;
/// Links that a descent may take before the top is rebuilt.
const MOST_HOPS: u32 = 4;
/// How many nodes ahead a rebuild fetches.
const AHEAD: u32 = 8;

/// What the top has behind the last node: more than any key.
const LAST: Separator = Separator { prefix: u64::MAX, tail: Tail::NONE };

/// A rebuild in progress.
#[derive(Debug)]
pub(super) struct Rebuild {
    /// The version of the top that it replaces.
    version: u64,
    /// Parents appended.
    len: u64,
    /// The last of them.
    last: Option<u32>,
    /// What was not named when it began.
    unnamed: u64,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Returns `true` if a rebuild is due: for this number of nodes without a place in the top, or a path of this
    /// number of links. A rebuild visits every parent, so it waits until a share of them is new.
    pub(super) fn is_rebuild_due(&self, unnamed: u64, hops: u32) -> bool {
        hops >= MOST_HOPS || unnamed > 4 + self.parents.len() as u64 / 32
    }

    /// Begins a rebuild, if none is in progress.
    pub(super) fn start_rebuild(&self, writer: &mut Writer) {
        writer.due = false;
        writer.lost = 0;
        if writer.rebuild.is_none() {
            let version = self.top.lock.begin_read(&self.dram);
            let unnamed = writer.unnamed;
            writer.rebuild = Some(Rebuild { version, len: 0, last: None, unnamed });
        }
    }

    /// A step of the rebuild, if one is in progress or due. If there is no memory for it, it is given
    /// up, and the top stays as it is: a hint.
    pub(in crate::nvtree) fn go_on(&self, pm: &impl Medium) {
        let mut writer = pm.lock(&self.writer);
        if writer.rebuild.is_none() {
            let Leaving { parents, tails } = &writer.leaving;
            let waiting = (4 * parents.len() + tails.len()) as u64;
            if !writer.due && !self.is_rebuild_due(waiting / 8, 0) {
                return;
            }
            self.start_rebuild(&mut writer);
        }
        let _ = self.step(pm, &mut writer);
    }

    /// Does a step of background work; returns whether there was any.
    pub(in crate::nvtree) fn maintain(&self, pm: &impl Medium) -> Result<bool, PmError> {
        let mut writer = pm.lock(&self.writer);
        if writer.rebuild.is_none() {
            let Leaving { parents, tails } = &writer.leaving;
            if writer.unnamed == 0 && parents.is_empty() && tails.is_empty() {
                return Ok(false);
            }
            self.start_rebuild(&mut writer);
        }
        self.step(pm, &mut writer)?;
        Ok(true)
    }

    /// Does a whole rebuild at once.
    pub(super) fn rebuild_now(&self, pm: &impl Medium) -> Result<(), PmError> {
        let mut writer = pm.lock(&self.writer);
        self.finish_rebuild(pm, &mut writer)
    }

    /// Does two whole rebuilds, after which everything that was taken out is free.
    pub(super) fn rebuild_twice(
        &self,
        pm: &impl Medium,
        writer: &mut Writer,
    ) -> Result<(), PmError> {
        self.finish_rebuild(pm, writer)?;
        self.finish_rebuild(pm, writer)
    }

    /// Ends the rebuild in progress, or does a whole one.
    pub(super) fn finish_rebuild(
        &self,
        pm: &impl Medium,
        writer: &mut Writer,
    ) -> Result<(), PmError> {
        self.start_rebuild(writer);
        while writer.rebuild.is_some() {
            self.step(pm, writer)?;
        }
        Ok(())
    }

    fn step(&self, pm: &impl Medium, writer: &mut Writer) -> Result<(), PmError> {
        let Some(mut rebuild) = writer.rebuild.take() else { return Ok(()) };
        for _ in 0..STEP.max(self.parents.len() as u64 / 256) {
            let Some(next) = self.next_of(rebuild.last) else {
                return self.finish(pm, writer, &rebuild);
            };
            self.prefetch_beyond(next);
            // `leaving` goes by whether a rebuild is in progress.
            writer.rebuild = Some(rebuild);
            while self.merge_right(pm, writer, next) {}
            let Some(taken) = writer.rebuild.take() else { return Ok(()) };
            rebuild = taken;
            let node = self.parents.get(next);
            let high = self.links(node).right.map_or(LAST, |_| self.high(next));
            self.top.put(&self.dram, rebuild.version, rebuild.len, next, high)?;
            rebuild.len += 1;
            rebuild.last = Some(next);
        }
        writer.rebuild = Some(rebuild);
        Ok(())
    }

    /// Fetches what a rebuild will read of the node some steps ahead, if nodes that were made together
    /// follow each other in memory. A hint.
    #[inline(always)]
    fn prefetch_beyond(&self, node: u32) {
        let last = self.parents.used() - 1;
        self.prefetch_links(self.parents.get(node.saturating_add(AHEAD).min(last)));
    }

    /// Returns the node after `last`, which may have been taken out meanwhile.
    fn next_of(&self, last: Option<u32>) -> Option<u32> {
        let Some(last) = last else { return Some(FIRST) };
        self.links(self.parents.get(self.heir_of(last))).right
    }

    /// Returns the node itself, or where the one that was taken out sends readers.
    fn heir_of(&self, mut node: u32) -> u32 {
        while self.is_dead(node) {
            node = self.links(self.parents.get(node)).left.unwrap_or(FIRST);
        }
        node
    }

    /// Node `left` has taken keys over from its right neighbour, up to `high`. If it is the last that
    /// the top being built names, those keys would be looked for at the next one, from which no link
    /// leads back: the top is told.
    pub(super) fn widen(&self, writer: &mut Writer, left: u32, high: Option<Separator>) {
        let Some(rebuild) = &writer.rebuild else { return };
        let Some(last) = rebuild.last else { return };
        if self.heir_of(last) == left {
            let high = high.unwrap_or(LAST);
            // Its place is there: it has one already.
            let told = self.top.put(&self.dram, rebuild.version, rebuild.len - 1, left, high);
            if told.is_err() {
                writer.rebuild = None;
                writer.due = true;
            }
        }
    }

    /// Merges a node with its right neighbour, if both together leave room.
    fn merge_right(&self, pm: &impl Medium, writer: &mut Writer, index: u32) -> bool {
        let node = self.parents.get(index);
        let Some(right) = self.links(node).right else { return false };
        if self.count(node) + self.count(self.parents.get(right)) > (F + 1) * 5 / 8 {
            return false;
        }
        let (mut contents, other) = (self.read(index), self.read(right));
        contents.separators.extend(contents.high);
        contents.separators.extend(other.separators);
        contents.leaves.extend(other.leaves);
        contents.high = other.high;
        contents.links.right = other.links.right;
        let guards = [index, right].map(|index| self.parents.get(index).lock.lock(pm));
        let _follower = other.links.right.map(|follower| {
            let guard = self.parents.get(follower).lock.lock(pm);
            self.put_left(follower, index);
            guard
        });
        self.write(index, &contents);
        self.put_dead(right, index);
        drop(guards);
        writer.leaving().parents.push(right);
        true
    }

    /// Puts the new top to use, and frees what no thread can reach.
    fn finish(
        &self,
        pm: &impl Medium,
        writer: &mut Writer,
        rebuild: &Rebuild,
    ) -> Result<(), PmError> {
        self.top.switch(&self.dram, pm, rebuild.version, rebuild.len)?;
        writer.unnamed -= rebuild.unnamed;
        let later = std::mem::take(&mut writer.leaving_later);
        let free = std::mem::replace(&mut writer.leaving, later);
        // Readers that came along a link find the version changed before the node is used again.
        for &parent in &free.parents {
            drop(self.parents.get(parent).lock.lock(pm));
        }
        for parent in free.parents {
            self.parents.free(parent);
        }
        for tail in free.tails {
            self.tails.free(tail);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pmindex_record::{Probe, Route};

    use super::*;

    /// Returns a tree of leaves at multiples of 64; leaf `n` has the keys from `10 n + 1` to `10 n + 10`.
    fn of_leaves(count: u64) -> InnerTree<u64, 3> {
        let tree = InnerTree::<u64, 3>::new(count, 64).expect("memory");
        for number in 1..count {
            let separator = 10 * number;
            let probe = Probe::<u64>::new(&separator).expect("a key");
            let route = Route::to(&probe);
            let promise = tree.promise(tree.medium(), Some(&route)).expect("memory");
            tree.split(tree.medium(), &promise, &route, 64 * number, 64 * (number + 1));
        }
        tree.rebuild_now(tree.medium()).expect("memory");
        tree
    }

    fn leaf_of(tree: &InnerTree<u64, 3>, key: u64) -> u64 {
        let probe = Probe::<u64>::new(&key).expect("a key");
        tree.leaf_of(tree.medium(), &Route::to(&probe)) / 64 - 1
    }

    /// The last node that a half-built top names takes over its right neighbour's first keys.
    #[test]
    fn a_node_that_grows_during_a_rebuild_keeps_its_keys() {
        for removed in 1..=4 {
            let tree = of_leaves(1000);
            let pm = tree.medium();
            let last = {
                let mut writer = pm.lock(&tree.writer);
                tree.start_rebuild(&mut writer);
                tree.step(pm, &mut writer).expect("memory");
                writer.rebuild.as_ref().and_then(|rebuild| rebuild.last).expect("not done yet")
            };
            // The leaf with the keys up to the last one that the node has, and those to its right.
            let high = tree.high(last).prefix;
            for next in 0..removed {
                let (key, leaf) = (high + 10 * next + 1, leaf_of(&tree, high + 10 * next + 1));
                let probe = Probe::<u64>::new(&key).expect("a key");
                let promise = tree.promise(pm, None).expect("memory");
                tree.remove(pm, &promise, &Route::to(&probe), 64 * (leaf + 1));
            }
            tree.rebuild_now(pm).expect("memory");
            let heir = high / 10 - 1;
            for key in high + 1..=high + 10 * removed {
                assert_eq!(leaf_of(&tree, key), heir, "key {key}, {removed} leaves removed");
            }
            assert_eq!(leaf_of(&tree, high + 10 * removed + 1), heir + removed + 1);
        }
    }
}
