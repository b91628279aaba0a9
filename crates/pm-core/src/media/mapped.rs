//! The production medium: a mapping, in whichever durability mode it really has.

use core::cmp::Ordering;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::fence as cpu_fence;

use crate::arch::{self, Level};
use crate::cell::{PmType, PmU64, words_of};
use crate::error::DurabilityLost;
use crate::mode::{Durability, FlushInstruction};

use super::writeback::WriteBack;
use super::{Durable, Flushed, Medium, Rmw, sealed::Sealed};

/// What a flush and a fence do: one byte, at which each of them looks once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Neither does anything but keep the compiler's order.
    Nothing,
    /// A flush notes pages, a fence writes them back.
    Msync,
    /// No flush, a store fence.
    Fence,
    /// A flush with the medium's instruction, a store fence.
    Flush,
    /// A flush with CLWB, a store fence.
    Clwb,
}

/// A mapped file or anonymous memory.
#[derive(Debug)]
pub struct Mapped {
    way: Way,
    level: Level,
    durability: Durability,
    instruction: FlushInstruction,
    /// Whether a non-temporal store is the fastest way to make one word durable.
    streams_words: bool,
    /// Present in `Msync` mode.
    writeback: Option<Box<WriteBack>>,
}

impl Mapped {
    pub(crate) fn new(durability: Durability, instruction: FlushInstruction) -> Self {
        let writeback = (durability == Durability::Msync).then(|| Box::new(WriteBack::new()));
        let way = match durability {
            Durability::Volatile | Durability::Process => Way::Nothing,
            Durability::Msync => Way::Msync,
            Durability::Fence => Way::Fence,
            Durability::Flush if instruction == FlushInstruction::Clwb => Way::Clwb,
            Durability::Flush => Way::Flush,
        };
        Self {
            way,
            level: Level::detect(),
            durability,
            instruction,
            streams_words: arch::streams_words(),
            writeback,
        }
    }

    /// The medium of DRAM arenas: never flushed, neither counted nor recorded.
    #[must_use]
    pub fn dram() -> Self {
        let instruction = FlushInstruction::Clflush; // never used, and costs no CPUID to find
        Self {
            way: Way::Nothing,
            level: Level::detect(),
            durability: Durability::Volatile,
            instruction,
            streams_words: false,
            writeback: None,
        }
    }

    /// What a completed fence means.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The instruction of a flush.
    #[must_use]
    pub fn instruction(&self) -> FlushInstruction {
        self.instruction
    }

    /// Makes a write-back fail after `succeed` more that do not, as if the device had failed. For
    /// tests; nothing in modes other than `Msync`.
    #[doc(hidden)]
    pub fn fail_write_back_after(&self, succeed: u64) {
        if let Some(writeback) = &self.writeback {
            writeback.fail_after(succeed);
        }
    }

    /// The flush of the less common ways.
    #[inline(never)]
    fn flush_otherwise(&self, words: &[PmU64]) {
        match self.way {
            Way::Clwb | Way::Flush => arch::flush_words(self.instruction, words),
            Way::Nothing | Way::Fence => {}
            Way::Msync => {
                if let Some(writeback) = &self.writeback {
                    writeback.note(words);
                }
            }
        }
    }

    /// `Msync` mode: the fence.
    #[cold]
    #[inline(never)]
    fn msync(&self) -> Result<Durable, DurabilityLost> {
        if let Some(writeback) = &self.writeback {
            writeback.fence()?;
        }
        Ok(Durable::new())
    }
}

impl Sealed for Mapped {}

impl Medium for Mapped {
    #[inline(always)]
    fn load_word(&self, cell: &PmU64) -> u64 {
        cell.atomic().load(Acquire)
    }

    #[inline(always)]
    fn store_word(&self, cell: &PmU64, value: u64) {
        cell.atomic().store(value, Release);
    }

    #[inline(always)]
    fn cas_word(&self, cell: &PmU64, current: u64, new: u64) -> Result<u64, u64> {
        cell.atomic().compare_exchange(current, new, AcqRel, Acquire)
    }

    #[inline(always)]
    fn rmw_word(&self, cell: &PmU64, op: Rmw) -> u64 {
        match op {
            Rmw::Add(n) => cell.atomic().fetch_add(n, AcqRel),
            Rmw::Or(bits) => cell.atomic().fetch_or(bits, AcqRel),
            Rmw::And(mask) => cell.atomic().fetch_and(mask, AcqRel),
            Rmw::Swap(value) => cell.atomic().swap(value, AcqRel),
        }
    }

    #[inline(always)]
    fn flush_words(&self, words: &[PmU64]) -> Flushed {
        if self.way == Way::Clwb {
            arch::flush_words(FlushInstruction::Clwb, words);
        } else if self.way != Way::Nothing {
            self.flush_otherwise(words);
        }
        Flushed::new()
    }

    #[inline(always)]
    fn flush<T: PmType>(&self, target: &T) -> Flushed {
        if self.way == Way::Clwb {
            arch::flush(FlushInstruction::Clwb, target); // knows the alignment: no loop
        } else if self.way != Way::Nothing {
            self.flush_otherwise(words_of(target));
        }
        Flushed::new()
    }

    #[inline(always)]
    fn fence(&self, _flushed: Flushed) -> Result<Durable, DurabilityLost> {
        if self.way >= Way::Fence {
            arch::store_fence();
        } else if self.way == Way::Msync {
            return self.msync();
        } else {
            cpu_fence(Release);
        }
        Ok(Durable::new())
    }

    #[inline(always)]
    fn is_volatile(&self) -> bool {
        self.durability == Durability::Volatile
    }

    #[inline(always)]
    fn read_words(&self, src: &[PmU64], dst: &mut [u64]) {
        arch::bulk::read_words(self.level, src, dst);
    }

    #[inline(always)]
    fn match_byte(&self, src: &[PmU64], byte: u8) -> u64 {
        arch::bulk::match_byte(self.level, src, byte)
    }

    #[inline(always)]
    fn match_word(&self, src: &[PmU64], word: u64) -> u64 {
        arch::bulk::match_word(self.level, src, word)
    }

    #[inline(always)]
    fn count_less(&self, src: &[PmU64], bound: u64) -> usize {
        arch::bulk::count_less(self.level, src, bound)
    }

    #[inline(always)]
    fn cmp_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> Ordering {
        arch::bulk::cmp_bytes(self.level, src, len, probe)
    }

    #[inline(always)]
    fn eq_bytes(&self, src: &[PmU64], len: usize, probe: &[u8]) -> bool {
        arch::bulk::eq_bytes(self.level, src, len, probe)
    }

    #[inline(always)]
    fn write_words(&self, dst: &[PmU64], src: &[u64]) {
        for (cell, &word) in dst.iter().zip(src) {
            cell.atomic().store(word, Relaxed);
        }
        cpu_fence(Release);
    }

    #[inline(always)]
    fn stream_words(&self, dst: &[PmU64], src: &[u64]) -> Flushed {
        if self.way >= Way::Flush {
            arch::stream_words(self.level, self.instruction, dst, src);
            return Flushed::new();
        }
        self.write_words(dst, src);
        self.flush_words(dst)
    }

    #[inline(always)]
    fn store_nt_word(&self, cell: &PmU64, value: u64) -> Flushed {
        if self.way >= Way::Flush && self.streams_words {
            arch::stream_word(self.instruction, cell, value);
            return Flushed::new();
        }
        self.store_word(cell, value);
        self.flush_words(core::slice::from_ref(cell))
    }
}
