//go:build linux

package noise

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/support/testbin"
)

// The test binary is also the services and what makes the load.
const (
	serveAt   = "NOISE_SERVE"   // HTTP at this address
	startTime = "NOISE_START"   // after this long
	hogFor    = "NOISE_HOG"     // uses a core for this long, and does nothing else
	lineEach  = 3 * time.Second // how often a service builds
	building  = time.Second     // how long that takes
	logQuiet  = 5 * time.Second // after which it would be stuck
)

var programs, self string // a directory of package testbin, and this program

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	if text := os.Getenv(hogFor); text != "" {
		hog(text)
	}
	if addr := os.Getenv(serveAt); addr != "" {
		serveHTTP(addr)
	}
	os.Exit(testbin.Main(func(dir string) int {
		programs = dir
		var err error
		if self, err = os.Executable(); err != nil {
			panic(err)
		}
		return m.Run()
	}, testbin.Bare, testbin.Roles))
}

// hog ends by itself, whatever becomes of the test.
func hog(text string) {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		for range 1_000_000 {
		}
	}
	os.Exit(0)
}

// serveHTTP never returns. It writes as a bundler does that watches files.
func serveHTTP(addr string) {
	if d, err := time.ParseDuration(os.Getenv(startTime)); err == nil {
		time.Sleep(d)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		for {
			fmt.Println("Bundling")
			time.Sleep(building)
			fmt.Println("done")
			time.Sleep(lineEach - building)
		}
	}()
	_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	os.Exit(1)
}
