//! A key-value server for clients of Redis and memcached, over partitions of [`pmindex_rstore`].
//!
//! | module | what |
//! | --- | --- |
//! | `wire` | requests and replies of Redis's clients |
//! | `memcache` | memcached's commands |
//! | `keyspace` | how types are records; drafts, slots, patterns |
//! | `command` | what each command does to the records of a partition |
//! | `shard` | a partition as its thread owns it: entries, commits, backup |
//! | `worker` | a thread of the event loop: connections, sessions, messages between partitions |
//! | `group` | a partition that several processes replicate |
//! | `control` | the thread that accepts connections, hears signals and serves figures |
//! | `access` | users and what they may do |
//! | `config` | flags and the file |
//! | `folders` | folders that are removed again if what they were created for fails |
//! | `client`, `load`, `trial` | a small client, a load generator, kill and verify |
#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_wrap, reason = "counts and lengths in memory are far below 2^63")]
#![allow(clippy::unnecessary_wraps, reason = "handlers of commands have one signature")]
#![allow(clippy::struct_excessive_bools, reason = "options of commands are independent words")]
#![allow(clippy::match_same_arms, reason = "an arm for each case of a protocol, in its order")]
#![allow(clippy::format_push_string, reason = "texts for people, not on the way of a request")]

mod access;
mod client;
mod command;
mod config;
mod control;
mod error;
mod folders;
mod group;
mod keyspace;
mod memcache;
mod shard;
mod tools;
mod wire;
mod worker;

pub use client::{Client, Reply};
pub use config::{Bytes, DurabilityArg, Partitions, Settings, UserSettings};
pub use control::serve;
pub use error::Error;
pub use tools::{
    AOF, ClusterArgs, CompareArgs, LoadArgs, Outcome, Server, Service, Store, TrialArgs,
    VALUE_SIZE, attempt, cluster, compare, is_installed, load, trial,
};
