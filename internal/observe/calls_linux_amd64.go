package observe

import "golang.org/x/sys/unix"

func isEpoll(nr int) bool {
	return nr == unix.SYS_EPOLL_WAIT || nr == unix.SYS_EPOLL_PWAIT || nr == unix.SYS_EPOLL_PWAIT2
}

func isPoll(nr int) bool { return nr == unix.SYS_POLL || nr == unix.SYS_PPOLL }

func isSelect(nr int) bool { return nr == unix.SYS_SELECT || nr == unix.SYS_PSELECT6 }
