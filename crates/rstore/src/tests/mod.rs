//! A partition against a map, and in the crash simulator: with the right steps and with wrong ones.

mod crash;
mod fill;
mod fixture;
mod full;
mod golden;
mod holes;
mod limits;
mod model;
mod open;
mod room;
mod salvage;
