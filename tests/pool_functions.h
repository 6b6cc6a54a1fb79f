/* pool_functions.h: test_pool.c's user function. It notes how many threads OpenMP has where it runs. */
BSR_USER_FUNCTION float pool_here(float x, const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data, (void)POOL_HERE;
    return x;
}
#define BSR_USER_EPILOGUES(X) X(pool_here)
