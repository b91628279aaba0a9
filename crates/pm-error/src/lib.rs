//! Error enums whose texts stand beside their variants, without a procedural macro.
//!
//! [`error_enum!`] has the syntax of the crate `thiserror`, as far as this project uses it. A procedural
//! macro, with the parser under it, took a sixth of the time in which a program with one index was built.

#![forbid(unsafe_code)]

use std::path::{Display, PathBuf};

/// Declares an error enum, and implements [`Display`](std::fmt::Display), [`Error`](std::error::Error) and
/// [`From`] for it.
///
/// Each variant has a text, in which fields stand by their names; a path is shown as it is. A variant of
/// one unnamed field shows it as `{0}`, or shows and has as its source what the field does:
/// `#[error(transparent)]`. `#[from]` on such a field makes the conversion, `#[source]` names it as the
/// source.
///
/// ```
/// pmindex_error::error_enum! {
///     /// What reading a page can fail with.
///     #[derive(Debug)]
///     pub enum ReadError {
///         /// The page has another number.
///         #[error("page {wanted} was asked for, and {found:#x} is there")]
///         Other {
///             /// Its number.
///             wanted: u64,
///             /// What is there.
///             found: u64,
///         },
///         /// The checksum is wrong.
///         #[error("a page is damaged")]
///         Damaged,
///         /// The file.
///         #[error(transparent)]
///         Io(#[from] std::io::Error),
///         /// The archive.
///         #[error("the archive of the log: {0}")]
///         Archive(#[source] std::io::Error),
///     }
/// }
///
/// let error = ReadError::Other { wanted: 7, found: 255 };
/// assert_eq!(error.to_string(), "page 7 was asked for, and 0xff is there");
/// let error = ReadError::from(std::io::Error::other("no such page"));
/// assert_eq!(error.to_string(), "no such page");
/// ```
#[macro_export]
macro_rules! error_enum {
    (
        $(#[$of_enum:meta])*
        $visible:vis enum $Error:ident {
            $(
                $(#[doc = $text:literal])*
                #[error($($message:tt)+)]
                $Variant:ident
                $(($(#[$role:ident])? $Inner:ty))?
                $({ $($(#[$of_field:meta])* $field:ident : $Field:ty),+ $(,)? })?
            ),+ $(,)?
        }
    ) => {
        $(#[$of_enum])*
        $visible enum $Error {
            $(
                $(#[doc = $text])*
                $Variant $(($Inner))? $({ $($(#[$of_field])* $field: $Field),+ })?
            ),+
        }

        impl ::std::fmt::Display for $Error {
            #[allow(unused_variables, reason = "a text need not show every field")]
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                #[allow(unused_imports, reason = "an error may have no field")]
                use $crate::{ShownAsIs as _, ShownAsPath as _};
                match self {
                    $($crate::error_enum!(@pattern $Variant $(, inner $Inner)? $(, { $($field)+ })?) => {
                        $($(let $field = $field.shown();)+)?
                        $crate::error_enum!(@show f, ($($message)+) $(, inner $Inner)?)
                    })+
                }
            }
        }

        impl ::std::error::Error for $Error {
            #[allow(irrefutable_let_patterns, reason = "an error may have one variant")]
            fn source(&self) -> ::std::option::Option<&(dyn ::std::error::Error + 'static)> {
                $($crate::error_enum!(
                    @source self, $Variant, ($($message)+) $(, $($role)?; $Inner)? $(, { $($field)+ })?
                );)+
                None
            }
        }

        $($($crate::error_enum!(@from $($role)?; $Error, $Variant, $Inner);)?)+
    };

    (@pattern $Variant:ident) => { Self::$Variant };
    (@pattern $Variant:ident, $inner:ident $Inner:ty) => { Self::$Variant($inner) };
    (@pattern $Variant:ident, { $($field:ident)+ }) => { Self::$Variant { $($field),+ } };

    (@show $f:ident, (transparent), $inner:ident $Inner:ty) => { ::std::fmt::Display::fmt($inner, $f) };
    (@show $f:ident, ($($message:tt)+), $inner:ident $Inner:ty) => {
        ::std::write!($f, $($message)+, $inner)
    };
    (@show $f:ident, ($($message:tt)+)) => { ::std::write!($f, $($message)+) };

    (@source $this:ident, $Variant:ident, (transparent), $($role:ident)?; $Inner:ty) => {
        if let Self::$Variant(inner) = $this {
            return ::std::error::Error::source(inner);
        }
    };
    (@source $this:ident, $Variant:ident, ($($message:tt)+), $role:ident; $Inner:ty) => {
        if let Self::$Variant(inner) = $this {
            return Some(inner);
        }
    };
    (@source $this:ident, $Variant:ident, ($($message:tt)+), { source $($field:ident)* }) => {
        if let Self::$Variant { source: inner, .. } = $this {
            return Some(inner);
        }
    };
    (@source $this:ident, $Variant:ident, ($($message:tt)+), { $other:ident $($field:ident)+ }) => {
        $crate::error_enum!(@source $this, $Variant, ($($message)+), { $($field)+ });
    };
    (@source $($without_one:tt)*) => {};

    (@from from; $Error:ident, $Variant:ident, $Inner:ty) => {
        impl ::std::convert::From<$Inner> for $Error {
            fn from(inner: $Inner) -> Self {
                Self::$Variant(inner)
            }
        }
    };
    (@from $($other:ident)?; $Error:ident, $Variant:ident, $Inner:ty) => {};
}

/// A path as a text shows it.
#[doc(hidden)]
pub trait ShownAsPath {
    /// Returns the path.
    fn shown(&self) -> Display<'_>;
}

impl ShownAsPath for PathBuf {
    fn shown(&self) -> Display<'_> {
        self.display()
    }
}

/// Any other field as it is. A reference has this trait and not its target, so that a call of `shown` finds
/// the other trait first.
#[doc(hidden)]
pub trait ShownAsIs {
    /// Returns the field.
    fn shown(&self) -> &Self {
        self
    }
}

impl<T> ShownAsIs for &T {}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io;
    use std::path::PathBuf;

    error_enum! {
        /// An error with all that the macro knows.
        #[derive(Debug)]
        enum Sample {
            /// A path, a number in hexadecimal, a text with quotes, a field that is not shown.
            #[error("{path}: {what:?} at {offset:#x}; {} more", 2 + 1)]
            Fields {
                /// The path.
                path: PathBuf,
                /// The text.
                what: &'static str,
                /// The number.
                offset: u64,
                /// Not shown.
                _hidden: bool,
            },
            /// Without a field.
            #[error("nothing")]
            Empty,
            /// With a source by its name.
            #[error("{what}: {source}")]
            Named {
                /// What was tried.
                what: &'static str,
                /// Why it failed.
                source: io::Error,
            },
            /// What is inside, and its source.
            #[error(transparent)]
            Inside(#[from] Inner),
            /// With a source that is shown.
            #[error("the disk: {0}")]
            Shown(#[source] io::Error),
            /// With a field that is no source.
            #[error("no function {0}")]
            Plain(&'static str),
        }
    }

    error_enum! {
        /// An error within another.
        #[derive(Debug)]
        enum Inner {
            /// Its source.
            #[error("inner: {0}")]
            Why(#[from] io::Error),
        }
    }

    fn source(error: &Sample) -> Option<String> {
        error.source().map(ToString::to_string)
    }

    #[test]
    fn texts_and_sources_are_those_that_are_declared() {
        let offset = 16;
        let fields =
            Sample::Fields { path: PathBuf::from("a/b"), what: "x", offset, _hidden: true };
        assert_eq!(fields.to_string(), "a/b: \"x\" at 0x10; 3 more");
        assert_eq!(source(&fields), None);
        assert_eq!((Sample::Empty.to_string(), source(&Sample::Empty)), ("nothing".into(), None));
        let named = Sample::Named { what: "read", source: io::Error::other("gone") };
        assert_eq!((named.to_string(), source(&named)), ("read: gone".into(), Some("gone".into())));
        let inside = Sample::from(Inner::from(io::Error::other("far")));
        assert_eq!(
            (inside.to_string(), source(&inside)),
            ("inner: far".into(), Some("far".into()))
        );
        let shown = Sample::Shown(io::Error::other("cut"));
        let text = "the disk: cut".to_owned();
        assert_eq!((shown.to_string(), source(&shown)), (text, Some("cut".into())));
        let plain = Sample::Plain("f");
        assert_eq!((plain.to_string(), source(&plain)), ("no function f".into(), None));
    }
}
