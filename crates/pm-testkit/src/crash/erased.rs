//! Subjects without their types: the explorer is compiled once for all of them.
//!
//! [`Program`] describes a [`CrashSubject`], [`Running`] is an instance of it, [`AnyOp`] an operation of it,
//! and [`AnyValue`] the result of an operation, or a state. A subject receives only its own operations and
//! values.

use std::any::Any;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use pmindex_core::trace::Space;
use proptest::strategy::{BoxedStrategy, Strategy};

use super::run::Plan;
use super::subject::{CrashSubject, Fault, Geometry};

/// An operation of some subject.
#[derive(Clone)]
pub(crate) struct AnyOp(Arc<dyn Operation>);

/// The result of some subject's operation, or a state of its model.
#[derive(Clone)]
pub(crate) struct AnyValue(Arc<dyn Comparable>);

trait Operation: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Operation for T {}

trait Comparable: Any + Debug + Send + Sync {
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<T: Any + Debug + Send + Sync + PartialEq> Comparable for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
}

impl AnyOp {
    pub(crate) fn new<T: Any + Debug + Send + Sync>(op: T) -> Self {
        Self(Arc::new(op))
    }

    fn get<T: Any>(&self) -> &T {
        own((&*self.0 as &dyn Any).downcast_ref())
    }
}

impl AnyValue {
    pub(crate) fn new<T: Any + Debug + Send + Sync + PartialEq>(value: T) -> Self {
        Self(Arc::new(value))
    }

    pub(crate) fn get<T: Any>(&self) -> &T {
        own((&*self.0 as &dyn Any).downcast_ref())
    }
}

/// Returns a subject's operation or value with its type.
fn own<T>(found: Option<&T>) -> &T {
    found.unwrap_or_else(|| panic!("a {} of another subject", std::any::type_name::<T>()))
}

impl PartialEq for AnyValue {
    fn eq(&self, other: &Self) -> bool {
        (*self.0).equals(&*other.0)
    }
}

impl Debug for AnyOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (*self.0).fmt(f)
    }
}

impl Debug for AnyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (*self.0).fmt(f)
    }
}

/// An instance of a subject: see the methods of [`CrashSubject`].
pub(crate) trait Running: Send + Sync {
    fn apply(&self, op: &AnyOp) -> Result<AnyValue, Fault>;
    fn observe(&self) -> Result<AnyValue, Fault>;
    fn audit(&self) -> Result<(), Fault>;
}

impl<S: CrashSubject> Running for S {
    fn apply(&self, op: &AnyOp) -> Result<AnyValue, Fault> {
        CrashSubject::apply(self, op.get()).map(AnyValue::new)
    }

    fn observe(&self) -> Result<AnyValue, Fault> {
        CrashSubject::observe(self).map(AnyValue::new)
    }

    fn audit(&self) -> Result<(), Fault> {
        CrashSubject::audit(self)
    }
}

/// A subject: see the functions of [`CrashSubject`].
pub(crate) trait Program: Debug + Sync {
    fn name(&self) -> &'static str;
    fn geometry(&self) -> Geometry;
    fn create(&self, space: &Space) -> Result<Box<dyn Running>, Fault>;
    fn open(&self, space: &Space) -> Result<Option<Box<dyn Running>>, Fault>;
    /// Returns the state after `create`.
    fn initial(&self) -> AnyValue;
    /// Returns the state after an operation, and the operation's result.
    fn model(&self, model: &AnyValue, op: &AnyOp) -> (AnyValue, AnyValue);
    /// Returns the state to continue from once this was observed.
    fn observed(&self, model: &AnyValue) -> AnyValue;
    fn used_unseen(&self) -> bool;
    fn outcomes(&self, model: &AnyValue, op: &AnyOp) -> Vec<(AnyValue, AnyValue)>;
    fn ops(&self) -> BoxedStrategy<AnyOp>;
    fn ops_for(&self, threads: usize) -> BoxedStrategy<AnyOp>;
    fn directed(&self) -> Vec<Plan<AnyOp>>;
    fn concurrent(&self) -> bool;
    fn owns(&self, site: &Location<'static>) -> bool;
    fn sources(&self) -> &'static [(&'static str, &'static str)];
}

/// A subject without its type.
pub(crate) type AnySubject = &'static dyn Program;

/// Removes the type of a subject.
pub(crate) fn subject<S: CrashSubject>() -> AnySubject {
    &Forgotten::<S>(PhantomData)
}

struct Forgotten<S>(PhantomData<fn() -> S>);

impl<S: CrashSubject> Debug for Forgotten<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(S::NAME)
    }
}

impl<S: CrashSubject> Program for Forgotten<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn geometry(&self) -> Geometry {
        S::geometry()
    }

    fn create(&self, space: &Space) -> Result<Box<dyn Running>, Fault> {
        Ok(Box::new(S::create(space)?))
    }

    fn open(&self, space: &Space) -> Result<Option<Box<dyn Running>>, Fault> {
        Ok(match S::open(space)? {
            Some(subject) => Some(Box::new(subject)),
            None => None,
        })
    }

    fn initial(&self) -> AnyValue {
        AnyValue::new(S::Model::default())
    }

    fn model(&self, model: &AnyValue, op: &AnyOp) -> (AnyValue, AnyValue) {
        let mut after = model.get::<S::Model>().clone();
        let ret = S::model(&mut after, op.get());
        (AnyValue::new(after), AnyValue::new(ret))
    }

    fn observed(&self, model: &AnyValue) -> AnyValue {
        AnyValue::new(S::observed(model.get::<S::Model>().clone()))
    }

    fn used_unseen(&self) -> bool {
        S::used_unseen()
    }

    fn outcomes(&self, model: &AnyValue, op: &AnyOp) -> Vec<(AnyValue, AnyValue)> {
        let outcomes = S::outcomes(model.get(), op.get());
        outcomes.into_iter().map(|(m, r)| (AnyValue::new(m), AnyValue::new(r))).collect()
    }

    fn ops(&self) -> BoxedStrategy<AnyOp> {
        S::ops().prop_map(AnyOp::new).boxed()
    }

    fn ops_for(&self, threads: usize) -> BoxedStrategy<AnyOp> {
        S::ops_for(threads).prop_map(AnyOp::new).boxed()
    }

    fn directed(&self) -> Vec<Plan<AnyOp>> {
        S::directed().iter().map(erased).collect()
    }

    fn concurrent(&self) -> bool {
        S::concurrent()
    }

    fn owns(&self, site: &Location<'static>) -> bool {
        S::owns(site)
    }

    fn sources(&self) -> &'static [(&'static str, &'static str)] {
        S::sources()
    }
}

/// Returns the same plan without the type of its operations.
pub(crate) fn erased<T: Any + Clone + Debug + Send + Sync>(plan: &Plan<T>) -> Plan<AnyOp> {
    let all = |ops: &[T]| ops.iter().cloned().map(AnyOp::new).collect();
    Plan {
        setup: all(&plan.setup),
        threads: plan.threads.iter().map(|ops| all(ops)).collect(),
        tail: all(&plan.tail),
    }
}
