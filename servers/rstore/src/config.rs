//! The settings of a server: flags, and a file with the same names. A flag overrides the file.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use pmindex_rstore::MAX_VALUE;

use crate::Error;
use crate::group::{Identity, MOST_ENTRY, Member};

/// The least size of a new pool: a block of the engine must fit into a part of it.
const LEAST_SIZE: u64 = 1 << 20;
/// The least capacity of a partition: the engine needs eight blocks, of what a group's logs leave of it.
const LEAST_CAPACITY: u64 = 2 << 20;
/// The least limit of the length of a value, which is also that of a command's name and of a key.
const LEAST_VALUE: u64 = 1 << 10;

/// Settings, as flags or in the file.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// The folder of the pools; created if it is missing
    #[arg(long, short, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// The address for clients of Redis; port 0 chooses a free port [default: 127.0.0.1:6379]
    #[arg(long, short, value_name = "ADDRESS")]
    pub listen: Option<String>,

    /// The address for clients of Redis with TLS
    #[arg(long, value_name = "ADDRESS")]
    pub tls_listen: Option<String>,

    /// The certificate chain for TLS, in PEM; the server's own certificate comes first
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The private key for TLS, in PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// The address for clients of memcached
    #[arg(long, value_name = "ADDRESS")]
    pub memcached: Option<String>,

    /// The address where Prometheus gets metrics over HTTP (/metrics)
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,

    /// The number of partitions, each with its own thread; cannot be changed later for a folder [default: 1]
    ///
    /// With --node each partition has a Raft group and a port of its own, and all nodes the same number.
    #[arg(long, value_name = "N|auto")]
    pub partitions: Option<Partitions>,

    /// Make each partition a node of a Redis Cluster; their ports begin at that of --listen
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub cluster: Option<bool>,

    /// The host name that clients of the cluster get [default: that of --listen]
    #[arg(long, value_name = "HOST")]
    pub announce: Option<String>,

    /// The number of this node in a group of servers that replicate all records; never use a number twice
    #[arg(long, value_name = "N")]
    pub node: Option<u64>,

    /// The address for the other nodes of the group; use a private network, connections are not authenticated
    #[arg(long, value_name = "ADDRESS")]
    pub peers: Option<String>,

    /// The first nodes of a new group, the same list on each: N=PEERS/CLIENTS,...; omit it to join a group
    #[arg(long, value_name = "NODES")]
    pub founders: Option<String>,

    /// The number of the group, the same on each node and on no node of another one: nodes of others are refused
    /// [default: made of --founders, or known from the other nodes]
    #[arg(long, value_name = "N")]
    pub group: Option<std::num::NonZeroU64>,

    /// What an acknowledged write survives [default: auto]
    ///
    /// `auto`: the most that the medium supports without a second file: `flush` on persistent memory, `msync` on
    /// a disk, `process` in memory (tmpfs).
    /// `process`: a kill of the process; fast on any file.
    /// `msync`: power failure, on an ordinary file, by an msync in each turn of the event loop.
    /// `journal`: power failure, on an ordinary file, by a write to a journal beside the file; on a disk
    /// it is faster than `msync`.
    /// `periodic`, or for example `periodic:20ms`: a kill of the process; a power failure loses at most the
    /// last 100 ms, or 20 ms. The pool is in memory (tmpfs) with a copy on a disk (--twin); SAVE waits for
    /// the copy.
    /// `flush`: persistent memory; on other media the same flushes and fences, emulated.
    #[arg(long, value_name = "MODE")]
    pub durability: Option<DurabilityArg>,

    /// With --durability periodic: the folder on a disk for the copies of the pools
    #[arg(long, value_name = "DIR")]
    pub twin: Option<PathBuf>,

    /// The size of a new pool, at least 1MiB, which grows automatically [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Bytes>,

    /// The size to which the pools of all partitions together may grow [default: 64GiB for each partition]
    ///
    /// An eighth of it (or 64 MiB if that is more, but a quarter at most) is for logs and tables, twice as much in
    /// a group. The rest is for records: it is `maxmemory`. Writes that add records are refused when 95 % of
    /// `maxmemory` is live, and in a group when 90 % is.
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<Bytes>,

    /// Open a damaged pool, without the lost records
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub salvage: Option<bool>,

    /// The maximum number of connections [default: 10000]
    #[arg(long, value_name = "N")]
    pub maxclients: Option<usize>,

    /// Close a connection that is idle for this many seconds; 0: never [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// The maximum length of a value, 1KiB to 64MiB [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    pub max_value: Option<Bytes>,

    /// The password of the user `default`
    #[arg(long, value_name = "PASSWORD")]
    pub requirepass: Option<String>,

    /// Users in addition to `default`; only in the file
    #[arg(skip)]
    pub user: Vec<UserSettings>,
}

/// A user in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct UserSettings {
    /// The name.
    pub name: String,
    /// The password, as text.
    pub password: Option<String>,
    /// The password's SHA-256, in hexadecimal.
    pub password_sha256: Option<String>,
    /// Categories of commands: `read`, `write`, `admin`, `pubsub`; empty: all.
    pub commands: Vec<String>,
    /// Patterns of keys; empty: all.
    pub keys: Vec<String>,
}

impl Settings {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path.display()))?;
        toml::from_str(&text)
            .map_err(|error| Error::Config { path: path.to_owned(), what: error.to_string() })
    }

    /// Returns these settings, with those of `file` where these are not set.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            dir: self.dir.or(file.dir),
            listen: self.listen.or(file.listen),
            tls_listen: self.tls_listen.or(file.tls_listen),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            memcached: self.memcached.or(file.memcached),
            metrics: self.metrics.or(file.metrics),
            partitions: self.partitions.or(file.partitions),
            cluster: self.cluster.or(file.cluster),
            announce: self.announce.or(file.announce),
            node: self.node.or(file.node),
            peers: self.peers.or(file.peers),
            founders: self.founders.or(file.founders),
            group: self.group.or(file.group),
            durability: self.durability.or(file.durability),
            twin: self.twin.or(file.twin),
            size: self.size.or(file.size),
            capacity: self.capacity.or(file.capacity),
            salvage: self.salvage.or(file.salvage),
            maxclients: self.maxclients.or(file.maxclients),
            timeout: self.timeout.or(file.timeout),
            max_value: self.max_value.or(file.max_value),
            requirepass: self.requirepass.or(file.requirepass),
            user: if self.user.is_empty() { file.user } else { self.user },
        }
    }

    /// Returns the settings of the storage.
    pub(crate) fn storage(&self) -> Result<Storage, Error> {
        let storage = Storage {
            dir: self
                .dir
                .clone()
                .ok_or(Error::Setting("--dir is missing; name the folder of the pools"))?,
            partitions: self.partitions.map(Partitions::number),
            cluster: self.cluster.unwrap_or(false),
            durability: self.durability.unwrap_or(DurabilityArg::Auto),
            twin: self.twin.clone(),
            size: self.size.map_or(64 << 20, |bytes| bytes.0),
            capacity: self.capacity.map(|bytes| bytes.0),
            salvage: self.salvage.unwrap_or(false),
        };
        if storage.size < LEAST_SIZE {
            return Err(Error::Setting("--size must be at least 1MiB"));
        }
        let is_periodic = matches!(storage.durability, DurabilityArg::Periodic(_));
        match (is_periodic, &storage.twin) {
            (true, None) => {
                Err(Error::Setting("--durability periodic needs --twin DIR, a folder on a disk"))
            }
            (false, Some(_)) => Err(Error::Setting("--twin works with --durability periodic only")),
            _ => Ok(storage),
        }
    }

    /// Returns the identity of this node, if it belongs to a group.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, Error> {
        const WRONG: &str = "--founders must be N=HOST:PORT/HOST:PORT for each node, with N from 1";
        let Some(id) = self.node else {
            // Without this a node would serve alone, and what it acknowledges would be on one machine.
            if self.peers.is_some() || self.founders.is_some() || self.group.is_some() {
                return Err(Error::Setting(
                    "--peers, --founders and --group are for a node of a group: give its number with --node, or omit them",
                ));
            }
            return Ok(None);
        };
        if self.cluster == Some(true) || self.memcached.is_some() {
            return Err(Error::Setting(
                "a node of a group (--node) has no port for memcached, and with several --partitions it is \
                 a cluster anyway; omit --cluster and --memcached",
            ));
        }
        let mut founders = Vec::new();
        for node in self.founders.iter().flat_map(|text| text.split(',')) {
            let node = node.split_once('=').and_then(|(id, place)| {
                Some((id.trim().parse().ok().filter(|id| *id > 0)?, Member::parse(place.trim())?))
            });
            founders.push(node.ok_or(Error::Setting(WRONG))?);
        }
        let peers = self.peers.clone().ok_or(Error::Setting("--node needs --peers"))?;
        let clients = self.listen.clone().unwrap_or_else(|| "127.0.0.1:6379".into());
        let me =
            founders.iter().find(|(founder, _)| *founder == id).map(|(_, place)| place.clone());
        if me.is_none() && !founders.is_empty() {
            return Err(Error::Setting("--founders does not list this --node"));
        }
        let me = me.unwrap_or(Member { peers, clients });
        if id == 0 || Member::parse(&me.text()).is_none() {
            return Err(Error::Setting(WRONG));
        }
        let (group, entry_bytes) = (self.group, MOST_ENTRY as usize);
        Ok(Some(Identity { id, me, founders, group, entry_bytes }))
    }

    /// Returns the files of the certificate and the key, if there is a port for TLS. Refuses one if this program has
    /// no TLS.
    pub(crate) fn tls(&self) -> Result<Option<(&Path, &Path)>, Error> {
        match (&self.tls_listen, &self.tls_cert, &self.tls_key) {
            (None, None, None) => Ok(None),
            _ if !cfg!(feature = "tls") => Err(Error::Setting(
                "this program was built without TLS; build it with the feature `tls`, or omit --tls-listen, \
                 --tls-cert and --tls-key",
            )),
            (Some(_), Some(certificates), Some(key)) => Ok(Some((certificates, key))),
            _ => Err(Error::Setting("--tls-listen, --tls-cert and --tls-key need each other")),
        }
    }

    /// Returns the maximum number of connections.
    pub(crate) fn most_clients(&self) -> Result<usize, Error> {
        let most = self.maxclients.unwrap_or(10_000);
        if most == 0 {
            return Err(Error::Setting("--maxclients must be at least 1"));
        }
        Ok(most)
    }

    /// Returns the maximum length of a value.
    pub(crate) fn most_value(&self) -> Result<usize, Error> {
        let most = self.max_value.map_or(MAX_VALUE as u64, |bytes| bytes.0);
        if !(LEAST_VALUE..=MAX_VALUE as u64).contains(&most) {
            return Err(Error::Setting("--max-value must be 1KiB to 64MiB"));
        }
        Ok(most as usize)
    }

    /// Returns the address of the first port.
    pub(crate) fn address(text: &str) -> Result<SocketAddr, Error> {
        use std::net::ToSocketAddrs;
        let mut all = text.to_socket_addrs().map_err(Error::io(text))?;
        all.next().ok_or(Error::Setting("an address has no host"))
    }
}

/// The settings of the storage.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) dir: PathBuf,
    pub(crate) partitions: Option<usize>,
    pub(crate) cluster: bool,
    pub(crate) durability: DurabilityArg,
    pub(crate) twin: Option<PathBuf>,
    pub(crate) size: u64,
    pub(crate) capacity: Option<u64>,
    pub(crate) salvage: bool,
}

impl Storage {
    /// Refuses a capacity that is too small for this number of partitions.
    pub(crate) fn check_capacity(&self, partitions: usize) -> Result<(), Error> {
        match self.capacity {
            Some(capacity) if capacity / (partitions as u64) < LEAST_CAPACITY => {
                Err(Error::Setting("--capacity must be at least 2MiB for each partition"))
            }
            _ => Ok(()),
        }
    }
}

/// The number of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Word")]
pub enum Partitions {
    /// One for each core.
    Auto,
    /// This many.
    Number(usize),
}

impl Partitions {
    fn number(self) -> usize {
        match self {
            Self::Auto => std::thread::available_parallelism().map_or(1, usize::from).min(1024),
            Self::Number(number) => number,
        }
    }
}

impl FromStr for Partitions {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == "auto" {
            return Ok(Self::Auto);
        }
        let number = word.parse().ok().filter(|number| (1..=1024).contains(number));
        number.map(Self::Number).ok_or_else(|| "from 1 to 1024, or auto".into())
    }
}

/// A word or a number in the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Number(u64),
}

impl Word {
    fn parse<T: FromStr<Err = String>>(self) -> Result<T, String> {
        match self {
            Self::Text(text) => text.parse(),
            Self::Number(number) => number.to_string().parse(),
        }
    }
}

impl TryFrom<Word> for Partitions {
    type Error = String;

    fn try_from(word: Word) -> Result<Self, String> {
        word.parse()
    }
}

impl TryFrom<Word> for Bytes {
    type Error = String;

    fn try_from(word: Word) -> Result<Self, String> {
        word.parse()
    }
}

impl TryFrom<Word> for DurabilityArg {
    type Error = String;

    fn try_from(word: Word) -> Result<Self, String> {
        word.parse()
    }
}

/// A number of bytes: `1048576`, `64MiB`, `16GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Word")]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let lower = word.trim().to_ascii_lowercase();
        let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
        let (digits, unit) = lower.split_at(split);
        let shift = match unit.trim() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err("write bytes as 1048576, 64MiB or 16GiB".into()),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        number.map(Self).ok_or_else(|| "write bytes as 1048576, 64MiB or 16GiB".into())
    }
}

/// A durability to require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Word")]
pub enum DurabilityArg {
    /// The strongest that the medium supports.
    Auto,
    /// Survives a kill of the process: fast on any file.
    Process,
    /// Survives power failure, on an ordinary file: msync at each fence.
    Msync,
    /// Survives power failure, on an ordinary file: a write to a journal beside it.
    Journal,
    /// Survives a kill of the process, and power failure except for the last moments: a pool in memory with a
    /// twin.
    Periodic(Duration),
    /// Persistent memory; on other media the same flushes and fences, emulated.
    Flush,
}

impl FromStr for DurabilityArg {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "auto" => Self::Auto,
            "process" => Self::Process,
            "msync" => Self::Msync,
            "journal" => Self::Journal,
            "periodic" => Self::Periodic(Duration::from_millis(100)),
            "flush" => Self::Flush,
            other => {
                let time = other.strip_prefix("periodic:").ok_or(
                    "no such mode; there are auto, process, msync, journal, periodic, flush",
                )?;
                let (number, unit) = match time.strip_suffix("ms") {
                    Some(number) => (number, 1),
                    None => (time.strip_suffix('s').unwrap_or_default(), 1000),
                };
                let number: u32 =
                    number.parse().map_err(|_| "write periodic:100ms or periodic:2s")?;
                Self::Periodic(Duration::from_millis(u64::from(number) * unit))
            }
        })
    }
}

impl fmt::Display for DurabilityArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Process => "process",
            Self::Msync => "msync",
            Self::Journal => "journal",
            Self::Periodic(every) => return write!(f, "periodic:{}ms", every.as_millis()),
            Self::Flush => "flush",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_what_flags_say() {
        let text = "dir = '/x'\nsize = '2MiB'\ncapacity = 4096\npartitions = 2\ndurability = 'periodic:5ms'\n\
                    max-value = '1k'\n[[user]]\nname = 'app'\npassword = 'p'\ncommands = ['read']\n";
        let file: Settings = toml::from_str(text).expect("valid");
        let flags = Settings { size: Some(Bytes(1)), ..Settings::default() };
        let both = flags.over(file);
        assert_eq!((both.size, both.capacity), (Some(Bytes(1)), Some(Bytes(4096))));
        assert_eq!(both.durability, Some(DurabilityArg::Periodic(Duration::from_millis(5))));
        assert_eq!(both.partitions, Some(Partitions::Number(2)));
        assert_eq!(both.user[0].name, "app");
        assert!(both.storage().is_err(), "a twin is missing");
        for bad in ["nonsense = 1", "size = 'much'", "partitions = 0", "durability = 'x'"] {
            assert!(toml::from_str::<Settings>(bad).is_err(), "{bad}");
        }
    }
}
