//! Salvage: reading a list of leaves that may be damaged.

use std::collections::HashSet;
use std::ops::Range;

use pmindex_core::{Medium, PmError, Pool};

/// The contents of a leaf that may be damaged, or of a block that may be no leaf.
#[derive(Debug)]
pub struct Salvaged<K, V> {
    /// The intact records.
    pub good: Vec<(K, V)>,
    /// The number of damaged ones.
    pub bad: usize,
    /// The next leaf of the list; 0 if there is none.
    pub next: u64,
}

/// Calls `each` with every record of the recognizable leaves, in no order, until it returns `false`; returns
/// the faults. `read` reads the leaf at an offset.
///
/// First it follows the list that begins at `head` as far as possible, and accepts a leaf that has at least
/// as many intact records as damaged ones. Then, if `foreign` can say whether another index owns a block, it
/// reads all other live blocks of a leaf's size, and accepts those with at least two intact records and no
/// damaged ones.
pub fn salvage_leaves<K, V, M: Medium>(
    pool: &Pool<M>,
    (head, bytes): (u64, u64),
    foreign: Option<&dyn Fn(u64) -> bool>,
    read: &dyn Fn(u64) -> Result<Salvaged<K, V>, PmError>,
    each: &mut dyn FnMut(K, V) -> bool,
) -> Vec<PmError> {
    let mut damage = Vec::new();
    let mut give = |good: Vec<(K, V)>| good.into_iter().all(|(key, value)| each(key, value));
    let (mut seen, mut next) = (HashSet::new(), head);
    while next != 0 && seen.insert(next) {
        let leaf = match read(next) {
            Ok(leaf) => leaf,
            Err(error) => {
                damage.push(error);
                break;
            }
        };
        if leaf.bad > 0 {
            damage.push(PmError::Corrupt { what: "a leaf", offset: next });
        }
        if leaf.good.len() >= leaf.bad && !give(leaf.good) {
            return damage;
        }
        next = leaf.next;
    }
    let Some(foreign) = foreign else { return damage };
    let blocks = pool.live_blocks().unwrap_or_else(|error| {
        damage.push(error);
        Vec::new()
    });
    let sized: Range<u64> = bytes..bytes * 5 / 4;
    for (offset, _) in blocks.into_iter().filter(|(_, size)| sized.contains(size)) {
        if seen.contains(&offset) || foreign(offset) {
            continue;
        }
        let Ok(Salvaged { good, bad: 0, .. }) = read(offset) else { continue };
        if good.len() < 2 {
            continue;
        }
        let what = "the list of leaves does not lead to a leaf";
        damage.push(PmError::Corrupt { what, offset });
        if !give(good) {
            break;
        }
    }
    damage
}
