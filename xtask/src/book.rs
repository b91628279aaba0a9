//! `cargo xtask book`: builds the guide as a book with mdBook, if that is installed.
//!
//! Rules for its pages are checked by `cargo xtask tidy` (`tidy/book.rs`), which does not need mdBook.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::shell::{output, root};

/// The sources of the book.
const SOURCES: &str = "docs/book";
const BOOK: &str = "target/book";

/// Options of the command.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// Show it in the browser
    #[arg(long)]
    open: bool,
}

impl Args {
    /// As continuous integration builds it.
    pub(crate) const CHECK: Self = Self { open: false };
}

/// Builds the book; prints a message if mdBook is missing.
pub(crate) fn run(args: Args) -> Result<Duration, String> {
    if output("mdbook", &["--version"]).is_err() {
        eprintln!("\n== mdbook: SKIPPED, it is not installed (`cargo install mdbook --locked`)");
        return Ok(Duration::ZERO);
    }
    let folder = root().join(BOOK);
    eprintln!("\n== mdbook build {SOURCES}");
    let started = Instant::now();
    let mut command = Command::new("mdbook");
    command.args(["build", SOURCES, "--dest-dir"]).arg(&folder).current_dir(root());
    if args.open {
        command.arg("--open");
    }
    let built = command.output().map_err(|e| format!("mdbook did not start: {e}"))?;
    let says = String::from_utf8_lossy(&built.stderr);
    eprint!("{says}");
    // mdBook only warns of a file that it cannot include.
    if !built.status.success() || says.contains("WARN") || says.contains("ERROR") {
        return Err("mdbook complains, above".into());
    }
    println!("{}", folder.join("index.html").display());
    Ok(started.elapsed())
}
