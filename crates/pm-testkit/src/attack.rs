//! Damaged pools on a medium that can lose power.
//!
//! A word of a pool is damaged; the pool is opened, and if neither opening nor a check notices the damage,
//! written to. Then the power fails: unfenced stores are lost. Writes acknowledged after the opening must be
//! there when the pool is opened again, unless opening, checking or writing has returned an error. A medium
//! that loses nothing, or one without recovery, shows none of this: a damaged number that recovery depends on
//! (a horizon, a stamp, a generation) does its harm a crash later.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pmindex_core::LINE;
use pmindex_core::trace::{Event, EventKind, Space};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::crash::{AnyOp, AnySubject, AnyValue, CrashSubject, Fault, Rng, Running, any_subject};

/// The number of operations before the damage, and after it.
const BEFORE: usize = 60;
const AFTER: usize = 24;
/// The largest number of accesses of an attack; one that needs more counts as endless.
const STEPS: u64 = 4_000_000;

/// The outcome of the attacks on a structure.
#[derive(Clone, Debug, Default)]
pub struct Attacked {
    /// Attacks.
    pub tried: u64,
    /// Attacks in which opening, checking, writing or opening again returned an error.
    pub noticed: u64,
    /// Attacks that changed the contents without being noticed: data has no checksum.
    pub changed: u64,
    /// Attacks after which acknowledged writes were lost or wrong, panics, and endless runs.
    pub broken: Vec<String>,
}

impl fmt::Display for Attacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tried, noticed, changed, broken } = self;
        writeln!(f, "{tried} damages: {noticed} noticed, {changed} change what is there")?;
        broken.iter().try_for_each(|case| writeln!(f, "  BROKEN: {case}"))
    }
}

/// The end of an attack.
enum End {
    Noticed,
    Harmless,
    Changed,
}

/// Attacks a structure this many times.
///
/// # Errors
/// An error without any damage.
pub fn attack<S: CrashSubject>(attacks: u64, seed: u64) -> Result<Attacked, Fault> {
    attack_any(any_subject::<S>(), attacks, seed)
}

fn attack_any(program: AnySubject, attacks: u64, seed: u64) -> Result<Attacked, Fault> {
    let geometry = program.geometry();
    let space = Space::new(geometry.len, geometry.capacity);
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mut ops = |count: usize| -> Vec<AnyOp> {
        let op = program.ops();
        (0..count)
            .filter_map(|_| op.new_tree(&mut runner).ok())
            .map(|tree| tree.current())
            .collect()
    };
    let image = Power::with(&space, || {
        let subject = program.create(&space)?;
        ops(BEFORE).iter().try_for_each(|op| subject.apply(op).map(drop))
    })?;
    image.restore(&space);
    let sound = observed(program, &space)?.map(|(_, model)| model);
    let used: Vec<usize> = (0..image.words.len()).filter(|&at| image.words[at] != 0).collect();
    let mut rng = Rng::new(seed);
    let mut attacked = Attacked::default();
    for _ in 0..attacks {
        let at = used[rng.below(used.len())];
        let mut damaged = image.clone();
        let how = damage(&mut damaged.words[at], &mut rng);
        let ops = ops(AFTER);
        attacked.tried += 1;
        let end = catch_unwind(AssertUnwindSafe(|| {
            attack_once(program, &space, &damaged, sound.as_ref(), &ops)
        }));
        space.limit_steps(u64::MAX);
        space.record(false);
        drop(space.take_trace());
        let case = |why: &str| format!("word {at} of the image, {how}: {why}");
        match end {
            Ok(Ok(End::Noticed)) => attacked.noticed += 1,
            Ok(Ok(End::Changed)) => attacked.changed += 1,
            Ok(Ok(End::Harmless)) => {}
            Ok(Err(Fault(lost))) => attacked.broken.push(case(&lost)),
            Err(_) => attacked.broken.push(case("a panic, or no end")),
        }
    }
    Ok(attacked)
}

fn damage(word: &mut u64, rng: &mut Rng) -> String {
    let before = *word;
    *word = match rng.below(8) {
        0 => u64::MAX,
        1 => 0,
        2 => before.wrapping_add(1),
        3 => before.wrapping_sub(1),
        4 => before ^ 1 << (48 + rng.below(16)), // where numbers do not come to
        _ => before ^ 1 << rng.below(64),
    };
    format!("{before:#x} is {:#x}", *word)
}

/// Attacks once; `Err` says that acknowledged writes are lost.
fn attack_once(
    program: AnySubject,
    space: &Space,
    damaged: &Image,
    sound: Option<&AnyValue>,
    ops: &[AnyOp],
) -> Result<End, Fault> {
    damaged.restore(space);
    space.limit_steps(STEPS);
    let mut opened = None;
    let mut model = program.initial();
    let mut is_whole = true;
    let after = Power::with(space, || {
        opened = observed(program, space).ok().flatten();
        let Some((subject, found)) = &opened else { return Ok(()) };
        model = found.clone();
        for op in ops {
            let (next, expected) = program.model(&model, op);
            model = next;
            // An error, or an answer that the contents found before do not allow: noticed, or inconsistent.
            // The effect of this call is unknown.
            if subject.apply(op).ok() != Some(expected) {
                is_whole = false;
                break;
            }
        }
        Ok(())
    })?;
    let Some((subject, found)) = opened else { return Ok(End::Noticed) };
    drop(subject);
    if !is_whole {
        return Ok(End::Noticed);
    }
    after.restore(space);
    match observed(program, space) {
        Err(_) | Ok(None) => Ok(End::Noticed),
        Ok(Some((_, left))) if left != model => Err(Fault::new(format!(
            "acknowledged {model:?}, but after the power failed there is {left:?}"
        ))),
        Ok(Some(_)) if Some(&found) == sound => Ok(End::Harmless),
        Ok(Some(_)) => Ok(End::Changed),
    }
}

/// An opened structure and its contents.
type Found = (Box<dyn Running>, AnyValue);

/// Opens the structure and reads all of it.
fn observed(program: AnySubject, space: &Space) -> Result<Option<Found>, Fault> {
    let Some(subject) = program.open(space)? else { return Ok(None) };
    let model = subject.observe()?;
    Ok(Some((subject, model)))
}

/// The contents of a medium.
#[derive(Clone)]
struct Image {
    words: Vec<u64>,
    file_len: u64,
}

impl Image {
    fn restore(&self, space: &Space) {
        space.set_file_len(self.file_len);
        space.restore(&self.words);
    }
}

/// A medium that keeps fenced stores only.
struct Power {
    kept: Image,
    /// The contents that the caches show.
    seen: Vec<u64>,
    /// For each thread, the words flushed since its last fence.
    flushed: HashMap<u16, Vec<(usize, u64)>>,
}

impl Power {
    /// Runs `body`, then cuts the power; returns what is left.
    fn with(space: &Space, body: impl FnOnce() -> Result<(), Fault>) -> Result<Image, Fault> {
        let words = space.snapshot();
        let kept = Image { words: words.clone(), file_len: space.file_len() };
        space.record(true);
        let done = body();
        space.record(false);
        let mut power = Self { kept, seen: words, flushed: HashMap::new() };
        for event in space.take_trace() {
            power.follow(&event);
        }
        done.map(|()| power.kept)
    }

    fn follow(&mut self, event: &Event) {
        let at = event.word as usize;
        let flushed = self.flushed.entry(event.thread).or_default();
        if event.kind.writes() {
            self.seen[at] = event.value;
        }
        match event.kind {
            EventKind::Stream => flushed.push((at, event.value)),
            EventKind::Flush => {
                let line = at..(at + LINE / 8).min(self.seen.len());
                flushed.extend(line.map(|at| (at, self.seen[at])));
            }
            EventKind::Fence => {
                for (at, value) in flushed.drain(..) {
                    self.kept.words[at] = value;
                }
            }
            EventKind::WriteBack => {
                let end = usize::try_from(event.value).unwrap_or(usize::MAX).min(self.seen.len());
                self.kept.words[at..end].copy_from_slice(&self.seen[at..end]);
            }
            EventKind::Grow => self.kept.file_len = event.value,
            EventKind::Store
            | EventKind::Rmw
            | EventKind::Bulk
            | EventKind::InOrder
            | EventKind::Note => {}
        }
    }
}
