//! How a record (key and value) sits in the slot of a node: inline, or out of line.
#![forbid(unsafe_code)]
