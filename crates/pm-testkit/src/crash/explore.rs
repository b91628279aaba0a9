//! The explorer: crash points, images, and their recoveries.
//!
//! A run is recorded once. The explorer then walks its trace with the memory model. At each crash point it
//! derives the images, skips those already seen with the same history, and for the others opens the
//! structure, compares it with the oracle, audits the allocator and continues to use the structure. That is a
//! run as well, with a trace of its own: a share of these (every new kind of recovery, and a sample of the
//! rest) is walked and crashed in the same way.
//!
//! At some crash points the process dies *alone*: the next process finds the contents of the caches, durable
//! or not, and opens them. Its run is walked too, and the power fails in it, or after it: what it only read
//! may vanish, what it made durable stays. This exposes an opening that depends on a word that is not
//! durable.
//!
//! Everything happens in one [`Space`]. Applying an image, recovering it and continuing are taken back by
//! undo logs, so a state costs the words it touches.

use std::collections::{BTreeSet, HashMap, HashSet};

use pmindex_core::trace::{Event, EventKind, Space};

use super::config::Config;
use super::erased::{AnyOp, AnySubject, AnyValue};
use super::failure::Failure;
use super::image::{Coverage, Images};
use super::memory::Memory;
use super::oracle::{Allowed, AnyOracle};
use super::report::Report;
use super::rng::{Rng, mix};
use super::run::{Plan, Recording, Step, Turns};
use super::site::{Site, SiteTable, StepKind};

/// A note in the trace: from here on crashes are not explored.
pub(crate) const PAUSE: u64 = u64::MAX;
/// A note in the trace: from here on they are explored again.
pub(crate) const RESUME: u64 = u64::MAX - 1;

/// The run, the recovery from a crash of it, and the one after that (if the process of the first died alone).
const LEVELS: usize = 3;

/// The state of one level of nesting: 0 is the run, 1 the recovery from a crash of it.
#[derive(Debug)]
struct Level {
    memory: Memory,
    images: Images,
    overwritten: Vec<(u32, u64)>,
}

impl Level {
    fn new() -> Self {
        Self { memory: Memory::new(), images: Images::default(), overwritten: Vec::new() }
    }
}

/// The state in which a walk begins.
#[derive(Clone, Copy)]
enum Begins {
    /// Everything in the space is durable; the number identifies it.
    Durable(u64),
    /// The level's memory is set up: the caches hold what a dead process left.
    Left,
}

/// A position in a run that is being walked.
struct RunPosition<'a> {
    depth: usize,
    begins: Begins,
    trace: &'a [Event],
    history: &'a [Step],
    oracle: AnyOracle,
    allowed: Option<Allowed<AnyValue>>,
    /// Identifies the history so far.
    past: u64,
    /// The number of states after which the walk ends.
    budget: u64,
    every_store: bool,
    /// One fence or flush in this many is a crash point; the ends of operations always are.
    thin: usize,
    /// Between [`PAUSE`] and [`RESUME`].
    paused: bool,
    /// Only the ends of operations are crash points, with no unfenced store and with all of them: the
    /// schedule is what matters.
    brief: bool,
}

/// A run of a directed plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directed {
    /// The number of such runs whose schedules are seeded; or, if this schedule is not, the largest number of
    /// those that are left.
    pub(crate) runs: u64,
    /// The schedule, if the seed does not decide it.
    pub(crate) turns: Option<Turns>,
}

/// Explores runs of one subject in one configuration.
#[derive(Debug)]
pub(crate) struct AnyExplorer {
    subject: AnySubject,
    config: Config,
    space: Space,
    levels: Vec<Option<Level>>,
    seen: HashSet<u64>,
    recoveries: HashMap<u64, u32>,
    pub(crate) sites: SiteTable,
    report: Report,
    rng: Rng,
    tail: Vec<AnyOp>,
    /// The number of states in creation after which no more of this trial are explored.
    creation_budget: u64,
    /// Set if the current plan is a directed one.
    directed: Option<Directed>,
}

impl AnyExplorer {
    /// Makes an explorer that has seen nothing.
    #[must_use]
    pub(crate) fn new(subject: AnySubject, config: Config) -> Self {
        let geometry = subject.geometry();
        let space = Space::new(geometry.len, geometry.capacity);
        space.set_slots(config.slots);
        Self {
            subject,
            space,
            levels: (0..LEVELS).map(|_| Some(Level::new())).collect(),
            seen: HashSet::new(),
            recoveries: HashMap::new(),
            sites: SiteTable::default(),
            report: Report::new(subject.name(), &config),
            rng: Rng::new(config.seed),
            tail: Vec::new(),
            creation_budget: 0,
            directed: None,
            config,
        }
    }

    /// Returns the report of the exploration so far.
    #[must_use]
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn into_report(mut self) -> Report {
        self.report.finish(&self.sites, self.subject);
        self.report
    }

    /// Runs a plan and explores its crash states, until `states` were checked in all; returns the number of
    /// each thread's handover points.
    ///
    /// # Errors
    /// The first crash state, or run, that breaks the contract.
    pub(crate) fn explore(
        &mut self,
        plan: &Plan<AnyOp>,
        seed: u64,
    ) -> Result<Vec<u64>, Box<Failure>> {
        self.rng = Rng::new(seed);
        self.tail.clone_from(&plan.tail);
        self.report.trials += 1;
        let seeded = Turns::Seeded(self.rng.next_u64());
        let directed = self.directed.and_then(|directed| directed.turns);
        let turns = directed.unwrap_or(seeded);
        let run = Recording::of(self.subject, &self.space, plan, turns, self.config.step_limit);
        if let Some(fault) = &run.fault {
            return Err(self.failure(plan, seed, &run).without_crash(fault));
        }
        let operations: usize = plan.threads.iter().map(Vec::len).sum();
        let mut walk = RunPosition {
            depth: 0,
            begins: Begins::Durable(0),
            trace: &run.trace,
            history: &run.history,
            oracle: AnyOracle::uncreated(self.subject, plan.threads.len()),
            allowed: None,
            past: mix(self.config.threads as u64),
            budget: self.trial_budget(),
            every_store: operations <= 4 || seed.is_multiple_of(4),
            thin: if seed.is_multiple_of(2) { 1 } else { 3 },
            paused: false,
            brief: directed.is_some(),
        };
        let from = if self.report.states < self.config.states {
            let start = self.start_of_crashes(&run, seed);
            self.steer(&run, start)
        } else {
            usize::MAX // only steps that no crash was explored at
        };
        match self.walk(&mut walk, from) {
            Ok(()) => Ok(run.handovers),
            Err(broken) => Err(self.failure(plan, seed, &run).broken(broken)),
        }
    }

    /// Returns the steps that a plan executes, creation and setup included.
    pub(crate) fn scout(&mut self, plan: &Plan<AnyOp>, seed: u64) -> BTreeSet<Site> {
        self.scouted(plan, seed).trace.iter().filter_map(Site::of).collect()
    }

    /// Returns the steps that a plan executes after its setup.
    pub(crate) fn scout_after_setup(&mut self, plan: &Plan<AnyOp>, seed: u64) -> BTreeSet<Site> {
        let run = self.scouted(plan, seed);
        let ready = run.ready().unwrap_or(run.trace.len());
        run.trace[ready..].iter().filter_map(Site::of).collect()
    }

    /// Runs a plan, and returns a number that identifies what the last operation of its setup did to the medium.
    pub(crate) fn effect(&mut self, plan: &Plan<AnyOp>, seed: u64) -> u64 {
        let run = self.scouted(plan, seed);
        let end = run.ready().unwrap_or(run.trace.len());
        let is_note = |event: &Event| event.kind == EventKind::Note;
        let invokes = |event: &Event| {
            let step = run.history.get(event.value as usize);
            is_note(event) && matches!(step, Some(Step::Invoke { .. }))
        };
        let begin = run.trace[..end].iter().rposition(invokes).unwrap_or(0);
        run.trace[begin..end].iter().filter(|event| !is_note(event)).fold(0, |effect, event| {
            let site = std::ptr::from_ref(event.site).addr() as u64;
            let what = u64::from(event.word) << 8 | event.kind as u64;
            mix(mix(mix(effect ^ site) ^ what) ^ event.value)
        })
    }

    fn scouted(&mut self, plan: &Plan<AnyOp>, seed: u64) -> Recording {
        let turns = Turns::Seeded(Rng::new(seed).next_u64());
        Recording::of(self.subject, &self.space, plan, turns, self.config.step_limit)
    }

    /// Runs a plan that executes the mutated step, and explores the crash states that the mutant may
    /// add: up to `states`. The plan's creation and setup count only if `all_of_it`.
    ///
    /// # Errors
    /// As [`explore`](Self::explore).
    pub(crate) fn explore_mutant(
        &mut self,
        plan: &Plan<AnyOp>,
        seed: u64,
        states: u64,
        all_of_it: bool,
    ) -> Result<(), Box<Failure>> {
        self.explore_from(plan, seed, states, |explorer, run| {
            let site = explorer.config.mutation.map(|mutation| mutation.site);
            let begin = if all_of_it { 0 } else { run.ready()? };
            let hits: Vec<usize> =
                (begin..run.trace.len()).filter(|&i| Site::of(&run.trace[i]) == site).collect();
            let hit = *hits.get(explorer.rng.below(hits.len().max(1)))?;
            Some(first_difference(&run.trace, hit))
        })
    }

    /// Runs a plan and explores crash states from anywhere after its setup on, up to `states`: for a
    /// mutated step that recoveries execute.
    ///
    /// # Errors
    /// As [`explore`](Self::explore).
    pub(crate) fn explore_recoveries(
        &mut self,
        plan: &Plan<AnyOp>,
        seed: u64,
        states: u64,
    ) -> Result<(), Box<Failure>> {
        self.explore_from(plan, seed, states, |explorer, run| {
            let ready = run.ready()?;
            Some(ready + 1 + explorer.rng.below(run.trace.len() - ready))
        })
    }

    /// Runs a plan and explores up to `states` crash states from the event on that `from` picks.
    fn explore_from(
        &mut self,
        plan: &Plan<AnyOp>,
        seed: u64,
        states: u64,
        from: impl FnOnce(&mut Self, &Recording) -> Option<usize>,
    ) -> Result<(), Box<Failure>> {
        self.rng = Rng::new(seed);
        self.tail.clone_from(&plan.tail);
        self.report.trials += 1;
        let turns = Turns::Seeded(self.rng.next_u64());
        let run = Recording::of(self.subject, &self.space, plan, turns, self.config.step_limit);
        if let Some(fault) = &run.fault {
            return Err(self.failure(plan, seed, &run).without_crash(fault));
        }
        let Some(from) = from(self, &run) else { return Ok(()) };
        self.creation_budget = self.report.in_creation + states / 2;
        let mut walk = RunPosition {
            depth: 0,
            begins: Begins::Durable(0),
            trace: &run.trace,
            history: &run.history,
            oracle: AnyOracle::uncreated(self.subject, plan.threads.len()),
            allowed: None,
            past: mix(self.config.threads as u64),
            budget: self.report.states + states,
            every_store: true,
            thin: 1,
            paused: false,
            brief: false,
        };
        let result = self.walk(&mut walk, from);
        result.map_err(|broken| self.failure(plan, seed, &run).broken(broken))
    }

    /// As [`explore`](Self::explore), for a run of a directed plan: it gets fewer states, and all directed
    /// plans together about half.
    pub(crate) fn explore_directed(
        &mut self,
        plan: &Plan<AnyOp>,
        seed: u64,
        directed: Directed,
    ) -> Result<Vec<u64>, Box<Failure>> {
        self.directed = Some(directed);
        self.report.preempted += u64::from(directed.turns.is_some());
        let result = self.explore(plan, seed);
        self.directed = None;
        result
    }

    /// Returns the number of states after which the current trial ends: a share of all, so that there are
    /// many trials.
    fn trial_budget(&self) -> u64 {
        let (done, wanted) = (self.report.states, self.config.states);
        let share = done
            + match (self.directed, self.config.mutation) {
                (Some(Directed { runs, turns: Some(_) }), _) => {
                    ((wanted / 2).saturating_sub(done) / runs).clamp(8, 64) // there are fewer
                }
                (Some(Directed { runs, .. }), None) => wanted / (2 * runs).max(64),
                (Some(_), Some(_)) => wanted / 20, // directed plans are there for the mutants
                (None, _) => (wanted / 12).max(400),
            };
        if done < wanted { share.min(wanted) } else { share }
    }

    fn failure(&self, plan: &Plan<AnyOp>, seed: u64, run: &Recording) -> Failure {
        let ready = run.history.iter().position(|s| matches!(s, Step::Ready)).unwrap_or(0);
        let history = run.history[ready..].iter().map(ToString::to_string).collect();
        Failure { history, ..Failure::new(self.subject.name(), &self.config, seed, plan) }
    }

    /// Walks a trace, crashing at its crash points from event `from` on.
    fn walk(&mut self, walk: &mut RunPosition<'_>, from: usize) -> Result<(), Broken> {
        let Some(mut level) = self.levels[walk.depth].take() else { return Ok(()) };
        if let Begins::Durable(hash) = walk.begins {
            let (kind, mutation) = (self.config.persistency, self.config.mutation);
            level.memory.begin(&self.space, self.words(), kind, mutation, hash);
        }
        let mut result = Ok(());
        // The last step worth continuing to when the budget is spent.
        let mut until = None;
        for i in 0..=walk.trace.len() {
            let event = walk.trace.get(i);
            // The first crash at a new step is always explored.
            let new = event.is_some_and(|event| self.is_new(event));
            let spent = until.is_some();
            // A run of several threads is always crashed at its end.
            let last = event.is_none() && walk.depth == 0 && self.config.threads > 1;
            let picked = !spent && i >= from && self.crashes_at(walk, event);
            if picked || !walk.paused && (new || last) {
                result = self.crash_point(walk, &mut level, i);
                if result.is_err() {
                    break;
                }
                if !spent && self.report.states >= walk.budget {
                    let new = walk.trace.iter().rposition(|event| self.is_new(event));
                    let concurrent = walk.depth == 0 && self.config.threads > 1;
                    until = Some(if concurrent { Some(walk.trace.len()) } else { new });
                }
            }
            if until.is_some_and(|last| last.is_none_or(|last| last <= i)) {
                break;
            }
            let Some(event) = event else { break };
            if event.kind == EventKind::Note {
                result = walk.step(event).map_err(|what| Broken::at(walk.depth, event, &what));
            } else if let Err(what) = level.memory.apply(&self.space, event) {
                result = Err(Broken::at(walk.depth, event, &what));
            }
            if result.is_err() {
                break;
            }
        }
        level.memory.roll_back(&self.space);
        self.levels[walk.depth] = Some(level);
        result
    }

    /// Words of the space.
    fn words(&self) -> usize {
        self.subject.geometry().capacity / 8
    }

    /// Returns `true` if an event is a step at which no crash was explored yet.
    fn is_new(&mut self, event: &Event) -> bool {
        let number = self.sites.number(event);
        number.is_some_and(|number| !self.report.has_crashed_at(number))
    }

    /// Returns the first event before which crashes are explored: the end of the setup, or in one trial of
    /// four a step within the creation, and in another a step after the setup.
    fn start_of_crashes(&mut self, run: &Recording, seed: u64) -> usize {
        let mut steps = Vec::new();
        let mut paused = false;
        for (i, event) in run.trace.iter().enumerate() {
            match event.kind {
                EventKind::Flush | EventKind::Fence | EventKind::Grow if !paused => steps.push(i),
                EventKind::Note if event.value >= RESUME => paused = event.value == PAUSE,
                EventKind::Note => match run.history[event.value as usize] {
                    Step::Created if seed.is_multiple_of(4) && !steps.is_empty() => {
                        let share = (self.config.states / 40).max(60);
                        self.creation_budget = self.report.in_creation + share;
                        return steps[self.rng.below(steps.len())];
                    }
                    Step::Ready if seed % 4 != 3 => return i + 1,
                    // a trial has a budget: start late now and then, to spend it on later steps
                    Step::Ready => return i + 1 + self.rng.below(run.trace.len() - i),
                    _ => {}
                },
                _ => {}
            }
        }
        0
    }

    /// Returns where a mutant's crashes start: every other time a little before its step.
    fn steer(&mut self, run: &Recording, start: usize) -> usize {
        let Some(mutation) = self.config.mutation else { return start };
        let Some(ready) = run.ready() else { return start };
        let after = run.trace.iter().enumerate().skip(ready);
        let steps: Vec<usize> = after.filter(|(_, e)| mutation.hits(e)).map(|(i, _)| i).collect();
        if steps.is_empty() || self.rng.one_in(2) {
            return start;
        }
        let step = steps[self.rng.below(steps.len())];
        step.saturating_sub(self.rng.below(16)).max(ready + 1)
    }

    /// Returns `true` if a crash before this event is explored.
    fn crashes_at(&mut self, walk: &RunPosition<'_>, event: Option<&Event>) -> bool {
        let in_creation = !walk.oracle.is_created();
        if walk.paused || in_creation && self.report.in_creation >= self.creation_budget {
            return false;
        }
        match event.map(|e| e.kind) {
            None | Some(EventKind::Note | EventKind::Grow | EventKind::WriteBack) => true,
            Some(EventKind::InOrder) => false,
            Some(_) if walk.brief => false,
            Some(EventKind::Fence | EventKind::Flush) => {
                let thin = if in_creation { 3 } else { walk.thin };
                thin == 1 || self.rng.one_in(thin)
            }
            Some(_) => walk.every_store && !in_creation,
        }
    }

    fn crash_point(
        &mut self,
        walk: &mut RunPosition<'_>,
        level: &mut Level,
        i: usize,
    ) -> Result<(), Broken> {
        let is_store = walk.trace.get(i).is_some_and(|event| event.kind.writes());
        let brief = walk.brief || self.config.brief_stores && is_store;
        let (exhaustive, random) = if brief {
            (1, 0)
        } else if walk.depth == 0 {
            (self.config.exhaustive, self.config.random)
        } else {
            (self.config.exhaustive / 4, self.config.random / 4)
        };
        let coverage =
            level.images.derive(&mut level.memory, &self.space, exhaustive, random, &mut self.rng);
        self.report.point(coverage == Coverage::Exhaustive);
        if let Some(number) = walk.trace.get(i).and_then(|event| self.sites.number(event)) {
            self.report.at_step(number, level.images.hashes.len());
        }
        let allowed = match walk.allowed.take() {
            Some(allowed) => allowed,
            None => walk.oracle.allowed(),
        };
        let mut result = Ok(());
        // The images without any unfenced store and with all of them come first.
        let most = if brief { 2 } else { usize::MAX };
        for image in 0..level.images.hashes.len().min(most) {
            let key = level.images.hashes[image] ^ walk.past;
            if !self.seen.insert(key) {
                self.report.duplicates += 1;
                continue;
            }
            if let Err(mut broken) = self.state(walk, &allowed, level, image) {
                broken.outer(
                    walk.depth,
                    walk.trace.get(i),
                    level.images.describe(&level.memory, image),
                );
                result = Err(broken);
                break;
            }
            if self.report.states >= walk.budget {
                break;
            }
        }
        if result.is_ok() && self.kills_at(walk, level) {
            result = self.kill(walk, &allowed, level).map_err(|mut broken| {
                broken.killed(walk.depth, walk.trace.get(i));
                broken
            });
        }
        walk.allowed = Some(allowed);
        result
    }

    /// Returns `true` if the process also dies alone here.
    fn kills_at(&mut self, walk: &RunPosition<'_>, level: &Level) -> bool {
        let every = self.config.kill_every * if walk.depth == 0 { 1 } else { 16 };
        let pending = !level.memory.dirty.is_empty();
        let room = walk.depth + 1 < self.levels.len() && self.report.states < walk.budget;
        pending && room && every > 0 && self.rng.one_in(every)
    }

    /// Explores a death of the process that its caches survive: another one opens them and continues. Then the
    /// power fails, at any point of that.
    fn kill(
        &mut self,
        walk: &RunPosition<'_>,
        allowed: &Allowed<AnyValue>,
        level: &mut Level,
    ) -> Result<(), Broken> {
        self.report.kills += 1;
        level.overwritten.clear();
        level.memory.show_caches(&self.space, &mut level.overwritten);
        let tail = self.some_of_tail();
        let (history, verdict) = Recording::after_crash(
            self.subject,
            &self.space,
            allowed,
            &tail,
            true,
            self.config.step_limit,
        );
        let trace = self.space.with_trace(<[Event]>::to_vec);
        self.space.undo();
        for &(word, old) in level.overwritten.iter().rev() {
            self.space.poke(word as usize, old);
        }
        verdict.map_err(|what| Broken { what, path: Vec::new() })?;
        let words = self.words();
        if let Some(next) = &mut self.levels[walk.depth + 1] {
            next.memory.begin_after(&self.space, words, &level.memory);
        }
        let budget = self.config.killed_states;
        self.walk_recovery(walk, Begins::Left, (&trace, &history), allowed, budget)
    }

    /// Returns one or two operations to continue with.
    fn some_of_tail(&mut self) -> Vec<AnyOp> {
        let at = self.rng.below(self.tail.len().max(1));
        self.tail[at.min(self.tail.len())..(at + 2).min(self.tail.len())].to_vec()
    }

    /// Crashes a recovery, and what followed it, at up to `states` states.
    fn walk_recovery(
        &mut self,
        walk: &RunPosition<'_>,
        begins: Begins,
        (trace, history): (&[Event], &[Step]),
        allowed: &Allowed<AnyValue>,
        states: u64,
    ) -> Result<(), Broken> {
        // The effect of a mutant's step shows right after it, or anywhere up to the end; and the effect of an
        // incomplete recovery shows in a crash of what follows it.
        let mutated = trace.iter().position(|e| self.config.mutation.is_some_and(|m| m.hits(e)));
        let earliest = match self.config.mutation {
            Some(_) => mutated,
            None => trace.iter().position(|event| event.kind == EventKind::Note),
        };
        let later = earliest.filter(|_| self.rng.one_in(2));
        let from = later.map_or(0, |step| step + self.rng.below(trace.len() - step));
        let mut inner = RunPosition {
            depth: walk.depth + 1,
            begins,
            trace,
            history,
            oracle: walk.oracle.after_crash(allowed),
            allowed: None,
            past: walk.past,
            budget: walk.budget.max(self.config.states).min(self.report.states + states),
            every_store: later.is_none(),
            thin: 1,
            paused: false,
            brief: false,
        };
        self.walk(&mut inner, from)
    }

    /// One crash state: recovers image `image` and judges the result.
    fn state(
        &mut self,
        walk: &RunPosition<'_>,
        allowed: &Allowed<AnyValue>,
        level: &mut Level,
        image: usize,
    ) -> Result<(), Broken> {
        self.report.state(walk.depth, allowed.absent);
        level.overwritten.clear();
        level.images.apply(&level.memory, &self.space, image, &mut level.overwritten);
        let tail = self.some_of_tail();
        let (history, verdict) = Recording::after_crash(
            self.subject,
            &self.space,
            allowed,
            &tail,
            true,
            self.config.step_limit,
        );
        let nested = verdict.is_ok()
            && !walk.brief
            && match walk.depth {
                0 => self.worth_nesting(),
                // The recovery of a recovery, too, now and then.
                1 => mix(self.report.states) % (4 * self.config.nest_every as u64) == 1,
                _ => false,
            };
        let trace = if nested { self.space.with_trace(<[Event]>::to_vec) } else { Vec::new() };
        self.space.undo();
        let mut result = verdict.map_err(|what| Broken { what, path: Vec::new() });
        if result.is_ok() && self.subject.used_unseen() && mix(self.report.states).is_multiple_of(8)
        {
            // Once more, and now an operation is the first to read what recovery left.
            let (_, verdict) = Recording::after_crash(
                self.subject,
                &self.space,
                allowed,
                &tail,
                false,
                self.config.step_limit,
            );
            self.space.undo();
            result = verdict.map_err(|what| Broken { what, path: Vec::new() });
        }
        if nested && result.is_ok() {
            let begins = Begins::Durable(level.images.hashes[image]);
            let states = self.config.nested_states;
            result = self.walk_recovery(walk, begins, (&trace, &history), allowed, states);
        }
        for &(word, old) in level.overwritten.iter().rev() {
            self.space.poke(word as usize, old);
        }
        result
    }

    /// Returns `true` if the recovery just recorded is to be crashed as well: the first few of each kind, a sample, and
    /// each that executes a step that is new or that a mutant changes.
    fn worth_nesting(&mut self) -> bool {
        let (sites, report, mutation) = (&mut self.sites, &self.report, self.config.mutation);
        let (kind, writes, new_step, mutated) = self.space.with_trace(|trace| {
            let (mut kind, mut writes, mut new_step, mut mutated) = (0u64, false, false, false);
            for event in trace.iter().take_while(|e| e.kind != EventKind::Note) {
                writes |= event.kind.writes();
                kind = mix(kind ^ std::ptr::from_ref(event.site).addr() as u64);
                let step = sites.number(event);
                new_step |= step.is_some_and(|number| !report.has_crashed_at(number));
                mutated |= mutation.is_some_and(|mutation| mutation.hits(event));
            }
            (kind, writes, new_step, mutated)
        });
        if mutated || (new_step && writes) {
            // The effect of a recovery's step shows in a crash after it; each step gets a crash.
            return true;
        }
        let times = self.recoveries.entry(kind).or_insert(0);
        *times += 1;
        // Recoveries differ in many ways; crashes of them must not crowd out everything else.
        let room = self.report.nested * 5 < self.report.states * 2;
        // The purpose of a directed plan often shows only in a second crash.
        let every = if self.directed.is_some() {
            self.config.nest_every.min(8)
        } else {
            self.config.nest_every
        };
        room && writes && *times <= 2 || self.rng.one_in(every)
    }
}

/// Returns the first event at which a mutant of the step at `hit` may differ from the program: the thread's
/// next fence misses what was not flushed, no earlier event does.
fn first_difference(trace: &[Event], hit: usize) -> usize {
    let step = &trace[hit];
    if Site::of(step).is_none_or(|site| site.kind != StepKind::Flush) {
        return hit;
    }
    let fence = |event: &Event| event.kind == EventKind::Fence && event.thread == step.thread;
    trace[hit..].iter().position(fence).map_or(hit, |after| hit + after)
}

impl RunPosition<'_> {
    fn step(&mut self, note: &Event) -> Result<(), String> {
        if note.value >= RESUME {
            self.paused = note.value == PAUSE;
            return Ok(());
        }
        self.allowed = None;
        let step = &self.history[note.value as usize];
        self.past = mix(self.past ^ fingerprint(step));
        match step {
            Step::Created => self.oracle.created(),
            Step::Ready => {}
            Step::Invoke { thread, op } => self.oracle.invoke(*thread, op),
            Step::Return { thread, ret } => self.oracle.respond(*thread, ret)?,
            Step::Observed { model } => {
                let allowed = self.oracle.allowed().models;
                if !allowed.contains(model) {
                    return Err(format!("observed {model:?}, expected one of {allowed:?}"));
                }
                self.oracle = self.oracle.restarted(model);
            }
        }
        Ok(())
    }
}

/// Where and how the contract was broken, innermost crash first.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) what: String,
    pub(crate) path: Vec<String>,
}

impl Broken {
    fn at(depth: usize, event: &Event, what: &str) -> Self {
        let what = format!("{what} (run {depth}, at {:?} {})", event.kind, event.site);
        Self { what, path: Vec::new() }
    }

    fn killed(&mut self, depth: usize, event: Option<&Event>) {
        let run = if depth == 0 { "the run" } else { "recovery and what followed" };
        let point = event.map_or("the end".into(), |e| format!("{:?} at {}", e.kind, e.site));
        self.path.push(format!("{run} killed before {point}; its caches lived on"));
    }

    fn outer(&mut self, depth: usize, event: Option<&Event>, image: Vec<String>) {
        let run = if depth == 0 { "the run" } else { "recovery and what followed" };
        let point = event.map_or("at the end".into(), |e| {
            format!("before {:?} of word {:#x} at {}", e.kind, u64::from(e.word) * 8, e.site)
        });
        self.path.extend(image.into_iter().map(|line| format!("  {line}")));
        self.path.push(format!("crash of {run} {point}:"));
    }
}

fn fingerprint(step: &Step) -> u64 {
    let text = match step {
        Step::Created => return 1,
        Step::Ready => return 2,
        Step::Invoke { thread, op } => format!("{thread}{op:?}"),
        Step::Return { thread, ret } => format!("{thread}={ret:?}"),
        Step::Observed { model } => format!("{model:?}"),
    };
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
