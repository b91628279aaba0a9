//! `pmindex info, check, get, put, del, scan, backup, compact, dump, restore`: commands that read or change
//! a pool.

mod backup;
mod batch_log;
mod check;
mod compact;
mod dump;
mod fresh;
mod info;
mod open;
mod records;
mod repair;
mod store_log;
mod writer;

pub(crate) use backup::{Args as BackupArgs, run as backup};
pub(crate) use check::{Args as CheckArgs, run as check};
pub(crate) use compact::{Args as CompactArgs, run as compact};
pub(crate) use dump::{DumpArgs, RestoreArgs, dump, restore};
pub(crate) use info::{Args as InfoArgs, run as info};
pub(crate) use records::{DelArgs, GetArgs, PutArgs, ScanArgs, del, get, put, scan};
pub(crate) use writer::{CONTINUER, ContinuerArgs, continue_later, of as writer_of};
