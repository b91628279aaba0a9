//! The generated code. Its variables begin with `__`: a constant of the caller's that had the name of one
//! would be taken for it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Fields, Member, Path, Type, WherePredicate};

use crate::item::{Item, Kind, Variant};

/// `impl Storable`.
pub(crate) fn storable(item: &Item) -> TokenStream {
    let pmindex = &item.pmindex;
    let body = match &item.kind {
        Kind::Struct(fields) => of_struct(pmindex, fields),
        Kind::Enum { bytes, variants } => of_enum(pmindex, *bytes, variants),
    };
    implemented(
        item,
        &format_ident!("Storable"),
        &quote! {
            type Ref = Self;
            #[inline(always)]
            fn borrowed(&self) -> &Self {
                self
            }
            #body
        },
    )
}

/// `impl Key`.
pub(crate) fn key(item: &Item) -> TokenStream {
    implemented(item, &format_ident!("Key"), &TokenStream::new())
}

/// Returns the implementation of a trait; the type parameters and the fields have it as their bound.
///
/// A bound for each field makes one that is not met one error, which points at the field.
fn implemented(item: &Item, name: &Ident, body: &TokenStream) -> TokenStream {
    let Item { ident, pmindex, generics, .. } = item;
    let mut bounded = generics.clone();
    let parameters: Vec<Ident> = generics.type_params().map(|p| p.ident.clone()).collect();
    let bounds = bounded.make_where_clause();
    let mut bound = |at: Span, bounded: TokenStream| {
        let named = quote!(#pmindex::#name).into_iter().map(|mut token| {
            token.set_span(at);
            token
        });
        let named: TokenStream = named.collect();
        let predicate: WherePredicate = syn::parse_quote_spanned!(at=> #bounded: #named);
        bounds.predicates.push(predicate);
    };
    for parameter in &parameters {
        bound(parameter.span(), quote!(#parameter));
    }
    for field in item.types() {
        bound(field.span(), quote!(#field));
    }
    let (of, _, _) = generics.split_for_impl();
    let (_, arguments, bounds) = bounded.split_for_impl();
    quote! {
        #[automatically_derived]
        #[allow(unused_mut, unused_variables, trivial_bounds, clippy::all, clippy::pedantic,
                reason = "generated code")]
        impl #of #pmindex::#name for #ident #arguments #bounds {
            #body
        }
    }
}

fn of_struct(pmindex: &Path, fields: &Fields) -> TokenStream {
    let parts = Parts::of(pmindex, fields);
    let Parts { pattern, shapes, names, put_words, take_words, put_bytes, take_bytes } = parts;
    quote! {
        const SHAPE: #pmindex::Shape = #pmindex::parts::shape(#shapes);
        fn type_name() -> ::std::string::String {
            #pmindex::parts::struct_name(#names)
        }
        #[inline]
        fn to_words(__value: &Self) -> #pmindex::Words {
            let Self #pattern = __value;
            let (mut __words, mut __at) = (#pmindex::Words::default(), 0);
            #put_words
            __words
        }
        #[inline]
        fn from_words(__words: &[u64]) -> Self {
            let mut __rest = __words;
            #take_words
            Self #pattern
        }
        fn to_bytes(__value: &Self) -> ::std::borrow::Cow<'_, [u8]> {
            let Self #pattern = __value;
            #pmindex::parts::bytes(|__bytes| { #put_bytes })
        }
        fn from_bytes(__bytes: &[u8]) -> ::std::option::Option<Self> {
            let mut __rest = __bytes;
            #take_bytes
            #pmindex::parts::whole(__rest, Self #pattern)
        }
    }
}

fn of_enum(pmindex: &Path, as_bytes: bool, variants: &[Variant]) -> TokenStream {
    let (mut shapes, mut names) = (Vec::new(), Vec::new());
    let (mut to_words, mut from_words) = (Vec::new(), Vec::new());
    let (mut to_bytes, mut from_bytes) = (Vec::new(), Vec::new());
    for variant in variants {
        let Variant { ident, name, number, added, fields } = variant;
        let Parts {
            pattern,
            shapes: of_parts,
            names: types,
            put_words,
            take_words,
            put_bytes,
            take_bytes,
        } = Parts::of(pmindex, fields);
        if !added {
            names.push(quote!((#number, #name, #types)));
        }
        shapes.push(of_parts);
        to_words.push(quote! {
            Self::#ident #pattern => {
                #pmindex::parts::put_number(#number, &mut __words, &mut __at);
                #put_words
            }
        });
        from_words.push((*number, quote! {{ #take_words Self::#ident #pattern }}));
        to_bytes.push(quote! {
            Self::#ident #pattern => {
                #pmindex::parts::put_number_bytes(#number, __bytes);
                #put_bytes
            }
        });
        from_bytes.push(quote! { #number => { #take_bytes Self::#ident #pattern } });
    }
    // Every pattern of words is a value: the number of no variant is taken for the greatest.
    let (_, greatest) = from_words.pop().unwrap_or_default();
    let numbers = from_words.iter().map(|(number, _)| u64::from(*number));
    let others = from_words.iter().map(|(_, other)| other);
    quote! {
        const SHAPE: #pmindex::Shape = #pmindex::parts::choice(#as_bytes, &[#(#shapes),*]);
        fn type_name() -> ::std::string::String {
            #pmindex::parts::enum_name(Self::SHAPE, &[#(#names),*])
        }
        #[inline]
        fn to_words(__value: &Self) -> #pmindex::Words {
            let (mut __words, mut __at) = (#pmindex::Words::default(), 0);
            match __value { #(#to_words)* }
            __words
        }
        #[inline]
        fn from_words(__words: &[u64]) -> Self {
            let (__number, mut __rest) = #pmindex::parts::take_number(__words);
            match __number {
                #(#numbers => #others)*
                _ => #greatest
            }
        }
        fn to_bytes(__value: &Self) -> ::std::borrow::Cow<'_, [u8]> {
            #pmindex::parts::bytes(|__bytes| match __value { #(#to_bytes)* })
        }
        fn from_bytes(__bytes: &[u8]) -> ::std::option::Option<Self> {
            let (__number, mut __rest) = #pmindex::parts::take_number_bytes(__bytes)?;
            let __value = match __number {
                #(#from_bytes)*
                _ => return ::std::option::Option::None,
            };
            #pmindex::parts::whole(__rest, __value)
        }
    }
}

/// What is generated of the fields of a struct or variant.
struct Parts {
    /// Binds the fields, or makes the value of what is bound: `{ x: __part_0, y: __part_1 }`.
    pattern: TokenStream,
    /// `&[Shape]`.
    shapes: TokenStream,
    /// `&[String]`.
    names: TokenStream,
    /// To `__words` at `__at`.
    put_words: TokenStream,
    /// From `__rest`.
    take_words: TokenStream,
    /// To `__bytes`.
    put_bytes: TokenStream,
    /// From `__rest`; returns `None` if there is no part.
    take_bytes: TokenStream,
}

impl Parts {
    fn of(pmindex: &Path, fields: &Fields) -> Self {
        let members: Vec<Member> = fields.members().collect();
        let parts: Vec<Ident> = (0..members.len()).map(|i| format_ident!("__part_{i}")).collect();
        let types: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
        let associated = |name: TokenStream| -> Vec<TokenStream> {
            let one = |ty: &&Type| quote_spanned!(ty.span()=> <#ty as #pmindex::Storable>::#name);
            types.iter().map(one).collect()
        };
        let (shapes, names) = (associated(quote!(SHAPE)), associated(quote!(type_name())));
        Self {
            pattern: quote!({ #(#members: #parts),* }),
            shapes: quote!(&[#(#shapes),*]),
            names: quote!(&[#(#names),*]),
            put_words: quote! {
                #(#pmindex::parts::put_words::<#types>(#parts, &mut __words, &mut __at);)*
            },
            take_words: quote! {
                #(let #parts = #pmindex::parts::take_words::<#types>(&mut __rest);)*
            },
            put_bytes: quote! {
                #(#pmindex::parts::put_bytes::<#types>(#parts, __bytes);)*
            },
            take_bytes: quote! {
                #(let #parts = #pmindex::parts::take_bytes::<#types>(&mut __rest)?;)*
            },
        }
    }
}
