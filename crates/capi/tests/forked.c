/* What the child of a process with several threads may do with the handles of its parent: nothing. Writes of an index,
   and all calls of a store's maps, find that out before they wait for a thread that the child does not have. */
#include "expect.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* Forks, while a thread of the parent is nearly always in a call. */
#define FORKS 40
/* After this many seconds a child that waits is killed. */
#define PATIENCE 10

static atomic_bool is_over;

/* Holds the lock of one key, or waits for it. */
static void *change(void *index) {
    struct room old;
    while (!is_over) {
        OK(pmindex_put(index, bytes("key"), bytes("value"), NULL));
        OK(pmindex_remove(index, bytes("key"), room(&old, 64)));
    }
    return NULL;
}

static void *sweep(void *map) {
    while (!is_over) {
        pmindex_status status = pmindex_expiring_sweep(map, 1000, NULL);
        EXPECT(status == PMINDEX_STATUS_OK || status == PMINDEX_STATUS_END);
    }
    return NULL;
}

/* What a child calls; all of it is refused. */
static void call(const pmindex_index *index, const pmindex_expiring *expiring, const pmindex_store *store) {
    struct room value;
    pmindex_addition addition = {.key = bytes("key"), .value = bytes("value")};
    EXPECT(pmindex_put(index, bytes("key"), bytes("x"), NULL) != PMINDEX_STATUS_OK);
    SAYS("forked");
    EXPECT(pmindex_remove(index, bytes("key"), room(&value, 64)) != PMINDEX_STATUS_OK);
    EXPECT(pmindex_put_many(index, &addition, 1) != PMINDEX_STATUS_OK);
    EXPECT(pmindex_try_insert_many(index, &addition, 1) != PMINDEX_STATUS_OK);
    if (expiring != NULL) {
        EXPECT(pmindex_get(index, bytes("key"), room(&value, 64)) != PMINDEX_STATUS_OK);
        EXPECT(pmindex_expiring_sweep(expiring, 10, NULL) != PMINDEX_STATUS_OK);
        pmindex_snapshot *snapshot;
        EXPECT(pmindex_snapshot_begin(store, &snapshot) != PMINDEX_STATUS_OK);
    }
}

static void fork_often(pmindex_index *index, pmindex_expiring *expiring, const pmindex_store *store) {
    pthread_t threads[3];
    is_over = false;
    EXPECT(pthread_create(&threads[0], NULL, change, index) == 0);
    if (expiring != NULL) {
        EXPECT(pthread_create(&threads[1], NULL, sweep, expiring) == 0);
    }
    for (int i = 0; i < FORKS; i++) {
        usleep(500);
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            alarm(PATIENCE);
            call(index, expiring, store);
            _exit(0);
        }
        int status;
        EXPECT(waitpid(child, &status, 0) == child);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    is_over = true;
    EXPECT(pthread_join(threads[0], NULL) == 0);
    if (expiring != NULL) {
        EXPECT(pthread_join(threads[1], NULL) == 0);
    }
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    pmindex_pool *pool;
    pmindex_index *index, *map;
    OK(pmindex_pool_create(argv[1], NULL, &pool));
    OK(pmindex_index_create(pool, "index", "fptree", PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &index));
    fork_often(index, NULL, NULL);
    OK(pmindex_index_close(index));

    pmindex_store *store;
    pmindex_watch *watch;
    pmindex_expiring *expiring;
    OK(pmindex_store_in_pool(pool, NULL, &store));
    OK(pmindex_store_map(store, "map", NULL, PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &map));
    OK(pmindex_store_expiring_map(store, "expiring", PMINDEX_TYPE_BYTES, PMINDEX_TYPE_BYTES, &expiring));
    /* Writers lock their keys. */
    OK(pmindex_watch_begin(store, &watch));
    fork_often(map, expiring, store);
    OK(pmindex_watch_end(watch));
    OK(pmindex_expiring_close(expiring));
    OK(pmindex_index_close(map));
    OK(pmindex_store_close(store));
    OK(pmindex_pool_close(pool));
    puts("all of it holds");
    return 0;
}
