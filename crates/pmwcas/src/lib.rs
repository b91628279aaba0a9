//! Persistent multi-word compare-and-swap: several words of a pool change together or not at all,
//! lock-free, durably, in one fence.
//!
//! ```
//! use std::sync::Arc;
//! use pmindex_core::{Medium, Pool, PmU64};
//! use pmindex_pmwcas::{Config, Mwcas};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(Pool::emulated(4 << 20)?);
//! let accounts = pool.create_index::<[PmU64; 2]>("accounts", *b"accounts", 0, |a| {
//!     pool.pm().store(&a[0], 100);
//!     pool.pm().store(&a[1], 100);
//!     pool.pm().flush(a)
//! })?;
//! let accounts = pool.get(accounts.root::<[PmU64; 2]>())?;
//! let mwcas = Mwcas::create(&pool, "mwcas", Config::default())?;
//!
//! // Move 30 from one account to the other, whatever else is going on.
//! loop {
//!     let (from, to) = (mwcas.read(&accounts[0])?, mwcas.read(&accounts[1])?);
//!     let mut session = mwcas.session()?;
//!     let mut transfer = session.descriptor();
//!     transfer.add_word(&accounts[0], from, from - 30)?;
//!     transfer.add_word(&accounts[1], to, to + 30)?;
//!     if transfer.execute()? {
//!         break; // durable
//!     }
//! }
//! assert_eq!((mwcas.read(&accounts[0])?, mwcas.read(&accounts[1])?), (70, 130));
//! # Ok(())
//! # }
//! ```
//!
//! The interface is that of the BzTree paper (section 2.3): [`Session::descriptor`] allocates a
//! descriptor, [`add_word`](Descriptor::add_word), [`reserve_entry`](Descriptor::reserve_entry) and
//! [`remove_word`](Descriptor::remove_word) fill it, [`execute`](Descriptor::execute) executes it,
//! [`discard`](Descriptor::discard) gives it up, and a [`Recycler`] is the recycling callback. The
//! protocol is another one.
//!
//! # What the words hold
//!
//! Each target word holds a value of at most [`MAX_VALUE`], or (marked by its five highest bits) a
//! pointer to the descriptor that is changing it. So every read of a word that operations change
//! goes through [`Mwcas::read`]; words are stored plainly only before anyone else can reach them.
//! There is no dirty bit.
//!
//! Which operation may change a word is said in DRAM, by *claims*: cells of a small table, found by the
//! word's offset (`claims`).
//!
//! # An operation
//!
//! ```text
//!            claims taken, words            P2: outcome and        pointers in         P3: values
//!            compared                       descriptor durable     all words
//!  Void ----> Undecided ----> Succeeded ----------------------------------> Committed -----> (Void)
//!                 |                               DUR                          LIN    claims back
//!                 +---------> Failed --> claims back --> (Void)
//! ```
//!
//! 1. The descriptor (targets in ascending order, expected and new values) is written. Nothing in it
//!    but the status ever changes until it is reused. If it is longer than a line, or needs anything
//!    else to be durable first (new blocks, records), a fence makes it durable here (P1).
//! 2. The claims of the words are taken, in ascending order: pointers to the descriptor, in DRAM. Then
//!    the words are compared with what is expected.
//! 3. The status becomes `Succeeded`, with a stamp from one global clock, or `Failed`. The former is
//!    made durable: with it, in the same line, the whole descriptor. From here on a crash does not take
//!    the operation back: the durability point.
//! 4. Pointers to the descriptor are put into the words. They are *never flushed*.
//! 5. The status becomes `Committed`: the linearization point.
//! 6. The new values replace the pointers, and the claims are given back. The values are not flushed
//!    either: the durable descriptor stands for them.
//! 7. Later, for many operations at once, the words are made durable: each partition *settles* its own.
//!    The *horizon* moves over all stamps up to which every partition has settled (`settle`). Only
//!    then may the descriptors be reused.
//!
//! Any thread that meets a claim or a pointer can do all of the steps 2 to 6, and any thread step 7 for a
//! partition that does not go on. Two operations that are in each other's way help each other; since
//! claims are taken in ascending order, helping ends.
//!
//! In a volatile pool there are no claims: pointers go into the words in step 2, where they find the
//! expected values, and `Committed` follows at once.
//!
//! # Why that is right
//!
//! * **I1** A plain value in a word is durable in effect: its operation is `Committed`, so its
//!   outcome is durable, and until the horizon is past it recovery writes that value again.
//! * **I2** The operations after the horizon are, for each word, the last ones that changed it: an
//!   operation takes its stamp when it has all its claims, hence after every operation that changed one
//!   of its words before, and the horizon moves over all stamps up to a number at once, when each
//!   partition has made durable what its operations with these stamps stored.
//!   So replaying them in the order of their stamps gives the last value of every word, whatever an
//!   eviction has left there. A value that comes back (A, B, A) confuses nobody: recovery does not
//!   compare values.
//! * **I3** No pointer to an incarnation of a descriptor is in any word, in the cache or on the
//!   medium, when the descriptor is reused: its words were flushed after its pointers were gone, a
//!   late helper that put one in cleans up durably before it leaves, and nobody is in a descriptor
//!   that is reused (a hazard per thread). An incarnation number in every pointer and entry makes
//!   what a stalled reader or a crash in the middle of the reuse sees detectable.
//! * **I4** A full pointer never appears in a word but while its operation is `Succeeded`, nor in a
//!   claim but while it is `Undecided` (see `install`): a pointer in a word means the old value before
//!   `Committed`, the new one after.
//! * **I5** A block that an operation allocates belongs to the descriptor by one store of the status
//!   (the allocator's tickets name that word), and is freed, or handed to the structure for good, by
//!   another one. Every crash in between leaves the descriptor to recovery.
//! * **I6** No pointer is in a word before its descriptor is durable with its outcome. So no eviction
//!   can leave one on the medium that recovery cannot explain, and an operation that fails leaves
//!   nothing. While an operation is `Succeeded` it has all its claims, so its words hold their expected
//!   values, its own pointers, or tentative pointers that came late.
//! * **I7** A descriptor of one line needs no fence before its outcome: the medium has a line's words
//!   in the order in which they were stored (a barrier keeps it), the status last. A longer one is
//!   durable first: otherwise lines of two incarnations could stand under one outcome.
//!
//! `tests/loom` compiles these very files over a model checker's atomics, and asserts the invariants at
//! every store, in every interleaving of two or three threads on one to three words (with a bound on
//! preemptions) and for every value that a load may return.
//!
//! Reads are wait-free but for the reuse of a descriptor under their eyes: they take no lock, help
//! nobody, flush nothing, and never see what a crash could take back.
//!
//! An atomic read-modify-write is nowhere taken for a durability fence.
//!
//! # Cost
//!
//! With one or two words: one line for P2, one for each word's line, one fence. With `w` more than two:
//! `ceil((16 + 24 w) / 64)` lines for P1, one for P2, `w` for the values, two fences. S1 and S2 of
//! `settle` ride on fences of later operations; the horizon costs one line for each batch of half a
//! partition's descriptors, of a quarter while other threads are at it too. All of it is counted,
//! whoever does it; the golden file of the tests has the numbers. An operation that finds an unexpected
//! value at its start costs no flush and no fence. In a volatile pool nothing is stamped, flushed or
//! settled.
//!
//! One atomic addition to the clock for each successful operation is what all threads share.
//!
//! # Memory
//!
//! Blocks come and go with operations: [`Descriptor::allocate`] takes a block from the allocator
//! straight into the operation, and [`Policy`] says what is freed by which outcome. What is freed is
//! reused when every thread that was pinned has left ([`Session`]s are pinned). A contract makes
//! replaying safe: once an operation that frees a block has committed, no operation on a word *in*
//! that block may succeed. Structures have that anyway, by a mark or a frozen bit in the block.
//!
//! # Recovery
//!
//! [`Mwcas::open`] scans the descriptors (their number is fixed when the pool is created), replaces
//! the pointers it finds, replays what is after the horizon, and frees what interrupted operations
//! own. It is idempotent, and does not depend on the size of any structure.
//!
//! # What cannot happen here
//!
//! * *A dirty bit cleared by the wrong thread.* A bit that says "not yet durable" has no identity: a
//!   thread that flushed one occurrence of a value clears the bit of a later one. There is none.
//! * *A stale value replayed over a later one*, because a word has its expected value again: see I2.
//!   Roll-forward depends on no comparison, and on no pointer having reached the medium.
//! * *A helper that comes too late*: I4; the tests delay helpers at each of their steps.
//! * *A stalled owner that readers wait for*: readers look through the descriptor.
//! * *Entries sorted by helpers, or after they were persisted*: entries never change once published.
//! * *Memory freed twice, or never*: I5, and the blocks are freed by the very store that retires the
//!   descriptor.
//! * *An incarnation that comes back.* A crash in P0 can leave entries of an operation that never was
//!   under the heading of the one before, so its number is given again. Entries of both under one
//!   status can only be those of an `Undecided` operation that allocates nothing, whose pointers are in
//!   no word: nothing is freed by them. (I7 is why no other status has them.)
//! * *Addresses to be rebased*: everything is an offset.
//!
//! # For a BzTree
//!
//! What a tree on these operations can count on, beside the paper's interface: the descriptor pool
//! in a block of its own root ([`Mwcas::allocate_table`], [`Mwcas::open_at`]); old nodes freed with
//! what hangs on them by a [`Recycler`]; a split's nodes as
//! [`allocate_extra_bytes`](Descriptor::allocate_extra_bytes) beside the one that a word points to,
//! and [`free_on_success`](Descriptor::free_on_success) for nodes that no changed word points to;
//! status words of 63 bits; reads without pins where the node's memory is validated otherwise. What
//! it must keep: a frozen node's words change no more (its status word is part of every operation on
//! it), which is the contract for freeing it. Words on one line share its flush, so a node's status
//! word and its first record entries belong together. A node's other words are covered by its status
//! word ([`add_covered_word`](Descriptor::add_covered_word)), so each operation on a node has one claim;
//! and a record that goes in is part of the operation ([`show`](Descriptor::show)), whose line is
//! durable in its place.
//!
//! # Progress
//!
//! Lock-free among as many threads as there are partitions: some operation completes in a bounded
//! number of steps of the system, whoever is delayed, as long as no more descriptors of a partition
//! have delayed helpers in them than it has (a partition has 4 at least; a thread is in one at a
//! time). A thread that meets an operation waits for it a bounded time before it helps, because an
//! owner that is running is faster than two threads at one descriptor; one whose operation fails
//! because others were faster waits a bounded time as well ([`Mwcas::with_patience`]), so that
//! threads that all want the same words do about as much together as one alone.
#![forbid(unsafe_code)]

mod claims;
mod config;
mod descriptor;
mod drive;
mod entry;
mod error;
mod help;
mod install;
mod layout;
mod mwcas;
mod partition;
mod primitive;
mod publish;
mod read;
mod reclaim;
mod recover;
mod recycle;
mod session;
mod settle;
mod status;
mod word;

pub use config::Config;
pub use descriptor::Descriptor;
pub use entry::Policy;
pub use error::MwcasError;
pub use mwcas::{Mwcas, Recyclers};
pub use recover::Recovery;
pub use recycle::{Memory, OneBlock, Recycler, RecyclerId};
pub use session::Session;
pub use word::MAX_VALUE;
