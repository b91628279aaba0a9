//! Errors, in the words of Redis 7.

use std::borrow::Cow;

use crate::keyspace::Failure;

/// An error reply of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Cow<'static, str>);

impl Refusal {
    pub(crate) const WRONG_TYPE: Self =
        Self::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Self = Self::of("ERR syntax error");
    pub(crate) const NOT_INTEGER: Self = Self::of("ERR value is not an integer or out of range");
    pub(crate) const NOT_FLOAT: Self = Self::of("ERR value is not a valid float");
    pub(crate) const NO_SUCH_KEY: Self = Self::of("ERR no such key");
    pub(crate) const TOO_LONG: Self =
        Self::of("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const OVERFLOW: Self = Self::of("ERR increment or decrement would overflow");
    pub(crate) const NOT_FINITE: Self = Self::of("ERR increment would produce NaN or Infinity");
    pub(crate) const CROSS_SLOT: Self =
        Self::of("CROSSSLOT Keys in request don't hash to the same slot");

    pub(crate) const NO_LEADER: Self = Self::of("CLUSTERDOWN the group of the slot has no leader");

    pub(crate) const fn of(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(crate) fn arity(name: &str) -> Self {
        Self(format!("ERR wrong number of arguments for '{}' command", name.to_lowercase()).into())
    }

    pub(crate) fn expire_time(name: &str) -> Self {
        Self(format!("ERR invalid expire time in '{name}' command").into())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Full => Self::of("OOM command not allowed when used memory > 'maxmemory'."),
            Failure::TooLong(what) => Self(format!("ERR {what}").into()),
            Failure::Busy => {
                Self::of("TRYAGAIN too many writes wait for the group; try again later")
            }
            Failure::Damaged(what) | Failure::Broken(what) => {
                Self(format!("ERR storage: {what}").into())
            }
        }
    }
}
