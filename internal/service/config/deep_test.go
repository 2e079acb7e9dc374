package config

import (
	"runtime"
	"strings"
	"testing"
)

// A text of brackets, or of anchors, is refused where it goes too deep, before it takes much.
func TestDeepTextsTakeLittle(t *testing.T) {
	for name, text := range map[string]string{
		"brackets": "services: " + strings.Repeat("[", 400_000), "braces": strings.Repeat("{a: ", 100_000), "anchors": "services: " + strings.Repeat("&a ", 100_000) + "x",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("tend.yaml", []byte(text))
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "nested deeper than") && !strings.Contains(err.Error(), "anchors and tags") {
			t.Errorf("%s: %.200v", name, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 256 {
			t.Errorf("%s took %d MiB", name, took)
		} else {
			t.Logf("%s: %d MiB", name, took)
		}
	}
}
