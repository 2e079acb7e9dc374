//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/scene"
)

// The kernel refuses a limit of memory with EINTR if the thread that sets it has a signal
// to take, as it has now and then in every Go program.
func TestALimitIsSetWhateverSignalsCome(t *testing.T) {
	tree := Find(fmt.Sprintf("tend-test-%d", os.Getpid()))
	defer tree.RemoveAll()
	c := tree.v1Of("memory")
	if c == nil {
		t.Skip("the memory controller is not of cgroup v1 here")
	}
	dir := c.root + ".signals"
	scene.Must(t, os.Mkdir(dir, 0o755))
	defer os.Remove(dir)

	scene.InAStorm(t, func(*atomic.Int64) {
		for i := range 200 {
			if err := setV1(dir, "memory", int64(64+i%2)<<20); err != nil {
				t.Errorf("set for the %d. time: %v", i+1, err)
				break
			}
		}
	})
}
