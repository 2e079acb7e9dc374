package sudo

import (
	"os"
	"strconv"
	"strings"
)

// account is one of the sandbox's.
type account struct {
	name, home, shell string
	uid, gid          int
	groups            []uint32
}

// accountOf finds an account by its name, or by "#" and an id.
func accountOf(key string) (a account, ok bool) {
	text, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) < 7 || f[0] != key && "#"+f[2] != key {
			continue
		}
		uid, err := strconv.ParseUint(f[2], 10, 31)
		gid, gerr := strconv.ParseUint(f[3], 10, 31)
		if err != nil || gerr != nil {
			continue
		}
		a = account{name: f[0], home: f[5], shell: f[6], uid: int(uid), gid: int(gid)}
		if a.shell == "" {
			a.shell = "/bin/sh"
		}
		a.groups = groupsOf(a.name, a.gid)
		return a, true
	}
	return account{}, false
}

func groupsOf(name string, gid int) []uint32 {
	all := []uint32{uint32(gid)}
	text, _ := os.ReadFile("/etc/group")
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if id, err := strconv.ParseUint(f[2], 10, 31); err == nil && member == name {
				all = append(all, uint32(id))
			}
		}
	}
	return all
}
