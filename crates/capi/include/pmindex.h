/*
 * pmindex: ordered indexes in persistent memory, or in any file that can be mapped.
 *
 * A write that has returned PMINDEX_STATUS_OK is durable: it survives what the medium of its pool survives
 * (pmindex_pool_describe() tells), and is there when the pool is opened again.
 *
 * Every function returns a pmindex_status; pmindex_last_error() has the message.
 *
 * Threads. Any number of threads may call functions at once, also on the same handle. Exceptions: while one thread
 * closes or ends a handle, no other may use it; a cursor, a transaction or a watch is for one thread at a time.
 *
 * Handles. The library looks a handle up and never dereferences it: null, closed and invented handles are errors.
 * An object keeps the object that it was opened from open: closing that returns PMINDEX_STATUS_BUSY. So close
 * cursors first, then end transactions, snapshots and watches and close indexes, then the store, then the pool. A
 * process that ends without closing loses nothing.
 *
 * Memory. The program owns what it passes; the library reads or fills it during the call, and does not keep it. A
 * place that a function fills must not overlap another argument. A function that removes and returns a value changes
 * nothing if the value does not fit: PMINDEX_STATUS_TOO_SMALL. Bytes that the library returns by pointer are valid
 * during the callback, or until the next call on the cursor; never free them.
 *
 * Link with -lpmindex (and with libpmindex.a: -lpthread -ldl -lm). Paths, names and texts are UTF-8.
 */

#ifndef PMINDEX_H
#define PMINDEX_H

/* Generated from the sources of pmindex-capi by cbindgen: change those. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// For pmindex_options.flags: open for reading only; other readers may do so too.
#define PMINDEX_READ_ONLY 1

// For pmindex_options.flags: do not grow the pool automatically.
#define PMINDEX_FIXED_SIZE 2

// For pmindex_options.flags: execute the flushes of persistent memory on another medium.
#define PMINDEX_EMULATE_PM 4

// For pmindex_options.flags: no msync() on an ordinary file: writes survive only a crash of the process.
#define PMINDEX_NO_WRITE_BACK 8

// For pmindex_options.flags: open the pool even if the memory modules report lost data.
#define PMINDEX_ACCEPT_DIRTY_SHUTDOWN 16

// For pmindex_options.flags: on an ordinary file a fence waits for a write to a journal beside it, which
// all threads share, instead of an msync(). While the pool is open, and after a crash, the file and its
// journal (the same name with .journal appended) belong together.
#define PMINDEX_JOURNAL 32

// The result of a call. 0 is success, a positive code is an answer, a negative one is an error, which
// pmindex_last_error() describes.
typedef enum {
  // Success.
  PMINDEX_STATUS_OK = 0,
  // There is no such key; nothing was changed.
  PMINDEX_STATUS_NOT_FOUND = 1,
  // The key exists already; nothing was changed.
  PMINDEX_STATUS_EXISTS = 2,
  // The cursor has no further record, the watch no further commit, or the list no further entry.
  PMINDEX_STATUS_END = 3,
  // The result does not fit into the buffer; its len is the required length, and nothing was changed.
  PMINDEX_STATUS_TOO_SMALL = 4,
  // The record is not as expected; nothing was changed.
  PMINDEX_STATUS_DIFFERENT = 5,
  // An argument is null, out of range, not UTF-8, or not of the index's types.
  PMINDEX_STATUS_INVALID_ARGUMENT = -1,
  // The handle is closed, of another kind, or not a handle.
  PMINDEX_STATUS_BAD_HANDLE = -2,
  // The file, or an index of this name, does not exist.
  PMINDEX_STATUS_NO_SUCH = -3,
  // The file or an index of this name exists already.
  PMINDEX_STATUS_ALREADY_EXISTS = -4,
  // Permission denied.
  PMINDEX_STATUS_PERMISSION = -5,
  // In use: the file by another process; the pool by its open indexes or its store; the store by its
  // maps, snapshots, transactions and watches; the index by its cursors; the transaction or watch by
  // another call; or all slots for writers are in use.
  PMINDEX_STATUS_BUSY = -6,
  // The pool is full and may not grow, or the device is full.
  PMINDEX_STATUS_FULL = -7,
  // The key or value is longer than possible, or the changes of a batch or transaction are too large.
  PMINDEX_STATUS_TOO_LONG = -8,
  // The file is not a pool, or has a format that this library does not know.
  PMINDEX_STATUS_NOT_A_POOL = -9,
  // The pool is damaged.
  PMINDEX_STATUS_CORRUPT = -10,
  // The medium supports less durability than the options require.
  PMINDEX_STATUS_TOO_WEAK = -11,
  // A write-back failed: from now on no write is acknowledged; reads still work.
  PMINDEX_STATUS_DURABILITY_LOST = -12,
  // The pool is open for reading only.
  PMINDEX_STATUS_READ_ONLY = -13,
  // The index has another kind or other types.
  PMINDEX_STATUS_WRONG_TYPE = -14,
  // The operating system reported an error.
  PMINDEX_STATUS_SYSTEM = -15,
  // A bug in this library: please report it with the message.
  PMINDEX_STATUS_INTERNAL = -16,
  // The index is already open in this process: share its handle between threads.
  PMINDEX_STATUS_ALREADY_OPEN = -17,
  // Another commit changed what the transaction has read. Nothing was changed: begin a new transaction. Or a
  // call that closes a handle has closed it, and the other writers had all slots for seconds.
  PMINDEX_STATUS_CONFLICT = -18,
  // The snapshot or transaction has ended: the values that writers have replaced since it began take
  // more memory than the store may keep.
  PMINDEX_STATUS_SNAPSHOT_ENDED = -19,
  // The transaction is durable and committed, but not all of its changes could be made in the maps: they
  // are made before the next write, or when the store is opened again.
  PMINDEX_STATUS_UNFINISHED = -20,
  // The store's log no longer has all commits after the position of the watch, or never had.
  PMINDEX_STATUS_WATCH_ENDED = -21,
} pmindex_status;

// A type of keys and values.
typedef enum {
  // Numbers: uint64_t.
  PMINDEX_TYPE_U64 = 0,
  // Byte strings, ordered as by memcmp(); a prefix comes before longer strings.
  PMINDEX_TYPE_BYTES = 1,
} pmindex_type;

// The least that writes must survive. Writes survive the most that the medium supports.
typedef enum {
  // No requirement.
  PMINDEX_DURABILITY_ANY = 0,
  // A crash or kill of the process.
  PMINDEX_DURABILITY_PROCESS = 1,
  // A power failure, on any medium: an msync() per fence on an ordinary file.
  PMINDEX_DURABILITY_MSYNC = 2,
  // A power failure, on persistent memory.
  PMINDEX_DURABILITY_PERSISTENT = 3,
} pmindex_durability;

// A scan in progress. It is a handle, like pmindex_pool. Use a cursor from one thread at a time: the
// bytes that it returns are valid until the next call on it. Close a cursor of a transaction before you
// end the transaction.
typedef struct pmindex_cursor pmindex_cursor;

// A map of a store whose records expire: reads do not find an expired record. It is a handle, like
// pmindex_pool. The record holds its time of expiry, by the system's clock. An expired record takes
// space until it is overwritten or pmindex_expiring_sweep() removes it.
typedef struct pmindex_expiring pmindex_expiring;

// An ordered index in a pool, or a map of a store: an index that takes part in the store's transactions
// and snapshots. It is a handle, like pmindex_pool.
typedef struct pmindex_index pmindex_index;

// A pool of indexes in a file. It is a handle: compare it and pass it on, but never dereference it. Any
// number of threads may call functions on the same handle, except those that close it.
typedef struct pmindex_pool pmindex_pool;

// A consistent view of all maps of a store: everything that was committed before it was taken, and nothing
// later. Writers continue. It is a handle, like pmindex_pool.
typedef struct pmindex_snapshot pmindex_snapshot;

// Named maps in one pool, with transactions and snapshots over all of them. It is a handle, like
// pmindex_pool. Close its maps and cursors, and end its snapshots, transactions and watches before you
// close it.
typedef struct pmindex_store pmindex_store;

// A transaction over the maps of a store: all of its changes take effect, or none. It reads the state at
// the moment of its first read, with its own changes. It is a handle, like pmindex_pool, for one thread
// at a time (not always the same one): a call during another call returns PMINDEX_STATUS_BUSY. Commit
// and rollback close it. Keep it short: while one is open, the values that writes replace are kept in
// memory.
typedef struct pmindex_transaction pmindex_transaction;

// A stream of the changes of commits to the maps of a store, in the order of the commits; a single write
// is a commit too. It is a handle, like pmindex_pool, for one thread at a time: a call during another
// call returns PMINDEX_STATUS_BUSY. While one is open, each single write takes two fences more, for its
// record in the store's log.
typedef struct pmindex_watch pmindex_watch;

// Options of pools. All zero is the default.
typedef struct {
  // The size of a new pool in bytes; 0: 64 MiB.
  uint64_t size;
  // The size in bytes to which a pool may grow; 0: 16 times its size, at least 64 GiB.
  uint64_t max_size;
  // The number of threads that can write to a new pool at the same time, up to 4096; 0: up to 64, by its
  // size.
  uint32_t writers;
  // The least durability to accept, one of pmindex_durability; opening fails with
  // PMINDEX_STATUS_TOO_WEAK on a weaker medium.
  uint32_t durability;
  // Any of PMINDEX_READ_ONLY, PMINDEX_FIXED_SIZE, PMINDEX_EMULATE_PM,
  // PMINDEX_NO_WRITE_BACK, PMINDEX_ACCEPT_DIRTY_SHUTDOWN, PMINDEX_JOURNAL, combined with |.
  uint32_t flags;
  // For later versions; must be 0.
  uint32_t reserved;
} pmindex_options;

// Space for bytes that a function returns. Set data and capacity; the function sets len to the
// length of the value, whether it fits or not. If it does not fit, the function copies nothing and returns
// PMINDEX_STATUS_TOO_SMALL.
typedef struct {
  // Where to copy the bytes; may be null if capacity is 0.
  void *data;
  // The number of bytes that fit.
  size_t capacity;
  // Set to the length of the value.
  size_t len;
} pmindex_buffer;

// Called with paused = 1 to stop all writers of the pool between two writes, and with 0 to let them
// continue. It must not unwind (throw), nor write to the pool.
typedef void (*pmindex_pause)(void *context, uint8_t paused);

// Facts about an open index.
typedef struct {
  // Its kind, such as "fptree"; a constant string.
  const char *kind;
  // The type of its keys, one of pmindex_type.
  uint32_t key_type;
  // The type of its values, one of pmindex_type.
  uint32_t value_type;
  // How long opening and recovery took, in nanoseconds.
  uint64_t opened_in_ns;
  // true if it had been closed cleanly.
  bool was_clean;
} pmindex_info;

// Bytes: a key or a value. A number (PMINDEX_TYPE_U64) is the 8 bytes of a uint64_t.
typedef struct {
  // The first byte; may be null if len is 0.
  const void *data;
  // The number of bytes.
  size_t len;
} pmindex_bytes;

// A range of records and a direction. All zero: all records, ascending.
typedef struct {
  // The first key; ignored if has_from is 0.
  pmindex_bytes from;
  // The key after the last; ignored if has_to is 0.
  pmindex_bytes to;
  // 1 if there is a first key, else 0.
  uint8_t has_from;
  // 1 if there is a key after the last, else 0.
  uint8_t has_to;
  // 1 to go from the last record to the first, else 0.
  uint8_t reverse;
  // 1 for the records whose keys begin with the bytes of from, else 0. With 1, has_from, to and
  // has_to are ignored. Only for byte strings.
  uint8_t is_prefix;
} pmindex_range;

// Called for each record; returns false to stop. The bytes are valid during this call. It must not unwind
// (throw), and may call any function of this library except those that close.
typedef bool (*pmindex_visit)(void *context, pmindex_bytes key, pmindex_bytes value);

// Options of stores. All zero is the default.
typedef struct {
  // Options of the pool; ignored by pmindex_store_in_pool().
  pmindex_options pool;
  // The memory in bytes, approximately, that snapshots and transactions may hold for replaced values; 0:
  // 256 MiB. Beyond it the oldest of them ends.
  uint64_t past_bytes;
  // The number of bytes, approximately, of the newest commits that the store's log keeps, so that a
  // watch can continue where one of another process, or one before a crash, ended. Each single write
  // then takes two fences more. 0: none.
  uint64_t keep_commits;
  // For later versions; must be 0.
  uint64_t reserved;
} pmindex_store_options;

// The body of a transaction: reads and writes maps through it, and returns 0 to commit it, or a
// pmindex_status to roll it back. It may run several times. It must not commit or roll back itself, nor
// unwind (throw).
typedef int32_t (*pmindex_body)(pmindex_transaction *transaction, void *context);

// Called for each change, with the new value, or with value null for a removed record. Returns false to
// stop. The bytes are valid during this call. It must not unwind (throw), and may call any function of
// this library except those that close and those of the watch.
typedef bool (*pmindex_visit_change)(void *context, pmindex_bytes key, const pmindex_bytes *value);

// A key to look up or to remove, and the result.
typedef struct {
  // The key.
  pmindex_bytes key;
  // Gets the value.
  pmindex_buffer value;
  // Set to the status that pmindex_get() or pmindex_remove() would return.
  pmindex_status status;
} pmindex_lookup;

// A record to write, and the result.
typedef struct {
  // The key.
  pmindex_bytes key;
  // The value.
  pmindex_bytes value;
  // Set to the status that pmindex_try_insert() or pmindex_put() would return.
  pmindex_status status;
} pmindex_addition;

// A change of one record.
typedef struct {
  // The key.
  pmindex_bytes key;
  // The new value; ignored if the record is to be removed.
  pmindex_bytes value;
  // 1 to remove the record if the key is present, else 0.
  uint8_t remove;
} pmindex_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the calling thread's last failed call, which names the file, the index or the
// argument. Never null; empty if no call has failed. Valid until this thread's next failing call.
const char *pmindex_last_error(void);

// Returns a code in a few words. Never null; the string is constant. status may be any number.
const char *pmindex_status_name(int32_t status);

// Creates a pool in a new file. options may be null. On failure *pool is null.
pmindex_status pmindex_pool_create(const char *path,
                                   const pmindex_options *options,
                                   pmindex_pool **pool);

// Opens a pool, and recovers it after a crash. options may be null. On failure *pool is null.
pmindex_status pmindex_pool_open(const char *path,
                                 const pmindex_options *options,
                                 pmindex_pool **pool);

// Opens a pool, or creates it if the file does not exist.
pmindex_status pmindex_pool_open_or_create(const char *path,
                                           const pmindex_options *options,
                                           pmindex_pool **pool);

// Opens a pool in memory (on tmpfs) with a twin on a disk, or creates it if neither exists. Acknowledged
// writes survive a crash or kill of the process. After a power failure the pool has its state at one
// moment, at most every_ms milliseconds (0: 100) and the time of a write to the disk earlier.
// pmindex_pool_sync() waits until the twin has everything. If the pool is no longer in memory, opening
// creates it anew from the twin.
pmindex_status pmindex_pool_open_with_twin(const char *path,
                                           const pmindex_options *options,
                                           const char *twin,
                                           uint32_t every_ms,
                                           pmindex_pool **pool);

// Closes a pool and marks it as closed cleanly, durably. Returns PMINDEX_STATUS_BUSY, and leaves the
// pool open, while an index or a store of it is open. After any other error the handle is closed, and the
// next opening recovers. No other thread may be using the handle.
pmindex_status pmindex_pool_close(pmindex_pool *pool);

// Returns free runs of 2 MiB to the file system while the pool is in use: the file becomes sparse, and a
// run gets its blocks back before it is used again. Sets *given (may be null) to the number of bytes by
// which the file shrank on the medium, 0 if the medium does not support it.
pmindex_status pmindex_pool_compact(const pmindex_pool *pool,
                                    uint64_t *given);

// Waits until everything that was acknowledged before survives as much as the pool's medium allows. In a
// pool that survives power failures there is nothing to wait for. A file on a disk that was opened with
// PMINDEX_NO_WRITE_BACK is synchronised, and survives a power failure until the next write. The twin of
// a pool gets everything. After PMINDEX_STATUS_DURABILITY_LOST every later call fails.
pmindex_status pmindex_pool_sync(const pmindex_pool *pool);

// Gets a description of the pool's medium and of what its writes survive, in one or two sentences (without
// a final zero byte; text->len is the length).
pmindex_status pmindex_pool_describe(const pmindex_pool *pool,
                                     pmindex_buffer *text);

// Gets the pool's present size, and the number of its bytes in use. Either may be null.
pmindex_status pmindex_pool_size(const pmindex_pool *pool, uint64_t *size, uint64_t *used);

// Gets the name of the pool's index number number, from 0 (without a final zero byte; name->len is the
// length). Returns PMINDEX_STATUS_END if there are fewer.
pmindex_status pmindex_pool_index_name(const pmindex_pool *pool,
                                       size_t number,
                                       pmindex_buffer *name);

// Copies a pool to a file while it is in use. The copy replaces a file of this name when it is complete
// and durable. When most of the pool is copied, calls pause with 1, copies the rest, and calls it with 0
// (null: no thread writes meanwhile). If a thread wrote nevertheless, returns PMINDEX_STATUS_BUSY, and
// there is no copy. Sets bytes (may be null) to the length of the copy. (pmindex_store_backup() pauses
// no writer.)
pmindex_status pmindex_pool_backup(const pmindex_pool *pool,
                                   const char *path,
                                   pmindex_pause pause,
                                   void *context,
                                   uint64_t *bytes);

// Returns the name of kind number number, from 0; null if there are fewer.
const char *pmindex_kind_name(size_t number);

// Creates the index name of the kind kind (such as "fptree"), with keys and values of the given types
// (pmindex_type). Names that end in ".batch" are refused everywhere: see pmindex_index_open_with_batches().
// On failure *index is null.
pmindex_status pmindex_index_create(const pmindex_pool *pool,
                                    const char *name,
                                    const char *kind,
                                    uint32_t key_type,
                                    uint32_t value_type,
                                    pmindex_index **index);

// Opens and recovers the index name, of any kind and types. On failure *index is null. An index can be
// open once: while a handle exists, returns PMINDEX_STATUS_ALREADY_OPEN. Threads share the handle.
pmindex_status pmindex_index_open(const pmindex_pool *pool,
                                  const char *name,
                                  pmindex_index **index);

// Opens the index name like pmindex_index_open(), with batches: pmindex_write_batch() and
// pmindex_compare_exchange() work on it. The first call creates an index named name and ".batch" in the
// pool, the log of the batches (so name has at most 58 bytes, and no other index or map may have a name that
// ends in ".batch"). From then on every opening of name has batches, and finishes
// those that a crash interrupted. Each write also locks its key.
pmindex_status pmindex_index_open_with_batches(const pmindex_pool *pool,
                                               const char *name,
                                               pmindex_index **index);

// Removes the index name and frees all its blocks, durably when it returns; returns
// PMINDEX_STATUS_NO_SUCH if it does not exist. After a crash it is either unchanged or removed. Returns
// PMINDEX_STATUS_ALREADY_OPEN, and removes nothing, while a handle of it exists.
pmindex_status pmindex_index_drop(const pmindex_pool *pool,
                                  const char *name);

// Closes an index, and saves data that makes the next opening fast. Returns PMINDEX_STATUS_BUSY, and
// leaves the index open, while a cursor of it is open. For a map this closes only the handle; closing the
// store closes its index. No other thread may be using the handle.
pmindex_status pmindex_index_close(pmindex_index *index);

// Gets facts about an index.
pmindex_status pmindex_index_info(const pmindex_index *index, pmindex_info *info);

// Sets *records to the number of records.
pmindex_status pmindex_len(const pmindex_index *index, uint64_t *records);

// Verifies the whole structure, and sets records (may be null) to the number of records.
pmindex_status pmindex_check(const pmindex_index *index, uint64_t *records);

// Gets the value of key; returns PMINDEX_STATUS_NOT_FOUND if it is missing. Copies into the caller's
// buffer; takes no lock.
pmindex_status pmindex_get(const pmindex_index *index,
                           pmindex_bytes key,
                           pmindex_buffer *value);

// Returns PMINDEX_STATUS_OK if key is present, else PMINDEX_STATUS_NOT_FOUND.
pmindex_status pmindex_contains(const pmindex_index *index, pmindex_bytes key);

// Adds a record, durably when it returns; returns PMINDEX_STATUS_EXISTS if the key exists.
pmindex_status pmindex_try_insert(const pmindex_index *index,
                                  pmindex_bytes key,
                                  pmindex_bytes value);

// Replaces a value, durably when it returns; returns PMINDEX_STATUS_NOT_FOUND if the key is missing.
pmindex_status pmindex_update(const pmindex_index *index,
                              pmindex_bytes key,
                              pmindex_bytes value);

// Adds or replaces a record, durably when it returns. Sets replaced (may be null) to whether the key was
// present, and copies the old value to old (may be null). If that does not fit, nothing changes, the
// buffer's len is the required length, and it returns PMINDEX_STATUS_TOO_SMALL.
pmindex_status pmindex_insert(const pmindex_index *index,
                              pmindex_bytes key,
                              pmindex_bytes value,
                              pmindex_buffer *old,
                              bool *replaced);

// Adds or replaces a record, durably when it returns, without reading the old value. Sets added (may be
// null) to whether the key is new.
pmindex_status pmindex_put(const pmindex_index *index,
                           pmindex_bytes key,
                           pmindex_bytes value,
                           bool *added);

// Removes a record, durably when it returns; returns PMINDEX_STATUS_NOT_FOUND if the key is missing.
// Copies the removed value to value (may be null). If it does not fit, the record stays, the buffer's
// len is the required length, and it returns PMINDEX_STATUS_TOO_SMALL.
pmindex_status pmindex_remove(const pmindex_index *index,
                              pmindex_bytes key,
                              pmindex_buffer *value);

// Removes the record with the least key, durably when it returns; returns PMINDEX_STATUS_NOT_FOUND if
// the index is empty. Copies the record to key and value, either of which may be null. If one does not
// fit, the record stays, len of both buffers is the required length, and it returns
// PMINDEX_STATUS_TOO_SMALL; the next call may find another record.
pmindex_status pmindex_pop_first(const pmindex_index *index,
                                 pmindex_buffer *key,
                                 pmindex_buffer *value);

// Removes the record with the greatest key, like pmindex_pop_first().
pmindex_status pmindex_pop_last(const pmindex_index *index,
                                pmindex_buffer *key,
                                pmindex_buffer *value);

// Calls visit with the records of a range (null: all), in order. Each record was present and durable at
// some moment of the scan. Sets visited (may be null) to the number of calls.
pmindex_status pmindex_scan(const pmindex_index *index,
                            const pmindex_range *range,
                            pmindex_visit visit,
                            void *context,
                            uint64_t *visited);

// Removes the records of a range (null: all), each durably. Other threads continue meanwhile; records that
// they add to the range may stay. A crash leaves some of the records, each complete. Sets removed (may
// be null) to their number.
pmindex_status pmindex_remove_range(const pmindex_index *index,
                                    const pmindex_range *range,
                                    uint64_t *removed);

// Removes all records, like pmindex_remove_range().
pmindex_status pmindex_clear(const pmindex_index *index);

// Removes the records for which keep returns false, each durably. If another thread replaces a value
// meanwhile, keep is called again. A crash leaves some of the records, each complete. Sets removed
// (may be null) to their number.
pmindex_status pmindex_retain(const pmindex_index *index,
                              pmindex_visit keep,
                              void *context,
                              uint64_t *removed);

// Looks up many keys, with overlapping cache misses. Sets value and status of each of the count
// lookups as pmindex_get() would. Returns PMINDEX_STATUS_OK whatever these are; after an error no status
// is set.
pmindex_status pmindex_get_many(const pmindex_index *index,
                                pmindex_lookup *lookups,
                                size_t count);

// Adds count records with few fences, durably when it returns; a record whose key exists stays as it
// was. Sets each status to PMINDEX_STATUS_OK or PMINDEX_STATUS_EXISTS. A crash leaves some of the
// records, each complete. After an error the records before it are added; the record that failed and the
// rest have its code as their status. A refused argument sets no status and adds nothing.
pmindex_status pmindex_try_insert_many(const pmindex_index *index,
                                       pmindex_addition *records,
                                       size_t count);

// Adds or replaces count records, durably when it returns; records whose keys are new share fences. Of
// records with the same key the last one stays. Sets each status to what it returns. A crash or an error
// leaves some of the records written, each complete. A refused argument sets no status and writes nothing.
pmindex_status pmindex_put_many(const pmindex_index *index,
                                pmindex_addition *records,
                                size_t count);

// Removes many keys, each by itself, durably when it returns. Sets value and status of each of the
// count lookups as pmindex_remove() would: a record whose value does not fit stays. A value whose data
// is null is not returned, and its len is not set. Returns PMINDEX_STATUS_OK whatever the statuses are;
// a refused argument sets none and removes nothing.
pmindex_status pmindex_remove_many(const pmindex_index *index,
                                   pmindex_lookup *lookups,
                                   size_t count);

// Makes count changes of one index: all of them or, after a crash or error, none. They are durable when
// it returns. Of several changes of one key only the last takes effect. The index must be a map of a
// store, or opened with pmindex_index_open_with_batches(); of the latter, readers may see some changes
// before the others.
//
// Returns PMINDEX_STATUS_TOO_LONG if the changes are too large. After another error a map is unchanged,
// except after PMINDEX_STATUS_UNFINISHED. A batch of another index may be durable after an error: then
// its changes are made before the next write, or when the index is opened again.
pmindex_status pmindex_write_batch(const pmindex_index *index,
                                   const pmindex_change *changes,
                                   size_t count);

// Replaces the value of key by wanted (null: removes the record) if it equals expected (null: if the
// key is missing), durably when it returns. Otherwise nothing is changed, and it returns
// PMINDEX_STATUS_DIFFERENT with the value in found (may be null), PMINDEX_STATUS_NOT_FOUND if the
// key is missing, or PMINDEX_STATUS_TOO_SMALL if the value does not fit. The index must be a map of a
// store, or opened with pmindex_index_open_with_batches().
pmindex_status pmindex_compare_exchange(const pmindex_index *index,
                                        pmindex_bytes key,
                                        const pmindex_bytes *expected,
                                        const pmindex_bytes *wanted,
                                        pmindex_buffer *found);

// Does what pmindex_get() does, for an index of uint64_t to uint64_t. value may be null.
pmindex_status pmindex_u64_get(const pmindex_index *index, uint64_t key, uint64_t *value);

// Does what pmindex_insert() does, for an index of uint64_t to uint64_t. old and replaced may be null.
pmindex_status pmindex_u64_insert(const pmindex_index *index,
                                  uint64_t key,
                                  uint64_t value,
                                  uint64_t *old,
                                  bool *replaced);

// Does what pmindex_try_insert() does, for an index of uint64_t to uint64_t.
pmindex_status pmindex_u64_try_insert(const pmindex_index *index, uint64_t key, uint64_t value);

// Does what pmindex_update() does, for an index of uint64_t to uint64_t.
pmindex_status pmindex_u64_update(const pmindex_index *index, uint64_t key, uint64_t value);

// Does what pmindex_put() does, for an index of uint64_t to uint64_t. added may be null.
pmindex_status pmindex_u64_put(const pmindex_index *index,
                               uint64_t key,
                               uint64_t value,
                               bool *added);

// Does what pmindex_remove() does, for an index of uint64_t to uint64_t. value may be null.
pmindex_status pmindex_u64_remove(const pmindex_index *index, uint64_t key, uint64_t *value);

// Begins a scan of a range (null: all records). On failure *cursor is null.
pmindex_status pmindex_cursor_open(const pmindex_index *index,
                                   const pmindex_range *range,
                                   pmindex_cursor **cursor);

// Returns the next record, or PMINDEX_STATUS_END. The cursor owns the bytes, which are valid until the
// next call on it. key or value may be null.
pmindex_status pmindex_cursor_next(pmindex_cursor *cursor,
                                   pmindex_bytes *key,
                                   pmindex_bytes *value);

// Ends a scan.
pmindex_status pmindex_cursor_close(pmindex_cursor *cursor);

// Creates a store in a pool in a new file. options may be null. On failure *store is null.
pmindex_status pmindex_store_create(const char *path,
                                    const pmindex_store_options *options,
                                    pmindex_store **store);

// Opens the store in a pool, and recovers it after a crash. options may be null. On failure *store is
// null.
pmindex_status pmindex_store_open(const char *path,
                                  const pmindex_store_options *options,
                                  pmindex_store **store);

// Opens the store in a pool, or creates it if the file does not exist.
pmindex_status pmindex_store_open_or_create(const char *path,
                                            const pmindex_store_options *options,
                                            pmindex_store **store);

// Opens the store in a pool that is already open, for example one with a twin; closing the store leaves
// the pool open. While the store is open, use the indexes of the pool only through it. options may be
// null. On failure *store is null.
pmindex_status pmindex_store_in_pool(const pmindex_pool *pool,
                                     const pmindex_store_options *options,
                                     pmindex_store **store);

// Closes a store and its maps durably, and also the pool if it was opened with the store. Returns
// PMINDEX_STATUS_BUSY, and leaves the store open, while a map, snapshot, transaction, watch or cursor of
// it is open. After any other error the handle is closed, and the next opening recovers. No other thread
// may be using the handle.
pmindex_status pmindex_store_close(pmindex_store *store);

// Does what pmindex_pool_sync() does, for the store's pool.
pmindex_status pmindex_store_sync(const pmindex_store *store);

// Opens the map name, of any kind, or creates it with the kind kind (null: "fptree"). Returns
// PMINDEX_STATUS_WRONG_TYPE if a map of this name has keys or values of other types. A map is an index:
// every function for indexes works on it, and each single write is a transaction of its own. A map may
// have several handles. On failure *map is null.
pmindex_status pmindex_store_map(const pmindex_store *store,
                                 const char *name,
                                 const char *kind,
                                 uint32_t key_type,
                                 uint32_t value_type,
                                 pmindex_index **map);

// Opens the map name, of any kind and types; returns PMINDEX_STATUS_NO_SUCH if it does not exist. On
// failure *map is null.
pmindex_status pmindex_store_existing_map(const pmindex_store *store,
                                          const char *name,
                                          pmindex_index **map);

// Removes the map name and frees all its blocks, durably when it returns. Returns
// PMINDEX_STATUS_NO_SUCH if it does not exist, and PMINDEX_STATUS_BUSY, removing nothing, while it has
// a handle or an open transaction has used it.
pmindex_status pmindex_store_drop_map(const pmindex_store *store,
                                      const char *name);

// Gets the name of the store's map number number, from 0, in the order of names (without a final zero
// byte; name->len is the length). Returns PMINDEX_STATUS_END if there are fewer.
pmindex_status pmindex_store_map_name(const pmindex_store *store,
                                      size_t number,
                                      pmindex_buffer *name);

// Gets a report about the store as lines of text: space, maps, commits, open snapshots and transactions,
// the log, splits of leaves, fences that wait for a disk (UTF-8, without a final zero byte; text->len is
// the length).
pmindex_status pmindex_store_report(const pmindex_store *store,
                                    pmindex_buffer *text);

// Verifies the store's log and all its maps, and sets records (may be null) to the number of their
// records.
pmindex_status pmindex_store_check(const pmindex_store *store,
                                   uint64_t *records);

// Writes the present state of all maps to a new store in a new file, while writers continue. The file gets
// its name when it is complete and durable; returns PMINDEX_STATUS_ALREADY_EXISTS if the name exists.
// The values that writers replace meanwhile are kept in memory, up to the limit of the options; beyond it,
// returns PMINDEX_STATUS_SNAPSHOT_ENDED. Sets records (may be null) to the number of records.
pmindex_status pmindex_store_backup(const pmindex_store *store,
                                    const char *path,
                                    uint64_t *records);

// Begins a transaction. Commit it, or roll it back. On failure *transaction is null.
pmindex_status pmindex_transaction_begin(const pmindex_store *store,
                                         pmindex_transaction **transaction);

// Commits a transaction: makes all of its changes or none, durably when it returns; serializable. Closes
// the handle, except when it returns PMINDEX_STATUS_BUSY. PMINDEX_STATUS_CONFLICT: another commit
// changed what this transaction has read, or the other writers had all slots for seconds: begin again. PMINDEX_STATUS_TOO_LONG: the changes are too
// large for the store's log. After an error nothing is changed, except after PMINDEX_STATUS_UNFINISHED.
pmindex_status pmindex_transaction_commit(pmindex_transaction *transaction);

// Ends a transaction and discards its changes.
pmindex_status pmindex_transaction_rollback(pmindex_transaction *transaction);

// Runs a transaction and commits it; if it conflicts with others, runs it again, up to 100 times, then
// returns PMINDEX_STATUS_CONFLICT. If body returns a status that is not 0, returns that, and nothing
// is changed. Otherwise returns what pmindex_transaction_commit() returns.
pmindex_status pmindex_transaction_run(const pmindex_store *store,
                                       pmindex_body body,
                                       void *context);

// Gets the value of key as the transaction sees it, like pmindex_get().
pmindex_status pmindex_transaction_get(const pmindex_transaction *transaction,
                                       const pmindex_index *map,
                                       pmindex_bytes key,
                                       pmindex_buffer *value);

// Adds or replaces a record without reading it: no other commit to the same key conflicts with it.
pmindex_status pmindex_transaction_put(const pmindex_transaction *transaction,
                                       const pmindex_index *map,
                                       pmindex_bytes key,
                                       pmindex_bytes value);

// Removes a record, like pmindex_remove(). value may be null.
pmindex_status pmindex_transaction_remove(const pmindex_transaction *transaction,
                                          const pmindex_index *map,
                                          pmindex_bytes key,
                                          pmindex_buffer *value);

// Calls visit with the records of a range (null: all), in order, as the transaction sees them. It reads
// some records ahead: among these, changes that visit makes are not seen, and commits of others
// conflict. Sets visited (may be null) to the number of calls.
pmindex_status pmindex_transaction_scan(const pmindex_transaction *transaction,
                                        const pmindex_index *map,
                                        const pmindex_range *range,
                                        pmindex_visit visit,
                                        void *context,
                                        uint64_t *visited);

// Opens a cursor like pmindex_cursor_open(), for a map as the transaction sees it; it reads ahead like
// pmindex_transaction_scan().
pmindex_status pmindex_transaction_cursor(const pmindex_transaction *transaction,
                                          const pmindex_index *map,
                                          const pmindex_range *range,
                                          pmindex_cursor **cursor);

// Sets a savepoint for pmindex_transaction_rollback_to(), and sets *savepoint to its number.
pmindex_status pmindex_transaction_savepoint(const pmindex_transaction *transaction,
                                             uint64_t *savepoint);

// Undoes the changes since a savepoint of this transaction, which continues. Records read since then still
// count as read. Rolling back to a savepoint ends the later savepoints: their numbers then mean this one.
pmindex_status pmindex_transaction_rollback_to(const pmindex_transaction *transaction,
                                               uint64_t savepoint);

// Takes a snapshot of all maps. End it after use. On failure *snapshot is null.
pmindex_status pmindex_snapshot_begin(const pmindex_store *store, pmindex_snapshot **snapshot);

// Gets the value of key in the snapshot, like pmindex_get(). Returns PMINDEX_STATUS_SNAPSHOT_ENDED if
// the values that writers have replaced since take more memory than the store may keep.
pmindex_status pmindex_snapshot_get(const pmindex_snapshot *snapshot,
                                    const pmindex_index *map,
                                    pmindex_bytes key,
                                    pmindex_buffer *value);

// Calls visit with the records of a range (null: all) in the snapshot, in order. Sets visited (may be
// null) to the number of calls.
pmindex_status pmindex_snapshot_scan(const pmindex_snapshot *snapshot,
                                     const pmindex_index *map,
                                     const pmindex_range *range,
                                     pmindex_visit visit,
                                     void *context,
                                     uint64_t *visited);

// Opens a cursor like pmindex_cursor_open(), for a map in the snapshot; the cursor stays valid when the
// snapshot is ended.
pmindex_status pmindex_snapshot_cursor(const pmindex_snapshot *snapshot,
                                       const pmindex_index *map,
                                       const pmindex_range *range,
                                       pmindex_cursor **cursor);

// Ends a snapshot.
pmindex_status pmindex_snapshot_end(pmindex_snapshot *snapshot);

// Watches the commits of all maps from now on. End it after use. On failure *watch is null.
pmindex_status pmindex_watch_begin(const pmindex_store *store, pmindex_watch **watch);

// Watches the commits after a position that pmindex_watch_position() returned, in this process or another
// (0: from the first commit that was kept). Returns PMINDEX_STATUS_WATCH_ENDED if the log does not have
// all of them: too many followed, or the store does not keep them (keep_commits of its options). On
// failure *watch is null.
pmindex_status pmindex_watch_begin_after(const pmindex_store *store,
                                         uint64_t position,
                                         pmindex_watch **watch);

// Moves on to the next commit, which the functions below describe; waits for it up to wait_ms
// milliseconds. Returns PMINDEX_STATUS_END if none came; the last commit then stays. Returns
// PMINDEX_STATUS_WATCH_ENDED if more commits came than the log keeps: read the maps, and begin another
// watch.
pmindex_status pmindex_watch_next(const pmindex_watch *watch,
                                  uint32_t wait_ms);

// Gets the position after the last returned commit, from which a later watch can continue.
pmindex_status pmindex_watch_position(const pmindex_watch *watch, uint64_t *position);

// Gets the name of map number number, from 0, of those that the commit changed (without a final zero
// byte; name->len is the length). Returns PMINDEX_STATUS_END if there are fewer,
// PMINDEX_STATUS_NOT_FOUND before the first commit.
pmindex_status pmindex_watch_map_name(const pmindex_watch *watch,
                                      size_t number,
                                      pmindex_buffer *name);

// Tells whether the commit bulk-loaded the map name, which was empty: the records loaded then are not
// among the changes.
pmindex_status pmindex_watch_is_loaded(const pmindex_watch *watch,
                                       const char *name,
                                       bool *loaded);

// Calls visit with the changes of the commit to a map, in the order of keys. Sets visited (may be
// null) to the number of calls. Returns PMINDEX_STATUS_NOT_FOUND before the first commit.
pmindex_status pmindex_watch_changes(const pmindex_watch *watch,
                                     const pmindex_index *map,
                                     pmindex_visit_change visit,
                                     void *context,
                                     uint64_t *visited);

// Ends a watch.
pmindex_status pmindex_watch_end(pmindex_watch *watch);

// Opens the map name of records that expire, or creates it. Returns PMINDEX_STATUS_WRONG_TYPE if a map
// of this name has other types or records that do not expire. Close the handle after use. On failure
// *map is null.
pmindex_status pmindex_store_expiring_map(const pmindex_store *store,
                                          const char *name,
                                          uint32_t key_type,
                                          uint32_t value_type,
                                          pmindex_expiring **map);

// Gets the value of key; returns PMINDEX_STATUS_NOT_FOUND if the key is missing or its record has
// expired.
pmindex_status pmindex_expiring_get(const pmindex_expiring *map,
                                    pmindex_bytes key,
                                    pmindex_buffer *value);

// Adds or replaces a record that lives for lives_ms milliseconds (UINT64_MAX: for ever). Durable when it
// returns.
pmindex_status pmindex_expiring_put(const pmindex_expiring *map,
                                    pmindex_bytes key,
                                    pmindex_bytes value,
                                    uint64_t lives_ms);

// Adds a record, like pmindex_expiring_put(); returns PMINDEX_STATUS_EXISTS, and changes nothing, if the
// key has an unexpired record.
pmindex_status pmindex_expiring_try_insert(const pmindex_expiring *map,
                                           pmindex_bytes key,
                                           pmindex_bytes value,
                                           uint64_t lives_ms);

// Lets a record live for lives_ms milliseconds from now on; returns PMINDEX_STATUS_NOT_FOUND if the
// key is missing or its record has expired.
pmindex_status pmindex_expiring_renew(const pmindex_expiring *map,
                                      pmindex_bytes key,
                                      uint64_t lives_ms);

// Removes a record; returns PMINDEX_STATUS_NOT_FOUND if the key was missing or its record had expired.
pmindex_status pmindex_expiring_remove(const pmindex_expiring *map,
                                       pmindex_bytes key);

// Calls visit with the unexpired records of a range (null: all), in order. Sets visited (may be null)
// to the number of calls.
pmindex_status pmindex_expiring_scan(const pmindex_expiring *map,
                                     const pmindex_range *range,
                                     pmindex_visit visit,
                                     void *context,
                                     uint64_t *visited);

// Does what pmindex_expiring_get() does, in a transaction.
pmindex_status pmindex_transaction_expiring_get(const pmindex_transaction *transaction,
                                                const pmindex_expiring *map,
                                                pmindex_bytes key,
                                                pmindex_buffer *value);

// Does what pmindex_expiring_put() does, in a transaction.
pmindex_status pmindex_transaction_expiring_put(const pmindex_transaction *transaction,
                                                const pmindex_expiring *map,
                                                pmindex_bytes key,
                                                pmindex_bytes value,
                                                uint64_t lives_ms);

// Examines up to records records, from where the last call ended, and removes the expired ones; sets
// removed (may be null) to their number. Returns PMINDEX_STATUS_END at the end of the map; the next
// call begins at its start. Call it regularly: nothing else frees the space of expired records. A record
// that is written meanwhile stays. records is at least 1: no records lead to no end.
pmindex_status pmindex_expiring_sweep(const pmindex_expiring *map,
                                      size_t records,
                                      uint64_t *removed);

// Closes an expiring map. Close it before its store.
pmindex_status pmindex_expiring_close(pmindex_expiring *map);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PMINDEX_H */
