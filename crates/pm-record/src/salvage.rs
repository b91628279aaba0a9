//! Reading what can be read of a list of leaves that may be damaged.

use std::collections::HashSet;
use std::ops::Range;

use pmindex_core::{Medium, PmError, Pool};

/// What is in a leaf that may be damaged, or in a block that may be none.
#[derive(Debug)]
pub struct Salvaged<K, V> {
    /// Records that are what they seem.
    pub good: Vec<(K, V)>,
    /// How much else there is.
    pub bad: usize,
    /// The next leaf of the list; 0: none.
    pub next: u64,
}

/// Hands every record in leaves that can be told to be leaves to `each`, in no order, until that says
/// `false`; returns what is wrong. `read` reads the leaf at an offset.
///
/// First the list that begins at `head`, as far as it leads, where a leaf is believed that has as much
/// good as bad. Then, if `foreign` can say of a block whether another index owns it, all other live
/// blocks of a leaf's size that have two good records at least and nothing bad.
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
