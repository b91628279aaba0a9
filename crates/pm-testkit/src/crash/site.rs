//! Call sites: the identity of a persistence step.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use pmindex_core::trace::{Event, EventKind};

/// The kind of a persistence step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepKind {
    /// A flush, or a copy that counts as one.
    Flush,
    /// A fence.
    Fence,
    /// A write-back of everything from outside the medium.
    WriteBack,
    /// A barrier between stores to one line.
    Barrier,
}

/// A persistence step: its kind, and its place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The source file.
    pub file: &'static str,
    /// Its line.
    pub line: u32,
    /// Its column.
    pub column: u32,
    /// Its kind.
    pub kind: StepKind,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            StepKind::Flush => "flush",
            StepKind::Fence => "fence",
            StepKind::WriteBack => "write-back",
            StepKind::Barrier => "barrier",
        };
        write!(f, "{what} at {}:{}:{}", self.file, self.line, self.column)
    }
}

impl Site {
    /// Returns the step of an event, if it is one.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let kind = match event.kind {
            EventKind::Flush | EventKind::Stream => StepKind::Flush,
            EventKind::Fence => StepKind::Fence,
            EventKind::WriteBack => StepKind::WriteBack,
            EventKind::InOrder => StepKind::Barrier,
            _ => return None,
        };
        let site: &'static Location<'static> = event.site;
        Some(Self { file: site.file(), line: site.line(), column: site.column(), kind })
    }
}

/// Numbers for sites. One call site may have several `Location`s at different addresses.
#[derive(Debug, Default)]
pub(crate) struct SiteTable {
    by_address: HashMap<(usize, StepKind), usize>,
    by_site: HashMap<Site, usize>,
    pub(crate) sites: Vec<(Site, &'static Location<'static>)>,
}

impl SiteTable {
    /// Returns the number of an event's step.
    pub(crate) fn number(&mut self, event: &Event) -> Option<usize> {
        let site = Site::of(event)?;
        let address = (std::ptr::from_ref(event.site).addr(), site.kind);
        if let Some(&number) = self.by_address.get(&address) {
            return Some(number);
        }
        let next = self.sites.len();
        let number = *self.by_site.entry(site).or_insert(next);
        if number == next {
            self.sites.push((site, event.site));
        }
        self.by_address.insert(address, number);
        Some(number)
    }
}
