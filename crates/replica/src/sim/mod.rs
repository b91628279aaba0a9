//! Simulates a group of replicas on one thread: lost, doubled and late messages, cut networks, crashes at
//! any store, replicas that lose their pools, members that join and leave. What clients saw must be
//! linearizable.

mod disk;
mod group;
mod log;
mod pieces;
mod records;
mod tests;
