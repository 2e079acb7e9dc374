//go:build unix

package replace

import "syscall"

const noFollow = syscall.O_NOFOLLOW
