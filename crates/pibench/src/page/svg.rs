//! Drawings in SVG: the few shapes of which charts consist.

use std::fmt::Write;

/// A drawing under construction.
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// The alignment of a text at its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Draws a straight line of a style class.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// Draws a bar with round ends.
    pub(super) fn bar(&mut self, at: (f64, f64), size: (f64, f64), fill: &str) {
        let ((x, y), (width, height)) = (at, (size.0.max(1.0), size.1));
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2.5" fill="{fill}"/>"#
        );
    }

    /// Draws a line through points, dashed or solid.
    pub(super) fn path(&mut self, points: &[(f64, f64)], stroke: &str, dashed: bool) {
        let mut path = String::new();
        for (number, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if number == 0 { "M" } else { "L" });
        }
        let class = if dashed { "curve dashed" } else { "curve" };
        let _ = write!(self.body, r#"<path class="{class}" d="{path}" stroke="{stroke}"/>"#);
    }

    /// Draws a dot.
    pub(super) fn dot(&mut self, at: (f64, f64), radius: f64, fill: &str) {
        let (x, y) = at;
        let _ = write!(
            self.body,
            r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{fill}"/>"#
        );
    }

    /// Draws a text of a style class.
    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let ((x, y), anchor, text) = (at, anchor.name(), escape(text));
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// Draws the parts of one index, so that they can be highlighted; `title` is the tooltip.
    pub(super) fn of(&mut self, index: &str, title: &str, draw: impl FnOnce(&mut Self)) {
        let (index, title) = (escape(index), escape(title));
        let _ = write!(self.body, r#"<g class="of" data-of="{index}"><title>{title}</title>"#);
        draw(self);
        self.body.push_str("</g>");
    }

    /// Returns the drawing, with a name for screen readers.
    pub(super) fn finish(self, name: &str) -> String {
        let (width, height, name) = (self.width, self.height, escape(name));
        format!(
            r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{name}">{}</svg>"#,
            self.body
        )
    }
}

/// Escapes text for HTML, also in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}
