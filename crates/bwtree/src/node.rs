//! Pages: a base and the deltas before it, newest first.
//!
//! A node in a chain never changes, except for the two flags that say that a structural change is complete.

use std::borrow::Borrow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use sdd::Shared;

use crate::table::Pid;

/// The node after a delta.
pub(crate) type Next<K, V> = Shared<Node<K, V>>;

/// A base or a delta.
#[derive(Debug)]
pub(crate) struct Node<K: 'static, V: 'static> {
    pub(crate) what: What<K, V>,
    /// The number of deltas from here to the base, including those of merged pages.
    pub(crate) depth: u16,
    /// 0 for a leaf.
    pub(crate) level: u8,
}

#[derive(Debug)]
pub(crate) enum What<K: 'static, V: 'static> {
    /// The records of a leaf.
    Leaf(Leaf<K, V>),
    /// The children of an inner page.
    Inner(Inner<K>),
    /// A record was written.
    Put { key: K, value: V, next: Next<K, V> },
    /// A record was removed.
    Delete { key: K, next: Next<K, V> },
    /// The page ends before `sep`; the page `right` has the entries from `sep` on. The parent does not know
    /// that page until `done`.
    Split { sep: K, right: Pid, done: Done, next: Next<K, V> },
    /// The page continues from `sep` with the entries of its former right neighbour.
    Merge { sep: K, from: Next<K, V>, next: Next<K, V> },
    /// The page, whose keys began at `low`, is or is about to become part of its left neighbour.
    Removed { low: K, next: Next<K, V> },
    /// The page `child` has the keys from `sep` to `upto`.
    Link { sep: K, upto: Option<K>, child: Pid, next: Next<K, V> },
    /// The keys from `sep` to `upto` are no longer in the page `child`, but in `left` or right of it. The
    /// merge of `child` moves them; it is complete when `done`.
    Unlink { sep: K, upto: Option<K>, child: Pid, left: Pid, done: Done, next: Next<K, V> },
    /// The page was the root, and its only child takes its place.
    Collapsed { child: Pid, next: Next<K, V> },
}

/// `true` if a structural change is complete.
#[derive(Debug, Default)]
pub(crate) struct Done(AtomicBool);

impl Done {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Acquire)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Release);
    }
}

/// A record, if it exists.
pub(crate) type Record<'g, K, V> = Option<(&'g K, &'g V)>;

/// The end of a page: the first key that is no longer in it, and the page of that key.
pub(crate) type End<'g, K> = Option<(&'g K, Pid)>;

#[derive(Debug)]
pub(crate) struct Leaf<K, V> {
    pub(crate) keys: Vec<K>,
    pub(crate) values: Vec<V>,
    pub(crate) end: Option<(K, Pid)>,
}

/// `children[n]` has the keys from `keys[n - 1]` to before `keys[n]`.
#[derive(Clone, Debug)]
pub(crate) struct Inner<K> {
    pub(crate) keys: Vec<K>,
    pub(crate) children: Vec<Pid>,
    pub(crate) end: Option<(K, Pid)>,
}

/// A key; with `BELOW`, the position immediately before it.
pub(crate) struct Target<'q, Q: ?Sized, const BELOW: bool>(pub(crate) &'q Q);

impl<Q: Ord + ?Sized, const BELOW: bool> Target<'_, Q, BELOW> {
    /// Returns `true` if it is at or after `key`.
    #[inline(always)]
    fn is_from<K: Borrow<Q>>(&self, key: &K) -> bool {
        if BELOW { self.0 > key.borrow() } else { self.0 >= key.borrow() }
    }

    /// Returns `true` if it is before the end.
    #[inline(always)]
    fn is_before<K: Borrow<Q>>(&self, end: Option<&K>) -> bool {
        end.is_none_or(|end| !self.is_from(end))
    }
}

/// The next step of a search.
pub(crate) enum Step<T> {
    /// The search ends here.
    Here(T),
    /// The search continues in another page.
    To(Pid),
    /// The page is or is about to become part of another one.
    Gone,
}

impl<K: Ord, V> Node<K, V> {
    pub(crate) fn base(level: u8, what: What<K, V>) -> Shared<Self> {
        Shared::new(Self { what, depth: 0, level })
    }

    /// Returns the record of a key in the chain of a leaf.
    #[inline(always)]
    pub(crate) fn find<Q: Ord + ?Sized>(&self, to: &Q) -> Step<Record<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let mut node = self;
        loop {
            node = match &node.what {
                What::Put { key, value, next } => {
                    if key.borrow() == to {
                        return Step::Here(Some((key, value)));
                    }
                    next
                }
                What::Delete { key, next } => {
                    if key.borrow() == to {
                        return Step::Here(None);
                    }
                    next
                }
                What::Leaf(leaf) => {
                    if let Some((high, right)) = &leaf.end
                        && to >= high.borrow()
                    {
                        return Step::To(*right);
                    }
                    let at = leaf.keys.partition_point(|key| key.borrow() < to);
                    let key = leaf.keys.get(at).filter(|key| (*key).borrow() == to);
                    return Step::Here(key.zip(leaf.values.get(at)));
                }
                other => match other.pass(&Target::<Q, false>(to)) {
                    Ok(next) => next,
                    Err(step) => return step,
                },
            }
        }
    }

    /// Returns the child for a key in the chain of an inner page.
    #[inline(always)]
    pub(crate) fn route<Q: Ord + ?Sized, const BELOW: bool>(
        &self,
        to: &Target<'_, Q, BELOW>,
    ) -> Step<()>
    where
        K: Borrow<Q>,
    {
        let mut node = self;
        loop {
            node = match &node.what {
                What::Inner(inner) => {
                    return Step::To(match &inner.end {
                        Some((high, right)) if to.is_from(high) => *right,
                        _ => inner.children[inner.keys.partition_point(|key| to.is_from(key))],
                    });
                }
                What::Link { sep, upto, child, next }
                | What::Unlink { sep, upto, left: child, next, .. } => {
                    if to.is_from(sep) && to.is_before(upto.as_ref()) {
                        return Step::To(*child);
                    }
                    next
                }
                What::Collapsed { child, .. } => return Step::To(*child),
                other => match other.pass(to) {
                    Ok(next) => next,
                    Err(step) => return step,
                },
            }
        }
    }

    /// Returns `true` if a key belongs to this page.
    pub(crate) fn covers<Q: Ord + ?Sized, const BELOW: bool>(
        &self,
        to: &Target<'_, Q, BELOW>,
    ) -> Step<()>
    where
        K: Borrow<Q>,
    {
        match (&self.what, self.end()) {
            (What::Removed { .. } | What::Collapsed { .. }, _) => Step::Gone,
            (_, Some((high, right))) if to.is_from(high) => Step::To(right),
            _ => Step::Here(()),
        }
    }

    /// Returns the end of the page.
    pub(crate) fn end(&self) -> End<'_, K> {
        let mut node = self;
        loop {
            node = match &node.what {
                What::Leaf(Leaf { end, .. }) | What::Inner(Inner { end, .. }) => {
                    return end.as_ref().map(|(high, right)| (high, *right));
                }
                What::Split { sep, right, .. } => return Some((sep, *right)),
                What::Merge { from, .. } => from,
                other => other.next().unwrap_or(node),
            }
        }
    }

    /// Returns the nodes of the chain itself, without those of merged pages.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| node.what.next())
    }

    /// Returns the first child; `None` for a leaf. The first child of a page is never replaced.
    pub(crate) fn leftmost(&self) -> Option<Pid> {
        match &self.chain().last().unwrap_or(self).what {
            What::Inner(inner) => inner.children.first().copied(),
            _ => None,
        }
    }

    /// Returns the bytes of the page.
    pub(crate) fn bytes(&self) -> usize {
        let arrays = |node: &Self| match &node.what {
            What::Leaf(Leaf { keys, values, .. }) => {
                keys.capacity() * size_of::<K>() + values.capacity() * size_of::<V>()
            }
            What::Inner(Inner { keys, children, .. }) => {
                keys.capacity() * size_of::<K>() + children.capacity() * size_of::<Pid>()
            }
            What::Merge { from, .. } => from.bytes(),
            _ => 0,
        };
        self.chain().map(|node| size_of::<Self>() + arrays(node)).sum()
    }

    /// Returns the approximate number of records or children: a replaced record counts twice.
    pub(crate) fn weight(&self) -> usize {
        let (mut more, mut less) = (0, 0);
        for node in self.chain() {
            match &node.what {
                What::Merge { from, .. } => more += from.weight(),
                What::Put { .. } | What::Link { .. } => more += 1,
                What::Delete { .. } | What::Unlink { .. } => less += 1,
                base => more += base.len(),
            }
        }
        more - less.min(more)
    }
}

impl<K, V> What<K, V> {
    /// Returns the number of records or children of a base.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.keys.len(),
            Self::Inner(inner) => inner.children.len(),
            _ => 0,
        }
    }

    /// Removes the upper half of a base; returns the first key that is no longer in it, and the upper half.
    pub(crate) fn cut(&mut self) -> Option<(K, Self)>
    where
        K: Clone,
    {
        match self {
            Self::Leaf(Leaf { keys, values, end }) => {
                let at = keys.len() / 2;
                let (keys, values) = (keys.split_off(at), values.split_off(at));
                let sep = keys.first()?.clone();
                Some((sep, Self::Leaf(Leaf { keys, values, end: end.take() })))
            }
            Self::Inner(Inner { keys, children, end }) => {
                let at = children.len() / 2;
                let children = children.split_off(at);
                let keys_right = keys.split_off(at);
                let sep = keys.pop()?;
                Some((sep, Self::Inner(Inner { keys: keys_right, children, end: end.take() })))
            }
            _ => None,
        }
    }

    /// Sets the end of a base.
    pub(crate) fn close(&mut self, high: K, right: Pid) {
        if let Self::Leaf(Leaf { end, .. }) | Self::Inner(Inner { end, .. }) = self {
            *end = Some((high, right));
        }
    }
}

impl<K: Ord, V> What<K, V> {
    /// Returns the next node of the chain.
    fn next(&self) -> Option<&Node<K, V>> {
        match self {
            Self::Leaf(_) | Self::Inner(_) => None,
            Self::Put { next, .. }
            | Self::Delete { next, .. }
            | Self::Split { next, .. }
            | Self::Merge { next, .. }
            | Self::Removed { next, .. }
            | Self::Link { next, .. }
            | Self::Unlink { next, .. }
            | Self::Collapsed { next, .. } => Some(next),
        }
    }

    /// Returns the step of a search after a structural delta, in this page or in another one.
    fn pass<Q: Ord + ?Sized, const BELOW: bool, T>(
        &self,
        to: &Target<'_, Q, BELOW>,
    ) -> Result<&Node<K, V>, Step<T>>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::Split { sep, right, .. } if to.is_from(sep) => Err(Step::To(*right)),
            Self::Merge { sep, from, .. } if to.is_from(sep) => Ok(from),
            Self::Removed { .. } => Err(Step::Gone),
            other => other.next().ok_or(Step::Gone),
        }
    }
}
