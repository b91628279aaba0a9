//! `cargo xtask fuzz`: attacks every kind of index with damaged pool files, guided by coverage.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::shell::{output, root, run_cargo};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of processor time
    #[arg(long, value_name = "S", default_value_t = 600)]
    seconds: u64,
    /// Afterwards write the smallest set of inputs with the same coverage to tests/hostile/corpus.txt
    #[arg(long)]
    keep: bool,
}

/// The checked-in inputs, one a line, in hexadecimal.
const KEPT: &str = "tests/hostile/corpus.txt";

/// Two bytes of choices, and twelve damages of ten bytes.
const LONGEST: &str = "-max_len=122";

/// Runs the fuzzer from the checked-in inputs; its corpus grows.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    if output("cargo", &["fuzz", "--version"]).is_err() {
        return Err(
            "this needs cargo-fuzz (`cargo install cargo-fuzz`) and a nightly compiler".into()
        );
    }
    let corpus = root().join("fuzz/corpus/hostile");
    make(&corpus)?;
    unpack(&corpus)?;
    let seconds = format!("-max_total_time={}", args.seconds);
    // A hang is a finding, since no attack takes long. Start with long inputs, since short ones damage
    // nothing.
    fuzz(&[&seconds, "-timeout=20", "-rss_limit_mb=4096", "-len_control=0", LONGEST])?;
    let found = root().join("fuzz/artifacts/hostile");
    let left = fs::read_dir(&found).map(Iterator::count).unwrap_or_default();
    if left > 0 {
        return Err(format!("{left} findings in {}", relative(&found)));
    }
    if args.keep { keep(&corpus) } else { Ok(()) }
}

fn fuzz(options: &[&str]) -> Result<(), String> {
    let arguments = [&["fuzz", "run", "hostile", "--"], options].concat();
    run_cargo(&arguments, &[("RUSTUP_TOOLCHAIN", "nightly")]).map(drop)
}

/// Writes the checked-in inputs into the corpus.
fn unpack(corpus: &Path) -> Result<(), String> {
    let kept = root().join(KEPT);
    let text = fs::read_to_string(&kept).map_err(|e| format!("{KEPT}: {e}"))?;
    for (number, line) in text.lines().enumerate() {
        let digits = line.as_bytes().as_chunks::<2>().0.iter();
        let byte = |pair| str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok());
        let bytes: Option<Vec<u8>> = digits.map(|pair| byte(pair)).collect();
        let bytes = bytes.ok_or_else(|| format!("{KEPT}:{}: no input", number + 1))?;
        write(&corpus.join(format!("kept-{number:05}")), &bytes)?;
    }
    Ok(())
}

/// Minimizes the corpus, and writes it to the file.
fn keep(corpus: &Path) -> Result<(), String> {
    let merged = root().join("fuzz/corpus/merged");
    let _ = fs::remove_dir_all(&merged);
    make(&merged)?;
    fuzz(&["-merge=1", "-rss_limit_mb=4096", LONGEST, &text(&merged), &text(corpus)])?;
    let mut inputs = Vec::new();
    for entry in fs::read_dir(&merged).map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        inputs.push(fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    inputs.sort();
    let mut lines = String::new();
    for input in &inputs {
        for byte in input {
            let _ = write!(lines, "{byte:02x}");
        }
        lines.push('\n');
    }
    write(&root().join(KEPT), lines.as_bytes())?;
    println!("{} inputs are kept in {KEPT}", inputs.len());
    Ok(())
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
