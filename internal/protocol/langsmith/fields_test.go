package langsmith_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestNoFieldIsDroppedInSilence sends each field that the SDKs (npm 0.12.0,
// PyPI 0.15.0, their generated clients included) send, by itself: it has an
// effect that the answer tells, or is refused by its name.
func TestNoFieldIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const boxes, box = "/v2/sandboxes/boxes", "/v2/sandboxes/boxes/box"
	tests := []struct {
		method, path, body string
		status             int
		say                string // all of it, in the answer
	}{
		{"POST", boxes, `{"name":"n1"}`, 201, `"name":"n1"`},
		{"POST", boxes, `{"wait_for_ready":true,"timeout":30}`, 201, `"status":"ready"`},
		{"POST", boxes, `{"wait_for_ready":false}`, 201, `"status":"ready"`},
		{"POST", boxes, `{"wait_for_ready":true,"timeout":-1}`, 422, `timeout`},
		{"POST", boxes, `{"idle_ttl_seconds":120}`, 201, `"idle_ttl_seconds":120`},
		{"POST", boxes, `{"idle_ttl_seconds":-1}`, 422, `idle_ttl_seconds`},
		{"POST", boxes, `{"idle_ttl_seconds":99999999999}`, 422, `idle_ttl_seconds`},
		{"POST", boxes, `{"delete_after_stop_seconds":120}`, 201, `"delete_after_stop_seconds":120`},
		{"POST", boxes, `{"vcpus":2}`, 201, `vcpus`},
		{"POST", boxes, `{"cpu_millicores":500}`, 201, `vcpus`},
		{"POST", boxes, `{"mem_bytes":1073741824}`, 201, `mem_bytes`},
		{"POST", boxes, `{"mem_bytes":-1}`, 422, `mem_bytes is -1 bytes; 0 (no limit) or 1048576 to `},
		{"POST", boxes, `{"mem_bytes":9223372036854775807}`, 422, `mem_bytes is 9223372036854775807 bytes`},
		{"POST", boxes, `{"vcpus":1e308}`, 422, `vcpus or cpu_millicores is 1e+308; 0 (no limit) or 0.01 to 4096 are allowed`},
		{"POST", boxes, `{"fs_capacity_bytes":-1}`, 422, `fs_capacity_bytes is -1 bytes`},
		{"POST", boxes, `{"fs_capacity_bytes":1073741824}`, 201, `fs_capacity_bytes`},
		{"POST", boxes, `{"vcpus":-2}`, 422, `"loc":["body","vcpus"]`},
		{"POST", boxes, `{"persistent":true}`, 201, `"persistent":true`},
		{"POST", boxes, `{"persistent":false}`, 201, `"persistent":false`},
		{"POST", boxes, `{"preserve_memory_on_stop":true}`, 501, `preserve_memory_on_stop`},
		{"POST", boxes, `{"preserve_memory_on_stop":false}`, 201, `"preserve_memory_on_stop":false`},
		{"POST", boxes, `{"restore_memory":true}`, 501, `restore_memory`},
		{"POST", boxes, `{"restore_memory":false}`, 201, `"status":"ready"`},
		{"POST", boxes, `{"labels":{"team":"a","empty":""}}`, 201, `"labels":{"empty":"","team":"a"}`},
		{"POST", boxes, `{"labels":{"":"a"}}`, 422, `labels`},
		{"POST", boxes, `{"run_config":{"user":"no-such-user"}}`, 422, `run_config.user`},
		{"POST", boxes, `{"run_config":{"work_dir":"/tmp"}}`, 201, `"work_dir":"/tmp"`},
		{"POST", boxes, `{"run_config":{"work_dir":"tmp"}}`, 422, `run_config.work_dir`},
		{"POST", boxes, `{"run_config":{"env_vars":{"A":"b"}}}`, 201, `"env_vars":{"A":"b"}`},
		{"POST", boxes, `{"run_config":{"env_vars":{"A=":"b"}}}`, 422, `run_config.env_vars`},
		{"POST", boxes, `{"env_vars":{"A=":"b"}}`, 422, `env_vars`},
		{"POST", boxes, `{"snapshot":"s:v1"}`, 501, `snapshot`},
		{"POST", boxes, `{"snapshot_id":"s"}`, 501, `snapshot`},
		{"POST", boxes, `{"snapshot_name":"s"}`, 501, `snapshot`},
		{"POST", boxes, `{"snapshot":"s","snapshot_name":"t"}`, 400, `snapshot_name`},
		{"POST", boxes, `{"snapshot":"s","snapshot_id":"t"}`, 400, `snapshot_id`},
		{"POST", boxes, `{"mount_config":{"mounts":[{}]}}`, 501, `mount_config`},
		{"POST", boxes, `{"proxy_config":{"rules":[{}]}}`, 501, `proxy_config.rules`},
		{"POST", boxes, `{"proxy_config":{"callbacks":[{}]}}`, 501, `proxy_config.callbacks`},
		{"POST", boxes, `{"proxy_config":[]}`, 400, `proxy_config`},
		{"POST", boxes, `{"proxy_config":{"rules":[],"no_proxy":["a"],"description":"d"}}`, 201, `"status":"ready"`},
		{"POST", boxes, `{"proxy_config":{"access_control":{"allow_list":["a.example"]}}}`, 501, `proxy_config.access_control.allow_list`},
		{"POST", boxes, `{"proxy_config":{"access_control":{"allow_list":["a.example"],"deny_list":["b.example"]}}}`, 400, `proxy_config.access_control`},
		{"POST", boxes, `{"proxy_config":{"access_control":{"deny_list":["~a.*"]}}}`, 501, `proxy_config.access_control.deny_list: not supported`},
		{"POST", boxes, `{"proxy_config":{"access_control":{"allow_list":[]}}}`, 201, `"status":"ready"`},
		{"POST", boxes, `{"access_delegation":{"mode":"EXPLICIT","permissions":["a"]}}`, 501, `access_delegation`},
		{"POST", boxes, `{"volumes":[{"volume":"v","mount_path":"/v"}]}`, 501, `volumes`},
		{"POST", boxes, `{"tag_value_ids":["x","y-1"]}`, 201, `"tag_value_ids":["x","y-1"]`},
		{"POST", boxes, `{"tag_value_ids":["x,y"]}`, 422, `tag_value_ids`},
		{"POST", boxes, `{"tag_value_ids":"x"}`, 400, `tag_value_ids`},
		{"POST", boxes, `{"mount_config":null,"proxy_config":{},"volumes":[],"labels":null}`, 201, `"status":"ready"`},
		{"POST", boxes, `{"a_field_that_no_client_has":1}`, 201, `"status":"ready"`},

		{"PATCH", box, `{"idle_ttl_seconds":60}`, 200, `"idle_ttl_seconds":60`},
		{"PATCH", box, `{"delete_after_stop_seconds":60}`, 200, `"delete_after_stop_seconds":60`},
		{"PATCH", box, `{"idle_ttl_seconds":-60}`, 422, `idle_ttl_seconds`},
		{"PATCH", box, `{"run_config":{"env_vars":{"P":"q"}}}`, 200, `"env_vars":{"P":"q"}`},
		{"PATCH", box, `{"run_config":{"work_dir":"/"}}`, 200, `"work_dir":"/"`},
		{"PATCH", box, `{"run_config":{"user":"no-such-user"}}`, 422, `run_config.user`},
		{"PATCH", box, `{"vcpus":2}`, 501, `vcpus`},
		{"PATCH", box, `{"cpu_millicores":200}`, 501, `cpu_millicores`},
		{"PATCH", box, `{"mem_bytes":2}`, 501, `mem_bytes`},
		{"PATCH", box, `{"fs_capacity_bytes":2}`, 501, `fs_capacity_bytes`},
		{"PATCH", box, `{"proxy_config":{"rules":[{}]}}`, 501, `proxy_config.rules`},
		{"PATCH", box, `{"proxy_config":{"callbacks":[{}]}}`, 501, `proxy_config.callbacks`},
		{"PATCH", box, `{"proxy_config":[]}`, 400, `proxy_config`},
		{"PATCH", box, `{"proxy_config":{"rules":[],"no_proxy":["a"],"description":"d"}}`, 200, `"status":"ready"`},
		{"PATCH", box, `{"proxy_config":{"access_control":{"allow_list":["a.example"]}}}`, 501, `proxy_config.access_control.allow_list`},
		{"PATCH", box, `{"proxy_config":{"access_control":{"allow_list":["a.example"],"deny_list":["b.example"]}}}`, 400, `proxy_config.access_control`},
		{"PATCH", box, `{"proxy_config":{"access_control":{"deny_list":["~a.*"]}}}`, 501, `proxy_config.access_control.deny_list: not supported`},
		{"PATCH", box, `{"proxy_config":{"access_control":{"allow_list":[]}}}`, 200, `"status":"ready"`},
		{"PATCH", box, `{"tag_value_ids":["x"]}`, 501, `tag_value_ids`},
		{"PATCH", box, `{"labels":{"a":"b"}}`, 501, `labels`},
		{"PATCH", box, `{"env_vars":{"a":"b"}}`, 501, `env_vars`},
		{"PATCH", box, `{"persistent":false}`, 501, `persistent`},
		{"PATCH", box, `{"snapshot":"x"}`, 501, `snapshot`},

		{"POST", box + "/service-url", `{"port":80,"expires_in_seconds":60}`, 200, `"token"`},
		{"POST", box + "/service-url", `{"port":80,"access":"workspace"}`, 200, `"access":"workspace"`},
		{"POST", box + "/service-url", `{"port":80,"access":"off"}`, 200, `"token"`},
		{"POST", box + "/service-url", `{"port":80,"access":"all"}`, 422, `access`},
		{"POST", box + "/service-url", `{"port":80,"embed_origins":["https://a.example"]}`, 501, `embed_origins`},
		{"POST", box + "/service-url", `{"port":80,"embed_origins":[]}`, 200, `"token"`},
		{"GET", box + "/service-urls", "", 501, `service URLs`},
		{"DELETE", box + "/service-urls?port=1", "", 501, `service URLs`},
		{"POST", box + "/download-url", `{"path":"x","expires_in_seconds":60}`, 200, `"expires_at"`},
		{"POST", box + "/download-url", `{"path":"x","content_disposition":"none"}`, 422, `content_disposition`},
		{"POST", box + "/download-url", `{"path":"x","csp_sandbox":true}`, 200, `"token"`},
		{"POST", box + "/download-url", `{"path":"x","csp_sandbox":false}`, 501, `csp_sandbox`},
		{"POST", box + "/download-url", `{"path":"x","csp_sandbox_flags":["allow-scripts"]}`, 501, `csp_sandbox_flags`},
		{"POST", box + "/download-url", `{"path":"x","csp_source_bundles":["any"]}`, 501, `csp_source_bundles`},
		{"GET", "/api/v2/sandboxes/usage/costs", "", 501, `usage`},

		{"GET", boxes + "?page_size=x", "", 400, `page_size`},
		{"GET", boxes + "?limit=0", "", 400, `limit`},
		{"GET", boxes + "?offset=-1", "", 400, `offset`},
		{"GET", boxes + "?status=happy", "", 400, `status`},
		{"GET", boxes + "?sort_by=colour", "", 400, `sort_by`},
		{"GET", boxes + "?sort_order=up", "", 400, `sort_order`},
		{"GET", boxes + "?created_by=you", "", 400, `created_by`},
		{"GET", boxes + "?tag_value_id=y-1&tag_value_id=x", "", 200, `"tag_value_ids":["x","y-1"]`},
		{"GET", boxes + "?tag_value_id=x&tag_value_id=1", "", 200, `"sandboxes":[]`},

		{"POST", s.data() + "/execute", `{"command":"true","run_config":{"user":"no-such-user"}}`, 400, `no-such-user`},
		{"POST", s.data() + "/execute", `{"command":"pwd","run_config":{"work_dir":"/tmp"}}`, 200, `"stdout":"/tmp\n"`},
		{"POST", s.data() + "/execute", `{"command":"echo $A","run_config":{"env_vars":{"A":"b"}}}`, 200, `"stdout":"b\n"`},
		{"POST", s.data() + "/execute", `{"command":"echo $A","env":{"A":"b"}}`, 200, `"stdout":"b\n"`},
		{"POST", s.data() + "/execute", `{"command":"pwd","cwd":"/tmp"}`, 200, `"stdout":"/tmp\n"`},
		{"POST", s.data() + "/execute", `{"command":"pwd","cwd":"/no/such"}`, 400, `/no/such`},
		{"POST", s.data() + "/execute", `{"command":"echo $0","shell":"/bin/sh"}`, 200, `/bin/sh`},
		{"POST", s.data() + "/execute", `{"command":"pwd","cwd":"/","run_config":{}}`, 400, `run_config`},
	}
	for _, tt := range tests {
		if status, body := s.call(tt.method, tt.path, tt.body); status != tt.status || !strings.Contains(body, tt.say) {
			t.Errorf("%s %s %s: %d %.400s; want %d and %s", tt.method, strings.TrimPrefix(tt.path, s.url), tt.body, status, body, tt.status, tt.say)
		}
	}
}

func TestVariablesOfABoxGoOverItsRunConfig(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	status, body := s.call("POST", "/v2/sandboxes/boxes", `{"name":"v","env_vars":{"A":"box","B":"box"},"run_config":{"env_vars":{"A":"run","C":"run"}}}`)
	if status != 201 {
		t.Fatal(status, body)
	}
	if status, body := s.call("PATCH", "/v2/sandboxes/boxes/v", `{"run_config":{"env_vars":{"A":"new","C":"new"}}}`); status != 200 {
		t.Fatal(status, body)
	}
	status, body = s.call("POST", "/langsmith/v/execute", `{"command":"echo $A $B $C","env":{"B":"command"}}`)
	if status != 200 || !strings.Contains(body, `"stdout":"box command new\n"`) {
		t.Error(status, body)
	}
}

func TestAListOfBoxes(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, spec := range []driver.Spec{
		{Name: "c-one", Metadata: map[string]string{"team": "a", "x": ""}, IdleTTL: time.Hour},
		{Name: "a-two", Metadata: map[string]string{"team": "b"}},
		{Name: "b-one", Metadata: map[string]string{"team": "a"}},
	} {
		proctest.Value(s.driver.Create(t.Context(), spec))(t)
	}
	if status, body := s.call("POST", "/v2/sandboxes/boxes/b-one/stop", "{}"); status != 200 {
		t.Fatal(status, body)
	}
	for query, want := range map[string]string{
		"":                               "box c-one a-two b-one",
		"name_contains=ONE":              "c-one b-one",
		"label=team":                     "c-one a-two b-one",
		"label=team=a":                   "c-one b-one",
		"label=team=a&label=x":           "c-one",
		"label=none":                     "",
		"status=stopped":                 "b-one",
		"status=ready&name_contains=-":   "c-one a-two",
		"sort_by=name":                   "a-two b-one box c-one",
		"sort_by=name&sort_order=desc":   "c-one box b-one a-two",
		"sort_by=status&sort_order=desc": "b-one box c-one a-two",
		"sort_by=idle_ttl_seconds":       "box a-two b-one c-one",
		"created_by=me":                  "box c-one a-two b-one",
		"offset=3":                       "b-one",
		"offset=30":                      "",
		"limit=2&offset=1":               "c-one a-two",
		"page_size=2":                    "box c-one",
		"page_size=2&sort_by=name":       "a-two b-one",
	} {
		type page struct {
			Items, Sandboxes []struct{ Name string }
			NextCursor       *string `json:"next_cursor"`
		}
		status, body := s.call("GET", "/v2/sandboxes/boxes?"+query, "")
		p := page{}
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != 200 {
			t.Fatal(status, body, err)
		}
		var items, sandboxes []string
		for i := range p.Items {
			items, sandboxes = append(items, p.Items[i].Name), append(sandboxes, p.Sandboxes[i].Name)
		}
		if got := strings.Join(items, " "); got != want || !slices.Equal(items, sandboxes) {
			t.Errorf("%s: %q and %q, want %q", query, items, sandboxes, want)
		}
		if !strings.Contains(body, `"next_cursor"`) || (strings.Contains(query, "page_size") || strings.Contains(query, "limit")) != (p.NextCursor != nil) {
			t.Errorf("%s: the cursor is %v", query, p.NextCursor)
		}
	}
	if status, body := s.call("GET", "/v2/sandboxes/boxes?cursor=zzz", ""); status != 400 || !strings.Contains(body, "cursor") {
		t.Errorf("a cursor of nobody: %d %s", status, body)
	}
	// All pages, as the generated clients read them. The box that a page ends with may be
	// gone when the next one is read.
	seen := map[string]bool{}
	for cursor := ""; ; {
		_, body := s.call("GET", "/api/v2/sandboxes/boxes?page_size=1&sort_by=name&cursor="+cursor, "")
		var p struct {
			Items      []struct{ Name string }
			NextCursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(body), &p); err != nil || len(p.Items) != 1 || seen[p.Items[0].Name] {
			t.Fatal(body, err)
		}
		seen[p.Items[0].Name] = true
		if name := p.Items[0].Name; name == "b-one" {
			s.call("DELETE", "/v2/sandboxes/boxes/"+name, "")
		}
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != 4 {
		t.Errorf("the pages tell %v", slices.Sorted(maps.Keys(seen)))
	}
}
