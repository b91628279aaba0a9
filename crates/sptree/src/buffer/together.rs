//! Absorbing several buffers together: their lines come at once, and two fences are enough for all.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::OwnedRoute;

use super::Buffering;
use crate::middle::Mnode;
use crate::tree::SpTree;

/// Buffers that are absorbed together.
pub(super) const TOGETHER: u32 = 16;

/// A buffer to be absorbed, and its Mnode at a version.
struct Due<'t> {
    index: u32,
    node: &'t Mnode,
    buffer: u32,
    version: u64,
}

/// A locked Mnode, whose buffer was absorbed.
pub(super) struct Locked<'t> {
    pub(super) index: u32,
    pub(super) node: &'t Mnode,
    pub(super) guard: VersionGuard<'t>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Lets Bnodes absorb those of these buffers that are `wanted`, with the same two fences, but for
    /// those whose Mnodes somebody has locked. Whoever calls it holds no lock.
    pub(super) fn absorb_together<'t>(
        &'t self,
        buffering: &Buffering<M>,
        some: impl Iterator<Item = u32>,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Vec<Locked<'t>>, PmError> {
        let (pm, buffers) = (self.pm(), &buffering.buffers);
        // Each of these steps waits for one miss, at once for all.
        let some: Vec<u32> = some.inspect(|&buffer| buffers.prefetch(buffer)).collect();
        let mut due: Vec<Due<'_>> = Vec::with_capacity(some.len());
        for buffer in some {
            let index = buffers.state(buffer).node();
            self.middle.prefetch(index);
            due.push(Due { index, node: self.middle.get(index), buffer, version: 0 });
        }
        due.retain_mut(|due| {
            due.version = due.node.lock.begin_read(pm);
            // What it looked like before the version was read was a hint.
            let still = self.middle.buffer(due.node) == Some(due.buffer) && wanted(due.buffer);
            let bnode = self.middle.dram.load(&due.node.bnode);
            if still {
                self.prefetch_absorption(buffers, due.node, (bnode, due.buffer));
            }
            still
        });
        // Locks are only tried, in any order.
        let (mut held, mut full) = (Vec::with_capacity(due.len()), Vec::with_capacity(due.len()));
        for Due { index, node, buffer, version } in due {
            if let Some(guard) = node.lock.try_upgrade(pm, version) {
                held.push(Locked { index, node, guard });
                full.push((node, buffer));
            }
        }
        self.absorb_all(full.into_iter())?;
        Ok(held)
    }

    /// Unlocks Mnodes, and merges those whose Bnodes are nearly empty.
    pub(super) fn merge_small(&self, held: Vec<Locked<'_>>) {
        let small: Vec<OwnedRoute> =
            held.iter().filter_map(|Locked { node, .. }| self.low_if_small(node)).collect();
        drop(held); // LIN
        for low in small {
            self.merge_beside(&low.route::<K>());
        }
    }
}
