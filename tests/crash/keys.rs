//! Byte strings as keys.

/// Returns the key `n` of families of three, in order: one is the beginning of the other two, whose common beginning is
/// longer than a word. So lengths and first words differ and are equal, and separators tie and have tails.
pub(crate) fn family(n: u64) -> Vec<u8> {
    let first = [b'a' + (n / 3) as u8];
    match n % 3 {
        0 => first.to_vec(),
        _ => [&first[..], b"fingerprint", &n.to_be_bytes()].concat(),
    }
}
