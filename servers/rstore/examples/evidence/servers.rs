//! The servers that are measured, each on the first processor, and their folders.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use pmindex_pibench::Pinned;
use rstore_server::{
    AOF, Bytes, Client, DurabilityArg, Reply, Server, Service, Store, is_installed,
};

use crate::Fault;
use crate::load::Target;
use crate::wire::Wire;

/// The folders of a run, which are removed at its end.
pub(crate) struct Folders {
    disk: PathBuf,
    memory: PathBuf,
    next: Cell<u32>,
}

/// The folders of a server, which are removed at its end.
pub(crate) struct Places {
    disk: PathBuf,
    memory: PathBuf,
}

impl Folders {
    pub(crate) fn create(disk: &Path, memory: &Path) -> Result<Self, Fault> {
        let name = format!("pmindex-rstore-{}", std::process::id());
        let folders =
            Self { disk: disk.join(&name), memory: memory.join(&name), next: Cell::new(0) };
        folders.places()?;
        Ok(folders)
    }

    /// Returns empty folders of a server.
    fn places(&self) -> Result<Places, Fault> {
        let name = self.next.replace(self.next.get() + 1).to_string();
        let places = Places { disk: self.disk.join(&name), memory: self.memory.join(&name) };
        fs::create_dir_all(&places.disk)?;
        fs::create_dir_all(&places.memory)?;
        Ok(places)
    }
}

fn remove(disk: &Path, memory: &Path) {
    let _ = fs::remove_dir_all(disk);
    let _ = fs::remove_dir_all(memory);
}

impl Drop for Places {
    fn drop(&mut self) {
        remove(&self.disk, &self.memory);
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        remove(&self.disk, &self.memory);
    }
}

/// A server with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// Persistent memory, emulated.
    Flush,
    /// Persistent memory, with this capacity of the pool.
    Limited(u64),
    /// In memory.
    Process,
    /// In memory, with a copy on the disk that is at most a second old.
    Periodic,
    /// On the disk.
    Journal,
    /// In memory.
    Redis,
    /// With a file on the disk, synchronised once a second.
    Everysec,
    /// With a file on the disk, synchronised before each reply.
    Always,
    /// In memory.
    Memcached,
}

/// The MiB that memcached may have; it takes what it needs.
const MEMCACHED: u32 = 8192;

impl System {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Flush | Self::Limited(_) => "RStore, PM (emulated)",
            Self::Process => "RStore, in memory",
            Self::Periodic => "RStore, `periodic:1s`, disk",
            Self::Journal => "RStore, `journal`, disk",
            Self::Redis => "Redis, in memory",
            Self::Everysec => "Redis, AOF `everysec`, disk",
            Self::Always => "Redis, AOF `always`, disk",
            Self::Memcached => "memcached",
        }
    }

    pub(crate) const fn wire(self) -> Wire {
        match self {
            Self::Memcached => Wire::Memcached,
            _ => Wire::Resp,
        }
    }

    /// Returns how it is started, in new folders.
    pub(crate) fn service(self, folders: &Folders) -> Result<(Service, Places), Fault> {
        let places = folders.places()?;
        let store = |on: &Path, durability: &str, capacity| {
            let dir = on.join("rstore");
            let durability: DurabilityArg = durability.parse()?;
            let twin = (self == Self::Periodic).then(|| places.disk.join("twin"));
            if let Some(twin) = &twin {
                fs::create_dir_all(twin)?;
            }
            let partitions = "1".into();
            Ok::<_, Fault>(Service::Rstore(Store { dir, durability, twin, partitions, capacity }))
        };
        let redis = |mode| Service::Redis(places.disk.clone(), [&AOF[..], &[mode]].concat());
        let service = match self {
            Self::Flush => store(&places.memory, "flush", None)?,
            Self::Limited(bytes) => store(&places.memory, "flush", Some(Bytes(bytes)))?,
            Self::Process => store(&places.memory, "process", None)?,
            Self::Periodic => store(&places.memory, "periodic:1s", None)?,
            Self::Journal => store(&places.disk, "journal", None)?,
            Self::Redis => Service::Redis(places.memory.clone(), Vec::new()),
            Self::Everysec => redis("everysec"),
            Self::Always => redis("always"),
            Self::Memcached => Service::Memcached(MEMCACHED),
        };
        Ok((service, places))
    }
}

/// A server that runs on the first processor. The client has the second one.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) target: Target,
    _client: Pinned,
    places: Places,
}

impl Running {
    /// Starts a server without records; `None` if its program is not installed. The records are those that its
    /// client will load, with values of this length.
    pub(crate) fn start(
        system: System,
        folders: &Folders,
        (records, value): (u64, usize),
    ) -> Result<Option<Self>, Fault> {
        let (mut service, places) = system.service(folders)?;
        if !is_installed(&service) {
            return Ok(None);
        }
        if let Service::Redis(_, options) = &mut service {
            // The rewriting of a file would take the processor for a while.
            options.extend(["--auto-aof-rewrite-percentage", "0"]);
        }
        let server = {
            let _server = Pinned::to_core(0);
            Server::start(&service)?
        };
        let (address, wire) = (server.address.clone(), system.wire());
        let target = Target { address, wire, records, value };
        Ok(Some(Self { server, target, _client: Pinned::to_core(1), places }))
    }

    /// Returns a figure of `INFO`.
    pub(crate) fn info(&self, name: &str) -> Result<u64, Fault> {
        let mut client = Client::connect(&self.target.address)?;
        let Reply::Bulk(Some(text)) = client.call(&["INFO"])? else { return Err("INFO".into()) };
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(value.ok_or_else(|| format!("INFO has no {name}"))?.trim().parse()?)
    }

    /// Returns the bytes of DRAM that the process has, without mapped files.
    pub(crate) fn dram(&self) -> Result<u64, Fault> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("RssAnon")?;
        Ok(kib.parse::<u64>()? << 10)
    }

    /// Returns the bytes of persistent memory that the pool takes.
    pub(crate) fn pool(&self) -> Result<u64, Fault> {
        use std::os::unix::fs::MetadataExt;
        let Ok(folder) = fs::read_dir(self.places.memory.join("rstore")) else { return Ok(0) };
        let mut bytes = 0;
        for file in folder {
            bytes += file?.metadata()?.blocks() * 512;
        }
        Ok(bytes)
    }
}
