/* Orders that survive a power failure, without persistent memory. On a disk:
 *
 *   ./orders orders.pool 3
 *
 * books three orders more. Each is on the disk, in the pool's journal, when pmindex_u64_put() returns. In
 * memory, with a twin on a disk that follows it 20 milliseconds behind:
 *
 *   ./orders /dev/shm/orders.pool 3 orders.twin
 *
 * Here nobody waits for the disk but who asks for it, and this program does, before it says what it has
 * booked. "kill" as the last word ends it then as a crash would. fruit.c says how to compile this.
 */
#include <pmindex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(pmindex_status status) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", pmindex_status_name(status), pmindex_last_error());
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv) {
    bool crashes = argc > 3 && strcmp(argv[argc - 1], "kill") == 0;
    argc -= crashes;
    if (argc < 3) {
        fprintf(stderr, "orders POOL COUNT [TWIN] [kill]\n");
        return EXIT_FAILURE;
    }
    const char *path = argv[1], *twin = argc > 3 ? argv[3] : NULL;
    uint64_t more = strtoull(argv[2], NULL, 10), booked = 0;

    pmindex_options options = {.size = 1 << 20};
    pmindex_pool *pool;
    if (twin != NULL) {
        must(pmindex_pool_open_with_twin(path, &options, twin, 20, &pool));
    } else {
        options.flags = PMINDEX_JOURNAL;
        options.durability = PMINDEX_DURABILITY_MSYNC; /* nothing that a power failure takes */
        must(pmindex_pool_open_or_create(path, &options, &pool));
    }
    pmindex_index *orders;
    if (pmindex_index_open(pool, "orders", &orders) == PMINDEX_STATUS_NO_SUCH) {
        must(pmindex_index_create(pool, "orders", "fptree", PMINDEX_TYPE_U64, PMINDEX_TYPE_U64,
                                  &orders));
    }
    must(pmindex_check(orders, &booked));
    printf("%llu found\n", (unsigned long long)booked);
    for (uint64_t number = booked + 1; number <= booked + more; number++) {
        must(pmindex_u64_put(orders, number, number * 100, NULL));
    }
    must(pmindex_pool_sync(pool)); /* waits for the twin; a journal has it all */
    printf("%llu booked\n", (unsigned long long)more);
    fflush(stdout);
    if (crashes) {
        raise(SIGKILL);
    }
    must(pmindex_index_close(orders));
    must(pmindex_pool_close(pool));
    return EXIT_SUCCESS;
}
