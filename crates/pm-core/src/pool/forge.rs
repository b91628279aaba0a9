//! Checksums of a damaged image put right, so that tests reach what they protect.

use super::directory;
use super::layout::{DIRECTORY_ENTRIES, DIRECTORY_OFFSET, DirectoryEntry, SUPERBLOCKS};
use super::superblock;

/// Makes every checksum of an image what its words demand. For tests and fuzzing: an enemy that can write
/// a file can do this too.
#[doc(hidden)]
pub fn forge_checksums(image: &mut [u64]) {
    for copy in SUPERBLOCKS {
        let at = (copy / 8) as usize;
        if let Some(words) = image.get_mut(at..at + superblock::WORDS) {
            superblock::forge(words);
        }
    }
    let entry = size_of::<DirectoryEntry>() / 8;
    let start = (DIRECTORY_OFFSET / 8) as usize;
    for number in 0..DIRECTORY_ENTRIES {
        if let Some(words) = image.get_mut(start + number * entry..start + (number + 1) * entry) {
            directory::forge(number as u16, words);
        }
    }
}
