//! Durability modes: how a store becomes durable, and which failures it survives.

use core::fmt;

/// How a store becomes durable in a pool, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Anonymous memory: nothing survives.
    Volatile,
    /// tmpfs, or a page-cache mapping without write-back: survives a crash or kill of the process.
    Process,
    /// A file in memory (tmpfs) with a twin on a disk, which follows it some milliseconds behind: survives a
    /// crash or kill of the process; after a power failure the pool is as it was at some moment shortly
    /// before. [`Pool::sync`](crate::Pool::sync) waits until the twin has everything.
    Periodic,
    /// An ordinary file; each fence is an `msync`: survives power failure, slowly.
    Msync,
    /// An ordinary file with a journal beside it; each fence waits for a write to the journal, which threads
    /// share: survives power failure.
    Journal,
    /// DAX with CPU caches inside the persistence domain: a store fence alone.
    Fence,
    /// DAX without persistent caches: flush each line, then a store fence.
    Flush,
}

impl Durability {
    /// Returns `true` if acknowledged writes survive power failure (on real, not emulated, media).
    #[must_use]
    pub fn survives_power_failure(self) -> bool {
        self >= Self::Msync
    }

    /// Returns `true` if this mode provides at least what `required` does. `Msync` and `Journal` are equivalent, and so
    /// are `Fence` and `Flush`.
    #[must_use]
    pub fn satisfies(self, required: Self) -> bool {
        let promise = |mode| match mode {
            Self::Journal => Self::Msync,
            Self::Flush => Self::Fence,
            mode => mode,
        };
        promise(self) >= promise(required)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volatile => "volatile",
            Self::Process => "process",
            Self::Periodic => "periodic",
            Self::Msync => "msync",
            Self::Journal => "journal",
            Self::Fence => "fence",
            Self::Flush => "flush",
        })
    }
}

/// The instruction that writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushInstruction {
    /// Writes back and keeps the line.
    Clwb,
    /// Writes back and evicts, unordered.
    ClflushOpt,
    /// Writes back and evicts, ordered: slow, but every x86-64 has it.
    Clflush,
    /// AArch64: cleans to the point of deep persistence.
    DcCvadp,
    /// AArch64: cleans to the point of persistence.
    DcCvap,
    /// AArch64: cleans to the point of coherency; durable only with help of the platform.
    DcCvac,
    /// No such instruction is known for this CPU: persistent memory can be neither used as such nor emulated.
    Unknown,
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
            Self::DcCvadp => "dc cvadp",
            Self::DcCvap => "dc cvap",
            Self::DcCvac => "dc cvac",
            Self::Unknown => "unknown",
        })
    }
}
