//! The structures that `cargo xtask crash` knows. A new index adds a line here.

use pmindex_testkit::attack::{Attacked, attack};
use pmindex_testkit::conformance::{SampleKey, SampleValue, Verdict, scheduled_index};
use pmindex_testkit::crash::{Campaign, CrashIndex, CrashSubject, Fault, Findings, IndexSubject};

use super::allocator::Blocks as Allocator;
use super::batched::Batch;
use super::block_cache::BlockCached;
use super::boc::{AnewCceh, AnewFastFair, BufferedCceh, BufferedFastFair};
use super::btree::Tree as PagedTree;
use super::buffer::{self, Pages};
use super::buffer_warm::Warm;
use super::dropped::Dropped;
use super::drops::Comes;
use super::files::Files;
use super::pmwcas::{blocks::Blocks, list::Linked, words::Words};
use super::{
    cceh::{CcehBytes, CcehWords},
    expiring::Expires,
    fastfair::{FastFairBytes, FastFairWords},
    hart::{HartBytes, HartWords},
    list::List,
    nvtree::{NvTreeBytes, NvTreeWide, NvTreeWords},
    pactree::{PacTreeBytes, PacTreeWide, PacTreeWords},
    pm_log::Transactions,
    pools::{self, Pools},
    rstore::{self, Partitioned},
    shared_pool::SharedPool,
    skiplist::{SkipListBytes, SkipListWords},
    sptree::{SpTreeBytes, SpTreeWide, SpTreeWords},
    sptree_buffered::{SpTreeBuffered, SpTreeBufferedWide},
    sptree_log::{self, SpTreeLog},
    store::{Small, Stored, Watched},
    store_paged::Second,
    trees::{
        BzTreeBytes, BzTreeValues, BzTreeWords, FpTreeBytes, FpTreeValues, FpTreeWide, FpTreeWords,
    },
    wbtree::{WbTreeBytes, WbTreeValues, WbTreeWords},
    woart::{ArtCowBytes, ArtCowWords, WoartBytes, WoartWords},
};

/// A structure and how to explore it.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Campaign) -> Findings,
    /// Runs this many attacks, from a seed.
    pub(crate) attack: fn(u64, u64) -> Result<Attacked, Fault>,
    /// Runs the conformance suite under the deterministic scheduler, for an index of words or of byte
    /// strings.
    pub(crate) scheduled: Option<fn() -> Verdict>,
}

fn entry<S: CrashSubject>() -> Entry {
    let run = |campaign: &Campaign| campaign.run::<S>();
    Entry { name: S::NAME, run, attack: attack::<S>, scheduled: None }
}

fn index<C: CrashIndex>() -> Entry
where
    C::Key: SampleKey,
    C::Value: SampleValue,
{
    Entry { scheduled: Some(scheduled_index::<C>), ..entry::<IndexSubject<C>>() }
}

/// Returns all subjects.
pub(crate) fn registry() -> Vec<Entry> {
    vec![
        entry::<List>(),
        entry::<Pools<{ pools::MEMORY }>>(),
        entry::<Pools<{ pools::FILE }>>(),
        entry::<Pools<{ pools::FORGETFUL }>>(),
        entry::<Allocator>(),
        entry::<SharedPool>(),
        entry::<Dropped>(),
        entry::<Transactions>(),
        entry::<SpTreeLog>(),
        entry::<SpTreeLog<{ sptree_log::PARTS }>>(),
        entry::<BlockCached>(),
        entry::<Pages<{ buffer::NONE }, 0>>(),
        entry::<Pages<{ buffer::NONE }, 4>>(),
        entry::<Pages<{ buffer::NONE }, { buffer::HOT }>>(),
        entry::<Pages<{ buffer::NONE }, { buffer::MANY }>>(),
        entry::<Pages<{ buffer::NONE }, { buffer::ARCHIVED }>>(),
        entry::<Warm>(),
        entry::<PagedTree>(),
        entry::<Files>(),
        entry::<Partitioned>(),
        entry::<Partitioned<rstore::Filling>>(),
        entry::<Batch>(),
        entry::<Stored>(),
        entry::<Stored<Watched>>(),
        entry::<Stored<Second>>(),
        entry::<Comes<Small>>(),
        entry::<Expires>(),
        entry::<Words>(),
        entry::<Blocks>(),
        entry::<Linked>(),
        index::<CcehWords>(),
        index::<CcehBytes>(),
        index::<FpTreeWords>(),
        index::<FpTreeBytes>(),
        entry::<IndexSubject<FpTreeValues>>(),
        index::<FastFairWords>(),
        index::<FastFairBytes>(),
        index::<HartWords>(),
        index::<HartBytes>(),
        index::<BzTreeWords>(),
        index::<BzTreeBytes>(),
        entry::<IndexSubject<BzTreeValues>>(),
        index::<NvTreeWords>(),
        index::<NvTreeBytes>(),
        entry::<IndexSubject<NvTreeWide>>(),
        entry::<IndexSubject<FpTreeWide>>(),
        index::<WbTreeWords>(),
        index::<WbTreeBytes>(),
        entry::<IndexSubject<WbTreeValues>>(),
        index::<SkipListWords>(),
        index::<SkipListBytes>(),
        entry::<IndexSubject<BufferedCceh>>(),
        entry::<IndexSubject<BufferedFastFair>>(),
        entry::<IndexSubject<AnewCceh>>(),
        entry::<IndexSubject<AnewFastFair>>(),
        index::<WoartWords>(),
        entry::<IndexSubject<WoartBytes>>(),
        entry::<IndexSubject<ArtCowWords>>(),
        index::<ArtCowBytes>(),
        index::<PacTreeWords>(),
        index::<PacTreeBytes>(),
        entry::<IndexSubject<PacTreeWide>>(),
        index::<SpTreeWords>(),
        index::<SpTreeBytes>(),
        entry::<IndexSubject<SpTreeWide>>(),
        index::<SpTreeBuffered>(),
        entry::<IndexSubject<SpTreeBufferedWide>>(),
    ]
}
