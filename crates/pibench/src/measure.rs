//! Measuring: phases in chunks, subjects in turns, medians of chunks.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use pmindex_index::IndexError;

use crate::error::BenchError;
use crate::phase::Phase;
use crate::subject::Subject;
use crate::workload::{CHUNKS, Chunk, Workload};

/// One phase of one subject.
#[derive(Clone, Debug)]
pub struct PhaseResult {
    /// Which.
    pub phase: Phase,
    /// Operations in all chunks.
    pub ops: u64,
    /// Time of all chunks, the clock of the slowest thread.
    pub time: Duration,
    /// Million operations a second of each chunk, in the order they ran.
    pub chunks: Vec<f64>,
}

impl PhaseResult {
    /// Million operations a second: the median of the chunks.
    #[must_use]
    pub fn mops(&self) -> f64 {
        let mut sorted = self.chunks.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }
}

/// All phases of one subject.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The subject's name.
    pub name: String,
    /// Threads that ran its operations.
    pub threads: usize,
    /// The phases, in order.
    pub phases: Vec<PhaseResult>,
}

impl Measured {
    /// The result of one phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseResult> {
        self.phases.iter().find(|result| result.phase == phase)
    }
}

/// Hears of progress, outside the timing.
pub trait Watch {
    /// A chunk is about to run on a subject.
    fn chunk(&mut self, phase: Phase, subject: usize, chunk: usize);

    /// A chunk ran on a subject.
    fn chunk_done(&mut self, phase: Phase, subject: usize, chunk: usize) {
        let _ = (phase, subject, chunk);
    }
}

impl Watch for () {
    fn chunk(&mut self, _: Phase, _: usize, _: usize) {}
}

/// Runs `phases` over all subjects, each chunk on every subject in turn.
///
/// The subject that goes first changes from chunk to chunk. A subject that is not concurrent runs
/// on one thread whatever `threads` is.
///
/// # Errors
/// What an operation failed with, and [`BenchError::Wrong`] if operations did not do what they
/// should have: the figures would mean nothing.
pub fn measure(
    subjects: &[&dyn Subject],
    work: &mut Workload,
    phases: &[Phase],
    threads: usize,
    watch: &mut dyn Watch,
) -> Result<Vec<Measured>, BenchError> {
    let mut results: Vec<Measured> = subjects
        .iter()
        .map(|subject| Measured {
            name: subject.name().into(),
            threads: if subject.concurrent() { threads.max(1) } else { 1 },
            phases: Vec::new(),
        })
        .collect();
    for &phase in phases {
        for result in &mut results {
            let empty = PhaseResult { phase, ops: 0, time: Duration::ZERO, chunks: Vec::new() };
            result.phases.push(empty);
        }
        for number in 0..CHUNKS {
            let chunk = work.chunk(phase, number, threads);
            for turn in 0..subjects.len() {
                let who = (turn + number) % subjects.len();
                watch.chunk(phase, who, number);
                let time = run_chunk(subjects[who], &chunk)?;
                watch.chunk_done(phase, who, number);
                if let Some(result) = results[who].phases.last_mut() {
                    result.add(&chunk, time);
                }
            }
        }
    }
    Ok(results)
}

impl PhaseResult {
    #[allow(clippy::cast_precision_loss, reason = "operation counts are far below 2^52")]
    fn add(&mut self, chunk: &Chunk, time: Duration) {
        let ops = chunk.ops();
        self.ops += ops;
        self.time += time;
        self.chunks.push(ops as f64 / time.as_secs_f64().max(1e-9) / 1e6);
    }
}

impl Chunk {
    fn ops(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// Runs one chunk on one subject; the time from the first thread's start to the last one's end.
fn run_chunk(subject: &dyn Subject, chunk: &Chunk) -> Result<Duration, BenchError> {
    let (done, time) = if subject.concurrent() && chunk.parts.len() > 1 {
        on_threads(subject, chunk)
    } else {
        on_this_thread(subject, chunk)
    }
    .map_err(|source| BenchError::Index { index: subject.name().into(), source })?;
    let ops = chunk.ops();
    if done == ops {
        Ok(time)
    } else {
        Err(BenchError::Wrong { index: subject.name().into(), phase: chunk.phase, ops, done })
    }
}

fn on_this_thread(subject: &dyn Subject, chunk: &Chunk) -> Result<(u64, Duration), IndexError> {
    let started = Instant::now();
    let mut done = 0;
    for part in &chunk.parts {
        done += subject.run(part.job(chunk.phase))?;
    }
    Ok((done, started.elapsed()))
}

fn on_threads(subject: &dyn Subject, chunk: &Chunk) -> Result<(u64, Duration), IndexError> {
    let start = Barrier::new(chunk.parts.len());
    let outcomes: Vec<Result<(u64, Instant, Instant), IndexError>> =
        std::thread::scope(|threads| {
            let handles: Vec<_> = chunk
                .parts
                .iter()
                .map(|part| {
                    let start = &start;
                    threads.spawn(move || {
                        start.wait();
                        let began = Instant::now();
                        let done = subject.run(part.job(chunk.phase))?;
                        Ok((done, began, Instant::now()))
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().expect("the subject does not panic")).collect()
        });
    let mut done = 0;
    let mut span: Option<(Instant, Instant)> = None;
    for outcome in outcomes {
        let (count, began, ended) = outcome?;
        done += count;
        let (first, last) = span.unwrap_or((began, ended));
        span = Some((first.min(began), last.max(ended)));
    }
    Ok((done, span.map_or(Duration::ZERO, |(first, last)| last - first)))
}
