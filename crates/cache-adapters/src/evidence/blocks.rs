//! Figure 3.8: the number of accesses to each block.

use std::collections::HashMap;

use crate::common::{Fault, Places, Random, Sheet, Skew, chapter, texts};

pub(crate) const RECORDS_IN_BLOCK: u64 = 32;
pub(crate) const BLOCKS_IN_TABLE: u64 = 512;

pub(crate) fn page(_: &Places, smaller: u64) -> Result<String, Fault> {
    let (records, gets) = (1_000_000 / smaller, 2_000_000 / smaller);
    let mut sheet =
        Sheet::new(&texts(["top 1 %", "top 10 %", "top 20 %", "top 50 %", "index blocks' share"]));
    for skew in [Skew::Uniform, Skew::EightyTwenty] {
        let (mut counts, mut random) = (HashMap::<(bool, u64), u64>::new(), Random::new(8));
        for _ in 0..gets {
            let block = skew.next(&mut random, records) / RECORDS_IN_BLOCK;
            *counts.entry((true, block / BLOCKS_IN_TABLE)).or_default() += 1;
            *counts.entry((false, block)).or_default() += 1;
        }
        let index: u64 = counts.iter().filter(|((is_index, _), _)| *is_index).map(|(_, n)| n).sum();
        let mut all: Vec<u64> = counts.into_values().collect();
        all.sort_unstable_by(|one, two| two.cmp(one));
        let share = |percent: usize| {
            let top = (all.len() * percent).div_ceil(100);
            all[..top].iter().sum::<u64>() as f64 * 50.0 / gets as f64
        };
        let mut cells: Vec<f64> = [1, 10, 20, 50].map(share).to_vec();
        cells.push(index as f64 * 50.0 / gets as f64);
        sheet.row(&format!("{skew:?}"), &texts(cells.iter().map(|cell| format!("{cell:.1} %"))));
    }
    Ok(chapter(
        "Figure 3.8: how accesses are spread over blocks",
        "each get asks for an index block and a data block, so even uniform keys give skewed accesses.",
        sheet,
        "**Here** as there: half of all accesses are those of the index blocks, a five-hundredth of all blocks. \
         The hot fifth of the records lies together, as a hot range of keys does.",
    ))
}
