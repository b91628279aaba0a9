//! What is derived for: a struct or an enum, its attributes, the numbers of its variants.

use std::collections::BTreeMap;

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Generics, Lit, LitStr, Path, Type};

const OWNED: &str = "what is stored owns its data: keep `String` for `&str`, `Vec<u8>` for `&[u8]`";

/// A struct or an enum.
pub(crate) struct Item {
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    /// Where `pmindex` is.
    pub(crate) pmindex: Path,
    pub(crate) kind: Kind,
}

/// Which of the two.
pub(crate) enum Kind {
    Struct(Fields),
    Enum {
        /// Kept as a byte string whatever the variants.
        bytes: bool,
        /// In the order of their numbers; at least one.
        variants: Vec<Variant>,
    },
}

/// A variant of an enum.
pub(crate) struct Variant {
    pub(crate) ident: Ident,
    /// In the enum's recorded name.
    pub(crate) name: String,
    /// Its discriminant.
    pub(crate) number: u16,
    /// Not in the enum's recorded name.
    pub(crate) added: bool,
    pub(crate) fields: Fields,
}

impl Item {
    pub(crate) fn new(input: DeriveInput) -> syn::Result<Self> {
        if let Some(lifetime) = input.generics.lifetimes().next() {
            return Err(Error::new(lifetime.span(), OWNED));
        }
        let (mut pmindex, mut bytes) = (syn::parse_quote!(::pmindex), None);
        each_attribute(&input.attrs, |meta| {
            if meta.path.is_ident("crate") {
                pmindex = meta.value()?.call(Path::parse_mod_style)?;
                Ok(())
            } else if meta.path.is_ident("bytes") {
                bytes = Some(meta.path.span());
                Ok(())
            } else {
                Err(meta.error("a type has `bytes` (of an enum) and `crate = path`"))
            }
        })?;
        let kind = match (input.data, bytes) {
            (Data::Struct(_), Some(at)) => {
                return Err(Error::new(
                    at,
                    "`bytes` is for enums: a struct's fields say how it is kept",
                ));
            }
            (Data::Struct(data), None) => {
                each_field(&data.fields)?;
                Kind::Struct(data.fields)
            }
            (Data::Enum(data), _) if data.variants.is_empty() => {
                return Err(Error::new(
                    input.ident.span(),
                    "an enum without variants has no values",
                ));
            }
            (Data::Enum(data), _) => {
                Kind::Enum { bytes: bytes.is_some(), variants: numbered(data.variants)? }
            }
            (Data::Union(data), _) => {
                let what =
                    "a union cannot be stored: it does not know which of its fields it holds";
                return Err(Error::new(data.union_token.span(), what));
            }
        };
        Ok(Self { ident: input.ident, generics: input.generics, pmindex, kind })
    }

    /// Returns the types of all fields.
    pub(crate) fn types(&self) -> Vec<&Type> {
        let fields: Vec<&Fields> = match &self.kind {
            Kind::Struct(fields) => vec![fields],
            Kind::Enum { variants, .. } => variants.iter().map(|variant| &variant.fields).collect(),
        };
        fields.into_iter().flatten().map(|field| &field.ty).collect()
    }
}

/// Returns the variants in the order of their discriminants, which are those that Rust gives them.
fn numbered(variants: impl IntoIterator<Item = syn::Variant>) -> syn::Result<Vec<Variant>> {
    let mut sorted = BTreeMap::new();
    let mut next = Some(0);
    for variant in variants {
        each_field(&variant.fields)?;
        let number = match &variant.discriminant {
            Some((_, expression)) => discriminant(expression)?,
            None => next.ok_or_else(|| Error::new(variant.span(), NUMBERS))?,
        };
        next = number.checked_add(1);
        let (mut name, mut added) = (variant.ident.unraw().to_string(), false);
        each_attribute(&variant.attrs, |meta| {
            if meta.path.is_ident("added") {
                added = true;
                Ok(())
            } else if meta.path.is_ident("name") {
                name = meta.value()?.parse::<LitStr>()?.value();
                Ok(())
            } else {
                Err(meta.error("a variant has `added` and `name = \"..\"`"))
            }
        })?;
        // Two of one number are an error of the compiler's.
        let ident = variant.ident;
        sorted.insert(number, Variant { ident, name, number, added, fields: variant.fields });
    }
    Ok(sorted.into_values().collect())
}

const NUMBERS: &str =
    "variants are stored by their discriminants, which are numbers from 0 to 65535";

fn discriminant(expression: &Expr) -> syn::Result<u16> {
    if let Expr::Lit(literal) = expression
        && let Lit::Int(number) = &literal.lit
        && let Ok(number) = number.base10_parse()
    {
        return Ok(number);
    }
    Err(Error::new(expression.span(), NUMBERS))
}

fn each_attribute(
    attributes: &[Attribute],
    mut each: impl FnMut(ParseNestedMeta) -> syn::Result<()>,
) -> syn::Result<()> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("storable"))
        .try_for_each(|attribute| attribute.parse_nested_meta(&mut each))
}

/// Refuses fields that the compiler would refuse less clearly.
fn each_field(fields: &Fields) -> syn::Result<()> {
    for field in fields {
        if let Type::Reference(reference) = &field.ty {
            return Err(Error::new(reference.span(), OWNED));
        }
        each_attribute(&field.attrs, |meta| Err(meta.error("a field has no attributes")))?;
    }
    Ok(())
}
