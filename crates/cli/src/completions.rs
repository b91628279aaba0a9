//! `pmindex completions`: prints a script with which a shell completes commands and options.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::error::CliError;

/// The shell to print completions for.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    pmindex completions bash > ~/.local/share/bash-completion/completions/pmindex\n  \
    pmindex completions zsh > ~/.zfunc/_pmindex\n  \
    pmindex completions fish > ~/.config/fish/completions/pmindex.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pmindex", &mut script);
    crate::output::print(&String::from_utf8(script).map_err(io::Error::other)?)
}
