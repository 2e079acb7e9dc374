package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// number is that of the release to come, or of this one: of the program and of all clients.
const number = "0.1.0"

type versionCmd struct{}

func (c *versionCmd) Run(_ context.Context, inv *invocation) error {
	facts := map[string]string{"version": versionText(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
	return inv.answer(printJSON, facts, fmt.Sprintf("tend %s (%s %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH))
}

// versionText is what make has found (scripts/version), else the version of the module, else the number with the commit the
// binary was built from.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number + "-dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return number + "-dev+" + s.Value[:12]
		}
	}
	return number + "-dev"
}
