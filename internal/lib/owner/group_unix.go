//go:build unix

package owner

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxAccounts bounds what is read of each file of accounts, in bytes.
const maxAccounts = 16 << 20

// isPrivate reports whether a group has no members but a user and root. A group without a
// name, as users of a network directory have it, is private if it has the number of the user.
func isPrivate(gid, uid int) bool {
	if gid == 0 {
		return true
	}
	number, known := strconv.Itoa(gid), gid == uid
	ours := []string{"root"}
	for _, f := range accounts("/etc/passwd", 4) {
		ours = appendIf(ours, f[0], f[2] == strconv.Itoa(uid))
	}
	for _, f := range accounts("/etc/passwd", 4) {
		if f[3] == number && !slices.Contains(ours, f[0]) {
			return false
		}
	}
	for _, f := range accounts("/etc/group", 4) {
		if f[2] != number {
			continue
		}
		known = true
		for member := range strings.SplitSeq(f[3], ",") {
			if member != "" && !slices.Contains(ours, member) {
				return false
			}
		}
	}
	return known
}

func appendIf(list []string, one string, is bool) []string {
	if is {
		return append(list, one)
	}
	return list
}

// accounts are the lines of a file of accounts that have so many fields at least.
func accounts(path string, fields int) (lines [][]string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxAccounts))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) >= fields {
			lines = append(lines, f)
		}
	}
	return lines
}
