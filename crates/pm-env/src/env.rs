//! An environment: named files in a pool.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::{LINE, Mapped, Medium, OpenIndex, PPtr, PmError, Pool};

use crate::directory::{self, Directory};
use crate::error::EnvError;
use crate::file::File;
use crate::layout::{FORMAT, KIND, NAME_MAX, Root, checked};

/// Append-only named files in a pool. See the [crate](crate).
///
/// All methods may be called from many threads; changes of names are serialized.
pub struct Env<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
}

/// The sizes of the extents of files.
#[derive(Clone, Debug)]
pub struct EnvOptions {
    extents: RangeInclusive<u64>,
}

impl Default for EnvOptions {
    fn default() -> Self {
        Self { extents: 4 << 10..=2 << 20 }
    }
}

impl EnvOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bytes of the first extent of a file, and of its largest extents; in between, each new extent
    /// doubles the file. The defaults are 4 KiB and 2 MiB; the minimum is 128 bytes.
    #[must_use]
    pub fn extents(mut self, bytes: RangeInclusive<u64>) -> Self {
        let line = |bytes: u64| bytes.next_multiple_of(LINE as u64).max(128);
        let first = line(*bytes.start());
        self.extents = first..=line(*bytes.end()).max(first);
        self
    }
}

/// The state that the environment and its open files share.
pub(crate) struct Shared<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    root: PPtr<Root>,
    directory: Mutex<Directory>,
    locks: Mutex<HashSet<String>>,
    pub(crate) extents: RangeInclusive<u64>,
    /// Dropped last: then another handle may open the environment.
    open: OpenIndex,
}

impl<M: Medium> Clone for Env<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Medium> fmt::Debug for Env<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("root", &self.shared.root).finish_non_exhaustive()
    }
}

impl<M: Medium> fmt::Debug for Shared<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("root", &self.root).finish_non_exhaustive()
    }
}

impl<M: Medium> Shared<M> {
    /// Gives the space of dead files without open handles back.
    pub(crate) fn free_dead(&self) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pool.pm());
        loop {
            let Some(dead) = pm.lock(&self.directory).take_dead() else { return Ok(()) };
            let freed = directory::free(pool, &dead);
            pm.lock(&self.directory).buried(dead, freed.is_ok());
            freed?;
        }
    }
}

/// Refuses invalid names.
fn check_name(name: &str) -> Result<(), EnvError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(EnvError::BadName { len: name.len() });
    }
    Ok(())
}

impl<M: Medium> Env<M> {
    /// Creates an environment without files.
    ///
    /// # Errors
    /// [`PmError::NameTaken`] and those of [`Pool::create_index`].
    ///
    /// # Cost
    /// 2 fences.
    pub fn create(pool: &Arc<Pool<M>>, name: &str, options: &EnvOptions) -> Result<Self, EnvError> {
        let pm = pool.pm();
        let open = pool.create_index::<Root>(name, KIND, FORMAT, |root| {
            pm.store(&root.slots, PPtr::NULL);
            root.reserved.iter().for_each(|word| pm.store(word, 0));
            pm.flush(root)
        })?;
        Self::start(pool, open, options)
    }

    /// Opens the environment with this name, if it exists. First gives back the space of files that a crash
    /// left without a name.
    ///
    /// # Errors
    /// [`PmError::NameTaken`] if the name belongs to a structure of another type, [`PmError::AlreadyOpen`],
    /// [`PmError::Corrupt`] if a name is damaged. A damaged file is reported when it is opened.
    ///
    /// # Cost
    /// Reads the extents of each file, not their contents.
    pub fn open(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &EnvOptions,
    ) -> Result<Option<Self>, EnvError> {
        let Some(open) = pool.open_index(name)? else { return Ok(None) };
        if open.kind != KIND || open.layout != FORMAT {
            return Err(PmError::NameTaken { name: name.into() }.into());
        }
        Self::start(pool, open, options).map(Some)
    }

    /// Opens the environment with this name, or creates it with the default options.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, EnvError> {
        let options = EnvOptions::default();
        let there = Self::open(pool, name, &options)?;
        there.map_or_else(|| Self::create(pool, name, &options), Ok)
    }

    fn start(pool: &Arc<Pool<M>>, open: OpenIndex, options: &EnvOptions) -> Result<Self, EnvError> {
        let root = open.root::<Root>();
        let directory = Mutex::new(Directory::read(pool, root)?);
        let (pool, locks) = (Arc::clone(pool), Mutex::default());
        let extents = options.extents.clone();
        let shared = Arc::new(Shared { pool, root, directory, locks, extents, open });
        if !shared.pool.is_read_only() {
            let _recovery = shared.pool.recovery();
            shared.free_dead()?;
        }
        Ok(Self { shared })
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.shared.pool
    }

    fn directory(&self) -> parking_lot::MutexGuard<'_, Directory> {
        self.shared.pool.pm().lock(&self.shared.directory)
    }

    /// Creates an empty file, replacing the file of this name, if there is one.
    ///
    /// # Durability
    /// The name is durable on return. After an earlier crash the name has the new file, or its earlier one.
    ///
    /// # Errors
    /// [`EnvError::BadName`]; errors of the pool.
    ///
    /// # Cost
    /// 2 fences; if it replaces a file, one more and those of a delete.
    pub fn create_file(&self, name: &str) -> Result<File<M>, EnvError> {
        check_name(name)?;
        self.shared.pool.check_writable()?;
        let created = self.directory().create(&self.shared.pool, self.shared.root, name);
        let file = File::new(&self.shared, &created?);
        self.free_dead();
        Ok(file)
    }

    /// Opens a file for reading and appending.
    ///
    /// # Errors
    /// [`EnvError::NoSuchFile`]; [`PmError::Corrupt`] if it is damaged.
    pub fn open_file(&self, name: &str) -> Result<File<M>, EnvError> {
        let directory = self.directory();
        let node = &directory.find(name)?.node;
        node.check()?;
        Ok(File::new(&self.shared, node))
    }

    /// Opens a file, or creates it.
    ///
    /// # Errors
    /// Those of [`open_file`](Self::open_file) and [`create_file`](Self::create_file).
    pub fn open_or_create_file(&self, name: &str) -> Result<File<M>, EnvError> {
        check_name(name)?;
        let mut directory = self.directory();
        if let Some(named) = directory.files.get(name) {
            named.node.check()?;
            return Ok(File::new(&self.shared, &named.node));
        }
        self.shared.pool.check_writable()?;
        let node = directory.create(&self.shared.pool, self.shared.root, name)?;
        Ok(File::new(&self.shared, &node))
    }

    /// Returns `true` if a file of this name exists.
    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        self.directory().files.contains_key(name)
    }

    /// Renames a file, replacing the file of the new name, if there is one. At any moment, and after any
    /// crash, the file has exactly one of the two names.
    ///
    /// # Errors
    /// [`EnvError::NoSuchFile`], [`EnvError::BadName`]; errors of the pool.
    ///
    /// # Cost
    /// 2 fences; if it replaces a file, one more and those of a delete.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), EnvError> {
        check_name(to)?;
        self.shared.pool.check_writable()?;
        self.directory().rename(&self.shared.pool, from, to)?;
        self.free_dead();
        Ok(())
    }

    /// Deletes a file. Open handles can still read it; its space is given back when the last one is dropped.
    ///
    /// # Errors
    /// [`EnvError::NoSuchFile`]; errors of the pool.
    ///
    /// # Cost
    /// One fence; 2 more, and 2 for each extent, to give the space back.
    pub fn delete(&self, name: &str) -> Result<(), EnvError> {
        self.shared.pool.check_writable()?;
        self.directory().delete(&self.shared.pool, name)?;
        self.free_dead();
        Ok(())
    }

    /// Does the same as [`Shared::free_dead`], after a durable change, whose outcome it does not alter.
    fn free_dead(&self) {
        // Space that cannot be given back now is given back later, at the latest when the environment is
        // opened.
        let _ = self.shared.free_dead();
    }

    /// Returns the names that begin with `prefix`, in order.
    #[must_use]
    pub fn list(&self, prefix: &str) -> Vec<String> {
        let directory = self.directory();
        let from = directory.files.range(prefix.to_owned()..);
        from.map(|(name, _)| name.clone()).take_while(|name| name.starts_with(prefix)).collect()
    }

    /// Locks a name, whether or not it has a file, until the result is dropped. The lock is kept in DRAM,
    /// since no other process can open the pool meanwhile.
    ///
    /// # Errors
    /// [`EnvError::Locked`].
    pub fn lock(&self, name: &str) -> Result<FileLock<M>, EnvError> {
        if !self.shared.locks.lock().insert(name.into()) {
            return Err(EnvError::Locked { name: name.into() });
        }
        Ok(FileLock { shared: Arc::clone(&self.shared), name: name.into() })
    }

    /// Verifies all files; returns the number of their bytes.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] says what is wrong and where.
    pub fn check(&self) -> Result<u64, EnvError> {
        let directory = self.directory();
        let mut bytes = 0;
        for named in directory.files.values() {
            let node = &named.node;
            node.check()?;
            let stored = self.shared.pool.pm().load(&self.shared.pool.get(node.inode)?.length);
            if stored != checked(node.len()) {
                let (what, offset) = ("the length of a file", node.inode.offset());
                return Err(PmError::Corrupt { what, offset }.into());
            }
            bytes += node.len();
        }
        Ok(bytes)
    }

    /// Returns the offsets of all its blocks, for the allocator's audit.
    #[must_use]
    pub fn blocks(&self) -> Vec<u64> {
        let mut blocks = self.directory().blocks();
        blocks.push(self.shared.open.block());
        blocks
    }
}

/// The lock of a name, until it is dropped. See [`Env::lock`].
#[derive(Debug)]
#[must_use = "it is unlocked when this is dropped"]
pub struct FileLock<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
    name: String,
}

impl<M: Medium> Drop for FileLock<M> {
    fn drop(&mut self) {
        self.shared.locks.lock().remove(&self.name);
    }
}
