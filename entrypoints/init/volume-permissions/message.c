/* Messages: one line each, which no file's name can forge or end. */
#include "program.h"

#include <stdarg.h>

enum { TEXT = 2 * PATH_MAX };

/* Printable ASCII as it is, anything else and the backslash as an escape; the end of what was written. */
static char *escape(char *to, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == '\\')
            to += sprintf(to, "\\\\");
        else if (*c == '\n')
            to += sprintf(to, "\\n");
        else if (*c < ' ' || *c > '~')
            to += sprintf(to, "\\x%02x", *c);
        else
            *to++ = (char)*c;
    return to;
}

/* By one call, so that the lines of several threads do not mix. */
static void write_line(const char *format, va_list arguments)
{
    static const char prefix[] = "volume-permissions: ";
    char text[TEXT], line[sizeof prefix + 4 * TEXT + 1];
    vsnprintf(text, sizeof text, format, arguments);
    memcpy(line, prefix, sizeof prefix - 1);
    char *end = escape(line + sizeof prefix - 1, text);
    *end++ = '\n';
    for (const char *rest = line; rest < end;) {
        ssize_t written = write(STDERR_FILENO, rest, (size_t)(end - rest));
        if (written <= 0)
            return;
        rest += written;
    }
}

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

_Noreturn void die(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    _exit(status); /* other threads may still be at work */
}

void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (!memory)
        die(PARTIAL, "out of memory; raise the memory limit and run again, what was done stays");
    return memory;
}

void close_quietly(int fd)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
}
