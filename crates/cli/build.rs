//! Packs the word list of `quickstart`: in the program, a word in order is what it shares with the one
//! before it and the rest, a third of the file.
//!
//! A byte has the length shared (up to 15) in its high half and that of the rest in its low half; 15 there
//! means that a byte with the length of the rest follows. Then comes the rest.

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
