//! Corrects the checksums of a damaged image, so that tests reach the code behind them.

use super::directory;
use super::layout::{DIRECTORY_ENTRIES, DIRECTORY_OFFSET, DirectoryEntry, SUPERBLOCKS};
use super::superblock;

/// Sets every checksum of an image to the right value. For tests and fuzzing: an attacker who can write a
/// file can do this too.
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
