//! The usage and the quota of each instance.

use pmindex_core::{Medium, PmError};

use super::BlockCache;
use super::entry::{LINE_BYTES, lines_for};
use super::key::Prefix;
use super::log::Log;
use super::metrics::count;
use super::summary::Record;

/// The usage of an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// The bytes of its entries, including headers.
    bytes: u64,
    /// The limit of these bytes.
    quota: Option<u64>,
}

/// Returns the bytes of an entry whose block has this length.
fn bytes_of(len: u32) -> u64 {
    u64::from(lines_for(len)) * LINE_BYTES as u64
}

impl Log {
    pub(super) fn take(&mut self, record: &Record) {
        self.accounts.entry(record.key.instance).or_default().bytes += bytes_of(record.len);
    }

    pub(super) fn give_back(&mut self, record: &Record) {
        let instance = record.key.instance;
        let Some(account) = self.accounts.get_mut(&instance) else { return };
        account.bytes = account.bytes.saturating_sub(bytes_of(record.len));
        if account.bytes == 0 && account.quota.is_none() {
            self.accounts.remove(&instance);
        }
    }

    pub(super) fn is_over_quota(&self, instance: u128) -> bool {
        let account = self.accounts.get(&instance);
        account.is_some_and(|account| account.quota.is_some_and(|quota| account.bytes >= quota))
    }
}

impl<M: Medium> BlockCache<M> {
    /// Limits the bytes of an instance's entries (blocks in whole lines, and a line each), or removes the
    /// limit. An insert that would exceed it first evicts the instance's oldest blocks. Not persistent: the
    /// opener sets it again.
    pub fn set_quota(&self, instance: u128, bytes: Option<u64>) {
        let mut log = self.pool.pm().lock(&self.log);
        log.accounts.entry(instance).or_default().quota = bytes;
    }

    /// Returns the bytes of an instance's entries. Some that ended before a restart may count until they are
    /// looked up.
    pub fn usage(&self, instance: u128) -> u64 {
        let log = self.pool.pm().lock(&self.log);
        log.accounts.get(&instance).map_or(0, |account| account.bytes)
    }

    /// Makes room within the quota of an instance for a block; returns `false` if the block is larger.
    pub(super) fn keep_quota(
        &self,
        log: &mut Log,
        instance: u128,
        len: u32,
    ) -> Result<bool, PmError> {
        let Some(Account { bytes, quota: Some(quota) }) = log.accounts.get(&instance).copied()
        else {
            return Ok(true);
        };
        let needed = bytes_of(len);
        if needed > quota {
            return Ok(false);
        }
        if bytes + needed <= quota {
            return Ok(true);
        }
        // An eighth more, so that one fence serves many inserts.
        let target = (quota - needed).saturating_sub(quota / 8);
        let (mut doomed, mut left) = (Vec::new(), bytes);
        let places = log.sealed.iter().copied().chain(log.open.as_ref().map(|open| open.place));
        for place in places.collect::<Vec<u16>>() {
            if left <= target {
                break;
            }
            if !log.filters[usize::from(place)].may_have(&Prefix::Instance(instance)) {
                continue;
            }
            for record in self.records_of(log, place)?.unwrap_or_default() {
                let at = super::index::Location::new(place, record.line);
                if left <= target || record.key.instance != instance || !self.is_listed(&record, at)
                {
                    continue;
                }
                left = left.saturating_sub(bytes_of(record.len));
                doomed.push((place, record));
            }
        }
        let evicted = self.kill(log, doomed)?;
        (0..evicted).for_each(|_| count(&self.counters.evicted));
        Ok(left + needed <= quota)
    }
}
