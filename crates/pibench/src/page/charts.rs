//! The charts: bars, slopes and curves, each of one operation and many indexes.

use super::scale::{Linear, Log, rate};
use super::svg::{Anchor, Svg};

/// A bar: parts one after the other, in the given colours.
pub(super) struct Bar {
    pub(super) index: String,
    pub(super) label: String,
    pub(super) parts: Vec<(f64, String)>,
    /// Half of the length of its error bar.
    pub(super) spread: f64,
    /// The text in the column of values.
    pub(super) value: String,
    /// The text in the column of comparisons.
    pub(super) ratio: String,
    /// The text of the tooltip.
    pub(super) title: String,
}

/// The scale of the lengths of bars.
pub(super) struct Scale<'a> {
    pub(super) name: &'a str,
    /// The label of the axis.
    pub(super) unit: &'a str,
    /// `true` for a logarithmic scale.
    pub(super) log: bool,
    /// Formats a mark of the axis.
    pub(super) tick: &'a dyn Fn(f64) -> String,
}

/// A line through values at several places of an axis.
pub(super) struct Curve {
    pub(super) index: String,
    pub(super) label: String,
    pub(super) colour: String,
    /// `true` for a dashed line.
    pub(super) dashed: bool,
    /// The places on the axis, and the values.
    pub(super) points: Vec<(usize, f64)>,
}

const WIDTH: f64 = 380.0;
const ROW: f64 = 21.0;
const LABELS: f64 = 96.0;
/// The height of the axis's marks and label.
const AXIS: f64 = 34.0;

/// Returns the width of the longest of some labels in a font of this size, at least `least`. Letters are
/// narrower than assumed, so a label is never cut off.
fn room<'a>(labels: impl Iterator<Item = &'a str>, font: f64, least: f64) -> f64 {
    let letters = labels.map(|label| label.chars().count()).max().unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "labels are short")]
    let longest = letters as f64 * font * 0.62;
    longest.max(least)
}

/// Draws horizontal bars over an axis, with their numbers in separate columns, which no line crosses.
/// `mark` is the value of a line that says "as fast as this".
pub(super) fn bars(scale: &Scale<'_>, bars: &[Bar], mark: Option<f64>) -> String {
    let total = |bar: &Bar| bar.parts.iter().map(|(value, _)| value).sum::<f64>();
    let most = bars.iter().map(|bar| total(bar) + bar.spread).fold(0.0, f64::max);
    let least = bars.iter().map(total).filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    let labels = 8.0 + room(bars.iter().map(|bar| bar.label.as_str()), 11.5, LABELS - 8.0);
    let values = 10.0 + room(bars.iter().map(|bar| bar.value.as_str()), 11.5, 30.0);
    let ratios = match room(bars.iter().map(|bar| bar.ratio.as_str()), 11.5, 0.0) {
        0.0 => 0.0,
        room => room + 8.0,
    };
    let width = (WIDTH - labels - values - ratios).max(40.0);
    let (linear, log) = (Linear::new(0.0, most), Log::new(least / 2.0, most * 1.2));
    let length =
        |value: f64| width * if scale.log { log.place(value) } else { linear.place(value) };
    #[allow(clippy::cast_precision_loss, reason = "few rows")]
    let bottom = bars.len() as f64 * ROW + 6.0;
    let mut svg = Svg::new(WIDTH, bottom + AXIS);
    let mut ticks = if scale.log { log.ticks() } else { linear.ticks() };
    let room_of_ticks = room(
        ticks.iter().map(|t| (scale.tick)(*t)).collect::<Vec<_>>().iter().map(String::as_str),
        10.5,
        14.0,
    ) + 6.0;
    while ticks.len() > 2
        && ticks.windows(2).any(|pair| length(pair[1]) - length(pair[0]) < room_of_ticks)
    {
        ticks = ticks.into_iter().step_by(2).collect();
    }
    for tick in ticks {
        let x = labels + length(tick);
        svg.line((x, 0.0), (x, bottom), "grid");
        svg.text((x, bottom + 13.0), Anchor::Middle, "tick", &(scale.tick)(tick));
    }
    svg.text((labels + width / 2.0, bottom + 28.0), Anchor::Middle, "tick", scale.unit);
    if let Some(mark) = mark {
        let x = labels + length(mark);
        svg.line((x, 0.0), (x, bottom), "mark");
    }
    let mut y = 3.0;
    for bar in bars {
        svg.of(&bar.index, &bar.title, |svg| {
            svg.text((labels - 8.0, y + 14.0), Anchor::End, "label", &bar.label);
            let mut start = 0.0;
            for (value, colour) in &bar.parts {
                let (from, to) = (length(start), length(start + value));
                svg.bar((labels + from, y + 3.0), (to - from, ROW - 7.0), colour);
                start += value;
            }
            if bar.spread > 0.0 {
                let (from, to) =
                    (length((start - bar.spread).max(0.0)), length(start + bar.spread));
                svg.line((labels + from, y + 10.0), (labels + to, y + 10.0), "whisker");
            }
            svg.text((WIDTH - ratios - 1.0, y + 14.0), Anchor::End, "value", &bar.value);
            if !bar.ratio.is_empty() {
                svg.text((WIDTH - 1.0, y + 14.0), Anchor::End, "value", &bar.ratio);
            }
        });
        y += ROW;
    }
    svg.finish(scale.name)
}

/// The axes of a line chart.
pub(super) struct Axes<'a> {
    pub(super) name: &'a str,
    /// The places of the axis, from left to right.
    pub(super) places: &'a [String],
    /// The label of the horizontal axis.
    pub(super) across: &'a str,
    /// The label of the vertical axis.
    pub(super) up: &'a str,
    /// `true` for a logarithmic vertical axis.
    pub(super) log: bool,
    /// Formats a value.
    pub(super) unit: fn(f64) -> String,
}

const HEIGHT: f64 = 266.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = AXIS;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 96.0;

/// Draws lines over the places of an axis, labelled at their right ends.
pub(super) fn curves(axes: &Axes<'_>, lines: &[Curve]) -> String {
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let most = values().fold(0.0, f64::max);
    let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let (linear, log) = (Linear::new(0.0, most * 1.06), Log::new(least / 1.25, most * 1.25));
    let right = 14.0 + room(lines.iter().map(|line| line.label.as_str()), 11.0, RIGHT - 14.0);
    let span = HEIGHT - TOP - BOTTOM;
    let y = |value: f64| {
        let place = if axes.log { log.place(value) } else { linear.place(value) };
        HEIGHT - BOTTOM - place * span
    };
    #[allow(clippy::cast_precision_loss, reason = "few places")]
    let x = |place: usize| {
        let steps = axes.places.len().saturating_sub(1).max(1) as f64;
        LEFT + 10.0 + place as f64 / steps * (WIDTH - LEFT - right - 16.0)
    };
    let mut svg = Svg::new(WIDTH, HEIGHT);
    for mark in if axes.log { log.ticks() } else { linear.ticks() } {
        svg.line((LEFT, y(mark)), (WIDTH - right, y(mark)), "grid");
        svg.text((LEFT - 6.0, y(mark) + 3.5), Anchor::End, "tick", &(axes.unit)(mark));
    }
    svg.text((0.0, 11.0), Anchor::Start, "tick", axes.up);
    svg.text(((LEFT + WIDTH - right) / 2.0, HEIGHT - 5.0), Anchor::Middle, "tick", axes.across);
    for (at, place) in axes.places.iter().enumerate() {
        svg.line((x(at), TOP), (x(at), HEIGHT - BOTTOM), "grid");
        svg.text((x(at), HEIGHT - BOTTOM + 14.0), Anchor::Middle, "tick", place);
    }
    let ends: Vec<f64> =
        lines.iter().map(|c| c.points.last().map_or(0.0, |point| y(point.1))).collect();
    let labels = apart(&ends, 12.0, TOP + 4.0, HEIGHT - BOTTOM + 6.0);
    for (line, label) in lines.iter().zip(labels) {
        let Some(end) = line.points.last() else { continue };
        let points: Vec<(f64, f64)> = line.points.iter().map(|(at, v)| (x(*at), y(*v))).collect();
        let values: Vec<String> = line
            .points
            .iter()
            .map(|(at, value)| {
                let place = axes.places.get(*at).map_or("", String::as_str);
                format!("{place}: {}", (axes.unit)(*value))
            })
            .collect();
        let title = format!("{}\n{}", line.label, values.join("\n"));
        svg.of(&line.index, &title, |svg| {
            svg.path(&points, &line.colour, line.dashed);
            for point in &points {
                svg.dot(*point, 2.6, &line.colour);
            }
            let from = (x(end.0) + 4.0, y(end.1));
            svg.line(from, (WIDTH - right + 4.0, label), "leader");
            svg.dot((WIDTH - right + 7.0, label), 2.6, &line.colour);
            svg.text((WIDTH - right + 13.0, label + 3.5), Anchor::Start, "end", &line.label);
        });
    }
    svg.finish(axes.name)
}

/// Returns positions close to the desired ones, at least `gap` apart if there is room.
fn apart(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    #[allow(clippy::cast_precision_loss, reason = "few labels")]
    let gap = gap.min((bottom - top) / wanted.len().max(1) as f64);
    let mut places = wanted.to_vec();
    let mut least = top;
    for at in &order {
        places[*at] = places[*at].max(least);
        least = places[*at] + gap;
    }
    let mut most = bottom;
    for at in order.iter().rev() {
        places[*at] = places[*at].min(most);
        most = places[*at] - gap;
    }
    places
}

/// Formats operations per second, given in millions.
pub(super) fn mops(value: f64) -> String {
    rate(value * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_stay_inside() {
        let places = apart(&[50.0, 51.0, 52.0, 100.0, 99.0], 10.0, 0.0, 100.0);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 9.99), "{places:?}");
        assert!(sorted[0] >= 0.0 && sorted[4] <= 100.0, "{places:?}");
        assert!(places[0] < places[1] && places[1] < places[2], "in the order of the ends");
    }

    fn bar(label: &str, value: f64) -> Bar {
        Bar {
            index: label.into(),
            label: label.into(),
            parts: vec![(value, "red".into())],
            spread: 0.0,
            value: "1.23 M".into(),
            ratio: "4.56×".into(),
            title: String::new(),
        }
    }

    const SCALE: Scale<'_> =
        Scale { name: "x", unit: "bytes", log: false, tick: &|value| format!("{value:.0}") };

    #[test]
    fn no_label_is_cut_off() {
        // Letters of 11 pixels are narrower than this.
        let wide = |text: &str| f64::from(text.len() as u32) * 6.6;
        for label in ["a", "sptree-buffered", "sptree-buffered x2+1"] {
            let chart = bars(&SCALE, &[bar(label, 1.0)], None);
            let end = placed(&chart, "label");
            assert!(end >= wide(label), "{label} begins left of the chart: {chart}");
            let line = Curve {
                index: label.into(),
                label: label.into(),
                colour: "red".into(),
                dashed: false,
                points: vec![(0, 1.0), (1, 2.0)],
            };
            let places = ["1".to_owned(), "2".to_owned()];
            let axes = Axes {
                name: "x",
                places: &places,
                across: "threads",
                up: "bytes",
                log: false,
                unit: |v| v.to_string(),
            };
            let start = placed(&curves(&axes, &[line]), "end");
            assert!(start + wide(label) <= WIDTH, "{label} ends right of the chart: {start}");
        }
    }

    #[test]
    fn no_line_crosses_a_number_and_the_axis_says_its_unit() {
        let all = [bar("a", 4.0), bar("b", 1.0)];
        let chart = bars(&SCALE, &all, Some(4.0));
        let after = |start: &str| {
            let rest = chart.split(start).nth(1).and_then(|rest| rest.split('"').next());
            rest.and_then(|number| number.parse::<f64>().ok()).expect("a number")
        };
        let numbers = placed(&chart, "value") - 6.0 * 7.2; // they end there
        assert!(after(r#"class="mark" x1=""#) < numbers, "{chart}");
        assert!(chart.contains(">bytes</text>") && chart.contains(">4</text>"), "{chart}");
    }

    /// Returns the position of the text of a class.
    fn placed(chart: &str, class: &str) -> f64 {
        let after = |text: &str| format!("<text class=\"{text}\" x=\"");
        let place = chart.split(&after(class)).nth(1).and_then(|rest| rest.split('"').next());
        place.and_then(|place| place.parse().ok()).expect("a text")
    }

    #[test]
    fn the_longest_bar_fills_its_room_and_the_others_are_in_proportion() {
        let chart = bars(&SCALE, &[bar("a", 4.0), bar("b", 1.0)], None);
        let widths: Vec<f64> = chart
            .split(r#"" width=""#)
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .collect();
        assert!((widths[0] - 4.0 * widths[1]).abs() < 0.3, "{widths:?}");
        assert!(widths[0] > 100.0, "{widths:?}");
    }
}
