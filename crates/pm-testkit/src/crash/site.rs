//! Call sites: the identity of a persistence step.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use pmindex_core::trace::{Event, EventKind};

/// A persistence step: what is done, and where in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The source file.
    pub file: &'static str,
    /// Its line.
    pub line: u32,
    /// Its column.
    pub column: u32,
    /// Whether it is a fence (else a flush, or a copy that counts as one).
    pub fence: bool,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.fence { "fence" } else { "flush" };
        write!(f, "{what} at {}:{}:{}", self.file, self.line, self.column)
    }
}

impl Site {
    /// The step an event is, if it is one.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let fence = match event.kind {
            EventKind::Flush | EventKind::Stream => false,
            EventKind::Fence => true,
            _ => return None,
        };
        let site: &'static Location<'static> = event.site;
        Some(Self { file: site.file(), line: site.line(), column: site.column(), fence })
    }
}

/// Numbers for sites. One call site may have several `Location`s at different addresses.
#[derive(Debug, Default)]
pub(crate) struct SiteTable {
    by_address: HashMap<(usize, bool), usize>,
    by_site: HashMap<Site, usize>,
    pub(crate) sites: Vec<(Site, &'static Location<'static>)>,
}

impl SiteTable {
    /// The number of the step an event is.
    pub(crate) fn number(&mut self, event: &Event) -> Option<usize> {
        let site = Site::of(event)?;
        let address = (std::ptr::from_ref(event.site).addr(), site.fence);
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
