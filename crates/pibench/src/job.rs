//! Jobs: many operations for one thread, with their keys.

/// One operation of a mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<K, V> {
    /// Looks a key up; succeeds if it finds a value.
    Get(K),
    /// Looks a key up; succeeds if it finds none.
    GetMiss(K),
    /// Reads records from a key on; succeeds if it reads at least one.
    Scan(K),
    /// Inserts; succeeds if the key was new.
    Insert(K, V),
    /// Replaces a value; succeeds if the key existed.
    Update(K, V),
    /// Inserts or replaces; always succeeds.
    Upsert(K, V),
    /// Removes; succeeds if the key existed.
    Remove(K),
}

/// Operations for one thread; [`Op`] defines when one succeeds.
#[derive(Debug)]
pub enum Ops<'a, K, V> {
    /// Looks up keys that exist.
    Get(&'a [K]),
    /// Looks up missing keys.
    GetMiss(&'a [K]),
    /// Reads records from each key on.
    Scan(&'a [K]),
    /// Inserts.
    Insert(&'a [(K, V)]),
    /// Replaces values.
    Update(&'a [(K, V)]),
    /// Inserts or replaces.
    Upsert(&'a [(K, V)]),
    /// Removes.
    Remove(&'a [K]),
    /// Looks up keys, one batch per call.
    GetMany(&'a [K]),
    /// Inserts, one batch per call.
    InsertMany(&'a [(K, V)]),
    /// Operations of all kinds.
    Mix(&'a [Op<K, V>]),
}

/// Operations for one thread, with the sizes of scans and batches.
#[derive(Debug)]
pub struct Job<'a, K = u64, V = u64> {
    /// The operations.
    pub ops: Ops<'a, K, V>,
    /// The number of records that a scan reads.
    pub scan_length: usize,
    /// The number of operations in a call of `get_many` or `insert_many`.
    pub batch: usize,
}

impl<K, V> Clone for Ops<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Ops<'_, K, V> {}

impl<K, V> Clone for Job<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Job<'_, K, V> {}

impl<'a, K, V> Ops<'a, K, V> {
    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Get(keys)
            | Self::GetMiss(keys)
            | Self::Scan(keys)
            | Self::Remove(keys)
            | Self::GetMany(keys) => keys.len(),
            Self::Insert(records)
            | Self::Update(records)
            | Self::Upsert(records)
            | Self::InsertMany(records) => records.len(),
            Self::Mix(ops) => ops.len(),
        }
    }

    /// Returns `true` if there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the operations from `from` to below `to`.
    fn part(self, from: usize, to: usize) -> Ops<'a, K, V> {
        match self {
            Self::Get(keys) => Self::Get(&keys[from..to]),
            Self::GetMiss(keys) => Self::GetMiss(&keys[from..to]),
            Self::Scan(keys) => Self::Scan(&keys[from..to]),
            Self::Remove(keys) => Self::Remove(&keys[from..to]),
            Self::GetMany(keys) => Self::GetMany(&keys[from..to]),
            Self::Insert(records) => Self::Insert(&records[from..to]),
            Self::Update(records) => Self::Update(&records[from..to]),
            Self::Upsert(records) => Self::Upsert(&records[from..to]),
            Self::InsertMany(records) => Self::InsertMany(&records[from..to]),
            Self::Mix(ops) => Self::Mix(&ops[from..to]),
        }
    }
}

impl<'a, K, V> Job<'a, K, V> {
    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns `true` if there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Splits the job into jobs of one call each: an operation, or a batch.
    pub fn calls(self) -> impl Iterator<Item = Job<'a, K, V>> {
        let batched = matches!(self.ops, Ops::GetMany(_) | Ops::InsertMany(_));
        self.parts(if batched { self.batch } else { 1 })
    }

    /// Splits the job into jobs of `size` operations.
    pub fn parts(self, size: usize) -> impl Iterator<Item = Job<'a, K, V>> {
        let len = self.len();
        let starts = (0..len).step_by(size.max(1));
        starts.map(move |from| Job { ops: self.ops.part(from, len.min(from + size)), ..self })
    }
}
