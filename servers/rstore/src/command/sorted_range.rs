//! Commands of ranges of sorted sets: by rank, by score, by name.

use std::ops::Bound;

use crate::keyspace::item::{self, BY_NAME, BY_SCORE, Head, MEMBER_PREFIX};
use crate::wire::{Protocol, parse_double};

use super::ranges::clamp;
use super::{Call, Outcome, Refusal};

/// One end of a range by score or by name.
#[derive(Clone, Debug)]
pub(super) enum Side {
    Score {
        score: f64,
        excluded: bool,
    },
    /// Before all names, or after them.
    Least,
    Most,
    Name {
        name: Vec<u8>,
        excluded: bool,
    },
}

impl Side {
    pub(super) fn score(word: &[u8]) -> Result<Self, Refusal> {
        let (excluded, number) = match word {
            [b'(', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        // An empty number is zero, as for C's `strtod`.
        let score = if number.is_empty() { Some(0.0) } else { parse_double(number) };
        let score = score.ok_or(Refusal::of("ERR min or max is not a float"))?;
        Ok(Self::Score { score, excluded })
    }

    pub(super) fn name(word: &[u8]) -> Result<Self, Refusal> {
        Ok(match word {
            b"-" => Self::Least,
            b"+" => Self::Most,
            [b'(', name @ ..] => Self::Name { name: name.to_vec(), excluded: true },
            [b'[', name @ ..] => Self::Name { name: name.to_vec(), excluded: false },
            _ => return Err(Refusal::of("ERR min or max not valid string range item")),
        })
    }

    /// Returns the record before which a range begins, or ends if `is_end`.
    fn record(&self, head: &Head, by: u8, is_end: bool) -> Vec<u8> {
        let (first, last) = head.bounds(by);
        match self {
            Self::Least => first,
            Self::Most => last,
            Self::Score { score, excluded } => {
                let after = u64::from(*excluded != is_end);
                let place = item::ordered(*score).saturating_add(after);
                [&first[..], &place.to_be_bytes()].concat()
            }
            Self::Name { name, excluded } => {
                let after: &[u8] = if *excluded == is_end { &[] } else { &[0] };
                [&first[..], name, after].concat()
            }
        }
    }
}

/// Members between two records.
pub(super) struct Window {
    from: Vec<u8>,
    to: Vec<u8>,
    by: u8,
}

type Scored = Vec<(Vec<u8>, f64)>;

impl Window {
    pub(super) fn all(head: &Head) -> Self {
        let (from, to) = head.bounds(BY_SCORE);
        Self { from, to, by: BY_SCORE }
    }

    pub(super) fn by_score(head: &Head, sides: &(Side, Side)) -> Self {
        Self::between(head, BY_SCORE, sides)
    }

    pub(super) fn by_name(head: &Head, sides: &(Side, Side)) -> Self {
        Self::between(head, BY_NAME, sides)
    }

    fn between(head: &Head, by: u8, (least, most): &(Side, Side)) -> Self {
        let (from, to) = (least.record(head, by, false), most.record(head, by, true));
        Self { from, to, by }
    }

    pub(super) fn range(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(&self.from), Bound::Excluded(&self.to))
    }

    pub(super) fn count(&self, call: &Call<'_, '_>) -> Result<usize, Refusal> {
        let mut found = 0;
        call.draft.scan(self.range(), false, &mut |_, _| {
            found += 1;
            true
        })?;
        Ok(found)
    }

    /// Returns up to `most` members after the first `skip`, with their scores.
    pub(super) fn members(
        &self,
        call: &Call<'_, '_>,
        reverse: bool,
        skip: usize,
        most: usize,
    ) -> Result<Scored, Refusal> {
        let (mut found, mut left) = (Scored::new(), skip);
        if most == 0 {
            return Ok(found);
        }
        call.draft.scan(self.range(), reverse, &mut |record, value| {
            if left > 0 {
                left -= 1;
                return true;
            }
            if self.by == BY_SCORE {
                found.extend(item::scored_in(record).map(|(score, name)| (name.to_vec(), score)));
            } else {
                let score = value.first_chunk().map_or(0.0, |bits| f64::from_be_bytes(*bits));
                found.push((record[MEMBER_PREFIX..].to_vec(), score));
            }
            found.len() < most
        })?;
        Ok(found)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

/// The arguments of a command of ranges.
struct Query {
    by: By,
    reverse: bool,
    with_scores: bool,
    skip: usize,
    most: usize,
    limited: bool,
}

impl Query {
    /// Reads the options from argument 4 on; `general` are those of `ZRANGE` alone.
    fn parse(call: &Call<'_, '_>, by: By, reverse: bool, general: bool) -> Result<Self, Refusal> {
        let mut query =
            Self { by, reverse, with_scores: false, skip: 0, most: usize::MAX, limited: false };
        let mut at = 4;
        while at < call.args.len() {
            if call.args.is(at, "WITHSCORES") {
                query.with_scores = true;
            } else if call.args.is(at, "LIMIT") && at + 2 < call.args.len() {
                let (skip, most) = (call.integer(at + 1)?, call.integer(at + 2)?);
                // A negative offset takes no members, a negative count all.
                query.most = usize::try_from(most).unwrap_or(usize::MAX);
                match usize::try_from(skip) {
                    Ok(skip) => query.skip = skip,
                    Err(_) => query.most = 0,
                }
                query.limited = true;
                at += 2;
            } else if general && call.args.is(at, "BYSCORE") {
                query.by = By::Score;
            } else if general && call.args.is(at, "BYLEX") {
                query.by = By::Name;
            } else if general && call.args.is(at, "REV") {
                query.reverse = true;
            } else {
                return Err(Refusal::SYNTAX);
            }
            at += 1;
        }
        if query.limited && query.by == By::Rank {
            return Err(Refusal::of(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if query.with_scores && query.by == By::Name {
            return Err(Refusal::of(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(query)
    }

    fn members(&self, call: &Call<'_, '_>) -> Result<Scored, Refusal> {
        let (first, second) = (call.args.at(2), call.args.at(3));
        let (least, most) = if self.reverse { (second, first) } else { (first, second) };
        match self.by {
            By::Rank => {
                let (start, end) = (call.integer(2)?, call.integer(3)?);
                let Some(head) = call.sorted(call.key())? else { return Ok(Vec::new()) };
                let Some(range) = clamp(start, end, head.length as usize) else {
                    return Ok(Vec::new());
                };
                Window::all(&head).members(call, self.reverse, range.start, range.len())
            }
            By::Score => {
                let sides = (Side::score(least)?, Side::score(most)?);
                let Some(head) = call.sorted(call.key())? else { return Ok(Vec::new()) };
                Window::by_score(&head, &sides).members(call, self.reverse, self.skip, self.most)
            }
            By::Name => {
                let sides = (Side::name(least)?, Side::name(most)?);
                let Some(head) = call.sorted(call.key())? else { return Ok(Vec::new()) };
                Window::by_name(&head, &sides).members(call, self.reverse, self.skip, self.most)
            }
        }
    }
}

fn run(call: &mut Call<'_, '_>, by: By, reverse: bool, general: bool) -> Outcome {
    let query = Query::parse(call, by, reverse, general)?;
    let found = query.members(call)?;
    let pairs = query.with_scores && call.out.protocol == Protocol::Resp3;
    call.out.array(if query.with_scores && !pairs { found.len() * 2 } else { found.len() });
    for (name, score) in found {
        if pairs {
            call.out.array(2);
        }
        call.out.bulk(&name);
        if query.with_scores {
            call.out.double(score);
        }
    }
    Ok(())
}

/// `ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`
pub(crate) fn zrange(call: &mut Call<'_, '_>) -> Outcome {
    run(call, By::Rank, false, true)
}

/// `ZREVRANGE key start stop [WITHSCORES]`
pub(crate) fn zrevrange(call: &mut Call<'_, '_>) -> Outcome {
    run(call, By::Rank, true, false)
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`
pub(crate) fn zrangebyscore(call: &mut Call<'_, '_>) -> Outcome {
    run(call, By::Score, false, false)
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`
pub(crate) fn zrevrangebyscore(call: &mut Call<'_, '_>) -> Outcome {
    run(call, By::Score, true, false)
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`
pub(crate) fn zrangebylex(call: &mut Call<'_, '_>) -> Outcome {
    run(call, By::Name, false, false)
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`
pub(crate) fn zrevrangebylex(call: &mut Call<'_, '_>) -> Outcome {
    run(call, By::Name, true, false)
}

/// `ZREMRANGEBYRANK key start stop`
pub(crate) fn zremrangebyrank(call: &mut Call<'_, '_>) -> Outcome {
    remove(call, By::Rank)
}

/// `ZREMRANGEBYSCORE key min max`
pub(crate) fn zremrangebyscore(call: &mut Call<'_, '_>) -> Outcome {
    remove(call, By::Score)
}

/// `ZREMRANGEBYLEX key min max`
pub(crate) fn zremrangebylex(call: &mut Call<'_, '_>) -> Outcome {
    remove(call, By::Name)
}

fn remove(call: &mut Call<'_, '_>, by: By) -> Outcome {
    let query = Query::parse(call, by, false, false)?;
    let key = call.key();
    let found = query.members(call)?;
    if let Some(mut head) = call.sorted(key)?.filter(|_| !found.is_empty()) {
        for (name, score) in &found {
            call.remove_score(&mut head, name, *score);
        }
        call.put_head(key, &head);
    }
    call.out.count(found.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn ranges_by_rank_score_and_name() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
            ("ZRANGE z 1 2", "*2|$1|b|$1|c"),
            ("ZREVRANGE z 0 0 WITHSCORES", "*2|$1|d|$1|4"),
            ("ZRANGE z (1 3 BYSCORE", "*2|$1|b|$1|c"),
            ("ZRANGE z 3 (1 BYSCORE REV", "*2|$1|c|$1|b"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 1 2", "*2|$1|b|$1|c"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT -1 2", "*0"),
            ("ZREVRANGEBYSCORE z +inf (3", "*1|$1|d"),
            ("ZRANGE z 0 1 LIMIT 0 1", "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"),
            ("ZADD l 0 a 0 b 0 ab 0 c", ":4"),
            ("ZRANGEBYLEX l [a (b", "*2|$1|a|$2|ab"),
            ("ZREVRANGEBYLEX l + (ab", "*2|$1|c|$1|b"),
            ("ZLEXCOUNT l - +", ":4"),
            ("ZLEXCOUNT l x +", "-ERR min or max not valid string range item"),
            ("ZREMRANGEBYLEX l (a [b", ":2"),
            ("ZREMRANGEBYSCORE z 2 3", ":2"),
            ("ZREMRANGEBYRANK z 0 -1", ":2"),
            ("EXISTS z l", ":1"),
        ]);
    }
}
