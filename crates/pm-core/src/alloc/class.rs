//! Size classes, and the number of pages in a slab of each class.
//!
//! Steps of 16 bytes up to 128, then 8 classes per doubling up to 32 KiB, so that no request wastes more than
//! an eighth. A slab is a run of pages: its header takes the first line; the blocks follow at a multiple of
//! the largest power of two that divides the class, at most 256. This alignment wastes nothing: a run is a
//! multiple of the same power of two.
//!
//! A slab has few pages in a small zone and up to 64 in a large one: the smallest number that wastes hardly
//! more than the best number. A class that wastes least as an extent of whole pages has no slabs at all.

use super::geometry::PAGE;

/// The number of classes.
pub(super) const CLASSES: usize = 72;
/// The largest class.
pub(super) const CLASS_MAX: u64 = class_bytes(CLASSES - 1);
/// The largest number of blocks in a slab: the bits of seven words.
pub(super) const BLOCKS_MAX: u32 = 7 * 64;
/// The largest alignment on request.
pub(super) const ALIGN_MAX: u64 = 256;
/// The largest number of pages in a slab.
const PAGES_MAX: u64 = 64;

/// Returns the size of the class's blocks in bytes.
#[inline(always)]
pub(super) const fn class_bytes(class: usize) -> u64 {
    if class < 8 {
        return (class as u64 + 1) * 16;
    }
    let (doubling, step) = ((class - 8) / 8, (class - 8) % 8);
    (step as u64 + 9) << (doubling + 4)
}

/// Returns the least class with blocks of `size` bytes; `size` is at most [`CLASS_MAX`].
#[inline(always)]
const fn class_for(size: u64) -> usize {
    if size <= 128 {
        return (size.saturating_sub(1) / 16) as usize;
    }
    let last = size - 1;
    let doubling = last.ilog2() as usize - 7;
    8 + doubling * 8 + ((last >> (doubling + 4)) as usize - 8)
}

/// Returns the least class whose blocks have `size` bytes and lie at multiples of `align`, if there is one.
#[inline(always)]
pub(super) const fn class_of(size: u64, align: u64) -> Option<usize> {
    let align = if align < 16 { 16 } else { align };
    if size > CLASS_MAX {
        return None;
    }
    let mut class = class_for(size.next_multiple_of(align));
    while class < CLASSES && !class_bytes(class).is_multiple_of(align) {
        class += 1;
    }
    if class < CLASSES { Some(class) } else { None }
}

/// 2^32 divided by the class in units of 16 bytes, rounded up.
static RECIPROCALS: [u64; CLASSES] = {
    let mut all = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        all[class] = (1u64 << 32).div_ceil(class_bytes(class) / 16);
        class += 1;
    }
    all
};

/// Divides `within` by the class's size without a division; returns the quotient and whether the remainder is
/// 0. `within` is less than a slab: 2^14 units. A class has at most 2^11, so the product of both errors stays
/// below 2^32.
#[inline(always)]
pub(super) fn divide(within: u64, class: usize) -> (u64, bool) {
    let quotient = ((within / 16) * RECIPROCALS[class]) >> 32;
    (quotient, quotient * class_bytes(class) == within)
}

/// Returns the offset of the first block in a slab.
#[inline(always)]
pub(super) const fn class_start(class: usize) -> u64 {
    let natural = 1 << class_bytes(class).trailing_zeros();
    if natural < 64 {
        64
    } else if natural > ALIGN_MAX {
        ALIGN_MAX
    } else {
        natural
    }
}

/// The slabs of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Pages of a slab; 0 if the class has none, because extents waste less.
    pub(super) pages: u32,
    /// Blocks in it.
    pub(super) blocks: u32,
}

const fn shape_with(class: usize, pages: u64) -> Shape {
    let blocks = (pages * PAGE - class_start(class)) / class_bytes(class);
    let blocks = if blocks > BLOCKS_MAX as u64 { BLOCKS_MAX as u64 } else { blocks };
    Shape { pages: pages as u32, blocks: blocks as u32 }
}

/// Returns the used part of a slab, in units of 2^-20.
const fn usage(class: usize, shape: Shape) -> u64 {
    ((shape.blocks as u64 * class_bytes(class)) << 20) / (shape.pages as u64 * PAGE)
}

const fn best_shape(class: usize, pages_max: u64) -> Shape {
    let size = class_bytes(class);
    let extent = (size << 20) / (size.div_ceil(PAGE) * PAGE);
    let mut best = extent;
    let mut pages = 1;
    while pages <= pages_max {
        let used = usage(class, shape_with(class, pages));
        if used > best {
            best = used;
        }
        pages += 1;
    }
    if best == extent {
        return Shape { pages: 0, blocks: 0 };
    }
    let mut pages = 1;
    while usage(class, shape_with(class, pages)) + (1 << 12) < best {
        pages += 1;
    }
    shape_with(class, pages)
}

/// The shapes of all classes.
pub(super) type Shapes = [Shape; CLASSES];

const fn shapes_with(pages_max: u64) -> Shapes {
    let mut shapes = [Shape { pages: 0, blocks: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        shapes[class] = best_shape(class, pages_max);
        class += 1;
    }
    shapes
}

static SHAPES: [Shapes; 7] = [
    shapes_with(1),
    shapes_with(2),
    shapes_with(4),
    shapes_with(8),
    shapes_with(16),
    shapes_with(32),
    shapes_with(64),
];

/// Returns the shapes of slabs in zones of `zone_bytes`. Part of the format.
pub(super) fn shapes_for(zone_bytes: u64) -> &'static Shapes {
    let pages_max = (zone_bytes / PAGE / 32).clamp(1, PAGES_MAX);
    &SHAPES[pages_max.ilog2() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_and_hold_what_they_are_asked_for() {
        assert_eq!(CLASS_MAX, 32 << 10);
        for class in 1..CLASSES {
            assert!(class_bytes(class) > class_bytes(class - 1));
        }
        for size in 1..=CLASS_MAX {
            let class = class_for(size);
            assert!(class_bytes(class) >= size);
            assert!(class == 0 || class_bytes(class - 1) < size, "size {size}");
            assert!(class_bytes(class) - size <= (size / 8).max(15), "size {size}");
        }
        assert!(class_of(CLASS_MAX + 1, 1).is_none());
        assert!(class_of(u64::MAX, 256).is_none());
        assert_eq!(class_bytes(class_of(1152, 64).expect("a class")), 1152);
    }

    #[test]
    fn blocks_stand_where_the_request_wants_them() {
        for align in [1, 8, 16, 64, 128, 256] {
            for size in (1..CLASS_MAX - 256).step_by(7) {
                let class = class_of(size, align).expect("a class");
                assert!(class_bytes(class) >= size);
                assert!(class_bytes(class).is_multiple_of(align));
                assert!(class_start(class).is_multiple_of(align));
            }
        }
    }

    #[test]
    fn dividing_by_a_class_is_exact() {
        for class in 0..CLASSES {
            for within in (0..PAGES_MAX * PAGE).step_by(8) {
                let (quotient, exact) = divide(within, class);
                assert_eq!(exact, within % class_bytes(class) == 0, "{within} of class {class}");
                assert!(!exact || quotient == within / class_bytes(class));
            }
        }
    }

    #[test]
    fn slabs_waste_little_and_fit_their_header() {
        for (row, shapes) in SHAPES.iter().enumerate() {
            for (class, shape) in shapes.iter().enumerate().filter(|(_, s)| s.pages > 0) {
                assert!(u64::from(shape.pages) <= 1 << row);
                assert!((1..=BLOCKS_MAX).contains(&shape.blocks));
                let end = class_start(class) + u64::from(shape.blocks) * class_bytes(class);
                assert!(end <= u64::from(shape.pages) * PAGE);
            }
        }
        let large = shapes_for(16 << 20);
        let small = class_of(4096, 1).expect("a class");
        for (class, &shape) in large.iter().enumerate().take(small) {
            assert!(usage(class, shape) > (98 << 20) / 100, "class {class}: {shape:?}");
        }
    }
}
