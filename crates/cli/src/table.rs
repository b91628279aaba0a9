//! Tables for people: the first column is left-aligned, numbers are right-aligned.

use std::fmt::Write;
use std::time::Duration;

/// Rows of cells under a heading.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with this heading.
    pub(crate) fn new<S: Into<String>>(heading: impl IntoIterator<Item = S>) -> Self {
        Self { rows: vec![heading.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the text, with a rule under the heading.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                let gap = if column == 0 { "" } else { "  " };
                let _ = if column == 0 {
                    write!(line, "{gap}{cell:<width$}")
                } else {
                    write!(line, "{gap}{cell:>width$}")
                };
            }
            let _ = writeln!(text, "  {}", line.trim_end());
            if number == 0 {
                let rule: usize = widths.iter().sum::<usize>() + 2 * (columns - 1);
                let _ = writeln!(text, "  {}", "─".repeat(rule));
            }
        }
        text
    }
}

/// Returns a name as a terminal can show it, on one line: control characters as \\xNN, like those of keys.
pub(crate) fn shown(name: &str) -> String {
    name.chars().fold(String::new(), |mut shown, letter| {
        if letter.is_control() {
            let mut buffer = [0; 4];
            for byte in letter.encode_utf8(&mut buffer).bytes() {
                let _ = write!(shown, "\\x{byte:02x}");
            }
        } else {
            shown.push(letter);
        }
        shown
    })
}

/// Breaks text into lines of at most 76 characters, indented by two.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 76 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
}

/// Formats a number with as many digits as are useful to a reader.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a count with separated thousands.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(c);
    }
    text
}

/// Formats a count with its noun.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { one } else { many })
}

/// Formats a number of bytes in a suitable unit.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.0} KiB", count as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.0} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", count as f64 / 1_073_741_824.0),
    }
}

/// Formats a time in milliseconds.
pub(crate) fn millis(time: Duration) -> String {
    format!("{} ms", digits(time.as_secs_f64() * 1e3))
}

/// Formats operations per second; a dash for none.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{} M", digits(r / 1e6)),
        r if r >= 1e3 => format!("{} k", digits(r / 1e3)),
        r if r > 0.0 => digits(r),
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["op", "a", "bcd"]);
        table.row(["get_many", "12", "3"]);
        assert_eq!(
            table.render(),
            "  op         a  bcd\n  ─────────────────\n  get_many  12    3\n"
        );
    }

    #[test]
    fn long_text_is_wrapped_between_words() {
        let text = wrapped(&"seven letters ".repeat(20));
        assert!(text.lines().all(|line| line.starts_with("  ") && line.len() <= 76));
        assert_eq!(text.split_whitespace().count(), 40);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(digits(0.0), "0");
        assert_eq!(digits(1.234), "1.23");
        assert_eq!(digits(12.34), "12.3");
        assert_eq!(digits(1234.5), "1234");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(5000), "5 KiB");
        assert_eq!(millis(Duration::from_micros(1500)), "1.50 ms");
        assert_eq!(rate(2_345_000.0), "2.35 M");
        assert_eq!(rate(0.0), "-");
        assert_eq!(thousands(1), "1");
        assert_eq!(thousands(1_234_567), "1 234 567");
    }
}
