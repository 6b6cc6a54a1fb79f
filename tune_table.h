/* tune_table.h: tuned parameters for bsrsparse, per operation, GPU, data types and shape. bsrsparse.h works without it.
   Written by bsr_tune_export (make tune); bsr_tune_import reads it back. */
#ifndef BSRSPARSE_TUNE_TABLE_H
#define BSRSPARSE_TUNE_TABLE_H
/* BEGIN GENERATED */
#define BSRI_TUNE_FORMAT 1
#define BSRI_TUNE_ROWS 0
/* END GENERATED, check sum 2166136261 */
#endif
