/* test_functions.h: user functions of the tests; see BSRSPARSE_USER_FUNCTIONS in bsrsparse.h. */
BSR_USER_FUNCTION float tf_shift(float x, const bsr_position *at, const void *user_data) {
    float step = user_data ? *(const float *)user_data : 0.0f;
    return x * 2.0f + step * (float)(at->row % 3) - (float)(at->col % 2) * 0.25f + (float)at->batch;
}
BSR_USER_FUNCTION float tf_square(float x, const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data;
    return x * x;
}
BSR_USER_FUNCTION float tf_alibi(float s, const bsr_position *at, const void *user_data) {
    float slope = user_data ? *(const float *)user_data : 0.125f;
    return s - slope * (float)(at->head + 1) * (float)(at->row > at->col ? at->row - at->col : at->col - at->row) +
           0.25f * (float)at->batch;
}
BSR_USER_FUNCTION float tf_softcap(float s, const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data;
    return s / (1.0f + (s < 0 ? -s : s));
}
BSR_USER_FUNCTION float tf_alibi_gradient(float g, float s, const bsr_position *at, const void *user_data) {
    (void)s, (void)at, (void)user_data;
    return g;
}
BSR_USER_FUNCTION float tf_softcap_gradient(float g, float s, const bsr_position *at, const void *user_data) {
    const float t = 1.0f + (s < 0 ? -s : s);
    (void)at, (void)user_data;
    return g / (t * t);
}
BSR_USER_FUNCTION float tf_plain(float s, const bsr_position *at, const void *user_data) { /* without a derivative */
    (void)at, (void)user_data;
    return s;
}
BSR_USER_FUNCTION int tf_stripes(const bsr_position *at, const void *user_data) {
    (void)user_data;
    return (at->row + 2 * at->col + at->head + at->batch) % 3 != 0;
}
BSR_USER_FUNCTION int tf_nothing(const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data;
    return 0;
}
BSR_USER_FUNCTION int tf_documents(const bsr_position *at, const void *user_data) { /* of 21 tokens; a head sees one more */
    (void)user_data;
    return at->row / 21 == at->col / 21 || (at->head && at->row / 21 == at->col / 21 + 1);
}
#define BSR_USER_EPILOGUES(X) X(tf_shift) X(tf_square)
#define BSR_USER_SCORES(X) X(tf_alibi) X(tf_softcap) X(tf_plain)
#define BSR_USER_SCORE_GRADIENTS(X) X(tf_alibi) X(tf_softcap)
#define BSR_USER_MASKS(X) X(tf_stripes) X(tf_nothing) X(tf_documents)
