//! Runs of the program under test: the accesses (the trace), and the calls and results (the history).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use pmindex_core::trace::{Event, EventKind, Space, alone_as};

use super::erased::{AnyOp, AnySubject, AnyValue, Running};
use super::oracle::{Allowed, AnyOracle};
use super::panics;
use super::schedule::{Ended, hand_over_once, seeded};

/// The operations of a run.
#[derive(Clone, Debug)]
pub struct Plan<Op> {
    /// Executed first, by one thread, and not crashed.
    pub setup: Vec<Op>,
    /// The operations of each thread.
    pub threads: Vec<Vec<Op>>,
    /// Operations to continue with after a crash.
    pub tail: Vec<Op>,
}

/// The schedule of a run's threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turns {
    /// By this seed.
    Seeded(u64),
    /// This thread up to this handover point of its own, then the others, then this one.
    HandOver { thread: usize, at: u64 },
}

/// The logical thread that continues after a recovery, which thread 0 executes.
const NEXT_THREAD: u16 = 1;

/// A step of the history.
pub(crate) enum Step {
    Created,
    /// From here on crashes are explored.
    Ready,
    Invoke {
        thread: usize,
        op: AnyOp,
    },
    Return {
        thread: usize,
        ret: AnyValue,
    },
    /// After recovery: the state found, which must stay from now on.
    Observed {
        model: AnyValue,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("created"),
            Self::Ready => f.write_str("set up"),
            Self::Invoke { thread, op } => write!(f, "thread {thread}: {op:?} .."),
            Self::Return { thread, ret } => write!(f, "thread {thread}: .. {ret:?}"),
            Self::Observed { model } => write!(f, "observed {model:?}"),
        }
    }
}

/// A finished run.
pub(crate) struct Recording {
    pub(crate) trace: Vec<Event>,
    /// A note in the trace is an index of this.
    pub(crate) history: Vec<Step>,
    /// The handover points that each thread passed, if there are several.
    pub(crate) handovers: Vec<u64>,
    /// The fault, if one showed without any crash.
    pub(crate) fault: Option<String>,
}

struct Journal<'a> {
    space: &'a Space,
    history: Mutex<Vec<Step>>,
    fault: Mutex<Option<String>>,
}

impl Journal<'_> {
    fn note(&self, step: Step) {
        let mut history = self.history.lock();
        self.space.note(history.len() as u64);
        history.push(step);
    }

    fn run(&self, subject: &dyn Running, thread: usize, op: &AnyOp) -> Result<AnyValue, String> {
        self.note(Step::Invoke { thread, op: op.clone() });
        let ret = subject.apply(op).map_err(|fault| format!("{op:?}: {}", fault.0))?;
        self.note(Step::Return { thread, ret: ret.clone() });
        Ok(ret)
    }

    fn fault(&self, message: String) {
        self.fault.lock().get_or_insert(message);
    }
}

impl Recording {
    /// Returns the event after which crashes are explored.
    pub(crate) fn ready(&self) -> Option<usize> {
        let ready = self.history.iter().position(|step| matches!(step, Step::Ready))?;
        self.trace.iter().position(|e| e.kind == EventKind::Note && e.value == ready as u64)
    }

    /// Executes a plan in `space`, which is zero before and after.
    pub(crate) fn of(
        program: AnySubject,
        space: &Space,
        plan: &Plan<AnyOp>,
        turns: Turns,
        steps: u64,
    ) -> Self {
        let journal = Journal { space, history: Mutex::new(Vec::new()), fault: Mutex::new(None) };
        let mut handovers = Vec::new();
        space.record(true);
        space.limit_steps(steps);
        let result = guarded(|| {
            let subject = program.create(space).map_err(|fault| format!("create: {}", fault.0))?;
            journal.note(Step::Created);
            for op in &plan.setup {
                journal.run(&*subject, 0, op)?;
            }
            journal.note(Step::Ready);
            space.limit_steps(steps);
            if let [ops] = plan.threads.as_slice() {
                for op in ops {
                    journal.run(&*subject, 0, op)?;
                }
            } else {
                handovers = run_threads(&journal, &*subject, &plan.threads, turns);
            }
            if journal.fault.lock().is_none() {
                let model = subject.observe().map_err(|f| format!("after the run: {}", f.0))?;
                journal.note(Step::Observed { model });
                subject.audit().map_err(|fault| format!("after the run: {}", fault.0))?;
            }
            Ok(())
        });
        if let Err(message) = result {
            journal.fault(message);
        }
        space.record(false);
        if space.in_use() {
            journal.fault("the subject keeps its pool alive after it was dropped".into());
        }
        let trace = space.with_trace(<[Event]>::to_vec);
        space.undo();
        let (history, fault) = (journal.history.into_inner(), journal.fault.into_inner());
        Self { trace, history, handovers, fault }
    }

    /// Opens the crash image in `space`, compares it with the allowed states, if it `looks` first, and continues to use
    /// it.
    ///
    /// The recording is returned with the trace still in the space; the caller undoes it.
    pub(crate) fn after_crash(
        program: AnySubject,
        space: &Space,
        allowed: &Allowed<AnyValue>,
        tail: &[AnyOp],
        looks: bool,
        steps: u64,
    ) -> (Vec<Step>, Result<(), String>) {
        let journal = Journal { space, history: Mutex::new(Vec::new()), fault: Mutex::new(None) };
        space.record(true);
        space.limit_steps(steps);
        let mut result = guarded(|| recover_and_use(program, &journal, allowed, tail, looks));
        space.record(false);
        if result.is_ok() && space.in_use() {
            result = Err("the subject keeps its pool alive after it was dropped".into());
        }
        (journal.history.into_inner(), result)
    }
}

fn recover_and_use(
    program: AnySubject,
    journal: &Journal<'_>,
    allowed: &Allowed<AnyValue>,
    tail: &[AnyOp],
    looks: bool,
) -> Result<(), String> {
    let opened = program.open(journal.space).map_err(|fault| format!("open: {}", fault.0))?;
    let Some(subject) = opened else {
        return if allowed.absent {
            Ok(())
        } else {
            Err("the structure is gone, though its creation had returned".into())
        };
    };
    let oracle = if looks || allowed.absent || tail.is_empty() {
        look(program, &*subject, journal, allowed)?
    } else {
        // The first to read what recovery left is an operation.
        AnyOracle::from_states(program, &allowed.models)
    };
    use_it(program, &*subject, journal, oracle, tail)
}

/// Reads all of what a crash left, and compares it with the allowed states.
fn look(
    program: AnySubject,
    subject: &dyn Running,
    journal: &Journal<'_>,
    allowed: &Allowed<AnyValue>,
) -> Result<AnyOracle, String> {
    let found = subject.observe().map_err(|fault| format!("structure: {}", fault.0))?;
    if !allowed.models.contains(&found) {
        return Err(format!(
            "the surviving state is not explained by any linearization of what completed\n    \
             found:    {found:?}\n    expected: {}",
            one_of(&allowed.models)
        ));
    }
    subject.audit().map_err(|fault| format!("audit: {}", fault.0))?;
    journal.note(Step::Observed { model: found.clone() });
    Ok(AnyOracle::from_state(program, program.observed(&found), 1))
}

/// Continues to use a structure after a crash, and compares what it returns and what is left.
fn use_it(
    program: AnySubject,
    subject: &dyn Running,
    journal: &Journal<'_>,
    mut oracle: AnyOracle,
    tail: &[AnyOp],
) -> Result<(), String> {
    // On another thread than the opening: its fences do not cover the opening's flushes.
    let thread = if program.concurrent() { NEXT_THREAD } else { 0 };
    for op in tail {
        oracle.invoke(0, op);
        let ret = alone_as(thread, || journal.run(subject, 0, op))
            .map_err(|e| format!("after recovery: {e}"))?;
        oracle.respond(0, &ret).map_err(|e| format!("after recovery: {op:?}: {e}"))?;
    }
    let left = subject.observe().map_err(|f| format!("after {tail:?}: structure: {}", f.0))?;
    let expected = oracle.allowed().models;
    if !expected.contains(&left) {
        return Err(format!(
            "after recovery and {tail:?}: not explained by any linearization\n    \
             found:    {left:?}\n    expected: {}",
            one_of(&expected)
        ));
    }
    subject.audit().map_err(|fault| format!("after {tail:?}: audit: {}", fault.0))
}

fn one_of(models: &[AnyValue]) -> String {
    let texts: Vec<String> = models.iter().map(|m| format!("{m:?}")).collect();
    texts.join("\n           or: ")
}

/// Runs the operations of several threads; returns the number of each one's handover points.
fn run_threads(
    journal: &Journal<'_>,
    subject: &dyn Running,
    threads: &[Vec<AnyOp>],
    turns: Turns,
) -> Vec<u64> {
    let body = |thread: usize| {
        for op in &threads[thread] {
            if let Err(message) = journal.run(subject, thread, op) {
                journal.fault(format!("thread {thread}: {message}"));
                return;
            }
        }
    };
    let Ended { panics, points } = match turns {
        Turns::Seeded(seed) => seeded(threads.len(), seed, body),
        Turns::HandOver { thread, at } => hand_over_once(threads.len(), thread, at, body),
    };
    for (thread, message) in panics.into_iter().enumerate() {
        if let Some(message) = message {
            journal.fault(format!("thread {thread}: {message}"));
        }
    }
    points
}

/// Runs `body`, turning a panic into its message.
fn guarded(body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    panics::quietly(|| match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => Err(panics::last_message()),
    })
}
