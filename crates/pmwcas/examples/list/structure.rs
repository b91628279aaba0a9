//! A sorted, doubly linked list of keys and values: lock-free, durable, with no recovery of its own.
//!
//! ```text
//! operation  words it changes together
//! insert     pred.next: succ -> node      succ.prev: pred -> node
//! remove     pred.next: node -> succ      succ.prev: node -> pred
//!            node.next: succ -> SEALED    node.prev: pred -> SEALED
//! update     node.value: old -> new       node.next: succ -> succ (that it is not sealed)
//! ```
//!
//! A sealed node is not in the list and no operation on its words succeeds again: that is the
//! contract for freeing it with the operation that seals it. Keys never change and are read plainly;
//! every other word is read through [`Mwcas::read`].

use std::sync::Arc;

use pmindex_core::{Medium, PPtr, PmError, PmPtr, PmU64, Pool, pm_struct};
use pmindex_pmwcas::{Config, Mwcas, MwcasError, Policy};

pm_struct! {
    /// | key | value | next | prev |
    #[align(32)]
    pub(crate) struct Node: size 32 {
        key: PmU64,
        value: PmU64,
        next: PmPtr<Node>,
        prev: PmPtr<Node>,
    }

    /// The ends of the list, and the descriptors.
    #[align(64)]
    pub(crate) struct Root: size 128 {
        first: Node,
        last: Node,
        table: PmPtr<u64>,
        reserved: [PmU64; 7],
    }
}

/// No node stands at this offset.
const SEALED: PPtr<Node> = PPtr::new(8);

/// The list.
pub(crate) struct List<M: Medium> {
    mwcas: Mwcas<M>,
    root: PPtr<Root>,
}

/// The place of a key in the list, or the place to insert it.
struct Place {
    pred: PPtr<Node>,
    succ: PPtr<Node>,
    found: bool,
}

impl<M: Medium> List<M> {
    /// Creates an empty list in the pool.
    pub(crate) fn create(pool: &Arc<Pool<M>>, name: &str, config: Config) -> Result<Self, PmError> {
        let pm = pool.pm();
        pool.create_index::<Root>(name, *b"example ", 0, |root| {
            let (first, last) = (pool.pptr(&root.first), pool.pptr(&root.last));
            pm.store(&root.first.next, last);
            pm.store(&root.first.prev, PPtr::NULL);
            pm.store(&root.last.next, PPtr::NULL);
            pm.store(&root.last.prev, first);
            pm.store(&root.table, PPtr::NULL);
            pm.flush(root)
        })?;
        Self::open(pool, name, config)?.ok_or(PmError::Corrupt { what: "no list", offset: 0 })
    }

    /// Opens a list; recovery completes or rolls back interrupted operations.
    pub(crate) fn open(
        pool: &Arc<Pool<M>>,
        name: &str,
        config: Config,
    ) -> Result<Option<Self>, PmError> {
        let Some(entry) = pool.open_index(name)? else { return Ok(None) };
        let root = entry.root::<Root>();
        let table = &pool.get(root)?.table;
        if pool.pm().load(table).is_null() {
            Mwcas::allocate_table(pool, table, config)?;
        }
        let mwcas = Mwcas::open_at(pool, pool.pm().load(table).offset(), Vec::new())?;
        Ok(Some(Self { mwcas, root }))
    }

    /// The descriptors of the list.
    pub(crate) fn mwcas(&self) -> &Mwcas<M> {
        &self.mwcas
    }

    fn node(&self, node: PPtr<Node>) -> Result<&Node, PmError> {
        self.mwcas.pool().get(node)
    }

    fn key(&self, node: PPtr<Node>) -> Result<u64, PmError> {
        Ok(self.mwcas.pool().pm().load(&self.node(node)?.key))
    }

    fn ends(&self) -> Result<(PPtr<Node>, PPtr<Node>), PmError> {
        let pool = self.mwcas.pool();
        let root = pool.get(self.root)?;
        Ok((pool.pptr(&root.first), pool.pptr(&root.last)))
    }

    /// Finds a key. The caller has a session: the nodes on the way may be removed, but their memory is not
    /// reused.
    fn find(&self, key: u64) -> Result<Place, PmError> {
        let (first, last) = self.ends()?;
        'again: loop {
            let mut pred = first;
            loop {
                let succ = self.mwcas.read(&self.node(pred)?.next)?;
                if succ == SEALED {
                    continue 'again;
                }
                if succ == last || self.key(succ)? >= key {
                    let found = succ != last && self.key(succ)? == key;
                    return Ok(Place { pred, succ, found });
                }
                pred = succ;
            }
        }
    }

    /// Inserts a key; `false` if the list has it already.
    pub(crate) fn insert(&self, key: u64, value: u64) -> Result<bool, MwcasError> {
        let pm = self.mwcas.pool().pm();
        loop {
            let mut session = self.mwcas.session()?;
            let Place { pred, succ, found } = self.find(key)?;
            if found {
                return Ok(false);
            }
            let (before, after) = (self.node(pred)?, self.node(succ)?);
            let mut insert = session.descriptor();
            insert.reserve_entry(&before.next, succ, Policy::FreeNewOnFailure)?;
            let node = insert.allocate(&before.next, |node| {
                pm.store(&node.key, key);
                pm.store(&node.value, value);
                pm.store(&node.next, succ);
                pm.store(&node.prev, pred);
            })?;
            insert.add_word(&after.prev, pred, node)?;
            if insert.execute()? {
                return Ok(true);
            }
        }
    }

    /// Removes a key and returns its value.
    pub(crate) fn remove(&self, key: u64) -> Result<Option<u64>, MwcasError> {
        loop {
            let mut session = self.mwcas.session()?;
            let Place { pred, succ: leaving, found } = self.find(key)?;
            if !found {
                return Ok(None);
            }
            let node = self.node(leaving)?;
            let succ = self.mwcas.read(&node.next)?;
            if succ == SEALED {
                continue;
            }
            let value = self.mwcas.read(&node.value)?;
            let mut remove = session.descriptor();
            remove.reserve_entry(&self.node(pred)?.next, leaving, Policy::FreeOldOnSuccess)?;
            remove.set(&self.node(pred)?.next, succ)?;
            remove.add_word(&self.node(succ)?.prev, leaving, pred)?;
            remove.add_word(&node.next, succ, SEALED)?;
            remove.add_word(&node.prev, pred, SEALED)?;
            remove.add_word(&node.value, value, value)?;
            if remove.execute()? {
                return Ok(Some(value));
            }
        }
    }

    /// Replaces the value of a key; `false` if the list does not have it.
    pub(crate) fn update(&self, key: u64, value: u64) -> Result<bool, MwcasError> {
        loop {
            let mut session = self.mwcas.session()?;
            let Place { succ: at, found, .. } = self.find(key)?;
            if !found {
                return Ok(false);
            }
            let node = self.node(at)?;
            let (next, old) = (self.mwcas.read(&node.next)?, self.mwcas.read(&node.value)?);
            if next == SEALED {
                continue;
            }
            let mut update = session.descriptor();
            update.add_word(&node.value, old, value)?;
            update.add_word(&node.next, next, next)?;
            if update.execute()? {
                return Ok(true);
            }
        }
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: u64) -> Result<Option<u64>, PmError> {
        let _pinned = self.mwcas.pool().pin();
        let Place { succ, found, .. } = self.find(key)?;
        if found { Ok(Some(self.mwcas.read(&self.node(succ)?.value)?)) } else { Ok(None) }
    }

    /// Returns all nodes with their keys and values, front to back, or back to front. No other thread may
    /// change the list meanwhile.
    pub(crate) fn nodes(&self, forwards: bool) -> Result<Vec<(u64, u64, u64)>, PmError> {
        let (first, last) = self.ends()?;
        let (mut at, end) = if forwards { (first, last) } else { (last, first) };
        let mut nodes = Vec::new();
        loop {
            let node = self.node(at)?;
            at = self.mwcas.read(if forwards { &node.next } else { &node.prev })?;
            if at == end {
                return Ok(nodes);
            }
            nodes.push((at.offset(), self.key(at)?, self.mwcas.read(&self.node(at)?.value)?));
        }
    }
}
