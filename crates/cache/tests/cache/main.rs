//! The block cache as another process finds it, and what it costs.
#![forbid(unsafe_code)]

mod golden;
mod killed;
