//! The serialization graph, and a search for a cycle in it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::{Because, Broken, Item, Read, Transaction, Version};

/// The target of an edge: a transaction, or a point of time, whose numbers follow those of the transactions.
type Edges = Vec<Vec<(usize, Because)>>;

/// Searches for transactions of which each must come before the next one, and the last one before the first.
/// Linear in the reads and writes, except for sorting.
///
/// # Errors
/// The fault found; among cycles a short one. [`Broken::Unknown`] if a transaction wrote a record that it did
/// not read, or removed one: then it is unknown what it replaced.
pub fn search_cycle(history: &[Transaction]) -> Result<(), Broken> {
    let written = Written::of(history)?;
    let mut edges: Edges = vec![Vec::new(); history.len()];
    for (reader, transaction) in history.iter().enumerate() {
        for (item, version) in written.seen_by(transaction) {
            let known = match version {
                None => None,
                Some(version) => {
                    let writer = written.by.get(&(item, version));
                    Some(*writer.ok_or(Broken::Unwritten { reader, item })?)
                }
            };
            if let Some(writer) = known
                && writer != reader
            {
                edges[writer].push((reader, Because::ItWrote(item)));
            }
            if let Some(&next) = written.replaced_by.get(&(item, version))
                && next != reader
            {
                edges[reader].push((next, Because::ItRead(item)));
            }
        }
    }
    add_times(history, &mut edges);
    match find_cycle(&edges) {
        None => Ok(()),
        Some(cycle) => Err(Broken::Cycle(shortest(&edges, &cycle, history.len()))),
    }
}

/// The writer of each version.
struct Written {
    by: HashMap<(Item, Version), usize>,
    replaced_by: HashMap<(Item, Option<Version>), usize>,
    items: BTreeSet<Item>,
}

impl Written {
    fn of(history: &[Transaction]) -> Result<Self, Broken> {
        let mut written =
            Self { by: HashMap::new(), replaced_by: HashMap::new(), items: BTreeSet::new() };
        for (writer, transaction) in history.iter().enumerate() {
            for (item, version) in &transaction.writes {
                let version = version.ok_or(Broken::Unknown(writer))?;
                written.items.insert(*item);
                written.by.insert((*item, version), writer);
                let replaced = read_of(transaction, *item).ok_or(Broken::Unknown(writer))?;
                if let Some(other) = written.replaced_by.insert(replaced, writer) {
                    return Err(Broken::LostUpdate { both: (other, writer), item: *item });
                }
            }
        }
        Ok(written)
    }

    /// Returns the records that a transaction has seen, and those that it has seen missing, if any
    /// transaction wrote them.
    fn seen_by(&self, transaction: &Transaction) -> Vec<(Item, Option<Version>)> {
        let mut seen = Vec::new();
        for read in &transaction.reads {
            match read {
                Read::Record(item, version) => seen.push((*item, *version)),
                Read::Range { map, keys: (from, to), found } => {
                    let found: BTreeMap<u64, Version> = found.iter().copied().collect();
                    seen.extend(found.iter().map(|(key, version)| ((*map, *key), Some(*version))));
                    let items = self.items.range((*map, *from)..=(*map, *to));
                    let missing = items.filter(|item| !found.contains_key(&item.1));
                    seen.extend(missing.map(|item| (*item, None)));
                }
            }
        }
        seen
    }
}

/// Returns what a transaction has read of a record, if it has.
fn read_of(transaction: &Transaction, wanted: Item) -> Option<(Item, Option<Version>)> {
    transaction.reads.iter().find_map(|read| match read {
        Read::Record(item, version) => (*item == wanted).then_some((wanted, *version)),
        Read::Range { map, keys, found } => {
            let (of, key) = wanted;
            let is_in = *map == of && (keys.0..=keys.1).contains(&key);
            let found = found.iter().find(|(found, _)| *found == key);
            is_in.then(|| (wanted, found.map(|(_, version)| *version)))
        }
    })
}

/// Adds a point of time for each end: the transaction that ended leads to it, it leads to the next point, and
/// the last point before a transaction began leads to that transaction.
fn add_times(history: &[Transaction], edges: &mut Edges) {
    let mut ends: Vec<(u64, usize)> =
        history.iter().enumerate().map(|(at, transaction)| (transaction.span.1, at)).collect();
    ends.sort_unstable();
    let first = history.len();
    edges.resize(first + ends.len(), Vec::new());
    for (n, (_, at)) in ends.iter().enumerate() {
        edges[*at].push((first + n, Because::ItEnded));
        if n + 1 < ends.len() {
            edges[first + n].push((first + n + 1, Because::ItEnded));
        }
    }
    for (at, transaction) in history.iter().enumerate() {
        let before = ends.partition_point(|(end, _)| *end < transaction.span.0);
        if before > 0 {
            edges[first + before - 1].push((at, Because::ItEnded));
        }
    }
}

/// Returns the nodes of a cycle, in no order.
fn find_cycle(edges: &Edges) -> Option<Vec<usize>> {
    let (mut done, mut depth) = (vec![false; edges.len()], vec![0usize; edges.len()]);
    let mut way: Vec<(usize, usize)> = Vec::new(); // a node, and how many of its edges were followed
    for root in 0..edges.len() {
        if done[root] {
            continue;
        }
        way.push((root, 0));
        depth[root] = 1;
        while let Some(&(node, followed)) = way.last() {
            let Some(&(next, _)) = edges[node].get(followed) else {
                done[node] = true;
                depth[node] = 0;
                way.pop();
                continue;
            };
            if let Some(last) = way.last_mut() {
                last.1 += 1;
            }
            if depth[next] > 0 {
                return Some(way[depth[next] - 1..].iter().map(|(node, _)| *node).collect());
            }
            if !done[next] {
                way.push((next, 0));
                depth[next] = way.len();
            }
        }
    }
    None
}

/// Returns a shortest cycle through one of some nodes, without points of time, whose numbers are `first` and
/// above.
fn shortest(edges: &Edges, through: &[usize], first: usize) -> Vec<(usize, Because)> {
    let all = through.iter().filter(|node| **node < first).filter_map(|&node| {
        let way = way_back(edges, node)?;
        Some(way.into_iter().filter(|(node, _)| *node < first).collect::<Vec<_>>())
    });
    all.min_by_key(Vec::len).unwrap_or_default()
}

/// Returns a shortest path from a node to itself: its nodes, each with the reason why it comes before the
/// next one.
fn way_back(edges: &Edges, start: usize) -> Option<Vec<(usize, Because)>> {
    let mut from: HashMap<usize, (usize, Because)> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &(next, because) in &edges[node] {
            if next == start {
                let mut way = vec![(node, because)];
                let mut at = node;
                while let Some(&(before, because)) = from.get(&at) {
                    way.push((before, because));
                    at = before;
                }
                way.reverse();
                return Some(way);
            }
            from.entry(next).or_insert_with(|| {
                queue.push_back(next);
                (node, because)
            });
        }
    }
    None
}
