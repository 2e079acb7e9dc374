package box

import (
	"slices"
	"strconv"
	"strings"
)

// firstPerson is the first id that may be a person's.
const firstPerson = 1000

// Accounts returns what a box has of these /etc/passwd and /etc/group: the machine's own accounts,
// and no people.
func Accounts(passwd, group string) (users, groups string) {
	kept := func(f []string) bool {
		id, err := strconv.Atoi(strings.TrimSpace(f[2]))
		return err == nil && (id < firstPerson || id == nobody)
	}
	var u, g strings.Builder
	var names []string
	for f := range entries(passwd) {
		if kept(f) {
			names = append(names, f[0])
			f[1] = "x"
			u.WriteString(strings.Join(f, ":") + "\n")
		}
	}
	for f := range entries(group) {
		if !kept(f) {
			continue
		}
		f[1] = "x"
		if len(f) > 3 {
			f[3] = strings.Join(slices.DeleteFunc(strings.Split(f[3], ","), func(n string) bool { return !slices.Contains(names, n) }), ",")
		}
		g.WriteString(strings.Join(f, ":") + "\n")
	}
	return u.String(), g.String()
}

// nobody is the id of who has none.
const nobody = 65534
