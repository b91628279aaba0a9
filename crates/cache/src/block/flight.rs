//! One load for all callers that miss the same block at the same time.
//!
//! The first caller gets a [`Ticket`] and loads the block: this module starts no thread and waits for nothing
//! by itself. The others get a [`Waiting`], a future, for which a thread can also block. When a ticket is
//! dropped, one of them tries.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};
use pmindex_core::{Mapped, Medium, PmError};

use super::{Block, BlockCache, Inserted, Key};

/// The loads in progress.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Arc<Flight>>>);

#[derive(Debug, Default)]
struct Flight {
    /// `true` if the block was invalidated meanwhile, so that it is not stored.
    disowned: AtomicBool,
    end: Mutex<End>,
    ended: Condvar,
}

/// The result of a load: a block, or none.
type Loaded = Option<Arc<Block>>;

#[derive(Debug, Default)]
struct End {
    /// The result: a block, or none.
    ended: Option<Loaded>,
    wakers: Vec<Waker>,
}

impl Flights {
    /// Marks the loads of these blocks, so that their results are not stored, and forgets them, so that no later
    /// caller waits for their results.
    pub(super) fn disown(&self, are: impl Fn(&Key) -> bool) {
        let mut flights = self.0.lock();
        for (_, flight) in flights.extract_if(|key, _| are(key)) {
            flight.disowned.store(true, Release);
        }
    }
}

impl Flight {
    fn end(&self, block: Option<Arc<Block>>) {
        let mut end = self.end.lock();
        end.ended = Some(block);
        let wakers = std::mem::take(&mut end.wakers);
        drop(end);
        self.ended.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub enum Fetch<'c, M: Medium = Mapped> {
    /// The block is in the cache.
    Hit(Block),
    /// The caller must load it.
    Load(Ticket<'c, M>),
    /// Another caller loads it.
    Wait(Waiting),
}

/// The exclusive right to load a block.
#[derive(Debug)]
#[must_use = "others wait for this block"]
pub struct Ticket<'c, M: Medium = Mapped> {
    cache: &'c BlockCache<M>,
    key: Key,
    flight: Arc<Flight>,
}

/// A future of a block that another caller loads. `None`: that caller gave up, so ask again.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Waiting(Arc<Flight>);

impl<M: Medium> BlockCache<M> {
    /// Looks up a block: it is in the cache, or the caller must load it, or another caller does.
    ///
    /// # Cost
    /// That of [`get`](Self::get); a miss takes a lock and a node of a hash table.
    pub fn fetch(&self, key: &Key) -> Fetch<'_, M> {
        if let Some(block) = self.get(key) {
            return Fetch::Hit(block);
        }
        let mut flights = self.flights.0.lock();
        if let Some(flight) = flights.get(key) {
            return Fetch::Wait(Waiting(Arc::clone(flight)));
        }
        let flight = Arc::new(Flight::default());
        flights.insert(*key, Arc::clone(&flight));
        drop(flights);
        let ticket = Ticket { cache: self, key: *key, flight };
        // A load may have ended between the miss and the ticket.
        let mut bytes = Vec::new();
        match self.read(key, &mut bytes) {
            Some(kind) => {
                let block = Block { kind, bytes };
                ticket.serve(|| Arc::new(block.clone()));
                Fetch::Hit(block)
            }
            None => Fetch::Load(ticket),
        }
    }

    /// Returns the block with this name; if it is not in the cache, `load` is called, once for all callers.
    /// Only the [metrics](Self::metrics) tell whether it could be stored.
    ///
    /// # Errors
    /// Those of `load`; waiting callers then try themselves.
    pub fn get_or_load<E>(
        &self,
        key: &Key,
        load: impl FnOnce() -> Result<Block, E>,
    ) -> Result<Block, E> {
        loop {
            match self.fetch(key) {
                Fetch::Hit(block) => return Ok(block),
                Fetch::Wait(waiting) => {
                    if let Some(block) = waiting.wait() {
                        return Ok((*block).clone());
                    }
                }
                Fetch::Load(ticket) => {
                    let block = load()?;
                    if let Err(error) = ticket.fulfil(block.kind, &block.bytes) {
                        self.pool.note_damage(&error);
                    }
                    return Ok(block);
                }
            }
        }
    }
}

impl<M: Medium> Ticket<'_, M> {
    /// Returns the name of the block to load.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Stores the block and passes it to all waiting callers. A block that was invalidated since the ticket
    /// was given is not stored.
    ///
    /// # Errors
    /// Those of [`BlockCache::insert`]; waiting callers get the block nevertheless.
    pub fn fulfil(self, kind: u8, bytes: &[u8]) -> Result<Inserted, PmError> {
        let disowned = || self.flight.disowned.load(Acquire);
        let inserted = self.cache.insert_unless(&self.key, kind, bytes, disowned);
        self.serve(|| Arc::new(Block { kind, bytes: bytes.to_vec() }));
        inserted
    }

    /// Ends the flight with a block, which is built only if a caller waits.
    fn serve(&self, block: impl FnOnce() -> Arc<Block>) {
        self.land();
        // No caller joins after this.
        let waited_for = Arc::strong_count(&self.flight) > 1;
        self.flight.end(waited_for.then(block));
    }

    fn land(&self) {
        let mut flights = self.cache.flights.0.lock();
        if flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(&self.key);
        }
    }
}

impl<M: Medium> Drop for Ticket<'_, M> {
    fn drop(&mut self) {
        self.land();
        let ended = self.flight.end.lock().ended.is_some();
        if !ended {
            self.flight.end(None);
        }
    }
}

impl Waiting {
    /// Blocks the thread until the load has ended.
    #[must_use]
    pub fn wait(self) -> Option<Arc<Block>> {
        let mut end = self.0.end.lock();
        loop {
            if let Some(block) = &end.ended {
                return block.clone();
            }
            self.0.ended.wait(&mut end);
        }
    }
}

impl Future for Waiting {
    type Output = Option<Arc<Block>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut end = self.0.end.lock();
        if let Some(block) = &end.ended {
            return Poll::Ready(block.clone());
        }
        if !end.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            end.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
