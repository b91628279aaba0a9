//! A colour for each index: bright ones for ours, pale ones for peers, grey for the yardstick.

use crate::report::Run;
use crate::yardstick::Yardstick;

/// In the order of appearance; told apart by people who do not see all colours, too.
const BRIGHT: [&str; 10] = [
    "#2f6df6", "#e4572e", "#12a594", "#a24bd6", "#e0a100", "#d6336c", "#5b8c1a", "#0a86c9",
    "#8a5a2b", "#6b6fe0",
];
const PALE: [&str; 8] =
    ["#8fa3b8", "#b8a48f", "#9ab89a", "#b79ab8", "#8fb5b8", "#b89a9a", "#a6a6c4", "#b5b58c"];
const GREY: &str = "#7c828c";

/// The colours of a report.
pub(super) struct Palette {
    colours: Vec<(String, &'static str)>,
}

impl Palette {
    pub(super) fn new(runs: &[Run]) -> Self {
        let mut colours: Vec<(String, &'static str)> = Vec::new();
        let (mut bright, mut pale) = (BRIGHT.iter().cycle(), PALE.iter().cycle());
        for run in runs {
            if colours.iter().any(|(index, _)| *index == run.index) {
                continue;
            }
            let colour = match run {
                run if run.index == Yardstick::NAME => Some(&GREY),
                run if run.peer => pale.next(),
                _ => bright.next(),
            };
            colours.push((run.index.clone(), colour.copied().unwrap_or(GREY)));
        }
        Self { colours }
    }

    /// The colour of an index.
    pub(super) fn of(&self, index: &str) -> &'static str {
        self.all().find(|(name, _)| *name == index).map_or(GREY, |(_, colour)| colour)
    }

    /// All indexes with their colours.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.colours.iter().map(|(index, colour)| (index.as_str(), *colour))
    }
}
