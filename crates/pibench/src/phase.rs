//! The phases, each with operations of one kind, in the order in which they run.

use core::fmt;

/// One kind of operation, measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Inserts all records into the empty index, in random key order.
    Load,
    /// Looks up keys that exist.
    Get,
    /// Looks up missing keys.
    GetMiss,
    /// Reads some records from a random existing key on.
    Scan,
    /// Inserts new keys into the full index.
    Insert,
    /// Replaces values of existing keys.
    Update,
    /// Replaces values of existing keys, or would insert them.
    Upsert,
    /// Removes existing keys.
    Delete,
    /// Looks up existing keys, one batch per call.
    GetMany,
    /// Inserts new keys, one batch per call.
    InsertMany,
}

impl Phase {
    /// The phases that run by default, in order.
    pub const USUAL: [Self; 9] = [
        Self::Load,
        Self::Get,
        Self::GetMiss,
        Self::Scan,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::GetMany,
        Self::InsertMany,
    ];

    /// All phases, in the order in which they run.
    pub const ALL: [Self; 10] = [
        Self::Load,
        Self::Get,
        Self::GetMiss,
        Self::Scan,
        Self::Insert,
        Self::Update,
        Self::Upsert,
        Self::Delete,
        Self::GetMany,
        Self::InsertMany,
    ];

    /// Returns its name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Get => "get",
            Self::GetMiss => "get_miss",
            Self::Scan => "scan",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Upsert => "upsert",
            Self::Delete => "delete",
            Self::GetMany => "get_many",
            Self::InsertMany => "insert_many",
        }
    }

    /// Returns the phase of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// Returns `true` if it changes the index.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::GetMiss | Self::Scan | Self::GetMany)
    }

    /// Returns `true` if it adds records.
    #[must_use]
    pub(crate) const fn adds(self) -> bool {
        matches!(self, Self::Load | Self::Insert | Self::InsertMany)
    }

    /// Returns `true` if each of its calls is one operation, so that it can be part of a mix.
    const fn mixes(self) -> bool {
        !matches!(self, Self::Load | Self::GetMany | Self::InsertMany)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The unit of measurement: operations of one kind, or a mix of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    name: String,
    shares: Vec<(Phase, u32)>,
}

/// The mixes of the papers: name, operations with their shares in percent, and source.
pub const MIXES: &[(&str, &str, &str)] = &[
    ("read-heavy", "get:90,update:10", "evaluation, section 5.5"),
    ("balanced", "get:50,update:50", "evaluation, section 5.5"),
    ("write-heavy", "get:10,update:90", "evaluation, section 5.5"),
    ("ycsb-read-only", "get:100", "BzTree, section 7.1.2"),
    ("ycsb-read-mostly", "get:90,upsert:10", "BzTree, section 7.1.2"),
    ("ycsb-read-heavy", "get:75,upsert:25", "BzTree, section 7.1.2"),
    ("ycsb-balanced", "get:50,upsert:50", "BzTree, section 7.1.2"),
    ("scan-mostly", "scan:90,upsert:10", "BzTree, section 7.5"),
    ("scan-balanced", "scan:50,upsert:50", "BzTree, section 7.5"),
    ("read-intensive", "get:70,insert:10,update:10,delete:10", "HART, section IV.C"),
    ("read-modify-write", "get:50,update:50", "HART, section IV.C"),
    ("write-intensive", "get:20,insert:40,update:40", "HART, section IV.C"),
];

impl Step {
    /// Returns the step of operations of one kind.
    #[must_use]
    pub fn one(phase: Phase) -> Self {
        Self { name: phase.name().into(), shares: vec![(phase, 100)] }
    }

    /// Parses a mix: one of [`MIXES`] by name, or operations with their shares, `get:50,update:50`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn mix(text: &str) -> Result<Self, String> {
        let known = MIXES.iter().find(|(name, ..)| *name == text);
        let mut shares: Vec<(Phase, u32)> = Vec::new();
        for part in known.map_or(text, |(_, shares, _)| shares).split(',') {
            let parsed = part.split_once(':').and_then(|(name, share)| {
                Some((Phase::named(name.trim())?, share.trim().parse::<u32>().ok()?))
            });
            let Some((phase, share)) = parsed.filter(|(_, share)| (1..=1_000_000).contains(share))
            else {
                let names: Vec<&str> = MIXES.iter().map(|(name, ..)| *name).collect();
                let known = names.join(", ");
                return Err(format!(
                    "{part:?} is neither a mix nor an operation with a share (get:50); mixes: {known}"
                ));
            };
            if !phase.mixes() || shares.iter().any(|(other, _)| *other == phase) {
                return Err(format!("a mix cannot have {part:?} here"));
            }
            shares.push((phase, share));
        }
        Ok(Self { name: text.into(), shares })
    }

    /// Returns its name in tables and JSON.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the phase, if it is operations of one kind.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        let &[(phase, _)] = self.shares.as_slice() else { return None };
        (phase.name() == self.name).then_some(phase)
    }

    /// Returns its operations with their shares.
    #[must_use]
    pub fn shares(&self) -> &[(Phase, u32)] {
        &self.shares
    }

    /// Returns the share of an operation, between 0 and 1.
    #[must_use]
    pub fn share(&self, phase: Phase) -> f64 {
        let all: u32 = self.shares.iter().map(|(_, share)| share).sum();
        let own: u32 = self.shares.iter().filter(|(p, _)| *p == phase).map(|(_, s)| s).sum();
        f64::from(own) / f64::from(all.max(1))
    }
}

impl From<Phase> for Step {
    fn from(phase: Phase) -> Self {
        Self::one(phase)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_known_by_name_or_written_out() {
        for (name, shares, _) in MIXES {
            let (known, written) = (Step::mix(name).expect(name), Step::mix(shares).expect(shares));
            assert_eq!((known.name(), known.shares()), (*name, written.shares()));
            let sum: f64 = Phase::ALL.iter().map(|phase| known.share(*phase)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{name}");
            assert_eq!(known.phase(), None);
        }
        for wrong in ["", "get", "get:0", "get:x", "load:1", "get_many:5", "get:1,get:2", "put:3"] {
            assert!(Step::mix(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Step::one(Phase::Scan).phase(), Some(Phase::Scan));
    }
}
