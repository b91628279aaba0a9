//! Damaged and hostile metadata: any word may have any value, and the result is an error or a wrong answer,
//! never a panic, a hang, or an access out of bounds.

use proptest::prelude::*;

use super::*;
use crate::alloc::Owner;
use crate::alloc::head::Run;
use crate::alloc::ticket::TicketBlock;
use crate::media::Flushed;

/// The new value of a word.
#[derive(Clone, Debug)]
enum Damage {
    Random(u64),
    Flip(u32),
    Small(u64),
    /// A word of the page table that passes its check.
    Head {
        class: usize,
        pages: u32,
        extent: bool,
    },
    /// The first word of a ticket.
    Ticket {
        block: u64,
        class: usize,
        kind: u8,
    },
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<u64>().prop_map(Damage::Random),
        (0..64u32).prop_map(Damage::Flip),
        (0..400_000u64).prop_map(Damage::Small),
        (0..72usize, 1..20u32, any::<bool>()).prop_map(|(class, pages, extent)| Damage::Head {
            class,
            pages,
            extent
        }),
        (0..20_000u64, 0..72usize, 0..3u8).prop_map(|(block, class, kind)| Damage::Ticket {
            block,
            class,
            kind
        }),
    ]
}

/// Returns words of the slots and of the first pages of the first zone: tickets, page table, slab headers.
fn words(pool: &Pool<Traced>) -> Vec<usize> {
    let geometry = &pool.heap.geometry;
    let slots = geometry.slots_offset..geometry.slots_offset + 512;
    let table = geometry.zones_offset..geometry.zones_offset + 128;
    let headers = (1..16).flat_map(|page| {
        let base = geometry.zones_offset + page * 4096;
        base..base + 64
    });
    slots.chain(table).chain(headers).filter(|at| at % 8 == 0).map(|at| (at / 8) as usize).collect()
}

fn apply(space: &Space, zones: u64, word: usize, damage: &Damage) {
    let old = space.peek(word);
    let value = match *damage {
        Damage::Random(value) | Damage::Small(value) => value,
        Damage::Flip(bit) => old ^ (1 << bit),
        Damage::Head { class, pages, extent } => {
            let run = if extent { Run::Extent { pages } } else { Run::Slab { class, pages } };
            // For a word of the page table, the page that it describes; for any other word, some page.
            let page = (word as u64 * 8).wrapping_sub(zones) / 8 % 16;
            run.encode(zones + page * 4096)
        }
        Damage::Ticket { block, class, kind } => {
            let offset = block * 16;
            let base = offset / 4096 * 4096;
            match kind {
                0 => TicketBlock::Extent { offset: base, pages: 3 }.encode(),
                kind => TicketBlock::Slab { offset, class, base, fresh: kind == 1 }.encode(),
            }
        }
    };
    space.poke(word, value);
}

/// Uses a pool as if nothing were wrong.
fn carry_on(space: &Space, root: PPtr<Root>) {
    let Ok(pool) = Pool::open_traced(space, &tiny()) else { return };
    let _ = pool.audit(core::iter::empty());
    let _ = pool.used_bytes();
    let Ok(root) = pool.get(root) else { return };
    for (i, place) in root.places.iter().enumerate() {
        let _ = pool.block_size(pool.pm().load(place));
        if i % 3 == 0 {
            let _ = pool.free_from(place);
        }
        if pool.pm().load(place).is_null() {
            let _ = allocate(&pool, place, 1 + i as u64 * 331);
        }
    }
    let _ = pool.trim();
    let _ = pool.live_blocks();
}

fn allocate(
    pool: &Pool<Traced>,
    place: &PmCell<PPtr<PmU64>>,
    size: u64,
) -> Result<(), crate::PmError> {
    let mut op = pool.op()?;
    let block = op.reserve_bytes(size, 16)?;
    op.allocate(&block, Owner::pointer(place, block.ptr()))?;
    op.prepare(Flushed::nothing())?;
    pool.pm().store(place, block.ptr());
    let sealed = op.seal().and(pool.pm().flush(place));
    op.finish(pool.pm().fence(sealed)?);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn damaged_metadata_are_errors_and_never_panics(
        damages in proptest::collection::vec((any::<prop::sample::Index>(), damage()), 1..12)
    ) {
        let (space, pool, root) = traced();
        for (i, place) in pool.get(root).unwrap().places.iter().enumerate().take(20) {
            allocate(&pool, place, 1 + i as u64 * 97).unwrap();
        }
        let (words, zones) = (words(&pool), pool.heap.geometry.zones_offset);
        pool.kill();
        for (index, damage) in &damages {
            apply(&space, zones, *index.get(&words), damage);
        }
        space.limit_steps(5_000_000);
        carry_on(&space, root);
    }
}
