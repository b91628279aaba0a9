//! Compression of a block: its length, in [`HEAD`] bytes, then an LZ4 block.

/// Bytes before the LZ4 block.
pub(super) const HEAD: usize = 4;

/// Returns the length of a block before compression.
pub(super) fn len(packed: &[u8]) -> usize {
    packed.first_chunk::<HEAD>().map_or(0, |head| u32::from_le_bytes(*head) as usize)
}

/// Compresses a block, if that makes it smaller by an eighth or more.
#[cfg(feature = "lz4")]
pub(super) fn pack(bytes: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(bytes.len()).ok()?;
    let mut packed = vec![0; HEAD + lz4_flex::block::get_maximum_output_size(bytes.len())];
    packed[..HEAD].copy_from_slice(&len.to_le_bytes());
    let used = lz4_flex::block::compress_into(bytes, &mut packed[HEAD..]).ok()?;
    packed.truncate(HEAD + used);
    (packed.len() + bytes.len() / 8 <= bytes.len()).then_some(packed)
}

/// Decompresses a block whose checksum was right.
#[cfg(feature = "lz4")]
pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len(packed)];
    let used = lz4_flex::block::decompress_into(packed.get(HEAD..)?, &mut bytes).ok()?;
    (used == bytes.len()).then_some(bytes)
}

#[cfg(not(feature = "lz4"))]
pub(super) fn pack(_: &[u8]) -> Option<Vec<u8>> {
    None
}

#[cfg(not(feature = "lz4"))]
pub(super) fn unpack(_: &[u8]) -> Option<Vec<u8>> {
    None
}

#[cfg(all(test, feature = "lz4"))]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_as_it_was_or_is_not_packed() {
        for size in [0, 1, 7, 64, 4096, 100_000] {
            let same = vec![7; size];
            if let Some(packed) = pack(&same) {
                assert!(packed.len() + size / 8 <= size);
                assert_eq!((len(&packed), unpack(&packed)), (size, Some(same)));
            } else {
                assert!(size < 64, "{size} equal bytes are not packed");
            }
            let random: Vec<u8> = (0..size as u64).map(|n| crate::hash::mix(n) as u8).collect();
            assert!(size == 0 || pack(&random).is_none());
        }
        let mut cut = pack(&[7; 4096]).unwrap();
        cut.pop();
        assert_eq!((unpack(&cut), unpack(&[]), unpack(&[1, 0])), (None, None, None));
    }
}
