package protocol

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestASecretIsKeptAndItsTokensAreApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	s := proctest.Value(OpenSecret(path))(t)
	again := proctest.Value(OpenSecret(path))(t)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the secret's file is %v, %v", fi.Mode(), err)
	}
	if s.SandboxToken("a") != again.SandboxToken("a") {
		t.Error("a token does not outlive the server")
	}
	seen := map[string]string{}
	for name, v := range map[string]string{
		"a": string(s.SandboxToken("a")), "b": string(s.SandboxToken("b")), "traffic of a": string(s.TrafficToken("a")),
		"another server's": string(NewSecret().SandboxToken("a")), "x y": s.Sign("x", "y"), "xy": s.Sign("xy"), "x, y z": s.Sign("x", "yz"), "x, y, z": s.Sign("x", "y", "z"),
	} {
		if seen[v] != "" || len(v) < 64 {
			t.Errorf("%s and %s have the token %q", name, seen[v], v)
		}
		seen[v] = name
	}
	var none *Secret
	if none.SandboxToken("a").Set() || none.TrafficToken("a").Set() || none.SandboxToken("a").Matches("") {
		t.Error("no secret makes tokens")
	}
	proctest.Must(t, os.WriteFile(path, []byte("short"), 0o600))
	if _, err := OpenSecret(path); err == nil {
		t.Error("a damaged secret is taken, or replaced without a word")
	}
}
