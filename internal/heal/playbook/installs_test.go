package playbook

import (
	"slices"
	"testing"
)

func TestWhatPackagesAreDeclaredBy(t *testing.T) {
	for name, want := range map[string]bool{
		"package.json": true, "apps/web/package-lock.json": true, "yarn.lock": true, "bun.lockb": true, "requirements-dev.txt": true, "api/go.mod": true, "uv.lock": true,
		"package.json/a.js": false, "requirements.md": false, "go.mod.bak": false, "src/package.js": false, "": false,
	} {
		if Manifest(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	run := []Action{{Kind: Run, Argv: []string{"npm", "ci"}}}
	for what, c := range map[string]struct {
		plan Plan
		want bool
	}{
		"the cause was seen in the files":        {Plan{Strong: true, Actions: run}, true},
		"it was seen in the log, or by a person": {Plan{Actions: run}, false},
		"nothing is run":                         {Plan{Strong: true, Actions: []Action{{Kind: Restore, Path: "a"}}}, false},
	} {
		if c.plan.Installs() != c.want {
			t.Errorf("%s: %v", what, !c.want)
		}
	}
}

// TestWhatAnInstallFetchesFrom: addresses that a lock file fetches from, and no others that it has.
func TestWhatAnInstallFetchesFrom(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a/package-lock.json": {`{"resolved": "https://r.example/x.tgz", "funding": {"url": "https://sponsor.example/x"}}
{"resolved": "git+https://git.example:8443/x.git#1"}{"resolved": "https://r.example/y.tgz"}`, []string{"r.example:443", "git.example:8443"}},
		"yarn.lock":      {"x@1:\n  resolved \"https://y.example/x.tgz#1\"\n# https://no.example\n", []string{"y.example:443"}},
		"pnpm-lock.yaml": {"resolution: {tarball: http://p.example/x.tgz}\ndeprecated: see https://no.example\n", []string{"p.example:80"}},
		"uv.lock": {"source = { registry = \"https://u.example/simple\" }\nsdist = { url = \"https://f.example/x\" }\n",
			[]string{"u.example:443", "f.example:443"}},
		"poetry.lock": {"[package.source]\nurl = \"https://me:pw@t.example/simple\"\n", []string{"t.example:443"}},
		"requirements.txt": {"--index-url https://i.example/simple\n# https://no.example\nx @ https://[::1]:81/x.whl\n",
			[]string{"i.example:443", "[::1]:81"}},
		".npmrc": {"registry=https://n.example/\n;registry=https://no.example/\n//n.example/:_authToken=x\n",
			[]string{"n.example:443"}},
	} {
		if got := Hosts(name, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
