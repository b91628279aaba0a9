//! Packs the word list of `quickstart` into a third of its size. The words are sorted; each is stored as
//! the number of bytes that it shares with the word before it, and the bytes that differ.
//!
//! A byte has the number of shared bytes (up to 15) in its high half, and the length of the rest in its low
//! half. If the low half is 15, another byte with the length follows. Then come the bytes of the rest.

use std::path::Path;
use std::{env, fs};

fn main() {
    let words = Path::new("data/words.txt");
    println!("cargo:rerun-if-changed={}", words.display());
    let text = fs::read(words).expect("the word list");
    let mut words: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    words.retain(|word| !word.is_empty());
    words.sort_unstable();
    words.dedup();
    let mut packed = Vec::new();
    let mut last: &[u8] = &[];
    for word in words {
        let shared = word.iter().zip(last).take(15).take_while(|(a, b)| a == b).count();
        let rest = &word[shared..];
        let len = u8::try_from(rest.len()).expect("words are short");
        packed.push((shared as u8) << 4 | len.min(15));
        if len >= 15 {
            packed.push(len);
        }
        packed.extend_from_slice(rest);
        last = word;
    }
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join("words.bin"), packed).expect("a place for it");
}
