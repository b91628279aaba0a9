//! Memory at addresses suitable for direct I/O.

/// The strictest supported alignment of memory and of offsets in a file.
pub(crate) const ALIGN: usize = 4096;

/// Bytes whose first address is a multiple of 4096, as direct I/O requires. It allocates more than it needs
/// and uses the aligned part, which needs no unsafe code.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Makes a buffer of zeros.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::default();
        buffer.grow(len);
        buffer
    }

    /// Extends the buffer to at least `len` bytes; existing bytes stay, new ones are zero.
    pub fn grow(&mut self, len: usize) {
        if len <= self.len {
            return;
        }
        if self.start + len > self.bytes.len() {
            let mut larger = vec![0; len.max(2 * self.len) + ALIGN];
            let start = larger.as_ptr().addr().next_multiple_of(ALIGN) - larger.as_ptr().addr();
            larger[start..start + self.len].copy_from_slice(self.as_slice());
            (self.bytes, self.start) = (larger, start);
        }
        self.len = len;
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Returns the bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_and_keeps_what_it_holds() {
        let mut buffer = Buffer::zeros(10);
        buffer.as_mut_slice().copy_from_slice(&[7; 10]);
        for len in [11, 5000, 4096, 70_000] {
            buffer.grow(len);
            assert_eq!(buffer.as_slice().as_ptr().addr() % ALIGN, 0);
            assert_eq!(buffer.as_slice()[..10], [7; 10]);
            assert!(buffer.as_slice()[10..].iter().all(|&b| b == 0));
        }
    }
}
