//! A program that compiles: with it the refused ones are built, not only checked. (Padding of a generic
//! struct shows when its code is generated.)
#![forbid(unsafe_code)]

use pmindex_compile::fields;

fn main() {
    let pool = pmindex_core::Pool::volatile(1 << 20).expect("memory");
    assert!(fields(&pool).is_ok());
}
