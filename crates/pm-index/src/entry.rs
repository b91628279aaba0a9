//! The entry of an index in a pool's directory, and how an index is created and opened through it.

use pmindex_core::{Flushed, IndexEntry, Medium, OpenIndex, PmError, PmType, Pool};

use crate::error::IndexError;

/// The directory's entry of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexFormat<F> {
    /// The type of index: 8 ASCII bytes.
    pub kind: [u8; 8],
    /// A number for the types and capacities of the index.
    pub layout: u64,
    /// Returns that number for keys and values whose types have these names.
    pub layout_of: fn(&str, &str) -> u64,
    /// The type and layout, for people.
    pub wanted: F,
}

impl<F: Fn() -> String> IndexFormat<F> {
    /// Creates the index `name` with a new root block, which `init` fills and flushes, and opens it.
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

    /// Creates the index as [`create`](Self::create) does, and starts it. If starting fails while the root
    /// is `vacant`, the index is removed again.
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
        self.open_either(self, pool, name)
    }

    /// As [`open`](Self::open), of an index of this layout or of an `earlier` one, which the result tells.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_either<M: Medium>(
        &self,
        earlier: &Self,
        pool: &Pool<M>,
        name: &str,
    ) -> Result<OpenIndex, IndexError> {
        let missing = || IndexError::NoSuchIndex { name: name.into() };
        // The wrong type is told first, whether or not the index is open.
        self.check(earlier, &pool.find_index(name)?.ok_or_else(missing)?)?;
        let open = pool.open_index(name)?.ok_or_else(missing)?;
        self.check(earlier, &open)?; // it may have been dropped and created anew in between
        Ok(open)
    }

    fn check(&self, earlier: &Self, entry: &IndexEntry) -> Result<(), IndexError> {
        let name = entry.name.clone();
        if entry.kind != self.kind {
            let found = String::from_utf8_lossy(&entry.kind);
            let found = found.trim_end_matches(['\0', ' ']).to_owned();
            return Err(IndexError::WrongType { name, found, wanted: (self.wanted)() });
        }
        if entry.layout != self.layout && entry.layout != earlier.layout {
            let (wanted, layout) = ((self.wanted)(), entry.layout);
            return Err(IndexError::wrong_layout(&name, wanted, layout, |key, value| {
                let of_earlier = (earlier.layout_of)(key, value);
                if of_earlier == layout { of_earlier } else { (self.layout_of)(key, value) }
            }));
        }
        Ok(())
    }
}
