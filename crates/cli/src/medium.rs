//! The durability that the user requests, and a description in plain words of the one that they get.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{ValueEnum, error::ErrorKind};
use pmindex::core::{Durability, FlushInstruction, Pool, PoolOptions};

#[cfg(feature = "tools")]
use crate::error::CliError;
use crate::style;

/// Options for commands that create or open a pool.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct MediumArgs {
    /// How writes become durable
    #[arg(long, value_parser = DurabilityParser, default_value = "auto", value_name = "MODE")]
    pub(crate) durability: DurabilityArg,

    /// Which instruction writes cache lines back [default: the best of this CPU]
    #[arg(long, value_enum, value_name = "INSTRUCTION")]
    pub(crate) flush: Option<Flush>,
}

/// A mode of durability to request.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The strongest mode that the medium really supports
    Auto,
    /// Survive a kill of the process, but no power failure: fast on any file
    Process,
    /// Survive power failure on an ordinary file: one msync per fence, slow
    Msync,
    /// Survive power failure on an ordinary file: one write per fence to a journal beside the file; threads
    /// share writes
    Journal,
    /// Survive a kill of the process; a power failure loses the last 100 ms (`periodic:20ms`,
    /// `periodic:2s`: other intervals). The pool is in memory (tmpfs), with a copy in /var/tmp. Only for pools
    /// that the command makes for itself (bench, quickstart, torture)
    Periodic,
    /// Persistent memory with persistent CPU caches (eADR): fences only
    Fence,
    /// Persistent memory: flushes and fences. On other media the same instructions, which help against no power failure
    Flush,
}

/// The argument of `--durability`: a mode, or `periodic:20ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurabilityArg {
    mode: Mode,
    /// How often the twin is written; `None`: the default.
    every: Option<Duration>,
}

impl fmt::Display for DurabilityArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.mode.to_possible_value() {
            f.write_str(name.get_name())?;
        }
        self.every.map_or(Ok(()), |every| write!(f, ":{}ms", every.as_millis()))
    }
}

/// Parses a [`DurabilityArg`], and lists the modes.
#[derive(Clone)]
struct DurabilityParser;

impl TypedValueParser for DurabilityParser {
    type Value = DurabilityArg;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<DurabilityArg, clap::Error> {
        let time = value.to_str().and_then(|text| text.strip_prefix("periodic:"));
        let Some(time) = time else {
            let mode = EnumValueParser::new().parse_ref(command, arg, value)?;
            return Ok(DurabilityArg { mode, every: None });
        };
        let (number, unit) = time.split_at(time.trim_end_matches(char::is_alphabetic).len());
        // A child process gets it in milliseconds.
        let every = number.parse().ok().and_then(|number| match unit {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            _ => None,
        });
        let every = every.filter(|every| every.as_secs() <= u32::MAX.into());
        match every {
            Some(_) => Ok(DurabilityArg { mode: Mode::Periodic, every }),
            None => Err(command.clone().error(
                ErrorKind::ValueValidation,
                format!(
                    "'{time}' is not a time for '--durability periodic:TIME'; examples: 100ms, 2s"
                ),
            )),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        Some(Box::new(Mode::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// A flush instruction to force.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Write a line back and keep it in the cache
    Clwb,
    /// Write a line back and evict it
    Clflushopt,
    /// Write a line back and evict it, in order: slow
    Clflush,
}

impl MediumArgs {
    /// Adds the requested durability to the options of a pool at `path` that the command makes for itself, with a
    /// twin if one is requested: no other pool has its name.
    pub(crate) fn apply(self, options: PoolOptions, path: &Path) -> PoolOptions {
        let options = if self.has_twin() { options.twin(twin_of(path)) } else { options };
        self.without_twin(options)
    }

    /// Adds the requested durability to the options of a pool that the user names. A twin is refused: it would have to
    /// be named too, and pools of one name in two folders must not share one.
    #[cfg(feature = "tools")]
    pub(crate) fn apply_to_named(self, options: PoolOptions) -> Result<PoolOptions, CliError> {
        if !self.has_twin() {
            return Ok(self.without_twin(options));
        }
        let what = "--durability periodic: only a program that always names the same twin can open this pool with \
                    one (`PoolOptions::twin`); this command names none, so choose another mode";
        Err(CliError::Usage { what: what.into() })
    }

    fn without_twin(self, options: PoolOptions) -> PoolOptions {
        let options = match self.durability.mode {
            Mode::Auto => options,
            Mode::Process => options.write_back(false),
            Mode::Msync => options.require(Durability::Msync),
            Mode::Journal => options.journal(true).require(Durability::Journal),
            Mode::Periodic => {
                let options = options.require(Durability::Periodic);
                self.durability.every.map_or(options.clone(), |every| options.twin_every(every))
            }
            Mode::Fence => options.require(Durability::Fence),
            Mode::Flush => options.emulate_pm(true),
        };
        match self.flush {
            None => options,
            Some(Flush::Clwb) => options.flush_instruction(FlushInstruction::Clwb),
            Some(Flush::Clflushopt) => options.flush_instruction(FlushInstruction::ClflushOpt),
            Some(Flush::Clflush) => options.flush_instruction(FlushInstruction::Clflush),
        }
    }

    /// Returns `true` if tmpfs cannot give the requested durability.
    pub(crate) fn needs_disk(self) -> bool {
        matches!(self.durability.mode, Mode::Msync | Mode::Journal)
    }

    /// Returns `true` if the medium decides.
    #[cfg(feature = "tools")]
    pub(crate) fn is_auto(self) -> bool {
        self.durability.mode == Mode::Auto
    }

    /// Returns `true` if there is a twin, from which a lost pool is read.
    pub(crate) fn has_twin(self) -> bool {
        self.durability.mode == Mode::Periodic
    }

    /// Returns the same options as arguments of a child process.
    pub(crate) fn to_arguments(self) -> Vec<String> {
        let mut arguments = vec!["--durability".to_owned(), self.durability.to_string()];
        if let Some(flush) = self.flush.and_then(|flush| flush.to_possible_value()) {
            arguments.extend(["--flush".to_owned(), flush.get_name().to_owned()]);
        }
        arguments
    }
}

/// Returns the file of the twin of a pool that the command makes for itself: in `/var/tmp`, which is on a disk on all
/// common systems.
pub(crate) fn twin_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".twin");
    Path::new("/var/tmp").join(name)
}

/// What a pool survives, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Promise {
    /// `flush`, `fence`, `journal`, `msync`, `periodic`, `process` or `volatile`.
    pub(crate) mode: String,
    /// `true` if flushes are executed on a medium that is not persistent memory.
    pub(crate) emulated: bool,
    /// Survives a crash or kill of the process.
    pub(crate) survives_process_crash: bool,
    /// Survives a crash of the operating system, and power failure.
    pub(crate) survives_power_failure: bool,
    /// The full description, in a few sentences.
    pub(crate) words: String,
}

impl Promise {
    /// Returns what this pool promises.
    pub(crate) fn of(pool: &Pool) -> Self {
        Self::new(pool.durability(), pool.is_emulated(), pool.describe())
    }

    /// Returns what a medium promises to a program that writes with default options.
    pub(crate) fn of_medium(mode: Durability, words: String) -> Self {
        Self::new(mode, false, words)
    }

    /// Returns two lines: what survives a kill, and what survives a power failure.
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

    /// Returns the mode's name, and whether it is emulated.
    pub(crate) fn title(&self) -> String {
        if self.emulated { format!("{} (emulated)", self.mode) } else { self.mode.clone() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
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

    /// The command line of a test.
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        medium: MediumArgs,
    }

    /// Returns the options of a command line.
    pub(crate) fn parsed(arguments: &[&str]) -> Result<MediumArgs, clap::Error> {
        let whole = ["pmindex"].iter().chain(arguments);
        <Line as clap::Parser>::try_parse_from(whole).map(|line| line.medium)
    }

    #[test]
    fn a_child_gets_the_same_options() {
        let same =
            |arguments: &[&str]| assert_eq!(parsed(arguments).unwrap().to_arguments(), arguments);
        same(&["--durability", "flush", "--flush", "clflushopt"]);
        same(&["--durability", "periodic"]);
        same(&["--durability", "periodic:250ms"]);
        assert_eq!(parsed(&[]).unwrap().to_arguments(), ["--durability", "auto"]);
        for longest in ["periodic:4294967295s", "periodic:0ms"] {
            let medium = parsed(&["--durability", longest]).unwrap();
            let arguments = medium.to_arguments();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let child = parsed(&arguments).expect(longest);
            assert_eq!(child.durability, medium.durability, "{longest}");
        }
        assert!(parsed(&["--durability", "periodic:4294967296s"]).is_err());
    }

    #[test]
    fn how_often_a_twin_is_written_stands_behind_the_mode() {
        let every = |word| parsed(&["--durability", word]).map(|medium| medium.durability.every);
        assert_eq!(every("periodic").unwrap(), None);
        assert_eq!(every("periodic:100ms").unwrap(), Some(Duration::from_millis(100)));
        assert_eq!(every("periodic:2s").unwrap(), Some(Duration::from_secs(2)));
        for wrong in
            ["periodic:", "periodic:100", "periodic:-1ms", "periodic:1min", "journal:100ms"]
        {
            assert!(every(wrong).is_err(), "{wrong}");
        }
        let error = every("periodic:100").unwrap_err().to_string();
        assert!(error.contains("'100' is not a time") && error.contains("100ms"), "{error}");
        let error = every("journal:1s").unwrap_err().to_string();
        assert!(error.contains("invalid value 'journal:1s'") && error.contains("msync"), "{error}");
    }
}
