//! Tests of the block cache across processes, and its costs.
#![forbid(unsafe_code)]

mod golden;
mod killed;
