//! Colours, if standard output is a terminal and `NO_COLOR` is not set.

use std::io::IsTerminal;
use std::sync::OnceLock;

fn coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    *COLOURED.get_or_init(|| {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        std::io::stdout().is_terminal() && !refused
    })
}

fn paint(code: &str, text: &str) -> String {
    if coloured() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
}

/// Formats a title.
pub(crate) fn bold(text: &str) -> String {
    paint("1", text)
}

/// Formats good news.
pub(crate) fn good(text: &str) -> String {
    paint("32", text)
}

/// Formats bad news.
pub(crate) fn bad(text: &str) -> String {
    paint("31", text)
}
