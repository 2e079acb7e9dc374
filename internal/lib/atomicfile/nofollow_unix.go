//go:build unix

package atomicfile

import "syscall"

const noFollow = syscall.O_NOFOLLOW
