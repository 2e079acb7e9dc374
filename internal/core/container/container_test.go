package container

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/process"
)

func good() Spec {
	return Spec{
		ID: "0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a10", Hostname: "box-1", Dir: "/var/lib/x/boxes/a", Layers: []string{"/l/2", "/l/1"},
		Hide: []string{"/opt/secret"}, Binds: []Bind{{Source: "/srv/data", Target: "/data", ReadOnly: true}}, UIDBase: 100000, Net: NetOwn,
		Limits: Limits{Memory: 64 << 20, Tasks: 100, CPUs: 0.5}, Harden: Harden{Caps: 1, Seccomp: true}, Volatile: true,
	}
}

func TestASpecIsRefusedByTheNameOfItsField(t *testing.T) {
	s := good()
	if err := s.Validate(); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	if s = (Spec{ID: s.ID, Dir: "/d"}); s.Validate() != nil {
		t.Fatalf("the smallest: %v", s.Validate())
	}
	if s.ID = NewID(); s.Validate() != nil || s.ID == NewID() {
		t.Fatalf("a new id: %s: %v", s.ID, s.Validate())
	}
	if s.ID = NewUUID(); s.Validate() != nil || s.ID == NewUUID() || s.ID.isNew() {
		t.Fatalf("a new UUID: %s: %v", s.ID, s.Validate())
	}
	for name, c := range map[string]struct {
		field string
		do    func(s *Spec)
	}{
		"no id":                          {"id", func(s *Spec) { s.ID = "" }},
		"an id that is a path":           {"id", func(s *Spec) { s.ID = "../../../../../../../../../etc/passwd" }},
		"an id with a slash in 36 bytes": {"id", func(s *Spec) { s.ID = "0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a1/" }},
		"an id of 20 that has a hyphen":  {"id", func(s *Spec) { s.ID = NewID()[:19] + "-" }},
		"an id of 20 with an o":          {"id", func(s *Spec) { s.ID = NewID()[:19] + "o" }},
		"an id of 20 without the i":      {"id", func(s *Spec) { s.ID = "h" + NewID()[1:] }},
		"an id of 21":                    {"id", func(s *Spec) { s.ID = NewID() + "0" }},
		"a new id in upper case":         {"id", func(s *Spec) { s.ID = ID(strings.ToUpper(string(NewID()))) }},
		"an id in upper case":            {"id", func(s *Spec) { s.ID = ID(strings.ToUpper(string(s.ID))) }},
		"a long host name":               {"hostname", func(s *Spec) { s.Hostname = strings.Repeat("a", 65) }},
		"a host name with a space":       {"hostname", func(s *Spec) { s.Hostname = "a b" }},
		"a host name that is an option":  {"hostname", func(s *Spec) { s.Hostname = "-a" }},
		"no directory":                   {"dir", func(s *Spec) { s.Dir = "" }},
		"a relative directory":           {"dir", func(s *Spec) { s.Dir = "a" }},
		"a directory that climbs":        {"dir", func(s *Spec) { s.Dir = "/a/../b" }},
		"a directory with NUL":           {"dir", func(s *Spec) { s.Dir = "/a\x00b" }},
		"a long directory":               {"dir", func(s *Spec) { s.Dir = "/" + strings.Repeat("a", MaxPath) }},
		"the root as directory":          {"dir", func(s *Spec) { s.Dir = "/" }},
		"many layers":                    {"layers", func(s *Spec) { s.Layers = slices.Repeat([]string{"/l"}, MaxLayers+1) }},
		"a relative layer":               {"layers[1]", func(s *Spec) { s.Layers[1] = "l" }},
		"no root at all":                 {"layers", func(s *Spec) { s.Layers, s.Base = nil, BaseNone }},
		"hiding without a base":          {"hide", func(s *Spec) { s.Base = BaseNone }},
		"hiding too much":                {"hide", func(s *Spec) { s.Hide = slices.Repeat([]string{"/l"}, MaxHide+1) }},
		"showing too much":               {"show", func(s *Spec) { s.Show = slices.Repeat([]string{"/l"}, MaxShow+1) }},
		"showing the root":               {"show[0]", func(s *Spec) { s.Show = []string{"/"} }},
		"hiding a relative path":         {"hide[0]", func(s *Spec) { s.Hide = []string{"etc"} }},
		"an unknown base":                {"base", func(s *Spec) { s.Base = 2 }},
		"an unknown network":             {"net", func(s *Spec) { s.Net = 3 }},
		"many binds":                     {"binds", func(s *Spec) { s.Binds = slices.Repeat(s.Binds, MaxBinds+1) }},
		"a bind from a relative path":    {"binds[0].source", func(s *Spec) { s.Binds[0].Source = "x" }},
		"a bind over the root":           {"binds[0].target", func(s *Spec) { s.Binds[0].Target = "/" }},
		"a bind into /proc":              {"binds[0].target", func(s *Spec) { s.Binds[0].Target = "/proc/sys" }},
		"a bind over /dev":               {"binds[0].target", func(s *Spec) { s.Binds[0].Target = "/dev" }},
		"ids of this machine's users":    {"uid_base", func(s *Spec) { s.UIDBase = 1000 }},
		"ids past the last":              {"uid_base", func(s *Spec) { s.UIDBase = math.MaxUint32 - 10 }},
		"a disk at no place":             {"disk", func(s *Spec) { s.Disk = "disk.img" }},
		"little memory":                  {"limits.memory", func(s *Spec) { s.Limits.Memory = 1 }},
		"negative memory":                {"limits.memory", func(s *Spec) { s.Limits.Memory = -1 }},
		"one task":                       {"limits.tasks", func(s *Spec) { s.Limits.Tasks = 1 }},
		"half a promille":                {"limits.cpus", func(s *Spec) { s.Limits.CPUs = 0.0005 }},
		"no number":                      {"limits.cpus", func(s *Spec) { s.Limits.CPUs = math.NaN() }},
		"endless":                        {"limits.cpus", func(s *Spec) { s.Limits.CPUs = math.Inf(1) }},
	} {
		s := good()
		c.do(&s)
		var invalid *process.InvalidError
		if err := s.Validate(); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v; want the field %s", name, err, c.field)
		}
	}
}

func TestEachFieldMakesAnotherSpec(t *testing.T) {
	for name, do := range map[string]func(s *Spec){
		"id": func(s *Spec) { s.ID = "x" }, "hostname": func(s *Spec) { s.Hostname = "x" }, "dir": func(s *Spec) { s.Dir = "x" }, "disk": func(s *Spec) { s.Disk = "x" },
		"layers": func(s *Spec) { s.Layers = s.Layers[:1] }, "base": func(s *Spec) { s.Base = BaseNone }, "hide": func(s *Spec) { s.Hide = nil }, "show": func(s *Spec) { s.Show = []string{"/opt"} },
		"binds": func(s *Spec) { s.Binds[0].ReadOnly = false }, "uid base": func(s *Spec) { s.UIDBase++ }, "net": func(s *Spec) { s.Net = NetNone },
		"limits": func(s *Spec) { s.Limits.Tasks++ }, "harden": func(s *Spec) { s.Harden.Setuid = true }, "volatile": func(s *Spec) { s.Volatile = false },
	} {
		a, b := good(), good()
		if !a.Equal(&b) {
			t.Fatal("a spec is not equal to itself")
		}
		if do(&b); a.Equal(&b) {
			t.Errorf("another %s is the same spec", name)
		}
	}
}

func TestErrorsAreThoseOfPackageProcessToo(t *testing.T) {
	if !errors.Is(ErrNotFound, process.ErrNotFound) || !errors.Is(ErrExists, process.ErrExists) {
		t.Error("a caller that knows package process alone does not understand them")
	}
}

func TestWhatMayBeShown(t *testing.T) {
	for _, p := range []string{"/opt", "/opt/java", "/usr/local", "/usr/local/cuda", "/home/u/.nvm", "/nix/store", "/var/www", "/lib/apk"} {
		if why := CheckShown(p); why != "" {
			t.Errorf("%s: %s", p, why)
		}
	}
	for _, p := range []string{"", "opt", "/opt/", "/opt/../etc", "/", "/home", "/home/u", "/root", "/proc", "/proc/1", "/sys", "/dev/shm", "/run", "/etc", "/etc/ssl", "/tmp/a",
		"/var", "/var/lib", "/usr", "/var/run/x", "/a,b", "/a:b", "/a\\b", "/" + strings.Repeat("a", MaxPath)} {
		if CheckShown(p) == "" {
			t.Errorf("%q is shown", p)
		}
	}
}

// TestAccountsAreTheMachinesOwn: no people, nor their names in groups.
func TestAccountsAreTheMachinesOwn(t *testing.T) {
	passwd, group, uid := Accounts("root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000:Alice:/home/alice:/bin/zsh\nnobody:y:65534:65534::/:/bin/false\n+@all\nbad\nodd:x:no:1::/:\n",
		"root:x:0:\nsudo:secret:27:alice,root\nalice:x:1000:\nnogroup:x:65534:\n")
	if want := "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n" +
		"user:x:1001:1001::/home/user:/bin/bash\n"; passwd != want || uid != 1001 {
		t.Errorf("%q", passwd)
	}
	if want := "root:x:0:\nsudo:x:27:root\nnogroup:x:65534:\nuser:x:1001:\n"; group != want {
		t.Errorf("%q", group)
	}
}
