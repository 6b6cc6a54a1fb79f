/* tune_table.h: tuned parameters for bsrsparse, per operation, GPU, data type and shape. Generated; empty for now,
   so every plan comes from the heuristic. bsrsparse.h works without this file. */
#ifndef BSRSPARSE_TUNE_TABLE_H
#define BSRSPARSE_TUNE_TABLE_H
/* BEGIN GENERATED */
#define BSRSPARSE_TUNE_ROWS 0
/* END GENERATED */
#endif
