package work

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mostNamed is how many lines of a file an error may name. A log that names more is no reason
// for anything: whoever writes it may name any.
const mostNamed = 3

// namedLines are the lines of a file, without the blanks around, that a log names by the file's
// path and their number, as reports of errors do. root is the project's, and rel the path below
// it, with slashes. A log that names too many names none.
func namedLines(log, root, rel, text string) (named []string) {
	full := regexp.QuoteMeta(filepath.ToSlash(root) + "/" + rel)
	at, err := regexp.Compile(`(?m)(?:` + full + `|(?:^|[\s"'(])(?:\./)?` + regexp.QuoteMeta(rel) + `)(?:", line |:|\()(\d{1,7})\b`)
	if err != nil {
		return nil
	}
	lines := strings.Split(text, "\n")
	for _, m := range at.FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 1 || n > len(lines) {
			continue
		}
		if line := strings.TrimSpace(lines[n-1]); line != "" && !slices.Contains(named, line) {
			if named = append(named, line); len(named) > mostNamed {
				return nil
			}
		}
	}
	return named
}
