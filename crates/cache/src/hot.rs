//! Hot values in DRAM, above a level that holds all values.

use std::hash::Hash;
use std::marker::PhantomData;

use parking_lot::{Condvar, Mutex};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::policy::{Access, Hashed, Keeper, Policy, TinyLfu};

/// Values in DRAM, as many as a policy keeps, for several threads.
///
/// Each shard has a policy and a lock of its own; capacity and remembered ids are counted in values, per
/// shard. A lookup clones the value: use an `Arc` of a block.
///
/// The policy also decides about misses. [`TwoQ`](crate::policy::TwoQ) is for a level below that can be read
/// in place, a [`BlockCache`](crate::BlockCache) or a file of a pool: a block that is read once is not
/// copied. With [`TinyLfu`], the default, and [`S3Fifo`](crate::policy::S3Fifo) every miss is admitted.
///
/// # Threads
/// The lock of a shard is held while an id is looked up and its value cloned, and for the policy's part of a
/// miss: some hundred nanoseconds, never during a load. It is a spin lock, which saves each hit one of four
/// atomic instructions. A thread that waits longer yields its processor.
///
/// ```
/// use std::sync::Arc;
///
/// use pmindex_cache::Hot;
///
/// let hot: Hot<u64, Arc<[u8]>> = Hot::new(1000, 16);
/// let load = || Ok::<_, std::io::Error>(Arc::from(*b"from below"));
/// assert_eq!(*hot.get_or_load(7, load)?, *b"from below"); // once, however many ask
/// assert_eq!(hot.get(7).as_deref(), Some(&b"from below"[..]));
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Hot<K, V, P = TinyLfu<K, V>> {
    shards: Box<[Shard<K, P>]>,
    values: PhantomData<V>,
}

/// How often a waiting thread tries a lock, at growing intervals, before it yields its processor.
const PATIENCE: u32 = 16;

/// A shard, on lines of its own, since threads write the locks.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<K, P> {
    state: SpinMutex<State<K, P>>,
    /// A thread that waits for a value of another one takes this before it releases the lock.
    waits: Mutex<()>,
    /// Notified when a value was filled in, or was given up.
    filled: Condvar,
}

#[derive(Debug)]
#[repr(C)] // the fields of a hit are beside the lock
struct State<K, P> {
    policy: P,
    /// The ids whose values are being filled in, pinned meanwhile, each with a number of its own.
    filling: Vec<(K, u64)>,
    /// The next number.
    next: u64,
    /// The number of waiting threads.
    waiting: usize,
}

impl<K: Copy + Eq + Hash, P: Policy<K>> State<K, P> {
    /// Admits an id that is not kept, if the policy does.
    fn admit(&mut self, id: K) -> Option<u64> {
        if !matches!(self.policy.access(id), Access::Admitted { .. }) || !self.policy.pin(id) {
            return None;
        }
        self.next += 1;
        self.filling.push((id, self.next));
        Some(self.next)
    }

    /// Ends the filling of an id; returns `false` if it was removed meanwhile.
    fn end(&mut self, id: K, number: u64) -> bool {
        let at = self.filling.iter().position(|&filling| filling == (id, number));
        at.map(|at| self.filling.swap_remove(at)).is_some()
    }
}

impl<K, P> Shard<K, P> {
    #[inline]
    fn lock(&self) -> SpinMutexGuard<'_, State<K, P>> {
        self.state.try_lock().unwrap_or_else(|| self.wait_for_lock())
    }

    #[cold]
    fn wait_for_lock(&self) -> SpinMutexGuard<'_, State<K, P>> {
        for turn in 1.. {
            for _ in 0..turn {
                std::hint::spin_loop();
            }
            if !self.state.is_locked()
                && let Some(state) = self.state.try_lock()
            {
                return state;
            }
            if turn >= PATIENCE {
                break;
            }
        }
        // The owner of the lock has no processor.
        loop {
            std::thread::yield_now();
            if let Some(state) = self.state.try_lock() {
                return state;
            }
        }
    }

    /// Wakes the waiting threads, if there are any; called after the lock of the state is released.
    fn wake(&self, waiting: usize) {
        if waiting > 0 {
            drop(self.waits.lock());
            self.filled.notify_all();
        }
    }
}

/// The result of asking for a place.
#[derive(Debug)]
pub enum Placed<'h, K: Copy + Eq + Hash, V: Clone, P: Keeper<K, V> = TinyLfu<K, V>> {
    /// The value is in the cache.
    Hit(V),
    /// The value is kept from now on: the caller [fills](Vacant::fill) it in.
    Admitted(Vacant<'h, K, V, P>),
    /// The value is not kept, or not yet: the caller reads the level below.
    Below,
}

/// The place of a value that is kept from now on. Dropping it gives the place up.
#[derive(Debug)]
#[must_use = "the value is kept when it is filled in"]
pub struct Vacant<'h, K: Copy + Eq + Hash, V: Clone, P: Keeper<K, V>> {
    hot: &'h Hot<K, V, P>,
    id: K,
    number: u64,
}

impl<K: Copy + Eq + Hash, V: Clone, P: Keeper<K, V>> Hot<K, V, P> {
    /// Keeps at most this many values, in this many shards (rounded up to a power of two).
    #[must_use]
    pub fn new(capacity: usize, shards: usize) -> Self {
        let shards = shards.clamp(1, 1 << 16).next_power_of_two();
        let shard = |at: usize| {
            let capacity = capacity / shards + usize::from(at < capacity % shards);
            let policy = P::with_capacity(capacity);
            let state = State { policy, filling: vec![], next: 0, waiting: 0 };
            Shard { state: SpinMutex::new(state), waits: Mutex::new(()), filled: Condvar::new() }
        };
        Self { shards: (0..shards).map(shard).collect(), values: PhantomData }
    }

    #[inline]
    fn shard(&self, id: Hashed<K>) -> &Shard<K, P> {
        &self.shards[(id.hash >> 48) as usize & (self.shards.len() - 1)]
    }

    /// Returns the value, if it is in the cache; a miss is not noted.
    ///
    /// # Cost
    /// The lock of a shard; the lines of an id and its value.
    #[inline]
    #[must_use]
    pub fn get(&self, id: K) -> Option<V> {
        let id = Hashed::of(id);
        let shard = self.shard(id);
        shard.lock().policy.hit(id).cloned()
    }

    /// Sets the value of an id, if the policy keeps it, also if it is being filled in. Returns `true` if it
    /// is kept.
    ///
    /// # Cost
    /// The lock of a shard, once; a miss of the policy. Evicted values are dropped after the lock is
    /// released.
    pub fn insert(&self, id: K, value: V) -> bool {
        let hashed = Hashed::of(id);
        let shard = self.shard(hashed);
        let mut state = shard.lock();
        let mut waiting = 0;
        if let Some(at) = state.filling.iter().position(|&(filling, _)| filling == id) {
            state.filling.swap_remove(at);
            state.policy.unpin(id);
            waiting = state.waiting;
        }
        let gone = state.policy.insert(hashed, value);
        drop(state);
        shard.wake(waiting);
        gone.is_ok()
    }

    /// Looks a value up: it is in the cache, or must be filled in, or is not kept. Never waits: while another
    /// caller fills it in, it is [`Placed::Below`].
    ///
    /// # Cost
    /// That of [`get`](Self::get); for a miss that of the policy.
    pub fn place(&self, id: K) -> Placed<'_, K, V, P> {
        let hashed = Hashed::of(id);
        let mut state = self.shard(hashed).lock();
        if let Some(value) = state.policy.hit(hashed) {
            return Placed::Hit(value.clone());
        }
        if state.policy.contains(id) {
            return Placed::Below;
        }
        let number = state.admit(id);
        number.map_or(Placed::Below, |number| Placed::Admitted(Vacant { hot: self, id, number }))
    }

    /// Returns the value; if it is not in the cache, calls `load`: once for all callers if the policy admits
    /// it, for each caller if it is not kept.
    ///
    /// # Errors
    /// Those of `load`; waiting callers then try themselves.
    pub fn get_or_load<E>(&self, id: K, load: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let hashed = Hashed::of(id);
        let shard = self.shard(hashed);
        let mut state = shard.lock();
        loop {
            if let Some(value) = state.policy.hit(hashed) {
                return Ok(value.clone());
            }
            if !state.policy.contains(id) {
                break;
            }
            state.waiting += 1;
            let mut waits = shard.waits.lock();
            drop(state);
            shard.filled.wait(&mut waits);
            drop(waits);
            state = shard.lock();
            state.waiting -= 1;
        }
        let number = state.admit(id);
        drop(state);
        let vacant = number.map(|number| Vacant { hot: self, id, number });
        let value = load()?;
        if let Some(vacant) = vacant {
            vacant.fill(value.clone());
        }
        Ok(value)
    }

    /// Forgets a value, also one that is being filled in. Returns `true` if it was in the cache.
    pub fn remove(&self, id: K) -> bool {
        let shard = self.shard(Hashed::of(id));
        let mut state = shard.lock();
        state.filling.retain(|&(filling, _)| filling != id);
        let removed = state.policy.remove(id);
        let waiting = state.waiting;
        drop(state);
        shard.wake(waiting);
        removed
    }

    /// Returns the number of values, including those that are being filled in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().policy.len()).sum()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Copy + Eq + Hash, V: Clone, P: Keeper<K, V>> Vacant<'_, K, V, P> {
    /// Fills the value in, unless the id was removed meanwhile.
    pub fn fill(self, value: V) {
        let hashed = Hashed::of(self.id);
        let mut state = self.hot.shard(hashed).lock();
        if state.end(self.id, self.number) {
            if let Some(place) = state.policy.value(hashed) {
                *place = Some(value);
            }
            state.policy.unpin(self.id);
        }
        // Dropping this wakes the waiting threads.
    }
}

impl<K: Copy + Eq + Hash, V: Clone, P: Keeper<K, V>> Drop for Vacant<'_, K, V, P> {
    fn drop(&mut self) {
        let shard = self.hot.shard(Hashed::of(self.id));
        let mut state = shard.lock();
        if state.end(self.id, self.number) {
            state.policy.remove(self.id);
        }
        let waiting = state.waiting;
        drop(state);
        shard.wake(waiting);
    }
}

#[cfg(test)]
mod tests;
