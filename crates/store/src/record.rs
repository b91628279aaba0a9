//! Records of commits: their changes, map by map. See [`layout`](crate::layout). Numbers are little-endian.

use pmindex_core::PmError;
use pmindex_index::{Key, Value, decoded, encoded};

/// A flag beside the bytes of a name, which are 64 at most: the map was loaded.
const LOADED: u16 = 1 << 15;

/// A record of a commit that is being built.
#[derive(Debug, Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Adds the changes of a map; the last change of each key, in any order.
    pub(crate) fn add<'c, K: Key, V: Value>(
        &mut self,
        name: &str,
        changes: impl Iterator<Item = (&'c K, &'c Option<V>)>,
    ) {
        let record = &mut self.0;
        let start = record.len();
        record.extend_from_slice(&(name.len() as u16).to_le_bytes());
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(name.as_bytes());
        let first = record.len();
        for (key, value) in changes {
            let key = encoded::<K>(key.borrowed());
            let value = value.as_ref().map(|value| encoded::<V>(value.borrowed()));
            let len = value.as_ref().map_or(0, |value| value.len() as u32 + 1);
            record.extend_from_slice(&len.to_le_bytes());
            record.extend_from_slice(&(key.len() as u32).to_le_bytes());
            record.extend_from_slice(&key);
            record.extend_from_slice(&value.unwrap_or_default());
        }
        let len = (record.len() - first) as u32;
        record[start + 2..][..4].copy_from_slice(&len.to_le_bytes());
    }

    /// Makes the record of loading a map.
    pub(crate) fn of_load(name: &str) -> Self {
        let mut record = (name.len() as u16 | LOADED).to_le_bytes().to_vec();
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(name.as_bytes());
        Self(record)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the record as words.
    pub(crate) fn words(&self) -> Vec<u64> {
        words_of_bytes(&self.0)
    }
}

/// Returns bytes as words, with zeros to the end of the last one.
pub(crate) fn words_of_bytes(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// The changes of one map in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// The map was loaded.
    pub(crate) is_loaded: bool,
    pub(crate) changes: Vec<u8>,
}

/// Returns the error of an invalid record.
pub(crate) fn corrupt() -> PmError {
    PmError::Corrupt { what: "the log of a store", offset: 0 }
}

/// Takes `len` bytes from the start.
fn take<'r>(rest: &mut &'r [u8], len: usize) -> Option<&'r [u8]> {
    rest.split_off(..len)
}

fn take_u32(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?) as usize)
}

fn next_group(rest: &mut &[u8]) -> Option<Group> {
    let name = u16::from_le_bytes(take(rest, 2)?.try_into().ok()?);
    let (name, is_loaded) = (usize::from(name & !LOADED), name & LOADED != 0);
    let changes = take_u32(rest)?;
    let name = String::from_utf8(take(rest, name)?.to_vec()).ok()?;
    Some(Group { name, is_loaded, changes: take(rest, changes)?.to_vec() })
}

/// Returns the groups of a record.
pub(crate) fn groups_of(record: &[u8]) -> Result<Vec<Group>, PmError> {
    let (mut rest, mut groups) = (record, Vec::new());
    while !rest.is_empty() {
        groups.push(next_group(&mut rest).ok_or(corrupt())?);
    }
    Ok(groups)
}

impl Group {
    /// Adds it to a record that is written again.
    pub(crate) fn write(&self, record: &mut Record) {
        let loaded = if self.is_loaded { LOADED } else { 0 };
        record.0.extend_from_slice(&(self.name.len() as u16 | loaded).to_le_bytes());
        record.0.extend_from_slice(&(self.changes.len() as u32).to_le_bytes());
        record.0.extend_from_slice(self.name.as_bytes());
        record.0.extend_from_slice(&self.changes);
    }

    /// Returns its changes.
    pub(crate) fn changes<K: Key, V: Value>(&self) -> Result<Vec<(K, Option<V>)>, PmError> {
        let (mut rest, mut changes) = (&*self.changes, Vec::new());
        while !rest.is_empty() {
            changes.push(next_change(&mut rest).ok_or(corrupt())?);
        }
        Ok(changes)
    }
}

/// Takes the next change from the start.
fn next_change<K: Key, V: Value>(rest: &mut &[u8]) -> Option<(K, Option<V>)> {
    let value = take_u32(rest)?;
    let key = take_u32(rest)?;
    let key = decoded::<K>(take(rest, key)?)?;
    match value.checked_sub(1) {
        None => Some((key, None)),
        Some(len) => Some((key, Some(decoded::<V>(take(rest, len)?)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_cut_ones_are_refused() {
        let one: Vec<(String, Option<u64>)> =
            vec![(String::new(), Some(1)), ("b".repeat(300), None)];
        let other = vec![((7u8, -1i64), Some(Vec::<u8>::new())), ((0, 0), None)];
        let mut record = Record::default();
        record.add("one", one.iter().map(|(key, value)| (key, value)));
        record.add("the other", other.iter().map(|(key, value)| (key, value)));
        let groups = groups_of(&record.0).unwrap();
        assert_eq!((groups[0].name.as_str(), groups[1].name.as_str()), ("one", "the other"));
        let loaded = groups_of(&Record::of_load("loaded").0).unwrap();
        let mut again = Record::default();
        groups.iter().chain(&loaded).for_each(|group| group.write(&mut again));
        assert_eq!(again.0, [&*record.0, &*Record::of_load("loaded").0].concat());
        let mut rest = &*groups[0].changes;
        let read: Vec<_> = (0..2).map(|_| next_change::<String, u64>(&mut rest).unwrap()).collect();
        assert_eq!((read, rest.len()), (one, 0));
        let mut rest = &*groups[1].changes;
        let next = |rest: &mut &[u8]| next_change::<(u8, i64), Vec<u8>>(rest).unwrap();
        assert_eq!(vec![next(&mut rest), next(&mut rest)], other);
        let whole = 2 + 4 + 3 + groups[0].changes.len(); // the first group
        assert_eq!(record.words().len(), record.len().div_ceil(8));
        for cut in (1..record.0.len()).filter(|cut| *cut != whole) {
            assert!(groups_of(&record.0[..cut]).is_err(), "{cut}");
        }
        let mut cut = &groups[1].changes[..groups[1].changes.len() - 1];
        assert!(next_change::<(u8, i64), Vec<u8>>(&mut cut).is_some());
        assert!(next_change::<(u8, i64), Vec<u8>>(&mut cut).is_none());
    }
}
