//! Measurements that a program of its own makes, and prints as a page.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{build_example, build_in, target};
use crate::shell::{output, root};

/// What prints a page.
enum Program {
    /// A program of a package that is no member of the workspace.
    Apart(&'static str),
    /// An example of a member.
    Example(&'static str),
}

/// A page, and the program that prints it.
pub(super) struct Page {
    /// Its name in the list of measurements.
    pub(super) name: &'static str,
    /// The package of the program.
    package: &'static str,
    program: Program,
    /// Options of its build.
    build: &'static [&'static str],
    /// The option that takes a folder on a disk; empty if there is none.
    folder: &'static str,
    /// The options that make it quick.
    quick: &'static [&'static str],
}

/// All of them.
pub(super) const PAGES: [Page; 6] = [
    // Transactions compared with other stores.
    Page {
        name: "transactions",
        package: "peers",
        program: Program::Apart("pmindex-transactions"),
        build: &[],
        folder: "",
        quick: &["--records", "10000", "--turns", "1", "--millis", "10"],
    },
    // SPTree's study of write buffers in DRAM over other indexes.
    Page {
        name: "buffering",
        package: "pmindex-boc",
        program: Program::Example("matrix"),
        build: &[],
        folder: "",
        quick: &["20000"],
    },
    // Placement, the block cache and other caches.
    Page {
        name: "cache",
        package: "cache-adapters",
        program: Program::Apart("pmindex-cache-evidence"),
        build: &["--no-default-features", "--features", "evidence"],
        folder: "--disk",
        quick: &["--smaller", "50"],
    },
    // The persistent buffer pool: the thesis's figures, and maps in it compared with other stores.
    Page {
        name: "buffer",
        package: "peers",
        program: Program::Apart("pmindex-buffer"),
        build: &[],
        folder: "--dir",
        quick: &["--mib", "4", "--millis", "30", "--pages", "8", "--updates", "1000"],
    },
    // Writes that survive power failure compared with other stores; mode `Periodic` with `Process`.
    Page {
        name: "disk",
        package: "peers",
        program: Program::Apart("pmindex-disk"),
        build: &[],
        folder: "--dir",
        quick: &["--rounds", "1", "--millis", "50", "--memory-millis", "10"],
    },
    // RStore: the thesis's figures, and the server beside Redis and memcached.
    Page {
        name: "rstore",
        package: "pmindex-rstore-server",
        program: Program::Example("evidence"),
        build: &[],
        folder: "--dir",
        quick: &["--millis", "40", "--mib", "4", "--records", "20000"],
    },
];

impl Page {
    /// Measures, and writes the page, which names the commit and the machine.
    pub(super) fn run(&self, quick: bool, out: &Path) -> Result<(), String> {
        eprintln!("\n== {}", self.name);
        let mut command = Command::new(match self.program {
            Program::Apart(name) => build_in(self.package, name, self.build)?,
            Program::Example(name) => build_example(self.package, name)?,
        });
        if !self.folder.is_empty() {
            command.arg(self.folder).arg(target());
        }
        if quick {
            command.args(self.quick);
        }
        let printed = command.current_dir(root()).stderr(Stdio::inherit()).output();
        let printed = printed.map_err(|e| format!("measuring {}: {e}", self.name))?;
        if !printed.status.success() {
            return Err(format!("measuring {} failed ({})", self.name, printed.status));
        }
        let page = String::from_utf8_lossy(&printed.stdout);
        let (title, rest) = page.split_once('\n').ok_or("the page has no title")?;
        let commit = output("git", &["rev-parse", "--short=7", "HEAD"])?;
        let page =
            format!("{title}\n\nMeasured on commit {}, on {}.\n{rest}", commit.trim(), machine());
        let file = out.join(format!("{}.md", self.name));
        std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
        std::fs::write(&file, page).map_err(|e| format!("{}: {e}", file.display()))
    }
}

/// Returns the number and the model of the processors.
fn machine() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{count} processors ({})", model.map_or("unknown", |(_, model)| model.trim()))
}
