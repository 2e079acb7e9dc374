//go:build linux

package cgroup

import "testing"

func TestTheSlotIsReadFromTheCgroupOfAProcess(t *testing.T) {
	for text, want := range map[string]int{
		"0::/tend-12345678/p17\n":               17,
		"1:name=systemd:/p3\n0::/x/tend-1/p0\n": 0,
		"0::/tend-12345678/p17 (deleted)\n":     17,
		"0::/\n":                                -1,
		"0::/user.slice\n":                      -1,
		"0::/tend-1/probe\n":                    -1,
		"":                                      -1,
		"garbage":                               -1,
		"0::/tend-1/p99999999999999999999999\n": -1,
		"0::\n":                                 -1,
	} {
		if got := SlotOf(text); got != want {
			t.Errorf("%q: slot %d, want %d", text, got, want)
		}
	}
}
