package cli

import (
	"strconv"
	"strings"
)

// named lists processes by pid, with their names where they are known: "12 (sleep),
// 13".
func named(pids []int, names map[int]string) string {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
		if name := names[pid]; name != "" {
			words[i] += " (" + printable(name) + ")"
		}
	}
	return strings.Join(words, ", ")
}
