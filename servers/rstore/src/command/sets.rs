//! Commands of sets, which have a record for each member.

use std::collections::BTreeSet;

use crate::keyspace::item::Head;
use crate::keyspace::{Kind, NEVER};
use crate::wire::{Shape, integer};

use super::{Call, Outcome, Refusal};

type Names = BTreeSet<Vec<u8>>;

impl Call<'_, '_> {
    fn set(&self, key: &[u8]) -> Result<Option<Head>, Refusal> {
        self.head(key, Kind::Set)
    }

    fn has_member(&self, head: Option<&Head>, name: &[u8]) -> Result<bool, Refusal> {
        let Some(head) = head else { return Ok(false) };
        Ok(self.draft.expiry(&head.member(name))?.is_some())
    }

    fn members(&self, key: &[u8]) -> Result<Names, Refusal> {
        let mut names = Names::new();
        if let Some(head) = self.set(key)? {
            self.each_member(&head, &mut |name, _| names.insert(name.to_vec()))?;
        }
        Ok(names)
    }

    fn add_member(&mut self, head: &mut Head, name: &[u8]) -> Result<bool, Refusal> {
        let record = head.member(name);
        let new = self.draft.expiry(&record)?.is_none();
        if new {
            self.draft.put(record, Vec::new(), NEVER);
            head.length += 1;
        }
        Ok(new)
    }
}

/// `SADD key member [member ...]`
pub(crate) fn sadd(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.key();
    let mut head = call.head_or_new(key, Kind::Set)?;
    let before = head.length;
    for name in call.args.from(2).iter() {
        call.add_member(&mut head, name)?;
    }
    if head.length != before {
        call.put_head(key, &head);
    }
    call.out.count((head.length - before) as usize);
    Ok(())
}

/// `SREM key member [member ...]`
pub(crate) fn srem(call: &mut Call<'_, '_>) -> Outcome {
    let removed = super::hashes::remove_members(call, Kind::Set)?;
    call.out.count(removed);
    Ok(())
}

/// `SMEMBERS key`
pub(crate) fn smembers(call: &mut Call<'_, '_>) -> Outcome {
    let names = call.members(call.key())?;
    reply(call, &names);
    Ok(())
}

fn reply(call: &mut Call<'_, '_>, names: &Names) {
    call.out.head(Shape::Set, names.len());
    for name in names {
        call.out.bulk(name);
    }
}

/// `SISMEMBER key member`
pub(crate) fn sismember(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.set(call.key())?;
    let is = call.has_member(head.as_ref(), call.args.at(2))?;
    call.out.boolean(is);
    Ok(())
}

/// `SMISMEMBER key member [member ...]`
pub(crate) fn smismember(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.set(call.key())?;
    call.out.array(call.args.len() - 2);
    for name in call.args.from(2).iter() {
        let is = call.has_member(head.as_ref(), name)?;
        call.out.boolean(is);
    }
    Ok(())
}

/// `SCARD key`
pub(crate) fn scard(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.set(call.key())?;
    call.out.count(head.map_or(0, |head| head.length as usize));
    Ok(())
}

/// The members that one request may choose, with repetitions.
const MOST_REPEATED: usize = 1 << 20;

/// Returns the count that a request asks for, if it has one.
pub(super) fn count_of(call: &Call<'_, '_>) -> Result<Option<i64>, Refusal> {
    let count = if call.args.len() > 2 { Some(call.integer(2)?) } else { None };
    if count == Some(i64::MIN) {
        return Err(Refusal::of(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    Ok(count)
}

/// Returns the positions of `count` of `length` members: distinct ones, or any if `count` is negative.
pub(super) fn choose(
    call: &mut Call<'_, '_>,
    length: usize,
    count: i64,
) -> Result<Vec<usize>, Refusal> {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(Vec::new());
    }
    if count < 0 && wanted > MOST_REPEATED {
        return Err(Refusal::of("ERR value is out of range, must be at least -1048576"));
    }
    let mut below = |most: usize| (call.place.random() % most as u64) as usize;
    if count < 0 {
        return Ok((0..wanted).map(|_| below(length)).collect());
    }
    let mut all: Vec<usize> = (0..length).collect();
    for at in 0..wanted.min(length) {
        let other = at + below(length - at);
        all.swap(at, other);
    }
    all.truncate(wanted);
    Ok(all)
}

/// Returns the names of `count` members, or of one. One is found without copying the others.
fn chosen(
    call: &mut Call<'_, '_>,
    head: &Head,
    count: Option<i64>,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut names = Vec::new();
    if count.is_none() {
        let mut before = call.place.random() % head.length.max(1);
        call.each_member(head, &mut |name, _| {
            if before == 0 {
                names.push(name.to_vec());
            }
            before = before.saturating_sub(1);
            names.is_empty()
        })?;
        return Ok(names);
    }
    call.each_member(head, &mut |name, _| {
        names.push(name.to_vec());
        true
    })?;
    let places = choose(call, names.len(), count.unwrap_or(1))?;
    Ok(places.into_iter().map(|at| names[at].clone()).collect())
}

/// `SRANDMEMBER key [count]`
pub(crate) fn srandmember(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len() > 3 {
        return Err(Refusal::SYNTAX);
    }
    let count = count_of(call)?;
    let names = match call.set(call.key())? {
        Some(head) => chosen(call, &head, count)?,
        None => Vec::new(),
    };
    match count {
        None => call.out.maybe(names.first().map(Vec::as_slice)),
        Some(_) => call.out.bulks(&names),
    }
    Ok(())
}

/// `SPOP key [count]`
pub(crate) fn spop(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.key();
    if call.args.len() > 3 {
        return Err(Refusal::SYNTAX);
    }
    let count = call.args.get(2).map(integer);
    if count.is_some_and(|count| count.is_none_or(|count| count < 0)) {
        return Err(Refusal::of("ERR value is out of range, must be positive"));
    }
    let count = count.flatten();
    let mut names = Vec::new();
    if let Some(mut head) = call.set(key)? {
        names = chosen(call, &head, count)?;
        for name in &names {
            call.draft.remove(head.member(name));
            head.length -= 1;
        }
        if !names.is_empty() {
            call.put_head(key, &head);
        }
    }
    if count.is_none() {
        call.out.maybe(names.first().map(Vec::as_slice));
        return Ok(());
    }
    call.out.head(Shape::Set, names.len());
    for name in &names {
        call.out.bulk(name);
    }
    Ok(())
}

/// `SMOVE source destination member`
pub(crate) fn smove(call: &mut Call<'_, '_>) -> Outcome {
    let (from, to, name) = (call.args.at(1), call.args.at(2), call.args.at(3));
    let Some(source) = call.set(from)? else {
        call.out.integer(0);
        return Ok(());
    };
    call.set(to)?;
    let is = call.has_member(Some(&source), name)?;
    if let Some(mut source) = Some(source).filter(|_| is && from != to) {
        call.draft.remove(source.member(name));
        source.length -= 1;
        call.put_head(from, &source);
        let mut target = call.head_or_new(to, Kind::Set)?;
        if call.add_member(&mut target, name)? {
            call.put_head(to, &target);
        }
    }
    call.out.boolean(is);
    Ok(())
}

#[derive(Clone, Copy)]
enum Operation {
    Inter,
    Union,
    Diff,
}

/// Returns the set that an operation makes of the sets with these keys.
fn combine(
    call: &Call<'_, '_>,
    operation: Operation,
    from: usize,
    count: usize,
) -> Result<Names, Refusal> {
    let mut sets = Vec::new();
    for key in call.args.from(from).iter().take(count) {
        sets.push(call.members(key)?);
    }
    let mut sets = sets.into_iter();
    let first = sets.next().unwrap_or_default();
    Ok(sets.fold(first, |so_far, set| match operation {
        Operation::Inter => so_far.intersection(&set).cloned().collect(),
        Operation::Union => so_far.union(&set).cloned().collect(),
        Operation::Diff => so_far.difference(&set).cloned().collect(),
    }))
}

fn combined(call: &mut Call<'_, '_>, operation: Operation) -> Outcome {
    let names = combine(call, operation, 1, usize::MAX)?;
    reply(call, &names);
    Ok(())
}

fn stored(call: &mut Call<'_, '_>, operation: Operation) -> Outcome {
    let names = combine(call, operation, 2, usize::MAX)?;
    let key = call.key();
    call.remove(key)?;
    if !names.is_empty() {
        let mut head = call.head_or_new(key, Kind::Set)?;
        for name in &names {
            call.add_member(&mut head, name)?;
        }
        call.put_head(key, &head);
    }
    call.out.count(names.len());
    Ok(())
}

/// `SINTER key [key ...]`
pub(crate) fn sinter(call: &mut Call<'_, '_>) -> Outcome {
    combined(call, Operation::Inter)
}

/// `SUNION key [key ...]`
pub(crate) fn sunion(call: &mut Call<'_, '_>) -> Outcome {
    combined(call, Operation::Union)
}

/// `SDIFF key [key ...]`
pub(crate) fn sdiff(call: &mut Call<'_, '_>) -> Outcome {
    combined(call, Operation::Diff)
}

/// `SINTERSTORE destination key [key ...]`
pub(crate) fn sinterstore(call: &mut Call<'_, '_>) -> Outcome {
    stored(call, Operation::Inter)
}

/// `SUNIONSTORE destination key [key ...]`
pub(crate) fn sunionstore(call: &mut Call<'_, '_>) -> Outcome {
    stored(call, Operation::Union)
}

/// `SDIFFSTORE destination key [key ...]`
pub(crate) fn sdiffstore(call: &mut Call<'_, '_>) -> Outcome {
    stored(call, Operation::Diff)
}

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn sscan(call: &mut Call<'_, '_>) -> Outcome {
    super::scan::scan_members(call, Kind::Set)
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn sets_combine() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("SADD a x y z x", ":3"),
            ("SADD b y z w", ":3"),
            ("SINTER a b", "*2|$1|y|$1|z"),
            ("SUNION a b none", "*4|$1|w|$1|x|$1|y|$1|z"),
            ("SDIFF a b", "*1|$1|x"),
            ("SINTERSTORE c a b", ":2"),
            ("SMISMEMBER c x y", "*2|:0|:1"),
            ("SDIFFSTORE c a a", ":0"),
            ("EXISTS c", ":0"),
            ("SMOVE a b x", ":1"),
            ("SCARD b", ":4"),
        ]);
        assert_eq!(bench.run("SPOP b 10").len(), "*4|$1|w|$1|x|$1|y|$1|z".len());
        bench.expect(&[
            ("SPOP b", "$-1"),
            ("SPOP a -1", "-ERR value is out of range, must be positive"),
        ]);
        assert_eq!(bench.run("SRANDMEMBER a -5").matches('|').count(), 10);
        assert_eq!(bench.run("SRANDMEMBER a 5").matches('|').count(), 4);
        assert_eq!(bench.run("SRANDMEMBER a -1048576").matches('|').count(), 2 << 20);
        bench.expect(&[
            ("SRANDMEMBER none -2000000", "*0"),
            ("SRANDMEMBER a -2000000", "-ERR value is out of range, must be at least -1048576"),
            ("SRANDMEMBER a 1 2", "-ERR syntax error"),
            ("SPOP a 1 2", "-ERR syntax error"),
            ("SPOP a x", "-ERR value is out of range, must be positive"),
        ]);
    }
}
