//! One load for all who miss a block at once.
//!
//! Who misses first gets a [`Ticket`] and loads, in whatever way it has: this module starts no thread and
//! waits for nothing by itself. The others get a [`Waiting`], which is a future, and can be waited for
//! by a thread, too. A ticket that is dropped lets one of them try.

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

/// Loads under way.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Arc<Flight>>>);

#[derive(Debug, Default)]
struct Flight {
    /// Whether the block was invalidated meanwhile, so that nothing is stored.
    disowned: AtomicBool,
    end: Mutex<End>,
    ended: Condvar,
}

/// What a load came to: a block, or none.
type Loaded = Option<Arc<Block>>;

#[derive(Debug, Default)]
struct End {
    /// What it ended with: a block, or none.
    ended: Option<Loaded>,
    wakers: Vec<Waker>,
}

impl Flights {
    /// What is loaded now for these blocks is not stored.
    pub(super) fn disown(&self, are: impl Fn(&Key) -> bool) {
        let flights = self.0.lock();
        flights
            .iter()
            .filter(|(key, _)| are(key))
            .for_each(|(_, flight)| flight.disowned.store(true, Release));
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

/// What asking for a block comes to.
#[derive(Debug)]
pub enum Fetch<'c, M: Medium = Mapped> {
    /// It is here.
    Hit(Block),
    /// The caller loads it.
    Load(Ticket<'c, M>),
    /// Somebody loads it.
    Wait(Waiting),
}

/// The right to load a block, which nobody else does meanwhile.
#[derive(Debug)]
#[must_use = "others wait for this block"]
pub struct Ticket<'c, M: Medium = Mapped> {
    cache: &'c BlockCache<M>,
    key: Key,
    flight: Arc<Flight>,
}

/// Waits for a block that somebody loads: a future. `None`: that one gave up, so ask again.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Waiting(Arc<Flight>);

impl<M: Medium> BlockCache<M> {
    /// Asks for a block: it is here, or the caller is to load it, or somebody does.
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

    /// The block of this name, which `load` gives if it is not here: once, however many ask. Whether it
    /// could be stored is in the [metrics](Self::metrics) alone.
    ///
    /// # Errors
    /// Those of `load`; others who wait then try for themselves.
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
    /// Which block is to be loaded.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Stores the block and gives it to all who wait. A block that was invalidated since the ticket was
    /// given is not stored.
    ///
    /// # Errors
    /// Those of [`BlockCache::insert`]; who waits has the block all the same.
    pub fn fulfil(self, kind: u8, bytes: &[u8]) -> Result<Inserted, PmError> {
        let disowned = || self.flight.disowned.load(Acquire);
        let inserted = self.cache.insert_unless(&self.key, kind, bytes, disowned);
        self.serve(|| Arc::new(Block { kind, bytes: bytes.to_vec() }));
        inserted
    }

    /// Ends the flight with a block, which is made only if somebody waits.
    fn serve(&self, block: impl FnOnce() -> Arc<Block>) {
        self.land();
        // Nobody joins any more.
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
