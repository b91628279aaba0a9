//! What a command can fail with, and what the person can do about it.

use pmindex::IndexError;
use pmindex_pibench::BenchError;

/// What a command can fail with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No index of this name.
    #[error("there is no index called {name:?}")]
    UnknownIndex {
        /// What was asked for.
        name: String,
    },
    /// A measurement is void.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// An index failed outside a measurement.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The result could not be written.
    #[error("writing the result: {0}")]
    Json(#[from] serde_json::Error),
}

impl CliError {
    /// What to do next.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownIndex { .. } => {
                Some(format!("choose from: {}", crate::registry::names().join(", ")))
            }
            Self::Bench(_) | Self::Index(_) | Self::Json(_) => None,
        }
    }
}
