//! A group of replicas on one thread: messages that are lost, doubled and late, cut networks, crashes at any
//! store, replicas that lose their pools, members that come and go. What clients saw must be linearizable.

mod disk;
mod group;
mod records;
mod tests;
