package oci

import (
	"strconv"
	"strings"
)

// maxAccounts bounds the files of accounts of an image, in bytes.
const maxAccounts = 4 << 20

// Reader reads files of an image.
type Reader interface {
	ReadFile(name string, most int64) ([]byte, error)
}

// UserOf makes of the user of an image one that sandboxes know: a name, a uid or "uid:gid". A
// uid without an entry has the group 0, as in a container, and a group may be named. One that
// the image does not have stays as it is: the creation of a sandbox says so.
func UserOf(files Reader, user string) string {
	who, group, both := strings.Cut(user, ":")
	if who == "" {
		who = "root"
	}
	uid, gid := "", ""
	for f := range fields(files, "etc/passwd", 7) {
		if f[0] == who || f[2] == who {
			uid, gid = f[2], f[3]
			break
		}
	}
	number := isID(who)
	if !both {
		if number && uid == "" {
			return who + ":0"
		}
		return who
	}
	switch {
	case uid != "":
	case number:
		uid = who
	case who == "root":
		uid = "0"
	default:
		return user
	}
	switch {
	case group == "":
		if gid == "" {
			gid = "0"
		}
		return uid + ":" + gid
	case isID(group):
		return uid + ":" + group
	}
	for f := range fields(files, "etc/group", 3) {
		if f[0] == group {
			return uid + ":" + f[2]
		}
	}
	return user
}

func isID(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// fields goes over the lines of a file of accounts that have so many fields.
func fields(files Reader, name string, n int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		b, err := files.ReadFile(name, maxAccounts)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) >= n && !yield(f) {
				return
			}
		}
	}
}
