//! `cargo xtask evidence`: measures every index and peer on this machine and writes the results; `cargo xtask
//! paper`: compares them with the claims of the papers.
//!
//! The results go to `docs/evidence/`: `index.html`, one page of charts, its data `report.json.gz`, and a
//! page of tables for each paper. The measurements stay in the build's folder, so that `paper` can write its
//! pages again.

mod figures;
mod markdown;
mod pages;
mod plan;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::shell::{output, root, run_cargo};
use figures::PAPERS;
use pages::PAGES;
use plan::{Measurement, PLAN};

/// Options of `evidence`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Few records: shows that everything works, in a minute or two, and measures nothing
    #[arg(long)]
    quick: bool,

    /// Only these measurements, separated by commas; the others stay as they were
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,

    /// Where to write
    #[arg(long, default_value = "docs/evidence", value_name = "DIR")]
    out: PathBuf,

    /// A program `pmindex` with peers to measure with [default: a release build of crates/peers]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Options of `paper`.
#[derive(clap::Args)]
pub(crate) struct PaperArgs {
    /// evaluation, bztree, hart, sptree, or all
    #[arg(default_value = "all")]
    name: String,

    /// Measure with few records
    #[arg(long)]
    quick: bool,

    /// Where to write
    #[arg(long, default_value = "docs/evidence", value_name = "DIR")]
    out: PathBuf,

    /// A program `pmindex` to measure with [default: a release build]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Measures, and writes the pages.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let mut names: Vec<&str> = PLAN.iter().map(|measurement| measurement.name).collect();
    names.extend(PAGES.map(|page| page.name));
    if let Some(name) = args.only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("there is no measurement {name}: {}", names.join(", ")));
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let out = root().join(&args.out);
    for page in PAGES.iter().filter(|page| wanted(page.name)) {
        page.run(args.quick, &out)?;
    }
    let plan: Vec<&Measurement> = PLAN.iter().filter(|m| wanted(m.name)).collect();
    if plan.is_empty() {
        return Ok(());
    }
    let program = program(args.program.as_deref())?;
    for measurement in plan {
        measure(&program, measurement, args.quick)?;
    }
    draw(&program, &out, args.quick)?;
    for paper in PAPERS {
        markdown::write(paper, &folder(args.quick), &out)?;
    }
    println!("{}", out.join("index.html").display());
    Ok(())
}

/// Writes the page of a paper, or of all; runs missing measurements.
pub(crate) fn paper(args: &PaperArgs) -> Result<(), String> {
    let wanted: Vec<_> =
        PAPERS.iter().filter(|paper| args.name == "all" || args.name == paper.name).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
        return Err(format!("the papers are {}", names.join(", ")));
    }
    let folder = folder(args.quick);
    let needed = |m: &&Measurement| wanted.iter().any(|paper| paper.needs(m.name));
    let missing = |m: &&Measurement| !folder.join(format!("{}.json", m.name)).is_file();
    let missing: Vec<&Measurement> = PLAN.iter().filter(needed).filter(missing).collect();
    if !missing.is_empty() {
        let program = program(args.program.as_deref())?;
        for measurement in missing {
            measure(&program, measurement, args.quick)?;
        }
    }
    for paper in wanted {
        markdown::write(paper, &folder, &root().join(&args.out))?;
    }
    Ok(())
}

/// Returns the folder of the measurements.
fn folder(quick: bool) -> PathBuf {
    target().join(if quick { "evidence-quick" } else { "evidence" })
}

/// Returns the folder of the build.
fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(named.unwrap_or_else(|| "target".into()))
}

/// Returns the program to measure with; builds it if none is given.
fn program(given: Option<&Path>) -> Result<PathBuf, String> {
    given.map_or_else(|| build_in("peers", "pmindex", &[]), |program| Ok(program.to_path_buf()))
}

/// Builds a program of a crate that is no member of the workspace.
fn build_in(package: &str, name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let manifest = root().join("crates").join(package).join("Cargo.toml").display().to_string();
    let folder = target().join(package);
    let line = ["build", "--release", "--bin", name, "--manifest-path", &manifest];
    let line = [&line, options].concat();
    run_cargo(&line, &[("CARGO_TARGET_DIR", &folder.display().to_string())])?;
    Ok(folder.join("release").join(name))
}

/// Builds an example of a member of the workspace.
fn build_example(package: &str, name: &str) -> Result<PathBuf, String> {
    run_cargo(&["build", "--release", "--package", package, "--example", name], &[])?;
    Ok(target().join("release/examples").join(name))
}

fn measure(program: &Path, measurement: &Measurement, quick: bool) -> Result<(), String> {
    let folder = folder(quick);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // Keep distinct sizes distinct, so that the chapters of the page stay apart.
    let (records, ops) = measurement.size;
    let (records, ops) = if quick { (records / 100 + 2000, 1000) } else { (records, ops) };
    let started = Instant::now();
    eprintln!("\n== {}: {} of {records} records", measurement.name, measurement.index);
    let mut command = Command::new(program);
    command
        .args(["bench", "--json", "--index", measurement.index])
        .args(["--records", &records.to_string(), "--ops", &ops.to_string()])
        .args(measurement.options)
        .current_dir(root());
    if !measurement.options.contains(&"--durability") {
        command.args(["--durability", "flush"]);
    }
    let out = command.stderr(std::process::Stdio::inherit()).output();
    let out = out.map_err(|e| format!("{}: {e}", program.display()))?;
    if !out.status.success() {
        return Err(format!("measuring {} failed ({})", measurement.name, out.status));
    }
    let file = folder.join(format!("{}.json", measurement.name));
    std::fs::write(&file, out.stdout).map_err(|e| format!("{}: {e}", file.display()))?;
    eprintln!("   {} s", started.elapsed().as_secs());
    Ok(())
}

/// Writes one page of all measurements, and its data, compressed.
fn draw(program: &Path, out: &Path, quick: bool) -> Result<(), String> {
    let folder = folder(quick);
    let files = PLAN.iter().map(|m| folder.join(format!("{}.json", m.name)));
    let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    let status = Command::new(program).arg("report").args(files).arg("--out").arg(out).status();
    let status = status.map_err(|e| format!("{}: {e}", program.display()))?;
    if !status.success() {
        return Err(format!("drawing failed ({status})"));
    }
    let data = out.join("report.json");
    output("gzip", &["--best", "--no-name", "--force", &data.display().to_string()]).map(drop)
}
