//! The table of commands: name, arity, keys, and where each one runs.

use super::call::{Call, Outcome};
use super::{
    counters, expiry, hashes, keys, lists, scan, sets, simple, sorted, sorted_range, strings,
};

/// Runs a command in a partition.
pub(crate) type Handler = fn(&mut Call<'_, '_>) -> Outcome;

/// The arguments that are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) first: usize,
    /// Negative counts from the end.
    pub(crate) last: i64,
    pub(crate) step: usize,
}

impl Keys {
    const NONE: Self = Self { first: 0, last: 0, step: 0 };
    const ONE: Self = Self { first: 1, last: 1, step: 1 };
    const TWO: Self = Self { first: 1, last: 2, step: 1 };
    const ALL: Self = Self { first: 1, last: -1, step: 1 };
    const PAIRS: Self = Self { first: 1, last: -1, step: 2 };
    const SECOND: Self = Self { first: 2, last: 2, step: 1 };

    /// Returns the positions of the keys among `count` arguments.
    pub(crate) fn of(self, count: usize) -> impl Iterator<Item = usize> {
        let last = match usize::try_from(self.last) {
            Ok(last) => last,
            Err(_) => count.saturating_sub(usize::try_from(-self.last).unwrap_or(1)),
        };
        let end = if self.first == 0 { 0 } else { last.min(count - 1) + 1 };
        (self.first..end).step_by(self.step.max(1))
    }
}

/// The way to combine the replies of several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// Adds counts.
    Sum,
    /// All succeeded.
    Ok,
    /// Puts values in the places of their keys.
    Values,
    /// Joins rows.
    Concat,
    /// Merges rows of keys with values in the order of the keys.
    Merge,
    /// Takes one that is not null.
    Any,
}

/// A command that only a connection can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    Acl,
    Auth,
    Backup,
    Client,
    Cluster,
    Command,
    Config,
    Debug,
    Discard,
    Exec,
    Hello,
    Info,
    LastSave,
    Memory,
    Multi,
    Publish,
    Pubsub,
    Quit,
    Reset,
    Role,
    Save,
    Scan,
    Shutdown,
    Subscribe,
    Unwatch,
    Wait,
    Watch,
}

/// The place where a command runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// In the partition of its keys.
    Keyed(Handler),
    /// In each partition that has some of its keys.
    Split(Handler, Gather),
    /// In every partition.
    Everywhere(Handler, Gather),
    /// Removes every record.
    Clear,
    /// In the connection.
    Session(Session),
}

/// The command reads records.
pub(crate) const READ: u8 = 1;
/// The command writes records.
pub(crate) const WRITE: u8 = 2;
/// The command is for administrators.
pub(crate) const ADMIN: u8 = 4;
/// The command takes constant time, whatever the records are.
pub(crate) const FAST: u8 = 8;
/// The command may be sent before `AUTH`.
pub(crate) const NO_AUTH: u8 = 16;
/// The command is about channels.
pub(crate) const PUBSUB: u8 = 32;
/// The command runs at once, also in a transaction; others are queued there, or refused.
pub(crate) const AT_ONCE: u8 = 64;

/// A command.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The name in lower case.
    pub(crate) name: &'static str,
    /// The number of words including the name; negative: the least number.
    pub(crate) arity: i32,
    pub(crate) keys: Keys,
    pub(crate) flags: u8,
    pub(crate) run: Run,
}

impl Spec {
    /// Returns `true` if a request may have this number of words.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the handler for a partition, if the command runs in one.
    pub(crate) fn run_at_partition(&self) -> Option<Handler> {
        match self.run {
            Run::Keyed(run) | Run::Split(run, _) | Run::Everywhere(run, _) => Some(run),
            Run::Session(Session::Scan) => Some(scan::scan),
            _ => None,
        }
    }
}

const fn keyed(name: &'static str, arity: i32, flags: u8, keys: Keys, run: Handler) -> Spec {
    Spec { name, arity, keys, flags, run: Run::Keyed(run) }
}

const fn read(name: &'static str, arity: i32, run: Handler) -> Spec {
    keyed(name, arity, READ | FAST, Keys::ONE, run)
}

const fn write(name: &'static str, arity: i32, run: Handler) -> Spec {
    keyed(name, arity, WRITE | FAST, Keys::ONE, run)
}

const fn split(name: &'static str, arity: i32, flags: u8, gather: Gather, run: Handler) -> Spec {
    Spec { name, arity, keys: Keys::ALL, flags, run: Run::Split(run, gather) }
}

const fn everywhere(
    name: &'static str,
    arity: i32,
    flags: u8,
    gather: Gather,
    run: Handler,
) -> Spec {
    Spec { name, arity, keys: Keys::NONE, flags, run: Run::Everywhere(run, gather) }
}

const fn session(name: &'static str, arity: i32, flags: u8, command: Session) -> Spec {
    Spec { name, arity, keys: Keys::NONE, flags, run: Run::Session(command) }
}

/// `WATCH` of one key, which replies its version.
pub(crate) static WATCH_KEY: Spec = keyed("watch", 2, READ, Keys::ONE, keys::watch);
/// `UNWATCH` in a transaction.
pub(crate) static UNWATCH_LATER: Spec = keyed("unwatch", 1, FAST, Keys::NONE, simple::unwatch);
/// The end of a watch.
pub(crate) static UNWATCH_KEY: Spec = keyed("unwatch", 3, READ, Keys::ONE, keys::unwatch);

/// All commands, ordered by name.
pub(crate) static COMMANDS: &[Spec] = &[
    session("acl", -2, ADMIN, Session::Acl),
    write("append", 3, strings::append),
    session("auth", -2, NO_AUTH | FAST, Session::Auth),
    session("backup", 2, ADMIN, Session::Backup),
    session("bgsave", -1, ADMIN, Session::Save),
    session("client", -2, ADMIN, Session::Client),
    session("cluster", -2, ADMIN, Session::Cluster),
    session("command", -1, 0, Session::Command),
    session("config", -2, ADMIN, Session::Config),
    keyed("copy", -3, WRITE, Keys::TWO, keys::copy),
    everywhere("dbsize", 1, READ | FAST, Gather::Sum, keys::dbsize),
    session("debug", -2, ADMIN, Session::Debug),
    write("decr", 2, counters::decr),
    write("decrby", 3, counters::decrby),
    split("del", -2, WRITE, Gather::Sum, keys::del),
    session("discard", 1, FAST | AT_ONCE, Session::Discard),
    keyed("echo", 2, FAST, Keys::NONE, simple::echo),
    session("exec", 1, AT_ONCE, Session::Exec),
    split("exists", -2, READ | FAST, Gather::Sum, keys::exists),
    write("expire", -3, expiry::expire),
    write("expireat", -3, expiry::expireat),
    read("expiretime", 2, expiry::expiretime),
    Spec { name: "flushall", arity: -1, keys: Keys::NONE, flags: WRITE, run: Run::Clear },
    Spec { name: "flushdb", arity: -1, keys: Keys::NONE, flags: WRITE, run: Run::Clear },
    read("get", 2, strings::get),
    write("getdel", 2, strings::getdel),
    write("getex", -2, strings::getex),
    read("getrange", 4, strings::getrange),
    write("getset", 3, strings::getset),
    write("hdel", -3, hashes::hdel),
    session("hello", -1, NO_AUTH | FAST, Session::Hello),
    read("hexists", 3, hashes::hexists),
    read("hget", 3, hashes::hget),
    read("hgetall", 2, hashes::hgetall),
    write("hincrby", 4, hashes::hincrby),
    write("hincrbyfloat", 4, hashes::hincrbyfloat),
    read("hkeys", 2, hashes::hkeys),
    read("hlen", 2, hashes::hlen),
    read("hmget", -3, hashes::hmget),
    write("hmset", -4, hashes::hmset),
    read("hrandfield", -2, hashes::hrandfield),
    read("hscan", -3, hashes::hscan),
    write("hset", -4, hashes::hset),
    write("hsetnx", 4, hashes::hsetnx),
    read("hstrlen", 3, hashes::hstrlen),
    read("hvals", 2, hashes::hvals),
    write("incr", 2, counters::incr),
    write("incrby", 3, counters::incrby),
    write("incrbyfloat", 3, counters::incrbyfloat),
    session("info", -1, 0, Session::Info),
    everywhere("keys", 2, READ, Gather::Concat, scan::keys),
    session("lastsave", 1, FAST, Session::LastSave),
    read("lindex", 3, lists::lindex),
    write("linsert", 5, lists::linsert),
    read("llen", 2, lists::llen),
    keyed("lmove", 5, WRITE, Keys::TWO, lists::lmove),
    write("lpop", -2, lists::lpop),
    write("lpush", -3, lists::lpush),
    write("lpushx", -3, lists::lpushx),
    read("lrange", 4, lists::lrange),
    write("lrem", 4, lists::lrem),
    write("lset", 4, lists::lset),
    write("ltrim", 4, lists::ltrim),
    session("memory", -2, READ, Session::Memory),
    split("mget", -2, READ | FAST, Gather::Values, strings::mget),
    keyed("mset", -3, WRITE, Keys::PAIRS, strings::mset),
    keyed("msetnx", -3, WRITE, Keys::PAIRS, strings::msetnx),
    session("multi", 1, FAST | AT_ONCE, Session::Multi),
    keyed("object", -3, READ, Keys::SECOND, keys::object),
    write("persist", 2, expiry::persist),
    write("pexpire", -3, expiry::pexpire),
    write("pexpireat", -3, expiry::pexpireat),
    read("pexpiretime", 2, expiry::pexpiretime),
    keyed("ping", -1, FAST, Keys::NONE, simple::ping),
    write("psetex", 4, strings::psetex),
    session("psubscribe", -2, PUBSUB, Session::Subscribe),
    read("pttl", 2, expiry::pttl),
    session("publish", 3, PUBSUB | FAST, Session::Publish),
    session("pubsub", -2, PUBSUB, Session::Pubsub),
    session("punsubscribe", -1, PUBSUB, Session::Subscribe),
    session("quit", -1, NO_AUTH | FAST | AT_ONCE, Session::Quit),
    everywhere("randomkey", 1, READ, Gather::Any, keys::randomkey),
    everywhere("range", -3, READ, Gather::Merge, scan::range),
    keyed("rename", 3, WRITE, Keys::TWO, keys::rename),
    keyed("renamenx", 3, WRITE, Keys::TWO, keys::renamenx),
    session("reset", 1, NO_AUTH | FAST | AT_ONCE, Session::Reset),
    session("role", 1, FAST, Session::Role),
    write("rpop", -2, lists::rpop),
    keyed("rpoplpush", 3, WRITE, Keys::TWO, lists::rpoplpush),
    write("rpush", -3, lists::rpush),
    write("rpushx", -3, lists::rpushx),
    write("sadd", -3, sets::sadd),
    session("save", 1, ADMIN, Session::Save),
    session("scan", -2, READ, Session::Scan),
    read("scard", 2, sets::scard),
    keyed("sdiff", -2, READ, Keys::ALL, sets::sdiff),
    keyed("sdiffstore", -3, WRITE, Keys::ALL, sets::sdiffstore),
    keyed("select", 2, FAST, Keys::NONE, simple::select),
    write("set", -3, strings::set),
    write("setex", 4, strings::setex),
    write("setnx", 3, strings::setnx),
    write("setrange", 4, strings::setrange),
    session("shutdown", -1, ADMIN, Session::Shutdown),
    keyed("sinter", -2, READ, Keys::ALL, sets::sinter),
    keyed("sinterstore", -3, WRITE, Keys::ALL, sets::sinterstore),
    read("sismember", 3, sets::sismember),
    read("smembers", 2, sets::smembers),
    read("smismember", -3, sets::smismember),
    keyed("smove", 4, WRITE, Keys::TWO, sets::smove),
    write("spop", -2, sets::spop),
    read("srandmember", -2, sets::srandmember),
    write("srem", -3, sets::srem),
    read("sscan", -3, sets::sscan),
    read("strlen", 2, strings::strlen),
    session("subscribe", -2, PUBSUB, Session::Subscribe),
    read("substr", 4, strings::getrange),
    keyed("sunion", -2, READ, Keys::ALL, sets::sunion),
    keyed("sunionstore", -3, WRITE, Keys::ALL, sets::sunionstore),
    keyed("time", 1, FAST, Keys::NONE, simple::time),
    split("touch", -2, READ | FAST, Gather::Sum, keys::exists),
    read("ttl", 2, expiry::ttl),
    read("type", 2, keys::kind),
    split("unlink", -2, WRITE | FAST, Gather::Sum, keys::del),
    session("unsubscribe", -1, PUBSUB, Session::Subscribe),
    session("unwatch", 1, FAST, Session::Unwatch),
    session("wait", 3, 0, Session::Wait),
    Spec {
        name: "watch",
        arity: -2,
        keys: Keys::ALL,
        flags: FAST | AT_ONCE,
        run: Run::Session(Session::Watch),
    },
    write("zadd", -4, sorted::zadd),
    read("zcard", 2, sorted::zcard),
    read("zcount", 4, sorted::zcount),
    write("zincrby", 4, sorted::zincrby),
    read("zlexcount", 4, sorted::zlexcount),
    read("zmscore", -3, sorted::zmscore),
    write("zpopmax", -2, sorted::zpopmax),
    write("zpopmin", -2, sorted::zpopmin),
    read("zrange", -4, sorted_range::zrange),
    read("zrangebylex", -4, sorted_range::zrangebylex),
    read("zrangebyscore", -4, sorted_range::zrangebyscore),
    read("zrank", 3, sorted::zrank),
    write("zrem", -3, sorted::zrem),
    write("zremrangebylex", 4, sorted_range::zremrangebylex),
    write("zremrangebyrank", 4, sorted_range::zremrangebyrank),
    write("zremrangebyscore", 4, sorted_range::zremrangebyscore),
    read("zrevrange", -4, sorted_range::zrevrange),
    read("zrevrangebylex", -4, sorted_range::zrevrangebylex),
    read("zrevrangebyscore", -4, sorted_range::zrevrangebyscore),
    read("zrevrank", 3, sorted::zrevrank),
    read("zscan", -3, sorted::zscan),
    read("zscore", 3, sorted::zscore),
];

/// The length of the longest name.
const LONGEST: usize = 16;

/// Returns the command with a name, in upper or lower case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut lower = [0_u8; LONGEST];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let found = COMMANDS.binary_search_by(|spec| spec.name.as_bytes().cmp(lower));
    found.ok().map(|at| &COMMANDS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_found() {
        assert!(COMMANDS.is_sorted_by(|one, two| one.name < two.name));
        assert!(COMMANDS.iter().all(|spec| spec.name.len() <= LONGEST));
        assert_eq!(find(b"GeT").map(|spec| spec.name), Some("get"));
        assert!(find(b"gett").is_none() && find(&[b'x'; 100]).is_none() && find(b"").is_none());
    }

    /// Every user may run these: they show and change nothing but the connection, and figures of the server.
    /// A new command must have a category, or be harmless.
    #[test]
    fn commands_without_a_category_are_harmless() {
        let open = COMMANDS.iter().filter(|spec| !spec.has(READ | WRITE | ADMIN | PUBSUB));
        let open: Vec<_> = open.map(|spec| spec.name).collect();
        let expected = "auth command discard echo exec hello info lastsave multi ping quit reset role \
                        select time unwatch wait watch";
        assert_eq!(open, expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn keys_are_those_arguments() {
        let of = |name: &str, count| {
            find(name.as_bytes()).map(|spec| spec.keys.of(count).collect::<Vec<_>>())
        };
        assert_eq!(of("get", 2), Some(vec![1]));
        assert_eq!(of("mset", 7), Some(vec![1, 3, 5]));
        assert_eq!(of("del", 4), Some(vec![1, 2, 3]));
        assert_eq!(of("rename", 3), Some(vec![1, 2]));
        assert_eq!(of("ping", 1), Some(vec![]));
        assert_eq!(of("object", 3), Some(vec![2]));
    }
}
