//go:build unix

package atomicfile

import "syscall"

// NoFollow has the open of a link fail.
const NoFollow = syscall.O_NOFOLLOW
