//! Connections of memcached's clients.

use std::sync::atomic::Ordering::Relaxed;

use crate::command::table;
use crate::memcache::{Command, Incoming};
use crate::shard::Work;
use crate::wire::{Protocol, Request};

use super::common::add;
use super::connection::Connection;
use super::mail::{Task, Ticket};
use super::run::Worker;
use super::slots::Then;

/// Returns `true` if the user may run the command of Redis that does the same.
fn may(connection: &Connection, name: &str) -> bool {
    let request = Request::new([name.as_bytes()]);
    let spec = table::find(name.as_bytes());
    let user = connection.user.as_ref();
    spec.is_some_and(|spec| user.is_some_and(|user| user.refusal(spec, request.args()).is_none()))
}

fn refuse(connection: &mut Connection) {
    let text = b"CLIENT_ERROR unauthenticated\r\n";
    connection.answer(|reply| reply.bytes.extend_from_slice(text));
}

impl Worker {
    /// Runs the complete commands in `input`; returns the number of their bytes.
    pub(super) fn memcached(
        &mut self,
        connection: &mut Connection,
        token: usize,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        while used < input.len() && !connection.is_held() && self.outbox.has_room() {
            let mut parser = std::mem::take(&mut connection.memcached);
            let (incoming, length) = parser.parse(&input[used..], self.common.max_value);
            connection.memcached = parser;
            used += length;
            match incoming {
                Incoming::More if length == 0 => break,
                Incoming::More => {}
                Incoming::Commands { commands, quiet, end } => {
                    for command in commands {
                        self.memcached_command(connection, token, command, quiet);
                    }
                    connection.answer(|reply| reply.bytes.extend_from_slice(end.as_bytes()));
                }
                Incoming::Reply(text) => {
                    connection.answer(|reply| reply.bytes.extend_from_slice(text.as_bytes()));
                }
                Incoming::Stats if !may(connection, "info") => refuse(connection),
                Incoming::Stats => {
                    let text = self.memcached_stats();
                    connection.answer(|reply| reply.bytes.extend_from_slice(text.as_bytes()));
                }
                Incoming::Flush { .. } if !may(connection, "flushall") => refuse(connection),
                Incoming::Flush { quiet } => self.memcached_flush(connection, token, quiet),
                Incoming::Quit => {
                    connection.closing = true;
                    return input.len();
                }
                Incoming::Broken(text) => {
                    connection.answer(|reply| reply.bytes.extend_from_slice(text.as_bytes()));
                    connection.closing = true;
                    return input.len();
                }
            }
        }
        used
    }

    fn memcached_command(
        &mut self,
        connection: &mut Connection,
        token: usize,
        command: Command,
        quiet: bool,
    ) {
        add(&self.common.figures[self.number].commands, 1);
        let may = connection
            .user
            .as_ref()
            .is_some_and(|user| user.may_use(command.key(), command.writes()));
        if !may {
            refuse(connection);
            return;
        }
        let home = self.partition_of(command.key());
        let work = Work::Memcache(command);
        if home == self.number {
            let bytes = self.shard.work(&work, Protocol::Resp2, self.now);
            if !quiet {
                connection.answer(|reply| reply.bytes.extend_from_slice(&bytes));
            }
        } else {
            let slot = connection.slots.wait(1, if quiet { Then::Quiet } else { Then::Join });
            let ticket = Ticket { token, connection: connection.id, slot, part: 0 };
            self.ask(home, ticket, Task::Work(work, Protocol::Resp2));
        }
    }

    fn memcached_flush(&mut self, connection: &mut Connection, token: usize, quiet: bool) {
        let count = self.common.partitions();
        let Some(spec) = table::find(b"flushall") else { return };
        let then = if quiet { Then::Quiet } else { Then::Flushed };
        let slot = connection.slots.wait(count, then);
        for part in 0..count {
            let ticket = Ticket { token, connection: connection.id, slot, part };
            self.part(part, connection, ticket, spec, Request::new([&b"flushall"[..]]));
        }
    }

    fn memcached_stats(&mut self) -> String {
        self.publish_figures();
        let common = &self.common;
        let mut text = String::new();
        for (name, value) in [
            ("pid", u64::from(std::process::id())),
            ("uptime", common.started.elapsed().as_secs()),
            ("time", self.now / 1000),
            ("pointer_size", 64),
            ("curr_connections", common.connections.load(Relaxed) as u64),
            ("total_connections", common.accepted.load(Relaxed)),
            ("bytes_read", common.total(|figures| &figures.received)),
            ("bytes_written", common.total(|figures| &figures.sent)),
            ("limit_maxbytes", common.total(|figures| &figures.capacity)),
            ("threads", common.partitions() as u64),
            ("bytes", common.total(|figures| &figures.live_bytes)),
            ("curr_items", common.total(|figures| &figures.keys)),
            ("evictions", 0),
        ] {
            text += &format!("STAT {name} {value}\r\n");
        }
        let version = concat!("STAT version rstore-", env!("CARGO_PKG_VERSION"), "\r\nEND\r\n");
        text + version
    }
}
