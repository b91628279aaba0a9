//! Standard output, flushed at once. A reader that closes the pipe early is not an error.

use std::io::{self, Write};

use serde_json::Value;

use crate::error::CliError;

/// Prints text.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Prints JSON, indented.
pub(crate) fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}
