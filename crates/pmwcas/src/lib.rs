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
//! Each target word holds a value of at most [`MAX_VALUE`], or (marked by its five highest bits) a pointer to
//! the descriptor that is changing it. So every read of a word that operations change goes through
//! [`Mwcas::read`]; a word is stored plainly only while no other thread can reach it. There is no dirty bit.
//!
//! *Claims* in DRAM decide which operation may change a word. A claim is a cell of a small table, found by
//! the word's offset (`claims`).
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
//! 1. The descriptor (targets in ascending order, expected and new values) is written. From then on only its
//!    status changes, until the descriptor is reused. If it is longer than a line, or if other data must be
//!    durable first (new blocks, records), a fence makes it durable here (P1).
//! 2. The operation takes the claims of its words in ascending order: it stores pointers to the descriptor in
//!    them, in DRAM. Then it compares the words with the expected values.
//! 3. The status becomes `Succeeded`, with a stamp from one global clock, or `Failed`. `Succeeded` is made
//!    durable, and with it the rest of its line. This is the durability point: no later crash takes the
//!    operation back.
//! 4. Pointers to the descriptor are put into the words. They are *never flushed*.
//! 5. The status becomes `Committed`: the linearization point.
//! 6. The new values replace the pointers, and the claims are given back. The values are not flushed: the
//!    durable descriptor holds them.
//! 7. Later, the words of many operations are made durable at once: each partition *settles* its own
//!    operations. The *horizon* advances to the highest stamp up to which every partition has settled
//!    (`settle`). Descriptors up to the horizon may be reused.
//!
//! Any thread that meets a claim or a pointer can execute steps 2 to 6, and any thread can execute step 7 for
//! a partition that has stalled. Two operations that block each other help each other; since claims are taken
//! in ascending order, helping ends.
//!
//! A volatile pool has no claims: step 2 puts pointers into the words that hold their expected values, and
//! `Committed` follows at once.
//!
//! # Why that is right
//!
//! * **I1** A plain value in a word is as good as durable: its operation is `Committed`, so its outcome is
//!   durable, and recovery writes that value again until the horizon has passed its stamp.
//! * **I2** The operations after the horizon are the last ones that changed each of their words. An operation
//!   takes its stamp while it holds all its claims, hence after every earlier operation on one of its words.
//!   The horizon advances over all stamps up to a number at once, after each partition has made durable what
//!   its operations with these stamps stored. So a replay in the order of the stamps gives the last value of
//!   every word, whatever a cache eviction has written there. A value that comes back (A, B, A) does no harm:
//!   recovery does not decide by the values in the words.
//! * **I3** When a descriptor is reused, no word holds a pointer to its former incarnation, neither in the
//!   cache nor on the medium: its words were flushed after its pointers were gone, a late helper that stored
//!   one removes it durably before it leaves, and a hazard for each thread keeps a descriptor from reuse
//!   while a thread is in it. Every pointer and entry has an incarnation number, so a stalled reader, and
//!   recovery after a crash in the middle of the reuse, notice it.
//! * **I4** A full pointer is put into a word only while its operation is `Succeeded`, and into a claim only
//!   while it is `Undecided` (see `install`). A pointer in a word means the old value before `Committed`, and
//!   the new value after.
//! * **I5** One store of the status makes all blocks that an operation allocates the descriptor's (the
//!   allocator's tickets name that word). Another store frees them or hands them over to the structure. After
//!   a crash in between, the descriptor owns them and recovery frees them.
//! * **I6** No pointer is in a word before its descriptor is durable with its outcome. So every pointer that
//!   an eviction leaves on the medium can be resolved by recovery, and an operation that fails leaves none.
//!   While an operation is `Succeeded` it has all its claims, so its words hold their expected values, its
//!   own pointers, or late tentative pointers.
//! * **I7** A descriptor of one line needs no fence before its outcome: the words of a line reach the medium
//!   in the order in which they were stored (a barrier keeps that order), the status last. A longer
//!   descriptor is made durable first; otherwise lines of two incarnations could be on the medium under one
//!   outcome.
//!
//! `tests/loom` compiles these very files over a model checker's atomics, and asserts the invariants at
//! every store, in every interleaving of two or three threads on one to three words (with a bound on
//! preemptions) and for every value that a load may return.
//!
//! Reads are wait-free except when the descriptor they look at is reused meanwhile: they take no lock, help
//! no operation, flush nothing, and never return a value that a crash could take back.
//!
//! Nowhere does an atomic read-modify-write stand in for a durability fence.
//!
//! # Cost
//!
//! With one or two words: one line for P2, one for each word's line, one fence. With `w` more than two:
//! `ceil((16 + 24 w) / 64)` lines for P1, one for P2, `w` for the values, two fences. S1 and S2 of `settle`
//! share the fences of later operations; advancing the horizon costs one line for each batch of half a
//! partition's descriptors, or of a quarter while other threads settle as well. These figures include the
//! work of helpers; the golden file of the tests has them. An operation that finds an unexpected value at its
//! start costs no flush and no fence. In a volatile pool nothing is stamped, flushed or settled.
//!
//! All threads share the clock: each successful operation adds to it once, atomically.
//!
//! # Memory
//!
//! Operations allocate and free blocks: [`Descriptor::allocate`] allocates a block that belongs to the
//! operation, and [`Policy`] says which outcome frees which block. A freed block is reused when every thread
//! that was pinned has left ([`Session`]s are pinned). A contract makes replaying safe: once an operation
//! that frees a block has committed, no operation on a word *in* that block may succeed. Structures ensure
//! that by a mark or a frozen bit in the block.
//!
//! # Recovery
//!
//! [`Mwcas::open`] scans the descriptors (their number is fixed when the pool is created), replaces the
//! pointers it finds in words, replays the operations after the horizon, and frees the blocks that
//! interrupted operations own. It is idempotent, and takes the same time however large the structures are.
//!
//! # What cannot happen here
//!
//! * *A dirty bit cleared by the wrong thread.* A bit that says "not yet durable" has no identity: a
//!   thread that flushed one occurrence of a value clears the bit of a later one. There is none.
//! * *A stale value replayed over a later one*, because a word has its expected value again: see I2.
//!   Roll-forward depends on no comparison, and on no pointer having reached the medium.
//! * *A helper that comes too late*: I4; the tests delay helpers at each of their steps.
//! * *A stalled owner that readers wait for*: readers look through the descriptor.
//! * *Entries sorted by helpers, or after they were persisted*: entries never change after publication.
//! * *Memory freed twice, or never*: I5, and the blocks are freed by the very store that retires the
//!   descriptor.
//! * *Two operations mixed up under one incarnation number.* A crash in P0 can leave entries of an operation
//!   that was never published under the heading of the one before, so its number is given again. Entries of
//!   both can stand under one status only if that is `Undecided` and the operation allocates nothing: no word
//!   holds its pointers, and recovery frees nothing for it. (I7 rules out every other status.)
//! * *Addresses to be rebased*: everything is an offset.
//!
//! # For a BzTree
//!
//! Beside the paper's interface, a tree on these operations can use: a descriptor pool in a block of the
//! tree's own root ([`Mwcas::allocate_table`], [`Mwcas::open_at`]); a [`Recycler`] that frees old nodes with
//! the blocks they own; [`allocate_extra_bytes`](Descriptor::allocate_extra_bytes) for a split's nodes beside
//! the one that a word points to; [`free_on_success`](Descriptor::free_on_success) for nodes that no changed
//! word points to; status words of 63 bits; and reads without pins, where the node's memory is validated
//! otherwise. The tree must ensure that a frozen node's words do not change (its status word is part of every
//! operation on it): that is the contract for freeing it. Words on one line share its flush, so a node's
//! status word and its first record entries belong together. The status word covers a node's other words
//! ([`add_covered_word`](Descriptor::add_covered_word)), so each operation on a node has one claim. The
//! record that an insert adds is part of the operation ([`show`](Descriptor::show)): it is durable with the
//! descriptor's line, before its own line is flushed.
//!
//! # Progress
//!
//! Lock-free for at most as many threads as there are partitions: some operation completes in a bounded
//! number of steps of the system, whichever threads are delayed, as long as delayed helpers are in fewer
//! descriptors of a partition than it has (at least 4; a thread is in one at a time). A thread that meets an
//! operation waits a bounded time before it helps, because a running owner is faster than two threads at one
//! descriptor. A thread whose operation fails because of a faster one waits a bounded time as well
//! ([`Mwcas::with_patience`]), so threads that all want the same words do about as much together as one
//! alone.
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
