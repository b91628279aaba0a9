//! The state that all threads share: settings, users, and figures.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::access::Users;
use crate::config::Settings;
use crate::group::View;
use crate::shard::Folder;

/// The figures of one thread, which only it writes.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) keys: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) forwarded: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) live_bytes: AtomicU64,
    pub(crate) capacity: AtomicU64,
    pub(crate) dram_bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) damaged: AtomicU64,
}

/// Adds to a figure that only this thread writes.
pub(crate) fn add(figure: &AtomicU64, number: u64) {
    figure.store(figure.load(Relaxed) + number, Relaxed);
}

/// Limits that `CONFIG SET` can change.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) maxclients: AtomicUsize,
    pub(crate) timeout: AtomicU64,
}

impl Limits {
    /// Returns the limits of these settings.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        let maxclients = AtomicUsize::new(settings.most_clients()?);
        Ok(Self { maxclients, timeout: AtomicU64::new(settings.timeout.unwrap_or(0)) })
    }
}

/// The state that all threads share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) settings: Settings,
    pub(crate) folder: Folder,
    pub(crate) cluster: bool,
    pub(crate) users: Users,
    pub(crate) limits: Limits,
    pub(crate) max_value: usize,
    pub(crate) started: Instant,
    /// The time of the last `SAVE` or `BACKUP`, in seconds since 1970.
    pub(crate) last_save: AtomicU64,
    pub(crate) figures: Vec<Figures>,
    /// What each thread knows of the group of its partition; empty if there are no groups.
    pub(crate) groups: Vec<Mutex<View>>,
    pub(crate) connections: AtomicUsize,
    pub(crate) next_connection: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    /// `true` when the server is to end.
    pub(crate) stopping: AtomicBool,
    /// Wakes the thread that accepts connections.
    pub(crate) control: Arc<mio::Waker>,
    /// The address of each partition, in a cluster, or of the server.
    pub(crate) addresses: Vec<SocketAddr>,
    /// How the pools were opened, for `INFO`.
    pub(crate) opened: OnceLock<String>,
}

/// Returns the milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// Returns `true` if the time `at` of something that is done every `every` milliseconds has come. It is never
/// further away, unless the clock has gone back.
pub(crate) fn is_due(now: u64, at: u64, every: u64) -> bool {
    now >= at || at > now.saturating_add(every)
}

impl Common {
    pub(crate) fn partitions(&self) -> usize {
        self.folder.partitions
    }

    /// Returns what is known of the group of a partition.
    pub(crate) fn view(&self, partition: usize) -> View {
        let view = self.groups.get(partition).and_then(|view| view.lock().ok());
        view.map_or_else(View::default, |view| view.clone())
    }

    /// Returns the sum of a figure over all threads.
    pub(crate) fn total(&self, of: impl Fn(&Figures) -> &AtomicU64) -> u64 {
        self.figures.iter().map(|figures| of(figures).load(Relaxed)).sum()
    }

    /// Ends the server.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
        let _ = self.control.wake();
    }

    /// Returns the name of a node of the cluster: 40 hexadecimal digits that never change.
    pub(crate) fn node(&self, number: usize) -> String {
        use sha2::{Digest, Sha256};
        let seed = format!("{}#{number}", self.folder.path.display());
        let digest = Sha256::digest(seed.as_bytes());
        digest.iter().take(20).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }
}
