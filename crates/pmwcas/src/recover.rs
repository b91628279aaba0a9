//! Recovery: completes or rolls back the operations that the last process left unfinished.
//!
//! One pass over the descriptors; its time does not depend on the size of the structures:
//!
//! 1. Every pointer in a word is replaced: a full pointer of a successful operation by the new value, any
//!    other by the old one.
//! 2. The operations after the horizon are replayed in the order of their stamps, without regard to the
//!    values in their words: the horizon advances over all operations up to a stamp at once, so the replayed
//!    ones are the last ones of every word they changed. Each expected what the one before stored; if not, a
//!    stamp or a value is damaged.
//! 3. All those words are made durable; then the horizon advances past all operations.
//! 4. Descriptors that own blocks give them up, by one store each.
//!
//! | step | store                                    | durable before                     |
//! |------|------------------------------------------|------------------------------------|
//! | V1   | words                                    | V2                                 |
//! | V2   | horizon, if anything was replayed        | V3, reuse of the first descriptor  |
//! | V3   | `Void` in descriptors with blocks        | use                                |
//!
//! Each step may be repeated after a crash in any of them: V1 depends on descriptors that only V3 changes,
//! and writes the same values again. V2 cannot be left to the next `settle`: if a later operation's
//! descriptor were reused while an earlier one of the same word is still after the horizon, the next recovery
//! would replay the earlier one alone. Operations that failed are left as they are: no word holds a pointer
//! to them.

use std::collections::HashMap;

use pmindex_core::{Flushed, Medium, PmError, Pool};

use crate::entry::Entry;
use crate::layout::{Carried, Heading, Slot, Table};
use crate::mwcas::Recyclers;
use crate::reclaim::give_up_after_crash;
use crate::status::{State, Status};
use crate::word::{Content, MAX_VALUE};

/// What recovery found in a descriptor pool when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Successful operations whose new values were written to their words again.
    pub rolled_forward: u64,
    /// Operations that did not succeed, including failed ones whose descriptor was not reused.
    pub rolled_back: u64,
    /// Operations of both kinds that were unfinished; 0 after a clean shutdown.
    pub interrupted: u64,
    /// Pointers to descriptors that were replaced by values.
    pub pointers: u64,
    /// Blocks that interrupted operations gave up.
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
        let horizon = table.read_horizon(pool)?;
        let mut report = Self { horizon, ..Self::default() };
        let found = find(pool, table, horizon)?;
        let over = |state| matches!(state, State::Committed | State::Failed);
        report.interrupted = found.iter().filter(|f| !over(f.status.state)).count() as u64;
        if let Some(words) = restore_words(pool, &found, &mut report)? {
            pool.pm().fence(words)?; // V1
        }
        if report.horizon != horizon {
            let cell = table.horizon(pool)?;
            pool.pm().store(cell, table.pack_horizon(report.horizon));
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

/// Finds all descriptors with an operation that recovery must look at.
///
/// # Errors
/// [`PmError::Corrupt`] if a descriptor has contents that no operation writes. An operation after the horizon
/// is complete: it was durable before its outcome, and it does not change before the horizon is past it.
fn find<'p, M: Medium>(
    pool: &'p Pool<M>,
    table: &Table,
    horizon: u64,
) -> Result<Vec<Found<'p>>, PmError> {
    let pm = pool.pm();
    let mut found = Vec::new();
    for number in 0..table.config().slots() {
        let slot = table.slot(pool, number)?;
        let corrupt = |what| {
            let offset = pool.pptr(slot.status()).offset();
            Err(PmError::Corrupt { what, offset })
        };
        let word = pm.load(slot.status());
        if !Status::is_possible(word, horizon) {
            return corrupt("the status of a descriptor");
        }
        let (status, heading) = (Status::unpack(word), slot.load_heading(pm));
        let counts = status.took_place() && status.stamp > horizon;
        // The status is of another incarnation than the heading: the process died while it reused the
        // descriptor, after the last pointer to the old incarnation was gone and before the first to the new
        // one.
        if status.state == State::Void || !status.is_of(heading.seq) {
            if counts {
                return corrupt("a descriptor reused before the horizon was past it");
            }
            continue;
        }
        let mut entries = Vec::new();
        let is_whole = slot.copy_entries(pm, heading, &mut entries);
        let are_values = entries.iter().all(|e| e.target == 0 || e.new <= MAX_VALUE);
        if counts && !(is_whole && are_values) {
            return corrupt("the entries of a descriptor");
        }
        let carried = slot.load_carried(pm, heading, &entries);
        found.push(Found { slot, number, status, heading, entries, carried });
    }
    Ok(found)
}

/// V1: replaces pointers and replays the operations after the horizon. Returns `None` if there were none.
fn restore_words<M: Medium>(
    pool: &Pool<M>,
    found: &[Found<'_>],
    report: &mut Recovery,
) -> Result<Option<Flushed>, PmError> {
    let pm = pool.pm();
    let horizon = report.horizon;
    // Operations that did not succeed have no pointer in any word.
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
    if let Some(pair) = replay.windows(2).find(|pair| pair[0].status.stamp == pair[1].status.stamp)
    {
        let offset = pool.pptr(pair[0].slot.status()).offset();
        return Err(PmError::Corrupt { what: "two operations of one stamp", offset });
    }
    // The value of each word after the operations replayed so far: the next one on it expected that.
    let mut last = HashMap::new();
    for descriptor in replay {
        report.rolled_forward += 1;
        report.horizon = descriptor.status.stamp;
        for entry in descriptor.entries.iter().filter(|e| e.target != 0) {
            if last.insert(entry.target, entry.new).is_some_and(|before| before != entry.old) {
                let (what, offset) = ("an operation that does not follow", entry.target);
                return Err(PmError::Corrupt { what, offset });
            }
            values.push((entry.target, entry.new));
        }
        let carried = descriptor.carried.iter().flat_map(Carried::values);
        values.extend(carried.inspect(|&(at, value)| _ = last.insert(at, value)));
    }
    // Resolve all offsets first: if one is not a word of the pool, nothing is stored.
    let word_at = |(at, value)| Ok((&pool.words(at, 1)?[0], value));
    let values = values.into_iter().map(word_at).collect::<Result<Vec<_>, PmError>>()?;
    let mut flushed = None;
    for (word, value) in values {
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
        /// Three words, and a block that these tests do not use.
        #[align(64)]
        struct Root: size 64 {
            words: [PmU64; 3],
            block: PmPtr<PmU64>,
            table: PmPtr<u64>,
            reserved: [PmU64; 3],
        }
    }

    /// A crash while an operation that allocates is published can leave its later lines without the first
    /// one; recovery does not see them, and the descriptor's next operation has the same incarnation. If that
    /// one allocates nothing, it has one fence for all of its lines: a second crash can leave its first line
    /// with the later lines of the other.
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

    /// Counts a word up to `last`, by operations that are all after the horizon. Returns the pool, the offset
    /// of the word, that of the horizon, and those of the descriptors' statuses.
    fn counted_to(last: u64) -> (Arc<Pool>, u64, u64, Vec<u64>) {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let entry = pool.create_index::<Root>("root", *b"root    ", 0, |root| {
            root.words.iter().for_each(|word| pool.pm().store(word, 0));
            pool.pm().flush(root)
        });
        let root = entry.expect("room").root::<Root>();
        let config = Config { partitions: 1, per_partition: 32, words: 4 };
        let mwcas = Mwcas::create(&pool, "mwcas", config).expect("room");
        let word = &pool.get(root).expect("there").words[0];
        for value in 0..last {
            let mut session = mwcas.session().expect("free");
            let mut op = session.descriptor();
            op.add_word(word, value, value + 1).expect("room");
            assert!(op.execute().expect("emulated"));
        }
        let (table, at) = (mwcas.table, |cell| pool.pptr(cell).offset());
        let horizon = at(table.horizon(&pool).expect("there"));
        let slot = |number| table.slot(&pool, number).expect("there").status();
        // The first ones are taken first.
        let statuses = (0..last as u32).map(|number| at(slot(number))).collect();
        let word = at(word);
        drop(mwcas);
        (Arc::clone(&pool), word, horizon, statuses)
    }

    fn cell(pool: &Pool, offset: u64) -> &PmU64 {
        &pool.words(offset, 1).expect("there")[0]
    }

    /// A horizon that is too high skips operations, one that is too low replays old ones, and neither shows
    /// in any structure: so recovery refuses every horizon that no pool wrote.
    #[test]
    fn a_damaged_horizon_is_noticed() {
        let (pool, word, horizon, _) = counted_to(7);
        let (pm, cell) = (pool.pm(), cell(&pool, horizon));
        let sound = pm.load(cell);
        let flipped = (0..64).map(|bit| sound ^ 1 << bit);
        for damaged in flipped.chain([u64::MAX, sound + 1, sound ^ 0xff]) {
            pm.store(cell, damaged);
            let opened = Mwcas::open(&pool, "mwcas").map(|mwcas| mwcas.recovery().rolled_forward);
            assert!(matches!(opened, Err(PmError::Corrupt { .. })), "{damaged:#x}: {opened:?}");
        }
        pm.store(cell, sound);
        let mwcas = Mwcas::open(&pool, "mwcas").expect("sound");
        assert_eq!(mwcas.read(super::tests::cell(&pool, word)), Ok(7));
    }

    /// In a table of version 3, whose horizon has no check, recovery refuses a stamp that no pool reaches.
    #[test]
    fn a_horizon_beyond_all_stamps_is_noticed_without_a_check() {
        let (pool, _, horizon, _) = counted_to(7);
        let (pm, cell) = (pool.pm(), cell(&pool, horizon));
        Table::to_version_3(&pool, horizon).expect("there");
        for bit in 52..64 {
            pm.store(cell, 1 << bit);
            assert!(matches!(Mwcas::open(&pool, "mwcas"), Err(PmError::Corrupt { .. })), "{bit}");
        }
        pm.store(cell, 0);
        assert_eq!(Mwcas::open(&pool, "mwcas").expect("sound").recovery().rolled_forward, 7);
    }

    /// Flips any bit of the status of an operation that others follow: recovery refuses it, or the values are
    /// right.
    #[test]
    fn a_damaged_status_is_noticed() {
        let (pool, word, horizon, statuses) = counted_to(7);
        let (pm, value) = (pool.pm(), cell(&pool, word));
        let before = [horizon, word].map(|at| pm.load(cell(&pool, at)));
        let mut refused = 0;
        for &status in &statuses[..statuses.len() - 1] {
            for bit in 0..64 {
                let (cell, sound) = (cell(&pool, status), pm.load(cell(&pool, status)));
                pm.store(value, 0); // as if its line had not been written back
                pm.store(cell, sound ^ 1 << bit);
                match Mwcas::open(&pool, "mwcas") {
                    Ok(mwcas) => {
                        assert_eq!(mwcas.read(value), Ok(7), "{status:#x}, bit {bit}");
                    }
                    Err(_) => refused += 1,
                }
                pm.store(cell, sound);
                for (at, word) in [horizon, word].into_iter().zip(before) {
                    pm.store(super::tests::cell(&pool, at), word);
                }
            }
        }
        assert!(refused > 6 * 40, "only {refused} damages were refused");
    }

    #[test]
    fn a_formatted_table_opens_and_garbage_does_not() {
        let pool = Pool::emulated(1 << 20).unwrap();
        let config = Config { partitions: 3, per_partition: 4, words: 12 };
        let mut op = pool.op().unwrap();
        let block = op.reserve_bytes(Table::bytes(config), 64).unwrap();
        let base = block.ptr().offset();
        assert!(Table::at(&pool, base).is_err());
        let flushed = Table::format(&pool, base, config).unwrap();
        pool.pm().fence(flushed).unwrap();
        let table = Table::at(&pool, base).unwrap();
        assert_eq!(table.config(), config);
        assert!(table.slot(&pool, 11).is_ok());
        assert!(table.slot(&pool, 12).is_err());
    }
}
