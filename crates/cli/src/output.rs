//! Standard output, flushed at once. A reader that closes the pipe early is not an error.

use std::io::{self, Write};

use serde_json::Value;

use crate::error::CliError;

/// Prints text.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Prints JSON, indented.
pub(crate) fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}
