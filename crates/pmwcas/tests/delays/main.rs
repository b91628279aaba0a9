//! Long delays: one thread stops at each of its steps in turn, inside another thread's operation or
//! its own, while others complete operation after operation, settle and reuse descriptors; then it
//! goes on. Every pair of delays is run, and each run is crashed at some moments.
//!
//! Besides the results, each run's trace is searched for a pointer to a descriptor that could still be on the
//! medium when the descriptor is reused: it would do harm only later.

mod every;
mod medium;
mod script;
#[path = "../subjects/words.rs"]
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use every::every;
use medium::{Medium, check_reuse};
use parking_lot::Mutex;
use pmindex_core::trace::{Event, EventKind, Space, ThreadControl, run_as};
use pmindex_pmwcas::MAX_VALUE;
use pmindex_testkit::crash::{CrashSubject, Oracle, Rng};
use script::{ALL, Script};
use words::{Op, WORDS, Words};

enum Step {
    Invoke(usize, Op),
    Return(usize, u64),
}

struct Run {
    /// The medium before the run.
    before: Vec<u64>,
    trace: Vec<Event>,
    /// A note in the trace is an index of this.
    history: Vec<Step>,
}

/// Chooses the thread that runs.
trait Scheduler: ThreadControl {
    /// Waits for the first turn of a thread.
    fn wait(&self, thread: usize);

    /// A thread has ended.
    fn leave(&self, thread: usize);
}

/// The end of a thread, when it is dropped.
struct Leaving<'a, S: Scheduler>(&'a S, usize);

impl<S: Scheduler> Drop for Leaving<'_, S> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

fn run(space: &Space, plans: &[Vec<Op>], segments: &[(usize, usize)]) -> Run {
    run_by(space, plans, &Arc::new(Script::new(plans.len(), segments)))
}

fn run_by<S: Scheduler + 'static>(space: &Space, plans: &[Vec<Op>], script: &Arc<S>) -> Run {
    space.restore(&vec![0; Words::geometry().capacity / 8]);
    let subject = Words::create(space).expect("room");
    space.record(true);
    drop(space.take_trace());
    let before = space.snapshot();
    space.limit_steps(100_000);
    let history = Mutex::new(Vec::new());
    let note = |step| {
        let mut history = history.lock();
        space.note(history.len() as u64);
        history.push(step);
    };
    std::thread::scope(|scope| {
        for (thread, plan) in plans.iter().enumerate() {
            let (script, subject, note) = (script, &subject, &note);
            scope.spawn(move || {
                script.wait(thread);
                let _leave = Leaving(&**script, thread); // also when this panics
                let control: Arc<dyn ThreadControl> = Arc::<S>::clone(script);
                run_as(thread as u16 + 1, control, || {
                    for op in plan {
                        note(Step::Invoke(thread, op.clone()));
                        let returned = subject.apply(op).expect("no fault");
                        note(Step::Return(thread, returned));
                    }
                });
            });
        }
    });
    space.record(false);
    subject.observe().expect("only values in the words");
    drop(subject);
    Run { before, trace: space.take_trace(), history: history.into_inner() }
}

fn step(oracle: &mut Oracle<Words>, run: &Run, note: &Event) {
    match &run.history[note.value as usize] {
        Step::Invoke(thread, op) => oracle.invoke(*thread, op),
        Step::Return(thread, returned) => {
            oracle.respond(*thread, returned).expect("linearizable");
        }
    }
}

/// Checks the results, that no pointer outlives its descriptor, and the states that crashes at some moments
/// leave.
fn check(space: &Space, run: &Run, layout: &Layout, seed: u64) {
    let mut rng = Rng::new(seed);
    let crashes = [rng.below(run.trace.len()), rng.below(run.trace.len()), run.trace.len()];
    check_with(space, run, layout, &mut rng, &crashes);
}

fn check_with(space: &Space, run: &Run, layout: &Layout, rng: &mut Rng, crashes: &[usize]) {
    let mut medium = Medium::new(run.before.clone());
    let mut oracle = Oracle::<Words>::from_state([0; WORDS], 3);
    for i in 0..=run.trace.len() {
        let tentative = i > 0 && i.is_multiple_of(3) && is_tentative(&run.trace[i - 1]);
        if tentative && !crashes.is_empty() || crashes.contains(&i) {
            let allowed = oracle.allowed().models;
            for _ in 0..2 {
                space.restore(&medium.image(rng));
                let subject = Words::open(space).expect("recovers").expect("was created");
                let found = subject.observe().expect("only values in the words");
                assert!(allowed.contains(&found), "found {found:?}, allowed {allowed:?}");
            }
        }
        let Some(event) = run.trace.get(i) else { break };
        if event.kind == EventKind::Note {
            step(&mut oracle, run, event);
        } else {
            if event.kind.writes() {
                check_reuse(&medium, &layout.targets, &layout.headings, event);
            }
            medium.apply(event);
        }
    }
}

/// Whether a pointer is full: it names no installer.
fn is_full(pointer: u64) -> bool {
    pointer & 0x3ff == 0x3ff
}

/// Whether the event puts a tentative pointer into a word.
fn is_tentative(event: &Event) -> bool {
    let is_pointer = event.kind == EventKind::Rmw && event.value > MAX_VALUE;
    is_pointer && !is_full(event.value)
}

/// The places of target words and of descriptors' headings, as numbers of words.
struct Layout {
    targets: Vec<u32>,
    headings: BTreeMap<u32, u64>,
}

fn layout(space: &Space) -> Layout {
    let subject = Words::create(space).expect("room");
    let targets = subject.targets();
    let (first, stride, count) = subject.descriptors();
    let headings = (0..count).map(|i| ((first + i * stride) as u32 + 1, i)).collect();
    Layout { targets, headings }
}

/// Runs one script and checks everything about it.
struct Bench {
    space: Space,
    layout: Layout,
}

impl Bench {
    fn new() -> Self {
        let geometry = Words::geometry();
        let space = Space::new(geometry.len, geometry.capacity);
        let layout = layout(&space);
        Self { space, layout }
    }

    fn run(&self, plans: &[Vec<Op>], segments: &[(usize, usize)]) {
        let run = run(&self.space, plans, segments);
        let seed = segments.iter().fold(0, |seed: u64, &(thread, steps)| {
            seed.wrapping_mul(1009) + (thread + steps % 1000) as u64
        });
        check(&self.space, &run, &self.layout, seed);
    }

    /// Returns the number of steps after which the first operation of thread 0 has a pointer in a word.
    fn steps_to_first_pointer(&self, plans: &[Vec<Op>]) -> usize {
        let has_pointer = |steps: &usize| {
            let run = run(&self.space, plans, &[(0, *steps), (1, ALL)]);
            let alone = run.trace.iter().take_while(|e| e.thread != 2);
            let is_pointer = |e: &Event| e.kind == EventKind::Rmw && e.value > MAX_VALUE;
            alone.into_iter().any(|e| is_pointer(e) && is_full(e.value))
        };
        (1..200).find(has_pointer).expect("an operation installs pointers")
    }
}

/// Runs `plans` with every delay up to `first` steps of thread 0 and `second` steps of thread 1.
fn delays(plans: &[Vec<Op>], first: usize, second: usize, order: &[usize]) {
    let bench = Bench::new();
    for a in 0..first {
        for b in 1..second {
            let mut segments = vec![(0, a), (1, b)];
            segments.extend(order.iter().map(|&thread| (thread, ALL)));
            bench.run(plans, &segments);
        }
    }
}

/// Runs every schedule of `plans` with at most `preemptions` preemptions: histories must be linearizable and
/// no descriptor reused too early; some schedules crash. Returns the number of schedules.
fn every_schedule(plans: &[Vec<Op>], preemptions: usize) -> usize {
    let bench = Bench::new();
    let mut count = 0;
    every(plans.len(), preemptions, |schedule| {
        let run = run_by(&bench.space, plans, schedule);
        count += 1;
        let mut rng = Rng::new(count);
        let crashes = if count % 8 == 0 { vec![rng.below(run.trace.len())] } else { Vec::new() };
        check_with(&bench.space, &run, &bench.layout, &mut rng, &crashes);
    })
}

/// Flips the same words back and forth: every expected value comes back.
fn flips(mask: u8, times: usize) -> Vec<Op> {
    vec![Op::Flip(mask); times]
}

#[test]
fn a_helper_is_delayed_while_the_owner_goes_on() {
    delays(&[flips(0b001_001, 8), flips(0b001_001, 1)], 60, 70, &[0, 1]);
}

#[test]
fn an_owner_is_delayed_while_a_helper_goes_on() {
    delays(&[flips(0b001_001, 1), flips(0b001_001, 8)], 60, 60, &[1, 0]);
}

#[test]
fn a_helper_is_delayed_while_the_owner_and_another_helper_go_on() {
    let plans = [flips(0b001_001, 4), flips(0b001_001, 1), flips(0b001_001, 4)];
    delays(&plans, 50, 60, &[2, 0, 1]);
    delays(&plans, 50, 60, &[0, 2, 1]);
}

#[test]
fn operations_that_partly_overlap_are_delayed() {
    let plans = [flips(0b011_001, 5), flips(0b110_001, 2), flips(0b101_000, 5)];
    delays(&plans, 60, 60, &[2, 0, 1]);
}

#[test]
fn an_operation_that_fails_is_delayed() {
    let expecting_zeros = vec![Op::Cas(0b001_001, 0); 3];
    delays(&[expecting_zeros.clone(), flips(0b001_000, 8)], 50, 50, &[1, 0]);
    delays(&[flips(0b001_000, 8), expecting_zeros], 50, 50, &[0, 1]);
}

#[test]
fn an_operation_is_delayed_while_others_move_the_horizon() {
    delays(&[flips(0b000_011, 1), flips(0b110_000, 8)], 60, 2, &[1, 0]);
    delays(&[flips(0b000_011, 3), flips(0b110_000, 8)], 90, 40, &[0, 1]);
}

#[test]
fn an_operation_fails_with_pointers_in_its_words_and_its_thread_goes_on_elsewhere() {
    let mut first = vec![Op::Cas(0b100_001, 0)];
    first.extend(flips(0b011_000, 8)); // on other lines
    delays(&[first, flips(0b100_000, 1)], 60, 3, &[1, 0]);
}

#[test]
fn a_reader_is_delayed_while_the_descriptor_is_reused_for_other_words() {
    let mut owner = vec![Op::Add(0b000_001, 10)];
    owner.extend(vec![Op::Add(0b000_100, 1000); 12]);
    delays(&[owner, vec![Op::Read(0)]], 60, 12, &[0, 1]);
}

#[test]
fn a_late_pointer_is_read() {
    let bench = Bench::new();
    let plans = [flips(0b001_001, 6), flips(0b001_001, 1), vec![Op::Read(3), Op::Read(3)]];
    let start = bench.steps_to_first_pointer(&plans);
    for late in 1..40 {
        for on in 1..6 {
            let segments = [(0, start), (1, late), (0, ALL), (1, on), (2, ALL), (1, ALL)];
            bench.run(&plans, &segments);
        }
    }
}

#[test]
fn a_late_pointer_is_met_by_another_late_helper() {
    let bench = Bench::new();
    let plans = [flips(0b001_001, 6), flips(0b001_001, 1), flips(0b001_001, 1)];
    let start = bench.steps_to_first_pointer(&plans);
    for late in 8..40 {
        for later in 8..40 {
            for on in 1..4 {
                let segments =
                    [(0, start), (1, late), (2, later), (0, ALL), (1, on), (2, ALL), (1, ALL)];
                bench.run(&plans, &segments);
            }
        }
    }
}

/// The owner of an operation stops for ever, at each of its steps: a reader does not wait for it.
#[test]
fn a_reader_waits_for_no_owner() {
    let bench = Bench::new();
    let plans = [flips(0b001_001, 4), vec![Op::Read(0)]];
    for a in 0..150 {
        let run = run(&bench.space, &plans, &[(0, a), (1, 12), (0, ALL)]);
        let returned = |step: &Step| matches!(step, Step::Return(1, _));
        let notes = run.trace.iter().filter(|e| e.kind == EventKind::Note);
        let reader = notes.filter(|e| e.thread == 2).map(|e| e.value as usize);
        let place = reader.into_iter().find(|&i| returned(&run.history[i])).expect("it returned");
        // The owner takes no step between the reader's invocation and its return.
        assert!(
            matches!(run.history[place - 1], Step::Invoke(1, _)),
            "delayed by the owner at {a}"
        );
    }
}

/// The enumeration itself: two threads that load and store a counter.
#[test]
fn every_schedule_is_run_once() {
    let finals = |preemptions| {
        let mut found = Vec::new();
        let runs = every(2, preemptions, |schedule| {
            let counter = AtomicU64::new(0);
            let order = Mutex::new(String::new());
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (schedule, counter, order) = (schedule, &counter, &order);
                    scope.spawn(move || {
                        schedule.wait(thread);
                        let _leave = Leaving(&**schedule, thread);
                        schedule.yield_point(thread as u16 + 1);
                        order.lock().push_str(["a", "b"][thread]);
                        let old = counter.load(SeqCst);
                        schedule.yield_point(thread as u16 + 1);
                        order.lock().push_str(["A", "B"][thread]);
                        counter.store(old + 1, SeqCst);
                    });
                }
            });
            found.push((order.into_inner(), counter.into_inner()));
        });
        assert_eq!(runs, found.len());
        found.sort();
        found
    };
    let one_after_the_other = finals(0);
    assert_eq!(one_after_the_other, [("aAbB".into(), 2), ("bBaA".into(), 2)]);
    let all = finals(4);
    let mut orders: Vec<&str> = all.iter().map(|(order, _)| order.as_str()).collect();
    orders.dedup();
    assert_eq!(orders, ["aAbB", "abAB", "abBA", "bBaA", "baAB", "baBA"]);
    assert!(all.iter().any(|(_, count)| *count == 1), "an update is lost");
}

#[test]
fn two_threads_and_two_words_in_every_schedule_of_two_preemptions() {
    let runs = every_schedule(&[flips(0b001_001, 2), flips(0b001_001, 1)], 2);
    assert!(runs > 1000, "{runs}");
}

#[test]
fn three_threads_and_three_words_in_every_schedule_of_one_preemption() {
    let plans = [flips(0b011_001, 1), flips(0b110_001, 1), flips(0b101_000, 1)];
    let runs = every_schedule(&plans, 1);
    assert!(runs > 300, "{runs}");
}

#[test]
fn a_reader_and_an_operation_that_may_fail_in_every_schedule_of_two_preemptions() {
    let plans = [flips(0b001_001, 1), vec![Op::Cas(0b001_001, 0)], vec![Op::Read(3)]];
    let runs = every_schedule(&plans, 2);
    assert!(runs > 1000, "{runs}");
}
