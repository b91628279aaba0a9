//! Transactions compared with other stores: a page that the program `pmindex-transactions` prints.

use std::path::Path;
use std::process::Command;

use super::{build, write_page};

/// Its name in the list of measurements.
pub(super) const NAME: &str = "transactions";

/// Measures, and writes the page.
pub(super) fn run(quick: bool, out: &Path) -> Result<(), String> {
    eprintln!("\n== {NAME}");
    let program = build("pmindex-transactions")?;
    let mut command = Command::new(&program);
    if quick {
        command.args(["--records", "10000", "--turns", "1", "--millis", "10"]);
    }
    write_page(NAME, command, out)
}
