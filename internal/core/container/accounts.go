package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// firstPerson is the first id that may be a person's.
const firstPerson = 1000

// User is the account of a container that is not root's.
const User = "user"

// Accounts returns what a container has of these /etc/passwd and /etc/group: the machine's own accounts,
// and no people, but [User], whose id and group are uid.
func Accounts(passwd, group string) (users, groups string, uid int) {
	kept := func(f []string) bool {
		id, err := strconv.Atoi(strings.TrimSpace(f[2]))
		return err == nil && (id < firstPerson || id == nobody) && f[0] != User
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
	uid = FreeID(passwd, group)
	fmt.Fprintf(&u, "%s:x:%d:%d::/home/%s:/bin/bash\n", User, uid, uid, User)
	fmt.Fprintf(&g, "%s:x:%d:\n", User, uid)
	return u.String(), g.String(), uid
}

// FreeID is the first id of a person that nobody has but [User].
func FreeID(passwd, group string) int {
	taken := map[string]bool{}
	for _, text := range []string{passwd, group} {
		for f := range entries(text) {
			taken[strings.TrimSpace(f[2])] = taken[strings.TrimSpace(f[2])] || f[0] != User
		}
	}
	uid := firstPerson
	for taken[strconv.Itoa(uid)] {
		uid++
	}
	return uid
}

// nobody is the id of who has none.
const nobody = 65534
