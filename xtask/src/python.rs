//! `cargo xtask python`: lints the package for Python, builds it, installs it in a virtual environment and
//! runs its tests.
//!
//! It is a workspace of its own (`bindings/python`), with its own lints and lock file, which follows the
//! dependencies of the main workspace (so no command here is `--locked`). The wheel is built in the
//! development profile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::shell::{cargo, output, root};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build and test all kinds of index, which takes some minutes
    #[arg(long)]
    all_kinds: bool,
}

/// The oldest Python that the wheel supports.
const OLDEST: (u32, u32) = (3, 9);
/// The packages of the virtual environment.
const TOOLS: [&str; 2] = ["maturin>=1.7,<2", "pytest>=7"];

/// Runs the command; returns an error without Python, or if its packages cannot be fetched.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let place = Place::prepare()?;
    place.format()?;
    place.lint()?;
    place.build_and_test(if args.all_kinds { &ALL_KINDS } else { &QUICK })
}

/// The options of a quick build.
const QUICK: [&str; 2] = ["--profile", "dev"];
/// The options of a build with all kinds of index.
const ALL_KINDS: [&str; 4] = ["--profile", "dev", "--features", "all-kinds"];

/// Runs as a step of continuous integration: skipped with a message if the tools cannot be fetched. Linting
/// compiles everything once more, so it is part of the `long` run.
pub(crate) fn check(long: bool) -> Result<Duration, String> {
    let started = Instant::now();
    match Place::prepare() {
        Ok(place) => {
            place.format()?;
            if long {
                place.lint()?;
            }
            place.build_and_test(if long { &ALL_KINDS } else { &QUICK })?;
        }
        Err(why) => eprintln!("\n== python: SKIPPED, {why}"),
    }
    Ok(started.elapsed())
}

/// The folders of a run.
struct Place {
    /// The package.
    package: PathBuf,
    /// The virtual environment.
    environment: PathBuf,
    /// The build folder of cargo.
    target: PathBuf,
}

impl Place {
    /// Creates the virtual environment, if it does not exist.
    fn prepare() -> Result<Self, String> {
        let system = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let version = output(&system, &["-c", "import sys; print(*sys.version_info[:2])"])?;
        let numbers: Vec<u32> = version.split_whitespace().flat_map(str::parse).collect();
        if numbers < vec![OLDEST.0, OLDEST.1] {
            return Err(format!("Python {} is older than 3.9", version.trim()));
        }
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root().join("target"), PathBuf::from);
        let environment = target.join("python-environment");
        let place = Self { package: root().join("bindings/python"), environment, target };
        let python = text(&place.program("python"));
        if output(&python, &["-c", "import maturin, pytest"]).is_err() {
            output(&system, &["-m", "venv", "--clear", &text(&place.environment)])?;
            let install = [&["-m", "pip", "install", "--quiet"], &TOOLS[..]].concat();
            output(&python, &install)?;
        }
        Ok(place)
    }

    /// Returns a program of the virtual environment.
    fn program(&self, name: &str) -> PathBuf {
        self.environment.join("bin").join(name)
    }

    /// Runs a program in the package's folder.
    fn run(&self, program: &Path, arguments: &[&str]) -> Result<(), String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{name} {}", arguments.join(" "));
        eprintln!("\n== bindings/python: {line}");
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&self.package)
            .env("VIRTUAL_ENV", &self.environment)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("PMINDEX_INTEROP", self.target.join("debug/examples/interop"))
            .env("PYO3_PYTHON", self.program("python"))
            .status()
            .map_err(|e| format!("`{line}` did not start: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("`{line}` failed ({status})")) }
    }

    fn format(&self) -> Result<(), String> {
        self.run(&PathBuf::from(cargo()), &["fmt", "--all", "--check"])
    }

    fn lint(&self) -> Result<(), String> {
        let clippy = ["clippy", "--all-targets"];
        self.run(&PathBuf::from(cargo()), &[&clippy[..], &["--", "-D", "warnings"]].concat())
    }

    fn build_and_test(&self, options: &[&str]) -> Result<(), String> {
        let wheels = text(&self.target.join("python-wheels"));
        let _ = std::fs::remove_dir_all(&wheels); // of earlier versions
        let build = ["build", "--out", &wheels];
        self.run(&self.program("maturin"), &[&build, options].concat())?;
        let interop = ["build", "--example", "interop"];
        self.run(&PathBuf::from(cargo()), &interop)?;
        let python = self.program("python");
        let install =
            ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall"];
        self.run(&python, &[&install[..], &["--find-links", &wheels, "pmindex"]].concat())?;
        self.run(&python, &["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
