//! The hash slot of a key, as in Redis Cluster: the CRC16 of the hash tag or the key, modulo 16,384.

/// The number of slots.
pub(crate) const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM, byte by byte.
const TABLE: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes
        .iter()
        .fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) ^ u16::from(*byte)) & 0xff])
}

/// Returns the part of a key that is hashed: the text between the first `{` and the next `}` unless it is
/// empty, else the key.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

/// Returns the slot of a key.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// Returns the partition of a slot: each has a range, and their sizes differ by at most one.
pub(crate) fn partition(slot: u16, partitions: usize) -> usize {
    usize::from(slot) * partitions / usize::from(SLOTS)
}

/// Returns the first and the last slot of a partition.
pub(crate) fn range(partition: usize, partitions: usize) -> (u16, u16) {
    let begin = |partition: usize| (partition * usize::from(SLOTS)).div_ceil(partitions);
    (begin(partition) as u16, (begin(partition + 1) - 1) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(of(b"foo"), 12182);
        assert_eq!(of(b"{user1000}.following"), of(b"user1000"));
        assert_eq!(of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(of(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
        assert_eq!(of(b""), 0);
    }

    #[test]
    fn ranges_and_partitions_agree() {
        for partitions in 1..40 {
            let mut next = 0;
            for number in 0..partitions {
                let (first, last) = range(number, partitions);
                assert_eq!(first, next);
                assert!((first..=last).all(|slot| partition(slot, partitions) == number));
                next = last + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }
}
