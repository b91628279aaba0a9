//! The medium's internal access unit: 256-byte `XPLine`s behind a 16 KiB write-combining buffer.
//!
//! Lines of 64 bytes that reach persistent memory are kept in a small buffer of 256-byte units. The least
//! recently written unit goes to the medium when room is needed. A unit that goes before all its four lines
//! were written must be read first. (Parameters as measured for Optane by Yang et al., FAST 2020, and used
//! since as the standard for write amplification.)

use super::Counts;

/// Bytes of a unit.
const UNIT: usize = 256;
/// Units in the buffer.
const UNITS: usize = 16 * 1024 / UNIT;

/// A unit in the buffer.
#[derive(Clone, Copy, Debug)]
struct Unit {
    number: usize,
    /// One bit per line that was written since the unit entered the buffer.
    written: u8,
}

/// The write-combining buffer, least recently written first.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    units: Vec<Unit>,
}

impl Buffer {
    /// Writes a line; returns the traffic to the medium that it causes.
    pub(super) fn write(&mut self, line: usize) -> Counts {
        let (number, bit) = (line / UNIT, 1 << (line % UNIT / 64));
        let mut unit = Unit { number, written: bit };
        let mut cost = Counts::default();
        if let Some(at) = self.units.iter().rposition(|unit| unit.number == number) {
            unit.written |= self.units.remove(at).written;
        } else if self.units.len() == UNITS {
            cost = self.units.remove(0).evict();
        }
        self.units.push(unit);
        cost
    }

    /// Empties the buffer; returns the traffic to the medium.
    pub(super) fn drain(&mut self) -> Counts {
        self.units.drain(..).fold(Counts::default(), |sum, unit| sum + unit.evict())
    }
}

impl Unit {
    fn evict(self) -> Counts {
        let media_read = if self.written == 0b1111 { 0 } else { UNIT as u64 };
        Counts { media_written: UNIT as u64, media_read, ..Counts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(buffer: &mut Buffer, lines: impl IntoIterator<Item = usize>) -> Counts {
        lines.into_iter().fold(Counts::default(), |sum, line| sum + buffer.write(line))
            + buffer.drain()
    }

    #[test]
    fn sequential_lines_combine_and_scattered_ones_amplify_four_times() {
        let mut buffer = Buffer::default();
        let sequential = total(&mut buffer, (0..4000).map(|i| 64 * i));
        assert_eq!((sequential.media_written, sequential.media_read), (4000 * 64, 0));
        let scattered = total(&mut buffer, (0..4000).map(|i| 4096 * i));
        assert_eq!((scattered.media_written, scattered.media_read), (4000 * 256, 4000 * 256));
    }

    #[test]
    fn a_unit_stays_while_it_is_among_the_64_most_recent() {
        let mut buffer = Buffer::default();
        // 64 units in turn, repeatedly: all stores combine, and no unit goes before the end.
        let fits = total(&mut buffer, (0..10).flat_map(|_| (0..64).map(|i| 256 * i)));
        assert_eq!(fits.media_written, 64 * 256);
        // 65 units in turn: each unit is gone before its next store.
        let thrashes = total(&mut buffer, (0..10).flat_map(|_| (0..65).map(|i| 256 * i)));
        assert_eq!(thrashes.media_written, 650 * 256);
    }
}
