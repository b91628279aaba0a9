//! Tests of pools that need more than the public interface.

mod memory;
