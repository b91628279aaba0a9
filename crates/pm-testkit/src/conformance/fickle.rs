//! Values whose encoding changes from one call to the next: the user's code, which an index cannot trust.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_index::{IndexError, MAX_VALUE_BYTES, Shape, Storable, Words};

use super::contents::same_contents;
use super::operation::Model;
use super::sample::{SampleKey, SampleValue};
use super::subject::{Maker, Rig, Types};
use super::threads::Watchdog;
use super::verdict::{Failure, Verdict, Within, ensure, ensure_eq};

/// Tags from here on have every other encoding longer than a value may be.
const HUGE: u64 = 1 << 32;

/// Bytes of encodings: short, long, too long.
const LENGTHS: [usize; 3] = [9, 700, MAX_VALUE_BYTES + 1];

/// A number whose encodings are by turns short and long, or too long.
#[derive(Debug)]
pub struct Fickle {
    tag: u64,
    /// How often it was encoded.
    turn: AtomicU64,
}

impl Clone for Fickle {
    fn clone(&self) -> Self {
        Self::tagged(self.tag)
    }
}

impl PartialEq for Fickle {
    fn eq(&self, other: &Self) -> bool {
        self.tag == other.tag
    }
}

impl Eq for Fickle {}

impl Hash for Fickle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tag.hash(state);
    }
}

impl Storable for Fickle {
    type Ref = Self;
    const SHAPE: Shape = Shape::Bytes;

    fn type_name() -> String {
        "fickle".into()
    }
    fn borrowed(&self) -> &Self {
        self
    }
    fn to_words(_: &Self) -> Words {
        unreachable!("a type of bytes")
    }
    fn from_words(_: &[u64]) -> Self {
        unreachable!("a type of bytes")
    }
    fn to_bytes(value: &Self) -> Cow<'_, [u8]> {
        // The first one is short for half of the tags.
        let turn = value.turn.fetch_add(1, Relaxed);
        let mut bytes = value.tag.to_le_bytes().to_vec();
        let len = match value.tag {
            GROWING.. if turn == 0 => LENGTHS[0],
            GROWING.. => LENGTHS[1],
            tag if (turn + tag % 2).is_multiple_of(2) => LENGTHS[0],
            HUGE.. => LENGTHS[2],
            _ => LENGTHS[1],
        };
        bytes.resize(len, bytes[0]);
        Cow::Owned(bytes)
    }
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let whole = LENGTHS.contains(&bytes.len()) && rest.iter().all(|byte| *byte == tag[0]);
        whole.then(|| Self::tagged(u64::from_le_bytes(*tag)))
    }
}

impl SampleValue for Fickle {
    fn tagged(tag: u64) -> Self {
        Self { tag, turn: AtomicU64::new(0) }
    }
    fn tag(&self) -> Option<u64> {
        Some(self.tag)
    }
    fn edges() -> Vec<Self> {
        [0, 1, 255].map(Self::tagged).into()
    }
}

/// Tags from here on are encoded short at first, and long from then on.
const GROWING: u64 = 1 << 40;

/// Numbers of records, and their first tags. Every second huge tag is too long at its second encoding, the others at
/// their first one.
const CASES: [(u64, u64); 11] = [
    (1, 0),
    (3, 1),
    (64, 0),
    (300, 1),
    (1, HUGE),
    (1, HUGE + 1),
    (5, HUGE),
    (40, HUGE + 1),
    (30, GROWING),
    (60, GROWING),
    (300, GROWING),
];

/// The calls that write many records.
const CALLS: [&str; 4] = ["bulk_load", "try_insert_many", "put_many", "insert_many"];

/// Each call that takes many values stores one encoding of each, or refuses one that is too long; no other record
/// changes, and nothing is leaked.
pub fn changing_encodings<S: Types<Value = Fickle>>(of: Maker<S>) -> Verdict {
    let _watchdog = Watchdog::new("changing_encodings");
    for call in CALLS {
        for (count, first) in CASES {
            written(of, call, count, first)
                .within(format_args!("{call} of {count} records, tags from {first}"))?;
        }
    }
    Ok(())
}

fn written<S: Types<Value = Fickle>>(of: Maker<S>, call: &str, count: u64, first: u64) -> Verdict {
    let mut rig = Rig::new(of)?;
    let index = rig.index();
    let mut model = Model::new();
    if call != "bulk_load" {
        for (key, value) in (0..count + 20).step_by(3).map(|i| (S::Key::nth(i), Fickle::tagged(i)))
        {
            ensure!(index.try_insert(key.borrowed(), &value)?.is_ok(), "try_insert");
            model.insert(key, value);
        }
    }
    let records = || (0..count).map(|i| (S::Key::nth(i), Fickle::tagged(first + i)));
    let batch: Vec<_> = records().collect();
    let stopped = match call {
        "bulk_load" => index.bulk_load(&mut records()).err(),
        "try_insert_many" => index.try_insert_many(&batch).stopped,
        "put_many" => index.put_many(&batch).err(),
        _ => index.insert_many(&batch, &mut vec![None; batch.len()]).err(),
    };
    match &stopped {
        None => {}
        Some(IndexError::ValueTooLong { .. }) if (HUGE..GROWING).contains(&first) => {}
        Some(error) => return Err(Failure::new(format!("refused: {error}"))),
    }
    for (key, value) in records() {
        let found = index.get(key.borrowed())?;
        let old = model.get(&key);
        let new = if call == "try_insert_many" { old.unwrap_or(&value) } else { &value };
        let Some(found) = found else {
            ensure!(stopped.is_some(), "a record is not there");
            continue;
        };
        ensure!(&found == new || stopped.is_some() && Some(&found) == old, "another value");
        model.insert(key, found);
    }
    ensure!(call != "bulk_load" || stopped.is_none() || model.is_empty(), "half a load");
    let (key, value) = (S::Key::nth(count + 100), Fickle::tagged(7));
    rig.index().put(key.borrowed(), &value).within("a write afterwards")?;
    model.insert(key, value);
    same_contents(rig.index(), &model)?;
    ensure_eq!(rig.index().check()?, model.len() as u64, "check");
    rig.drop_and_open()?;
    same_contents(rig.index(), &model).within("opened")?;
    rig.audit()
}
