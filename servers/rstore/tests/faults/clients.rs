//! The clients, and what they saw.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use pmindex_testkit::crash::Rng;
use pmindex_testkit::history::{Call, Clock, Event, Outcome};
use rstore_server::{Client, Reply};

/// The keys that are in use at a time; others take their place with each fault.
pub(crate) const KEYS: u64 = 8;

/// The bytes of the values that only fill the log.
const BALLAST: usize = 32 << 10;

/// Returns the value with a tag.
fn value(tag: u64) -> String {
    format!("{tag}:{}", "x".repeat((tag % 5 * 500) as usize))
}

/// What all clients share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// The present set of keys.
    pub(crate) epoch: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) stop: AtomicBool,
    tags: AtomicU64,
    calls: Mutex<Calls>,
}

/// The calls of all clients.
#[derive(Default)]
struct Calls {
    ended: Vec<Event>,
    /// The call that each client makes now: it may be executed, and others may see what it did.
    going: BTreeMap<u32, Event>,
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().expect("not poisoned")
    }

    /// Returns all calls up to now; those that go on have no outcome.
    pub(crate) fn events(&self) -> Vec<Event> {
        let calls = self.calls();
        calls.ended.iter().chain(calls.going.values()).copied().collect()
    }
}

/// What came of an attempt.
enum Attempt {
    Answered(Outcome),
    /// It was not executed.
    Refused,
    /// It was executed, or not, or will be.
    Unknown,
}

/// A client.
pub(crate) struct Caller<'s> {
    shared: &'s Shared,
    addresses: Vec<String>,
    at: usize,
    client: Option<Client>,
    random: Rng,
    number: u32,
}

impl<'s> Caller<'s> {
    pub(crate) fn new(shared: &'s Shared, addresses: Vec<String>, number: u32, seed: u64) -> Self {
        let random = Rng::new(seed.wrapping_mul(31) + u64::from(number));
        Self { shared, addresses, at: number as usize, client: None, random, number }
    }

    /// Calls until it is to stop.
    pub(crate) fn run(mut self) {
        while !self.shared.stop.load(Relaxed) {
            let epoch = self.shared.epoch.load(Relaxed);
            let old = epoch > 0 && self.random.one_in(16);
            let epoch = if old { self.random.below(epoch as usize) as u64 } else { epoch };
            let key = epoch * KEYS + self.random.below(KEYS as usize) as u64;
            let tag = self.shared.tags.fetch_add(1, Relaxed) + 1;
            let call = match self.random.below(9) {
                _ if old => Call::Get,
                0..4 => Call::Get,
                4 => Call::Remove,
                5 => Call::TryInsert(tag),
                _ => Call::Insert(tag),
            };
            self.call(key, call);
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// Fills the log with writes that are checked by nothing else, so that a node that was away for seconds
    /// needs a snapshot, and pools grow and are collected.
    pub(crate) fn fill(mut self) {
        let value = "y".repeat(BALLAST);
        while !self.shared.stop.load(Relaxed) {
            let name = format!("ballast:{}", self.random.below(16));
            self.send(&["SET", &name, &value], false);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a call, which other nodes get if one refuses it; returns `false` if the outcome is unknown.
    pub(crate) fn call(&mut self, key: u64, call: Call) -> bool {
        let start = self.shared.clock.tick();
        let event = Event { thread: self.number, key, call, outcome: None, start, end: u64::MAX };
        self.shared.calls().going.insert(self.number, event);
        let event = loop {
            match self.attempt(key, call) {
                Attempt::Answered(outcome) => {
                    let end = self.shared.clock.tick();
                    self.shared.answered.fetch_add(1, Relaxed);
                    break Event { outcome: Some(outcome), end, ..event };
                }
                Attempt::Unknown => {
                    self.shared.unknown.fetch_add(1, Relaxed);
                    // Many calls of unknown outcome allow too many orders to be checked.
                    thread::sleep(Duration::from_millis(100));
                    break event;
                }
                Attempt::Refused if self.shared.stop.load(Relaxed) => {
                    self.shared.calls().going.remove(&self.number);
                    return false;
                }
                Attempt::Refused => thread::sleep(Duration::from_millis(10)),
            }
        };
        let mut calls = self.shared.calls();
        calls.going.remove(&self.number);
        calls.ended.push(event);
        event.outcome.is_some()
    }

    fn connect(&mut self, address: &str) {
        let client = Client::connect(address).and_then(|client| {
            client.patience(Duration::from_secs(3))?;
            Ok(client)
        });
        self.client = client.ok();
    }

    fn attempt(&mut self, key: u64, call: Call) -> Attempt {
        let name = format!("key:{key}");
        match call {
            Call::Insert(tag) => self.send(&["SET", &name, &value(tag), "GET"], false),
            Call::TryInsert(tag) => self.send(&["SET", &name, &value(tag), "NX"], true),
            Call::Remove => self.send(&["GETDEL", &name], false),
            _ => self.send(&["GET", &name], false),
        }
    }

    /// Sends a request to the present node; `does`: its result is only whether it was done.
    fn send(&mut self, request: &[&str], does: bool) -> Attempt {
        if self.client.is_none() {
            self.at = (self.at + 1) % self.addresses.len();
            let address = self.addresses[self.at].clone();
            self.connect(&address);
        }
        let Some(client) = &mut self.client else { return Attempt::Refused };
        match client.call(request) {
            Ok(Reply::Error(error)) => self.refused(&error),
            Ok(Reply::Simple(_)) => Attempt::Answered(Outcome::Done(true)),
            Ok(Reply::Bulk(None)) if does => Attempt::Answered(Outcome::Done(false)),
            Ok(Reply::Bulk(found)) => {
                let tag = found.map(|bytes| {
                    let text = String::from_utf8(bytes).expect("text");
                    let tag = text.split(':').next().and_then(|tag| tag.parse().ok());
                    let tag = tag.expect("a tag");
                    assert_eq!(text, value(tag), "a value that was never written");
                    tag
                });
                Attempt::Answered(Outcome::Value(tag))
            }
            Ok(other) => panic!("{request:?}: {other:?}"),
            Err(_) => {
                self.client = None;
                Attempt::Unknown
            }
        }
    }

    fn refused(&mut self, error: &str) -> Attempt {
        match error.split(' ').next() {
            Some("MOVED") => {
                let place = error.split(' ').nth(2).unwrap_or_default().to_owned();
                self.connect(&place);
                Attempt::Refused
            }
            Some("CLUSTERDOWN" | "TRYAGAIN" | "OOM") => {
                self.client = None;
                Attempt::Refused
            }
            _ => {
                self.client = None;
                Attempt::Unknown
            }
        }
    }
}
