//! The contents of a chain: its records or its children, in order.

use crate::node::{Inner, Leaf, Node, What};

/// The changes in the deltas, ordered by key; of each key the newest.
type Written<'g, K, V> = Vec<(&'g K, Option<&'g V>)>;

/// A range of the keys.
pub(crate) struct Part<'p, K, F> {
    /// Returns `true` for the keys before it.
    pub(crate) before: &'p F,
    /// The first key after it.
    pub(crate) end: Option<&'p K>,
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    /// Passes a leaf's records to `visit`, in order, a run of neighbours at a time, until it returns `false`;
    /// skips keys for which `before` is true.
    pub(crate) fn records<'g, F: Fn(&K) -> bool>(
        &'g self,
        before: &F,
        visit: &mut impl FnMut(&'g [K], &'g [V]) -> bool,
    ) -> bool {
        self.part(&Part { before, end: None }, Vec::new(), visit)
    }

    fn part<'g, F: Fn(&K) -> bool>(
        &'g self,
        part: &Part<'_, K, F>,
        mut written: Written<'g, K, V>,
        visit: &mut impl FnMut(&'g [K], &'g [V]) -> bool,
    ) -> bool {
        let Part { before, mut end } = *part;
        let note = |key: &'g K, value, written: &mut Written<'g, K, V>| {
            if let Err(at) = written.binary_search_by(|(other, _)| (*other).cmp(key)) {
                written.insert(at, (key, value));
            }
        };
        for node in self.chain() {
            match &node.what {
                What::Put { key, value, .. } => note(key, Some(value), &mut written),
                What::Delete { key, .. } => note(key, None, &mut written),
                What::Merge { sep, from, next } => {
                    let part = Part { before, end };
                    return next.left_of(sep, &part, written.clone(), visit)
                        && from.right_of(sep, &part, written, visit);
                }
                What::Split { sep, .. } if end.is_none_or(|end| sep < end) => end = Some(sep),
                What::Leaf(leaf) => return leaf.visit(&Part { before, end }, &written, visit),
                _ => {}
            }
        }
        true
    }

    /// Visits the records before `sep`.
    fn left_of<'g, F: Fn(&K) -> bool>(
        &'g self,
        sep: &K,
        part: &Part<'_, K, F>,
        written: Written<'g, K, V>,
        visit: &mut impl FnMut(&'g [K], &'g [V]) -> bool,
    ) -> bool {
        let end = Some(part.end.map_or(sep, |end| end.min(sep)));
        self.part_dyn(&|key| (part.before)(key), end, written, visit)
    }

    /// Visits the records from `sep` on.
    fn right_of<'g, F: Fn(&K) -> bool>(
        &'g self,
        sep: &K,
        part: &Part<'_, K, F>,
        written: Written<'g, K, V>,
        visit: &mut impl FnMut(&'g [K], &'g [V]) -> bool,
    ) -> bool {
        self.part_dyn(&|key| key < sep || (part.before)(key), part.end, written, visit)
    }

    /// Does the same as [`part`](Self::part), compiled once however deeply merges are nested.
    fn part_dyn<'g>(
        &'g self,
        before: &dyn Fn(&K) -> bool,
        end: Option<&K>,
        written: Written<'g, K, V>,
        visit: &mut dyn FnMut(&'g [K], &'g [V]) -> bool,
    ) -> bool {
        let mut visit: &mut dyn FnMut(&'g [K], &'g [V]) -> bool = visit;
        self.part(&Part { before: &before, end }, written, &mut visit)
    }

    /// Returns a leaf's chain as one base.
    pub(crate) fn leaf(&self) -> Leaf<K, V> {
        let room = self.weight();
        let (mut keys, mut values) = (Vec::with_capacity(room), Vec::with_capacity(room));
        self.records(&|_| false, &mut |k, v| {
            keys.extend_from_slice(k);
            values.extend_from_slice(v);
            true
        });
        Leaf { keys, values, end: self.end().map(|(high, right)| (high.clone(), right)) }
    }

    /// Returns an inner page's chain as one base.
    pub(crate) fn inner(&self) -> Inner<K> {
        match &self.what {
            What::Inner(inner) => inner.clone(),
            What::Link { sep, child, next, .. } => {
                let mut inner = next.inner();
                match inner.keys.binary_search(sep) {
                    Ok(at) => inner.children[at + 1] = *child,
                    Err(at) => {
                        inner.keys.insert(at, sep.clone());
                        inner.children.insert(at + 1, *child);
                    }
                }
                inner
            }
            What::Unlink { sep, next, .. } => {
                let mut inner = next.inner();
                if let Ok(at) = inner.keys.binary_search(sep) {
                    inner.keys.remove(at);
                    inner.children.remove(at + 1);
                }
                inner
            }
            What::Merge { sep, from, next } => {
                let (mut inner, right) = (next.inner(), from.inner());
                inner.keys.push(sep.clone());
                inner.keys.extend(right.keys);
                inner.children.extend(right.children);
                inner.end = right.end;
                inner
            }
            What::Split { next, .. }
            | What::Removed { next, .. }
            | What::Collapsed { next, .. }
            | What::Put { next, .. }
            | What::Delete { next, .. } => next.inner(),
            What::Leaf(_) => Inner { keys: Vec::new(), children: Vec::new(), end: None },
        }
    }
}

impl<K: Ord, V> Leaf<K, V> {
    /// Visits the records of a range, with the changes in the deltas.
    fn visit<'g, F: Fn(&K) -> bool>(
        &'g self,
        part: &Part<'_, K, F>,
        written: &Written<'g, K, V>,
        visit: &mut impl FnMut(&'g [K], &'g [V]) -> bool,
    ) -> bool {
        let mut at = self.keys.partition_point(part.before);
        let len = part.end.map_or(self.keys.len(), |end| self.keys.partition_point(|k| k < end));
        let run = |from: usize, to: usize, visit: &mut dyn FnMut(&'g [K], &'g [V]) -> bool| {
            from >= to || visit(&self.keys[from..to], &self.values[from..to])
        };
        for &(key, value) in written {
            if (part.before)(key) || part.end.is_some_and(|end| key >= end) {
                continue;
            }
            let from = at;
            at += self.keys[at..len.max(at)].partition_point(|k| k < key);
            if !run(from, at, visit) {
                return false;
            }
            if at < len && self.keys[at] == *key {
                at += 1;
            }
            if let Some(value) = value
                && !visit(std::slice::from_ref(key), std::slice::from_ref(value))
            {
                return false;
            }
        }
        run(at, len, visit)
    }
}
