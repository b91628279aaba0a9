//! Safe code cannot claim that a type consists of words.
#![forbid(unsafe_code)]

struct Mine(bool);

unsafe impl pmindex_core::PmType for Mine {}

fn main() {
    let _ = Mine(true);
}
