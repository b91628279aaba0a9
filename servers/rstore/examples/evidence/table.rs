//! Tables in Markdown, and numbers in them.

use std::fmt::Write as _;

/// A table in Markdown.
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut text = format!("\n| {} |\n| --- |", heads.join(" | "));
        text += &" ---: |".repeat(heads.len() - 1);
        text.push('\n');
        Self(text)
    }

    pub(crate) fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        let _ = write!(self.0, "| {name} |");
        for cell in cells {
            let _ = write!(self.0, " {cell} |");
        }
        self.0.push('\n');
        eprintln!("{}", self.0.lines().last().unwrap_or_default());
    }

    pub(crate) fn text(self) -> String {
        self.0
    }
}

/// Formats thousands.
pub(crate) fn thousands(number: f64) -> String {
    format!("{:.0}", number / 1e3)
}

/// Formats nanoseconds as microseconds.
pub(crate) fn micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1e3;
    if micros < 100.0 { format!("{micros:.1}") } else { format!("{micros:.0}") }
}
