//! Hostile and broken pool files: an error or some answer, for every kind of index.
#![forbid(unsafe_code)]

mod attack;
mod corpus;
mod damage;
#[cfg(test)]
mod tests;

pub use attack::{Damage, How, Target};
pub use corpus::{carry_out, kept};
pub use damage::Tally;
