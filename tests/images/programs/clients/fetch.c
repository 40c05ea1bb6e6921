/* fetch HOST PORT PATH: resolves with the C library, connects to each address in turn, prints one HTTP answer.
 *
 * Stands for programs that know nothing of proxies. Compiled against musl, once dynamic and once static. Exit codes:
 * 2 the name has no address, 3 no address could be connected, 4 the answer is not 200.
 */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_any(const struct addrinfo *list)
{
    for (; list; list = list->ai_next) {
        int fd = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
        if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0)
            return fd;
        perror("connect");
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct addrinfo hints, *list;
    char request[1024], answer[65536];
    size_t length = 0;
    ssize_t got;
    int fd, wrong;

    if (argc != 4)
        return 1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if ((wrong = getaddrinfo(argv[1], argv[2], &hints, &list))) {
        fprintf(stderr, "getaddrinfo: %s\n", gai_strerror(wrong));
        return 2;
    }
    if ((fd = connect_any(list)) < 0)
        return 3;
    snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", argv[3], argv[1]);
    if (write(fd, request, strlen(request)) < 0)
        return 3;
    while (length < sizeof answer - 1 && (got = read(fd, answer + length, sizeof answer - 1 - length)) > 0)
        length += (size_t)got;
    answer[length] = 0;
    puts(answer);
    return strstr(answer, " 200 ") ? 0 : 4;
}
