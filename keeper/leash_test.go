//go:build linux

package keeper

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestASignalThatWaitsIsSeenInTheStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		own, shared string
		want        bool
	}{
		"none":                   {"0000000000000000", "0000000000000000", false},
		"for the thread":         {"0000000000000010", "0000000000000000", true},
		"for the process":        {"0000000000000000", "0000000000000010", true},
		"another signal":         {"0000000000000008", "0000000000000020", false},
		"among others":           {"0000000000004110", "0000000000000000", true},
		"a text that is cut off": {"", "", false},
	} {
		text := "Name:\tsh\nSigQ:\t1/96000\nSigPnd:\t" + tt.own + "\nShdPnd:\t" + tt.shared + "\nSigBlk:\t0000000000000010\n"
		if got := pending([]byte(text), unix.SIGTRAP); got != tt.want {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}
