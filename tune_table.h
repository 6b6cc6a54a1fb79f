/* tune_table.h: tuned parameters for bsrsparse, per operation, GPU, data types and shape. bsrsparse.h works without it.
   Written by bsr_tune_export (make tune); bsr_tune_import reads it back. */
#ifndef BSRSPARSE_TUNE_TABLE_H
#define BSRSPARSE_TUNE_TABLE_H
/* BEGIN GENERATED */
#define BSRI_TUNE_FORMAT 1
#define BSRI_TUNE_ROWS 1
static const bsr_tune_gpu bsri_tune_gpus[] = { /* name, architecture, multiprocessors, made with */
    {"NVIDIA H200", 90, 132,
     "driver for CUDA 13.0, toolkit 13.0, 2026-11-22, bsrsparse 0.1.0",
     "sha256 567df6164597368b1a5d7bd6bac64aaf2233aef1b57fc8c4142737083fc7dfa4"},
};
static const bsr_tune_row bsri_tune_rows[] = {
    /* gpu, op, dtype, out, block rows, block cols, beta, alpha, m, k, n, density: */
    /* kernel, tile rows, tile cols, split, stages, order, gain */
    {0,1,2,2,128,128,0,1,1024,4096,8192,5,3,128,256,1,4,0,7},
};
/* END GENERATED, check sum 1016244176 */
#endif
