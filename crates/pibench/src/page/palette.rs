//! Colours of the indexes: bright ones for ours, soft ones for peers, grey for the yardstick.

use crate::report::Run;
use crate::yardstick::Yardstick;

/// In the order of appearance; distinguishable with colour blindness.
const BRIGHT: [&str; 16] = [
    "#2f6df6", "#e4572e", "#12a594", "#a24bd6", "#e0a100", "#d6336c", "#5b8c1a", "#0a86c9",
    "#8a5a2b", "#6b6fe0", "#00b4d8", "#9b3a30", "#8cc63f", "#c77dff", "#4a5fb0", "#f48f6a",
];
/// Colours of peers: every hue once, softer than the bright ones, readable on white and on black. Lines of
/// peers are dashed, too.
const SOFT: [&str; 12] = [
    "#c2527a", "#ef9a86", "#2f9e94", "#a08be0", "#a3912a", "#74aaf5", "#c96a34", "#5fbf86",
    "#8f5fc0", "#d3b04a", "#4f86b5", "#d67bb0",
];
const GREY: &str = "#7c828c";

/// The colours of a report.
pub(super) struct Palette {
    colours: Vec<(String, &'static str)>,
}

impl Palette {
    pub(super) fn new(runs: &[Run]) -> Self {
        let mut colours: Vec<(String, &'static str)> = Vec::new();
        let (mut bright, mut soft) = (BRIGHT.iter().cycle(), SOFT.iter().cycle());
        for run in runs {
            if colours.iter().any(|(index, _)| *index == run.index) {
                continue;
            }
            let colour = match run {
                run if run.index == Yardstick::NAME => Some(&GREY),
                run if run.peer => soft.next(),
                _ => bright.next(),
            };
            colours.push((run.index.clone(), colour.copied().unwrap_or(GREY)));
        }
        Self { colours }
    }

    /// Returns the colour of an index.
    pub(super) fn of(&self, index: &str) -> &'static str {
        self.all().find(|(name, _)| *name == index).map_or(GREY, |(_, colour)| colour)
    }

    /// Returns all indexes with their colours.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.colours.iter().map(|(index, colour)| (index.as_str(), *colour))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_many_indexes_and_peers_as_there_are_have_colours_of_their_own() {
        let run = |index: String, peer| Run { index, peer, ..Run::default() };
        let ours = (0..16).map(|n| run(format!("index {n}"), false));
        let peers = (0..12).map(|n| run(format!("peer {n}"), true));
        let runs: Vec<Run> =
            ours.chain(peers).chain([run(Yardstick::NAME.into(), false)]).collect();
        let palette = Palette::new(&runs);
        let colours: BTreeSet<&str> = palette.all().map(|(_, colour)| colour).collect();
        assert_eq!(colours.len(), runs.len());
    }
}
