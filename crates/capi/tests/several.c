/* Several records of one index at once, records as they are expected to be, and what takes out and returns. */
#include "expect.h"
#include <pthread.h>

/* The keys of a scan, in a row. */
struct seen {
    char text[256];
};

static bool see(void *context, pmindex_bytes key, pmindex_bytes value) {
    struct seen *seen = context;
    strncat(seen->text, key.data, key.len);
    strcat(seen->text, "=");
    strncat(seen->text, value.data, value.len);
    strcat(seen->text, " ");
    return true;
}

static bool has(const pmindex_index *index, const pmindex_range *range, const char *expected) {
    struct seen seen = {{0}};
    OK(pmindex_scan(index, range, see, &seen, NULL));
    return strcmp(seen.text, expected) == 0;
}

static bool is_short(void *context, pmindex_bytes key, pmindex_bytes value) {
    (void)context;
    (void)key;
    return value.len < 4;
}

static void ends_and_ranges(const pmindex_index *index) {
    struct room key, value;
    IS(pmindex_pop_first(index, room(&key, 8), room(&value, 8)), NOT_FOUND);
    IS(pmindex_pop_last(index, NULL, NULL), NOT_FOUND);

    pmindex_addition records[] = {
        {.key = bytes("pear"), .value = bytes("green")}, {.key = bytes("fig"), .value = bytes("blue")},
        {.key = bytes("peach"), .value = bytes("red")},  {.key = bytes("fig"), .value = bytes("?")},
        {.key = bytes("apple"), .value = bytes("red")},
    };
    OK(pmindex_try_insert_many(index, records, 5));
    for (int i = 0; i < 5; i++) {
        EXPECT(records[i].status == (i == 3 ? PMINDEX_STATUS_EXISTS : PMINDEX_STATUS_OK));
    }
    OK(pmindex_try_insert_many(index, NULL, 0));
    IS(pmindex_try_insert_many(index, NULL, 1), INVALID_ARGUMENT);
    EXPECT(has(index, NULL, "apple=red fig=blue peach=red pear=green "));

    struct room found[3];
    pmindex_lookup lookups[] = {
        {.key = bytes("pear"), .value = *room(&found[0], 64)},
        {.key = bytes("kiwi"), .value = *room(&found[1], 64)},
        {.key = bytes("fig"), .value = *room(&found[2], 3)},
    };
    OK(pmindex_get_many(index, lookups, 3));
    IS(lookups[0].status, OK);
    EXPECT(lookups[0].value.len == 5 && memcmp(found[0].text, "green", 5) == 0);
    IS(lookups[1].status, NOT_FOUND);
    IS(lookups[2].status, TOO_SMALL);
    EXPECT(lookups[2].value.len == 4);
    IS(pmindex_get_many(index, NULL, 3), INVALID_ARGUMENT);
    IS(pmindex_get_many(index, lookups, SIZE_MAX), INVALID_ARGUMENT);

    /* Replaces one, adds one twice; takes out one, one that is not there, and one that does not fit. */
    pmindex_addition written[] = {
        {.key = bytes("fig"), .value = bytes("black")},
        {.key = bytes("plum"), .value = bytes("?")},
        {.key = bytes("plum"), .value = bytes("violet")},
    };
    OK(pmindex_put_many(index, written, 3));
    for (int i = 0; i < 3; i++) {
        IS(written[i].status, OK);
    }
    OK(pmindex_put_many(index, NULL, 0));
    IS(pmindex_put_many(index, NULL, 1), INVALID_ARGUMENT);
    EXPECT(has(index, NULL, "apple=red fig=black peach=red pear=green plum=violet "));
    pmindex_lookup removals[] = {
        {.key = bytes("plum"), .value = *room(&found[0], 64)},
        {.key = bytes("kiwi"), .value = *room(&found[1], 64)},
        {.key = bytes("fig"), .value = *room(&found[2], 3)},
        {.key = bytes("plum")},
    };
    OK(pmindex_remove_many(index, removals, 4));
    IS(removals[0].status, OK);
    EXPECT(removals[0].value.len == 6 && memcmp(found[0].text, "violet", 6) == 0);
    IS(removals[1].status, NOT_FOUND);
    IS(removals[2].status, TOO_SMALL);
    IS(removals[3].status, NOT_FOUND);
    IS(pmindex_remove_many(index, NULL, 1), INVALID_ARGUMENT);
    OK(pmindex_remove_many(index, NULL, 0));
    EXPECT(has(index, NULL, "apple=red fig=black peach=red pear=green "));
    removals[2].value = (pmindex_buffer){0};
    OK(pmindex_remove_many(index, &removals[2], 1));
    IS(removals[2].status, OK);
    pmindex_addition fig = {.key = bytes("fig"), .value = bytes("blue")};
    OK(pmindex_put_many(index, &fig, 1));

    /* Prefixes, also backwards, through a cursor, and where there are none. */
    pmindex_range pe = {.from = bytes("pe"), .is_prefix = 1};
    EXPECT(has(index, &pe, "peach=red pear=green "));
    pe.reverse = 1;
    EXPECT(has(index, &pe, "pear=green peach=red "));
    pmindex_cursor *cursor;
    pmindex_bytes at;
    OK(pmindex_cursor_open(index, &pe, &cursor));
    OK(pmindex_cursor_next(cursor, &at, NULL));
    EXPECT(at.len == 4);
    OK(pmindex_cursor_next(cursor, &at, NULL));
    IS(pmindex_cursor_next(cursor, &at, NULL), END);
    OK(pmindex_cursor_close(cursor));
    pmindex_range none = {.from = bytes("\xff"), .is_prefix = 1};
    EXPECT(has(index, &none, ""));
    pmindex_range all = {.is_prefix = 1};
    EXPECT(has(index, &all, "apple=red fig=blue peach=red pear=green "));

    /* What does not fit stays, whichever of the two it is, and both lengths are known. */
    IS(pmindex_pop_first(index, room(&key, 4), room(&value, 3)), TOO_SMALL);
    EXPECT(key.buffer.len == 5 && value.buffer.len == 3);
    IS(pmindex_pop_first(index, room(&key, 5), room(&value, 2)), TOO_SMALL);
    EXPECT(key.buffer.len == 5 && value.buffer.len == 3);
    OK(pmindex_pop_first(index, room(&key, 5), room(&value, 3)));
    EXPECT(holds(&key, "apple") && holds(&value, "red"));
    pmindex_buffer lies = {.data = NULL, .capacity = 100};
    IS(pmindex_pop_last(index, NULL, &lies), INVALID_ARGUMENT);
    EXPECT(has(index, NULL, "fig=blue peach=red pear=green "));
    OK(pmindex_pop_last(index, room(&key, 5), NULL));
    EXPECT(holds(&key, "pear"));

    uint64_t removed = 9;
    OK(pmindex_retain(index, is_short, NULL, &removed));
    EXPECT(removed == 1 && has(index, NULL, "peach=red "));
    IS(pmindex_retain(index, NULL, NULL, NULL), INVALID_ARGUMENT);
    OK(pmindex_put(index, bytes("plum"), bytes("blue"), NULL));
    OK(pmindex_remove_range(index, &pe, &removed));
    EXPECT(removed == 1 && has(index, NULL, "plum=blue "));
    OK(pmindex_clear(index));
    EXPECT(has(index, NULL, ""));
}

static void batches(const pmindex_index *index) {
    pmindex_change changes[] = {
        {.key = bytes("Ada"), .value = bytes("70")},
        {.key = bytes("Bob"), .value = bytes("30")},
        {.key = bytes("Bob"), .value = bytes("35")},
        {.key = bytes("Eve"), .remove = 1},
    };
    OK(pmindex_put(index, bytes("Eve"), bytes("1"), NULL));
    OK(pmindex_write_batch(index, changes, 4));
    EXPECT(has(index, NULL, "Ada=70 Bob=35 "));
    OK(pmindex_write_batch(index, NULL, 0));
    IS(pmindex_write_batch(index, NULL, 1), INVALID_ARGUMENT);
    /* One that is refused changes nothing. */
    static char long_key[5000];
    pmindex_change refused[] = {
        {.key = bytes("Ada"), .value = bytes("0")},
        {.key = {long_key, sizeof long_key}, .value = bytes("0")},
    };
    IS(pmindex_write_batch(index, refused, 2), TOO_LONG);
    refused[1].key = (pmindex_bytes){NULL, 3};
    IS(pmindex_write_batch(index, refused, 2), INVALID_ARGUMENT);
    EXPECT(has(index, NULL, "Ada=70 Bob=35 "));

    struct room found;
    pmindex_bytes seventy = bytes("70"), less = bytes("65");
    OK(pmindex_compare_exchange(index, bytes("Ada"), &seventy, &less, room(&found, 8)));
    IS(pmindex_compare_exchange(index, bytes("Ada"), &seventy, &less, room(&found, 8)), DIFFERENT);
    EXPECT(holds(&found, "65"));
    IS(pmindex_compare_exchange(index, bytes("Ada"), &seventy, NULL, room(&found, 1)), TOO_SMALL);
    EXPECT(found.buffer.len == 2);
    IS(pmindex_compare_exchange(index, bytes("Ada"), NULL, &less, NULL), DIFFERENT);
    IS(pmindex_compare_exchange(index, bytes("Eve"), &less, NULL, NULL), NOT_FOUND);
    OK(pmindex_compare_exchange(index, bytes("Eve"), NULL, &less, NULL));
    OK(pmindex_compare_exchange(index, bytes("Eve"), &less, NULL, NULL));
    OK(pmindex_compare_exchange(index, bytes("Eve"), NULL, NULL, NULL));
    EXPECT(has(index, NULL, "Ada=65 Bob=35 "));
    IS(pmindex_insert(index, bytes("Ada"), bytes("lost"), room(&found, 1), NULL), TOO_SMALL);
    bool replaced = false;
    OK(pmindex_insert(index, bytes("Ada"), bytes("60"), room(&found, 2), &replaced));
    EXPECT(replaced && holds(&found, "65"));
    IS(pmindex_remove(index, bytes("Ada"), room(&found, 1)), TOO_SMALL);
    OK(pmindex_remove(index, bytes("Ada"), room(&found, 2)));
    EXPECT(holds(&found, "60"));
    IS(pmindex_remove(index, bytes("Ada"), room(&found, 2)), NOT_FOUND);
    OK(pmindex_clear(index));
}

/* Two threads count by compare-and-swap, and lose nothing. */
static const pmindex_index *counted;

static void *count(void *context) {
    (void)context;
    uint64_t key = 1;
    for (int i = 0; i < 500; i++) {
        uint64_t now, next;
        pmindex_buffer found = {.data = &now, .capacity = sizeof now};
        OK(pmindex_get(counted, number(&key), &found));
        do {
            next = now + 1;
        } while (pmindex_compare_exchange(counted, number(&key), &(pmindex_bytes){&now, sizeof now},
                                          &(pmindex_bytes){&next, sizeof next}, &found) ==
                 PMINDEX_STATUS_DIFFERENT);
    }
    return NULL;
}

static void counting(const pmindex_index *index) {
    counted = index;
    uint64_t total = 0;
    OK(pmindex_u64_put(index, 1, 0, NULL));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        EXPECT(pthread_create(&threads[i], NULL, count, NULL) == 0);
    }
    for (int i = 0; i < 2; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    OK(pmindex_u64_get(index, 1, &total));
    EXPECT(total == 1000);
    pmindex_range prefix = {.from = number(&total), .is_prefix = 1};
    IS(pmindex_scan(index, &prefix, see, NULL, NULL), INVALID_ARGUMENT);
    SAYS("prefix");
    OK(pmindex_clear(index));
}

/* One thread pops while another replaces what is first by longer and shorter values: a record is handed over
   or stays. */
static const pmindex_index *queue;
static uint64_t times_added;

static void *replace(void *context) {
    (void)context;
    for (int i = 0; i < 1000; i++) {
        bool added;
        OK(pmindex_put(queue, bytes("k"), bytes(i % 2 ? "short" : "longer than that"), &added));
        times_added += added;
    }
    return NULL;
}

static void popping(const pmindex_index *index) {
    queue = index;
    times_added = 0;
    pthread_t thread;
    uint64_t handed_over = 0, records;
    EXPECT(pthread_create(&thread, NULL, replace, NULL) == 0);
    for (int i = 0; i < 3000; i++) {
        struct room value;
        pmindex_status status = pmindex_pop_first(index, NULL, room(&value, 5));
        EXPECT(status >= 0);
        EXPECT(status != PMINDEX_STATUS_OK || holds(&value, "short"));
        handed_over += status == PMINDEX_STATUS_OK;
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    OK(pmindex_len(index, &records));
    EXPECT(times_added == handed_over + records);
    OK(pmindex_clear(index));
}

static void in_a_pool(pmindex_pool *pool) {
    pmindex_index *index;
    const uint32_t text = PMINDEX_TYPE_BYTES, count = PMINDEX_TYPE_U64;
    OK(pmindex_index_create(pool, "plain", "fptree", text, text, &index));
    ends_and_ranges(index);
    popping(index);
    pmindex_change change = {.key = bytes("a"), .value = bytes("b")};
    IS(pmindex_write_batch(index, &change, 1), INVALID_ARGUMENT);
    SAYS("pmindex_index_open_with_batches");
    IS(pmindex_compare_exchange(index, bytes("a"), NULL, NULL, NULL), INVALID_ARGUMENT);
    pmindex_index *second = index;
    IS(pmindex_index_open_with_batches(pool, "plain", &second), ALREADY_OPEN);
    EXPECT(second == NULL);
    IS(pmindex_index_open_with_batches(pool, "none", &second), NO_SUCH);
    OK(pmindex_index_close(index));

    OK(pmindex_index_create(pool, "batches", "hart", text, text, &index));
    OK(pmindex_index_close(index));
    OK(pmindex_index_open_with_batches(pool, "batches", &index));
    ends_and_ranges(index);
    batches(index);
    popping(index);
    OK(pmindex_put(index, bytes("kept"), bytes("1"), NULL));
    OK(pmindex_index_close(index));
    /* Once with batches, with batches for ever. */
    OK(pmindex_index_open(pool, "batches", &index));
    OK(pmindex_write_batch(index, &change, 1));
    EXPECT(has(index, NULL, "a=b kept=1 "));
    pmindex_info info;
    OK(pmindex_index_info(index, &info));
    EXPECT(strcmp(info.kind, "hart") == 0 && info.key_type == PMINDEX_TYPE_BYTES);
    IS(pmindex_index_drop(pool, "batches"), ALREADY_OPEN);
    OK(pmindex_index_close(index));

    OK(pmindex_index_create(pool, "counts", "sptree", count, count, &index));
    OK(pmindex_index_close(index));
    OK(pmindex_index_open_with_batches(pool, "counts", &index));
    counting(index);
    OK(pmindex_index_close(index));

    /* Dropped, with the log of their batches: the space is there again. */
    OK(pmindex_index_drop(pool, "batches"));
    OK(pmindex_index_drop(pool, "counts"));
    IS(pmindex_index_drop(pool, "counts"), NO_SUCH);
    SAYS("counts");
    IS(pmindex_index_open(pool, "batches", &index), NO_SUCH);
    struct room name;
    int names = 0;
    while (pmindex_pool_index_name(pool, names, room(&name, 64)) == PMINDEX_STATUS_OK) {
        EXPECT(holds(&name, "plain"));
        names++;
    }
    EXPECT(names == 1);
}

/* The name of a log of batches is no other index's or map's. */
static void names_of_logs(pmindex_pool *pool) {
    uint32_t count = PMINDEX_TYPE_U64, text = PMINDEX_TYPE_BYTES;
    pmindex_index *index, *log;
    OK(pmindex_index_create(pool, "next", "fptree", text, text, &index));
    OK(pmindex_index_close(index));
    OK(pmindex_index_open_with_batches(pool, "next", &index));
    IS(pmindex_index_create(pool, "orders.batch", "fptree", count, text, &log), INVALID_ARGUMENT);
    SAYS("\"orders.batch\"");
    SAYS("log of the batches");
    IS(pmindex_index_open(pool, "next.batch", &log), INVALID_ARGUMENT);
    IS(pmindex_index_open_with_batches(pool, "next.batch", &log), INVALID_ARGUMENT);
    IS(pmindex_index_drop(pool, "next.batch"), INVALID_ARGUMENT);
    OK(pmindex_index_close(index));
    IS(pmindex_index_drop(pool, "next.batch"), INVALID_ARGUMENT);

    pmindex_store *store;
    pmindex_expiring *sessions;
    OK(pmindex_store_in_pool(pool, NULL, &store));
    IS(pmindex_store_map(store, "orders.batch", NULL, count, text, &index), INVALID_ARGUMENT);
    IS(pmindex_store_existing_map(store, "next.batch", &index), INVALID_ARGUMENT);
    IS(pmindex_store_drop_map(store, "next.batch"), INVALID_ARGUMENT);
    IS(pmindex_store_expiring_map(store, "orders.batch", count, text, &sessions), INVALID_ARGUMENT);
    SAYS("\"orders.batch\"");
    OK(pmindex_store_close(store));

    OK(pmindex_index_open(pool, "next", &index));
    OK(pmindex_write_batch(index, NULL, 0));
    OK(pmindex_index_close(index));
    OK(pmindex_index_drop(pool, "next"));
}

struct writer {
    pmindex_index *index;
    int paused, resumed;
};

static void pause_writers(void *context, uint8_t paused) {
    struct writer *writer = context;
    *(paused ? &writer->paused : &writer->resumed) += 1;
    if (!paused) {
        /* Writers go on: not in the copy. */
        OK(pmindex_put(writer->index, bytes("later"), bytes("1"), NULL));
    }
}

static void backup_of_a_pool(pmindex_pool *pool, const char *path) {
    char copy[4096];
    EXPECT(snprintf(copy, sizeof copy, "%s.copy", path) < (int)sizeof copy);
    struct writer writer = {NULL, 0, 0};
    OK(pmindex_index_create(pool, "copied", "fptree", PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &writer.index));
    OK(pmindex_put(writer.index, bytes("before"), bytes("1"), NULL));
    uint64_t length = 0, size;
    OK(pmindex_pool_backup(pool, copy, pause_writers, &writer, &length));
    OK(pmindex_pool_size(pool, &size, NULL));
    EXPECT(writer.paused == 1 && writer.resumed == 1 && length == size);
    EXPECT(has(writer.index, NULL, "before=1 later=1 "));
    IS(pmindex_pool_backup(pool, path, NULL, NULL, NULL), INVALID_ARGUMENT);
    IS(pmindex_pool_backup(pool, "/no/such/folder/copy", NULL, NULL, NULL), SYSTEM);
    IS(pmindex_pool_backup(pool, NULL, NULL, NULL, NULL), INVALID_ARGUMENT);
    OK(pmindex_index_close(writer.index));

    pmindex_pool *other;
    pmindex_index *index;
    OK(pmindex_pool_open(copy, NULL, &other));
    OK(pmindex_index_open(other, "copied", &index));
    EXPECT(has(index, NULL, "before=1 "));
    OK(pmindex_index_close(index));
    OK(pmindex_pool_close(other));
}

/* What works on an index works on a map of a store. */
static void in_a_store(pmindex_pool *pool) {
    pmindex_store *store;
    OK(pmindex_store_in_pool(pool, NULL, &store));
    for (int i = 0; i < 2; i++) {
        pmindex_transaction *reader;
        pmindex_index *map;
        OK(pmindex_store_map(store, "words", NULL, PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &map));
        /* Once on its own, once beside a transaction, where writes are noted. */
        OK(pmindex_transaction_begin(store, &reader));
        if (i == 0) {
            OK(pmindex_transaction_rollback(reader));
        }
        ends_and_ranges(map);
        batches(map);
        popping(map);
        OK(pmindex_index_close(map));
        OK(pmindex_store_map(store, "counts", "sptree", PMINDEX_TYPE_U64, PMINDEX_TYPE_U64, &map));
        counting(map);
        OK(pmindex_index_close(map));
        if (i == 1) {
            OK(pmindex_transaction_rollback(reader));
        }
    }
    OK(pmindex_store_close(store));
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    pmindex_options options = {.size = 8 << 20, .flags = PMINDEX_NO_WRITE_BACK};
    pmindex_pool *pool;
    OK(pmindex_pool_create(argv[1], &options, &pool));
    in_a_pool(pool);
    names_of_logs(pool);
    backup_of_a_pool(pool, argv[1]);
    in_a_store(pool);
    OK(pmindex_pool_close(pool));
    puts("all of it holds");
    return EXIT_SUCCESS;
}
