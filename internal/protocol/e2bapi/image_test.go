package e2bapi_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

func TestABuildFromAnImage(t *testing.T) {
	t.Parallel()
	s, d := serveAble(t)
	begin := func() (build driver.BuildID, start, status string) {
		made := s.call(202, "POST", "/v3/templates", `{"name":"image"}`)
		at := "/templates/" + made["templateID"].(string) + "/builds/" + made["buildID"].(string)
		return driver.BuildID(made["buildID"].(string)), "/v2" + at, at + "/status"
	}
	for body, want := range map[string]driver.Pull{
		`{"fromImage":"ubuntu:24.04"}`: {Name: "ubuntu:24.04"},
		`{"fromImage":"r.example/a","fromImageRegistry":{"type":"registry","username":"me","password":"hidden-word"}}`: {
			Name: "r.example/a", User: "me", Password: "hidden-word"},
		`{"fromImage":"r.example/a","fromImageRegistry":{"type":"gcp","serviceAccountJson":"{\"key\":\"hidden-word\"}"}}`: {
			Name: "r.example/a", User: "_json_key", Password: `{"key":"hidden-word"}`},
		`{"fromImage":"docker.io/e2bdev/base:latest"}`: {},
	} {
		build, start, _ := begin()
		if res, text := s.do("POST", start, body); res.StatusCode != 202 {
			t.Fatalf("%s: %s %s", body, res.Status, text)
		}
		got := d.builds[build]
		if got.FromImage != want.Name || got.Pull.Name != want.Name || got.Pull.User != want.User || got.Pull.Password != want.Password || got.Pull.Owner || !got.AsParent {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if out, err := exec.Command("grep", "-rla", "hidden-word", s.dir).CombinedOutput(); err == nil || len(out) > 0 {
		t.Errorf("credentials are on the disk: %s", out)
	}
	for body, want := range map[string]string{
		`{"fromImage":"a b"}`: "is no name",
		`{"fromImage":"r.example/a","fromImageRegistry":{"type":"aws","awsAccessKeyId":"AKIA","awsSecretAccessKey":"hidden-word"}}`:            "aws ecr get-login-password",
		`{"fromImage":"r.example/a","fromImageRegistry":{"type":"other"}}`:                                                                     "registry and gcp are known",
		`{"fromImage":"r.example/a","fromImageRegistry":{"type":"registry","username":"me"}}`:                                                  "no password",
		`{"fromImage":"r.example/a","fromImageRegistry":{"type":"registry","username":"me","password":"` + strings.Repeat("x", 70_000) + `"}}`: "bytes",
	} {
		build, start, status := begin()
		if res, text := s.do("POST", start, body); res.StatusCode != 202 {
			t.Fatalf("%s: %s %s", body, res.Status, text)
		}
		reason := s.call(200, "GET", status, "")["reason"].(map[string]any)
		if said := reason["message"].(string); reason["step"] != "base" || !strings.Contains(said, want) || strings.Contains(said, "hidden-word") {
			t.Errorf("%.200s: %v", body, reason)
		}
		if d.builds[build] != nil {
			t.Errorf("%.200s: it is built", body)
		}
	}
}
