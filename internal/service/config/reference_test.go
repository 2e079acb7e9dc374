package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

var update = flag.Bool("update", false, "write the reference again")

const referencePath = "../../../docs/reference/tend-yaml.md"

func TestTheReferenceNamesEachKey(t *testing.T) {
	text := "# tend.yaml\n\nAll keys of a tend.yaml. [Services](../services.md) says how they work together; `tend config check` finds what is wrong in a file, " +
		"and `tend config schema` prints the same as a schema for an editor. `go test ./internal/service/config -run Reference -update` writes this page.\n\n" + reference()
	if *update {
		proctest.Must(t, os.WriteFile(referencePath, []byte(text), 0o644))
	}
	if was := proctest.Value(os.ReadFile(referencePath))(t); string(was) != text {
		t.Errorf("%s is not what the file may have; go test ./internal/service/config -run Reference -update writes it", referencePath)
	}
	for _, want := range []string{"| `services.NAME.command` | line, or list of words | needed unless image |",
		"| `services.NAME.health.interval` | duration, 50ms to 1h | `2s` (shmastra: `20s`) |", "`healer.llm.base_url`",
		"`services.NAME.depends_on.NAME.condition`"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// reference returns a Markdown table of all keys: what they mean, their defaults and
// bounds, and the defaults of the preset shmastra where they differ.
func reference() string {
	var b strings.Builder
	b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
	referenceOf(&b, reflect.TypeFor[Config](), "")
	return b.String()
}

func referenceOf(b *strings.Builder, t reflect.Type, path string) {
	fields, keys := fieldsOf(t)
	for _, key := range keys {
		f := fields[key]
		def := f.Tag.Get("default")
		if def != "" {
			def = "`" + def + "`"
		}
		if other, ok := f.Tag.Lookup("shmastra"); ok {
			def = strings.TrimSpace(def + " (shmastra: `" + other + "`)")
		}
		if tag := f.Tag.Get("required"); tag == "yes" {
			def = "needed"
		} else if tag != "" {
			def = "needed " + tag
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", path+key, valueOf(f), strings.ReplaceAll(def, "|", `\|`),
			strings.ReplaceAll(f.Tag.Get("doc"), "|", `\|`))
		inner := f.Type
		switch {
		case inner == reflect.TypeFor[Dependencies]():
			referenceOf(b, reflect.TypeFor[condition](), path+key+".NAME.")
			continue
		case inner == reflect.TypeFor[Command](), inner == reflect.TypeFor[Sockets]():
			continue
		case inner == reflect.TypeFor[*Probe]() && key != "health": // once is enough
			continue
		}
		below := path + key + "."
		if inner.Kind() == reflect.Map {
			inner, below = inner.Elem(), path+key+".NAME."
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			referenceOf(b, inner, below)
		}
	}
}

// valueOf says in a few words what a field may hold.
func valueOf(f reflect.StructField) string {
	if enum := f.Tag.Get("enum"); enum != "" {
		return "`" + strings.ReplaceAll(enum, ",", "`, `") + "`"
	}
	text := kindText(f.Type)
	lo, hi := f.Tag.Get("min"), f.Tag.Get("max")
	switch {
	case lo != "" && hi != "":
		text += ", " + lo + " to " + hi
	case hi != "":
		text += ", at most " + hi
	}
	return text
}

func kindText(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Command]():
		return "line, or list of words"
	case reflect.TypeFor[Dependencies]():
		return "list, or mapping"
	case reflect.TypeFor[Sockets]():
		return "addresses by name"
	case reflect.TypeFor[Strings]():
		return "word, or list"
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Signal]():
		return "signal"
	case reflect.TypeFor[*Probe]():
		return "probe"
	case reflect.TypeFor[Pattern]():
		return "RE2"
	case reflect.TypeFor[URL]():
		return "URL"
	case reflect.TypeFor[Address]():
		return "address"
	case reflect.TypeFor[Cron]():
		return "cron"
	case reflect.TypeFor[Zone]():
		return "time zone"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "`true`, `false`"
	case reflect.Int:
		return "number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Pointer, reflect.Struct:
		return "mapping"
	}
	return "text"
}
