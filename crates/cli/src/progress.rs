//! Progress of long work, on standard error, for people only: nothing is drawn into a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `len` steps.
pub(crate) fn bar(len: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<28} {wide_bar:.cyan/blue} {percent:>3}% {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─");
    let bar = ProgressBar::new(len).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Something that takes a while, nobody knows how long.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
