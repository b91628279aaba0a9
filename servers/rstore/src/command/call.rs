//! A command in execution, and functions that commands share.

use crate::keyspace::{Draft, Item, Kind, NEVER, Place, item};
use crate::wire::{Args, Reply, integer};

use super::Refusal;

/// The result of a command; a refusal is its reply.
pub(crate) type Outcome = Result<(), Refusal>;

/// The longest string, as in Redis; the engine may have a smaller limit.
pub(crate) const MAX_TEXT: usize = 512 << 20;

/// A command that runs on a partition.
pub(crate) struct Call<'c, 'r> {
    /// The name in lower case, for errors.
    pub(crate) name: &'static str,
    pub(crate) args: Args<'c>,
    pub(crate) draft: &'c mut Draft<'r>,
    pub(crate) place: &'c mut Place,
    pub(crate) out: &'c mut Reply,
}

impl<'c> Call<'c, '_> {
    /// Returns the key of a command whose first argument is a key.
    pub(crate) fn key(&self) -> &'c [u8] {
        self.args.at(1)
    }

    pub(crate) fn now(&self) -> u64 {
        self.draft.now()
    }

    /// Returns an argument as an integer.
    pub(crate) fn integer(&self, number: usize) -> Result<i64, Refusal> {
        integer(self.args.at(number)).ok_or(Refusal::NOT_INTEGER)
    }

    /// Returns the item of a key.
    pub(crate) fn item(&self, key: &[u8]) -> Result<Option<Item>, Refusal> {
        Ok(self.draft.item(key)?)
    }

    /// Returns `true` if the key exists. Reads no value.
    pub(crate) fn exists(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.draft.expiry(&item::key_of(key))?.is_some())
    }

    /// Returns the item of a key, which must be a string.
    pub(crate) fn text(&self, key: &[u8]) -> Result<Option<Item>, Refusal> {
        match self.item(key)? {
            Some(found) if found.kind()? != Kind::Text => Err(Refusal::WRONG_TYPE),
            found => Ok(found),
        }
    }

    /// Sets a key to a string, whatever its type was.
    pub(crate) fn put_text(&mut self, key: &[u8], value: &[u8], expires: u64) -> Outcome {
        self.put_record(key, item::text(value), expires)
    }

    /// Changes the bytes of a string, and keeps its expiry and its flags for memcached.
    pub(crate) fn change_text(&mut self, key: &[u8], old: Option<&Item>, value: &[u8]) -> Outcome {
        let expires = old.map_or(NEVER, |old| old.expires);
        let record = match old.and_then(Item::tag) {
            Some(tag) => {
                let unique = self.place.new_unique(self.now());
                item::tagged(item::Tag { unique, ..tag }, value)
            }
            None => item::text(value),
        };
        self.draft.put(item::key_of(key), record, expires);
        Ok(())
    }

    /// Sets a key to a record, whatever its type was; one that expires at once is removed.
    pub(crate) fn put_record(&mut self, key: &[u8], record: Vec<u8>, expires: u64) -> Outcome {
        self.drop_members(key)?;
        if expires != NEVER && expires <= self.now() {
            self.draft.remove(item::key_of(key));
        } else {
            self.draft.put(item::key_of(key), record, expires);
        }
        Ok(())
    }

    /// Removes a key; returns `true` if it existed.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        if !self.exists(key)? {
            return Ok(false);
        }
        self.drop_members(key)?;
        self.draft.remove(item::key_of(key));
        Ok(true)
    }

    /// Schedules the removal of the members, if the key holds a collection.
    fn drop_members(&mut self, key: &[u8]) -> Outcome {
        if !self.place.has_collections(self.draft) {
            return Ok(());
        }
        let old = self.draft.get(&item::key_of(key))?;
        if let Some(head) = old.and_then(|record| Item { record, expires: NEVER }.head()) {
            self.place.dropped.push_back(head.id);
        }
        Ok(())
    }

    /// Returns the head of a collection, which must be of this kind if it exists.
    pub(crate) fn head(&self, key: &[u8], kind: Kind) -> Result<Option<item::Head>, Refusal> {
        match self.item(key)? {
            None => Ok(None),
            Some(found) => {
                found.head().filter(|head| head.kind == kind).ok_or(Refusal::WRONG_TYPE).map(Some)
            }
        }
    }

    /// Returns the head of a collection, or that of a new one.
    pub(crate) fn head_or_new(&mut self, key: &[u8], kind: Kind) -> Result<item::Head, Refusal> {
        Ok(match self.head(key, kind)? {
            Some(head) => head,
            None => item::Head::new(kind, self.place.new_id()),
        })
    }

    /// Writes a changed head; removes that of an empty collection, and its owner.
    pub(crate) fn put_head(&mut self, key: &[u8], head: &item::Head) {
        if head.length == 0 {
            self.draft.remove(item::key_of(key));
            self.draft.remove(item::owner(head.id));
        } else {
            self.draft.put(item::key_of(key), head.record(), head.expires);
            self.own(head.id, key);
        }
    }

    /// Writes the owner of an id, unless it is written already.
    pub(crate) fn own(&mut self, id: u64, key: &[u8]) {
        let owner = item::owner(id);
        let written = self.draft.get(&owner).ok().flatten();
        if written.is_none_or(|written| written != key) {
            self.draft.put(owner, key.to_vec(), NEVER);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::table;
    use super::*;
    use crate::keyspace::Records;
    use crate::keyspace::tests::Memory;
    use crate::wire::{Protocol, Request};

    /// A partition in memory on which tests run commands.
    pub(crate) struct Bench {
        memory: Memory,
        place: Place,
        pub(crate) now: u64,
        pub(crate) protocol: Protocol,
    }

    impl Bench {
        pub(crate) fn new() -> Self {
            let memory = Memory::default();
            let place = Place::open(&memory, 1).expect("memory");
            Self { memory, place, now: 1_000_000, protocol: Protocol::Resp2 }
        }

        /// Runs a line and returns the reply, with its line ends as bars.
        pub(crate) fn run(&mut self, line: &str) -> String {
            let request = Request::new(line.split(' ').map(str::as_bytes));
            let spec = table::find(request.args().at(0)).expect("a command");
            let mut out = Reply::new(self.protocol);
            let mut draft = Draft::new(&self.memory, self.now);
            let mut call = Call {
                name: spec.name,
                args: request.args(),
                draft: &mut draft,
                place: &mut self.place,
                out: &mut out,
            };
            let outcome = spec.run_at_partition().expect("a command of keys")(&mut call);
            match outcome {
                Ok(()) => {
                    let others = self.place.count_others(&mut draft).expect("memory");
                    self.place.set_others(others);
                    self.memory.apply(draft.into_changes());
                }
                Err(Refusal(text)) => return format!("-{text}"),
            }
            let text = String::from_utf8_lossy(&out.bytes).replace("\r\n", "|");
            text.strip_suffix('|').unwrap_or(&text).to_owned()
        }

        /// Runs lines and compares each with its reply.
        pub(crate) fn expect(&mut self, lines: &[(&str, &str)]) {
            for (line, reply) in lines {
                assert_eq!(self.run(line), *reply, "{line}");
            }
        }

        /// Runs the reaper until it has nothing to do; returns the number of remaining records.
        pub(crate) fn reap(&mut self) -> u64 {
            let mut reaper = crate::keyspace::Reaper::default();
            loop {
                let draft = Draft::new(&self.memory, self.now);
                let more = reaper.walk_step(&draft, &mut self.place, 32).expect("memory");
                if !more {
                    break;
                }
            }
            loop {
                let mut draft = Draft::new(&self.memory, self.now);
                let done = crate::keyspace::Reaper::drop_step(&mut draft, &mut self.place, 64);
                if done.expect("memory") == 0 {
                    return self.memory.len();
                }
                let others = self.place.count_others(&mut draft).expect("memory");
                self.place.set_others(others);
                self.memory.apply(draft.into_changes());
            }
        }
    }
}
