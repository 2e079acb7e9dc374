package procfs

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// ReadMachine reads what the machine uses. What the kernel does not say is 0.
func ReadMachine() (m Machine) {
	each("/proc/stat", func(f [][]byte) bool {
		// user nice system idle iowait irq softirq steal; what guests have used is in user.
		for i, n := range numbers(f[1:min(len(f), 9)]) {
			if m.Total += time.Duration(n) * Tick; i != 3 && i != 4 {
				m.Busy += time.Duration(n) * Tick
			}
		}
		return false // a line for each processor follows
	})
	var available int64
	of := map[string]*int64{"MemTotal:": &m.MemTotal, "MemAvailable:": &available, "Cached:": &m.MemCache}
	each("/proc/meminfo", func(f [][]byte) bool {
		if to := of[string(f[0])]; to != nil && len(f) > 1 {
			*to = numbers(f[1:2])[0] << 10
		} else if string(f[0]) == "SReclaimable:" && len(f) > 1 {
			m.MemCache += numbers(f[1:2])[0] << 10
		}
		return true
	})
	m.MemUsed = m.MemTotal - min(available, m.MemTotal)
	each("/proc/self/net/dev", func(f [][]byte) bool {
		// A name and a colon, then eight numbers of what has arrived and eight of what has left.
		name, first, ok := bytes.Cut(bytes.Join(f, []byte(" ")), []byte(":"))
		if rest := bytes.Fields(first); ok && string(name) != "lo" && len(rest) >= 9 {
			n := numbers(rest)
			m.Received, m.Sent = m.Received+n[0], m.Sent+n[8]
		}
		return true
	})
	return m
}

// each calls a function with the words of each line of a file, until it returns false.
func each(path string, line func(words [][]byte) bool) {
	text, _ := os.ReadFile(path)
	for l := range bytes.Lines(text) {
		if f := bytes.Fields(l); len(f) > 0 && !line(f) {
			return
		}
	}
}

// numbers are words as numbers, 0 where they are none.
func numbers(words [][]byte) []int64 {
	all := make([]int64, len(words))
	for i, w := range words {
		all[i], _ = strconv.ParseInt(string(w), 10, 64)
	}
	return all
}
