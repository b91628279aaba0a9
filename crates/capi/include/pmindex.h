/*
 * pmindex: ordered indexes in persistent memory, or in any file that can be mapped.
 *
 * A write that has returned PMINDEX_STATUS_OK is durable: it survives what the medium of its pool
 * survives (pmindex_pool_describe() says what), and is there when the pool is opened again.
 *
 * Every function returns a pmindex_status; pmindex_last_error() has the words.
 *
 * Threads. Every function may be called by any number of threads at once, on the same handles too, but
 * for those that close or end a handle, while no other call uses it. A cursor, a transaction and a watch
 * are for one thread at a time.
 *
 * Handles are looked up, never followed: null, closed and invented handles are errors. What is opened, begun or
 * made with a handle keeps what it came from open: closing that is PMINDEX_STATUS_BUSY until the last of
 * them is closed or ended. So a program closes cursors first, then transactions, snapshots, watches and indexes,
 * then the store, then the pool. A process that ends without closing loses nothing.
 *
 * Memory. What a program passes is its own, is read or filled during the call, and is not kept. What a
 * function fills is distinct from whatever else it is passed. A function that takes something out and
 * returns it changes nothing if it does not fit: PMINDEX_STATUS_TOO_SMALL. Bytes that the library lends
 * are good during the callback, or until the next call on the cursor; nothing is to be freed.
 *
 * Link with -lpmindex (and with libpmindex.a: -lpthread -ldl -lm). Paths, names and texts are UTF-8.
 */

#ifndef PMINDEX_H
#define PMINDEX_H

/* Generated from the sources of pmindex-capi by cbindgen: change those. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// For pmindex_options.flags: opens for reading only, beside other readers.
#define PMINDEX_READ_ONLY 1

// For pmindex_options.flags: the pool does not grow by itself.
#define PMINDEX_FIXED_SIZE 2

// For pmindex_options.flags: executes the flushes of persistent memory on another medium.
#define PMINDEX_EMULATE_PM 4

// For pmindex_options.flags: no msync() on an ordinary file: survives a crash of the process.
#define PMINDEX_NO_WRITE_BACK 8

// For pmindex_options.flags: opens although the modules report lost data.
#define PMINDEX_ACCEPT_DIRTY_SHUTDOWN 16

// For pmindex_options.flags: on an ordinary file a fence waits for a write to a journal beside it, which
// all threads share, rather than for an msync(). As long as the pool is open, and after a crash, the file
// and its journal (the same name with .journal behind it) belong together.
#define PMINDEX_JOURNAL 32

// How a call ended. 0 is success, a positive code is an answer, a negative one an error, about
// which pmindex_last_error() says more.
typedef enum {
  // Done.
  PMINDEX_STATUS_OK = 0,
  // There is no such key; nothing was changed.
  PMINDEX_STATUS_NOT_FOUND = 1,
  // The key exists already; nothing was changed.
  PMINDEX_STATUS_EXISTS = 2,
  // The cursor has no further record, the watch no further commit, or a list is at its end.
  PMINDEX_STATUS_END = 3,
  // What was to be returned does not fit into the buffer; its len says how much there is, and
  // nothing was changed.
  PMINDEX_STATUS_TOO_SMALL = 4,
  // The record is not as expected; nothing was changed.
  PMINDEX_STATUS_DIFFERENT = 5,
  // An argument is null, out of range, not UTF-8, or not of the index's types.
  PMINDEX_STATUS_INVALID_ARGUMENT = -1,
  // The handle is closed, of another kind, or none at all.
  PMINDEX_STATUS_BAD_HANDLE = -2,
  // There is no such file or no index of this name.
  PMINDEX_STATUS_NO_SUCH = -3,
  // The file or an index of this name exists already.
  PMINDEX_STATUS_ALREADY_EXISTS = -4,
  // Permission denied.
  PMINDEX_STATUS_PERMISSION = -5,
  // In use: the file by another process, the pool by its open indexes or its store, the store by its maps,
  // snapshots, transactions and watches, the index by its cursors, the transaction or watch by another call, or every slot
  // for writers.
  PMINDEX_STATUS_BUSY = -6,
  // The pool is full and may not grow, or the device is.
  PMINDEX_STATUS_FULL = -7,
  // The key or value is longer than possible, or what a batch or transaction changes is too much.
  PMINDEX_STATUS_TOO_LONG = -8,
  // Not a pool, or one of a format this library does not know.
  PMINDEX_STATUS_NOT_A_POOL = -9,
  // The pool is damaged.
  PMINDEX_STATUS_CORRUPT = -10,
  // The medium gives less durability than was asked for.
  PMINDEX_STATUS_TOO_WEAK = -11,
  // A write-back failed: nothing is acknowledged any more, reads stay possible.
  PMINDEX_STATUS_DURABILITY_LOST = -12,
  // The pool is open for reading only.
  PMINDEX_STATUS_READ_ONLY = -13,
  // The index has another kind or other types.
  PMINDEX_STATUS_WRONG_TYPE = -14,
  // The operating system refused.
  PMINDEX_STATUS_SYSTEM = -15,
  // A bug in this library: please report it with the message.
  PMINDEX_STATUS_INTERNAL = -16,
  // The index is open in this process already: share its handle among the threads.
  PMINDEX_STATUS_ALREADY_OPEN = -17,
  // Another commit changed what the transaction has read. Nothing was changed: begin another one.
  PMINDEX_STATUS_CONFLICT = -18,
  // The snapshot or transaction has ended: what others replaced meanwhile takes more memory than the
  // store may keep.
  PMINDEX_STATUS_SNAPSHOT_ENDED = -19,
  // The transaction is durable and has taken place, but found no room for its changes, or failed
  // otherwise: they are made before the next write, or when the store is opened again.
  PMINDEX_STATUS_UNFINISHED = -20,
  // The store's log does not have all commits after the position of the watch any more, or never had.
  PMINDEX_STATUS_WATCH_ENDED = -21,
} pmindex_status;

// A type of keys and values.
typedef enum {
  // A uint64_t.
  PMINDEX_TYPE_U64 = 0,
  // A byte string, ordered as by memcmp(), a prefix first.
  PMINDEX_TYPE_BYTES = 1,
} pmindex_type;

// What writes are to survive at least; the strongest that the medium gives is what they do.
typedef enum {
  // Whatever the medium gives.
  PMINDEX_DURABILITY_ANY = 0,
  // A crash or kill of the process.
  PMINDEX_DURABILITY_PROCESS = 1,
  // Power failure, on any medium: an msync() per fence on an ordinary file.
  PMINDEX_DURABILITY_MSYNC = 2,
  // Power failure, on persistent memory.
  PMINDEX_DURABILITY_PERSISTENT = 3,
} pmindex_durability;

// A scan under way. It is a handle, like pmindex_pool. Use a cursor from one thread at a time:
// what it returns is good until the next call on it. A cursor of a transaction needs that until its end.
typedef struct pmindex_cursor pmindex_cursor;

// A map of a store whose records each live for a time: whoever reads after it finds none. It is a handle, like
// pmindex_pool. The time stands in the record, by the clock of the system. A record that is over takes space
// until it is written again or pmindex_expiring_sweep() comes by.
typedef struct pmindex_expiring pmindex_expiring;

// An ordered index in a pool, or a map of a store, which is an index that takes part in the store's
// transactions and snapshots. It is a handle, like pmindex_pool.
typedef struct pmindex_index pmindex_index;

// A pool of indexes in a file. It is a handle: compare it, pass it on, never look into it. Every
// function but those that close may be called on the same handle by any number of threads.
typedef struct pmindex_pool pmindex_pool;

// One moment of all maps of a store: everything that was committed before, and nothing after. Writers go on.
// It is a handle, like pmindex_pool.
typedef struct pmindex_snapshot pmindex_snapshot;

// Named maps in one pool, with transactions and snapshots over all of them. It is a handle, like
// pmindex_pool. Maps, snapshots, transactions, watches and cursors of a store are closed or ended
// before it is.
typedef struct pmindex_store pmindex_store;

// A transaction over the maps of a store: all of its changes take place, or none. It reads one moment, that of
// its first read, and its own changes. It is a handle, like pmindex_pool, for one thread at a time (any, not
// the same): a call while another is under way is PMINDEX_STATUS_BUSY. After commit and rollback it is
// closed. Hold it briefly: while one is open, writes keep in memory what they replace.
typedef struct pmindex_transaction pmindex_transaction;

// A stream of what commits to the maps of a store change: transactions and single writes, in the order of their
// commits. It is a handle, like pmindex_pool, for one thread at a time: a call while another is under way is
// PMINDEX_STATUS_BUSY. While one is open, each single write takes two fences more, for its record in the
// store's log.
typedef struct pmindex_watch pmindex_watch;

// Options for pools. All zero is the default.
typedef struct {
  // Bytes of a new pool; 0: 64 MiB.
  uint64_t size;
  // Bytes to which a pool may grow; 0: 16 times its size, 64 GiB at least.
  uint64_t max_size;
  // How many threads can write at once to a new pool, up to 4096; 0: up to 64, by the size.
  uint32_t writers;
  // The least durability to accept, one of pmindex_durability; opening a weaker medium fails
  // with PMINDEX_STATUS_TOO_WEAK.
  uint32_t durability;
  // Any of PMINDEX_READ_ONLY, PMINDEX_FIXED_SIZE, PMINDEX_EMULATE_PM,
  // PMINDEX_NO_WRITE_BACK, PMINDEX_ACCEPT_DIRTY_SHUTDOWN, PMINDEX_JOURNAL, combined with |.
  uint32_t flags;
  // For later versions; 0.
  uint32_t reserved;
} pmindex_options;

// Room for bytes that a function returns. Set data and capacity; len becomes the length of
// what there is, whether it fitted or not. A value that does not fit is not copied, in part
// neither, and the function returns PMINDEX_STATUS_TOO_SMALL.
typedef struct {
  // Where the bytes go; may be null if capacity is 0.
  void *data;
  // How many bytes fit.
  size_t capacity;
  // How many bytes there are.
  size_t len;
} pmindex_buffer;

// Told with paused 1 to keep all writers of the pool between two writes, and with 0 to let them go on. It
// must not unwind (throw), nor write to the pool.
typedef void (*pmindex_pause)(void *context, uint8_t paused);

// Facts about an open index.
typedef struct {
  // Its kind, "fptree" for one; a constant string.
  const char *kind;
  // The type of its keys, one of pmindex_type.
  uint32_t key_type;
  // The type of its values, one of pmindex_type.
  uint32_t value_type;
  // How long opening it took, in nanoseconds, recovery included.
  uint64_t opened_in_ns;
  // Whether it was closed cleanly before it was opened.
  bool was_clean;
} pmindex_info;

// Bytes: a key or a value. A number (PMINDEX_TYPE_U64) is the 8 bytes of a uint64_t.
typedef struct {
  // The first of them; may be null if there are none.
  const void *data;
  // How many there are.
  size_t len;
} pmindex_bytes;

// Which records to go through, in which order. All zero: all of them, ascending.
typedef struct {
  // The first key; not looked at if has_from is 0.
  pmindex_bytes from;
  // The key after the last; not looked at if has_to is 0.
  pmindex_bytes to;
  // Whether there is a first key: 0 or 1.
  uint8_t has_from;
  // Whether there is an end: 0 or 1.
  uint8_t has_to;
  // From the last to the first: 0 or 1.
  uint8_t reverse;
  // The records whose keys begin with the bytes of from: 0 or 1; then has_from, to and has_to
  // are not looked at. Of byte strings only.
  uint8_t is_prefix;
} pmindex_range;

// Hears of a record; returns false to stop. The bytes are good for this call. It must not unwind
// (throw), and may call any function of this library but those that close.
typedef bool (*pmindex_visit)(void *context, pmindex_bytes key, pmindex_bytes value);

// Options for stores. All zero is the default.
typedef struct {
  // Of the pool; not looked at by pmindex_store_in_pool().
  pmindex_options pool;
  // How many bytes of memory snapshots and transactions may keep of the past, about; 0: 256 MiB. Beyond it
  // the oldest of them ends.
  uint64_t past_bytes;
  // Keeps about so many bytes of the newest commits in the store's log, so that a watch can begin where another
  // one, of another process or before a crash, has ended; each single write takes two fences more. 0: none.
  uint64_t keep_commits;
  // For later versions; 0.
  uint64_t reserved;
} pmindex_store_options;

// What a transaction does: reads and writes maps through it, and returns 0 for it to be committed, or one
// of pmindex_status for it to be rolled back. It may run several times. It neither commits nor rolls back
// itself, and must not unwind (throw).
typedef int32_t (*pmindex_body)(pmindex_transaction *transaction, void *context);

// Hears of a change: what the record is since, or that it is gone, where value is null. Returns false to stop.
// The bytes are good for this call. It must not unwind (throw), and may call any function of this library but
// those that close, and those of the watch.
typedef bool (*pmindex_visit_change)(void *context, pmindex_bytes key, const pmindex_bytes *value);

// A key to look up, and what came of it.
typedef struct {
  // The key.
  pmindex_bytes key;
  // Gets its value.
  pmindex_buffer value;
  // Becomes what pmindex_get() would return.
  pmindex_status status;
} pmindex_lookup;

// A record to add, and what came of it.
typedef struct {
  // The key.
  pmindex_bytes key;
  // The value.
  pmindex_bytes value;
  // Becomes what pmindex_try_insert() would return.
  pmindex_status status;
} pmindex_addition;

// What one record is to become.
typedef struct {
  // The key.
  pmindex_bytes key;
  // The value; not looked at if the record is to be removed.
  pmindex_bytes value;
  // Whether the record is to be removed, if it is there: 0 or 1.
  uint8_t remove;
} pmindex_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What the calling thread's last failed call failed with, in words that name the file, the index
// or the argument. Never null; empty if none failed. Good until this thread's next failing call.
const char *pmindex_last_error(void);

// A code in a few words. Never null; the string is constant. status may be any number.
const char *pmindex_status_name(int32_t status);

// Creates a pool in a new file. options may be null. On failure *pool is null.
pmindex_status pmindex_pool_create(const char *path,
                                   const pmindex_options *options,
                                   pmindex_pool **pool);

// Opens a pool; after a crash, recovery is part of it. options may be null. On failure *pool is
// null.
pmindex_status pmindex_pool_open(const char *path,
                                 const pmindex_options *options,
                                 pmindex_pool **pool);

// Opens a pool, and creates it if there is no such file.
pmindex_status pmindex_pool_open_or_create(const char *path,
                                           const pmindex_options *options,
                                           pmindex_pool **pool);

// Opens a pool in memory (on tmpfs) with a twin on a disk, and creates it if there is neither. What is
// acknowledged survives a crash or kill of the process; of a power failure everything that had been done
// by some moment, every_ms milliseconds (0: 100) and a write before it at most, and nothing later.
// pmindex_pool_sync() waits until the twin has everything. After a power failure, when the pool is not
// in memory any more, it is made anew of the twin.
pmindex_status pmindex_pool_open_with_twin(const char *path,
                                           const pmindex_options *options,
                                           const char *twin,
                                           uint32_t every_ms,
                                           pmindex_pool **pool);

// Closes a pool and marks it as closed cleanly, durably. PMINDEX_STATUS_BUSY (and the pool stays
// open) while an index or a store of it is open. After any other error the handle is closed, and the next
// opening recovers. No other thread may be using the handle.
pmindex_status pmindex_pool_close(pmindex_pool *pool);

// Gives free memory of the pool back to the system, in runs of 2 MiB, while the pool is in use: the file
// becomes sparse, and gets its blocks back before they are used again. *given is how many bytes the file
// takes less, 0 where the medium cannot; it may be null.
pmindex_status pmindex_pool_release_free(const pmindex_pool *pool,
                                         uint64_t *given);

// Waits until everything that was acknowledged before survives as much as the pool's medium can give.
// In a pool that survives power failures nothing is left to do; a file on a disk that was opened with
// PMINDEX_NO_WRITE_BACK is synchronised, and survives a power failure until the next write; the twin
// of one that has one has everything. After
// PMINDEX_STATUS_DURABILITY_LOST no later call succeeds.
pmindex_status pmindex_pool_sync(const pmindex_pool *pool);

// What the pool's medium is and what its writes survive, in a sentence or two (no final zero byte;
// text->len says how long).
pmindex_status pmindex_pool_describe(const pmindex_pool *pool, pmindex_buffer *text);

// The pool's present size and the bytes of it that are in use. Either may be null.
pmindex_status pmindex_pool_size(const pmindex_pool *pool, uint64_t *size, uint64_t *used);

// The name of the pool's index number number, from 0 (no final zero byte; name->len says how
// long). PMINDEX_STATUS_END if there are fewer.
pmindex_status pmindex_pool_index_name(const pmindex_pool *pool,
                                       size_t number,
                                       pmindex_buffer *name);

// Copies a pool to a file while it is in use; a file of this name is replaced when the copy is complete and
// durable. pause is called when all but the last changes are copied: with 1, then with 0 (null: nobody
// writes meanwhile). If somebody wrote all the same, it is PMINDEX_STATUS_BUSY, and there is no copy.
// bytes (may be null) becomes the length of the copy. (pmindex_store_backup() pauses nobody.)
pmindex_status pmindex_pool_backup(const pmindex_pool *pool,
                                   const char *path,
                                   pmindex_pause pause,
                                   void *context,
                                   uint64_t *bytes);

// The name of kind number number of index, from 0; null if there are fewer.
const char *pmindex_kind_name(size_t number);

// Creates the index name, of the kind called kind ("fptree" for one), with keys and values of
// the given types (pmindex_type). On failure *index is null.
pmindex_status pmindex_index_create(const pmindex_pool *pool,
                                    const char *name,
                                    const char *kind,
                                    uint32_t key_type,
                                    uint32_t value_type,
                                    pmindex_index **index);

// Opens the index name, of whatever kind and types it was created with; recovery is part of it.
// On failure *index is null. An index is open once: PMINDEX_STATUS_ALREADY_OPEN while there is a
// handle of it, which the threads share.
pmindex_status pmindex_index_open(const pmindex_pool *pool,
                                  const char *name,
                                  pmindex_index **index);

// Opens the index name as pmindex_index_open() does, with batches: pmindex_write_batch() and
// pmindex_compare_exchange() work on it. The first time this makes an index named name and ".batch" in
// the pool (so name has 58 bytes at most); from then on every opening of name is one with batches, and
// finishes the batches that a crash interrupted. A write costs a lock of its key more.
pmindex_status pmindex_index_open_with_batches(const pmindex_pool *pool,
                                               const char *name,
                                               pmindex_index **index);

// Removes the index name and frees all its blocks, durably when it returns; PMINDEX_STATUS_NO_SUCH if
// there is none. A crash leaves it whole or gone. PMINDEX_STATUS_ALREADY_OPEN (and it stays) while there is
// a handle of it.
pmindex_status pmindex_index_drop(const pmindex_pool *pool,
                                  const char *name);

// Closes an index and saves what makes the next opening fast. PMINDEX_STATUS_BUSY (and it stays
// open) while a cursor of it is open. Of a map this closes the handle; its index is closed with the store.
// No other thread may be using the handle.
pmindex_status pmindex_index_close(pmindex_index *index);

// Facts about an index.
pmindex_status pmindex_index_info(const pmindex_index *index, pmindex_info *info);

// How many records there are.
pmindex_status pmindex_len(const pmindex_index *index, uint64_t *records);

// Verifies the whole structure, and counts its records (records may be null).
pmindex_status pmindex_check(const pmindex_index *index, uint64_t *records);

// The value of key, or PMINDEX_STATUS_NOT_FOUND. Copies into the caller's buffer; takes no lock.
pmindex_status pmindex_get(const pmindex_index *index,
                           pmindex_bytes key,
                           pmindex_buffer *value);

// PMINDEX_STATUS_OK if key is present, else PMINDEX_STATUS_NOT_FOUND.
pmindex_status pmindex_contains(const pmindex_index *index, pmindex_bytes key);

// Adds a record, durably when it returns; PMINDEX_STATUS_EXISTS if the key exists.
pmindex_status pmindex_try_insert(const pmindex_index *index,
                                  pmindex_bytes key,
                                  pmindex_bytes value);

// Replaces a value, durably when it returns; PMINDEX_STATUS_NOT_FOUND if the key is missing.
pmindex_status pmindex_update(const pmindex_index *index, pmindex_bytes key, pmindex_bytes value);

// Adds or replaces, durably when it returns. replaced (may be null) becomes whether the key was
// there; old (may be null) gets the value it had then. If that does not fit, nothing changes, len
// of the buffer says how much there is, and the function returns PMINDEX_STATUS_TOO_SMALL.
pmindex_status pmindex_insert(const pmindex_index *index,
                              pmindex_bytes key,
                              pmindex_bytes value,
                              pmindex_buffer *old,
                              bool *replaced);

// Adds or replaces, durably when it returns, without reading the old value. added (may be null)
// becomes whether the key is new.
pmindex_status pmindex_put(const pmindex_index *index,
                           pmindex_bytes key,
                           pmindex_bytes value,
                           bool *added);

// Removes a record, durably when it returns; PMINDEX_STATUS_NOT_FOUND if the key is missing.
// value (may be null) gets the value that was removed. If it does not fit, the record stays, len of
// the buffer says how much there is, and the function returns PMINDEX_STATUS_TOO_SMALL.
pmindex_status pmindex_remove(const pmindex_index *index,
                              pmindex_bytes key,
                              pmindex_buffer *value);

// Removes the least record, durably when it returns; PMINDEX_STATUS_NOT_FOUND if there is none. key and
// value get it, and either may be null. If one of them does not fit, the record stays, len of both
// buffers says how much there is, and the function returns PMINDEX_STATUS_TOO_SMALL; the next call may find
// another record.
pmindex_status pmindex_pop_first(const pmindex_index *index,
                                 pmindex_buffer *key,
                                 pmindex_buffer *value);

// Removes the greatest record, as pmindex_pop_first() the least.
pmindex_status pmindex_pop_last(const pmindex_index *index,
                                pmindex_buffer *key,
                                pmindex_buffer *value);

// Hands the records of a range (null: all) to visit, in order. Each was present and durable at
// some moment of the scan. visited (may be null) becomes how many there were.
pmindex_status pmindex_scan(const pmindex_index *index,
                            const pmindex_range *range,
                            pmindex_visit visit,
                            void *context,
                            uint64_t *visited);

// Removes the records of a range (null: all), each durably. Other threads go on meanwhile; what they
// add to the range may stay. A crash leaves some of the records, all of them whole. removed (may be
// null) becomes how many there were.
pmindex_status pmindex_remove_range(const pmindex_index *index,
                                    const pmindex_range *range,
                                    uint64_t *removed);

// Removes all records, as pmindex_remove_range() does.
pmindex_status pmindex_clear(const pmindex_index *index);

// Removes the records for which keep returns false, each durably and as keep saw it: a value that
// another thread replaces meanwhile is judged again. A crash leaves some of them, all of them whole.
// removed (may be null) becomes how many there were.
pmindex_status pmindex_retain(const pmindex_index *index,
                              pmindex_visit keep,
                              void *context,
                              uint64_t *removed);

// Looks many keys up, with cache misses that overlap: each value and status of the count lookups
// becomes what pmindex_get() would give. PMINDEX_STATUS_OK whatever they are; after an error none is set.
pmindex_status pmindex_get_many(const pmindex_index *index,
                                pmindex_lookup *lookups,
                                size_t count);

// Adds count records with few fences for all of them, durably when it returns; one whose key exists stays as
// it was. Each status becomes PMINDEX_STATUS_OK or PMINDEX_STATUS_EXISTS. A crash leaves some of them,
// each whole. After an error those before it are added, it and the rest have its code; an argument that
// is refused sets no status and adds nothing.
pmindex_status pmindex_try_insert_many(const pmindex_index *index,
                                       pmindex_addition *records,
                                       size_t count);

// Makes count changes of one index: all of them or, whatever happens, none. They are durable when it returns.
// Of several changes of one key the last one counts. The index is a map of a store, or was opened with
// pmindex_index_open_with_batches(); of the latter, readers may see some changes before the others.
//
// PMINDEX_STATUS_TOO_LONG if the changes are too much. After another error nothing is changed of a map but
// for PMINDEX_STATUS_UNFINISHED; of another index the batch may be durable, and its changes are made then
// before the next write, or when the index is opened again.
pmindex_status pmindex_write_batch(const pmindex_index *index,
                                   const pmindex_change *changes,
                                   size_t count);

// Replaces the value of key by wanted (null: removes the record) if it is expected (null: if there is
// none), durably when it returns. Otherwise nothing is changed: PMINDEX_STATUS_DIFFERENT, and found
// (may be null) gets the value, or PMINDEX_STATUS_NOT_FOUND if there is none, or
// PMINDEX_STATUS_TOO_SMALL if it does not fit. The index is a map of a store, or was opened with
// pmindex_index_open_with_batches().
pmindex_status pmindex_compare_exchange(const pmindex_index *index,
                                        pmindex_bytes key,
                                        const pmindex_bytes *expected,
                                        const pmindex_bytes *wanted,
                                        pmindex_buffer *found);

// pmindex_get() for an index of uint64_t to uint64_t. value may be null.
pmindex_status pmindex_u64_get(const pmindex_index *index, uint64_t key, uint64_t *value);

// pmindex_insert() for an index of uint64_t to uint64_t. old and replaced may be null.
pmindex_status pmindex_u64_insert(const pmindex_index *index,
                                  uint64_t key,
                                  uint64_t value,
                                  uint64_t *old,
                                  bool *replaced);

// pmindex_try_insert() for an index of uint64_t to uint64_t.
pmindex_status pmindex_u64_try_insert(const pmindex_index *index, uint64_t key, uint64_t value);

// pmindex_update() for an index of uint64_t to uint64_t.
pmindex_status pmindex_u64_update(const pmindex_index *index, uint64_t key, uint64_t value);

// pmindex_put() for an index of uint64_t to uint64_t. added may be null.
pmindex_status pmindex_u64_put(const pmindex_index *index,
                               uint64_t key,
                               uint64_t value,
                               bool *added);

// pmindex_remove() for an index of uint64_t to uint64_t. value may be null.
pmindex_status pmindex_u64_remove(const pmindex_index *index, uint64_t key, uint64_t *value);

// Begins a scan of a range (null: everything). On failure *cursor is null.
pmindex_status pmindex_cursor_open(const pmindex_index *index,
                                   const pmindex_range *range,
                                   pmindex_cursor **cursor);

// The next record, or PMINDEX_STATUS_END. The bytes belong to the cursor and are good until the
// next call on it. Either place may be null.
pmindex_status pmindex_cursor_next(pmindex_cursor *cursor,
                                   pmindex_bytes *key,
                                   pmindex_bytes *value);

// Ends a scan.
pmindex_status pmindex_cursor_close(pmindex_cursor *cursor);

// Creates a store in a pool in a new file. options may be null. On failure *store is null.
pmindex_status pmindex_store_create(const char *path,
                                    const pmindex_store_options *options,
                                    pmindex_store **store);

// Opens the store in a pool; after a crash, recovery is part of it. options may be null. On failure
// *store is null.
pmindex_status pmindex_store_open(const char *path,
                                  const pmindex_store_options *options,
                                  pmindex_store **store);

// Opens the store in a pool, and creates it if there is no such file.
pmindex_status pmindex_store_open_or_create(const char *path,
                                            const pmindex_store_options *options,
                                            pmindex_store **store);

// Opens the store in a pool that is open, and stays so when the store is closed: one with a twin, for
// instance. While the store is open, use the indexes of the pool through it alone. options may be null.
// On failure *store is null.
pmindex_status pmindex_store_in_pool(const pmindex_pool *pool,
                                     const pmindex_store_options *options,
                                     pmindex_store **store);

// Closes a store and its maps, and the pool that was opened with it, durably. PMINDEX_STATUS_BUSY (and it stays
// open) while a map, snapshot, transaction, watch or cursor of it is open. After any other error the handle is
// closed, and the next opening recovers. No other thread may be using the handle.
pmindex_status pmindex_store_close(pmindex_store *store);

// Waits as pmindex_pool_sync() does for the store's pool.
pmindex_status pmindex_store_sync(const pmindex_store *store);

// Opens the map name: the one that is there, of whatever kind, or a new one of the kind called kind (null:
// "fptree"). PMINDEX_STATUS_WRONG_TYPE if it is there with keys or values of other types. It is an index:
// every function for indexes works on it, and each single write is a transaction of its own. There may be
// several handles of a map. On failure *map is null.
pmindex_status pmindex_store_map(const pmindex_store *store,
                                 const char *name,
                                 const char *kind,
                                 uint32_t key_type,
                                 uint32_t value_type,
                                 pmindex_index **map);

// Opens the map name, of whatever kind and types it was created with; PMINDEX_STATUS_NO_SUCH if there is
// none. On failure *map is null.
pmindex_status pmindex_store_existing_map(const pmindex_store *store,
                                          const char *name,
                                          pmindex_index **map);

// Removes the map name and frees all its blocks, durably when it returns; PMINDEX_STATUS_NO_SUCH if there is
// none, PMINDEX_STATUS_BUSY (and it stays) while there is a handle of it, or a transaction has used it.
pmindex_status pmindex_store_drop_map(const pmindex_store *store,
                                      const char *name);

// The name of the store's map number number, from 0, in the order of the names (no final zero byte;
// name->len says how long). PMINDEX_STATUS_END if there are fewer.
pmindex_status pmindex_store_map_name(const pmindex_store *store,
                                      size_t number,
                                      pmindex_buffer *name);

// What goes on in a store, in lines for a person to read: space, maps, commits, readers of the past, the log, splits
// of leaves, fences that wait for a disk (UTF-8, no final zero byte; text->len says how long).
pmindex_status pmindex_store_report(const pmindex_store *store,
                                    pmindex_buffer *text);

// Verifies the store's log and all its maps, and counts their records (records may be null).
pmindex_status pmindex_store_check(const pmindex_store *store, uint64_t *records);

// Writes one moment of all maps, now, to a new store in a new file, while writers go on. The file has its name
// when it is complete and durable; PMINDEX_STATUS_ALREADY_EXISTS if there is one. What writers replace meanwhile is kept in memory, up to the limit of the
// options: PMINDEX_STATUS_SNAPSHOT_ENDED beyond it. records (may be null) becomes how many there are.
pmindex_status pmindex_store_backup(const pmindex_store *store,
                                    const char *path,
                                    uint64_t *records);

// Begins a transaction. Commit it, or roll it back. On failure *transaction is null.
pmindex_status pmindex_transaction_begin(const pmindex_store *store,
                                         pmindex_transaction **transaction);

// Makes the changes of a transaction, all or none, durably when it returns; serializable. The handle is
// closed whatever this returns but PMINDEX_STATUS_BUSY. PMINDEX_STATUS_CONFLICT: another commit
// changed what this one read, so nothing was changed: begin again. PMINDEX_STATUS_TOO_LONG: the changes
// are too much for the store's log. Nothing is changed after any error but PMINDEX_STATUS_UNFINISHED.
pmindex_status pmindex_transaction_commit(pmindex_transaction *transaction);

// Ends a transaction without its changes.
pmindex_status pmindex_transaction_rollback(pmindex_transaction *transaction);

// Runs a transaction and commits it, again if it conflicts with others: up to 100 times, then
// PMINDEX_STATUS_CONFLICT. What body returns if that is not 0, and nothing is changed then;
// otherwise as pmindex_transaction_commit().
pmindex_status pmindex_transaction_run(const pmindex_store *store,
                                       pmindex_body body,
                                       void *context);

// The value of key as the transaction sees it; as pmindex_get().
pmindex_status pmindex_transaction_get(const pmindex_transaction *transaction,
                                       const pmindex_index *map,
                                       pmindex_bytes key,
                                       pmindex_buffer *value);

// Adds or replaces a record, without reading: no commit of others to the same key conflicts with it.
pmindex_status pmindex_transaction_put(const pmindex_transaction *transaction,
                                       const pmindex_index *map,
                                       pmindex_bytes key,
                                       pmindex_bytes value);

// Removes a record; as pmindex_remove(). value may be null.
pmindex_status pmindex_transaction_remove(const pmindex_transaction *transaction,
                                          const pmindex_index *map,
                                          pmindex_bytes key,
                                          pmindex_buffer *value);

// Hands the records of a range (null: all) to visit, in order, as the transaction sees them. It reads some
// records ahead: of those, visit does not see its own changes, and what others commit to
// them conflicts. visited (may be null) becomes how many it heard of.
pmindex_status pmindex_transaction_scan(const pmindex_transaction *transaction,
                                        const pmindex_index *map,
                                        const pmindex_range *range,
                                        pmindex_visit visit,
                                        void *context,
                                        uint64_t *visited);

// pmindex_cursor_open() for a map as the transaction sees it; as pmindex_transaction_scan() reads.
pmindex_status pmindex_transaction_cursor(const pmindex_transaction *transaction,
                                          const pmindex_index *map,
                                          const pmindex_range *range,
                                          pmindex_cursor **cursor);

// A point for pmindex_transaction_rollback_to(): *savepoint becomes its number.
pmindex_status pmindex_transaction_savepoint(const pmindex_transaction *transaction,
                                             uint64_t *savepoint);

// Takes back the changes since a savepoint of this transaction, which goes on. What was read stays read. A
// savepoint that is later than one that was gone back to is that one.
pmindex_status pmindex_transaction_rollback_to(const pmindex_transaction *transaction,
                                               uint64_t savepoint);

// Takes a snapshot: this moment of all maps. End it. On failure *snapshot is null.
pmindex_status pmindex_snapshot_begin(const pmindex_store *store, pmindex_snapshot **snapshot);

// The value of key at that moment; as pmindex_get(). PMINDEX_STATUS_SNAPSHOT_ENDED if what writers have
// replaced since takes more memory than the store may keep.
pmindex_status pmindex_snapshot_get(const pmindex_snapshot *snapshot,
                                    const pmindex_index *map,
                                    pmindex_bytes key,
                                    pmindex_buffer *value);

// Hands the records of a range (null: all) at that moment to visit, in order. visited (may be null) becomes
// how many it heard of.
pmindex_status pmindex_snapshot_scan(const pmindex_snapshot *snapshot,
                                     const pmindex_index *map,
                                     const pmindex_range *range,
                                     pmindex_visit visit,
                                     void *context,
                                     uint64_t *visited);

// pmindex_cursor_open() for a map at that moment, which the cursor keeps when the snapshot is ended.
pmindex_status pmindex_snapshot_cursor(const pmindex_snapshot *snapshot,
                                       const pmindex_index *map,
                                       const pmindex_range *range,
                                       pmindex_cursor **cursor);

// Ends a snapshot.
pmindex_status pmindex_snapshot_end(pmindex_snapshot *snapshot);

// Watches the commits of all maps from now on. End it. On failure *watch is null.
pmindex_status pmindex_watch_begin(const pmindex_store *store, pmindex_watch **watch);

// Watches the commits after a position that pmindex_watch_position() gave, in this process or another (0: all
// that were kept from the first on). PMINDEX_STATUS_WATCH_ENDED if the log does not have all of them: too many
// came since, or the store does not keep them (keep_commits of its options). On failure *watch is null.
pmindex_status pmindex_watch_begin_after(const pmindex_store *store,
                                         uint64_t position,
                                         pmindex_watch **watch);

// Goes on to the next commit, for the functions below; waits for it up to wait_ms milliseconds.
// PMINDEX_STATUS_END if none came, and the one before stays. PMINDEX_STATUS_WATCH_ENDED if more came than the
// log keeps: read the maps, and begin another watch.
pmindex_status pmindex_watch_next(const pmindex_watch *watch,
                                  uint32_t wait_ms);

// The position behind the commit that was returned last: whoever keeps it goes on there.
pmindex_status pmindex_watch_position(const pmindex_watch *watch, uint64_t *position);

// The name of map number number, from 0, of those that the commit changed (no final zero byte; name->len
// says how long). PMINDEX_STATUS_END if there are fewer, PMINDEX_STATUS_NOT_FOUND if there was no commit yet.
pmindex_status pmindex_watch_map_name(const pmindex_watch *watch,
                                      size_t number,
                                      pmindex_buffer *name);

// Whether the map name, which was empty, was loaded by the commit: what it had then came at once, and is not
// among the changes.
pmindex_status pmindex_watch_is_loaded(const pmindex_watch *watch,
                                       const char *name,
                                       bool *loaded);

// Hands the changes of the commit to a map to visit, by key. visited (may be null) becomes how many it heard
// of. PMINDEX_STATUS_NOT_FOUND if there was no commit yet.
pmindex_status pmindex_watch_changes(const pmindex_watch *watch,
                                     const pmindex_index *map,
                                     pmindex_visit_change visit,
                                     void *context,
                                     uint64_t *visited);

// Ends a watch.
pmindex_status pmindex_watch_end(pmindex_watch *watch);

// Opens the map name of records that expire: the one that is there, or a new one. PMINDEX_STATUS_WRONG_TYPE
// if it is there with other types, or its records do not expire. Close it. On failure *map is null.
pmindex_status pmindex_store_expiring_map(const pmindex_store *store,
                                          const char *name,
                                          uint32_t key_type,
                                          uint32_t value_type,
                                          pmindex_expiring **map);

// The value of key, or PMINDEX_STATUS_NOT_FOUND if there is none that is not over.
pmindex_status pmindex_expiring_get(const pmindex_expiring *map,
                                    pmindex_bytes key,
                                    pmindex_buffer *value);

// Adds or replaces a record, which lives for lives_ms milliseconds (UINT64_MAX: for ever), durably when it
// returns.
pmindex_status pmindex_expiring_put(const pmindex_expiring *map,
                                    pmindex_bytes key,
                                    pmindex_bytes value,
                                    uint64_t lives_ms);

// Adds a record, as pmindex_expiring_put(); PMINDEX_STATUS_EXISTS (and no change) if there is one that is not
// over.
pmindex_status pmindex_expiring_try_insert(const pmindex_expiring *map,
                                           pmindex_bytes key,
                                           pmindex_bytes value,
                                           uint64_t lives_ms);

// Lets a record live for lives_ms milliseconds from now on; PMINDEX_STATUS_NOT_FOUND if there is none that
// is not over.
pmindex_status pmindex_expiring_renew(const pmindex_expiring *map,
                                      pmindex_bytes key,
                                      uint64_t lives_ms);

// Removes a record; PMINDEX_STATUS_NOT_FOUND if there was none that was not over.
pmindex_status pmindex_expiring_remove(const pmindex_expiring *map, pmindex_bytes key);

// Hands the records of a range (null: all) that are not over to visit, in order. visited (may be null)
// becomes how many it heard of.
pmindex_status pmindex_expiring_scan(const pmindex_expiring *map,
                                     const pmindex_range *range,
                                     pmindex_visit visit,
                                     void *context,
                                     uint64_t *visited);

// As pmindex_expiring_get(), in a transaction.
pmindex_status pmindex_transaction_expiring_get(const pmindex_transaction *transaction,
                                                const pmindex_expiring *map,
                                                pmindex_bytes key,
                                                pmindex_buffer *value);

// As pmindex_expiring_put(), in a transaction.
pmindex_status pmindex_transaction_expiring_put(const pmindex_transaction *transaction,
                                                const pmindex_expiring *map,
                                                pmindex_bytes key,
                                                pmindex_bytes value,
                                                uint64_t lives_ms);

// Looks at up to records records, where the call before ended, and removes those that are over; removed (may
// be null) becomes how many. PMINDEX_STATUS_END when it has come to the end of the map: the next call begins
// anew. Nothing else gives their space back: call it now and then. One that is written again meanwhile stays.
pmindex_status pmindex_expiring_sweep(const pmindex_expiring *map,
                                      size_t records,
                                      uint64_t *removed);

// Closes an expiring map. The store is closed after it.
pmindex_status pmindex_expiring_close(pmindex_expiring *map);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PMINDEX_H */
