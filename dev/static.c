/* The one program of the test image sandboxio-test/static: no shell, no library, no other file. */
#include <stdio.h>

int main(void) {
    puts("static program");
    return 0;
}
