package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestABeginningIsLight: each role and each call of the command line initializes all
// packages that the program is linked from, whatever it then does. What they allocate
// stands for how long that takes, and differs from none to the next.
func TestABeginningIsLight(t *testing.T) {
	const each, whole = 40 << 10, 1<<20 + 128<<10
	heavy := map[string]int{ // what is known and needed, in bytes
		"github.com/tend-run/tend/gen/tend/v1":                  320 << 10, // descriptors of messages: they grow with the API
		"github.com/tend-run/tend/internal/gen/envd/filesystem": 64 << 10,  // the last ones: the table of all descriptors grows once more
		"github.com/prometheus/procfs":                          128 << 10,
		"github.com/prometheus/client_golang/prometheus":        96 << 10,
		"github.com/opencontainers/go-digest":                   96 << 10, // an expression, made for the names of images that are pulled
		"github.com/google/jsonschema-go/jsonschema":            96 << 10, // schemas of the tools of MCP; its own package variables
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "tend"), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	proctest.Must(t, cmd.Run())
	sum, packages := 0, 0
	for line := range strings.Lines(trace.String()) {
		// init PACKAGE @0.1 ms, 0.01 ms clock, 1234 bytes, 5 allocs
		words := strings.Fields(line)
		if len(words) != 11 || words[0] != "init" || words[8] != "bytes," {
			t.Errorf("this is not understood: %s", line)
			continue
		}
		n := proctest.Value(strconv.Atoi(words[7]))(t)
		sum, packages = sum+n, packages+1
		if limit := max(heavy[words[1]], each); n > limit {
			t.Errorf("package %s allocates %d bytes before main, and %d is the limit: make it when it is first used (internal/lib/lazyregexp, sync.OnceValue), or link a lighter one", words[1], n, limit)
		}
	}
	if sum > whole || packages < 20 {
		t.Errorf("%d packages allocate %d bytes before main; %d is the limit", packages, sum, whole)
	}
}
