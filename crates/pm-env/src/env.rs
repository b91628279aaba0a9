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
/// Any number of threads may use it; names are changed one after another.
pub struct Env<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
}

/// How files take their space.
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
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the first extent of a file, and of its largest ones; in between each new extent doubles the
    /// file. 4 KiB and 2 MiB unless said otherwise; 128 bytes at least.
    #[must_use]
    pub fn extents(mut self, bytes: RangeInclusive<u64>) -> Self {
        let line = |bytes: u64| bytes.next_multiple_of(LINE as u64).max(128);
        let first = line(*bytes.start());
        self.extents = first..=line(*bytes.end()).max(first);
        self
    }
}

/// What the environment and its open files share.
pub(crate) struct Shared<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    root: PPtr<Root>,
    directory: Mutex<Directory>,
    locks: Mutex<HashSet<String>>,
    pub(crate) extents: RangeInclusive<u64>,
    /// Last: then somebody else may open it.
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
    /// Gives the space of dead files back that nobody has open.
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

/// Refuses what is no name.
fn check_name(name: &str) -> Result<(), EnvError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(EnvError::BadName { len: name.len() });
    }
    Ok(())
}

impl<M: Medium> Env<M> {
    /// Makes an environment without files.
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

    /// Opens the environment of this name, if there is one. The space of files that a crash left without a
    /// name is given back first.
    ///
    /// # Errors
    /// [`PmError::NameTaken`] if the name is that of something else, [`PmError::AlreadyOpen`],
    /// [`PmError::Corrupt`] if a name is damaged. A file that is damaged says so when it is opened.
    ///
    /// # Cost
    /// Reads each file's extents, not what they contain.
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

    /// Opens the environment of this name, or makes it, with the default options.
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

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.shared.pool
    }

    fn directory(&self) -> parking_lot::MutexGuard<'_, Directory> {
        self.shared.pool.pm().lock(&self.shared.directory)
    }

    /// Makes a file with nothing in it, in place of the one of this name, if there is one.
    ///
    /// # Durability
    /// The name is durable when this returns; after a crash before there is the new file, or what there was.
    ///
    /// # Errors
    /// [`EnvError::BadName`]; the pool's.
    ///
    /// # Cost
    /// 2 fences; one more and those of a delete if there is a file of this name.
    pub fn create_file(&self, name: &str) -> Result<File<M>, EnvError> {
        check_name(name)?;
        self.shared.pool.check_writable()?;
        let created = self.directory().create(&self.shared.pool, self.shared.root, name);
        let file = File::new(&self.shared, &created?);
        self.free_dead();
        Ok(file)
    }

    /// Opens a file, to read and to append.
    ///
    /// # Errors
    /// [`EnvError::NoSuchFile`]; [`PmError::Corrupt`] if it is damaged.
    pub fn open_file(&self, name: &str) -> Result<File<M>, EnvError> {
        let directory = self.directory();
        let node = &directory.find(name)?.node;
        node.check()?;
        Ok(File::new(&self.shared, node))
    }

    /// Opens a file, or makes it.
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

    /// Whether there is a file of this name.
    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        self.directory().files.contains_key(name)
    }

    /// Gives a file another name, in place of the file that has it, if there is one: at no moment, and after
    /// no crash, are there both names of it, or none.
    ///
    /// # Errors
    /// [`EnvError::NoSuchFile`], [`EnvError::BadName`]; the pool's.
    ///
    /// # Cost
    /// 2 fences; one more and those of a delete if there is a file of the other name.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), EnvError> {
        check_name(to)?;
        self.shared.pool.check_writable()?;
        self.directory().rename(&self.shared.pool, from, to)?;
        self.free_dead();
        Ok(())
    }

    /// Deletes a file. Who has it open reads on; its space is given back after that.
    ///
    /// # Errors
    /// [`EnvError::NoSuchFile`]; the pool's.
    ///
    /// # Cost
    /// One fence; 2 more, and 2 for each extent, to give back the space.
    pub fn delete(&self, name: &str) -> Result<(), EnvError> {
        self.shared.pool.check_writable()?;
        self.directory().delete(&self.shared.pool, name)?;
        self.free_dead();
        Ok(())
    }

    /// As [`Shared::free_dead`], after what is durable.
    fn free_dead(&self) {
        // What cannot be given back now is later, by the next opening at the latest.
        let _ = self.shared.free_dead();
    }

    /// The names that begin with `prefix`, in order.
    #[must_use]
    pub fn list(&self, prefix: &str) -> Vec<String> {
        let directory = self.directory();
        let from = directory.files.range(prefix.to_owned()..);
        from.map(|(name, _)| name.clone()).take_while(|name| name.starts_with(prefix)).collect()
    }

    /// Locks a name, whether there is a file of it or not, until the result is dropped. Another process
    /// cannot have the pool open meanwhile, so a lock is not kept in it.
    ///
    /// # Errors
    /// [`EnvError::Locked`].
    pub fn lock(&self, name: &str) -> Result<FileLock<M>, EnvError> {
        if !self.shared.locks.lock().insert(name.into()) {
            return Err(EnvError::Locked { name: name.into() });
        }
        Ok(FileLock { shared: Arc::clone(&self.shared), name: name.into() })
    }

    /// Verifies the files: the bytes that they have.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: what and where.
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

    /// The offsets of all its blocks, for the allocator's audit.
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
