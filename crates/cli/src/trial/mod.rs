//! A trial: a child process writes to a pool and dies, and then the pool must hold exactly what was
//! acknowledged. `quickstart`, `torture` and `cargo xtask dax-vm` are made of such rounds.
//!
//! | file | what |
//! | --- | --- |
//! | `source`, `universe` | the keys, and what a number means as a value |
//! | `script` | what each thread writes, known to both processes from a seed |
//! | `writer` | the child: performs its scripts and acknowledges each step |
//! | `acks` | the acknowledgements, which outlive it |
//! | `crash` | the parent: starts the child, watches its acknowledgements, ends it |
//! | `store` | the pool: an index of byte strings and one of integers |
//! | `model` | what the pool must hold, and how it differs |
//! | `round` | all of this once, and the sum of many rounds |
//! | `verifier` | the same where the parent dies too: after a crash of the machine |

pub(crate) mod acks;
pub(crate) mod crash;
pub(crate) mod model;
pub(crate) mod round;
pub(crate) mod script;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod universe;
pub(crate) mod verifier;
pub(crate) mod writer;

/// The hidden command of the child process.
pub(crate) const WRITER: &str = "trial-writer";
/// The hidden command that verifies what a writer of an earlier boot has left.
pub(crate) const VERIFIER: &str = "trial-verifier";

/// Returns a seed that no earlier run had.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() >> 32
}
