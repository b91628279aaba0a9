//! An index as the directory of a pool knows it: what creating and opening have in common.

use pmindex_core::{Flushed, IndexEntry, Medium, OpenIndex, PmError, PmType, Pool};

use crate::error::IndexError;

/// As what an index stands in the directory.
#[derive(Clone, Copy, Debug)]
pub struct Listed<F> {
    /// The type of index: 8 ASCII bytes.
    pub kind: [u8; 8],
    /// Its types and capacities, as a number.
    pub layout: u64,
    /// The same number for keys and values of these names.
    pub layout_of: fn(&str, &str) -> u64,
    /// The type and layout, for people.
    pub wanted: F,
}

impl<F: Fn() -> String> Listed<F> {
    /// Enters the index `name` with a new root block, which `init` fills and flushes. It is open.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create<R: PmType, M: Medium>(
        &self,
        pool: &Pool<M>,
        name: &str,
        init: impl FnOnce(&R) -> Flushed,
    ) -> Result<OpenIndex, IndexError> {
        pool.create_index(name, self.kind, self.layout, init).map_err(|error| match error {
            PmError::NameTaken { name } => IndexError::IndexExists { name },
            error => error.into(),
        })
    }

    /// As [`create`](Self::create), and starts the index. If that fails while its root is `vacant`, there
    /// is no index either.
    ///
    /// # Errors
    /// Those of `create` and of `start`.
    pub fn create_and_start<R: PmType, M: Medium, I>(
        &self,
        pool: &Pool<M>,
        name: &str,
        init: impl FnOnce(&R) -> Flushed,
        start: impl FnOnce(OpenIndex) -> Result<I, IndexError>,
        vacant: impl FnOnce(&R) -> bool,
    ) -> Result<I, IndexError> {
        let created = start(self.create(pool, name, init)?);
        if created.is_err() {
            pool.undo_create_index(name, |index| Ok(vacant(pool.get(index.root::<R>())?)))?;
        }
        created
    }

    /// Opens the index `name`, if it has this type and layout, until the result is dropped.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`];
    /// [`PmError::AlreadyOpen`].
    pub fn open<M: Medium>(&self, pool: &Pool<M>, name: &str) -> Result<OpenIndex, IndexError> {
        let missing = || IndexError::NoSuchIndex { name: name.into() };
        // Another type is the wrong one whether or not the index is open.
        self.check(&pool.find_index(name)?.ok_or_else(missing)?)?;
        let open = pool.open_index(name)?.ok_or_else(missing)?;
        self.check(&open)?; // it may have been dropped and created anew in between
        Ok(open)
    }

    fn check(&self, entry: &IndexEntry) -> Result<(), IndexError> {
        let name = entry.name.clone();
        if entry.kind != self.kind {
            let found = String::from_utf8_lossy(&entry.kind);
            let found = found.trim_end_matches(['\0', ' ']).to_owned();
            return Err(IndexError::WrongType { name, found, wanted: (self.wanted)() });
        }
        if entry.layout != self.layout {
            let (wanted, layout) = ((self.wanted)(), entry.layout);
            return Err(IndexError::wrong_layout(&name, wanted, layout, self.layout_of));
        }
        Ok(())
    }
}
