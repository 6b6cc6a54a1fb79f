/* test_random.c on the device, in each tier that takes a call. --random N: how many, --seed S: which. */
#include "mirror.h"
#define T_WAYS 4 /* tiers, 0: the library's choice */
#define T_RANDOM_OPERATIONS T_OPERATIONS
#define T_WAY(i) (gm.tier = (i), t_context(BSR_ISA_DEFAULT))
#define T_CPU BSR_ISA_DEFAULT
#define T_TURNS (((gm.every > 1 ? gm.random / 2 : gm.random) + 4) / 5)
#define T_SEED gm.seed
#define T_ALL (gm.every < 2)
#define T_FEWER_CTAS(on) (gm.grid = (on) ? 3 : 0)
#define T_HAS(dtype) gm_compiled(dtype)
#undef bt_main
#define bt_main gm_direct
#include "../test_random.c"
