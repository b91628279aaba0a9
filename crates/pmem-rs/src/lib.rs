//! Bindings to `libpmem`, PMDK's library of persistence primitives.
//!
//! The library is loaded at run time, so nothing is needed to build this crate, and a program that
//! uses it says clearly if it is missing ([`LoadError`]). [`sys`] is the whole interface, generated
//! from the library's header by `cargo xtask bindgen` and checked in; [`Pmem`] is the part that
//! `pmindex-core` persists through, safe.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pmem = pmindex_pmem_rs::Pmem::load()?;
//! let line = [1u64; 8];
//! pmem.flush(&line);
//! pmem.drain(); // durable, if `line` were in persistent memory
//! # Ok(())
//! # }
//! ```

#[allow(
    missing_docs,
    missing_debug_implementations,
    nonstandard_style,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_extern_crates,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "generated"
)]
pub mod sys;

use core::ffi::c_void;

/// The names under which the library is looked up.
const NAMES: [&str; 2] = ["libpmem.so.1", "libpmem.so"];

/// Environment variables that weaken the library's persistence.
const WEAKENING: [&str; 2] = ["PMEM_NO_FLUSH", "PMEM_IS_PMEM_FORCE"];

/// An error of loading libpmem.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not installed.
    #[error("libpmem could not be loaded: {0}; Debian has it in the package libpmem1")]
    Missing(#[source] libloading::Error),
    /// It lacks a function.
    #[error("libpmem has no function {0}")]
    NoFunction(&'static str),
    /// An environment variable would weaken its persistence.
    #[error(
        "libpmem would obey the environment variable {0}, which changes what is durable: unset it"
    )]
    Environment(&'static str),
}

/// The library's flush and drain.
pub struct Pmem {
    flush: unsafe extern "C" fn(*const c_void, sys::size_t),
    drain: unsafe extern "C" fn(),
    auto_flush: bool,
    /// Keeps the functions loaded.
    _library: sys::Libpmem,
}

impl std::fmt::Debug for Pmem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pmem").field("auto_flush", &self.auto_flush).finish_non_exhaustive()
    }
}

impl Pmem {
    /// Loads the library.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load() -> Result<Self, LoadError> {
        // Environment variables must not change persistence silently.
        if let Some(name) = WEAKENING.into_iter().find(|name| std::env::var_os(name).is_some()) {
            return Err(LoadError::Environment(name));
        }
        let load = |name| {
            // SAFETY: libpmem's initialisation looks at the processor and the environment, and has no
            // other effect on the process.
            unsafe { sys::Libpmem::new(name) }
        };
        let library = load(NAMES[0]).or_else(|_| load(NAMES[1])).map_err(LoadError::Missing)?;
        let function = |name| move |_: &libloading::Error| LoadError::NoFunction(name);
        let flush = *library.pmem_flush.as_ref().map_err(function("pmem_flush"))?;
        let drain = *library.pmem_drain.as_ref().map_err(function("pmem_drain"))?;
        let asks = library.pmem_has_auto_flush.as_ref();
        let asks = asks.map_err(function("pmem_has_auto_flush"))?;
        // SAFETY: takes nothing, reads what the kernel says about its regions.
        let auto_flush = unsafe { asks() } == 1;
        Ok(Self { flush, drain, auto_flush, _library: library })
    }

    /// Returns `true` if the library found every CPU cache in the persistence domain (eADR).
    #[must_use]
    pub fn has_auto_flush(&self) -> bool {
        self.auto_flush
    }

    /// Starts the write-back of every cache line of `target` (`pmem_flush`).
    pub fn flush<T: ?Sized>(&self, target: &T) {
        let start = core::ptr::from_ref(target).cast::<c_void>();
        // SAFETY: the lines of a live reference are mapped, and a flush neither reads nor changes
        // what they hold.
        unsafe { (self.flush)(start, size_of_val(target) as sys::size_t) };
    }

    /// Waits until all earlier flushes of this thread are written back (`pmem_drain`).
    pub fn drain(&self) {
        // SAFETY: a store fence.
        unsafe { (self.drain)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_loads_or_says_why_not() {
        match Pmem::load() {
            Ok(pmem) => {
                let words = [7u64; 100];
                pmem.flush(&words[..]);
                pmem.drain();
                assert_eq!(words, [7; 100]);
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
}
