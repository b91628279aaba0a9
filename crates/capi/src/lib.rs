//! `libpmindex`: the indexes of pmindex for C and C++, and for whatever can call C.
//!
//! `include/pmindex.h` is the interface and its documentation; it is generated from this crate.
//! [`boundary`] is the only file with `unsafe`: every pointer that C passes becomes a checked Rust
//! value there. The files that export functions carry the attribute `no_mangle` and nothing more.
//!
//! | file | what |
//! | --- | --- |
//! | `boundary` | what C passes and gets: text, bytes, buffers, handles |
//! | `handles` | tables of handles: a stale, closed or invented handle is found out |
//! | `status` | codes, the thread's last error, panics that stop at the boundary |
//! | `erased` | what an index can do whose types are known at run time |
//! | `typed` | that, where the types are known |
//! | `opened` | an index, one with batches, or a map of a store |
//! | `stored` | a store, its maps, transactions and snapshots |
//! | `pool`, `backup`, `index`, `records`, `many`, `numbers`, `cursor`, `store`, `moments`, `watch`, `expiring` | the exported functions |
//!
//! Unit tests leave the exported functions out: a compiler keeps every one of them, and with them
//! every index once more. Programs in C test those.
#![deny(unsafe_code)]
#![allow(unreachable_pub, reason = "the header has what is `pub`; the library exports symbols")]
#![cfg_attr(test, allow(dead_code, reason = "the exported functions are left out"))]
#![allow(clippy::doc_markdown, reason = "docs of what is exported are the comments of a C header")]

#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod backup;
#[allow(unsafe_code, reason = "C passes pointers: they are read and written here alone")]
mod boundary;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod cursor;
mod erased;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod expiring;
mod handles;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod index;
mod keys;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod many;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod moments;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod numbers;
mod opened;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod pool;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod records;
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod status;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod store;
mod stored;
mod typed;
#[cfg(not(test))]
#[allow(unsafe_code, reason = "exported symbols have the attribute `no_mangle`")]
mod watch;
