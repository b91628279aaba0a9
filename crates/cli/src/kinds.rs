//! Kinds of index as arguments.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use pmindex::Kind;

/// Accepts the name of any kind, and lists them all in the help.
pub(crate) fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.name()))
        .try_map(|name| name.parse::<Kind>())
}
