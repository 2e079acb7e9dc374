package cli

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
)

// TestPull runs the scripts about images of a registry, which is $REGISTRY.
func TestPull(t *testing.T) {
	p := ocitest.NewRegistry(t)
	img := &ocitest.Image{Pack: ocitest.Gzip, Layers: [][]byte{ocitest.Layer(t, ocitest.Programs(t, "sh")...)},
		Config: v1.Config{Env: []string{"PATH=/bin", "NAME=tools"}}}
	p.Push("tools", "3", img)
	p.Push("tools", "5", img)
	p.Push("hub/library/tools", "4", img)
	params := scriptParams(t, "testdata/pull")
	setup := params.Setup
	params.Setup = func(e *testscript.Env) error {
		e.Setenv("REGISTRY", p.Host)
		return setup(e)
	}
	testscript.Run(t, params)
}
