//go:build linux && !amd64

package observe

import "golang.org/x/sys/unix"

// The calls that every architecture has; the younger ones have only these.

func isEpoll(nr int) bool { return nr == unix.SYS_EPOLL_PWAIT || nr == unix.SYS_EPOLL_PWAIT2 }

func isPoll(nr int) bool { return nr == unix.SYS_PPOLL }

func isSelect(nr int) bool { return nr == unix.SYS_PSELECT6 }
