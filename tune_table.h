/* tune_table.h: tuned parameters for bsrsparse, per operation, GPU, data types and shape. bsrsparse.h works without it.
   Written by bsr_tune_export (make tune); bsr_tune_import reads it back. */
#ifndef BSRSPARSE_TUNE_TABLE_H
#define BSRSPARSE_TUNE_TABLE_H
/* BEGIN GENERATED */
#define BSRI_TUNE_FORMAT 1
#define BSRI_TUNE_ROWS 5
static const bsr_tune_gpu bsri_tune_gpus[] = { /* name, architecture, multiprocessors, made with */
    {"NVIDIA H200", 90, 132,
     "driver for CUDA 13.0, toolkit 13.0, 2026-11-22, bsrsparse 0.1.0",
     "sha256 414dcd8e7447b06a21474248277c7eab8a055fdb7ac9314dd2cf3ddca2ac8a0f"},
};
static const bsr_tune_row bsri_tune_rows[] = {
    /* gpu, op, dtype, out, block rows, block cols, beta, alpha, m, k, n, density: */
    /* kernel, tile rows, tile cols, split, stages, order, gain */
    {0,1,2,2,16,16,0,1,4096,4096,512,20,2,16,64,2,0,0,12},
    {0,1,2,2,32,32,0,1,1024,4096,8192,5,2,32,64,1,0,0,8},
    {0,1,2,2,32,32,0,1,4096,4096,512,5,2,32,64,2,0,0,14},
    {0,1,2,2,128,128,0,1,4096,4096,512,5,3,128,128,1,0,0,5},
    {0,1,2,2,128,128,0,1,4096,4096,512,20,3,128,128,1,0,0,16},
};
/* END GENERATED, check sum 1666142390 */
#endif
