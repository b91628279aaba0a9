//! What the simulator tests: a [`CrashSubject`].

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::Location;

use pmindex_core::trace::Space;
use proptest::strategy::BoxedStrategy;

use super::run::Plan;

/// Why a check failed. Every error converts into one, so `?` works in the methods of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl<E: std::error::Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Fault {
    /// A fault with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// How large the simulated pool file is. Small is fast.
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
    /// One operation.
    type Op: Clone + Debug + Send + Sync + 'static;
    /// What an operation returns.
    type Ret: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// The abstract state: what a user can observe. `Default` is the state after `create`.
    type Model: Clone + Debug + Default + Eq + Hash + Send + Sync + 'static;

    /// The name that `cargo xtask crash --index` knows it by.
    const NAME: &'static str;

    /// The size of the pool.
    #[must_use]
    fn geometry() -> Geometry {
        Geometry { len: 128 << 10, capacity: 128 << 10 }
    }

    /// Makes the structure in zeroed memory.
    fn create(space: &Space) -> Result<Self, Fault>;

    /// Opens it after a crash at any point, recovery included; also after the process died alone: its
    /// last stores are still in the caches then, and a power failure may take them yet. (Opening a
    /// [`Pool`](pmindex_core::Pool) makes them durable before anything reads them; a program without
    /// a pool says by [`written_back`](pmindex_core::Medium::written_back) that it did.) `None` if `create` did not get far
    /// enough: the simulator accepts that only if `create` had not returned.
    fn open(space: &Space) -> Result<Option<Self>, Fault>;

    /// Executes an operation.
    fn apply(&self, op: &Self::Op) -> Result<Self::Ret, Fault>;

    /// Verifies the whole structure and returns what it contains. Called when nothing else runs.
    fn observe(&self) -> Result<Self::Model, Fault>;

    /// Proves that no block is leaked or owned twice. Called when nothing else runs.
    fn audit(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// What `op` does to a model, and what it returns.
    fn model(model: &mut Self::Model, op: &Self::Op) -> Self::Ret;

    /// The state to go on from once this was observed: for models of which a state that is observed may
    /// equal several that are allowed.
    fn observed(model: Self::Model) -> Self::Model {
        model
    }

    /// All outcomes the specification allows, for operations that may also refuse (pool full).
    fn outcomes(model: &Self::Model, op: &Self::Op) -> Vec<(Self::Model, Self::Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        vec![(after, ret)]
    }

    /// Operations for random runs.
    fn ops() -> BoxedStrategy<Self::Op>;

    /// Operations for random runs with so many threads. Operations that are not linearizable (a
    /// scan, several inserts in one call) belong in runs of one thread.
    fn ops_for(threads: usize) -> BoxedStrategy<Self::Op> {
        let _ = threads;
        Self::ops()
    }

    /// Runs that random ones hardly ever are, to be crashed besides them: rare structure changes
    /// with, in the tail, what goes wrong after a faulty one.
    #[must_use]
    fn directed() -> Vec<Plan<Self::Op>> {
        Vec::new()
    }

    /// Whether several threads may run operations at once.
    #[must_use]
    fn concurrent() -> bool {
        false
    }

    /// Whether a call site is a persistence step of this program: what coverage and mutation look
    /// at. Steps of the layers below have subjects of their own.
    #[must_use]
    fn owns(site: &Location<'static>) -> bool {
        let _ = site;
        true
    }

    /// The source files that hold the steps it owns, as `(path, text)`, by `include_str!`: each
    /// flush and fence in them must be executed and crashed at.
    #[must_use]
    fn sources() -> &'static [(&'static str, &'static str)] {
        &[]
    }
}
