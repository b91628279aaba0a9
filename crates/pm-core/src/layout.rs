//! Declared layouts: structs of words, checked while they compile.
//!
//! Safe crates cannot implement [`PmType`](crate::PmType); [`pm_struct!`](crate::pm_struct) does it
//! for them. `forbid(unsafe_code)` does not look into the expansion of another crate's macro, so the macro
//! itself guarantees:
//!
//! * the one `unsafe impl` it emits has a `PmType` bound on every field, so a field that is not
//!   words does not compile;
//! * no token of the caller is inside an `unsafe` block or function, nor where it could become part of
//!   another impl: the caller passes names, types, literals and documentation, each parsed as such, and the
//!   body of the impl is a constant of assertions;
//! * attributes other than documentation are not accepted, so no `repr` or `cfg` slips in.

/// Declares on-media structs: `repr(C)`, words only, with a checked layout.
///
/// ```
/// use pmindex_core::{pm_struct, PmCell, PmU64, PPtr};
///
/// pm_struct! {
///     /// A node of a linked list.
///     ///
///     /// |  0    |  8   |  16      |
///     /// | next  | key  | value    |
///     #[align(8)]
///     pub struct Node: size 24 {
///         /// The next node, or null.
///         pub next @ 0: PmCell<PPtr<Node>>,
///         /// The key.
///         pub key @ 8: PmU64,
///         /// The value.
///         pub value @ 16: PmU64,
///     }
///
///     /// A leaf of `N` records; small in tests, so that splits are common.
///     #[align(64)]
///     pub struct Leaf<const N: usize = 28> {
///         /// Which records there are.
///         pub bitmap @ 0: PmU64,
///         /// Their fingerprints.
///         pub fingerprints @ 8: [PmU64; 7],
///         /// The records.
///         pub records @ 64: [[PmU64; 2]; N],
///     }
///
///     /// A value in two versions.
///     #[align(8)]
///     pub struct Pair<T: PmType> {
///         /// The two.
///         pub versions: [T; 2],
///     }
/// }
/// ```
///
/// * `#[align(A)]` is the alignment, `size S` (optional, not for generic structs) the size. A struct with a
///   declared size has no padding, not even at its end: reserved words are fields. A struct without one may
///   have padding at its end, which is no word of it. A struct that contains such a struct, or an array of
///   them, has padding between its words: code that flushes it as a whole, or asks for its words, does not
///   compile.
/// * An object that a pointer leads to has an alignment of at most 4096, that of a pool's first byte.
/// * `@ O` (optional) behind a field's name is its offset. Without it the field still follows the
///   one before it directly: padding between fields does not compile.
/// * Generic structs have either constants or types as parameters; their layout is checked at compile time,
///   when a pointer to one is resolved.
///
/// Every field must itself be a [`PmType`](crate::PmType); anything else (a `bool`, a reference, a
/// plain integer) does not compile:
///
/// ```compile_fail
/// pmindex_core::pm_struct! {
///     #[align(8)]
///     pub struct Bad: size 8 { flag: bool, }
/// }
/// ```
#[macro_export]
macro_rules! pm_struct {
    () => {};
    // Not generic, with or without a size.
    (
        $(#[doc = $doc:expr])*
        #[align($align:literal)]
        $vis:vis struct $name:ident $(: size $size:literal)? { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::pm_struct! { @struct
            [$(#[doc = $doc])*] [$align] [$vis] [$name] [] [] [$($size)?] { $($fields)* }
        }
        const _: () = <$name as $crate::PmType>::CHECKED;
        $crate::pm_struct! { $($rest)* }
    };
    // Constants as parameters.
    (
        $(#[doc = $doc:expr])*
        #[align($align:literal)]
        $vis:vis struct $name:ident
            <$(const $param:ident : usize $(= $default:literal)?),+ $(,)?> { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::pm_struct! { @struct
            [$(#[doc = $doc])*] [$align] [$vis] [$name]
            [$($param $(= $default)?),+] [] [] { $($fields)* }
        }
        $crate::pm_struct! { $($rest)* }
    };
    // Types as parameters.
    (
        $(#[doc = $doc:expr])*
        #[align($align:literal)]
        $vis:vis struct $name:ident <$($param:ident : PmType),+ $(,)?> { $($fields:tt)* }
        $($rest:tt)*
    ) => {
        $crate::pm_struct! { @struct
            [$(#[doc = $doc])*] [$align] [$vis] [$name]
            [] [$($param),+] [] { $($fields)* }
        }
        $crate::pm_struct! { $($rest)* }
    };
    (@struct
        [$(#[doc = $doc:expr])*] [$align:literal] [$vis:vis] [$name:ident]
        [$($constant:ident $(= $default:literal)?),*] [$($type:ident),*] [$($size:literal)?] {
            $( $(#[doc = $fdoc:expr])*
               $fvis:vis $field:ident $(@ $offset:literal)? : $fty:ty ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[repr(C, align($align))]
        #[derive($crate::private::Debug)]
        $vis struct $name<
            $($type: $crate::PmType,)* $(const $constant: usize $(= $default)?,)*
        > {
            $( $(#[doc = $fdoc])* $fvis $field: $fty, )*
        }
        // SAFETY: `repr(C)`, and nothing but words in every field, which the bounds check.
        #[diagnostic::do_not_recommend]
        unsafe impl<$($type: $crate::PmType,)* $(const $constant: usize,)*>
            $crate::PmType for $name<$($type,)* $($constant,)*>
        where $( $fty: $crate::PmType ),*
        {
            const CHECKED: () = {
                let mut end = 0;
                $(
                    let () = <$fty as $crate::PmType>::CHECKED;
                    $crate::private::assert!(
                        $crate::private::offset_of!(Self, $field) == end,
                        $crate::private::concat!(
                            "padding before `", $crate::private::stringify!($field), "`"
                        )
                    );
                    $( $crate::private::assert!(
                        end == $offset,
                        $crate::private::concat!(
                            "`", $crate::private::stringify!($field),
                            "` is not at its declared offset"
                        )
                    ); )?
                    end += $crate::private::size_of::<$fty>();
                )*
                $(
                    $crate::private::assert!(
                        $crate::private::size_of::<Self>() == $size,
                        "the size differs from the declared one"
                    );
                    $crate::private::assert!(
                        end == $size, "padding at the end: declare it as reserved words"
                    );
                )?
                let _ = end;
            };
            const WORDS: usize = 0 $(+ <$fty as $crate::PmType>::WORDS)*;
            const TOGETHER: bool = true $(
                && $crate::private::size_of::<$fty>() == 8 * <$fty as $crate::PmType>::WORDS
            )*;
        }
    };
}
