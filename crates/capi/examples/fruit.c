/* A durable ordered map in C. Run it twice: the second run finds what the first one stored.
 *
 *   cargo build --release -p pmindex-capi
 *   cc crates/capi/examples/fruit.c -I crates/capi/include -L target/release -lpmindex -Wl,-rpath,target/release -o fruit
 *   ./fruit fruit.pool
 */
#include <pmindex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(pmindex_status status) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", pmindex_status_name(status), pmindex_last_error());
        exit(EXIT_FAILURE);
    }
}

static pmindex_bytes text(const char *text) {
    return (pmindex_bytes){.data = text, .len = strlen(text)};
}

static pmindex_bytes number(const uint64_t *number) {
    return (pmindex_bytes){.data = number, .len = sizeof *number};
}

static bool show(void *context, pmindex_bytes key, pmindex_bytes value) {
    uint64_t count;
    memcpy(&count, value.data, sizeof count);
    fprintf(context, "%.*s: %llu\n", (int)key.len, (const char *)key.data,
            (unsigned long long)count);
    return true;
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "fruit.pool";
    pmindex_pool *pool;
    pmindex_index *fruit;
    must(pmindex_pool_open_or_create(path, NULL, &pool));
    if (pmindex_index_open(pool, "fruit", &fruit) == PMINDEX_STATUS_NO_SUCH) {
        must(pmindex_index_create(pool, "fruit", "fptree", PMINDEX_TYPE_BYTES, PMINDEX_TYPE_U64,
                                  &fruit));
    }

    uint64_t three = 3, five = 5, eaten = 0;
    must(pmindex_put(fruit, text("pear"), number(&five), NULL)); /* durable when it returns */
    must(pmindex_put(fruit, text("apple"), number(&three), NULL));
    pmindex_buffer value = {.data = &eaten, .capacity = sizeof eaten};
    must(pmindex_get(fruit, text("eaten"), &value));
    eaten += 1;
    must(pmindex_put(fruit, text("eaten"), number(&eaten), NULL));
    must(pmindex_scan(fruit, NULL, show, stdout, NULL));

    must(pmindex_index_close(fruit));
    must(pmindex_pool_close(pool));
    return EXIT_SUCCESS;
}
