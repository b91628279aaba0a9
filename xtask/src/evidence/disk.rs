//! Writes that survive power failure on an ordinary disk, compared with other stores, and mode `Periodic`
//! compared with `Process`: a page that the program `pmindex-disk` prints.

use std::path::Path;
use std::process::Command;

use super::{build, write_page};

/// Its name in the list of measurements.
pub(super) const NAME: &str = "disk";

/// Measures, and writes the page: six minutes.
pub(super) fn run(quick: bool, out: &Path) -> Result<(), String> {
    eprintln!("\n== {NAME}");
    let program = build("pmindex-disk")?;
    let mut command = Command::new(&program);
    if quick {
        command.args(["--rounds", "1", "--millis", "50", "--memory-millis", "10"]);
    }
    write_page(NAME, command, out)
}
