//! Hostile and broken pool files: an error or some answer, for every kind of index.
#![forbid(unsafe_code)]

mod agree;
mod attack;
mod blot;
#[cfg(test)]
mod by_hash;
mod corpus;
mod damage;
mod going_on;
mod image;
#[cfg(test)]
mod tests;

pub use agree::agree;
pub use attack::{Damage, How, Target};
pub use blot::{Blot, Paper, Seen};
pub use corpus::{carry_out, kept};
pub use damage::Tally;
pub use going_on::{End, Running};
