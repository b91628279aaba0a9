//! A thread that panics in the middle of an operation: nobody waits for it, and what it was doing
//! happened or did not.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pmindex_index::Index;

use super::bed::Simulated;
use super::calls::{everything, record};
use super::subject::{Rig, Subject};
use super::verdict::{Failure, Verdict, Within, ensure_eq};
use crate::crash::quietly;
use crate::history::{Call, Clock, History, Log};

/// Records before the panic; the operation is in the middle of them.
const RECORDS: u64 = 70;
/// Accesses after which an operation counts as endless.
const STEPS: u64 = 300_000;

/// The operations that are interrupted, on absent (even) and present (odd) keys.
fn calls() -> [(u64, Call); 7] {
    [
        (70, Call::Insert(1000)),
        (71, Call::Update(1001)),
        (71, Call::Upsert(1002)),
        (72, Call::Upsert(1003)),
        (73, Call::Remove),
        (75, Call::Get),
        (74, Call::Insert(1004)),
    ]
}

/// Each operation is interrupted at each of its accesses to the pool in turn (every `stride`-th,
/// when there are more than a few), by a panic in the medium. Afterwards another thread reads and
/// writes everywhere without waiting for ever; what it sees, and what is there after opening, is
/// explained by the interrupted call having happened or not.
pub fn panics_at_any_access<S: Subject<Bed = Simulated>>(stride: u64) -> Verdict {
    for (key, call) in calls() {
        let mut at = 0;
        while interrupted::<S>(key, call, at)
            .within(format_args!("{call:?} of key {key}, panic at access {at}"))?
        {
            at += if at < 8 { 1 } else { stride };
        }
    }
    Ok(())
}

/// Whether the call was interrupted: `false` if it ended before access `at`.
fn interrupted<S: Subject<Bed = Simulated>>(key: u64, call: Call, at: u64) -> Verdict<bool> {
    let mut rig = Rig::<S>::with_pool(S::SIMULATED_BYTES)?;
    let (clock, mut initial) = (Clock::default(), BTreeMap::new());
    let mut log = Log::new(&clock, 0);
    for i in 0..RECORDS {
        record::<S>(&mut log, rig.index(), 2 * i + 1, Call::Insert(i))?;
        initial.insert(2 * i + 1, i);
    }
    let space = rig.bed.space().clone();
    let mut log = Log::new(&clock, 1);
    space.limit_steps(at);
    let result = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| record::<S>(&mut log, rig.index(), key, call)))
    });
    space.limit_steps(u64::MAX);
    let panicked = match result {
        Ok(done) => {
            done?;
            false
        }
        Err(_) => true,
    };
    let mut history = History::new(initial);
    history.add(log.into_events());

    let mut log = Log::new(&clock, 2);
    space.limit_steps(STEPS);
    let after = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| go_on::<S>(&mut log, &rig, key)))
            .unwrap_or_else(|_| Err(Failure::new(crate::crash::last_message())))
    });
    space.limit_steps(u64::MAX);
    after.within("the next thread")?;
    history.add(log.into_events());

    rig.drop_and_open()?;
    let keys = 2 * RECORDS + 1;
    let left = everything::<S>(rig.index(), keys)?;
    ensure_eq!(rig.index().check().within("check")?, left.len() as u64, "check");
    history.ends_with(0..keys, &left);
    history.check().map_err(|violation| Failure::new(violation.to_string()))?;
    Ok(panicked)
}

/// Another thread's operations on the key, its neighbours and the far ends.
fn go_on<S: Subject>(log: &mut Log<'_>, rig: &Rig<S>, key: u64) -> Verdict {
    for near in [key, key - 1, key + 1, 1, 0, 2 * RECORDS] {
        record::<S>(log, rig.index(), near, Call::Get)?;
        record::<S>(log, rig.index(), near, Call::Upsert(2000 + near))?;
        record::<S>(log, rig.index(), near, Call::Remove)?;
        record::<S>(log, rig.index(), near, Call::Insert(3000 + near))?;
    }
    everything::<S>(rig.index(), 2 * RECORDS + 1).map(drop)
}
