//! A trial: a child process writes to a pool and is killed; then the pool must hold exactly the
//! acknowledged writes. `quickstart`, `torture` and `cargo xtask dax-vm` run such rounds.
//!
//! | file | contents |
//! | --- | --- |
//! | `source`, `universe` | the keys, and the value that a number stands for |
//! | `script` | what each thread writes: both processes derive it from a seed |
//! | `writer` | the child: performs its scripts, and acknowledges each step |
//! | `acks` | the acknowledgements, which survive the child |
//! | `crash` | the parent: starts the child, watches its acknowledgements, ends it |
//! | `store` | the pool: an index of byte strings, and one of integers |
//! | `model` | what the pool must hold, and how it differs |
//! | `round` | one round of all this, and the sum of many rounds |
//! | `verifier` | the comparison after a crash of the machine, which also ends the parent |

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
/// The hidden command that verifies the pool of a writer of an earlier boot.
pub(crate) const VERIFIER: &str = "trial-verifier";

/// Returns a new random seed.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() >> 32
}
