/* tune_table.h: tuned parameters for bsrsparse, per operation, GPU, data types and shape. bsrsparse.h works without it.
   Written by bsr_tune_export (make tune); bsr_tune_import reads it back. */
#ifndef BSRSPARSE_TUNE_TABLE_H
#define BSRSPARSE_TUNE_TABLE_H
/* BEGIN GENERATED */
#define BSRI_TUNE_FORMAT 1
#define BSRI_TUNE_ROWS 2
static const bsr_tune_gpu bsri_tune_gpus[] = { /* name, architecture, multiprocessors, made with */
    {"NVIDIA H200", 90, 132,
     "driver for CUDA 13.0, toolkit 13.0, 2026-11-22, bsrsparse 0.1.0",
     "sha256 ea596f5898ddcb7b8d04c06646d4c235199ac7cd530d9536e4f3df7c13c091e2"},
};
static const bsr_tune_row bsri_tune_rows[] = {
    /* gpu, op, dtype, out, block rows, block cols, beta, alpha, m, k, n, density: */
    /* kernel, tile rows, tile cols, split, stages, order, gain */
    {0,1,2,2,32,32,0,1,4096,4096,4096,5,3,128,256,1,0,0,5},
    {0,1,2,2,128,128,0,1,1024,4096,8192,5,3,128,256,1,4,0,7},
};
/* END GENERATED, check sum 2673775341 */
#endif
