//! A thread that panics in the middle of an operation: no other thread waits for it, and its operation
//! happened or did not.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::bed::Simulated;
use super::calls::{everything, record};
use super::fuse::Fuse;
use super::subject::{Maker, Rig, Types};
use super::threads::Watchdog;
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};
use crate::crash::{last_message, quietly};
use crate::history::{Call, Clock, History, Log};

/// Records before the panic; the operation is in the middle of them.
const RECORDS: u64 = 70;
/// Accesses after which an operation counts as endless.
const STEPS: u64 = 300_000;

/// The operations that are interrupted, on absent (even) and present (odd) keys.
fn calls() -> [(u64, Call); 7] {
    [
        (70, Call::TryInsert(1000)),
        (71, Call::Update(1001)),
        (71, Call::Put(1002)),
        (72, Call::Put(1003)),
        (73, Call::Remove),
        (75, Call::Get),
        (74, Call::TryInsert(1004)),
    ]
}

/// Makes a thread panic, or stops that.
struct Trigger<'a, S: Types> {
    arm: &'a dyn Fn(&Rig<S>, u64),
    disarm: &'a dyn Fn(&Rig<S>),
    /// Bounds the following calls, so that an endless wait is a failure.
    guard: &'a dyn Fn(&Rig<S>),
}

/// Each operation is interrupted at each of its accesses to the pool in turn (every `stride`-th, when there
/// are more than a few), by a panic in the medium. Afterwards another thread reads and writes everywhere,
/// without an endless wait and without an error. What it sees, and the contents after opening, must be
/// explained by the interrupted call having happened or not.
pub fn panics_at_any_access<S: Types<Bed = Simulated>>(of: Maker<S>, stride: u64) -> Verdict {
    let trigger = Trigger::<S> {
        arm: &|rig, at| rig.bed.space().limit_steps(at),
        disarm: &|rig| rig.bed.space().limit_steps(u64::MAX),
        guard: &|rig| rig.bed.space().limit_steps(STEPS),
    };
    at_every_point(of, &trigger, stride)
}

/// The same, with a panic in the user's code: in each conversion of a key or value in turn.
pub fn panics_in_conversions<S: Types<Key = Fuse, Value = Fuse>>(of: Maker<S>) -> Verdict {
    let _watchdog = Watchdog::new("panics_in_conversions");
    let trigger = Trigger::<S> {
        arm: &|_, at| Fuse::burn_after(Some(at)),
        disarm: &|_| Fuse::burn_after(None),
        guard: &|_| (),
    };
    at_every_point(of, &trigger, 1)
}

fn at_every_point<S: Types>(of: Maker<S>, trigger: &Trigger<'_, S>, stride: u64) -> Verdict {
    for (key, call) in calls() {
        let mut at = 0;
        while interrupted(of, trigger, key, call, at)
            .within(format_args!("{call:?} of key {key}, panic at point {at}"))?
        {
            at += if at < 8 { 1 } else { stride };
        }
        ensure!(at > 0, "{call:?} of key {key} was never interrupted");
    }
    Ok(())
}

/// Returns whether the call was interrupted: `false` if it ended before point `at`.
fn interrupted<S: Types>(
    of: Maker<S>,
    trigger: &Trigger<'_, S>,
    key: u64,
    call: Call,
    at: u64,
) -> Verdict<bool> {
    let mut rig = Rig::with_pool(of, of.simulated_bytes())?;
    let (clock, mut initial) = (Clock::default(), BTreeMap::new());
    let mut log = Log::new(&clock, 0);
    for i in 0..RECORDS {
        record::<S>(&mut log, rig.index(), 2 * i + 1, Call::TryInsert(i))?;
        initial.insert(2 * i + 1, i);
    }
    let mut log = Log::new(&clock, 1);
    (trigger.arm)(&rig, at);
    let result = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| record::<S>(&mut log, rig.index(), key, call)))
    });
    (trigger.disarm)(&rig);
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
    (trigger.guard)(&rig);
    let after = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| go_on::<S>(&mut log, &rig, key)))
            .unwrap_or_else(|_| Err(Failure::new(last_message())))
    });
    (trigger.disarm)(&rig);
    after.within("the next thread")?;
    history.add(log.into_events());

    rig.drop_and_open()?;
    let keys = 2 * RECORDS + 1;
    let left = everything::<S>(rig.index(), keys)?;
    ensure_eq!(rig.index().check().within("check")?, left.len() as u64, "check");
    rig.audit()?;
    history.ends_with(0..keys, &left);
    history.check().map_err(|violation| Failure::new(violation.to_string()))?;
    Ok(panicked)
}

/// Executes another thread's operations on the key, its neighbours and the far ends.
fn go_on<S: Types>(log: &mut Log<'_>, rig: &Rig<S>, key: u64) -> Verdict {
    for near in [key, key - 1, key + 1, 1, 0, 2 * RECORDS] {
        let calls = [Call::Get, Call::Put(2000 + near), Call::Remove, Call::TryInsert(3000 + near)];
        for call in calls {
            record::<S>(log, rig.index(), near, call)?;
        }
    }
    everything::<S>(rig.index(), 2 * RECORDS + 1).map(drop)
}
