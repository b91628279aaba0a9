/* A bank in C: a transaction over two maps, a moment of both, and a copy of it. Each run books transfers and finds
 * what the runs before have booked; whenever it is killed, no money is lost or made.
 *
 *   ./bank bank.pool 3 bank.copy
 *
 * books three transfers, and writes the store as it was before the last one to bank.copy. "kill" as the last
 * word ends the program as a crash would, in the middle of a transaction. fruit.c says how to compile this.
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

static pmindex_bytes text(const char *text) {
    return (pmindex_bytes){.data = text, .len = strlen(text)};
}

static pmindex_bytes number(const uint64_t *number) {
    return (pmindex_bytes){.data = number, .len = sizeof *number};
}

/* The maps: what each has, by name, and the transfers, by number. */
struct bank {
    pmindex_store *store;
    pmindex_index *accounts, *transfers;
    bool crashes;
};

struct transfer {
    const struct bank *bank;
    const char *from, *to;
    uint64_t amount;
};

static pmindex_status balance(pmindex_transaction *tx, const struct bank *bank, const char *name,
                              uint64_t *money) {
    pmindex_buffer value = {.data = money, .capacity = sizeof *money};
    return pmindex_transaction_get(tx, bank->accounts, text(name), &value);
}

/* The body of a transaction: 0 and it is committed, anything else and nothing of it takes place. It runs again
   if another transaction was faster, so it does nothing but read and write maps. */
static int32_t transfer(pmindex_transaction *tx, void *context) {
    const struct transfer *this = context;
    const struct bank *bank = this->bank;
    uint64_t from, to, last = 0;
    int32_t status = balance(tx, bank, this->from, &from);
    if (status == 0) {
        status = balance(tx, bank, this->to, &to);
    }
    if (status != 0 || from < this->amount) {
        return status != 0 ? status : PMINDEX_STATUS_DIFFERENT;
    }
    /* The newest transfer, read through a cursor: two of the same number would conflict. */
    pmindex_cursor *cursor;
    pmindex_bytes key;
    pmindex_range newest = {.reverse = 1};
    must(pmindex_transaction_cursor(tx, bank->transfers, &newest, &cursor));
    if (pmindex_cursor_next(cursor, &key, NULL) == PMINDEX_STATUS_OK) {
        memcpy(&last, key.data, sizeof last);
    }
    must(pmindex_cursor_close(cursor));
    from -= this->amount;
    to += this->amount;
    last += 1;
    must(pmindex_transaction_put(tx, bank->accounts, text(this->from), number(&from)));
    must(pmindex_transaction_put(tx, bank->accounts, text(this->to), number(&to)));
    must(pmindex_transaction_put(tx, bank->transfers, number(&last), text(this->to)));
    if (bank->crashes) {
        raise(SIGKILL); /* nothing of this one is there afterwards */
    }
    return PMINDEX_STATUS_OK;
}

static bool add(void *sum, pmindex_bytes key, pmindex_bytes value) {
    uint64_t money;
    memcpy(&money, value.data, sizeof money);
    *(uint64_t *)sum += money;
    (void)key;
    return true;
}

/* What both maps say at one moment, whatever other threads do. */
static void show(const struct bank *bank, const pmindex_snapshot *moment) {
    uint64_t sum = 0, ada = 0, booked = 0;
    pmindex_buffer value = {.data = &ada, .capacity = sizeof ada};
    pmindex_cursor *cursor;
    must(pmindex_snapshot_scan(moment, bank->accounts, NULL, add, &sum, NULL));
    must(pmindex_snapshot_get(moment, bank->accounts, text("Ada"), &value));
    must(pmindex_snapshot_cursor(moment, bank->transfers, NULL, &cursor));
    while (pmindex_cursor_next(cursor, NULL, NULL) == PMINDEX_STATUS_OK) {
        booked += 1;
    }
    must(pmindex_cursor_close(cursor));
    printf("%llu transfers, Ada has %llu of %llu\n", (unsigned long long)booked,
           (unsigned long long)ada, (unsigned long long)sum);
}

static void open_bank(struct bank *bank, const char *path) {
    pmindex_store_options options = {.pool = {.size = 8 << 20}};
    must(pmindex_store_open_or_create(path, &options, &bank->store));
    must(pmindex_store_map(bank->store, "accounts", NULL, PMINDEX_TYPE_BYTES, PMINDEX_TYPE_U64,
                           &bank->accounts));
    must(pmindex_store_map(bank->store, "transfers", NULL, PMINDEX_TYPE_U64, PMINDEX_TYPE_BYTES,
                           &bank->transfers));
    uint64_t hundred = 100;
    pmindex_change first[] = {
        {.key = text("Ada"), .value = number(&hundred)},
        {.key = text("Bob"), .value = number(&hundred)},
    };
    if (pmindex_contains(bank->accounts, text("Ada")) == PMINDEX_STATUS_NOT_FOUND) {
        must(pmindex_write_batch(bank->accounts, first, 2)); /* both, or none */
    }
}

static void close_bank(struct bank *bank) {
    must(pmindex_index_close(bank->accounts));
    must(pmindex_index_close(bank->transfers));
    must(pmindex_store_close(bank->store));
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "bank POOL TRANSFERS COPY [kill]\n");
        return EXIT_FAILURE;
    }
    struct bank bank = {.crashes = false};
    open_bank(&bank, argv[1]);
    struct transfer ten = {&bank, "Ada", "Bob", 10};
    pmindex_snapshot *before = NULL;
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--) {
        if (left == 1) {
            must(pmindex_snapshot_begin(bank.store, &before));
            remove(argv[3]); /* a backup replaces no file */
            must(pmindex_store_backup(bank.store, argv[3], NULL));
        }
        pmindex_status status = pmindex_transaction_run(bank.store, transfer, &ten);
        must(status);
        if (status == PMINDEX_STATUS_DIFFERENT) {
            printf("Ada has not got that much\n");
        }
    }
    if (before != NULL) {
        show(&bank, before); /* as if the last transfer had not been */
        must(pmindex_snapshot_end(before));
    }
    must(pmindex_snapshot_begin(bank.store, &before));
    show(&bank, before);
    must(pmindex_snapshot_end(before));
    fflush(stdout);
    if (argc > 4 && strcmp(argv[4], "kill") == 0) {
        bank.crashes = true;
        pmindex_transaction_run(bank.store, transfer, &ten);
    }
    close_bank(&bank);
    return EXIT_SUCCESS;
}
