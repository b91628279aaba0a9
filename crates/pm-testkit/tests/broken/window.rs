//! A word that is not durable for one step of many, and a thread that reads it then.

use pmindex_core::trace::Space;
use pmindex_core::{Medium, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan};
use proptest::prelude::*;

use super::cells::line;

pub(crate) const CORRECT: usize = 0;
pub(crate) const STALE_READ: usize = 1;

/// The number of directed plans that show nothing.
const HARMLESS: usize = 12;
/// The number of steps of [`Op::Set`].
const STEPS: u64 = 30;

/// A word that is set in many steps, its copy, and words of which each thread has one.
#[derive(Debug)]
pub(crate) struct Window<const BUG: usize> {
    space: Space,
    pm: Traced,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Sets the first word.
    Set(u64),
    /// Copies it.
    Copy,
    /// Adds to a thread's own word.
    Add(usize),
}

impl<const BUG: usize> CrashSubject for Window<BUG> {
    type Op = Op;
    type Ret = u64;
    type Model = [u64; 4];
    const NAME: &'static str = "window";

    fn geometry() -> Geometry {
        Geometry { len: 4096, capacity: 4096 }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self { space: space.clone(), pm: space.medium() })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        space.medium().written_back();
        Self::create(space).map(Some)
    }

    fn apply(&self, op: &Op) -> Result<u64, Fault> {
        let pm = &self.pm;
        let word = |n| line(&self.space, n).map(|line| &line[0]);
        match *op {
            Op::Set(value) => {
                for step in 0..STEPS {
                    pm.handover_point();
                    match step {
                        20 => pm.store(word(0)?, value),
                        21 => {
                            pm.persist(word(0)?)?;
                        }
                        _ => {}
                    }
                }
                Ok(0)
            }
            Op::Copy => {
                let value = pm.load(word(0)?);
                if BUG == CORRECT {
                    pm.persist(word(0)?)?;
                }
                pm.store(word(1)?, value);
                pm.persist(word(1)?)?;
                Ok(value)
            }
            Op::Add(thread) => {
                let word = word(2 + thread as u64)?;
                let value = pm.load(word) + 1;
                pm.store(word, value);
                for _ in 0..4 {
                    pm.handover_point();
                }
                pm.persist(word)?;
                Ok(value)
            }
        }
    }

    fn observe(&self) -> Result<[u64; 4], Fault> {
        let mut found = [0; 4];
        for (n, word) in (0..).zip(&mut found) {
            *word = self.pm.load(&line(&self.space, n)?[0]);
        }
        Ok(found)
    }

    fn model(model: &mut [u64; 4], op: &Op) -> u64 {
        match *op {
            Op::Set(value) => {
                model[0] = value;
                0
            }
            Op::Copy => {
                model[1] = model[0];
                model[1]
            }
            Op::Add(thread) => {
                model[2 + thread] += 1;
                model[2 + thread]
            }
        }
    }

    /// For one thread: neither it nor a crash meets the window.
    fn ops() -> BoxedStrategy<Op> {
        Just(Op::Copy).boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        let plan = |threads| Plan { setup: Vec::new(), threads, tail: vec![Op::Copy] };
        let mut plans =
            vec![plan([0, 1].map(|thread| vec![Op::Add(thread); 8]).to_vec()); HARMLESS];
        plans.push(plan(vec![vec![Op::Set(7)], vec![Op::Copy]]));
        plans
    }

    fn concurrent() -> bool {
        true
    }
}

/// The number of runs with at most one preemption, of the correct program. An addition has five handover points, and
/// more than 32 of a thread are tried in strides.
pub(crate) const PREEMPTED: u64 = HARMLESS as u64 * 2 * (1 + 20) + (1 + STEPS + 1) + (1 + 2);
