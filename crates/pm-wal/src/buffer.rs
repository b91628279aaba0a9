//! Memory at addresses that direct I/O accepts.

/// The strictest alignment of memory and of places in a file that is served.
pub(crate) const ALIGN: usize = 4096;

/// Bytes whose first address is a multiple of 4096, as direct I/O asks for. More than are asked for are allocated, and the
/// part that is aligned is used: that needs no unsafe code.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeros.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::default();
        buffer.grow(len);
        buffer
    }

    /// Makes it `len` bytes long at least; the bytes there are stay, the others are zero.
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

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
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
