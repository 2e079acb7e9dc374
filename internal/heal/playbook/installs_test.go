package playbook

import "testing"

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
