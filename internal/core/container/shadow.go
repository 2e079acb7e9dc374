package container

import (
	"strconv"
	"strings"
)

// Shadow returns what /etc/shadow and /etc/gshadow are in a container, for these /etc/passwd and
// /etc/group: all that are there have an entry, so that root can become each of them, and
// nobody has a password or an age. gid is that of the group shadow, 0 if there is none that
// a container can have.
func Shadow(passwd, group string) (shadow, gshadow string, gid int) {
	var users, groups strings.Builder
	for f := range entries(passwd) {
		users.WriteString(f[0] + ":*:::::::\n")
	}
	for f := range entries(group) {
		members := ""
		if len(f) > 3 {
			members = f[3]
		}
		groups.WriteString(f[0] + ":*::" + members + "\n")
		if n, err := strconv.Atoi(f[2]); err == nil && f[0] == "shadow" && n > 0 && n < IDs {
			gid = n
		}
	}
	return users.String(), groups.String(), gid
}

// entries are the lines of a file of accounts, as fields: not those that name somebody else's
// directory of accounts (+, -), and no comments.
func entries(text string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
			if len(f) < 3 || f[0] == "" || strings.ContainsAny(f[0][:1], "+-#") {
				continue
			}
			if !yield(f) {
				return
			}
		}
	}
}
