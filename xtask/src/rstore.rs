//! `cargo xtask rstore`: tests the server `rstore` with other people's clients, and compares it with Debian's
//! redis-server and memcached by random commands. Programs that are not installed are named and skipped.

use std::process::Command;

use crate::shell::{root, run_cargo};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of each run of random commands
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    run_cargo(&["build", "--release", "-p", "pmindex-rstore-server"], &[])?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), std::path::PathBuf::from);
    let clients = Command::new(root().join("servers/rstore/tests/clients/clients.sh"))
        .arg(target.join("release/rstore"))
        .arg(args.seconds.to_string())
        .status();
    match clients {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("clients.sh: {status}")),
        Err(error) => Err(format!("clients.sh: {error}")),
    }
}
