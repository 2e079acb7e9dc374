//go:build unix

package work

import (
	"os"
	"os/user"
	"strconv"
	"strings"
)

// isSelf reports whether a user of a service is the one that this process runs as.
func isSelf(name string) bool {
	name, _, _ = strings.Cut(name, ":")
	if uid, err := strconv.Atoi(name); err == nil {
		return uid == os.Geteuid()
	}
	u, err := user.Lookup(name)
	return err == nil && u.Uid == strconv.Itoa(os.Geteuid())
}
