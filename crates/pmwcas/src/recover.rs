//! Recovery: completes or takes back what the last process left undone.
//!
//! One pass over the descriptors, no matter how large the structures are:
//!
//! 1. Every pointer that stands in a word is replaced: a full pointer of a successful operation by
//!    the new value, any other by the old one.
//! 2. The operations after the horizon are replayed in the order of their stamps, whatever stands
//!    in their words: the horizon moves over all operations up to a stamp at once, so the replayed
//!    ones are the last ones of every word they changed.
//! 3. All those words are made durable, then the horizon moves over everything.
//! 4. Descriptors that own blocks give them up, one store each.
//!
//! | step | store                                    | durable before                     |
//! |------|------------------------------------------|------------------------------------|
//! | V1   | words                                    | V2                                 |
//! | V2   | horizon, if anything was replayed        | V3, reuse of the first descriptor  |
//! | V3   | `Void` in descriptors with blocks        | use                                |
//!
//! Each step may be repeated after a crash in any of them: V1 depends on descriptors that only V3
//! changes, and writes the same values again. V2 cannot be left to the next `settle`: if a later
//! operation's descriptor were reused while an earlier one of the same word is still after the
//! horizon, the next recovery would replay the earlier one alone. Operations that did not take place
//! are left as they are: no pointer to them is anywhere any more.

use pmindex_core::{Flushed, Medium, PmError, Pool};

use crate::entry::Entry;
use crate::layout::{Carried, Heading, Slot, Table};
use crate::mwcas::Recyclers;
use crate::reclaim::give_up_after_crash;
use crate::status::{State, Status};
use crate::word::Content;

/// What opening a descriptor pool found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Operations that had taken place and whose new values were written to their words again.
    pub rolled_forward: u64,
    /// Operations that had not taken place, failed ones included whose descriptor was not reused.
    pub rolled_back: u64,
    /// Operations of both kinds that were not known to be over: without a crash there are none.
    pub interrupted: u64,
    /// Pointers to descriptors that were replaced in words.
    pub pointers: u64,
    /// Blocks of memory that interrupted operations gave up.
    pub freed: u64,
    pub(crate) horizon: u64,
}

/// A descriptor that is not void.
struct Found<'p> {
    slot: Slot<'p>,
    number: u32,
    status: Status,
    heading: Heading,
    entries: Vec<Entry>,
    carried: Option<Carried>,
}

impl Recovery {
    pub(crate) fn run<M: Medium>(
        pool: &Pool<M>,
        table: &Table,
        recyclers: &Recyclers<M>,
    ) -> Result<Self, PmError> {
        let horizon = pool.pm().load(table.horizon(pool)?);
        let mut report = Self { horizon, ..Self::default() };
        let found = find(pool, table)?;
        let over = |state| matches!(state, State::Committed | State::Failed);
        report.interrupted = found.iter().filter(|f| !over(f.status.state)).count() as u64;
        if let Some(words) = restore_words(pool, &found, &mut report)? {
            pool.pm().fence(words)?; // V1
        }
        if report.horizon != horizon {
            let cell = table.horizon(pool)?;
            pool.pm().store(cell, report.horizon);
            let closed = pool.pm().flush(cell);
            pool.pm().fence(closed)?; // V2
        }
        for descriptor in found.iter().filter(|f| f.status.owns) {
            let took_place = descriptor.status.took_place();
            report.freed += give_up_after_crash(pool, descriptor.slot, took_place, recyclers)?; // V3
        }
        Ok(report)
    }
}

/// All descriptors with an operation that counts.
fn find<'p, M: Medium>(pool: &'p Pool<M>, table: &Table) -> Result<Vec<Found<'p>>, PmError> {
    let pm = pool.pm();
    let mut found = Vec::new();
    for number in 0..table.config().slots() {
        let slot = table.slot(pool, number)?;
        let status = slot.load_status(pm);
        let heading = slot.load_heading(pm);
        // A heading of another incarnation than the status: the process died while it reused the
        // descriptor, before any pointer to the new incarnation and after the last to the old one.
        if status.state == State::Void || !status.is_of(heading.seq) {
            continue;
        }
        let mut entries = Vec::new();
        slot.copy_entries(pm, heading, &mut entries);
        let carried = slot.load_carried(pm, heading, &entries);
        found.push(Found { slot, number, status, heading, entries, carried });
    }
    Ok(found)
}

/// V1: replaces pointers, replays what is after the horizon. `None` if there was nothing to do.
fn restore_words<M: Medium>(
    pool: &Pool<M>,
    found: &[Found<'_>],
    report: &mut Recovery,
) -> Result<Option<Flushed>, PmError> {
    let pm = pool.pm();
    let horizon = report.horizon;
    // Operations that did not take place have had no pointer in any word.
    report.rolled_back = found.iter().filter(|f| !f.status.took_place()).count() as u64;
    let mut values = Vec::new();
    for descriptor in found {
        for (i, entry) in descriptor.entries.iter().enumerate().filter(|(_, e)| e.target != 0) {
            if let Content::Pointer(p) = Content::of(pm.load(&pool.words(entry.target, 1)?[0]))
                && p.names(descriptor.number, descriptor.heading.seq, i)
            {
                let new_counts = p.is_full() && descriptor.status.took_place();
                values.push((entry.target, if new_counts { entry.new } else { entry.old }));
                report.pointers += 1;
            }
        }
    }
    let mut replay: Vec<_> =
        found.iter().filter(|f| f.status.took_place() && f.status.stamp > horizon).collect();
    replay.sort_unstable_by_key(|f| f.status.stamp);
    for descriptor in replay {
        report.rolled_forward += 1;
        report.horizon = descriptor.status.stamp;
        let words = descriptor.entries.iter().filter(|e| e.target != 0).map(|e| (e.target, e.new));
        values.extend(words.chain(descriptor.carried.iter().flat_map(Carried::values)));
    }
    let mut flushed = None;
    for (at, value) in values {
        let word = &pool.words(at, 1)?[0];
        pm.store(word, value);
        flushed = Some(flushed.unwrap_or(Flushed::nothing()).and(pm.flush(word)));
    }
    Ok(flushed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmindex_core::{Mapped, Medium, PPtr, PmPtr, PmU64, Pool, pm_struct};

    use super::*;
    use crate::entry::Policy;
    use crate::{Config, Mwcas};

    pm_struct! {
        /// Three words, and a block that none of this is about.
        #[align(64)]
        struct Root: size 64 {
            words: [PmU64; 3],
            block: PmPtr<PmU64>,
            table: PmPtr<u64>,
            reserved: [PmU64; 3],
        }
    }

    /// A crash in the publication of an operation that allocates can leave its later lines without
    /// the first one; recovery sees nothing of it, and the descriptor's next operation has the same
    /// incarnation. If that one allocates nothing, it has one fence for all of its lines: a second
    /// crash can leave its first line with the later lines of the other.
    #[test]
    fn lines_of_an_operation_that_never_was_free_nothing() {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let pm = pool.pm();
        let entry = pool.create_index::<Root>("root", *b"root    ", 0, |root| {
            root.words.iter().for_each(|word| pm.store(word, 0));
            pm.store(&root.block, PPtr::NULL);
            pm.store(&root.table, PPtr::NULL);
            pm.flush(root)
        });
        let root = pool.get(entry.expect("room").root::<Root>()).expect("there");
        let block = pool.alloc_into(&root.block, |word: &PmU64| pm.flush(word)).expect("room");
        let config = Config { partitions: 1, per_partition: 4, words: 4 };
        Mwcas::<Mapped>::allocate_table(&pool, &root.table, config).expect("room");
        let table = Table::at(&pool, pm.load(&root.table).offset()).expect("made above");
        let slot = table.slot(&pool, 0).expect("there");
        let seq = slot.load_heading(pm).seq + 1;

        let target = |i: usize| pool.pptr(&root.words[i]).offset();
        let words = |policy, new| -> Vec<Entry> {
            (0..3).map(|i| Entry { target: target(i), new, policy, ..Entry::EMPTY }).collect()
        };
        // All lines of the first, then the first line of the second: three words take two lines.
        let first = Heading { count: 3, allocates: true, ..Heading::empty(seq) };
        slot.write(pm, first, &words(Policy::FreeNewOnFailure, block.offset()));
        let second = Heading { count: 3, ..Heading::empty(seq) };
        slot.write(pm, second, &words(Policy::FreeOldOnSuccess, 0)[..2]);
        pm.store(slot.status(), Status::new(State::Undecided, seq, true, 0).pack());

        let recyclers = Recyclers::<Mapped>::new();
        let report = Recovery::run(&pool, &table, &recyclers).expect("nothing is damaged");
        assert_eq!(report.freed, 0);
        let owned = [pool.pptr(root).offset(), block.offset(), table.offset()];
        pool.audit(owned.into_iter()).expect("the block is still its owner's");
    }
}
