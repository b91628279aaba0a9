//! `INFO`, and the metrics for Prometheus.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use crate::group::Group;
use crate::keyspace::slot;
use crate::wire::Args;

use super::common::{Common, Figures};
use super::run::Worker;

/// The version of Redis that these commands follow; clients read it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

impl Worker {
    /// Returns the requested sections, or all.
    pub(super) fn info(&mut self, args: Args<'_>) -> String {
        self.publish_figures();
        let wanted = |name: &str| {
            args.len() == 1
                || args.from(1).iter().any(|word| {
                    word.eq_ignore_ascii_case(name.as_bytes())
                        || ["all", "default", "everything"]
                            .iter()
                            .any(|all| word.eq_ignore_ascii_case(all.as_bytes()))
                })
        };
        let mut sections = self.common.sections();
        if let Some(group) = self.shard.group() {
            for (_, text) in sections.iter_mut().filter(|(name, _)| *name == "Replication") {
                *text = replication(group, self.number);
            }
        }
        let chosen: Vec<_> = sections
            .into_iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, text)| format!("# {name}\r\n{text}"))
            .collect();
        chosen.join("\r\n")
    }
}

/// Returns the section of a node of a group.
fn replication(group: &Group, partition: usize) -> String {
    let view = group.view();
    let others = view.members.len().saturating_sub(1);
    let waits = format!("waits_for_room:{}\r\n", u8::from(group.waits_for_room()));
    if view.leader == Some(group.id()) {
        return format!("role:master\r\nconnected_slaves:{others}\r\n{waits}");
    }
    let place = view.leading().map(|place| place.clients_of(partition));
    let (host, port) =
        place.as_deref().and_then(|place| place.rsplit_once(':')).unwrap_or(("", "0"));
    format!(
        "role:slave\r\nmaster_host:{host}\r\nmaster_port:{port}\r\nmaster_link_status:{}\r\n{waits}",
        if view.leader.is_some() { "up" } else { "down" }
    )
}

/// Selects one of the figures.
type Of = fn(&Figures) -> &std::sync::atomic::AtomicU64;

impl Common {
    fn sections(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("Server", self.server()),
            ("Clients", self.clients()),
            ("Memory", self.memory()),
            ("Persistence", self.persistence()),
            ("Stats", self.stats()),
            ("Replication", "role:master\r\nconnected_slaves:0\r\n".into()),
            ("CPU", String::new()),
            ("Cluster", format!("cluster_enabled:{}\r\n", u8::from(self.cluster))),
            ("Keyspace", String::new()),
        ];
        let keys = self.total(|figures| &figures.keys);
        if keys > 0
            && let Some((_, text)) = all.last_mut()
        {
            let _ = write!(text, "db0:keys={keys},expires=0,avg_ttl=0\r\n");
        }
        all.retain(|(name, text)| !text.is_empty() || *name == "Keyspace");
        all
    }

    fn server(&self) -> String {
        let uptime = self.started.elapsed().as_secs();
        let port = self.addresses.first().map_or(0, std::net::SocketAddr::port);
        format!(
            "redis_version:{REDIS_VERSION}\r\nserver_name:rstore\r\nrstore_version:{}\r\nredis_mode:{}\r\n\
             os:{}\r\narch_bits:64\r\nprocess_id:{}\r\nrun_id:{}\r\ntcp_port:{port}\r\n\
             uptime_in_seconds:{uptime}\r\nuptime_in_days:{}\r\npartitions:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            if self.cluster { "cluster" } else { "standalone" },
            std::env::consts::OS,
            std::process::id(),
            self.node(0),
            uptime / 86_400,
            self.partitions(),
        )
    }

    fn clients(&self) -> String {
        format!(
            "connected_clients:{}\r\nmaxclients:{}\r\n",
            self.connections.load(Relaxed),
            self.limits.maxclients.load(Relaxed),
        )
    }

    fn memory(&self) -> String {
        let dram = self.total(|figures| &figures.dram_bytes);
        format!(
            "used_memory:{dram}\r\nmaxmemory:{}\r\nmaxmemory_policy:noeviction\r\nlive_bytes:{}\r\n\
             log_bytes:{}\r\n",
            self.total(|figures| &figures.capacity),
            self.total(|figures| &figures.live_bytes),
            self.total(|figures| &figures.log_bytes),
        )
    }

    fn persistence(&self) -> String {
        format!(
            "loading:0\r\nrdb_last_save_time:{}\r\naof_enabled:0\r\n{}",
            self.last_save.load(Relaxed),
            self.opened.get().map_or("", String::as_str),
        )
    }

    fn stats(&self) -> String {
        format!(
            "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
             total_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\nrejected_connections:{}\r\n\
             expired_keys:{}\r\nevicted_keys:0\r\ntotal_error_replies:{}\r\ntotal_writes:{}\r\n\
             commits:{}\r\nforwarded_commands:{}\r\ncollected_bytes:{}\r\nstalls:{}\r\n\
             damaged_collections:{}\r\n",
            self.accepted.load(Relaxed),
            self.total(|figures| &figures.commands),
            self.total(|figures| &figures.received),
            self.total(|figures| &figures.sent),
            self.rejected.load(Relaxed),
            self.total(|figures| &figures.expired),
            self.total(|figures| &figures.refused),
            self.total(|figures| &figures.writes),
            self.total(|figures| &figures.commits),
            self.total(|figures| &figures.forwarded),
            self.total(|figures| &figures.copied_bytes),
            self.total(|figures| &figures.stalls),
            self.total(|figures| &figures.damaged),
        )
    }

    /// Returns the metrics in Prometheus's text format.
    pub(crate) fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut whole = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        whole(
            "rstore_uptime_seconds",
            "gauge",
            "Seconds since the start.",
            self.started.elapsed().as_secs(),
        );
        whole(
            "rstore_connected_clients",
            "gauge",
            "Connections.",
            self.connections.load(Relaxed) as u64,
        );
        whole(
            "rstore_connections_total",
            "counter",
            "Connections since the start.",
            self.accepted.load(Relaxed),
        );
        whole(
            "rstore_rejected_connections_total",
            "counter",
            "Connections over the limit.",
            self.rejected.load(Relaxed),
        );
        let parted: [(&str, &str, &str, Of); 16] = [
            ("rstore_keys", "gauge", "Keys, expired ones that were not swept yet included.", |f| {
                &f.keys
            }),
            ("rstore_commands_total", "counter", "Requests.", |f| &f.commands),
            ("rstore_refused_total", "counter", "Requests with an error as the reply.", |f| {
                &f.refused
            }),
            ("rstore_writes_total", "counter", "Commands that changed something.", |f| &f.writes),
            ("rstore_commits_total", "counter", "Commits: one for all writes of a turn.", |f| {
                &f.commits
            }),
            ("rstore_turns_total", "counter", "Turns of the event loop.", |f| &f.turns),
            ("rstore_forwarded_total", "counter", "Commands for keys of another thread.", |f| {
                &f.forwarded
            }),
            ("rstore_received_bytes_total", "counter", "Bytes from clients.", |f| &f.received),
            ("rstore_sent_bytes_total", "counter", "Bytes to clients.", |f| &f.sent),
            ("rstore_live_bytes", "gauge", "Bytes of live records.", |f| &f.live_bytes),
            ("rstore_capacity_bytes", "gauge", "Bytes that records may take.", |f| &f.capacity),
            ("rstore_log_bytes", "gauge", "Bytes of the log.", |f| &f.log_bytes),
            ("rstore_dram_bytes", "gauge", "Bytes of DRAM that the engine uses.", |f| {
                &f.dram_bytes
            }),
            ("rstore_collected_bytes_total", "counter", "Bytes that collection copied.", |f| {
                &f.copied_bytes
            }),
            ("rstore_expired_total", "counter", "Records that expired.", |f| &f.expired),
            (
                "rstore_damaged_collections",
                "gauge",
                "Collections that are left as they are.",
                |f| &f.damaged,
            ),
        ];
        for (name, kind, help, of) in parted {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (number, figures) in self.figures.iter().enumerate() {
                let value = of(figures).load(Relaxed);
                let (first, last) = slot::range(number, self.partitions());
                let _ = writeln!(
                    text,
                    "{name}{{partition=\"{number}\",slots=\"{first}-{last}\"}} {value}"
                );
            }
        }
        text
    }
}
