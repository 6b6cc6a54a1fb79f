/* ref_conv.h: convolutions in float64 and wider, by the formula: every image, pixel, tap and channel in loops. Include after
   ref64.h. */
#ifndef BSR_REF_CONV_H
#define BSR_REF_CONV_H

/* A view of images by place: pixel i (three axes, those that are lacking in front). */
TF int64_t ref_pixels(const bsr_dense *d, int dims, int axis) { /* axis from 0 to 2 */
    if (axis == 2) return d->cols;
    return axis < 3 - dims ? 1 : d->batch[d->batch_dims - 2 + axis];
}
TF int64_t ref_images(const bsr_dense *d, int dims) { return d->batch_dims == dims ? d->batch[0] : 1; }
TF int64_t ref_image_item(const bsr_dense *d, int dims, int64_t image, const int64_t i[3]) {
    return (image * ref_pixels(d, dims, 0) + i[0]) * ref_pixels(d, dims, 1) + i[1];
}
TF int64_t ref_field(const int64_t *field, int dims, int axis, int64_t otherwise) {
    const int i = axis - (3 - dims);
    return i >= 0 && field[i] ? field[i] : otherwise;
}
/* Which pixel of what it takes a tap of pixel i of what it gives sees; 0: none. */
TF int ref_sees(const bsr_conv_shape *s, const bsr_dense *takes, const int64_t i[3], const int64_t tap[3], int64_t at[3]) {
    int a;
    for (a = 0; a < 3; a++) {
        at[a] = i[a] * ref_field(s->stride, s->dims, a, 1) + tap[a] * ref_field(s->dilation, s->dims, a, 1) -
                ref_field(s->pad_before, s->dims, a, 0);
        if (at[a] < 0 || at[a] >= ref_pixels(takes, s->dims, a)) return 0;
    }
    return 1;
}
/* Goes through all (image, pixel of what it gives, tap that sees something): use(arg, items, columns and tap number). */
typedef void (*ref_conv_use)(void *arg, int64_t takes_item, int64_t takes_col, int64_t gives_item, int64_t gives_col,
                             int64_t tap);
TF void ref_conv_walk(const bsr_conv_shape *s, const bsr_dense *takes, const bsr_dense *gives, ref_conv_use use, void *arg) {
    int64_t image, i[3], tap[3], at[3], n[3], k[3];
    int a;
    for (a = 0; a < 3; a++) n[a] = ref_pixels(gives, s->dims, a), k[a] = ref_field(s->kernel, s->dims, a, 1);
    for (image = 0; image < ref_images(gives, s->dims); image++)
        for (i[0] = 0; i[0] < n[0]; i[0]++)
            for (i[1] = 0; i[1] < n[1]; i[1]++)
                for (i[2] = 0; i[2] < n[2]; i[2]++)
                    for (tap[0] = 0; tap[0] < k[0]; tap[0]++)
                        for (tap[1] = 0; tap[1] < k[1]; tap[1]++)
                            for (tap[2] = 0; tap[2] < k[2]; tap[2]++)
                                if (ref_sees(s, takes, i, tap, at))
                                    use(arg, ref_image_item(takes, s->dims, image, at), at[2],
                                        ref_image_item(gives, s->dims, image, i), i[2], (tap[0] * k[1] + tap[1]) * k[2] + tap[2]);
}

typedef struct ref_conv_state {
    ref_array w, count, magnitude, x, dy; /* x: what is read */
    ref_sum sum;
    int64_t groups, filters, channels; /* of a group */
    int turned;
} ref_conv_state;
TF void ref_conv_add(ref_conv_state *r, int64_t item, int64_t row, int64_t col, double a, double magnitude, double times,
                     double b) {
    if (times == 0) return;
    *ref_at(&r->sum.s, item, row, col) = (double)((ref_real)*ref_at(&r->sum.s, item, row, col) + (ref_real)a * (ref_real)b);
    *ref_at(&r->sum.t, item, row, col) += magnitude * fabs(b);
    *ref_at(&r->sum.n, item, row, col) += times;
}
TF void ref_conv_pixel(void *arg, int64_t takes_item, int64_t takes_col, int64_t gives_item, int64_t gives_col, int64_t tap) {
    ref_conv_state *r = (ref_conv_state *)arg;
    int64_t o, c;
    for (o = 0; o < r->filters * r->groups; o++)
        for (c = 0; c < r->channels; c++) {
            const int64_t at = o / r->filters * r->channels + c, k = tap * r->channels + c;
            const double w = *ref_at(&r->w, 0, o, k), m = *ref_at(&r->magnitude, 0, o, k), n = *ref_at(&r->count, 0, o, k);
            if (r->turned) ref_conv_add(r, takes_item, at, takes_col, w, m, n, *ref_at(&r->x, gives_item, o, gives_col));
            else ref_conv_add(r, gives_item, o, gives_col, w, m, n, *ref_at(&r->x, takes_item, at, takes_col));
        }
}
/* act(beta input + left (alpha conv(w, x)) right + bias), or of the data gradient, for an output of `out`'s sizes. */
TF ref_result ref_conv(double beta, const bsr_dense *input, double alpha, unsigned trans, const bsr_conv_shape *shape,
                       const bsr_matrix *w, const bsr_dense *x, const bsr_epilogue *epilogue, const bsr_dense *out,
                       unsigned exec_flags) {
    const bsr_dense *takes = trans ? out : x, *gives = trans ? x : out;
    ref_finish_args f;
    ref_conv_state r;
    memset(&r, 0, sizeof r), memset(&f, 0, sizeof f);
    r.turned = trans != 0, r.groups = shape->groups ? shape->groups : 1;
    r.filters = gives->rows / r.groups, r.channels = takes->rows / r.groups;
    r.w = ref_matrix(w, &r.count), r.magnitude = ref_magnitude(w), r.x = ref_dense(x);
    r.sum.s = ref_new(t_dense_batch(out), out->rows, out->cols), r.sum.t = ref_new(t_dense_batch(out), out->rows, out->cols);
    r.sum.n = ref_new(t_dense_batch(out), out->rows, out->cols);
    if (BT_WANTED) ref_conv_walk(shape, takes, gives, ref_conv_pixel, &r);
    f.alpha = alpha, f.beta = beta, f.input = input, f.epilogue = epilogue, f.out_dtype = out->dtype;
    f.compute = ref_compute(w->dtype), f.sums_f64 = (exec_flags & BSR_EXEC_ACCUMULATE_F64) != 0;
    return ref_finish(&r.sum, &f);
}

TF void ref_conv_weight(void *arg, int64_t takes_item, int64_t takes_col, int64_t gives_item, int64_t gives_col, int64_t tap) {
    ref_conv_state *r = (ref_conv_state *)arg;
    int64_t o, c;
    for (o = 0; o < r->filters * r->groups; o++)
        for (c = 0; c < r->channels; c++) {
            const double y = *ref_at(&r->dy, gives_item, o, gives_col);
            const double x = *ref_at(&r->x, takes_item, o / r->filters * r->channels + c, takes_col);
            ref_conv_add(r, 0, o, tap * r->channels + c, y, fabs(y), 1, x);
        }
}
/* beta input + alpha (the weight gradient), for all elements of a matrix of out's sizes. */
TF ref_result ref_conv_weights(double beta, const bsr_matrix *input, double alpha, const bsr_conv_shape *shape,
                               const bsr_dense *dy, const bsr_dense *x, const bsr_matrix *out, unsigned exec_flags) {
    ref_array in = ref_none();
    ref_finish_args f;
    ref_conv_state r;
    ref_result result;
    double u = dy->dtype == BSR_F64 ? REF_U64 : 0x1p-24;
    int64_t i, j;
    memset(&r, 0, sizeof r), memset(&f, 0, sizeof f);
    r.groups = shape->groups ? shape->groups : 1, r.filters = dy->rows / r.groups, r.channels = x->rows / r.groups;
    r.x = ref_dense(x), r.dy = ref_dense(dy);
    r.sum.s = ref_new(NO_BATCH, out->rows, out->cols), r.sum.t = ref_new(NO_BATCH, out->rows, out->cols);
    r.sum.n = ref_new(NO_BATCH, out->rows, out->cols);
    if (BT_WANTED) ref_conv_walk(shape, x, dy, ref_conv_weight, &r);
    f.alpha = alpha, f.compute = ref_compute(dy->dtype), f.out_dtype = t_is_float(out->dtype) ? BSR_F64 : BSR_I32;
    f.sums_f64 = (exec_flags & BSR_EXEC_ACCUMULATE_F64) != 0;
    result = ref_finish(&r.sum, &f);
    if (beta != 0) in = ref_matrix(input, NULL);
    for (i = 0; i < out->rows && BT_WANTED; i++)
        for (j = 0; j < out->cols; j++) {
            double *want = ref_at(&result.want, 0, i, j), part = beta != 0 ? beta * *ref_at(&in, 0, i, j) : 0;
            uint32_t low;
            if (beta != 0) *want += part, *ref_at(&result.bound, 0, i, j) += 4 * u * (fabs(part) + fabs(*want));
            if (t_is_float(out->dtype)) continue;
            low = (uint32_t)((uint64_t)(int64_t)*want & 0xffffffffu);
            *want = low < 0x80000000u ? (double)low : (double)low - 4294967296.0;
            if (out->dtype == BSR_I8) *want = (low & 255u) < 128u ? (double)(low & 255u) : (double)(low & 255u) - 256;
        }
    return result;
}

#endif /* BSR_REF_CONV_H */
