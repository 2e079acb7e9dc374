package config

import (
	"fmt"
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

// A short text stands for much: by aliases of what is wide, by merges, and by files that many
// services name. It is refused before it takes much.
func TestWideTextsTakeLittle(t *testing.T) {
	var wide, services, texts, lists, merges, files strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&wide, "a%04d: x, ", i)
	}
	for i := range 1000 {
		fmt.Fprintf(&services, "  s%d: {command: x, env: *e}\n", i)
		fmt.Fprintf(&texts, "  s%d: {command: *e}\n", i)
		fmt.Fprintf(&lists, "  s%d: {command: *e}\n", i)
		fmt.Fprintf(&files, "  s%d: {command: x, env_file: [vars]}\n", i)
	}
	for i := range 20 {
		fmt.Fprintf(&merges, "x-m%d: &m%d {<<: [%s*m%d]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*m%d, ", i), 9), i)
	}
	one := "services:\n  s:\n    command: x\n"
	vars := strings.Repeat("x", 20) + "=y\n"
	for i := range 30_000 {
		vars += fmt.Sprintf("V%d=y\n", i)
	}
	for name, text := range map[string]string{
		"a mapping":  "x-e: &e {" + wide.String() + "}\nservices:\n" + services.String(),
		"a text":     "x-e: &e " + strings.Repeat("x", 500_000) + "\nservices:\n" + texts.String(),
		"a list":     "x-e: &e [" + strings.Repeat("x, ", 60_000) + "]\nservices:\n" + lists.String(),
		"many keys":  "x-e: &e {" + wide.String() + "}\n" + one + "    env:\n      <<: [" + strings.Repeat("*e, ", 5000) + "]\n",
		"merges":     "x-m0: &m0 {" + wide.String() + "}\n" + merges.String() + one + "    env: *m20\n",
		"a file":     "services:\n" + files.String(),
		"no service": "services: {" + wide.String() + "}",
	} {
		src := &Source{Name: "tend.yaml", Dir: "/", Text: []byte(text), EnvFiles: map[string][]byte{"vars": []byte(vars)}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := src.Config()
		runtime.ReadMemStats(&after)
		wrong := err == nil
		switch name {
		case "no service":
		case "a file":
			wrong = wrong || !strings.Contains(err.Error(), "variables of such files")
		default:
			wrong = wrong || !strings.Contains(err.Error(), "too many values")
		}
		if wrong {
			t.Errorf("%s: %.200v", name, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 256 {
			t.Errorf("%s took %d MiB", name, took)
		} else {
			t.Logf("%s: %d MiB", name, took)
		}
	}
}
