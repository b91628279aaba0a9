//! The subject of the simulator: a [`CrashSubject`].

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::Location;

use pmindex_core::trace::Space;
use proptest::strategy::BoxedStrategy;

use super::run::Plan;

/// The reason why a check failed. Every error converts into one, so `?` works in the methods of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl<E: std::error::Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Fault {
    /// Makes a fault with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The size of the simulated pool file. Small is fast.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Bytes of the file before `create`.
    pub len: usize,
    /// Bytes to which it may grow.
    pub capacity: usize,
}

/// A persistent program and its sequential specification.
///
/// All memory that survives a crash is in the [`Space`]; everything else of `Self` is the DRAM of
/// one process. Dropping a subject must release every pool it opened in the space.
pub trait CrashSubject: Send + Sync + Sized + 'static {
    /// An operation.
    type Op: Clone + Debug + Send + Sync + 'static;
    /// What an operation returns.
    type Ret: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// The abstract state: what a user can observe. `Default` is the state after `create`.
    type Model: Clone + Debug + Default + Eq + Hash + Send + Sync + 'static;

    /// The name for `cargo xtask crash --index`.
    const NAME: &'static str;

    /// Returns the size of the pool.
    #[must_use]
    fn geometry() -> Geometry {
        Geometry { len: 128 << 10, capacity: 128 << 10 }
    }

    /// Creates the structure in zeroed memory.
    fn create(space: &Space) -> Result<Self, Fault>;

    /// Opens it after a crash at any point, recovery included; also after the process died alone: then its
    /// last stores are still in the caches, and a power failure may lose them yet. (Opening a
    /// [`Pool`](pmindex_core::Pool) makes them durable before anything reads them; a program without a pool
    /// declares by [`written_back`](pmindex_core::Medium::written_back) that it did so.) Returns `None` if
    /// `create` did not get far enough: the simulator accepts that only if `create` had not returned.
    fn open(space: &Space) -> Result<Option<Self>, Fault>;

    /// Executes an operation.
    fn apply(&self, op: &Self::Op) -> Result<Self::Ret, Fault>;

    /// Verifies the whole structure and returns its contents. Called when no operation runs.
    fn observe(&self) -> Result<Self::Model, Fault>;

    /// Proves that no block is leaked or owned twice. Called when no operation runs.
    fn audit(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Applies `op` to a model, and returns the operation's result.
    fn model(model: &mut Self::Model, op: &Self::Op) -> Self::Ret;

    /// Returns the state to continue from once this was observed: for models in which an observed state may
    /// equal several allowed ones.
    fn observed(model: Self::Model) -> Self::Model {
        model
    }

    /// Returns `true` if an operation may be the first to read what a crash left, and `false` if only
    /// [`observe`](Self::observe) tells which of the allowed states that is: then everything is read first.
    #[must_use]
    fn used_unseen() -> bool {
        true
    }

    /// Returns all outcomes that the specification allows, for operations that may also refuse (pool full).
    fn outcomes(model: &Self::Model, op: &Self::Op) -> Vec<(Self::Model, Self::Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        vec![(after, ret)]
    }

    /// Returns operations for random runs.
    fn ops() -> BoxedStrategy<Self::Op>;

    /// Returns operations for random runs with this many threads. Operations that are not linearizable (a
    /// scan, several inserts in one call) belong in runs of one thread.
    fn ops_for(threads: usize) -> BoxedStrategy<Self::Op> {
        let _ = threads;
        Self::ops()
    }

    /// Returns runs that are unlikely at random, to be crashed as well: rare structure changes, with
    /// operations in the tail that fail after a faulty one.
    #[must_use]
    fn directed() -> Vec<Plan<Self::Op>> {
        Vec::new()
    }

    /// Returns `true` if several threads may run operations at once.
    #[must_use]
    fn concurrent() -> bool {
        false
    }

    /// Returns `true` if a call site is a persistence step of this program, for coverage and mutation. Steps of the
    /// layers below have subjects of their own.
    #[must_use]
    fn owns(site: &Location<'static>) -> bool {
        let _ = site;
        true
    }

    /// Returns the source files of the steps it owns, as `(path, text)`, by `include_str!`: each flush and
    /// fence in them must be executed and crashed at.
    #[must_use]
    fn sources() -> &'static [(&'static str, &'static str)] {
        &[]
    }
}
