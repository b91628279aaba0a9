//! `libpmindex`: the indexes of pmindex for C and C++, and for any language that can call C.
//!
//! `include/pmindex.h` is the interface and its documentation; it is generated from this crate.
//! [`boundary`] is the only file with `unsafe`: it turns every pointer that C passes into a checked Rust
//! value. Files with exported functions need only the attribute `no_mangle`.
//!
//! | file | contents |
//! | --- | --- |
//! | `boundary` | what C passes and gets: text, bytes, buffers, handles |
//! | `handles` | tables of handles: they detect stale, closed and invented handles |
//! | `status` | codes, the thread's last error, panics that stop at the boundary |
//! | `dyn_index` | the operations of an index whose types are known only at run time |
//! | `typed` | their implementation, for known types |
//! | `opened` | an index, an index with batches, or a map of a store |
//! | `stored` | a store, its maps, transactions and snapshots |
//! | `pool`, `backup`, `index`, `records`, `many`, `numbers`, `cursor`, `store`, `moments`, `watch`, `expiring` | the exported functions |
//!
//! Unit tests do not compile the exported functions: the compiler keeps every one of them, and each would
//! instantiate every index again. Programs in C test them.
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
mod dyn_index;
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
