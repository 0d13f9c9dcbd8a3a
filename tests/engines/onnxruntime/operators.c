/* Called with the session's options and the engine's interface; it has no operators. */
#include <stdio.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *file = fopen("called", "a");
    fprintf(file, "%d%d", options != 0, api != 0);
    fclose(file);
    return 0;
}
