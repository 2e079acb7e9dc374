package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreePort returns a TCP port on which nothing listens at 127.0.0.1, for a program that the
// test starts. No other caller gets it before the test ends, in this process or another: a
// socket of that name reserves it. The kernel gives it to no client in the meantime either, as
// it does with a port of net.Listen that is closed again: it is below those.
func FreePort(t testing.TB) int {
	t.Helper()
	first := 32768 // the kernel's default
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		fmt.Sscan(string(text), &first)
	}
	const least = 10_000
	for range 1000 {
		port := least + rand.IntN(max(first-least, 1000))
		reserved, err := net.Listen("unix", fmt.Sprintf("@tend-test-port-%d", port))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			t.Cleanup(func() { reserved.Close() })
			return port
		}
		reserved.Close()
	}
	t.Fatal("no port is free")
	return 0
}
