package confine

import (
	"reflect"
	"testing"
)

// TestRulesOfASandboxAreOnlyRules: they come from a process in there. What they name becomes no
// right, no user and no command.
func TestRulesOfASandboxAreOnlyRules(t *testing.T) {
	at := Sandbox{StateDir: "/state", Scratch: "/scratch", ID: "id", User: "0:1i"}
	argv := []string{"/bin/sh", "-c", "true"}
	good := Rules{Root: "/app", Changes: "/changes", Show: []string{"/opt/a"}, Hide: []string{"/app/.env", "/app/i0/true/1/true/0:0:"}, Drop: []string{".git", "i"}}
	line := ArgvInside("tend", at, good, argv)
	if !CalledInside(line) || Called(line) {
		t.Fatalf("it is %q", line)
	}
	gotAt, got, gotArgv, err := parseInside(line[2:])
	if err != nil || gotAt != at || !reflect.DeepEqual(got, good) || !reflect.DeepEqual(gotArgv, argv) {
		t.Errorf("it is %v, %+v, %q: %v", gotAt, got, gotArgv, err)
	}
	for name, bad := range map[string]Rules{
		"a root that is none":       {Root: "app"},
		"a root with dots":          {Root: "/app/../etc"},
		"a root that ends them":     {Root: "--"},
		"rights as the root":        {Root: "iffff/false/1/false/0:0:"},
		"what is shown, no path":    {Root: "/app", Show: []string{"x"}},
		"what is hidden, with dots": {Root: "/app", Hide: []string{"/a/../b"}},
		"a dropped path":            {Root: "/app", Drop: []string{"a/b"}},
	} {
		bad.Changes = "/changes"
		if _, _, _, err := parseInside(ArgvInside("tend", at, bad, argv)[2:]); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	with := append(append([]string{}, line[2:8]...), append([]string{"iffff/false/1/true/0:0:"}, line[8:]...)...)
	if _, _, _, err := parseInside(with); err == nil {
		t.Error("rights are taken from outside")
	}
	r := good
	r.inner = &inner{caps: 0x5fb, filter: true, room: 1 << 26, bare: true, as: User{1000, 1001, []uint32{4, 5}}}
	if got, _, err := parse(Argv("tend", r, argv)[2:]); err != nil || !reflect.DeepEqual(got.inner, r.inner) {
		t.Errorf("the inside is told %+v: %v", got.inner, err)
	}
}
