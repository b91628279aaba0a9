//! The contents of a segment: its summary, once it is sealed; until then its entries.

use pmindex_core::{Medium, PmU64};

use super::entry::{LINE_WORDS, Stored, lines_for, payload_sum};
use super::key::{KEY_WORDS, Key};
use crate::hash::mix;

/// An entry of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) line: u32,
    pub(super) len: u32,
}

impl Record {
    /// Returns the line after the entry.
    pub(super) fn end(&self) -> u32 {
        self.line + lines_for(self.len)
    }
}

const RECORD_WORDS: usize = KEY_WORDS + 1;

/// Returns the lines of a summary of this many entries.
pub(super) const fn lines(records: usize) -> u32 {
    (records * RECORD_WORDS).div_ceil(LINE_WORDS) as u32 + 1
}

/// Returns the words of a summary, for the end of a segment with this seed.
pub(super) fn encode(seed: u64, records: &[Record]) -> Vec<u64> {
    let mut words = vec![0; lines(records.len()) as usize * LINE_WORDS];
    let footer = words.len() - LINE_WORDS;
    let first = footer - records.len() * RECORD_WORDS;
    let places = words[first..footer].as_chunks_mut::<RECORD_WORDS>().0;
    for (record, place) in records.iter().zip(places) {
        place[..KEY_WORDS].copy_from_slice(&record.key.words());
        place[KEY_WORDS] = u64::from(record.line) << 32 | u64::from(record.len);
    }
    words[footer] = sum(seed, &words[first..footer]);
    words[footer + 1] = records.len() as u64;
    words
}

/// Returns the summary at the end of a segment with this seed, if it is intact.
pub(super) fn read<M: Medium>(pm: &M, segment: &[PmU64], seed: u64) -> Option<Vec<Record>> {
    let footer = segment.len().checked_sub(LINE_WORDS)?;
    let stored = pm.load(&segment[footer]);
    let count = usize::try_from(pm.load(&segment[footer + 1])).ok()?;
    let first = footer.checked_sub(count.checked_mul(RECORD_WORDS)?)?;
    let mut words = vec![0; footer - first];
    pm.read_words(&segment[first..footer], &mut words);
    if stored != sum(seed, &words) {
        return None;
    }
    let record = |words: &[u64; RECORD_WORDS]| {
        let mut key = [0; KEY_WORDS];
        key.copy_from_slice(&words[..KEY_WORDS]);
        let (line, len) = ((words[KEY_WORDS] >> 32) as u32, words[KEY_WORDS] as u32);
        Record { key: Key::of(key), line, len }
    };
    let records: Vec<Record> = words.as_chunks().0.iter().map(record).collect();
    // The checksum has no secret: what is read from a file may have been made.
    let lines = (footer / LINE_WORDS) as u64;
    let fits = |record: &Record| u64::from(record.line) + u64::from(lines_for(record.len)) <= lines;
    records.iter().all(fits).then_some(records)
}

fn sum(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(mix(seed ^ words.len() as u64), |sum, &word| mix(sum ^ word)) | 1
}

/// Returns the live entries of a segment with this seed and without a summary: those from the first line to
/// before the first that is not intact; and the line after them.
pub(super) fn scan<M: Medium>(pm: &M, segment: &[PmU64], seed: u64) -> (Vec<Record>, u32) {
    let (mut records, mut line) = (Vec::new(), 0);
    while let Some(cells) = segment.get(line as usize * LINE_WORDS..)
        && cells.len() >= LINE_WORDS
    {
        let stored = Stored::read(pm, cells);
        let header = stored.header();
        let record = Record { key: header.key, line, len: header.len };
        let payload = &cells[LINE_WORDS..];
        if header.len as usize > size_of_val(payload) {
            break;
        }
        let sum = payload_sum(&pm.read_vec(payload, header.len as usize));
        if !stored.is_whole(seed, line, sum) {
            break;
        }
        line = record.end();
        if stored.is_live() {
            records.push(record);
        }
    }
    (records, line)
}
