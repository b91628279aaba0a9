//! Tests of the crate as its users have it, over every kind of index. They are one program, because each program
//! compiles the indexes anew.

mod backup;
mod buffers;
mod churn;
mod disk;
mod fixtures;
mod handles;
mod names;
mod paged;
mod sending;
mod space;
mod store;
mod strings;
mod types;
