//go:build linux

package dist

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// descriptor is what an OCI layout says of a blob.
type descriptor struct {
	MediaType, Digest string
	Size              int
}

// imageRuns checks each digest of an image, unpacks it, and runs it as its configuration
// says, in a root that has nothing else.
func imageRuns(t *testing.T, path string) {
	layout := entries(t, proctest.Value(os.ReadFile(path))(t))
	blob := func(d descriptor, into any) []byte {
		t.Helper()
		sum, _ := strings.CutPrefix(d.Digest, "sha256:")
		data := layout["blobs/sha256/"+sum].data
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum || len(data) != d.Size {
			t.Fatalf("the blob %+v has %d bytes and the sum %s", d, len(data), got)
		}
		if into != nil {
			proctest.Must(t, json.Unmarshal(data, into))
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	proctest.Must(t, json.Unmarshal(layout["index.json"].data, &index))
	if !strings.Contains(string(layout["oci-layout"].data), `"imageLayoutVersion":"1.0.0"`) || len(index.Manifests) != 1 {
		t.Fatalf("oci-layout is %s, the index %+v", layout["oci-layout"].data, index)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob(index.Manifests[0], &manifest)
	var config struct {
		Config struct {
			Entrypoint, Cmd, Env []string
			WorkingDir           string
		}
	}
	blob(manifest.Config, &config)
	dir := t.TempDir()
	for _, l := range manifest.Layers {
		unpack(t, blob(l, nil), dir)
	}
	entered := append([]string{dir, config.Config.WorkingDir}, config.Config.Env...)
	r := enter(t, `set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mkdir -p "$1/proc" "$1/dev" "$1/sys"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
dir=$1; shift 2
exec chroot "$dir" `+strings.Join(append(slices.Clone(config.Config.Entrypoint), config.Config.Cmd...), " ")+" --listen none", entered...) // the port may be another's here
	tend := config.Config.Entrypoint[0]
	// Its first process is the daemon; whatever runs must be in the image, and that is tend.
	proctest.Eventually(t, "the daemon of the image answers", func() bool {
		if !r.has("/") {
			t.Fatal("the image has ended")
		}
		_, err := r.try(tend, "status") // which starts none itself
		return err == nil
	})
	if out := r.run(tend, "run", "--", tend, "version"); !strings.Contains(out, former) {
		t.Errorf("tend run in the image says %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "bin/sh")); err == nil {
		t.Error("the image has a shell")
	}
}
