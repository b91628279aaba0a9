//! BzTree.

mod access;
mod batch;
mod bulk;
mod check;
mod count;
mod inner;
mod install;
mod layout;
mod leaf;
mod merge;
mod range;
mod record;
mod recover;
mod split;
mod traits;
mod tree;
mod write;

pub use layout::Root;
pub use range::Range;
pub use tree::BzTree;
