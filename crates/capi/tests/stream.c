/* From C: what commits change, records that expire, what goes on in a store. */
#include "expect.h"
#include <pthread.h>
#include <unistd.h>

enum { TEXT = PMINDEX_TYPE_BYTES, NUMBER = PMINDEX_TYPE_U64 };

/* What was heard, in a row: "a=1 b- ". */
struct heard {
    char text[256];
    uint64_t most;
};

static bool hear(void *context, pmindex_bytes key, const pmindex_bytes *value) {
    struct heard *heard = context;
    strncat(heard->text, key.data, key.len);
    strcat(heard->text, value == NULL ? "-" : "=");
    if (value != NULL) {
        strncat(heard->text, value->data, value->len);
    }
    strcat(heard->text, " ");
    return --heard->most > 0;
}

static bool see(void *context, pmindex_bytes key, pmindex_bytes value) {
    return hear(context, key, &value);
}

/* The changes of the next commit to a map. */
static bool next_is(pmindex_watch *watch, pmindex_index *map, const char *text) {
    struct heard heard = {.most = 100};
    OK(pmindex_watch_next(watch, 5000));
    OK(pmindex_watch_changes(watch, map, hear, &heard, NULL));
    return strcmp(heard.text, text) == 0;
}

static int32_t change_two(pmindex_transaction *transaction, void *context) {
    pmindex_index **maps = context;
    OK(pmindex_transaction_put(transaction, maps[0], bytes("b"), bytes("2")));
    OK(pmindex_transaction_remove(transaction, maps[0], bytes("a"), NULL));
    OK(pmindex_transaction_put(transaction, maps[1], bytes("c"), bytes("3")));
    return PMINDEX_STATUS_OK;
}

static void *write_later(void *context) {
    usleep(20000);
    OK(pmindex_put(context, bytes("late"), bytes("1"), NULL));
    return NULL;
}

static uint64_t watches(pmindex_store *store) {
    pmindex_index *maps[2];
    pmindex_watch *watch, *second;
    struct heard heard = {.most = 1};
    struct room name;
    uint64_t position = 0, count = 0;
    bool loaded = true;
    OK(pmindex_store_map(store, "one", NULL, TEXT, TEXT, &maps[0]));
    OK(pmindex_store_map(store, "two", NULL, TEXT, TEXT, &maps[1]));
    OK(pmindex_watch_begin(store, &watch));
    IS(pmindex_watch_next(watch, 0), END);
    IS(pmindex_watch_changes(watch, maps[0], hear, &heard, NULL), NOT_FOUND);
    IS(pmindex_watch_map_name(watch, 0, room(&name, 64)), NOT_FOUND);
    OK(pmindex_put(maps[0], bytes("a"), bytes("1"), NULL));
    EXPECT(next_is(watch, maps[0], "a=1 "));
    OK(pmindex_watch_position(watch, &position));

    /* A commit to two maps is one. */
    OK(pmindex_transaction_run(store, change_two, maps));
    EXPECT(next_is(watch, maps[0], "a- b=2 "));
    heard.most = 100;
    OK(pmindex_watch_changes(watch, maps[1], hear, &heard, &count));
    EXPECT(strcmp(heard.text, "c=3 ") == 0 && count == 1);
    OK(pmindex_watch_map_name(watch, 0, room(&name, 64)));
    EXPECT(holds(&name, "one"));
    OK(pmindex_watch_map_name(watch, 1, room(&name, 64)));
    EXPECT(holds(&name, "two"));
    IS(pmindex_watch_map_name(watch, 2, room(&name, 64)), END);
    OK(pmindex_watch_is_loaded(watch, "one", &loaded));
    EXPECT(!loaded);
    /* Who has heard enough says so. */
    heard = (struct heard){.most = 1};
    OK(pmindex_watch_changes(watch, maps[0], hear, &heard, &count));
    EXPECT(strcmp(heard.text, "a- ") == 0 && count == 1);
    IS(pmindex_watch_next(watch, 0), END);
    IS(pmindex_watch_changes(watch, maps[0], NULL, NULL, NULL), INVALID_ARGUMENT);

    /* One that waits is woken, or finds it soon. */
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, write_later, maps[1]) == 0);
    EXPECT(next_is(watch, maps[1], "late=1 "));
    EXPECT(pthread_join(thread, NULL) == 0);

    /* From a position that was kept. */
    OK(pmindex_watch_begin_after(store, position, &second));
    EXPECT(next_is(second, maps[0], "a- b=2 "));
    EXPECT(next_is(second, maps[1], "late=1 "));
    OK(pmindex_watch_end(second));
    IS(pmindex_watch_next(second, 0), BAD_HANDLE);

    OK(pmindex_index_close(maps[0]));
    OK(pmindex_index_close(maps[1]));
    IS(pmindex_store_close(store), BUSY);
    SAYS("watches");
    OK(pmindex_watch_end(watch));
    IS(pmindex_watch_begin(store, NULL), INVALID_ARGUMENT);
    IS(pmindex_watch_begin((pmindex_store *)0x123, &watch), BAD_HANDLE);
    EXPECT(watch == NULL);
    return position;
}

/* A position is good after the store was closed, too. */
static void goes_on(pmindex_store *store, uint64_t position) {
    pmindex_watch *watch;
    pmindex_index *map;
    OK(pmindex_store_existing_map(store, "one", &map));
    OK(pmindex_watch_begin_after(store, position, &watch));
    EXPECT(next_is(watch, map, "a- b=2 "));
    OK(pmindex_watch_end(watch));
    OK(pmindex_index_close(map));
}

static int32_t answer_once(pmindex_transaction *transaction, void *context) {
    struct room value;
    pmindex_expiring *map = context;
    IS(pmindex_transaction_expiring_get(transaction, map, bytes("k"), room(&value, 64)), NOT_FOUND);
    OK(pmindex_transaction_expiring_put(transaction, map, bytes("k"), bytes("9"), UINT64_MAX));
    OK(pmindex_transaction_expiring_get(transaction, map, bytes("k"), room(&value, 64)));
    EXPECT(holds(&value, "9"));
    return PMINDEX_STATUS_OK;
}

static void expiry(pmindex_store *store) {
    const uint64_t hour = 3600 * 1000;
    pmindex_expiring *map, *other;
    pmindex_index *plain;
    struct room value;
    uint64_t removed = 0, count = 0, records = 0;
    OK(pmindex_store_expiring_map(store, "sessions", TEXT, TEXT, &map));
    IS(pmindex_store_expiring_map(store, "sessions", NUMBER, TEXT, &other), WRONG_TYPE);
    EXPECT(other == NULL);
    IS(pmindex_store_expiring_map(store, "one", TEXT, TEXT, &other), WRONG_TYPE);
    IS(pmindex_store_existing_map(store, "sessions", &plain), WRONG_TYPE);
    OK(pmindex_expiring_put(map, bytes("a"), bytes("1"), hour));
    OK(pmindex_expiring_put(map, bytes("b"), bytes("2"), 0));
    OK(pmindex_expiring_put(map, bytes("c"), bytes("3"), UINT64_MAX));
    OK(pmindex_expiring_get(map, bytes("a"), room(&value, 64)));
    EXPECT(holds(&value, "1"));
    IS(pmindex_expiring_get(map, bytes("a"), room(&value, 0)), TOO_SMALL);
    IS(pmindex_expiring_get(map, bytes("b"), room(&value, 64)), NOT_FOUND);
    IS(pmindex_expiring_renew(map, bytes("b"), hour), NOT_FOUND);
    OK(pmindex_expiring_renew(map, bytes("a"), 2 * hour));
    IS(pmindex_expiring_try_insert(map, bytes("a"), bytes("x"), hour), EXISTS);
    OK(pmindex_transaction_run(store, answer_once, map));

    struct heard heard = {.most = 100};
    OK(pmindex_expiring_scan(map, NULL, see, &heard, &count));
    EXPECT(strcmp(heard.text, "a=1 c=3 k=9 ") == 0 && count == 3);
    heard = (struct heard){.most = 2};
    pmindex_range backwards = {.to = bytes("k"), .has_to = 1, .reverse = 1};
    OK(pmindex_expiring_scan(map, &backwards, see, &heard, NULL));
    EXPECT(strcmp(heard.text, "c=3 a=1 ") == 0);

    /* What is over takes space until a sweep. */
    OK(pmindex_store_check(store, &records));
    IS(pmindex_expiring_sweep(map, 0, &removed), INVALID_ARGUMENT);
    EXPECT(pmindex_expiring_sweep(map, 1, &removed) == PMINDEX_STATUS_OK && removed == 0);
    IS(pmindex_expiring_sweep(map, 100, &removed), END);
    EXPECT(removed == 1);
    uint64_t left = 0;
    OK(pmindex_store_check(store, &left));
    EXPECT(left == records - 1);
    OK(pmindex_expiring_try_insert(map, bytes("b"), bytes("2"), hour));
    OK(pmindex_expiring_remove(map, bytes("b")));
    IS(pmindex_expiring_remove(map, bytes("b")), NOT_FOUND);
    IS(pmindex_store_close(store), BUSY);
    OK(pmindex_expiring_close(map));
    IS(pmindex_expiring_get(map, bytes("a"), room(&value, 64)), BAD_HANDLE);
}

static void report(pmindex_store *store) {
    char text[4096];
    pmindex_buffer buffer = {.data = text, .capacity = 10};
    IS(pmindex_store_report(store, &buffer), TOO_SMALL);
    EXPECT(buffer.len > 10 && buffer.len < sizeof text);
    buffer.capacity = sizeof text - 1;
    OK(pmindex_store_report(store, &buffer));
    text[buffer.len] = 0;
    EXPECT(strstr(text, "sessions (fptree") != NULL && strstr(text, " splits; ") != NULL);
    IS(pmindex_store_report(store, NULL), INVALID_ARGUMENT);
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    const char *path = argv[1];
    pmindex_store_options options = {
        .pool = {.size = 16 << 20, .flags = PMINDEX_NO_WRITE_BACK}, .keep_commits = 1 << 20};
    pmindex_store *store;
    uint64_t records = 0;
    OK(pmindex_store_open_or_create(path, &options, &store));
    uint64_t position = watches(store);
    expiry(store);
    report(store);
    OK(pmindex_store_close(store));
    OK(pmindex_store_open(path, &options, &store));
    goes_on(store, position);
    /* Maps of records that expire are checked, copied and dropped as others are. */
    char copy[4096];
    EXPECT(snprintf(copy, sizeof copy, "%s.copy", path) < (int)sizeof copy);
    OK(pmindex_store_check(store, &records));
    EXPECT(records == 6);
    OK(pmindex_store_backup(store, copy, NULL));
    OK(pmindex_store_drop_map(store, "sessions"));
    OK(pmindex_store_check(store, &records));
    EXPECT(records == 3);
    OK(pmindex_store_close(store));
    puts("all of it holds");
    return EXIT_SUCCESS;
}
