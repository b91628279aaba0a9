/* Every function of pmindex.h, from C: what it does, and what it refuses. */
#include "expect.h"
#include <inttypes.h>
#include <pthread.h>

struct seen {
    char text[256];
    uint64_t stop_after, count;
};

static bool see(void *context, pmindex_bytes key, pmindex_bytes value) {
    struct seen *seen = context;
    (void)value;
    strncat(seen->text, key.data, key.len);
    strcat(seen->text, " ");
    seen->count += 1;
    return seen->count != seen->stop_after;
}

static void scan(const pmindex_index *index, const pmindex_range *range, const char *expected) {
    struct seen seen = {{0}, 0, 0};
    uint64_t visited = 77;
    OK(pmindex_scan(index, range, see, &seen, &visited));
    EXPECT(visited == seen.count);
    EXPECT(strcmp(seen.text, expected) == 0);

    char walked[256] = "";
    pmindex_cursor *cursor;
    pmindex_bytes key, value;
    OK(pmindex_cursor_open(index, range, &cursor));
    pmindex_status status;
    while ((status = pmindex_cursor_next(cursor, &key, &value)) == PMINDEX_STATUS_OK) {
        strncat(walked, key.data, key.len);
        strcat(walked, " ");
    }
    IS(status, END);
    IS(pmindex_cursor_next(cursor, NULL, NULL), END);
    OK(pmindex_cursor_close(cursor));
    IS(pmindex_cursor_close(cursor), BAD_HANDLE);
    IS(pmindex_cursor_next(cursor, &key, &value), BAD_HANDLE);
    EXPECT(strcmp(walked, expected) == 0);
}

static void byte_strings(pmindex_pool *pool) {
    pmindex_index *index;
    OK(pmindex_index_create(pool, "words", "fptree", PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &index));
    OK(pmindex_try_insert(index, bytes("pear"), bytes("green")));
    IS(pmindex_try_insert(index, bytes("pear"), bytes("brown")), EXISTS);
    IS(pmindex_update(index, bytes("fig"), bytes("blue")), NOT_FOUND);
    bool added = false;
    OK(pmindex_put(index, bytes("fig"), bytes("blue"), &added));
    EXPECT(added);
    OK(pmindex_put(index, bytes("fig"), bytes("violet"), &added));
    EXPECT(!added);
    OK(pmindex_update(index, bytes("pear"), bytes("yellow")));

    char old_room[6];
    pmindex_buffer old = {.data = old_room, .capacity = sizeof old_room};
    bool replaced = false;
    OK(pmindex_insert(index, bytes("fig"), bytes("a longer colour"), &old, &replaced));
    EXPECT(replaced && old.len == 6 && memcmp(old_room, "violet", 6) == 0);
    IS(pmindex_insert(index, bytes("fig"), bytes("lost"), &old, &replaced), TOO_SMALL);
    EXPECT(old.len == 15);
    OK(pmindex_insert(index, bytes("fig"), bytes("violet"), NULL, NULL));
    OK(pmindex_insert(index, bytes("kiwi"), bytes("green"), &old, &replaced));
    EXPECT(!replaced);
    pmindex_range kiwis = {.from = bytes("kiwi"), .has_from = 1, .to = bytes("l"), .has_to = 1};
    uint64_t removed;
    OK(pmindex_remove_range(index, &kiwis, &removed));
    EXPECT(removed == 1);
    IS(pmindex_contains(index, bytes("kiwi")), NOT_FOUND);
    OK(pmindex_remove_range(index, &kiwis, NULL));
    OK(pmindex_try_insert(index, bytes("apple"), bytes("")));
    OK(pmindex_try_insert(index, bytes(""), bytes("the empty key")));

    char room[16];
    pmindex_buffer value = {.data = room, .capacity = sizeof room};
    OK(pmindex_get(index, bytes("pear"), &value));
    EXPECT(value.len == 6 && memcmp(room, "yellow", 6) == 0);
    OK(pmindex_get(index, bytes("apple"), &value));
    EXPECT(value.len == 0);
    OK(pmindex_get(index, (pmindex_bytes){NULL, 0}, &value));
    EXPECT(value.len == 13);
    IS(pmindex_get(index, bytes("plum"), &value), NOT_FOUND);
    OK(pmindex_contains(index, bytes("fig")));
    IS(pmindex_contains(index, bytes("plum")), NOT_FOUND);

    pmindex_buffer none = {.data = NULL, .capacity = 0};
    IS(pmindex_get(index, bytes("fig"), &none), TOO_SMALL);
    EXPECT(none.len == 6);
    pmindex_buffer lies = {.data = NULL, .capacity = 100};
    IS(pmindex_get(index, bytes("fig"), &lies), INVALID_ARGUMENT);
    IS(pmindex_get(index, bytes("fig"), NULL), INVALID_ARGUMENT);
    IS(pmindex_get(index, (pmindex_bytes){NULL, 5}, &value), INVALID_ARGUMENT);
    SAYS("the key is null");
    static char long_key[5000];
    IS(pmindex_try_insert(index, (pmindex_bytes){long_key, sizeof long_key}, bytes("")), TOO_LONG);
    SAYS("5000");

    scan(index, NULL, " apple fig pear ");
    pmindex_range range = {.reverse = 1};
    scan(index, &range, "pear fig apple  ");
    range = (pmindex_range){.from = bytes("b"), .has_from = 1, .to = bytes("pear"), .has_to = 1};
    scan(index, &range, "fig ");
    range = (pmindex_range){.from = bytes("z"), .has_from = 1, .to = bytes("a"), .has_to = 1};
    scan(index, &range, "");
    struct seen two = {{0}, 2, 0};
    OK(pmindex_scan(index, NULL, see, &two, NULL));
    EXPECT(strcmp(two.text, " apple ") == 0);
    IS(pmindex_scan(index, NULL, NULL, NULL, NULL), INVALID_ARGUMENT);

    /* A value that does not fit stays where it is, and its length is known. */
    pmindex_buffer small = {.data = room, .capacity = 5};
    IS(pmindex_remove(index, bytes("fig"), &small), TOO_SMALL);
    EXPECT(small.len == 6);
    SAYS("6 bytes");
    none.len = 0;
    IS(pmindex_remove(index, bytes("fig"), &none), TOO_SMALL);
    EXPECT(none.len == 6);
    IS(pmindex_remove(index, bytes("fig"), &lies), INVALID_ARGUMENT);
    IS(pmindex_remove(index, bytes("plum"), &none), NOT_FOUND);
    small.capacity = 6;
    OK(pmindex_remove(index, bytes("fig"), &small));
    EXPECT(small.len == 6 && memcmp(room, "violet", 6) == 0);
    IS(pmindex_remove(index, bytes("fig"), NULL), NOT_FOUND);
    OK(pmindex_remove(index, bytes("apple"), NULL));

    /* Another type's functions. */
    IS(pmindex_u64_get(index, 1, NULL), WRONG_TYPE);

    /* A cursor keeps its index, the index its pool. */
    pmindex_cursor *cursor;
    OK(pmindex_cursor_open(index, NULL, &cursor));
    IS(pmindex_index_close(index), BUSY);
    IS(pmindex_pool_close(pool), BUSY);
    OK(pmindex_cursor_close(cursor));
    OK(pmindex_index_close(index));
    IS(pmindex_index_close(index), BAD_HANDLE);
    IS(pmindex_get(index, bytes("pear"), &value), BAD_HANDLE);
    SAYS("closed");
}

/* One thread replaces a value by longer and shorter ones while another removes it when it is short:
   what is removed is handed over, or stays. */
static pmindex_index *contended;
static uint64_t times_added;

static void *replace(void *context) {
    (void)context;
    for (int i = 0; i < 4000; i++) {
        bool added;
        OK(pmindex_put(contended, bytes("k"), bytes(i % 2 ? "short" : "longer than that"), &added));
        times_added += added;
    }
    return NULL;
}

static void removal_under_replacement(pmindex_pool *pool) {
    OK(pmindex_index_create(pool, "contended", "fptree", PMINDEX_TYPE_U64, PMINDEX_TYPE_BYTES, &contended));
    uint64_t key = 1;
    char room[5];
    pmindex_buffer small = {.data = room, .capacity = sizeof room};
    OK(pmindex_try_insert(contended, number(&key), bytes("longer than that")));
    IS(pmindex_remove(contended, number(&key), &small), TOO_SMALL);
    OK(pmindex_contains(contended, number(&key)));
    OK(pmindex_index_close(contended));

    OK(pmindex_index_create(pool, "replaced", "fptree", PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &contended));
    pthread_t thread;
    uint64_t handed_over = 0, records;
    EXPECT(pthread_create(&thread, NULL, replace, NULL) == 0);
    for (int i = 0; i < 40000; i++) {
        pmindex_status status = pmindex_remove(contended, bytes("k"), &small);
        EXPECT(status == PMINDEX_STATUS_OK || status == PMINDEX_STATUS_NOT_FOUND ||
               status == PMINDEX_STATUS_TOO_SMALL);
        EXPECT(status != PMINDEX_STATUS_OK || memcmp(room, "short", 5) == 0);
        handed_over += status == PMINDEX_STATUS_OK;
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    OK(pmindex_len(contended, &records));
    EXPECT(times_added == handed_over + records);
    OK(pmindex_index_close(contended));
}

static pmindex_index *shared;

static void *insert_a_quarter(void *context) {
    uint64_t first = (uint64_t)(uintptr_t)context;
    for (uint64_t i = first; i < 4000; i += 4) {
        OK(pmindex_u64_try_insert(shared, i, i * i));
    }
    /* The last error is each thread's own. */
    EXPECT(pmindex_last_error()[0] == 0);
    return NULL;
}

static void numbers(pmindex_pool *pool) {
    OK(pmindex_index_create(pool, "squares", "fptree", PMINDEX_TYPE_U64, PMINDEX_TYPE_U64, &shared));
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        EXPECT(pthread_create(&threads[i], NULL, insert_a_quarter, (void *)i) == 0);
    }
    for (int i = 0; i < 4; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0);
    }
    uint64_t records, value = 0, key = 30;
    OK(pmindex_len(shared, &records));
    EXPECT(records == 4000);
    OK(pmindex_check(shared, &records));
    EXPECT(records == 4000);
    OK(pmindex_u64_get(shared, 12, &value));
    EXPECT(value == 144);
    IS(pmindex_u64_get(shared, 4000, &value), NOT_FOUND);
    IS(pmindex_u64_try_insert(shared, 12, 1), EXISTS);
    IS(pmindex_u64_update(shared, 4000, 1), NOT_FOUND);
    OK(pmindex_u64_update(shared, 12, 145));
    OK(pmindex_u64_put(shared, 5000, 1, NULL));
    uint64_t before = 0;
    bool there = false;
    OK(pmindex_u64_insert(shared, 5000, 2, &before, &there));
    EXPECT(there && before == 1);
    OK(pmindex_u64_insert(shared, 5000, 1, NULL, NULL));
    OK(pmindex_u64_remove(shared, 5000, &value));
    EXPECT(value == 1);
    IS(pmindex_u64_remove(shared, 5000, NULL), NOT_FOUND);

    /* The functions for all types, with the 8 bytes of a number. */
    pmindex_buffer room = {.data = &value, .capacity = sizeof value};
    OK(pmindex_get(shared, number(&key), &room));
    EXPECT(value == 900 && room.len == sizeof value);
    pmindex_buffer half = {.data = &value, .capacity = 4};
    IS(pmindex_remove(shared, number(&key), &half), TOO_SMALL);
    EXPECT(half.len == sizeof value);
    OK(pmindex_contains(shared, number(&key)));
    IS(pmindex_get(shared, bytes("30"), &room), INVALID_ARGUMENT);
    SAYS("2 bytes");
    IS(pmindex_try_insert(shared, number(&key), bytes("?")), INVALID_ARGUMENT);

    /* A cursor crosses its batches, in both directions; numbers are in order. */
    for (uint8_t reverse = 0; reverse < 2; reverse++) {
        pmindex_cursor *cursor;
        pmindex_range range = {.from = number(&key), .has_from = 1, .reverse = reverse};
        OK(pmindex_cursor_open(shared, &range, &cursor));
        pmindex_bytes found;
        uint64_t expected = reverse ? 3999 : 30;
        while (pmindex_cursor_next(cursor, &found, NULL) == PMINDEX_STATUS_OK) {
            memcpy(&value, found.data, sizeof value);
            EXPECT(value == expected);
            expected += reverse ? (uint64_t)-1 : 1;
        }
        EXPECT(expected == (reverse ? 29 : 4000));
        OK(pmindex_cursor_close(cursor));
    }
    pmindex_cursor *cursor = (pmindex_cursor *)shared;
    pmindex_range odd = {.from = bytes("abc"), .has_from = 1};
    IS(pmindex_cursor_open(shared, &odd, &cursor), INVALID_ARGUMENT);
    EXPECT(cursor == NULL);

    pmindex_info info;
    OK(pmindex_index_info(shared, &info));
    EXPECT(strcmp(info.kind, "fptree") == 0);
    EXPECT(info.key_type == PMINDEX_TYPE_U64 && info.value_type == PMINDEX_TYPE_U64);
    OK(pmindex_index_close(shared));
}

static void every_kind(pmindex_pool *pool) {
    const char *kind;
    for (size_t i = 0; (kind = pmindex_kind_name(i)) != NULL; i++) {
        pmindex_index *index;
        uint64_t value = 0;
        OK(pmindex_index_create(pool, kind, kind, PMINDEX_TYPE_U64, PMINDEX_TYPE_U64, &index));
        OK(pmindex_u64_try_insert(index, 7, 49));
        OK(pmindex_index_close(index));
        OK(pmindex_index_open(pool, kind, &index));
        OK(pmindex_u64_get(index, 7, &value));
        EXPECT(value == 49);
        /* Open once. */
        pmindex_index *second = index;
        IS(pmindex_index_open(pool, kind, &second), ALREADY_OPEN);
        SAYS("already open in this process");
        SAYS(kind);
        EXPECT(second == NULL);
        IS(pmindex_index_create(pool, kind, kind, 0, 0, &second), ALREADY_EXISTS);
        OK(pmindex_index_close(index));
        OK(pmindex_index_open(pool, kind, &second));
        OK(pmindex_index_close(second));
    }
    EXPECT(strcmp(pmindex_kind_name(0), "fptree") == 0);
}

static void refusals(pmindex_pool *pool, const char *path) {
    pmindex_pool *other = pool;
    pmindex_index *index = (pmindex_index *)pool;
    IS(pmindex_pool_open(path, NULL, &other), BUSY);
    EXPECT(other == NULL);
    IS(pmindex_pool_create(path, NULL, &other), ALREADY_EXISTS);
    SAYS(path);
    IS(pmindex_pool_open("no/such/file", NULL, &other), NO_SUCH);
    IS(pmindex_pool_open(NULL, NULL, &other), INVALID_ARGUMENT);
    IS(pmindex_pool_open("\xff", NULL, &other), INVALID_ARGUMENT);
    SAYS("UTF-8");
    IS(pmindex_pool_open(path, NULL, NULL), INVALID_ARGUMENT);
    pmindex_options options = {.flags = 1u << 30};
    IS(pmindex_pool_open(path, &options, &other), INVALID_ARGUMENT);
    options = (pmindex_options){.durability = 9};
    IS(pmindex_pool_open(path, &options, &other), INVALID_ARGUMENT);

    IS(pmindex_index_open(pool, "missing", &index), NO_SUCH);
    EXPECT(index == NULL);
    IS(pmindex_index_create(pool, "a", "cuckoo", 0, 0, &index), INVALID_ARGUMENT);
    SAYS("cuckoo");
    IS(pmindex_index_create(pool, "a", "fptree", 0, 7, &index), INVALID_ARGUMENT);
    IS(pmindex_index_create(pool, "words", "fptree", 0, 0, &index), ALREADY_EXISTS);
    IS(pmindex_index_open(NULL, "words", &index), INVALID_ARGUMENT);

    /* Handles that are none. */
    int object = 0;
    IS(pmindex_pool_close((pmindex_pool *)&object), BAD_HANDLE);
    IS(pmindex_len((pmindex_index *)pool, NULL), INVALID_ARGUMENT);
    uint64_t records;
    IS(pmindex_len((pmindex_index *)pool, &records), BAD_HANDLE);
    for (uintptr_t i = 0; i < 10000; i++) {
        uintptr_t invented = i * (uintptr_t)0x9e3779b97f4a7c15u | 1;
        EXPECT(pmindex_len((pmindex_index *)invented, &records) < 0);
    }
    EXPECT(strcmp(pmindex_status_name(PMINDEX_STATUS_BUSY), "in use") == 0);
    EXPECT(strcmp(pmindex_status_name(12345), "unknown code") == 0);
}

/* Makes 512 bytes of a file unreadable as nodes: those around this number. */
static void damage(const char *path, uint64_t number) {
    FILE *file = fopen(path, "r+b");
    EXPECT(file != NULL);
    uint64_t page[64];
    long at = 0;
    while (fread(page, sizeof page, 1, file) == 1) {
        for (int word = 0; word < 64; word++) {
            if (page[word] == number) {
                memset(page, 0xa5, sizeof page);
                EXPECT(fseek(file, at, SEEK_SET) == 0 && fwrite(page, sizeof page, 1, file) == 1);
                EXPECT(fclose(file) == 0);
                return;
            }
        }
        at += (long)sizeof page;
    }
    EXPECT(!"the number is in the file");
}

/* A cursor returns records in order, and then the error, however often it is asked. */
static void cursor_over_damage(const char *pool_path, bool reverse) {
    char path[4096];
    EXPECT(snprintf(path, sizeof path, "%s.damaged%d", pool_path, reverse) < (int)sizeof path);
    pmindex_options options = {.size = 1 << 20, .flags = PMINDEX_NO_WRITE_BACK};
    pmindex_pool *pool;
    pmindex_index *index;
    OK(pmindex_pool_create(path, &options, &pool));
    OK(pmindex_index_create(pool, "words", "fastfair", PMINDEX_TYPE_U64, PMINDEX_TYPE_U64, &index));
    for (uint64_t key = 0; key < 4000; key++) {
        OK(pmindex_u64_try_insert(index, key, ~key));
    }
    OK(pmindex_index_close(index));
    OK(pmindex_pool_close(pool));
    damage(path, ~(uint64_t)2001);
    OK(pmindex_pool_open(path, &options, &pool));
    OK(pmindex_index_open(pool, "words", &index));
    pmindex_cursor *cursor;
    pmindex_range range = {.reverse = reverse};
    OK(pmindex_cursor_open(index, &range, &cursor));
    pmindex_bytes key;
    uint64_t seen = 0;
    pmindex_status status;
    while ((status = pmindex_cursor_next(cursor, &key, NULL)) == PMINDEX_STATUS_OK) {
        uint64_t number;
        memcpy(&number, key.data, sizeof number);
        EXPECT(number == (reverse ? 3999 - seen : seen));
        seen++;
    }
    EXPECT(seen > 1500 && seen < 2100);
    for (int again = 0; again < 3; again++) {
        EXPECT(status == PMINDEX_STATUS_CORRUPT);
        status = pmindex_cursor_next(cursor, &key, NULL);
    }
    OK(pmindex_cursor_close(cursor));
    IS(pmindex_index_close(index), CORRUPT);
    (void)pmindex_pool_close(pool); /* it is damaged */
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    const char *path = argv[1];
    pmindex_options options = {.size = 8 << 20, .flags = PMINDEX_NO_WRITE_BACK,
                               .durability = PMINDEX_DURABILITY_PROCESS};
    pmindex_pool *pool;
    OK(pmindex_pool_create(path, &options, &pool));
    byte_strings(pool);
    removal_under_replacement(pool);
    numbers(pool);
    every_kind(pool);
    refusals(pool, path);

    char room[4096];
    pmindex_buffer text = {.data = room, .capacity = sizeof room};
    OK(pmindex_pool_describe(pool, &text));
    EXPECT(text.len > 20);
    OK(pmindex_pool_index_name(pool, 0, &text));
    EXPECT(text.len == 5 && memcmp(room, "words", 5) == 0);
    IS(pmindex_pool_index_name(pool, 1000, &text), END);
    uint64_t size, used;
    OK(pmindex_pool_size(pool, &size, &used));
    EXPECT(size >= 8 << 20 && used > 0 && used < size);
    OK(pmindex_pool_sync(pool));
    OK(pmindex_pool_close(pool));
    IS(pmindex_pool_close(pool), BAD_HANDLE);
    IS(pmindex_pool_sync(pool), BAD_HANDLE);

    /* Everything is there again, and a reader may not write. */
    options.flags = PMINDEX_READ_ONLY;
    options.durability = PMINDEX_DURABILITY_ANY;
    OK(pmindex_pool_open(path, &options, &pool));
    pmindex_index *index;
    OK(pmindex_index_open(pool, "squares", &index));
    uint64_t value = 0;
    OK(pmindex_u64_get(index, 12, &value));
    EXPECT(value == 145);
    IS(pmindex_u64_try_insert(index, 9999, 1), READ_ONLY);
    OK(pmindex_index_close(index));
    OK(pmindex_index_open(pool, "words", &index));
    scan(index, NULL, " pear ");
    OK(pmindex_index_close(index));
    OK(pmindex_pool_close(pool));

    /* With a journal, where the medium is one that has any use for it. */
    options.flags = PMINDEX_JOURNAL;
    OK(pmindex_pool_open(path, &options, &pool));
    OK(pmindex_index_open(pool, "squares", &index));
    OK(pmindex_u64_try_insert(index, 9999, 1));
    OK(pmindex_index_close(index));
    OK(pmindex_pool_close(pool));
    cursor_over_damage(path, false);
    cursor_over_damage(path, true);
    puts("all of it holds");
    return EXIT_SUCCESS;
}
