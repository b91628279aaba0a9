//! `cargo xtask torture`: runs `pmindex torture` of a release build, on every medium of this machine.

use crate::shell::run_cargo;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kind of index, `store`, or all
    #[arg(long, value_name = "NAME", default_value = "all")]
    index: String,

    /// The number of kills of each kind and medium
    #[arg(long, value_name = "N", default_value_t = 1000)]
    kills: u64,

    /// The maximum seconds of each kind and medium
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,

    /// A folder on a disk, in addition to tmpfs [default: the build's]
    #[arg(long, value_name = "DIR")]
    disk: Option<std::path::PathBuf>,
}

/// Tortures pools on tmpfs with emulated persistent memory, and on a disk.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let disk = args.disk.clone().unwrap_or_else(|| crate::shell::root().join("target"));
    std::fs::create_dir_all(&disk).map_err(|e| format!("{}: {e}", disk.display()))?;
    let disk = disk.to_string_lossy();
    for medium in [&["--durability", "flush"][..], &["--durability", "process", "--dir", &disk]] {
        let kills = args.kills.to_string();
        let seconds = args.seconds.map(|seconds| seconds.to_string());
        let mut line = vec!["run", "--release", "-p", "pmindex-cli", "--", "torture"];
        line.extend(["--index", &args.index, "--kills", &kills]);
        if let Some(seconds) = &seconds {
            line.extend(["--seconds", seconds]);
        }
        line.extend(medium);
        run_cargo(&line, &[])?;
    }
    Ok(())
}
