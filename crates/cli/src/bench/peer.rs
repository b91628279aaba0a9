//! Other stores, measured beside the indexes: each in a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pmindex::{Key, Value};
use pmindex_pibench::{BenchSubject, MakePeer, Peer};

use crate::bench::bed::{Bench, Makers, Reopened, Setup};
use crate::error::CliError;
use crate::interrupt::{Fate, Registered};

/// The peers of this program.
static PEERS: OnceLock<&'static [Peer]> = OnceLock::new();

/// Sets the peers of this program, once, at its start.
pub(crate) fn set(peers: &'static [Peer]) {
    let _ = PEERS.set(peers);
}

/// Returns all peers of this program.
pub(crate) fn all() -> &'static [Peer] {
    PEERS.get().copied().unwrap_or_default()
}

/// Types of keys and values for which a peer may be made.
pub(crate) trait Made: Key + Value {
    /// Returns the function that makes the peer, if it can hold such records.
    fn make(peer: &Peer) -> Option<MakePeer<Self, Self>>;
}

impl Made for u64 {
    fn make(peer: &Peer) -> Option<MakePeer> {
        Some(peer.make)
    }
}

impl Made for Vec<u8> {
    fn make(peer: &Peer) -> Option<MakePeer<Self, Self>> {
        peer.bytes
    }
}

/// Returns the makers of any peer.
pub(crate) const fn makers<T: Made>() -> Makers<T, T> {
    Makers {
        make: |setup| Ok(Box::new(Store::<T>::create(setup)?)),
        counting: None,
        subprocess: None,
    }
}

/// A peer that is being measured, and its folder.
struct Store<T> {
    peer: &'static Peer,
    /// Dropped before its folder is removed.
    subject: Option<Box<dyn BenchSubject<T, T>>>,
    dir: PathBuf,
    _registered: Registered,
}

impl<T: Made> Store<T> {
    fn create(setup: Setup<'_>) -> Result<Self, CliError> {
        let unknown = || CliError::UnknownIndex { name: setup.name.into() };
        let peer = all().iter().find(|peer| peer.name == setup.name).ok_or_else(unknown)?;
        let dir = setup.path.with_extension("peer");
        let failed = |error| CliError::File { path: dir.clone(), error };
        if peer.files {
            std::fs::create_dir(&dir).map_err(failed)?;
        }
        let registered = Registered::new(&dir, Fate::RemoveFolder);
        let mut store = Self { peer, subject: None, dir, _registered: registered };
        let make = T::make(peer).ok_or_else(unknown)?;
        store.subject = Some(make(&store.dir)?);
        Ok(store)
    }
}

impl<T> Drop for Store<T> {
    fn drop(&mut self) {
        self.subject = None;
        if self.peer.files {
            // If this fails, files remain in a temporary folder.
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

impl<T: Made> Bench<T, T> for Store<T> {
    fn subject(&self) -> &dyn BenchSubject<T, T> {
        self.subject.as_deref().expect("it is there until the end")
    }

    fn durability(&self) -> (String, String) {
        (self.peer.durability.into(), self.peer.words.into())
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn stored_bytes(&self) -> Option<u64> {
        self.peer.files.then(|| size_of(&self.dir))
    }

    fn crash_and_open(self: Box<Self>) -> Result<Option<Reopened>, CliError> {
        Ok(None)
    }
}

/// Returns the bytes that all files below a folder occupy, without holes.
fn size_of(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(file) if file.is_dir() => size_of(&entry.path()),
        Ok(file) => file.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
