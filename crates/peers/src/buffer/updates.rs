//! Figures 4.5 and 4.8, tables 4.3 and 4.4: what a crash may corrupt, and the update of a page.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use pmindex_buffer::Sums;
use pmindex_buffer::page::Layout;
use pmindex_buffer::runs::Runs;
use pmindex_core::{Medium, Pool};
use pmindex_pibench::KeySpace;

use crate::common::{Fault, Scale, Table};

/// Lines of 64 bytes in a cache of 40 MB, as the thesis counts.
const CACHE_LINES: f64 = 655_360.0;

/// Figure 4.5.
pub(crate) fn corruptible() -> String {
    let mut table = Table::new(&[
        "pool",
        "equation 4.1, as printed",
        "with its example's arithmetic",
        "with the lines of a page",
    ]);
    for gigabytes in [1_u64, 16, 64, 128, 512, 1024] {
        let bytes = (gigabytes << 30) as f64;
        let shares = [
            CACHE_LINES * 64.0 / bytes,
            (CACHE_LINES * 4096.0 / bytes).min(1.0),
            (CACHE_LINES / 64.0 * 4096.0 / bytes).min(1.0),
        ];
        table.row(
            &format!("{gigabytes} GiB"),
            shares.map(|share| format!("{:.3} %", 100.0 * share)),
        );
    }
    format!(
        "\n## Figure 4.5: pages that a crash may corrupt, at worst\n\n**The thesis**: the ratio of a CPU's caches \
         (40 MB) to the pool, equation 4.1; its example has 2 % at 128 GB. **Computed**, not measured:\n\n{}\n\
         The printed equation lacks a factor: a line can corrupt a whole page, so the example's 2 % is 64 times \
         what the equation gives. The last column is the other end, all lines of a page together in the caches. \
         Of a pool in a mapped file without DAX there is no bound: the kernel writes back any of its pages, whole \
         or torn, at any time. The checksums do not depend on the bound.\n",
        table.text()
    )
}

/// A method of updating a page.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    Bare,
    Copy,
    Sums(u32),
    Difference,
}

const METHODS: [Method; 5] =
    [Method::Bare, Method::Copy, Method::Sums(1), Method::Sums(8), Method::Difference];

/// Table 4.3: copy to DRAM, checksum, partitioned checksum, for each page size and update size.
const THESIS: [[f64; 3]; 12] = [
    [2.7, 4.0, 1.3],
    [2.5, 3.7, 1.3],
    [2.0, 4.0, 1.6],
    [4.5, 6.5, 2.0],
    [4.2, 5.7, 1.9],
    [3.3, 5.5, 1.7],
    [8.3, 10.9, 2.6],
    [7.8, 9.5, 2.4],
    [6.0, 8.4, 2.0],
    [31.3, 36.8, 4.9],
    [28.4, 33.4, 4.1],
    [21.8, 26.6, 4.4],
];

/// Figure 4.8 and tables 4.3 and 4.4.
pub(crate) fn updates(scale: &Scale) -> Result<String, Fault> {
    let mut times = Table::new(&[
        "page, update",
        "bare",
        "copy to DRAM",
        "one checksum",
        "8 partitions",
        "sum by differences",
    ]);
    let mut factors = Table::new(&[
        "page, update",
        "copy to DRAM: thesis",
        "here",
        "one checksum: thesis",
        "here",
        "8 partitions: thesis",
        "here",
        "by differences: here",
    ]);
    let mut thesis = THESIS.iter();
    for page_bytes in [4096, 8192, 16_384, 65_536] {
        for bytes in [8, 64, 512] {
            let mut taken = Vec::new();
            for method in METHODS {
                taken.push(time(scale, page_bytes, bytes, method)?);
            }
            let name = format!("{} KiB, {bytes} B", page_bytes / 1024);
            times.row(&name, taken.iter().map(|time| format!("{time:.0}")));
            let claimed = thesis.next().unwrap_or(&[0.0; 3]);
            let mut cells = Vec::new();
            for (at, claim) in claimed.iter().enumerate() {
                cells.push(format!("{claim:.1}"));
                cells.push(format!("{:.1}", taken[at + 1] / taken[0]));
            }
            cells.push(format!("{:.1}", taken[4] / taken[0]));
            factors.row(&name, cells);
        }
    }
    let mut text = format!(
        "\n## Figure 4.8 and table 4.3: an update of a page\n\nOne thread, random places of random pages, {} MiB of \
         pages. Nanoseconds of an update:\n\n{}\nFactors of the bare update (table 4.3):\n\n{}",
        scale.pages >> 20,
        times.text(),
        factors.text()
    );
    text += "\n**The thesis**: a whole checksum costs more than a copy, and 8 partitions cost 1.3 to 4.9 times the \
             bare update. **Here** a whole checksum costs more than a copy too, and 8 partitions pay off \
             from 16 KiB on. The sum by differences, which the thesis has not, costs least: it reads the old words of the update and nothing else, so it does not grow with the page. It also \
             never blesses rot, which recomputing a partition does. The factors differ because the bare update \
             here is a miss of DRAM and not of Optane, and because the sum is a multiplicative one of 64 bits, \
             computed word by word, in place of a CRC by instruction. (The thesis calls its CRC one of 64 bits; \
             SSE 4.2 has CRC-32C only, whose collisions would be 2³² times as frequent.)\n";
    let _ = write!(text, "\n## Table 4.4: what sums cost in space\n\n{}", space());
    Ok(text)
}

fn space() -> String {
    let mut table = Table::new(&[
        "page",
        "thesis: 32 sums",
        "here: 32 partitions and the header",
        "bytes of a partition",
        "here: sum by differences, with the header",
    ]);
    for (bytes, claim) in [(4096, "6.2 %"), (8192, "3.1 %"), (16_384, "1.5 %"), (65_536, "0.3 %")] {
        let layout = |sums| Layout::new(bytes / 8, sums, 1).user_words();
        let (parts, one) = (layout(Sums::Partitioned(32)), layout(Sums::Incremental));
        let share =
            |words: usize| format!("{:.2} %", 100.0 * (1.0 - 8.0 * words as f64 / bytes as f64));
        table.row(
            &format!("{} KiB", bytes / 1024),
            [claim.into(), share(parts), (8 * parts.div_ceil(32)).to_string(), share(one)],
        );
    }
    table.text()
}

/// Returns the nanoseconds of an update of this number of bytes of a random page.
fn time(scale: &Scale, page_bytes: usize, bytes: usize, method: Method) -> Result<f64, Fault> {
    let pool = Pool::emulated(scale.pages + scale.pages / 4)?;
    let (pm, words) = (pool.pm(), page_bytes / 8);
    let sums = match method {
        Method::Sums(1) => Sums::Incremental, // replaced below: one sum over all, computed anew
        Method::Sums(count) => Sums::Partitioned(count),
        _ => Sums::Incremental,
    };
    let layout = Layout::new(words, sums, 1);
    let mut image = vec![0; words];
    layout.seal(&mut image, 0, 1);
    // Free memory of a temporary pool.
    let first = scale.pages / 8;
    let mut pages = Vec::new();
    for at in (first..first + scale.pages).step_by(page_bytes) {
        let cells = pool.words(at as u64, words)?;
        pm.write_words(cells, &image);
        pages.push(cells);
    }
    let (mut random, mut copy) = (KeySpace::new(7), vec![0; words]);
    let mut runs = vec![0; 1 + bytes / 8];
    let started = Instant::now();
    for lsn in 0..scale.updates {
        let page = pages[random.below(pages.len() as u64) as usize];
        let at = random.below((layout.user_words() - bytes / 8) as u64);
        runs[0] = at | ((bytes / 8) as u64) << 32;
        runs[1] = lsn.into();
        let first = 4 + at as usize;
        match method {
            Method::Bare => pm.write_words(&page[first..first + bytes / 8], &runs[1..]),
            Method::Copy => {
                pm.read_words(page, &mut copy);
                copy[first..first + bytes / 8].copy_from_slice(&runs[1..]);
                black_box(&mut copy);
            }
            Method::Sums(1) => {
                pm.write_words(&page[first..first + bytes / 8], &runs[1..]);
                pm.read_words(page, &mut copy);
                layout.seal(&mut copy, 0, lsn.into());
                pm.write_words(&page[..4], &copy[..4]);
            }
            Method::Sums(_) | Method::Difference => {
                layout.update(pm, page, 0, lsn.into(), Runs::new(&runs));
            }
        }
    }
    Ok(started.elapsed().as_secs_f64() * 1e9 / f64::from(scale.updates))
}
