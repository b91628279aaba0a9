//! The guide, with a module for each chapter, from the choice of an index to the recovery of a damaged
//! file.
//!
//! The same text is a book (`docs/book` in the repository), which also explains in pictures how pmindex
//! works.
//!
//! | question | chapter |
//! | --- | --- |
//! | Which part of the library do I use, and what should a write wait for? | [`choosing`] |
//! | Which index do I use? | [`which_index`] |
//! | Which types can keys and values have, and how can a type change later? | [`modelling`] |
//! | How do threads share a map, and how do several records change together? | [`transactions`] |
//! | How do I run a service on it: opening, metrics, space, backups? | [`operating`] |
//! | What happens after a crash, and what do I do if a file is damaged? | [`recovering`] |
//! | How do I keep a block cache warm across a deploy? | [`caches`] |
//! | How do I use it from C and C++? | [`c`] |
//! | How do I use it from Python? | [`python`] |
#![allow(clippy::doc_markdown, reason = "chapters are pages of a book as well")]

/// Defines the targets of the chapters' links on these pages. In the book, definitions at the ends of the
/// chapters link to files; of two definitions the first applies.
macro_rules! links {
    () => {
        "[Transactions]: crate::guide::transactions\n\
         [Which index]: crate::guide::which_index\n\
         [Caches]: crate::guide::caches\n\
         [From C]: crate::guide::c\n\
         [From Python]: crate::guide::python\n\n"
    };
}

#[doc = links!()]
#[doc = include_str!("../docs/book/src/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../docs/book/src/which-index.md")]
pub mod which_index {}

#[doc = include_str!("../docs/book/src/modelling.md")]
pub mod modelling {}

#[doc = include_str!("../docs/book/src/transactions.md")]
pub mod transactions {}

#[doc = include_str!("../docs/book/src/operating.md")]
pub mod operating {}

#[doc = links!()]
#[doc = include_str!("../docs/book/src/recovering.md")]
pub mod recovering {}

#[doc = include_str!("../docs/book/src/caches.md")]
pub mod caches {}

#[doc = include_str!("../docs/book/src/c.md")]
pub mod c {}

#[doc = include_str!("../docs/book/src/python.md")]
pub mod python {}

/// The book's first page, whose example is a test too.
#[cfg(doctest)]
#[doc = include_str!("../docs/book/src/introduction.md")]
pub struct Introduction;
