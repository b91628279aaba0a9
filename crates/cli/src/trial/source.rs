//! The source of the keys of a trial, on which parent and child agree.

use std::path::PathBuf;

use crate::error::CliError;

use super::universe::{self, Universe};

/// The keys to use.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Source {
    /// A file with one key a line [default: 348 454 English words that come with the program]
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,

    /// How many integers to load in addition to the words
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    pub(crate) integers: usize,
}

/// All keys of a trial.
pub(crate) struct Universes {
    /// Byte strings.
    pub(crate) words: Universe<Vec<u8>, Vec<u8>>,
    /// Integers.
    pub(crate) integers: Universe<u64, u64>,
}

impl Source {
    /// Reads or generates the keys.
    pub(crate) fn universes(&self) -> Result<Universes, CliError> {
        let words = match &self.keys {
            Some(path) => universe::lines_of(path)?,
            None => universe::words(),
        };
        Ok(Universes { words, integers: universe::integers(self.integers, 1) })
    }

    /// Returns the same choice as arguments for a child process.
    pub(crate) fn to_arguments(&self) -> Vec<std::ffi::OsString> {
        let mut arguments = vec!["--integers".into(), self.integers.to_string().into()];
        if let Some(path) = &self.keys {
            arguments.extend(["--keys".into(), path.clone().into_os_string()]);
        }
        arguments
    }
}
