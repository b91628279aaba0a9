//! Append-only named files in a pool: the file system of a log-structured store (Lersch: Leveraging
//! Non-Volatile Memory in Modern Storage Management Architectures, section 3.3, Pmemenv).
//!
//! An append is a copy into mapped memory and a fence, not a system call; a read is a copy out of it.
//! Creating, renaming and deleting are crash-consistent: each commits by one word.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pmindex_core::Pool;
//! use pmindex_env::{Env, EnvError};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(Pool::emulated(8 << 20)?); // or Pool::create(path, &PoolOptions::new())?
//! let env = Env::open_or_create(&pool, "files")?;
//! let log = env.create_file("000001.log")?;
//! log.append(b"a record")?; // survives the death of the process
//! log.sync()?; // survives what the pool survives
//! env.rename("000001.log", "CURRENT")?; // in place of what was there, at one moment
//! assert_eq!(env.open_file("CURRENT")?.read_all()?, b"a record");
//!
//! env.delete("CURRENT")?;
//! assert_eq!(log.len(), 8); // who has it open reads on
//! assert!(matches!(env.open_file("CURRENT"), Err(EnvError::NoSuchFile { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! | --- | --- |
//! | names, locks | [`Env`], [`EnvOptions`], [`FileLock`] |
//! | what a file has | [`File`], [`Reader`] |
//! | under a database of `rusty-leveldb` | `LevelEnv`, feature `leveldb` |
//!
//! Files cannot be overwritten or truncated, and there are no folders: a name may contain slashes.
#![forbid(unsafe_code)]

mod directory;
mod env;
mod error;
mod file;
mod layout;
#[cfg(feature = "leveldb")]
mod leveldb;
mod node;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

pub use env::{Env, EnvOptions, FileLock};
pub use error::EnvError;
pub use file::{File, Reader};
pub use layout::NAME_MAX;
#[cfg(feature = "leveldb")]
pub use leveldb::LevelEnv;
