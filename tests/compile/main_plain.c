/* Calls plain() of another file, perhaps of another language. */
#ifdef __cplusplus
extern "C" int plain(void);
int main() { return plain() ? 0 : 1; }
#else
int plain(void);
int main(void) { return plain() ? 0 : 1; }
#endif
