//! Placement, the block cache and other caches: a page that the program `pmindex-cache-evidence` prints.

use std::path::Path;
use std::process::Command;

use super::{build_in, target, write_page};
use crate::shell::output;

/// Its name in the list of measurements.
pub(super) const NAME: &str = "cache";

/// Measures, and writes the page.
pub(super) fn run(quick: bool, out: &Path) -> Result<(), String> {
    eprintln!("\n== {NAME}");
    let options = ["--no-default-features", "--features", "evidence"];
    let mut command = Command::new(build_in("cache-adapters", "pmindex-cache-evidence", &options)?);
    command.arg("--disk").arg(target());
    if quick {
        command.args(["--smaller", "50"]);
    }
    write_page(NAME, command, out)?;
    let file = out.join(format!("{NAME}.md"));
    let failed = |e: std::io::Error| format!("{}: {e}", file.display());
    let page = std::fs::read_to_string(&file).map_err(failed)?;
    let commit = output("git", &["rev-parse", "--short=7", "HEAD"])?;
    let (title, rest) = page.split_once('\n').ok_or("the page has no title")?;
    let named = format!("{title}\n\nMeasured on commit {}.\n{rest}", commit.trim());
    std::fs::write(&file, named).map_err(failed)
}
