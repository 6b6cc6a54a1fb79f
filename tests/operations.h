/* operations.h: the list of operations. Tests that call every one of them take it from here: on the GPU what the CPU's programs
   call (gpu/mirror.h), at random on both (test_random.c), against a stand-in of CUDA (cudart/test_cudart.c), and test_errors.c
   counts that its calls name each. A new operation is one row, and what these tests then miss by its name: random_NAME() with its
   reference, call_NAME() for the stand-in, a valid call among those that test_errors.c makes bad.

     X(name, op, tiers, waits, writes)
       name    bsr_name()
       op      its bsr_op
       tiers   1: its plans name a tier
       waits   1: it may wait, as its status or a count stands in device memory
       writes  the arguments behind the context that it writes, as bits; of a builder those that it fills */
#ifndef BSR_OPERATIONS_H
#define BSR_OPERATIONS_H

/* They write operands that are as large as their descriptors say. */
#define T_CALLS(X)                                              \
    X(dense_addmm, BSR_OP_DENSE_ADDMM, 1, 0, 1u << 7)           \
    X(dense_mm, BSR_OP_DENSE_ADDMM, 1, 0, 1u << 3)              \
    X(scatter_mm, BSR_OP_SCATTER_MM, 1, 0, 1u << 3)             \
    X(dense_scatter_mm, BSR_OP_SCATTER_MM, 1, 0, 1u << 3)       \
    X(matmul, BSR_OP_MATMUL, 1, 0, 1u << 3)                     \
    X(matmul_backward, BSR_OP_MATMUL_BACKWARD, 1, 0, 3u << 4)   \
    X(sampled_addmm, BSR_OP_SAMPLED_ADDMM, 1, 0, 1u << 5)       \
    X(softmax, BSR_OP_SOFTMAX, 0, 0, 1u << 3)                   \
    X(softmax_backward, BSR_OP_SOFTMAX_BACKWARD, 0, 0, 1u << 3) \
    X(attention, BSR_OP_ATTENTION, 1, 0, 3u << 6)               \
    X(validate, BSR_OP_VALIDATE, 0, 1, 0)                       \
    X(to_dense, BSR_OP_TO_DENSE, 0, 0, 1u << 1)                 \
    X(map, BSR_OP_MAP, 0, 0, 1u << 5)                           \
    X(reduce, BSR_OP_REDUCE, 0, 0, 1u << 3)                     \
    X(quantise, BSR_OP_QUANTISE, 0, 0, 7u << 2)                 \
    X(dequantise, BSR_OP_DEQUANTISE, 0, 0, 1u << 2)             \
    X(conv, BSR_OP_CONV, 1, 0, 1u << 8)                         \
    X(conv_weight_gradient, BSR_OP_CONV_WEIGHT_GRADIENT, 1, 0, 1u << 6) \
    X(chain_mm, BSR_OP_CHAIN_MM, 1, 0, 1u << 4 | 1u << 10)      \
    X(sampled_chain_mm, BSR_OP_SAMPLED_CHAIN_MM, 1, 0, 3u << 5 | 1u << 12) \
    X(sampled_gated, BSR_OP_SAMPLED_GATED, 1, 0, 7u << 4)       \
    X(moe_route, BSR_OP_MOE_ROUTE, 0, 0, 1u << 1)               \
    X(moe_gather, BSR_OP_MOE_GATHER, 0, 0, 1u << 3)             \
    X(moe_scatter, BSR_OP_MOE_SCATTER, 0, 0, 1u << 5)           \
    X(moe_weight_gradient, BSR_OP_MOE_WEIGHT_GRADIENT, 0, 0, 1u << 3) \
    X(pool_blocks, BSR_OP_POOL_BLOCKS, 0, 0, 1u << 5)
/* So does this one, whose operands come in an array. */
#define T_SUMS(X) X(sum_mm, BSR_OP_SUM_MM, 1, 0, 1u << 5)
/* They build a matrix, a view, a mask or lists. */
#define T_BUILDERS(X)                                                 \
    X(from_dense, BSR_OP_FROM_DENSE, 0, 1, 1u << 1)                   \
    X(from_csr, BSR_OP_FROM_CSR, 0, 1, 1u << 8)                       \
    X(from_coo, BSR_OP_FROM_COO, 0, 1, 1u << 8)                       \
    X(to_csr, BSR_OP_TO_CSR, 0, 1, 7u << 3 | 1u << 7)                 \
    X(to_coo, BSR_OP_TO_COO, 0, 1, 15u << 3 | 1u << 8)                \
    X(reblock, BSR_OP_REBLOCK, 0, 1, 1u << 1)                         \
    X(from_block_mask, BSR_OP_FROM_BLOCK_MASK, 0, 1, 1u << 1)         \
    X(random_pattern, BSR_OP_RANDOM_PATTERN, 0, 0, 1u << 2)           \
    X(prune, BSR_OP_PRUNE, 0, 1, 1u << 3)                             \
    X(conv_prune, BSR_OP_PRUNE, 0, 1, 1u << 3)                        \
    X(build_transposed_index, BSR_OP_TRANSPOSED_INDEX, 0, 0, 1u << 1) \
    X(build_schedule, BSR_OP_SCHEDULE, 0, 0, 1u << 3)                 \
    X(layout_mask, BSR_OP_LAYOUT, 0, 0, 1u << 1)                      \
    X(moe_topology, BSR_OP_MOE_TOPOLOGY, 0, 0, 1u << 1)               \
    X(moe_transposed_index, BSR_OP_MOE_TOPOLOGY, 0, 0, 1u << 2)       \
    X(build_scatter_indices, BSR_OP_SCATTER_INDICES, 0, 1, 1u << 2)   \
    X(block_mask, BSR_OP_BLOCK_MASK, 0, 1, 3u << 4)                   \
    X(from_block_lists, BSR_OP_FROM_BLOCK_LISTS, 0, 1, 3u << 1)       \
    X(to_block_lists, BSR_OP_TO_BLOCK_LISTS, 0, 0, 1u << 2)           \
    X(select_blocks, BSR_OP_SELECT_BLOCKS, 0, 1, 3u << 1)
/* As T_CALLS, and as T_SUMS; behind all others, as golden plans have them (tests/golden/code depends on the order). */
#define T_GRADIENTS(X) X(attention_backward, BSR_OP_ATTENTION_BACKWARD, 1, 0, 7u << 9)
#define T_MERGES(X) X(attention_merge, BSR_OP_ATTENTION_MERGE, 0, 0, 3u << 4)
#define T_OPERATIONS(X) T_CALLS(X) T_SUMS(X) T_BUILDERS(X) T_GRADIENTS(X) T_MERGES(X)

#endif /* BSR_OPERATIONS_H */
