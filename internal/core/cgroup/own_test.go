//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestBuffersOfASandboxAreAPartOfTheMachines: however much memory it may use.
func TestBuffersOfASandboxAreAPartOfTheMachines(t *testing.T) {
	var least, pressure, most int64
	text := proctest.Value(os.ReadFile("/proc/sys/net/ipv4/tcp_mem"))(t)
	proctest.Value(fmt.Sscan(string(text), &least, &pressure, &most))(t)
	whole := most * int64(os.Getpagesize())
	file := filepath.Join(t.TempDir(), "memory.kmem.tcp.limit_in_bytes")
	for memory, want := range map[int64]int64{
		1 << 20: 1 << 20, 64 << 20: 16 << 20, 100 << 40: max(whole/8, 16<<20), min(whole/4, 4<<30): max(min(whole/4, 4<<30)/4, 16<<20),
	} {
		proctest.Must(t, os.WriteFile(file, nil, 0o600))
		proctest.Must(t, setBuffers(filepath.Dir(file), memory))
		if got := string(proctest.Value(os.ReadFile(file))(t)); got != fmt.Sprint(want) {
			t.Errorf("with %d bytes of memory its connections have %s, want %d", memory, got, want)
		}
	}
}
