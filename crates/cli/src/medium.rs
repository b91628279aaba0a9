//! Which durability a person asks for, and what the one they got means in plain words.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use pmindex::core::{Durability, FlushInstruction, Medium, Pool, PoolOptions};

use crate::style;

/// Options for commands that create or open a pool.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct MediumArgs {
    /// How writes become durable
    #[arg(long, value_enum, default_value = "auto", value_name = "MODE")]
    pub(crate) durability: Wanted,

    /// Which instruction writes cache lines back [default: the best this CPU has]
    #[arg(long, value_enum, value_name = "INSTRUCTION")]
    pub(crate) flush: Option<Flush>,
}

/// A durability to ask for.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The strongest the medium really gives
    Auto,
    /// Survive a kill of the process, nothing more: fast on any file
    Process,
    /// Survive power failure on an ordinary file: msync at each fence, slow
    Msync,
    /// Survive power failure on an ordinary file: a write to a journal beside it at each fence, which
    /// threads share
    Journal,
    /// Survive a kill of the process, and power failure but for the last 100 ms: a pool in memory (tmpfs)
    /// with a twin in /var/tmp. For benchmarks
    Periodic,
    /// Persistent memory whose CPU caches are persistent too
    Fence,
    /// Persistent memory; elsewhere the same flushes and fences, emulated
    Flush,
}

/// A flush instruction to force.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Writes a line back and keeps it
    Clwb,
    /// Writes a line back and evicts it
    Clflushopt,
    /// The same, ordered: slow
    Clflush,
}

impl MediumArgs {
    /// `options` with what was asked for.
    pub(crate) fn apply(self, options: PoolOptions) -> PoolOptions {
        let options = match self.durability {
            Wanted::Auto => options,
            Wanted::Process => options.write_back(false),
            Wanted::Msync => options.require(Durability::Msync),
            Wanted::Journal => options.journal(true).require(Durability::Journal),
            Wanted::Periodic => options.require(Durability::Periodic),
            Wanted::Fence => options.require(Durability::Fence),
            Wanted::Flush => options.emulate_pm(true),
        };
        match self.flush {
            None => options,
            Some(Flush::Clwb) => options.flush_instruction(FlushInstruction::Clwb),
            Some(Flush::Clflushopt) => options.flush_instruction(FlushInstruction::ClflushOpt),
            Some(Flush::Clflush) => options.flush_instruction(FlushInstruction::Clflush),
        }
    }

    /// The same, for a pool at `path`, which has a twin if that is what was asked for.
    pub(crate) fn apply_at(self, options: PoolOptions, path: &Path) -> PoolOptions {
        let options = self.apply(options);
        if self.durability == Wanted::Periodic { options.twin(twin_of(path)) } else { options }
    }

    /// The same options as arguments of a child process.
    pub(crate) fn to_arguments(self) -> Vec<String> {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        let mut arguments = Vec::new();
        if let Some(mode) = name(&|| self.durability.to_possible_value()) {
            arguments.extend(["--durability".to_owned(), mode]);
        }
        if let Some(flush) = self.flush.and_then(|f| name(&|| f.to_possible_value())) {
            arguments.extend(["--flush".to_owned(), flush]);
        }
        arguments
    }
}

/// Where the twin of a pool goes: a folder for temporary files that is on a disk everywhere.
pub(crate) fn twin_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".twin");
    Path::new("/var/tmp").join(name)
}

/// What a pool survives, and how it does it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Promise {
    /// `flush`, `fence`, `journal`, `msync`, `periodic`, `process` or `volatile`.
    pub(crate) mode: String,
    /// Whether flushes are executed on a medium that is no persistent memory.
    pub(crate) emulated: bool,
    /// A crash or kill of the process.
    pub(crate) survives_process_crash: bool,
    /// A crash of the operating system, or power failure.
    pub(crate) survives_power_failure: bool,
    /// The whole truth in a sentence or two.
    pub(crate) words: String,
}

impl Promise {
    /// What this pool promises.
    pub(crate) fn of<M: Medium>(pool: &Pool<M>) -> Self {
        Self::new(pool.durability(), pool.is_emulated(), pool.describe())
    }

    /// What a medium promises to who writes with the usual options.
    pub(crate) fn of_medium(mode: Durability, words: String) -> Self {
        Self::new(mode, false, words)
    }

    /// What survives what, in two lines.
    pub(crate) fn lines(&self) -> String {
        let yes = |survives| if survives { style::good("survives") } else { style::bad("lost") };
        format!(
            "  kill -9 or crash of the process         {}\n  \
             crash of the operating system, power    {}\n",
            yes(self.survives_process_crash),
            yes(self.survives_power_failure)
        )
    }

    fn new(mode: Durability, emulated: bool, words: String) -> Self {
        Self {
            mode: mode.to_string(),
            emulated,
            survives_process_crash: mode > Durability::Volatile,
            survives_power_failure: mode.survives_power_failure() && !emulated,
            words,
        }
    }

    /// The mode's name, and whether it is emulated.
    pub(crate) fn title(&self) -> String {
        if self.emulated { format!("{} (emulated)", self.mode) } else { self.mode.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_flushes_promise_no_power_failure() {
        let promise = |mode, emulated| Promise::new(mode, emulated, String::new());
        assert!(promise(Durability::Flush, false).survives_power_failure);
        assert!(!promise(Durability::Flush, true).survives_power_failure);
        assert!(!promise(Durability::Process, false).survives_power_failure);
        assert!(promise(Durability::Process, false).survives_process_crash);
        assert!(!promise(Durability::Volatile, false).survives_process_crash);
        assert!(promise(Durability::Msync, false).survives_power_failure);
        assert!(promise(Durability::Journal, false).survives_power_failure);
    }

    #[test]
    fn a_child_gets_the_same_options() {
        let asked = MediumArgs { durability: Wanted::Flush, flush: Some(Flush::Clflushopt) };
        assert_eq!(asked.to_arguments(), ["--durability", "flush", "--flush", "clflushopt"]);
        let plain = MediumArgs { durability: Wanted::Auto, flush: None };
        assert_eq!(plain.to_arguments(), ["--durability", "auto"]);
    }
}
