//! Commands of lists, which have a record for each element, under its index. A push or a pop writes or
//! removes one record; changes in the middle (`LREM`, `LINSERT`) write all elements again, in time linear in
//! the length.

use std::ops::Bound;

use crate::keyspace::item::{Head, MEMBER_PREFIX};
use crate::keyspace::{Kind, NEVER};

use super::ranges::clamp;
use super::{Call, Outcome, Refusal};

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    fn parse(word: &[u8]) -> Result<Self, Refusal> {
        if word.eq_ignore_ascii_case(b"LEFT") {
            Ok(Self::Left)
        } else if word.eq_ignore_ascii_case(b"RIGHT") {
            Ok(Self::Right)
        } else {
            Err(Refusal::SYNTAX)
        }
    }
}

impl Call<'_, '_> {
    fn list(&self, key: &[u8]) -> Result<Option<Head>, Refusal> {
        self.head(key, Kind::List)
    }

    fn push_element(&mut self, head: &mut Head, end: End, value: &[u8]) {
        let index = match end {
            End::Left => {
                head.first -= 1;
                head.first
            }
            End::Right => head.first + head.length.cast_signed(),
        };
        head.length += 1;
        self.draft.put(head.element(index), value.to_vec(), NEVER);
    }

    fn pop_element(&mut self, head: &mut Head, end: End) -> Result<Vec<u8>, Refusal> {
        let index = match end {
            End::Left => head.first,
            End::Right => head.first + head.length.cast_signed() - 1,
        };
        let record = head.element(index);
        let value = self.draft.get(&record)?.unwrap_or_default();
        self.draft.remove(record);
        head.length -= 1;
        head.first += i64::from(end == End::Left);
        Ok(value)
    }

    /// Returns the elements at these positions.
    fn elements(&self, head: &Head, start: usize, end: usize) -> Result<Vec<Vec<u8>>, Refusal> {
        let place = |at: usize| head.element(head.first + at as i64);
        let (from, to) = (place(start), place(end));
        let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let mut found = Vec::with_capacity(end - start);
        self.draft.scan(range, false, &mut |record, value| {
            debug_assert!(record.len() == MEMBER_PREFIX + 8);
            found.push(value.to_vec());
            true
        })?;
        Ok(found)
    }

    /// Replaces all elements.
    fn rewrite(&mut self, key: &[u8], head: &mut Head, values: &[Vec<u8>]) {
        for at in 0..head.length {
            self.draft.remove(head.element(head.first + at.cast_signed()));
        }
        (head.first, head.length) = (0, 0);
        for value in values {
            self.push_element(head, End::Right, value);
        }
        self.put_head(key, head);
    }
}

fn push(call: &mut Call<'_, '_>, end: End, only_old: bool) -> Outcome {
    let key = call.key();
    let mut head = match call.list(key)? {
        None if only_old => {
            call.out.integer(0);
            return Ok(());
        }
        Some(head) => head,
        None => call.head_or_new(key, Kind::List)?,
    };
    for value in call.args.from(2).iter() {
        call.push_element(&mut head, end, value);
    }
    call.put_head(key, &head);
    call.out.count(head.length as usize);
    Ok(())
}

/// `LPUSH key element [element ...]`
pub(crate) fn lpush(call: &mut Call<'_, '_>) -> Outcome {
    push(call, End::Left, false)
}

/// `RPUSH key element [element ...]`
pub(crate) fn rpush(call: &mut Call<'_, '_>) -> Outcome {
    push(call, End::Right, false)
}

/// `LPUSHX key element [element ...]`
pub(crate) fn lpushx(call: &mut Call<'_, '_>) -> Outcome {
    push(call, End::Left, true)
}

/// `RPUSHX key element [element ...]`
pub(crate) fn rpushx(call: &mut Call<'_, '_>) -> Outcome {
    push(call, End::Right, true)
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Outcome {
    if call.args.len() > 3 {
        return Err(Refusal::arity(call.name));
    }
    let key = call.key();
    let count = match call.args.len() {
        2 => None,
        _ => Some(
            crate::wire::integer(call.args.at(2))
                .and_then(|count| u64::try_from(count).ok())
                .ok_or(Refusal::of("ERR value is out of range, must be positive"))?,
        ),
    };
    let Some(mut head) = call.list(key)? else {
        match count {
            Some(_) => call.out.null_array(),
            None => call.out.null(),
        }
        return Ok(());
    };
    let wanted = count.unwrap_or(1).min(head.length);
    let mut popped = Vec::new();
    for _ in 0..wanted {
        popped.push(call.pop_element(&mut head, end)?);
    }
    if wanted > 0 {
        call.put_head(key, &head);
    }
    match count {
        Some(_) => call.out.bulks(&popped),
        None => call.out.maybe(popped.first().map(Vec::as_slice)),
    }
    Ok(())
}

/// `LPOP key [count]`
pub(crate) fn lpop(call: &mut Call<'_, '_>) -> Outcome {
    pop(call, End::Left)
}

/// `RPOP key [count]`
pub(crate) fn rpop(call: &mut Call<'_, '_>) -> Outcome {
    pop(call, End::Right)
}

/// `LLEN key`
pub(crate) fn llen(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.list(call.key())?;
    call.out.count(head.map_or(0, |head| head.length as usize));
    Ok(())
}

/// `LRANGE key start stop`
pub(crate) fn lrange(call: &mut Call<'_, '_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let head = call.list(call.key())?;
    let found = match head {
        Some(head) => match clamp(start, end, head.length as usize) {
            Some(range) => call.elements(&head, range.start, range.end)?,
            None => Vec::new(),
        },
        None => Vec::new(),
    };
    call.out.bulks(&found);
    Ok(())
}

/// Returns the position of an index; `None` if there is no such element.
fn position(head: &Head, index: i64) -> Option<i64> {
    let length = head.length.cast_signed();
    let at = if index < 0 { index.checked_add(length)? } else { index };
    (0..length).contains(&at).then(|| head.first + at)
}

/// `LINDEX key index`
pub(crate) fn lindex(call: &mut Call<'_, '_>) -> Outcome {
    let Some(head) = call.list(call.key())? else {
        call.out.null();
        return Ok(());
    };
    let index = call.integer(2)?;
    let record = Some(head).and_then(|head| Some(head.element(position(&head, index)?)));
    let value = match record {
        Some(record) => call.draft.get(&record)?,
        None => None,
    };
    call.out.maybe(value.as_deref());
    Ok(())
}

/// `LSET key index element`
pub(crate) fn lset(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.list(call.key())?.ok_or(Refusal::NO_SUCH_KEY)?;
    let index = call.integer(2)?;
    let at = position(&head, index).ok_or(Refusal::of("ERR index out of range"))?;
    call.draft.put(head.element(at), call.args.at(3).to_vec(), NEVER);
    call.out.ok();
    Ok(())
}

/// `LTRIM key start stop`
pub(crate) fn ltrim(call: &mut Call<'_, '_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let key = call.key();
    if let Some(mut head) = call.list(key)? {
        let kept = clamp(start, end, head.length as usize).unwrap_or(0..0);
        let (kept, length) = (kept.start as i64..kept.end as i64, head.length.cast_signed());
        for at in (0..length).filter(|at| !kept.contains(at)) {
            call.draft.remove(head.element(head.first + at));
        }
        head.first += kept.start;
        head.length = (kept.end - kept.start).cast_unsigned();
        call.put_head(key, &head);
    }
    call.out.ok();
    Ok(())
}

/// `LREM key count element`
pub(crate) fn lrem(call: &mut Call<'_, '_>) -> Outcome {
    let (count, wanted) = (call.integer(2)?, call.args.at(3));
    let key = call.key();
    let Some(mut head) = call.list(key)? else {
        call.out.integer(0);
        return Ok(());
    };
    let mut values = call.elements(&head, 0, head.length as usize)?;
    let before = values.len();
    let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut keep = |value: &Vec<u8>| {
        let goes = left > 0 && value == wanted;
        left -= u64::from(goes);
        !goes
    };
    if count < 0 {
        values.reverse();
        values.retain(&mut keep);
        values.reverse();
    } else {
        values.retain(&mut keep);
    }
    let removed = before - values.len();
    if removed > 0 {
        call.rewrite(key, &mut head, &values);
    }
    call.out.count(removed);
    Ok(())
}

/// `LINSERT key BEFORE | AFTER pivot element`
pub(crate) fn linsert(call: &mut Call<'_, '_>) -> Outcome {
    let after = call.args.is(2, "AFTER");
    if !after && !call.args.is(2, "BEFORE") {
        return Err(Refusal::SYNTAX);
    }
    let key = call.key();
    let Some(mut head) = call.list(key)? else {
        call.out.integer(0);
        return Ok(());
    };
    let mut values = call.elements(&head, 0, head.length as usize)?;
    match values.iter().position(|value| value == call.args.at(3)) {
        None => call.out.integer(-1),
        Some(at) => {
            values.insert(at + usize::from(after), call.args.at(4).to_vec());
            call.rewrite(key, &mut head, &values);
            call.out.count(values.len());
        }
    }
    Ok(())
}

/// `RPOPLPUSH source destination`
pub(crate) fn rpoplpush(call: &mut Call<'_, '_>) -> Outcome {
    move_element(call, End::Right, End::Left)
}

/// `LMOVE source destination LEFT | RIGHT LEFT | RIGHT`
pub(crate) fn lmove(call: &mut Call<'_, '_>) -> Outcome {
    let (from, to) = (End::parse(call.args.at(3))?, End::parse(call.args.at(4))?);
    move_element(call, from, to)
}

fn move_element(call: &mut Call<'_, '_>, from: End, to: End) -> Outcome {
    let (source, target) = (call.args.at(1), call.args.at(2));
    let Some(mut head) = call.list(source)? else {
        call.out.null();
        return Ok(());
    };
    call.list(target)?;
    let value = call.pop_element(&mut head, from)?;
    if source == target {
        call.push_element(&mut head, to, &value);
        call.put_head(source, &head);
    } else {
        call.put_head(source, &head);
        let mut other = call.head_or_new(target, Kind::List)?;
        call.push_element(&mut other, to, &value);
        call.put_head(target, &other);
    }
    call.out.bulk(&value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn lists_grow_and_shrink_at_both_ends_and_within() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("RPUSH l a b c", ":3"),
            ("LPUSH l y x", ":5"),
            ("LRANGE l 0 -1", "*5|$1|x|$1|y|$1|a|$1|b|$1|c"),
            ("LINDEX l -1", "$1|c"),
            ("LINDEX l 5", "$-1"),
            ("RPUSH later a b", ":2"),
            ("LPOP later", "$1|a"),
            ("LINDEX later 9223372036854775807", "$-1"),
            ("LINDEX later -9223372036854775808", "$-1"),
            ("LSET later 9223372036854775807 x", "-ERR index out of range"),
            ("DEL later", ":1"),
            ("LSET l 1 Y", "+OK"),
            ("LSET l 9 Y", "-ERR index out of range"),
            ("LINSERT l BEFORE a z", ":6"),
            ("LINSERT l AFTER nothing z", ":-1"),
            ("RPUSH l x", ":7"),
            ("LREM l -1 x", ":1"),
            ("LRANGE l 0 2", "*3|$1|x|$1|Y|$1|z"),
            ("LTRIM l 1 -2", "+OK"),
            ("LRANGE l 0 -1", "*4|$1|Y|$1|z|$1|a|$1|b"),
            ("LMOVE l m RIGHT LEFT", "$1|b"),
            ("RPOPLPUSH l l", "$1|a"),
            ("LPOP l 2", "*2|$1|a|$1|Y"),
            ("RPOP l", "$1|z"),
            ("LPOP l", "$-1"),
            ("LPOP l 1", "*-1"),
            ("LPUSHX l a", ":0"),
            ("EXISTS l m", ":1"),
            ("LTRIM m 5 6", "+OK"),
            ("DBSIZE", ":0"),
        ]);
        assert_eq!(bench.reap(), 1);
    }
}
