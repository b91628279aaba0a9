//! Commands of sorted sets, which have two records for each member, one by name and one by score.

use crate::keyspace::item::Head;
use crate::keyspace::{Kind, NEVER};
use crate::wire::parse_double;

use super::sorted_range::{Side, Window};
use super::{Call, Outcome, Refusal};

impl Call<'_, '_> {
    pub(super) fn sorted(&self, key: &[u8]) -> Result<Option<Head>, Refusal> {
        self.head(key, Kind::Sorted)
    }

    pub(super) fn score(&self, head: &Head, name: &[u8]) -> Result<Option<f64>, Refusal> {
        let found = self.draft.get(&head.member(name))?;
        Ok(found.and_then(|value| value.first_chunk().map(|bits| f64::from_be_bytes(*bits))))
    }

    fn put_score(&mut self, head: &mut Head, name: &[u8], old: Option<f64>, score: f64) {
        match old {
            Some(old) => self.draft.remove(head.scored(old, name)),
            None => head.length += 1,
        }
        self.draft.put(head.member(name), score.to_be_bytes().to_vec(), NEVER);
        self.draft.put(head.scored(score, name), Vec::new(), NEVER);
    }

    pub(super) fn remove_score(&mut self, head: &mut Head, name: &[u8], score: f64) {
        self.draft.remove(head.scored(score, name));
        self.draft.remove(head.member(name));
        head.length -= 1;
    }
}

#[derive(Default)]
struct AddOptions {
    only_new: bool,
    only_old: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

impl AddOptions {
    /// Reads the options; returns the position of the first score.
    fn parse(call: &Call<'_, '_>) -> Result<(Self, usize), Refusal> {
        let (mut options, mut at) = (Self::default(), 2);
        while at < call.args.len() {
            match call.args.at(at).to_ascii_uppercase().as_slice() {
                b"NX" => options.only_new = true,
                b"XX" => options.only_old = true,
                b"GT" => options.greater = true,
                b"LT" => options.less = true,
                b"CH" => options.changed = true,
                b"INCR" => options.increment = true,
                _ => break,
            }
            at += 1;
        }
        let left = call.args.len() - at;
        if left == 0 || !left.is_multiple_of(2) {
            return Err(Refusal::SYNTAX);
        }
        if options.only_new && options.only_old {
            return Err(Refusal::of("ERR XX and NX options at the same time are not compatible"));
        }
        if (options.greater && (options.less || options.only_new))
            || (options.less && options.only_new)
        {
            return Err(Refusal::of(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if options.increment && left > 2 {
            return Err(Refusal::of("ERR INCR option supports a single increment-element pair"));
        }
        Ok((options, at))
    }

    fn allow(&self, old: Option<f64>, new: f64) -> bool {
        match old {
            None => !self.only_old,
            Some(old) => {
                !(self.only_new || (self.greater && new <= old) || (self.less && new >= old))
            }
        }
    }
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`
pub(crate) fn zadd(call: &mut Call<'_, '_>) -> Outcome {
    let (options, at) = AddOptions::parse(call)?;
    let mut scores = Vec::new();
    for number in (at..call.args.len()).step_by(2) {
        scores.push(parse_double(call.args.at(number)).ok_or(Refusal::NOT_FLOAT)?);
    }
    let key = call.key();
    let mut head = call.head_or_new(key, Kind::Sorted)?;
    let before = head.length;
    let (mut changed, mut result) = (0, None);
    for (score, number) in scores.into_iter().zip((at + 1..).step_by(2)) {
        let name = call.args.at(number);
        let old = call.score(&head, name)?;
        let new = if options.increment { old.unwrap_or(0.0) + score } else { score };
        if new.is_nan() {
            return Err(Refusal::of("ERR resulting score is not a number (NaN)"));
        }
        if !options.allow(old, new) {
            continue;
        }
        result = Some(new);
        if old != Some(new) {
            call.put_score(&mut head, name, old, new);
            changed += usize::from(old.is_some());
        }
    }
    let added = (head.length - before) as usize;
    if added > 0 {
        call.put_head(key, &head);
    }
    match (options.increment, result) {
        (true, Some(score)) => call.out.double(score),
        (true, None) => call.out.null(),
        (false, _) => call.out.count(if options.changed { added + changed } else { added }),
    }
    Ok(())
}

/// `ZINCRBY key number member`
pub(crate) fn zincrby(call: &mut Call<'_, '_>) -> Outcome {
    let number = parse_double(call.args.at(2)).ok_or(Refusal::NOT_FLOAT)?;
    let (key, name) = (call.key(), call.args.at(3));
    let mut head = call.head_or_new(key, Kind::Sorted)?;
    let old = call.score(&head, name)?;
    let new = old.unwrap_or(0.0) + number;
    if new.is_nan() {
        return Err(Refusal::of("ERR resulting score is not a number (NaN)"));
    }
    if old != Some(new) {
        call.put_score(&mut head, name, old, new);
    }
    if old.is_none() {
        call.put_head(key, &head);
    }
    call.out.double(new);
    Ok(())
}

/// `ZREM key member [member ...]`
pub(crate) fn zrem(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.key();
    let Some(mut head) = call.sorted(key)? else {
        call.out.integer(0);
        return Ok(());
    };
    let before = head.length;
    for name in call.args.from(2).iter() {
        if let Some(score) = call.score(&head, name)? {
            call.remove_score(&mut head, name, score);
        }
    }
    if head.length != before {
        call.put_head(key, &head);
    }
    call.out.count((before - head.length) as usize);
    Ok(())
}

/// `ZSCORE key member`
pub(crate) fn zscore(call: &mut Call<'_, '_>) -> Outcome {
    let score = match call.sorted(call.key())? {
        Some(head) => call.score(&head, call.args.at(2))?,
        None => None,
    };
    match score {
        Some(score) => call.out.double(score),
        None => call.out.null(),
    }
    Ok(())
}

/// `ZMSCORE key member [member ...]`
pub(crate) fn zmscore(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.sorted(call.key())?;
    call.out.array(call.args.len() - 2);
    for name in call.args.from(2).iter() {
        let score = match &head {
            Some(head) => call.score(head, name)?,
            None => None,
        };
        match score {
            Some(score) => call.out.double(score),
            None => call.out.null(),
        }
    }
    Ok(())
}

/// `ZCARD key`
pub(crate) fn zcard(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.sorted(call.key())?;
    call.out.count(head.map_or(0, |head| head.length as usize));
    Ok(())
}

/// `ZRANK key member`, in time linear in the rank.
pub(crate) fn zrank(call: &mut Call<'_, '_>) -> Outcome {
    rank(call, false)
}

/// `ZREVRANK key member`, in time linear in the rank.
pub(crate) fn zrevrank(call: &mut Call<'_, '_>) -> Outcome {
    rank(call, true)
}

fn rank(call: &mut Call<'_, '_>, reverse: bool) -> Outcome {
    let name = call.args.at(2);
    let head = call.sorted(call.key())?;
    let score = match &head {
        Some(head) => call.score(head, name)?,
        None => None,
    };
    let (Some(head), Some(score)) = (head, score) else {
        call.out.null();
        return Ok(());
    };
    let wanted = head.scored(score, name);
    let mut rank = 0;
    call.draft.scan(Window::all(&head).range(), reverse, &mut |record, _| {
        let here = record == wanted;
        rank += usize::from(!here);
        !here
    })?;
    call.out.count(rank);
    Ok(())
}

/// `ZPOPMIN key [count]`
pub(crate) fn zpopmin(call: &mut Call<'_, '_>) -> Outcome {
    pop(call, false)
}

/// `ZPOPMAX key [count]`
pub(crate) fn zpopmax(call: &mut Call<'_, '_>) -> Outcome {
    pop(call, true)
}

fn pop(call: &mut Call<'_, '_>, reverse: bool) -> Outcome {
    let key = call.key();
    let count = match call.args.len() {
        2 => 1,
        3 => {
            let count = call.integer(2).ok().and_then(|count| usize::try_from(count).ok());
            count.ok_or(Refusal::of("ERR value is out of range, must be positive"))?
        }
        _ => return Err(Refusal::SYNTAX),
    };
    let Some(mut head) = call.sorted(key)? else {
        call.out.array(0);
        return Ok(());
    };
    let found = Window::all(&head).members(call, reverse, 0, count)?;
    for (name, score) in &found {
        call.remove_score(&mut head, name, *score);
    }
    if !found.is_empty() {
        call.put_head(key, &head);
    }
    let is_pairs = call.args.len() > 2 && call.out.protocol == crate::wire::Protocol::Resp3;
    call.out.array(if is_pairs { found.len() } else { found.len() * 2 });
    for (name, score) in found {
        if is_pairs {
            call.out.array(2);
        }
        call.out.bulk(&name);
        call.out.double(score);
    }
    Ok(())
}

/// `ZCOUNT key min max`
pub(crate) fn zcount(call: &mut Call<'_, '_>) -> Outcome {
    let sides = (Side::score(call.args.at(2))?, Side::score(call.args.at(3))?);
    let found = match call.sorted(call.key())? {
        Some(head) => Window::by_score(&head, &sides).count(call)?,
        None => 0,
    };
    call.out.count(found);
    Ok(())
}

/// `ZLEXCOUNT key min max`
pub(crate) fn zlexcount(call: &mut Call<'_, '_>) -> Outcome {
    let sides = (Side::name(call.args.at(2))?, Side::name(call.args.at(3))?);
    let found = match call.sorted(call.key())? {
        Some(head) => Window::by_name(&head, &sides).count(call)?,
        None => 0,
    };
    call.out.count(found);
    Ok(())
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn zscan(call: &mut Call<'_, '_>) -> Outcome {
    super::scan::scan_members(call, Kind::Sorted)
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn scores_order_members() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("ZADD z 3 c 1 a 2 b", ":3"),
            ("ZADD z XX CH 5 a 1 d", ":1"),
            ("ZADD z NX 9 a 4 d", ":1"),
            ("ZADD z GT CH 1 a 6 d", ":1"),
            ("ZADD z INCR -10 a", "$2|-5"),
            ("ZADD z NX INCR 1 a", "$-1"),
            ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
            ("ZADD z 1 a b", "-ERR syntax error"),
            ("ZADD z x a", "-ERR value is not a valid float"),
            ("ZRANGE z 0 -1 WITHSCORES", "*8|$1|a|$2|-5|$1|b|$1|2|$1|c|$1|3|$1|d|$1|6"),
            ("ZRANK z c", ":2"),
            ("ZREVRANK z c", ":1"),
            ("ZRANK z none", "$-1"),
            ("ZCOUNT z (2 +inf", ":2"),
            ("ZCOUNT z a 1", "-ERR min or max is not a float"),
            ("ZINCRBY z 1.5 b", "$3|3.5"),
            ("ZMSCORE z b none", "*2|$3|3.5|$-1"),
            ("ZPOPMIN z", "*2|$1|a|$2|-5"),
            ("ZPOPMAX z 2", "*4|$1|d|$1|6|$1|b|$3|3.5"),
            ("ZREM z c x", ":1"),
            ("ZCARD z", ":0"),
            ("DBSIZE", ":0"),
        ]);
        assert_eq!(bench.reap(), 1);
    }
}
