//! Measures steps in chunks, on subjects in turns; figures are medians of chunks.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use crate::counters::{self, Counters};
use crate::error::BenchError;
use crate::job::Job;
use crate::phase::{Phase, Step};
use crate::pinned::Pinned;
use crate::probe::{Latency, Sampler, Span, Ticks, mean_and_deviation, windows};
use crate::subject::{BenchSubject, Fault};
use crate::workload::{CHUNKS, Chunk, Workload};

/// The length in seconds of the windows in which throughput is measured over time.
pub const WINDOW: f64 = 0.1;

/// The time on the slowest subject after which a chunk is not made longer for the sake of the fastest.
pub const LONGEST: Duration = Duration::from_secs(1);
/// The most operations in a part of a chunk that only reads.
const LARGEST: f64 = 1_000_000.0;

/// The settings of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The number of threads that share the operations.
    pub threads: usize,
    /// `true` to keep each thread on a core of its own.
    pub pin: bool,
    /// The minimum seconds of each step, in as many chunks as necessary; `None`: five chunks. What such a step
    /// adds and removes is undone outside the timing, so that later steps meet the records that they would meet
    /// otherwise: after each part, or, if it removes none, when it has added as many records as were loaded,
    /// and at its end. For removal leaves room in the nodes of a tree, and what is added to them then splits none.
    pub seconds: Option<f64>,
    /// The minimum time of each chunk on the fastest subject: until then more operations are run, and what
    /// these add and remove is undone likewise. A chunk that takes [`LONGEST`] on the slowest subject ends.
    pub chunk: Duration,
    /// The fraction of calls that are timed one by one, in a second round of each step; `None`: no such
    /// round.
    pub sample: Option<f64>,
    /// `true` to let an additional thread do the background work of subjects that have any. A chunk ends
    /// when that work is done too.
    pub background: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let chunk = Duration::ZERO;
        Self { threads: 1, pin: false, seconds: None, chunk, sample: None, background: true }
    }
}

/// The result of one step on one subject.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// The step.
    pub step: Step,
    /// The number of records that existed when it began.
    pub live: u64,
    /// The number of operations of all chunks.
    pub ops: u64,
    /// The time of all chunks, by the slowest thread.
    pub time: Duration,
    /// Million operations per second of each chunk, in order.
    pub chunks: Vec<f64>,
    /// Million operations per second in each window of [`WINDOW`] seconds of its running time.
    pub windows: Vec<f64>,
    /// Times of single calls.
    pub latency: Option<Latency>,
    /// Hardware counters; `None` if the system grants none.
    pub counters: Option<Counters>,
    spans: Vec<Span>,
    /// The operations and the time of the present chunk.
    present: (u64, Duration),
}

impl StepResult {
    fn new(step: &Step, live: u64) -> Self {
        Self {
            step: step.clone(),
            live,
            present: (0, Duration::ZERO),
            ops: 0,
            time: Duration::ZERO,
            chunks: Vec::new(),
            windows: Vec::new(),
            latency: None,
            counters: None,
            spans: Vec::new(),
        }
    }

    /// Returns the median of the chunks, in million operations per second.
    #[must_use]
    pub fn mops(&self) -> f64 {
        let mut sorted = self.chunks.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the standard deviation of the windows, in million operations per second.
    #[must_use]
    pub fn window_stddev(&self) -> f64 {
        mean_and_deviation(&self.windows).1
    }

    #[allow(clippy::cast_precision_loss, reason = "operation counts are far below 2^52")]
    fn add(&mut self, ops: u64, ran: Ran) {
        let base = self.time.as_secs_f64();
        self.ops += ops;
        self.time += ran.time;
        self.present.0 += ops;
        self.present.1 += ran.time;
        let spans = ran.spans.into_iter();
        self.spans.extend(spans.map(|s| Span { from: base + s.from, to: base + s.to, ops: s.ops }));
        if let Some(counters) = ran.counters {
            *self.counters.get_or_insert_default() += counters;
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "operation counts are far below 2^52")]
    fn end_chunk(&mut self) {
        let (ops, time) = std::mem::take(&mut self.present);
        if ops > 0 {
            self.chunks.push(ops as f64 / time.as_secs_f64().max(1e-9) / 1e6);
        }
    }

    /// Computes the result when all chunks have run.
    fn close(&mut self) {
        let per_second = windows(&self.spans, self.time.as_secs_f64(), WINDOW);
        self.windows = per_second.into_iter().map(|ops| ops / 1e6).collect();
        self.spans = Vec::new();
    }
}

/// The results of all steps on one subject.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The subject's name.
    pub name: String,
    /// The number of threads that ran its operations.
    pub threads: usize,
    /// `true` if an additional thread did its background work.
    pub background: bool,
    /// The steps, in order, without those that it does not support.
    pub steps: Vec<StepResult>,
}

impl Measured {
    /// Returns the result of a phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&StepResult> {
        self.steps.iter().find(|result| result.step.phase() == Some(phase))
    }
}

/// Receives progress, outside the timing.
pub trait Watch {
    /// Called before a chunk runs on a subject.
    fn chunk(&mut self, step: &Step, subject: usize, chunk: usize);

    /// Called after a chunk ran on a subject.
    fn chunk_done(&mut self, step: &Step, subject: usize, chunk: usize) {
        let _ = (step, subject, chunk);
    }
}

impl Watch for () {
    fn chunk(&mut self, _: &Step, _: usize, _: usize) {}
}

/// Runs `steps` on all subjects, each chunk on every subject in turn.
///
/// A different subject begins each chunk. A subject that is not concurrent runs on one thread, whatever
/// [`Settings::threads`] is; a subject that does not support a step skips it.
///
/// # Errors
/// The error of an operation, and [`BenchError::Wrong`] if operations had wrong results, which would make
/// the figures meaningless.
pub fn measure<K: Send + Sync, V: Send + Sync>(
    subjects: &[&dyn BenchSubject<K, V>],
    work: &mut Workload<K, V>,
    steps: &[Step],
    settings: &Settings,
    watch: &mut dyn Watch,
) -> Result<Vec<Measured>, BenchError> {
    let threads = settings.threads.max(1);
    let mut results: Vec<Measured> = subjects
        .iter()
        .map(|subject| Measured {
            name: subject.name().into(),
            threads: if subject.concurrent() { threads } else { 1 },
            background: settings.background && subject.has_background(),
            steps: Vec::new(),
        })
        .collect();
    for step in steps {
        let able: Vec<usize> = (0..subjects.len())
            .filter(|at| step.shares().iter().all(|(phase, _)| subjects[*at].can(*phase)))
            .collect();
        let mut rows: Vec<StepResult> =
            able.iter().map(|_| StepResult::new(step, work.live())).collect();
        let can_undo = able
            .iter()
            .all(|at| [Phase::Insert, Phase::Delete].iter().all(|phase| subjects[*at].can(*phase)));
        let (number, turns, heap) = (0, 0, 0);
        let mut round =
            Round { subjects, step, settings, able: &able, can_undo, watch, number, turns, heap };
        while round.goes_on(&rows) && round.throughput(work, &mut rows)? {}
        if let Some(rate) = settings.sample.filter(|_| step.phase() != Some(Phase::Load)) {
            round.latency(work, rate, &mut rows)?;
        }
        round.take_back(work)?;
        for (at, mut row) in able.into_iter().zip(rows) {
            row.close();
            results[at].steps.push(row);
        }
    }
    Ok(results)
}

/// The rounds of one step: in each round, every subject runs the same chunk.
struct Round<'r, K, V> {
    subjects: &'r [&'r dyn BenchSubject<K, V>],
    step: &'r Step,
    settings: &'r Settings,
    /// The subjects that support these operations.
    able: &'r [usize],
    /// `true` if all of them can undo what they add and remove.
    can_undo: bool,
    watch: &'r mut dyn Watch,
    /// The number of chunks so far.
    number: usize,
    /// The number of parts of chunks so far.
    turns: usize,
    /// The number of records that were added last, and are to be removed again.
    heap: u64,
}

impl<K: Send + Sync, V: Send + Sync> Round<'_, K, V> {
    fn goes_on(&self, rows: &[StepResult]) -> bool {
        let load = self.step.phase() == Some(Phase::Load);
        match self.settings.seconds.filter(|_| !load) {
            None => self.number < CHUNKS,
            // Records would run out.
            Some(_) if self.changes() && !self.can_undo => self.number < CHUNKS,
            Some(seconds) => rows.iter().any(|row| row.time.as_secs_f64() < seconds),
        }
    }

    /// Returns `true` if the step changes the number of records.
    fn changes(&self) -> bool {
        self.removes() || self.step.shares().iter().any(|(phase, _)| phase.adds())
    }

    /// Returns `true` if the step removes records.
    fn removes(&self) -> bool {
        self.step.share(Phase::Delete) > 0.0
    }

    /// Runs a chunk to measure throughput; returns `false` if no operation is left.
    fn throughput(
        &mut self,
        work: &mut Workload<K, V>,
        rows: &mut [StepResult],
    ) -> Result<bool, BenchError> {
        let planned = work.ops(self.step) / CHUNKS as u64 + 1;
        self.leave_keys(work, planned)?;
        let chunk = work.chunk(self.step, self.number, self.settings.threads);
        let ops = chunk.ops();
        let load = self.step.phase() == Some(Phase::Load);
        let undone = self.settings.seconds.is_some() && self.can_undo && !load;
        self.part(work, &chunk, undone, true, rows)?;
        while let Some(wanted) = self.missing(ops, rows) {
            self.leave_keys(work, wanted)?;
            let more = work.more(self.step, wanted, self.settings.threads);
            if more.ops() == 0 {
                break;
            }
            self.part(work, &more, true, false, rows)?;
        }
        rows.iter_mut().for_each(StepResult::end_chunk);
        self.number += 1;
        Ok(ops > 0)
    }

    /// Runs a part of a chunk on every subject; if asked to, undoes it.
    fn part(
        &mut self,
        work: &mut Workload<K, V>,
        chunk: &Chunk<K, V>,
        undone: bool,
        watched: bool,
        rows: &mut [StepResult],
    ) -> Result<(), BenchError> {
        let ops = chunk.ops();
        for turn in 0..self.able.len() {
            let row = (turn + self.turns) % self.able.len();
            let who = self.able[row];
            if watched {
                self.watch.chunk(self.step, who, self.number);
            }
            if ops > 0 {
                let ran = self.run(who, chunk, |subject, job| {
                    let mut ticks = Ticks::begin(job.len());
                    Ok((subject.run(job, &mut ticks)?, ticks))
                })?;
                rows[row].add(ops, ran.into());
            }
            if watched {
                self.watch.chunk_done(self.step, who, self.number);
            }
        }
        self.turns += 1;
        if !undone || !self.changes() {
            return Ok(());
        }
        if self.removes() {
            let [removal, addition] = work.undo(chunk, self.settings.threads);
            self.untimed(&removal)?;
            return self.untimed(&addition);
        }
        self.heap += chunk.added();
        if self.heap >= work.records() { self.take_back(work) } else { Ok(()) }
    }

    /// Removes what is to be removed again if fewer keys than `wanted` are left, as of a file.
    fn leave_keys(&mut self, work: &mut Workload<K, V>, wanted: u64) -> Result<(), BenchError> {
        if work.unused() < wanted { self.take_back(work) } else { Ok(()) }
    }

    /// Removes what was added last and is to be removed again.
    fn take_back(&mut self, work: &mut Workload<K, V>) -> Result<(), BenchError> {
        let count = std::mem::take(&mut self.heap);
        self.untimed(&work.take_back(count, self.settings.threads))
    }

    /// Runs a chunk on every subject, outside the timing.
    fn untimed(&self, chunk: &Chunk<K, V>) -> Result<(), BenchError> {
        for &who in self.able.iter().filter(|_| chunk.ops() > 0) {
            self.run(who, chunk, |subject, job| {
                Ok((subject.run(job, &mut Ticks::begin(job.len()))?, ()))
            })?;
        }
        Ok(())
    }

    /// Returns how many operations are missing until the present chunk, planned with `planned` operations, is
    /// long enough; `None` if it is, or should not get longer.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "operation counts are far below 2^52"
    )]
    fn missing(&self, planned: u64, rows: &[StepResult]) -> Option<u64> {
        let times = || rows.iter().map(|row| row.present.1);
        let (fastest, slowest) = (times().min()?, times().max()?);
        let ended = fastest >= self.settings.chunk || slowest >= LONGEST;
        let changes = self.changes();
        if ended
            || planned == 0
            || self.step.phase() == Some(Phase::Load)
            || changes && !self.can_undo
        {
            return None;
        }
        let done = rows.first()?.present.0 as f64;
        let until = |time: Duration, so_far: Duration| {
            done * (time.as_secs_f64() / so_far.as_secs_f64().max(1e-9) - 1.0)
        };
        let wanted = until(self.settings.chunk, fastest).min(until(LONGEST, slowest));
        let most = if changes { planned as f64 } else { LARGEST.max(planned as f64) };
        // Not in tiny parts: to start threads takes time.
        Some(wanted.clamp((planned as f64 / 4.0).max(1.0), most) as u64)
    }

    /// Runs the same number of chunks again, and times single calls.
    fn latency(
        &mut self,
        work: &mut Workload<K, V>,
        rate: f64,
        rows: &mut [StepResult],
    ) -> Result<(), BenchError> {
        let mut samplers: Vec<Sampler> = rows.iter().map(|_| Sampler::new(rate, 0)).collect();
        for number in 0..CHUNKS {
            self.leave_keys(work, work.ops(self.step) / CHUNKS as u64 + 1)?;
            let chunk = work.chunk(self.step, number, self.settings.threads);
            for turn in 0..self.able.len() {
                let row = (turn + number) % self.able.len();
                let who = self.able[row];
                self.watch.chunk(self.step, who, number);
                let ran = self.run(who, &chunk, |subject, job| {
                    let seed = (number * 64 + turn) as u64;
                    let mut sampler = Sampler::new(rate, seed);
                    Ok((subject.run_sampled(job, &mut sampler)?, sampler))
                })?;
                for thread in ran {
                    samplers[row].add(&thread.probe);
                }
            }
        }
        for (row, sampler) in rows.iter_mut().zip(samplers) {
            row.latency = sampler.latency();
        }
        Ok(())
    }

    /// Runs a chunk on a subject, with the same closure on each thread.
    fn run<P: Send>(
        &self,
        who: usize,
        chunk: &Chunk<K, V>,
        job: impl Fn(&dyn BenchSubject<K, V>, Job<'_, K, V>) -> Result<(u64, P), Fault> + Sync,
    ) -> Result<Vec<Thread<P>>, BenchError> {
        let subject = self.subjects[who];
        let index = || subject.name().to_owned();
        let jobs = || {
            if subject.concurrent() && chunk.jobs().len() > 1 {
                on_threads(chunk, self.settings.pin, |part| job(subject, part))
            } else {
                chunk.jobs().map(|part| timed(|| job(subject, part))).collect()
            }
        };
        let threads = if self.settings.background && subject.has_background() {
            // On a core of its own if there is one, otherwise on any.
            let core = chunk.jobs().len();
            let core = (self.settings.pin && Pinned::is_possible(core)).then_some(core);
            beside(|stop| subject.background(stop), core, jobs)
        } else {
            jobs()
        };
        let threads: Vec<Thread<P>> =
            threads.map_err(|source| BenchError::Index { index: index(), source })?;
        let (ops, done) = (chunk.ops(), threads.iter().map(|thread| thread.done).sum());
        if done == ops {
            Ok(threads)
        } else {
            let step = self.step.name().to_owned();
            Err(BenchError::Wrong { index: index(), step, ops, done })
        }
    }
}

/// The result of one thread's part of a chunk.
struct Thread<P> {
    done: u64,
    probe: P,
    began: Instant,
    ended: Instant,
    counters: Option<Counters>,
}

fn timed<P>(job: impl FnOnce() -> Result<(u64, P), Fault>) -> Result<Thread<P>, Fault> {
    let ((began, outcome, ended), counters) = counters::around(|| {
        let began = Instant::now();
        let outcome = job();
        (began, outcome, Instant::now())
    });
    let (done, probe) = outcome?;
    Ok(Thread { done, probe, began, ended, counters })
}

/// Runs jobs while an additional thread does the background work; returns when that has ended.
fn beside<P>(
    work: impl FnOnce(&AtomicBool) -> Result<(), Fault> + Send,
    core: Option<usize>,
    jobs: impl FnOnce() -> Result<Vec<Thread<P>>, Fault>,
) -> Result<Vec<Thread<P>>, Fault> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let worker = threads.spawn(|| {
            let _pinned = core.map(Pinned::to_core);
            work(&stop)
        });
        let ran = jobs();
        stop.store(true, Release);
        worker.thread().unpark();
        worker.join().expect("the subject does not panic")?;
        let mut ran = ran?;
        if let Some(last) = ran.iter_mut().max_by_key(|thread| thread.ended) {
            last.ended = Instant::now();
        }
        Ok(ran)
    })
}

fn on_threads<K: Send + Sync, V: Send + Sync, P: Send>(
    chunk: &Chunk<K, V>,
    pin: bool,
    job: impl Fn(Job<'_, K, V>) -> Result<(u64, P), Fault> + Sync,
) -> Result<Vec<Thread<P>>, Fault> {
    let start = Barrier::new(chunk.jobs().len());
    std::thread::scope(|threads| {
        let handles: Vec<_> = chunk
            .jobs()
            .enumerate()
            .map(|(number, part)| {
                let (start, job) = (&start, &job);
                threads.spawn(move || {
                    let _pinned = pin.then(|| Pinned::to_core(number));
                    start.wait();
                    timed(|| job(part))
                })
            })
            .collect();
        let joined = handles.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|outcome| outcome.expect("the subject does not panic")).collect()
    })
}

/// The result of a chunk that measured throughput.
struct Ran {
    /// The time from the first thread's start to the last one's end.
    time: Duration,
    spans: Vec<Span>,
    counters: Option<Counters>,
}

impl From<Vec<Thread<Ticks>>> for Ran {
    fn from(threads: Vec<Thread<Ticks>>) -> Self {
        let began = threads.iter().map(|thread| thread.began).min();
        let ended = threads.iter().map(|thread| thread.ended).max();
        let Some((began, ended)) = began.zip(ended) else {
            return Self { time: Duration::ZERO, spans: Vec::new(), counters: None };
        };
        let spans = threads.iter().flat_map(|thread| thread.probe.spans(began)).collect();
        let counters = threads.iter().map(|thread| thread.counters);
        let counters = counters.reduce(|sum, one| {
            let (mut sum, one) = sum.zip(one)?;
            sum += one;
            Some(sum)
        });
        Self { time: ended - began, spans, counters: counters.flatten() }
    }
}
