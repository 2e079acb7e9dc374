//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pourArg makes this program a process that writes a log: LINES, and how many BYTES of it
// a second until SIGTERM comes; 0 is as fast as it can.
const pourArg = "workload-pour"

// pouredLine is the length of a line of the log, with its end: a number that counts, the
// time in ms since 1970, and what a web server says.
const pouredLine = 96

func pouring(lines, perSecond int64) []string {
	return []string{must(os.Executable()), pourArg, strconv.FormatInt(lines, 10), strconv.FormatInt(perSecond, 10)}
}

// pour writes the log. One that is behind its rate is in no hurry: it continues from now.
func pour(out io.Writer, args []string) int {
	lines, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return 2
	}
	perSecond, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return 2
	}
	w := bufio.NewWriterSize(out, 64<<10)
	line := []byte(fmt.Sprintf("%012d %013d %s", 0, 0, strings.Repeat("GET /api/v1/items 200 in 12 ms; ", 3)))[:pouredLine]
	line[pouredLine-1] = '\n'
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	const step = 10 * time.Millisecond
	each := lines
	if perSecond > 0 {
		each = max(1, perSecond*int64(step)/int64(time.Second)/pouredLine)
	}
	next := time.Now()
	for n := int64(0); n < lines; {
		now := time.Now()
		decimal(line[13:26], now.UnixMilli())
		for end := min(n+each, lines); n < end; n++ {
			decimal(line[:12], n)
			if _, err := w.Write(line); err != nil {
				return 1
			}
		}
		if perSecond == 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			return 1
		}
		if next = next.Add(step); next.Before(now) {
			next = now
		}
		select {
		case <-told:
			return 0
		case <-time.After(time.Until(next)):
		}
	}
	if err := w.Flush(); err != nil {
		return 1
	}
	return 0
}

// decimal writes n with leading zeros.
func decimal(to []byte, n int64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = '0' + byte(n%10)
		n /= 10
	}
}
