//! `cargo xtask rstore`: the server `rstore` and other people's clients, and random commands beside Debian's
//! redis-server and memcached. What is not installed is named and skipped.

use std::process::Command;

use crate::shell::{root, run_cargo};

/// For how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of each run of random commands
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Runs it.
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
