//! Several changes as one, and compare-and-swap: [`Batched`].

mod changes;
mod index;
mod log;

#[cfg(test)]
mod tests;

pub use changes::WriteBatch;
pub use index::{Batched, Exchange};
pub use log::BATCH_LOG;
