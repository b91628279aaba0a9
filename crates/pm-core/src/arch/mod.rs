//! Instructions: the only flushes, fences, non-temporal stores and vector reads of the workspace.
//!
//! # Racing bulk reads
//!
//! The functions of [`bulk`] read pool words while other threads write them. They mean a sequence of relaxed
//! 8-byte atomic loads of the words of `src`, in no particular order, a word possibly loaded more than once,
//! followed by an acquire fence; [`portable`] is literally that. The x86-64 variants are `asm!` blocks with
//! vector loads. They are equivalent because:
//!
//! * to the compiler an `asm!` block is opaque: it does what its documentation says, and no slice,
//!   reference or plain load over the racing bytes exists that the memory model could object to;
//! * to the processor a vector load of aligned 8-byte lanes is not torn inside a lane (x86-64
//!   promises it for 16 bytes with AVX, and every implementation keeps it per aligned 8 bytes for
//!   wider loads: the unit of its load and store paths is larger), and loads are never reordered
//!   with later loads;
//! * bytes that a mask disables are not accessed, so an aligned vector may extend past `src`.
//!
//! The results are private values; a caller that needs a snapshot validates a version.
//!
//! # Variants
//!
//! Four variants (AVX-512, AVX2, the baseline of x86-64, portable) are tested against each other.
//! Each medium knows the [`Level`] of its CPU, so dispatch is a predicted branch, and all blocks are
//! inlined, so there is no call. The AVX-512 blocks use only `zmm16` to `zmm31`, whose upper halves
//! cost legacy SSE code nothing, so no `vzeroupper` is needed.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub(crate) mod bulk;
mod level;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "what the others are tested against"))]
mod portable;
mod rank;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub(crate) use level::Level;
pub(crate) use portable::write_words;
pub use rank::rank_sort;
pub(crate) use stream::{
    best_flush, flush, flush_words, has_flush, prefetch_read, prefetch_write, store_fence,
    stream_line, stream_word, stream_words, streams_words, ticks,
};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("pmindex maps pools into a 64-bit address space");

/// Tells the compiler that this branch is rarely taken: `core::hint::cold_path` of Rust 1.95.
#[cold]
#[inline(always)]
pub(crate) const fn cold_path() {}
