package e2bapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Bodies as the SDKs send them: npm e2b 2.51.0 and 2.45.0, PyPI e2b 2.63.0.
const (
	bodyJS   = `{"templateID":"base","metadata":{"tag":"x","odd key":"a=b&c d/ž"},"envVars":{"FROM_CREATE":"1"},"timeout":120,"autoPause":true}`
	bodyJSv1 = `{"templateID":"base","metadata":{"tag":"x"},"envVars":{"FROM_CREATE":"1"},"timeout":300,"secure":true,"allow_internet_access":true,"autoPause":false}`
	bodyPy   = `{"templateID": "base", "timeout": 300, "envVars": {}, "metadata": {}, "secure": true, "allow_internet_access": true, "autoPause": false, "network": {"allowPublicTraffic": true}}`
)

func TestTheLifeOfASandboxInBothGenerations(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for prefix, body := range map[string]string{"/v2": bodyJS, "": bodyJSv1} {
		made := s.call(201, "POST", prefix+"/sandboxes", body)
		id := made["sandboxID"].(string)
		if made["templateID"] != "base" || made["envdVersion"] != "0.6.13" || made["clientID"] == "" || made["envdAccessToken"] != string(s.secret.SandboxToken(id)) || made["trafficAccessToken"] != nil {
			t.Errorf("made: %v", made)
		}
		if port := s.url[strings.LastIndex(s.url, ":"):]; made["domain"] != "localhost"+port {
			t.Errorf("the domain is %v", made["domain"])
		}
		info := s.call(200, "GET", "/sandboxes/"+id, "")
		end, err := time.Parse(time.RFC3339, info["endAt"].(string))
		if left := time.Until(end); err != nil || left < 30*time.Second || left > 5*time.Minute {
			t.Errorf("it ends in %v, %v", left, err)
		}
		for _, field := range []string{"cpuCount", "memoryMB", "diskSizeMB"} {
			if n, ok := info[field].(float64); !ok || n < 1 {
				t.Errorf("%s is %v", field, info[field])
			}
		}
		onTimeout := map[string]string{"/v2": "pause", "": "kill"}[prefix]
		if info["state"] != "running" || info["metadata"].(map[string]any)["tag"] != "x" || info["lifecycle"].(map[string]any)["onTimeout"] != onTimeout || info["allowInternetAccess"] != true {
			t.Errorf("info: %v", info)
		}

		// A time is set from now, may be shortened, and by connect only extended.
		s.call(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":600}`)
		s.call(200, "POST", prefix+"/sandboxes/"+id+"/connect", `{"timeout":30}`)
		s.call(204, "POST", "/sandboxes/"+id+"/refreshes", `{"duration":10}`)
		if left := s.left(id); left < 500*time.Second {
			t.Errorf("connect left %v of 600 s", left)
		}
		s.call(200, "POST", prefix+"/sandboxes/"+id+"/connect", `{"timeout":1200}`)
		if left := s.left(id); left < 1000*time.Second {
			t.Errorf("connect extended to %v", left)
		}
		s.call(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`)
		if left := s.left(id); left > 61*time.Second {
			t.Errorf("after it was shortened there are %v", left)
		}

		// This driver keeps the files of a pause alone.
		s.call(409, "POST", "/sandboxes/"+id+"/resume", `{}`)
		if e := s.call(501, "POST", "/sandboxes/"+id+"/pause", `{}`); !strings.Contains(e["message"].(string), "without memory") {
			t.Errorf("refused: %v", e)
		}
		s.call(204, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`)
		s.call(409, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`)
		if info := s.call(200, "GET", "/sandboxes/"+id, ""); info["state"] != "paused" {
			t.Errorf("paused: %v", info)
		}
		s.call(201, "POST", prefix+"/sandboxes/"+id+"/connect", `{"timeout":90}`)
		if left := s.left(id); left < 30*time.Second || left > 91*time.Second {
			t.Errorf("resumed for %v", left)
		}
		s.call(204, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`)
		s.call(201, "POST", "/sandboxes/"+id+"/resume", `{"timeout":90,"autoPause":true}`)
		if info := s.call(200, "GET", "/sandboxes/"+id, ""); info["state"] != "running" || info["lifecycle"].(map[string]any)["onTimeout"] != "pause" {
			t.Errorf("resumed: %v", info)
		}

		s.call(204, "DELETE", "/sandboxes/"+id, "")
		for _, gone := range []struct{ method, path, body string }{
			{"DELETE", "", ""}, {"GET", "", ""}, {"POST", "/timeout", `{"timeout":1}`}, {"POST", "/connect", `{}`}, {"POST", "/pause", `{}`},
			{"POST", "/resume", `{}`}, {"POST", "/fork", `{}`}, {"POST", "/snapshots", `{}`}, {"GET", "/metrics", ""}, {"GET", "/logs", ""}, {"PUT", "/network", `{}`},
		} {
			if e := s.call(404, gone.method, "/sandboxes/"+id+gone.path, gone.body); !strings.Contains(e["message"].(string), "not found") {
				t.Errorf("%s %s of what is gone: %v", gone.method, gone.path, e)
			}
		}
	}
}

func (s *server) left(id string) time.Duration {
	s.t.Helper()
	end, err := time.Parse(time.RFC3339, s.call(200, "GET", "/sandboxes/"+id, "")["endAt"].(string))
	if err != nil {
		s.t.Fatal(err)
	}
	return time.Until(end)
}

func TestWhatASandboxIsMadeWith(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.create(`{"templateID":"mastra-5e041282b68ff13a","envVars":{"A":"b"},"autoResume":{"enabled":true},"autoPause":true,"network":{"allowPublicTraffic":false}}`)
	sandbox, err := s.driver.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	info, err := sandbox.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Env["A"] != "b" || !info.Wake || info.AtDeadline != driver.ActionPause || info.Network.Public || info.Notes[protocol.NoteSecure] == "" {
		t.Errorf("it is %+v", info)
	}
	// MCP's gateway is started by the SDK.
	other := s.create(`{"autoPause":true,"autoPauseMemory":false,"mcp":{"x":{}},"network":{"maskRequestHost":"own.example:${PORT}","httpsPorts":[8443,443,8443]}}`)
	sandbox, err = s.driver.Get(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	if info, err = sandbox.Info(t.Context()); err != nil || info.AtDeadline != driver.ActionPause || !info.FilesAlone || info.Notes[protocol.NoteMaskHost] != "own.example:${PORT}" || info.Notes[protocol.NoteHTTPSPorts] != "8443,443" {
		t.Errorf("it is %+v, %v", info, err)
	}
	told := s.call(200, "GET", "/sandboxes/"+other, "")["network"].(map[string]any)
	if told["maskRequestHost"] != "own.example:${PORT}" || fmt.Sprint(told["httpsPorts"]) != "[8443 443]" {
		t.Errorf("it is told of %v", told)
	}
	made := s.call(200, "POST", "/v2/sandboxes/"+strings.ToUpper(id)+"/connect", ``)
	if made["trafficAccessToken"] != string(s.secret.TrafficToken(id)) || made["templateID"] != "base" {
		t.Errorf("connected: %v", made)
	}
	s.create(bodyPy)
	s.create("")
	// A request that is repeated makes nothing more, and with another key it does.
	ids := map[any]bool{}
	for _, key := range []string{"a-key", "a-key", "another"} {
		ids[s.call(201, "POST", "/v2/sandboxes", "{}", "Idempotency-Key: "+key)["sandboxID"]] = true
	}
	if len(ids) != 2 {
		t.Errorf("two keys make %d sandboxes", len(ids))
	}
	// One key is for one request, however it is written.
	s.call(201, "POST", "/v2/sandboxes", `{"metadata":{"a":"b","c":"d"},"timeout":60}`, "Idempotency-Key: third")
	s.call(201, "POST", "/v2/sandboxes", `{ "timeout":60, "metadata":{"c":"d","a":"b"}}`, "Idempotency-Key: third")
	if text := s.call(422, "POST", "/v2/sandboxes", `{"metadata":{"a":"x"}}`, "Idempotency-Key: third")["message"]; !strings.Contains(fmt.Sprint(text), "another request") {
		t.Errorf("another request with a key is told %v", text)
	}
	s.call(400, "POST", "/v2/sandboxes", "{}", "Idempotency-Key: "+strings.Repeat("a", 256))
}

func TestASandboxOfAnotherProtocolGetsNoEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	sandbox, err := s.driver.Create(t.Context(), driver.Spec{Isolation: driver.IsolationFull})
	if err != nil {
		t.Fatal(err)
	}
	info, err := sandbox.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]int{"running": 200, "stopped": 201} {
		if state == "stopped" {
			if err := sandbox.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.call(want, "POST", "/v2/sandboxes/"+string(info.ID)+"/connect", `{"timeout":1}`)
		if now, err := sandbox.Info(t.Context()); err != nil || now.State != driver.Ready || !now.Deadline.IsZero() {
			t.Errorf("%s, and connected: %+v, %v", state, now, err)
		}
	}
	if ids, _ := s.list("/v2/sandboxes"); len(ids) != 1 {
		t.Errorf("the list has %v", ids)
	}
}

func TestWhatIsRefusedSaysWhy(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.create("{}")
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"a template that there is not", "POST", "/v2/sandboxes", `{"templateID":"nope"}`, 404, "404: template \"nope\" not found"},
		{"a negative time", "POST", "/v2/sandboxes", `{"timeout":-1}`, 400, "timeout"},
		{"a time without end", "POST", "/sandboxes/" + id + "/timeout", `{"timeout":9223372036854775807}`, 400, "timeout"},
		{"no time", "POST", "/sandboxes/" + id + "/timeout", `{}`, 400, "timeout is missing"},
		{"a time that is null", "POST", "/sandboxes/" + id + "/timeout", `{"timeout":null}`, 400, "timeout is missing"},
		{"no body", "POST", "/sandboxes/" + id + "/timeout", ``, 400, "timeout is missing"},
		{"a fraction", "POST", "/sandboxes/" + id + "/timeout", `{"timeout":1.5}`, 400, "timeout"},
		{"no JSON", "POST", "/v2/sandboxes", `{`, 400, "body"},
		{"an array", "POST", "/v2/sandboxes", `[]`, 400, "body"},
		{"a variable without a name", "POST", "/v2/sandboxes", `{"envVars":{"":"x"}}`, 400, "envVars"},
		{"too much metadata", "POST", "/v2/sandboxes", `{"metadata":{"k":"` + strings.Repeat("x", driver.MaxValue+1) + `"}}`, 400, "metadata"},
		{"volumes", "POST", "/v2/sandboxes", `{"volumeMounts":[{"name":"v","path":"/v"}]}`, 501, "volumeMounts"},
		{"identities", "POST", "/v2/sandboxes", `{"iam":{"tokens":{"a":{}}}}`, 501, "iam"},
		{"a host name that is none", "POST", "/v2/sandboxes", `{"network":{"maskRequestHost":"a b"}}`, 400, "maskRequestHost"},
		{"a port that is none", "POST", "/v2/sandboxes", `{"network":{"httpsPorts":[0]}}`, 400, "httpsPorts"},
		{"a host name for later", "PUT", "/sandboxes/" + id + "/network", `{"maskRequestHost":"a"}`, 400, "maskRequestHost"},
		{"rules", "POST", "/v2/sandboxes", `{"network":{"rules":{"a":[{"transform":{}}]}}}`, 501, "network.rules"},
		{"resolvers", "POST", "/v2/sandboxes", `{"network":{"dnsServers":["1.1.1.1"]}}`, 501, "network.dnsServers"},
		{"a proxy", "PUT", "/sandboxes/" + id + "/network", `{"egressProxy":{"address":"a:1"}}`, 501, "egressProxy"},
		{"no internet, by this driver", "POST", "/v2/sandboxes", `{"allow_internet_access":false}`, 501, "network"},
		{"too many copies", "POST", "/sandboxes/" + id + "/fork", `{"count":101}`, 400, "count"},
		{"no copy", "POST", "/sandboxes/" + id + "/fork", `{"count":0}`, 400, "count"},
		{"a copy, by this driver", "POST", "/sandboxes/" + id + "/fork", `{"count":1}`, 501, "fork"},
		{"a snapshot, by this driver", "POST", "/sandboxes/" + id + "/snapshots", `{}`, 501, "snapshots"},
		{"a snapshot of memory", "POST", "/sandboxes/" + id + "/snapshots", `{"memory":true}`, 501, "memory"},
		{"metrics, by this driver", "GET", "/sandboxes/" + id + "/metrics", "", 501, "metrics"},
		{"metrics of nobody", "GET", "/sandboxes/metrics", "", 400, "sandbox_ids"},
		{"metrics of a time that is none", "GET", "/sandboxes/" + id + "/metrics?start=x", "", 400, "start"},
		{"logs of a level that is none", "GET", "/v2/sandboxes/" + id + "/logs?level=loud", "", 400, "level"},
		{"logs of too many lines", "GET", "/sandboxes/" + id + "/logs?limit=1001", "", 400, "limit"},
		{"logs of a direction that is none", "GET", "/v2/sandboxes/" + id + "/logs?direction=up", "", 400, "direction"},
		{"a build, by this driver", "POST", "/v3/templates", `{"name":"x"}`, 501, "templates"},
		{"a name for an ID", "GET", "/sandboxes/base", "", 404, "not found"},
		{"an ID with a slash in it", "GET", "/sandboxes/" + id + "%2F..%2F" + id, "", 404, "not found"},
		{"volumes, by this driver", "GET", "/volumes", "", 501, "volumes"},
		{"a volume, by this driver", "POST", "/volumes", `{"name":"v"}`, 501, "volumes"},
		{"secrets", "POST", "/secrets/x", "", 501, "/secrets"},
		{"a path that there is not", "GET", "/sandboxes/" + id + "/x/y", "", 404, "no path"},
		{"a method that there is not", "PATCH", "/v2/sandboxes", "", 404, "no path"},
	} {
		if e := s.call(tt.status, tt.method, tt.path, tt.body); !strings.Contains(e["message"].(string), tt.says) {
			t.Errorf("%s: %v; want %q in it", tt.name, e, tt.says)
		}
	}
	if res, _ := s.do("POST", "/v2/sandboxes", `{"metadata":{"k":"`+strings.Repeat("x", 2<<20)+`"}}`); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body without end: %s", res.Status)
	}
}

func TestListsFilterAndCome(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	var ids []string
	for _, body := range []string{
		`{"metadata":{"tag":"a","odd key":"a=b&c d/ž+%"}}`, `{"metadata":{"tag":"a"}}`, `{"metadata":{"tag":"b"}}`, `{"metadata":{"tag":"a"}}`, `{}`,
	} {
		ids = append(ids, s.create(body))
	}
	s.call(204, "POST", "/sandboxes/"+ids[2]+"/pause", `{"memory":false}`)
	newestFirst := slices.Clone(ids)
	slices.Reverse(newestFirst)
	for _, tt := range []struct {
		name, path string
		want       []string
	}{
		{"all", "/v2/sandboxes", newestFirst},
		{"the oldest first", "/v2/sandboxes?order=asc", ids},
		{"as JavaScript asks, by an odd key", "/v2/sandboxes?metadata=odd%252520key%3Da%25253Db%252526c%252520d%25252F%2525C5%2525BE%25252B%252525%26tag%3Da&state=running,paused&limit=100", ids[:1]},
		{"by a name alone", "/v2/sandboxes?metadata=tag%3Da", []string{ids[3], ids[1], ids[0]}},
		{"by two states, repeated", "/v2/sandboxes?state=running&state=paused&order=asc", ids},
		{"those that are paused", "/v2/sandboxes?state=paused", ids[2:3]},
		{"those that run", "/sandboxes?metadata=tag%3Db", nil},
		{"by a template", "/v2/sandboxes?template=base&metadata=tag%3Db", ids[2:3]},
		{"by another template", "/v2/sandboxes?template=x", nil},
		{"those of the future", "/v2/sandboxes?startedAfter=2100-01-01T00:00:00.000Z", nil},
		{"those of the past", "/v2/sandboxes?startedAfter=2000-01-01T00:00:00.000Z&order=asc", ids},
	} {
		if got, next := s.list(tt.path); !slices.Equal(got, tt.want) || next != "" {
			t.Errorf("%s: %v, next %q; want %v", tt.name, got, next, tt.want)
		}
	}
	// Pages hold while sandboxes come and go.
	var paged []string
	for next, path := "", "/v2/sandboxes?limit=2"; ; {
		var page []string
		page, next = s.list(path + map[bool]string{true: "", false: "&nextToken=" + next}[next == ""])
		paged = append(paged, page...)
		if next == "" {
			break
		}
		if len(paged) == 2 {
			s.create(`{}`)
			s.call(204, "DELETE", "/sandboxes/"+paged[1], "")
		}
	}
	if !slices.Equal(paged, newestFirst) {
		t.Errorf("in pages: %v; want %v", paged, newestFirst)
	}
	for _, query := range []string{
		"limit=0", "limit=101", "limit=x", "order=up", "state=dead", "startedAfter=now", "metadata=%25zz", "metadata=a%3D%2525zz",
		"nextToken=x", "nextToken=eA", "nextToken=" + strings.Repeat("A", 10_000), "nextToken=Li4vLi4vLi4vZXRjL3Bhc3N3ZCw", "nextToken=%00",
	} {
		if e := s.call(400, "GET", "/v2/sandboxes?"+query, ""); e["message"] == "" {
			t.Errorf("%s: %v", query, e)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.create("{}") // without a token any key is good
	s.call(201, "POST", "/v2/sandboxes", "{}", "X-API-Key: e2b_0000000000000000000000000000000000000000")
	s.token = "the server's token"
	key := protocol.E2BKey(s.token)
	if len(key) != 44 || !strings.HasPrefix(string(key), "e2b_") || strings.Trim(string(key[4:]), "0123456789abcdef") != "" || protocol.E2BKey("").Set() {
		t.Errorf("the key is %q", key)
	}
	id := s.call(201, "POST", "/v2/sandboxes", "{}", "X-API-Key: "+string(key))["sandboxID"].(string)
	for _, header := range []string{"X-API-Key: " + string(s.token), "Authorization: Bearer " + string(s.token), "Authorization: Bearer " + string(key)} {
		s.call(200, "GET", "/sandboxes/"+id, "", header)
	}
	for _, header := range []string{
		"X-API-Key: ", "X-API-Key: e2b_0000000000000000000000000000000000000000", "Authorization: Bearer x", "Authorization: " + string(key),
		"X-Access-Token: " + string(s.secret.SandboxToken(id)), "X-API-Key: " + string(s.secret.SandboxToken(id)),
	} {
		for _, path := range []string{"/sandboxes/" + id, "/v2/sandboxes", "/templates/aliases/base", "/snapshots", "/v3/templates", "/volumes", "/sandboxes/x/y/z"} {
			s.call(401, "GET", path, "", header)
		}
		// Nothing of the body is read before the key.
		s.call(401, "POST", "/v2/sandboxes", strings.Repeat(" ", 4<<20), header)
	}
}

// What the original refuses is refused: a program that works here works there.
func TestRulesOfTheNetwork(t *testing.T) {
	t.Parallel()
	s, _ := serveAble(t)
	id := s.create(`{"network":{"allowOut":["a.example","*.b.example","1.1.1.1"],"denyOut":["0.0.0.0/0"]}}`)
	s.create(`{"network":{"allowOut":["a.example"]},"allow_internet_access":false}`)
	s.create(`{"network":{"allowOut":["1.1.1.1","10.0.0.0/8"],"denyOut":["2606:4700::/32","192.0.2.1"]}}`)
	for _, c := range []struct{ rules, text string }{
		{`"allowOut":["a.example"]`, "you must include 'ALL_TRAFFIC'"},
		{`"allowOut":["1.1.1.1","*.a.example"],"denyOut":["10.0.0.0/8"]`, "you must include 'ALL_TRAFFIC'"},
		{`"denyOut":["a.example"]`, "invalid denied CIDR a.example"},
		{`"allowOut":["b.example"],"denyOut":["0.0.0.0/0","*"]`, "invalid denied CIDR *"},
	} {
		for _, a := range []map[string]any{
			s.call(400, "POST", "/v2/sandboxes", `{"network":{`+c.rules+`}}`), s.call(400, "PUT", "/sandboxes/"+id+"/network", `{`+c.rules+`}`),
		} {
			if text := fmt.Sprint(a["message"]); !strings.Contains(text, c.text) {
				t.Errorf("%s: %s", c.rules, text)
			}
		}
	}
}

// The rest of the original's API is refused by name, with what to do instead.
func TestPathsThatThereAreNot(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, path := range []string{
		"/secrets", "/teams", "/nodes", "/api-keys", "/access-tokens",
	} {
		for _, method := range []string{"GET", "POST"} {
			name := "/" + strings.Split(path, "/")[1] + " is not supported by this server; "
			if text := fmt.Sprint(s.call(501, method, path, "")["message"]); !strings.HasPrefix(text, name) || len(text) == len(name) {
				t.Errorf("%s %s: %q", method, path, text)
			}
		}
	}
	for body, field := range map[string]string{
		`{"network":{"rules":{"a.example":[{"transform":{"headers":{"a":"b"}}}]}}}`: "network.rules",
		`{"iam":{"tokens":{"t":{}}}}`: "iam",
	} {
		text := fmt.Sprint(s.call(501, "POST", "/v2/sandboxes", body)["message"])
		if !strings.HasPrefix(text, field+" is not supported by this server; ") {
			t.Errorf("%s: %q", body, text)
		}
	}
}

// A template of MCP that nobody built is refused by name, with what to do.
func TestMCPNeedsATemplate(t *testing.T) {
	t.Parallel()
	s, _ := serveAble(t)
	text := fmt.Sprint(s.call(501, "POST", "/v2/sandboxes", `{"templateID":"mcp-gateway","mcp":{"time":{}}}`)["message"])
	if !strings.Contains(text, "mcp") || !strings.Contains(text, "build one") {
		t.Errorf("the text is %q", text)
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, name := range []string{"base", "mastra-5e041282b68ff13a", "base%3Adefault"} {
		if a := s.call(200, "GET", "/templates/aliases/"+name, ""); a["templateID"] != "base" {
			t.Errorf("%s: %v", name, a)
		}
	}
	for _, name := range []string{"nope", "mastra-5e041282b68ff13", "ns%2Fname%3Atag", "..%2F..%2Fetc", "%00"} {
		s.call(404, "GET", "/templates/aliases/"+name, "")
	}
	s.call(404, "DELETE", "/templates/base", "")
	s.call(404, "DELETE", "/templates/"+string(driver.NewID()), "")
}
