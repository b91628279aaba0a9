//! Hostile and broken pool files: an error or some answer, for every kind of index.
#![forbid(unsafe_code)]

mod attack;
#[cfg(test)]
mod tests;

pub use attack::{Damage, How, Target};
