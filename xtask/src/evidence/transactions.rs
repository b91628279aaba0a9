//! Transactions beside other stores: a page that the program `pmindex-transactions` prints.

use std::path::Path;
use std::process::{Command, Stdio};

use super::build;
use crate::shell::root;

/// Its name among the measurements.
pub(super) const NAME: &str = "transactions";

/// Measures, and writes the page.
pub(super) fn run(quick: bool, out: &Path) -> Result<(), String> {
    eprintln!("\n== {NAME}");
    let program = build("pmindex-transactions")?;
    let mut command = Command::new(&program);
    if quick {
        command.args(["--records", "10000", "--turns", "1", "--millis", "10"]);
    }
    let page = command.current_dir(root()).stderr(Stdio::inherit()).output();
    let page = page.map_err(|e| format!("{}: {e}", program.display()))?;
    if !page.status.success() {
        return Err(format!("measuring {NAME} failed ({})", page.status));
    }
    let file = out.join(format!("{NAME}.md"));
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    std::fs::write(&file, page.stdout).map_err(|e| format!("{}: {e}", file.display()))
}
