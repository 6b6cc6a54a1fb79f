/* The same name in both modules, and not the same function. */
BSR_USER_FUNCTION float graded(float x, const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data;
    return FACTOR * x;
}
#define BSR_USER_EPILOGUES(X) X(graded)
