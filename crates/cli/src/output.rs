//! Standard output, flushed at once. A reader that closes the pipe early is not an error.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

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

/// Returns a path as JSON: a string if it is UTF-8, else `{"hex": "00ff"}`, as a dump has byte strings.
pub(crate) fn path_in_json(path: &Path) -> Value {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    path.to_str().map_or_else(|| json!({ "hex": hex(path.as_os_str().as_bytes()) }), Value::from)
}

/// Prints JSON, indented.
pub(crate) fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}
