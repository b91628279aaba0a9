//! Write-back, fence, prefetch and non-temporal stores, one interface for all architectures.
//!
//! # What is non-temporal
//!
//! A non-temporal store of a whole line needs no read of the line and no flush: 64 bytes and a fence cost
//! less than store, CLWB and fence, and 512 bytes a third less. A non-temporal store of part of a line makes
//! the memory controller read the rest first: one word and a fence cost half as much again as store, CLWB and
//! fence on Intel (310 against 205 ns on a Sapphire Rapids with DDR5), and a tenth *less* on AMD's Zen. So
//! lines that a copy covers in part are stored and flushed, and a single word is stored as its CPU prefers.
//! MOVDIR64B was measured too: it costs the same as a 64-byte VMOVNTDQ.

use std::sync::OnceLock;

use crate::cell::{PmType, PmU64, words_of};
use crate::line::{LINE, lines_of};
use crate::mode::FlushInstruction;

#[cfg(target_arch = "aarch64")]
use super::aarch64 as isa;
use super::level::Level;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use super::other as isa;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{flush as isa, nontemporal};

/// Writes back the line of address `line`, which must be one that `words` touches.
#[inline(always)]
pub(crate) fn flush_line(instruction: FlushInstruction, words: &[PmU64], line: usize) {
    debug_assert!(line < words.as_ptr_range().end.addr());
    isa::flush_line(instruction, words, line);
}

/// Writes back every line of `words`.
#[inline(always)]
pub(crate) fn flush_words(instruction: FlushInstruction, words: &[PmU64]) {
    if let [word] = words {
        flush_line(instruction, words, word.atomic().as_ptr().addr());
    } else {
        flush_lines(instruction, words);
    }
}

#[inline(never)]
fn flush_lines(instruction: FlushInstruction, words: &[PmU64]) {
    for line in lines_of(words.as_ptr().addr(), size_of_val(words)) {
        flush_line(instruction, words, line);
    }
}

/// Writes back every line of `target`.
#[inline(always)]
pub(crate) fn flush<T: PmType>(instruction: FlushInstruction, target: &T) {
    let words = words_of(target);
    if size_of::<T>() <= 2 * LINE && align_of::<T>().is_multiple_of(LINE) {
        for offset in (0..size_of_val(words)).step_by(LINE) {
            flush_line(instruction, words, words.as_ptr().addr() + offset);
        }
    } else {
        flush_words(instruction, words);
    }
}

/// Orders every earlier store and flush of this thread before every later one.
#[inline(always)]
pub(crate) fn store_fence() {
    isa::store_fence();
}

/// Returns the best flush instruction of this CPU. Asked once: a virtual machine traps the CPUID instruction.
pub(crate) fn best_flush() -> FlushInstruction {
    static BEST: OnceLock<FlushInstruction> = OnceLock::new();
    *BEST.get_or_init(isa::best_flush)
}

/// Returns `true` if this CPU has the flush instruction. The best one is known without asking the CPU.
pub(crate) fn has_flush(instruction: FlushInstruction) -> bool {
    let is_known = instruction != FlushInstruction::Unknown && instruction == best_flush();
    is_known || isa::has_flush(instruction)
}

/// Reads the CPU's time stamp counter: constant rate, unknown unit.
pub(crate) fn ticks() -> u64 {
    isa::ticks()
}

/// Returns `true` if a single non-temporal word is the fastest way to make it durable on this CPU.
pub(crate) fn streams_words() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static ANSWER: OnceLock<bool> = OnceLock::new();
        *ANSWER.get_or_init(nontemporal::streams_words)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Fetches the line at `address` for reading. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_read(address: *const u8) {
    isa::prefetch_read(address);
}

/// Fetches the line at `address` for writing. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_write(address: *const u8) {
    isa::prefetch_write(address);
}

/// Stores one word non-temporally.
#[inline(always)]
pub(crate) fn stream_word(instruction: FlushInstruction, cell: &PmU64, word: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        let _ = instruction;
        nontemporal::store_word(cell, word);
    }
    #[cfg(not(target_arch = "x86_64"))]
    store_and_flush(instruction, core::slice::from_ref(cell), &[word]);
}

/// Copies a line non-temporally, word by word, if `src` is one line. The words are most likely in registers,
/// or were just stored one by one: a vector load of them would wait until all these stores are done, and
/// these wait for the last fence.
#[inline(always)]
pub(crate) fn stream_line(dst: &[PmU64], src: &[u64]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if dst.as_ptr().addr().is_multiple_of(LINE)
        && let (Ok(cells), Ok(words)) = (<&[_; 8]>::try_from(dst), <&[_; 8]>::try_from(src))
    {
        cells.iter().zip(words).for_each(|(cell, &word)| nontemporal::store_word(cell, word));
        return true;
    }
    let _ = (dst, src);
    false
}

/// Copies words to `dst`, up to the shorter length, and starts their write-back: whole lines with
/// non-temporal stores, the rest with ordinary stores and a flush.
pub(crate) fn stream_words(
    level: Level,
    instruction: FlushInstruction,
    dst: &[PmU64],
    src: &[u64],
) {
    let _ = level;
    let count = dst.len().min(src.len());
    let (dst, src) = (&dst[..count], &src[..count]);
    let into_line = dst.as_ptr().addr() % LINE;
    let head = if into_line == 0 { 0 } else { ((LINE - into_line) / 8).min(count) };
    let (dst_head, dst) = dst.split_at(head);
    let (src_head, src) = src.split_at(head);
    let (dst_lines, dst_tail) = dst.as_chunks::<8>();
    let (src_lines, src_tail) = src.as_chunks::<8>();
    store_and_flush(instruction, dst_head, src_head);
    for (cells, words) in dst_lines.iter().zip(src_lines) {
        #[cfg(target_arch = "x86_64")]
        if level == Level::Avx512 {
            nontemporal::store_line(cells, words);
        } else {
            cells.iter().zip(words).for_each(|(cell, &word)| nontemporal::store_word(cell, word));
        }
        #[cfg(not(target_arch = "x86_64"))]
        store_and_flush(instruction, cells, words);
    }
    store_and_flush(instruction, dst_tail, src_tail);
}

/// Copies words of one line with ordinary stores and flushes it.
fn store_and_flush(instruction: FlushInstruction, dst: &[PmU64], src: &[u64]) {
    portable::write_words(dst, src);
    flush_words(instruction, dst);
}
