//! Page 1: the number of used pages, and the roots of the maps.
//!
//! ```text
//! word 0     1                        2       3 ..
//! | format | the first unused page | maps |   root | type | bytes of the name | the name: 5 |   for each
//! ```

use pmindex_buffer::{Buffer, BufferError, Draft, Tx};
use pmindex_core::Medium;

use crate::error::PagedError;
use crate::node::{Content, Packed};
use crate::room::Room;
use crate::tree::damaged;

/// The page.
pub(crate) const META: u64 = 1;
/// Version of the layout on this page, and of nodes; not 0.
const FORMAT: u64 = 0x7061_6765_6400_0001;
const NEXT: usize = 1;
const MAPS: usize = 2;
const FIRST: usize = 3;
/// The words of a map's entry, and the maximum length of a name in bytes.
const ENTRY: usize = 8;
const NAME: usize = 40;

fn page<'t, M: Medium>(tx: &'t mut Tx<'_, M>) -> Result<&'t mut Draft, PagedError> {
    match tx.write(META) {
        Err(BufferError::NoPage { .. }) => {
            let page = tx.create(META)?;
            page.set_all(0, &[FORMAT, META + 1, 0]);
        }
        other => drop(other?),
    }
    let page = tx.write(META)?;
    if page.get(0) != FORMAT {
        return Err(PagedError::Corrupt { page: META, what: "not of this version" });
    }
    Ok(page)
}

/// Allocates a page that was not used before.
pub(crate) fn allocate<M: Medium>(tx: &mut Tx<'_, M>, room: &Room<'_>) -> Result<u64, PagedError> {
    let most = room.most();
    let meta = page(tx)?;
    let next = meta.get(NEXT);
    if next >= most {
        return Err(PagedError::Full { what: "page" });
    }
    meta.set(NEXT, next + 1);
    Ok(next)
}

/// Returns the number of used pages.
pub(crate) fn used<M: Medium>(buffer: &Buffer<M>) -> Result<u64, PagedError> {
    Ok(buffer.read(META, |page| page.word(NEXT))?)
}

/// Returns the root of a map, and creates the map if it does not exist.
pub(crate) fn find_or_make<M: Medium>(
    tx: &mut Tx<'_, M>,
    pages: u64,
    name: &str,
    types: u64,
) -> Result<u64, PagedError> {
    if name.is_empty() || name.len() > NAME {
        return Err(PagedError::BadName { len: name.len(), max: NAME });
    }
    let meta = page(tx)?;
    let mut wanted = Packed::new(name.as_bytes()).words;
    wanted.resize(NAME / 8, 0);
    let maps = meta.get(MAPS).min(meta.words().len() as u64) as usize;
    for nth in 0..maps {
        let at = FIRST + nth * ENTRY;
        let same = meta.get(at + 2) == name.len() as u64
            && (0..NAME / 8).all(|word| meta.get(at + 3 + word) == wanted[word]);
        if same {
            if meta.get(at + 1) != types {
                return Err(PagedError::WrongType { name: name.into() });
            }
            return Ok(meta.get(at));
        }
    }
    let at = FIRST + maps * ENTRY;
    if at + ENTRY > meta.words().len() {
        return Err(PagedError::Full { what: "place for a map" });
    }
    let root = allocate(tx, &Room::all(pages))?;
    Content::default().write(tx.create(root)?).map_err(damaged(root))?;
    let meta = page(tx)?;
    meta.set_all(at, &[root, types, name.len() as u64]);
    meta.set_all(at + 3, &wanted);
    meta.set(MAPS, maps as u64 + 1);
    Ok(root)
}
