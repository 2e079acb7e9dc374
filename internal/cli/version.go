package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

func (c *versionCmd) Run(_ context.Context, inv *invocation) error {
	facts := map[string]string{"version": versionText(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
	return inv.answer(printJSON, facts, fmt.Sprintf("tend %s (%s %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH))
}

// versionText is the version of the release, else of the module, else the
// commit the binary was built from.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
