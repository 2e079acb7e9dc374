package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Socket is a listening socket that is open already.
type Socket struct {
	Addr string // as in Config.Listen
	FD   int
}

// Passed returns the sockets that systemd, or another that speaks sd_listen_fds(3),
// has opened and passed to this process; none if LISTEN_PID means another process.
// Each has to be a stream socket that listens.
func Passed(getenv func(string) string) ([]Socket, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	const first, most = 3, 64 // SD_LISTEN_FDS_START; more than anybody lists in a socket unit
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > most {
		return nil, fmt.Errorf("LISTEN_FDS=%.20s is not the number of sockets that were passed, 0 to %d", getenv("LISTEN_FDS"), most)
	}
	var out []Socket
	for fd := first; fd < first+n; fd++ {
		addr, err := listens(fd)
		if err != nil {
			return nil,
				fmt.Errorf("the socket that was passed as descriptor %d cannot be served: %w; in a socket unit use ListenStream=, and no Accept=yes",
					fd, err)
		}
		out = append(out, Socket{addr, fd})
	}
	return out, nil
}

// listens returns the address at which a descriptor listens.
func listens(fd int) (string, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return "", fmt.Errorf("it is no open socket (%w)", err)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 || kind != unix.SOCK_STREAM {
		return "", fmt.Errorf("it does not listen for streams")
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	if u, ok := sa.(*unix.SockaddrUnix); ok && strings.HasPrefix(u.Name, "/") {
		return "unix:" + u.Name, nil
	}
	if a, ok := tcpAddr(sa); ok {
		return a.String(), nil
	}
	return "", fmt.Errorf("it is neither TCP nor a unix socket with a path")
}

// WithoutPassed is an environment without the variables of Passed: they are about
// this process alone.
func WithoutPassed(environ []string) []string {
	var out []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "LISTEN_FDS=") && !strings.HasPrefix(v, "LISTEN_PID=") && !strings.HasPrefix(v, "LISTEN_FDNAMES=") {
			out = append(out, v)
		}
	}
	return out
}
