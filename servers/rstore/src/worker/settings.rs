//! `CONFIG GET` and `CONFIG SET`, as exporters and redis-benchmark need them.

use std::sync::atomic::Ordering::Relaxed;

use crate::command::Refusal;
use crate::keyspace::glob;
use crate::wire::{Args, Reply, Shape, integer};

use super::common::Common;
use super::connection::Connection;
use super::run::Worker;
use super::session::unknown_subcommand;

impl Worker {
    pub(super) fn config(
        &mut self,
        connection: &mut Connection,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        match args.at(1).to_ascii_uppercase().as_slice() {
            b"GET" if args.len() >= 3 => {
                let patterns: Vec<_> =
                    args.from(2).iter().map(<[u8]>::to_ascii_lowercase).collect();
                let mut all = self.common.parameters();
                all.retain(|(name, _)| {
                    patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()))
                });
                connection.answer(|reply| {
                    reply.head(Shape::Map, all.len());
                    for (name, value) in &all {
                        reply.bulk(name.as_bytes());
                        reply.bulk(value.as_bytes());
                    }
                });
            }
            b"SET" if args.len() >= 4 && args.len().is_multiple_of(2) => {
                for at in (2..args.len()).step_by(2) {
                    self.common.set(args.at(at), args.at(at + 1))?;
                }
                connection.answer(Reply::ok);
            }
            b"RESETSTAT" => connection.answer(Reply::ok),
            b"GET" | b"SET" => {
                let sub = String::from_utf8_lossy(args.at(1)).to_lowercase();
                return Err(Refusal::arity(&format!("config|{sub}")));
            }
            _ => return Err(unknown_subcommand(args)),
        }
        Ok(())
    }
}

impl Common {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let port = self.addresses.first().map_or(0, std::net::SocketAddr::port);
        vec![
            ("appendfsync", "always".into()),
            ("appendonly", "no".into()),
            ("cluster-enabled", if self.cluster { "yes" } else { "no" }.into()),
            ("databases", "1".into()),
            ("dir", self.folder.path.display().to_string()),
            ("maxclients", self.limits.maxclients.load(Relaxed).to_string()),
            ("maxmemory", self.total(|figures| &figures.capacity).to_string()),
            ("maxmemory-policy", "noeviction".into()),
            ("port", port.to_string()),
            ("proto-max-bulk-len", self.max_value.to_string()),
            ("save", String::new()),
            ("timeout", self.limits.timeout.load(Relaxed).to_string()),
        ]
    }

    fn set(&self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let number = integer(value).and_then(|number| u64::try_from(number).ok());
        let failed = |why: &str| {
            Refusal::from(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
            ))
        };
        match name.as_str() {
            "maxclients" => {
                let number = number
                    .filter(|number| *number > 0)
                    .ok_or_else(|| failed("argument must be a number"))?;
                self.limits.maxclients.store(number as usize, Relaxed);
            }
            "timeout" => {
                let number = number.ok_or_else(|| failed("argument must be a number"))?;
                self.limits.timeout.store(number, Relaxed);
            }
            // Clients set it to the only value that is true here.
            "save" if value.is_empty() => {}
            "appendonly" if value.eq_ignore_ascii_case(b"no") => {}
            other if self.parameters().iter().any(|(known, _)| *known == other) => {
                return Err(failed("can't set immutable config"));
            }
            other => {
                return Err(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{other}'"
                )
                .into());
            }
        }
        Ok(())
    }
}
