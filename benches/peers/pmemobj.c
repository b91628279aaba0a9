/* Blocks of 1 KiB from PMDK's pmemobj_alloc, into a persistent pointer and out of it, for
 * `cargo xtask peers`. Arguments: pool file, threads, rounds. Prints nanoseconds per operation. */
#include <libpmemobj.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCKS 1024
#define THREADS 8

struct root {
	PMEMoid places[THREADS][BLOCKS];
};

static PMEMobjpool *pool;
static struct root *root;
static int rounds;
static double spent[THREADS][2];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int fill(PMEMobjpool *pop, void *block, void *argument)
{
	(void)argument;
	*(uint64_t *)block = 1;
	pmemobj_flush(pop, block, 8); /* the allocation fences */
	return 0;
}

static void *work(void *argument)
{
	int thread = (int)(intptr_t)argument;
	PMEMoid *places = root->places[thread];
	for (int round = 0; round < rounds; round++) {
		double start = now();
		for (int i = 0; i < BLOCKS; i++)
			if (pmemobj_alloc(pool, &places[i], 1024, 1, fill, NULL))
				exit(3);
		double middle = now();
		for (int i = 0; i < BLOCKS; i++)
			pmemobj_free(&places[i]);
		spent[thread][0] += middle - start;
		spent[thread][1] += now() - middle;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int threads = atoi(argv[2]);
	rounds = atoi(argv[3]);
	if (threads < 1 || threads > THREADS)
		return 2;
	pool = pmemobj_create(argv[1], "peers", 256 << 20, 0600);
	if (!pool) {
		fprintf(stderr, "%s\n", pmemobj_errormsg());
		return 1;
	}
	root = pmemobj_direct(pmemobj_root(pool, sizeof *root));
	pthread_t handles[THREADS];
	for (intptr_t t = 0; t < threads; t++)
		pthread_create(&handles[t], NULL, work, (void *)t);
	double total[2] = {0, 0};
	for (int t = 0; t < threads; t++) {
		pthread_join(handles[t], NULL);
		total[0] += spent[t][0];
		total[1] += spent[t][1];
	}
	double operations = (double)threads * rounds * BLOCKS;
	printf("%.0f %.0f\n", total[0] / operations, total[1] / operations);
	pmemobj_close(pool);
	return 0;
}
