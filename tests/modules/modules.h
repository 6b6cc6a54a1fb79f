/* What the program knows of its modules. */
#ifndef MODULES_H
#define MODULES_H
typedef struct module {
    int (*open)(int backend);
    bsr_status (*start)(int wrong);
    int (*check)(int mistakes), (*close)(void);
} module;
#ifdef __cplusplus
extern "C" {
#endif
extern const module module_one, module_two;
#ifdef __cplusplus
}
#endif
#endif
