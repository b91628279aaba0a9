//! The time from the start after `kill -9` to the first reply, with all acknowledged writes verified.

use rstore_server::{Service, VALUE_SIZE, attempt, is_installed};

use crate::servers::System;
use crate::table::{Table, thousands};
use crate::{Fault, Scale};

const SYSTEMS: [System; 2] = [System::Flush, System::Everysec];
/// Connections that write.
const CONNECTIONS: u64 = 4;
/// Partitions of RStore, each with a thread of its own.
const PARTITIONS: &str = "2";

/// The table.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let mut table = Table::new(&[
        "",
        "records",
        "writes: thousand/s",
        "first reply after, ms",
        "lost of the acknowledged",
        "reading all, s",
    ]);
    let (mut times, mut missing) = (Vec::new(), "");
    for system in SYSTEMS {
        let (mut service, _places) = system.service(&scale.folders)?;
        if let Service::Rstore(store) = &mut service {
            store.partitions = PARTITIONS.into();
        }
        if !is_installed(&service) {
            missing = "Redis is left out, because its program is not installed. ";
            continue;
        }
        let outcome = attempt(&service, scale.records, CONNECTIONS)?;
        let ready = outcome.ready_in.as_secs_f64();
        times.push(ready);
        let cells = [
            outcome.acknowledged.to_string(),
            thousands(outcome.rate),
            format!("{:.1}", ready * 1e3),
            outcome.lost.to_string(),
            format!("{:.1}", outcome.verified_in.as_secs_f64()),
        ];
        table.row(system.name(), cells);
    }
    let ratio = match times[..] {
        [ours, other] => {
            format!("RStore replies {:.1} times sooner; the aim is 20 times. ", other / ours)
        }
        _ => String::new(),
    };
    Ok(format!(
        "\n## After a kill\n\n{CONNECTIONS} connections write records of {VALUE_SIZE} bytes, each with 64 requests in \
         flight, until {} are acknowledged; then SIGKILL while they write, and a restart. Both servers may use both \
         processors: RStore has {PARTITIONS} partitions, and Redis rewrites its file as it does by default:\n{}\n\
         {missing}{ratio}RStore reads its blocks and the end of its log, and builds the index again; Redis reads its file \
         and builds its table. What both read is in the page cache. Redis with AOF `always` reads the same file, and \
         memcached has nothing after a kill.\n",
        scale.records,
        table.text()
    ))
}
