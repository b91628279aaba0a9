/* What the test programs check with, and how they make keys and values. */
#ifndef EXPECT_H
#define EXPECT_H

#include <pmindex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                   \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "line %d: %s\nlast error: %s\n", __LINE__, #condition,          \
                    pmindex_last_error());                                                  \
            exit(EXIT_FAILURE);                                                             \
        }                                                                                   \
    } while (0)
#define OK(call) EXPECT((call) == PMINDEX_STATUS_OK)
#define IS(call, name) EXPECT((call) == PMINDEX_STATUS_##name)
#define SAYS(words) EXPECT(strstr(pmindex_last_error(), words) != NULL)

static inline pmindex_bytes bytes(const char *text) {
    return (pmindex_bytes){.data = text, .len = strlen(text)};
}

static inline pmindex_bytes number(const uint64_t *number) {
    return (pmindex_bytes){.data = number, .len = sizeof *number};
}

/* Room for a value, and whether it is this text. */
struct room {
    char text[64];
    pmindex_buffer buffer;
};

static inline pmindex_buffer *room(struct room *room, size_t capacity) {
    room->buffer = (pmindex_buffer){.data = room->text, .capacity = capacity};
    return &room->buffer;
}

static inline bool holds(const struct room *room, const char *text) {
    return room->buffer.len == strlen(text) && memcmp(room->text, text, room->buffer.len) == 0;
}

#endif
