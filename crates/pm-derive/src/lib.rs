//! Derives `Storable` and `Key` of `pmindex` for structs and enums. Programs use them through `pmindex`,
//! feature `derive`.
//!
//! The encodings, and which changes of a type keep old data readable, are documented at
//! `pmindex::Storable`. The generated code calls `pmindex::parts`, which knows the encodings; only the
//! fields, the variants and their numbers are known here.
#![forbid(unsafe_code)]

mod expand;
mod item;

use proc_macro::TokenStream;

/// Makes a struct or an enum storable. See `pmindex::Storable` for its encoding.
///
/// The type derives `Clone` and `Debug` too, and `PartialEq` to be a value. Fields are of storable
/// types; type parameters get the bound `Storable`.
///
/// Attributes of the type:
/// - `#[storable(bytes)]` keeps an enum as a byte string whatever its variants, so that variants of any
///   size can be added;
/// - `#[storable(crate = path)]` says where `pmindex` is, if not at `::pmindex`.
///
/// Attributes of a variant:
/// - `#[storable(added)]`: the variant came after indexes of this enum were created; they still open;
/// - `#[storable(name = "Old")]`: the variant was called so when they were created.
#[proc_macro_derive(Storable, attributes(storable))]
pub fn storable(input: TokenStream) -> TokenStream {
    derived(input, expand::storable)
}

/// Makes a storable type a key, if all of its fields are keys. It derives `Ord` and what `Ord` needs.
///
/// `Ord` has to be derived as well: one written by hand can differ from the order of the encodings, and
/// then records are not found. Type parameters get the bound `Key`.
#[proc_macro_derive(Key, attributes(storable))]
pub fn key(input: TokenStream) -> TokenStream {
    derived(input, expand::key)
}

fn derived(input: TokenStream, expand: fn(&item::Item) -> proc_macro2::TokenStream) -> TokenStream {
    let item = syn::parse(input).and_then(item::Item::new);
    item.as_ref().map_or_else(syn::Error::to_compile_error, expand).into()
}
