/* Stores from C: maps, transactions, snapshots, backups, and what they refuse. */
#include "expect.h"
#include <pthread.h>

enum { TEXT = PMINDEX_TYPE_BYTES, NUMBER = PMINDEX_TYPE_U64 };

/* The keys of a scan, in a row. */
struct seen {
    char text[256];
    pmindex_transaction *transaction;
    pmindex_index *map;
};

static bool never(void *context, pmindex_bytes key, const pmindex_bytes *value) {
    (void)context;
    (void)key;
    EXPECT(value == NULL && false);
    return false;
}

static bool see(void *context, pmindex_bytes key, pmindex_bytes value) {
    struct seen *seen = context;
    strncat(seen->text, key.data, key.len);
    strcat(seen->text, "=");
    strncat(seen->text, value.data, value.len);
    strcat(seen->text, " ");
    if (seen->transaction != NULL) {
        /* A callback may use the transaction, and not end it unseen. */
        OK(pmindex_transaction_put(seen->transaction, seen->map, key, bytes("seen")));
    }
    return true;
}

static void maps(pmindex_store *store) {
    pmindex_index *words, *again, *numbers, *other;
    OK(pmindex_store_map(store, "words", NULL, TEXT, TEXT, &words));
    OK(pmindex_store_map(store, "numbers", "hart", NUMBER, NUMBER, &numbers));
    IS(pmindex_store_map(store, "words", NULL, TEXT, NUMBER, &other), WRONG_TYPE);
    EXPECT(other == NULL);
    IS(pmindex_store_map(store, "more", "no kind", TEXT, TEXT, &other), INVALID_ARGUMENT);
    IS(pmindex_store_map(store, "more", NULL, TEXT, 9, &other), INVALID_ARGUMENT);
    IS(pmindex_store_map(store, NULL, NULL, TEXT, TEXT, &other), INVALID_ARGUMENT);
    IS(pmindex_store_map(store, "more", NULL, TEXT, TEXT, NULL), INVALID_ARGUMENT);
    IS(pmindex_store_existing_map(store, "more", &other), NO_SUCH);
    pmindex_info info;
    OK(pmindex_index_info(numbers, &info));
    EXPECT(strcmp(info.kind, "hart") == 0 && info.key_type == NUMBER && info.value_type == NUMBER);

    /* Two handles are one map. */
    OK(pmindex_store_existing_map(store, "words", &again));
    OK(pmindex_put(words, bytes("one"), bytes("1"), NULL));
    OK(pmindex_contains(again, bytes("one")));
    OK(pmindex_index_close(words));
    OK(pmindex_contains(again, bytes("one")));
    IS(pmindex_contains(words, bytes("one")), BAD_HANDLE);

    struct room name;
    OK(pmindex_store_map_name(store, 0, room(&name, 64)));
    EXPECT(holds(&name, "numbers"));
    OK(pmindex_store_map_name(store, 1, room(&name, 64)));
    EXPECT(holds(&name, "words"));
    IS(pmindex_store_map_name(store, 2, room(&name, 64)), END);

    IS(pmindex_store_drop_map(store, "words"), BUSY);
    IS(pmindex_store_close(store), BUSY);
    SAYS("open maps");
    OK(pmindex_index_close(again));
    OK(pmindex_u64_put(numbers, 7, 49, NULL));
    uint64_t value, records;
    OK(pmindex_u64_get(numbers, 7, &value));
    EXPECT(value == 49);
    OK(pmindex_index_close(numbers));
    OK(pmindex_store_check(store, &records));
    EXPECT(records == 2);
    OK(pmindex_store_drop_map(store, "numbers"));
    IS(pmindex_store_drop_map(store, "numbers"), NO_SUCH);
    OK(pmindex_store_drop_map(store, "words"));
    OK(pmindex_store_sync(store));
}

static void transactions(pmindex_store *store) {
    pmindex_index *from, *to;
    OK(pmindex_store_map(store, "from", NULL, TEXT, TEXT, &from));
    OK(pmindex_store_map(store, "to", NULL, TEXT, TEXT, &to));
    OK(pmindex_put(from, bytes("a"), bytes("1"), NULL));
    pmindex_transaction *transaction, *other;
    struct room value;

    /* It sees its own changes, and nobody else does before it commits. */
    OK(pmindex_transaction_begin(store, &transaction));
    OK(pmindex_transaction_get(transaction, from, bytes("a"), room(&value, 8)));
    EXPECT(holds(&value, "1"));
    OK(pmindex_transaction_put(transaction, to, bytes("a"), bytes("1")));
    IS(pmindex_transaction_get(transaction, to, bytes("a"), room(&value, 0)), TOO_SMALL);
    OK(pmindex_transaction_get(transaction, to, bytes("a"), room(&value, 1)));
    static char long_value[5000];
    IS(pmindex_transaction_remove(transaction, from, bytes("a"), room(&value, 0)), TOO_SMALL);
    EXPECT(value.buffer.len == 1);
    OK(pmindex_transaction_remove(transaction, from, bytes("a"), room(&value, 1)));
    EXPECT(holds(&value, "1"));
    IS(pmindex_transaction_remove(transaction, from, bytes("a"), NULL), NOT_FOUND);
    IS(pmindex_transaction_get(transaction, from, bytes("a"), room(&value, 1)), NOT_FOUND);
    OK(pmindex_contains(from, bytes("a")));
    IS(pmindex_contains(to, bytes("a")), NOT_FOUND);
    IS(pmindex_transaction_put(transaction, to, (pmindex_bytes){long_value, sizeof long_value}, bytes("")), TOO_LONG);
    IS(pmindex_store_close(store), BUSY);
    OK(pmindex_transaction_commit(transaction));
    IS(pmindex_transaction_commit(transaction), BAD_HANDLE);
    IS(pmindex_transaction_get(transaction, to, bytes("a"), room(&value, 1)), BAD_HANDLE);
    IS(pmindex_contains(from, bytes("a")), NOT_FOUND);
    OK(pmindex_contains(to, bytes("a")));

    /* Savepoints, and the way back. */
    uint64_t first, second;
    OK(pmindex_transaction_begin(store, &transaction));
    OK(pmindex_transaction_put(transaction, to, bytes("b"), bytes("2")));
    OK(pmindex_transaction_savepoint(transaction, &first));
    OK(pmindex_transaction_put(transaction, to, bytes("b"), bytes("3")));
    OK(pmindex_transaction_savepoint(transaction, &second));
    OK(pmindex_transaction_remove(transaction, to, bytes("a"), NULL));
    OK(pmindex_transaction_rollback_to(transaction, second));
    OK(pmindex_transaction_get(transaction, to, bytes("a"), room(&value, 8)));
    OK(pmindex_transaction_rollback_to(transaction, first));
    OK(pmindex_transaction_get(transaction, to, bytes("b"), room(&value, 8)));
    EXPECT(holds(&value, "2"));
    IS(pmindex_transaction_rollback_to(transaction, 77), INVALID_ARGUMENT);
    IS(pmindex_transaction_savepoint(transaction, NULL), INVALID_ARGUMENT);
    OK(pmindex_transaction_rollback(transaction));
    IS(pmindex_transaction_rollback(transaction), BAD_HANDLE);
    IS(pmindex_contains(to, bytes("b")), NOT_FOUND);

    /* Of two that read what the other writes, one commits. */
    OK(pmindex_transaction_begin(store, &transaction));
    OK(pmindex_transaction_begin(store, &other));
    OK(pmindex_transaction_get(transaction, to, bytes("a"), room(&value, 8)));
    OK(pmindex_transaction_get(other, to, bytes("a"), room(&value, 8)));
    OK(pmindex_transaction_put(transaction, from, bytes("x"), bytes("1")));
    OK(pmindex_transaction_put(transaction, to, bytes("a"), bytes("2")));
    OK(pmindex_transaction_put(other, to, bytes("a"), bytes("3")));
    OK(pmindex_transaction_commit(transaction));
    IS(pmindex_transaction_commit(other), CONFLICT);
    SAYS("conflicts");
    IS(pmindex_transaction_rollback(other), BAD_HANDLE);
    OK(pmindex_get(to, bytes("a"), room(&value, 8)));
    EXPECT(holds(&value, "2"));

    /* Ranges see the transaction's changes, and phantoms conflict. */
    OK(pmindex_clear(from));
    OK(pmindex_clear(to));
    OK(pmindex_put(to, bytes("k1"), bytes("1"), NULL));
    OK(pmindex_put(to, bytes("k3"), bytes("3"), NULL));
    OK(pmindex_transaction_begin(store, &transaction));
    OK(pmindex_transaction_put(transaction, to, bytes("k2"), bytes("2")));
    struct seen seen = {{0}, transaction, to};
    pmindex_range range = {.from = bytes("k"), .is_prefix = 1, .reverse = 1};
    uint64_t visited = 0;
    OK(pmindex_transaction_scan(transaction, to, &range, see, &seen, &visited));
    EXPECT(visited == 3 && strcmp(seen.text, "k3=3 k2=2 k1=1 ") == 0);
    pmindex_cursor *cursor;
    pmindex_bytes key, found;
    OK(pmindex_transaction_cursor(transaction, to, NULL, &cursor));
    OK(pmindex_cursor_next(cursor, &key, &found));
    EXPECT(key.len == 2 && memcmp(key.data, "k1", 2) == 0 && memcmp(found.data, "seen", 4) == 0);
    OK(pmindex_put(to, bytes("k4"), bytes("a phantom"), NULL));
    IS(pmindex_transaction_commit(transaction), CONFLICT);
    /* A cursor has read ahead; it goes on no further than that. */
    OK(pmindex_cursor_next(cursor, &key, &found));
    OK(pmindex_cursor_close(cursor));
    OK(pmindex_get(to, bytes("k1"), room(&value, 8)));
    EXPECT(holds(&value, "1"));

    /* What is no map of this store. */
    OK(pmindex_transaction_begin(store, &transaction));
    IS(pmindex_transaction_get(transaction, NULL, bytes("a"), room(&value, 1)), INVALID_ARGUMENT);
    IS(pmindex_transaction_get((pmindex_transaction *)to, to, bytes("a"), room(&value, 1)), BAD_HANDLE);
    IS(pmindex_transaction_get(transaction, (pmindex_index *)store, bytes("a"), room(&value, 1)), BAD_HANDLE);
    IS(pmindex_transaction_scan(transaction, to, NULL, NULL, NULL, NULL), INVALID_ARGUMENT);
    IS(pmindex_transaction_get(transaction, to, bytes("a"), NULL), INVALID_ARGUMENT);
    OK(pmindex_transaction_rollback(transaction));
    IS(pmindex_transaction_begin(NULL, &transaction), INVALID_ARGUMENT);
    EXPECT(transaction == NULL);
    OK(pmindex_index_close(from));
    OK(pmindex_index_close(to));
}

/* Four threads move money; the sum stays, at each moment of a snapshot too. */
enum { ACCOUNTS = 8, EACH = 100 };
static pmindex_store *bank;
static pmindex_index *accounts, *moves;

struct move {
    uint64_t from, to, runs;
};

static uint64_t balance(pmindex_transaction *transaction, uint64_t account) {
    uint64_t money = 0;
    pmindex_buffer buffer = {.data = &money, .capacity = sizeof money};
    pmindex_status status = pmindex_transaction_get(transaction, accounts, number(&account), &buffer);
    return status == PMINDEX_STATUS_OK ? money : UINT64_MAX;
}

static int32_t move(pmindex_transaction *transaction, void *context) {
    struct move *this = context;
    this->runs += 1;
    uint64_t from = balance(transaction, this->from), to = balance(transaction, this->to);
    if (from == 0 || from == UINT64_MAX || to == UINT64_MAX) {
        return PMINDEX_STATUS_DIFFERENT;
    }
    from -= 1;
    to += 1;
    int32_t status = pmindex_transaction_put(transaction, accounts, number(&this->from), number(&from));
    if (status == 0) {
        status = pmindex_transaction_put(transaction, accounts, number(&this->to), number(&to));
    }
    if (status == 0) {
        status = pmindex_transaction_put(transaction, moves, number(&this->from), number(&to));
    }
    return status;
}

static void *move_about(void *context) {
    uint64_t seed = (uint64_t)(uintptr_t)context;
    for (int i = 0; i < 300; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct move this = {(seed >> 33) % ACCOUNTS, (seed >> 40) % ACCOUNTS, 0};
        if (this.from != this.to) {
            pmindex_status status = pmindex_transaction_run(bank, move, &this);
            EXPECT(status == PMINDEX_STATUS_OK || status == PMINDEX_STATUS_DIFFERENT ||
                   status == PMINDEX_STATUS_CONFLICT);
        }
    }
    return NULL;
}

static bool add(void *context, pmindex_bytes key, pmindex_bytes value) {
    uint64_t money;
    (void)key;
    memcpy(&money, value.data, sizeof money);
    *(uint64_t *)context += money;
    return true;
}

static int32_t refuse(pmindex_transaction *transaction, void *context) {
    uint64_t one = 1;
    OK(pmindex_transaction_put(transaction, accounts, number(&one), number(&one)));
    return *(int32_t *)context;
}

static void snapshots(pmindex_store *store) {
    bank = store;
    OK(pmindex_store_map(store, "accounts", NULL, NUMBER, NUMBER, &accounts));
    OK(pmindex_store_map(store, "moves", "sptree", NUMBER, NUMBER, &moves));
    for (uint64_t i = 0; i < ACCOUNTS; i++) {
        OK(pmindex_u64_put(accounts, i, EACH, NULL));
    }
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        EXPECT(pthread_create(&threads[i], NULL, move_about, (void *)(i + 1)) == 0);
    }
    for (int i = 0; i < 40; i++) {
        pmindex_snapshot *snapshot;
        uint64_t sum = 0, visited = 0;
        OK(pmindex_snapshot_begin(store, &snapshot));
        OK(pmindex_snapshot_scan(snapshot, accounts, NULL, add, &sum, &visited));
        EXPECT(sum == ACCOUNTS * EACH && visited == ACCOUNTS);
        OK(pmindex_snapshot_end(snapshot));
        IS(pmindex_snapshot_end(snapshot), BAD_HANDLE);
        IS(pmindex_snapshot_scan(snapshot, accounts, NULL, add, &sum, NULL), BAD_HANDLE);
    }
    for (int i = 0; i < 4; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }

    /* A body that refuses changes nothing. */
    uint64_t before, after;
    OK(pmindex_u64_get(accounts, 1, &before));
    int32_t code = PMINDEX_STATUS_EXISTS;
    IS(pmindex_transaction_run(store, refuse, &code), EXISTS);
    code = 4711;
    IS(pmindex_transaction_run(store, refuse, &code), INVALID_ARGUMENT);
    SAYS("4711");
    IS(pmindex_transaction_run(store, NULL, NULL), INVALID_ARGUMENT);
    OK(pmindex_u64_get(accounts, 1, &after));
    EXPECT(before == after);

    /* A moment stays what it was; a cursor keeps it when the snapshot is ended. */
    pmindex_snapshot *snapshot;
    pmindex_cursor *cursor;
    pmindex_bytes value;
    uint64_t one = 1, then = 0;
    pmindex_buffer buffer = {.data = &then, .capacity = sizeof then};
    OK(pmindex_u64_put(accounts, 1, 5, NULL));
    OK(pmindex_snapshot_begin(store, &snapshot));
    OK(pmindex_u64_remove(accounts, 1, NULL));
    OK(pmindex_snapshot_get(snapshot, accounts, number(&one), &buffer));
    EXPECT(then == 5);
    buffer.capacity = 4;
    IS(pmindex_snapshot_get(snapshot, accounts, number(&one), &buffer), TOO_SMALL);
    IS(pmindex_snapshot_get(snapshot, accounts, number(&one), NULL), INVALID_ARGUMENT);
    pmindex_range from_one = {.from = number(&one), .has_from = 1};
    OK(pmindex_snapshot_cursor(snapshot, accounts, &from_one, &cursor));
    OK(pmindex_snapshot_end(snapshot));
    OK(pmindex_cursor_next(cursor, NULL, &value));
    memcpy(&then, value.data, sizeof then);
    EXPECT(then == 5);
    IS(pmindex_index_close(accounts), BUSY);
    IS(pmindex_store_close(store), BUSY);
    OK(pmindex_cursor_close(cursor));
    OK(pmindex_index_close(accounts));
    OK(pmindex_index_close(moves));
    IS(pmindex_snapshot_begin((pmindex_store *)0x123, &snapshot), BAD_HANDLE);
    EXPECT(snapshot == NULL);
}

static void ended_snapshots(const char *path) {
    char other[4096];
    EXPECT(snprintf(other, sizeof other, "%s.other", path) < (int)sizeof other);
    pmindex_store_options options = {
        .pool = {.size = 8 << 20, .flags = PMINDEX_NO_WRITE_BACK}, .past_bytes = 4096};
    pmindex_store *store, *second;
    pmindex_index *map, *elsewhere;
    pmindex_snapshot *snapshot;
    pmindex_transaction *transaction;
    struct room value;
    OK(pmindex_store_create(other, &options, &store));
    IS(pmindex_store_create(other, &options, &second), ALREADY_EXISTS);
    EXPECT(second == NULL);
    IS(pmindex_store_open(other, NULL, &second), BUSY);
    options.reserved = 1;
    IS(pmindex_store_open(other, &options, &second), INVALID_ARGUMENT);
    IS(pmindex_store_open("/no/such/store", NULL, &second), NO_SUCH);
    OK(pmindex_store_map(store, "map", NULL, NUMBER, NUMBER, &map));
    OK(pmindex_snapshot_begin(store, &snapshot));
    OK(pmindex_transaction_begin(store, &transaction));
    /* Its moment is that of its first read. */
    uint64_t key = 1;
    IS(pmindex_transaction_get(transaction, map, number(&key), room(&value, 8)), NOT_FOUND);
    for (uint64_t i = 0; i < 1000; i++) {
        OK(pmindex_u64_put(map, i, i, NULL));
    }
    IS(pmindex_snapshot_get(snapshot, map, number(&key), room(&value, 8)), SNAPSHOT_ENDED);
    SAYS("4096");
    IS(pmindex_transaction_get(transaction, map, number(&key), room(&value, 8)), SNAPSHOT_ENDED);
    OK(pmindex_transaction_put(transaction, map, number(&key), number(&key)));
    IS(pmindex_transaction_commit(transaction), CONFLICT);
    OK(pmindex_snapshot_end(snapshot));

    /* A map of another store, and an index of a pool. */
    pmindex_pool *pool;
    char third[4096];
    EXPECT(snprintf(third, sizeof third, "%s.third", path) < (int)sizeof third);
    OK(pmindex_pool_create(third, &options.pool, &pool));
    OK(pmindex_index_create(pool, "index", "fptree", NUMBER, NUMBER, &elsewhere));
    OK(pmindex_transaction_begin(store, &transaction));
    IS(pmindex_transaction_put(transaction, elsewhere, number(&key), number(&key)), INVALID_ARGUMENT);
    SAYS("not a map");
    OK(pmindex_index_close(elsewhere));
    /* Options of the pool do not count here, whatever they are. */
    pmindex_store_options ignored;
    memset(&ignored, 0, sizeof ignored);
    memset(&ignored.pool, 0xa5, sizeof ignored.pool);
    OK(pmindex_store_in_pool(pool, &ignored, &second));
    OK(pmindex_store_map(second, "index", NULL, NUMBER, NUMBER, &elsewhere));
    pmindex_watch *watch;
    OK(pmindex_watch_begin(store, &watch));
    OK(pmindex_put(map, number(&key), number(&key), NULL));
    OK(pmindex_watch_next(watch, 0));
    IS(pmindex_watch_changes(watch, elsewhere, never, NULL, NULL), INVALID_ARGUMENT);
    SAYS("another store");
    OK(pmindex_watch_end(watch));
    IS(pmindex_transaction_put(transaction, elsewhere, number(&key), number(&key)), INVALID_ARGUMENT);
    SAYS("another store");
    OK(pmindex_transaction_rollback(transaction));
    IS(pmindex_pool_close(pool), BUSY);
    OK(pmindex_index_close(elsewhere));
    OK(pmindex_store_close(second));
    OK(pmindex_pool_close(pool));
    OK(pmindex_index_close(map));
    OK(pmindex_store_close(store));
    IS(pmindex_store_close(store), BAD_HANDLE);
    IS(pmindex_store_sync(store), BAD_HANDLE);
    IS(pmindex_transaction_begin(store, &transaction), BAD_HANDLE);
    IS(pmindex_snapshot_begin(store, &snapshot), BAD_HANDLE);
}

/* After a crash, too, a backup opens as a store, and has all maps. */
static void backup(const char *path, pmindex_store *store) {
    char copy[4096];
    EXPECT(snprintf(copy, sizeof copy, "%s.copy", path) < (int)sizeof copy);
    uint64_t records = 0, found = 0;
    OK(pmindex_store_check(store, &found));
    OK(pmindex_store_backup(store, copy, &records));
    EXPECT(records == found && records > ACCOUNTS);
    IS(pmindex_store_backup(store, copy, NULL), ALREADY_EXISTS);
    IS(pmindex_store_backup(store, NULL, NULL), INVALID_ARGUMENT);
    EXPECT(pmindex_store_backup(store, "/no/such/folder/copy", NULL) < 0);
    pmindex_store *other;
    OK(pmindex_store_open(copy, NULL, &other));
    OK(pmindex_store_check(other, &found));
    EXPECT(records == found);
    OK(pmindex_store_close(other));

    /* A reader reads, and writes nothing. */
    pmindex_store_options options = {.pool = {.flags = PMINDEX_READ_ONLY}};
    pmindex_index *map;
    pmindex_transaction *transaction;
    uint64_t key = 0, value;
    pmindex_buffer buffer = {.data = &value, .capacity = sizeof value};
    OK(pmindex_store_open(copy, &options, &other));
    OK(pmindex_store_existing_map(other, "accounts", &map));
    OK(pmindex_get(map, number(&key), &buffer));
    OK(pmindex_transaction_begin(other, &transaction));
    OK(pmindex_transaction_get(transaction, map, number(&key), &buffer));
    OK(pmindex_transaction_put(transaction, map, number(&key), number(&value)));
    IS(pmindex_transaction_commit(transaction), READ_ONLY);
    IS(pmindex_remove(map, number(&key), &buffer), READ_ONLY);
    OK(pmindex_index_close(map));
    IS(pmindex_store_map(other, "new", NULL, TEXT, TEXT, &map), READ_ONLY);
    OK(pmindex_store_close(other));
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    const char *path = argv[1];
    pmindex_store_options options = {.pool = {.size = 8 << 20, .flags = PMINDEX_NO_WRITE_BACK}};
    pmindex_store *store;
    OK(pmindex_store_open_or_create(path, &options, &store));
    maps(store);
    transactions(store);
    snapshots(store);
    ended_snapshots(path);
    OK(pmindex_store_close(store));
    /* Opened again, with maps that nobody has opened yet. */
    OK(pmindex_store_open(path, &options, &store));
    backup(path, store);
    OK(pmindex_store_close(store));
    puts("all of it holds");
    return EXIT_SUCCESS;
}
