package e2bapi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// able is the host driver with all abilities, of which it remembers what it was asked.
type able struct {
	open
	snaps  []driver.Snapshot
	pauses []driver.PauseSpec
	specs  []driver.Spec
	builds map[driver.BuildID]*driver.BuildSpec
	done   bool // the builds
	tagged map[string][]string
}

func serveAble(t *testing.T) (*server, *able) {
	d := &able{builds: map[driver.BuildID]*driver.BuildSpec{}, tagged: map[string][]string{}}
	s := serve(t, func(c *e2bapi.Config) {
		d.open = c.Driver.(open)
		c.Driver = d
	})
	return s, d
}

func (d *able) Create(ctx context.Context, s driver.Spec) (driver.Sandbox, error) {
	d.specs = append(d.specs, s)
	s.Template, s.Snapshot, s.Network.Allow, s.Network.Deny = "", "", nil, nil
	return d.open.Create(ctx, s)
}

func (d *able) Pause(ctx context.Context, id driver.ID, p driver.PauseSpec) error {
	d.pauses = append(d.pauses, p)
	s, err := d.Get(ctx, string(id))
	if err != nil {
		return err
	}
	return s.Stop(ctx)
}

func (d *able) Resume(context.Context, driver.ID) error { return nil }

func (d *able) Snapshot(_ context.Context, id driver.ID, s driver.SnapshotSpec) (driver.Snapshot, error) {
	for _, old := range d.snaps {
		if old.Name == s.Name && s.Name != "" && s.Tag != driver.LatestTag {
			return old, driver.ErrExists
		}
	}
	d.snaps = append(d.snaps, driver.Snapshot{State: driver.Ready, ID: driver.NewID(), Name: s.Name, Sandbox: id, Created: time.Now()})
	return d.snaps[len(d.snaps)-1], nil
}

func (d *able) at(key string) int {
	for i, s := range slices.Backward(d.snaps) { // the newest of a name
		if string(s.ID) == key || s.Name == key {
			return i
		}
	}
	return -1
}

func (d *able) GetSnapshot(_ context.Context, key string) (driver.Snapshot, error) {
	if i := d.at(key); i >= 0 {
		return d.snaps[i], nil
	}
	return driver.Snapshot{}, driver.ErrNotFound
}

func (d *able) Snapshots(context.Context) ([]driver.Snapshot, error) {
	return slices.Clone(d.snaps), nil
}

func (d *able) DeleteSnapshot(_ context.Context, key string) error {
	i := d.at(key)
	if i < 0 {
		return driver.ErrNotFound
	}
	if d.snaps[i].Name == "used" {
		return driver.ErrInUse
	}
	d.snaps = slices.Delete(d.snaps, i, i+1)
	return nil
}

func (d *able) Fork(ctx context.Context, _ driver.ID, f driver.ForkSpec) (all []driver.ForkResult, err error) {
	for i := range f.Count {
		if i == 1 {
			all = append(all, driver.ForkResult{Err: driver.ErrLimit})
			continue
		}
		s, err := d.open.Create(ctx, driver.Spec{Isolation: driver.IsolationFull, Deadline: f.Deadline, Network: driver.Network{Public: true}})
		all = append(all, driver.ForkResult{Sandbox: s, Err: err})
	}
	return all, nil
}

func (d *able) Metrics(_ context.Context, _ driver.ID, from, to time.Time) ([]driver.Metric, error) {
	at := time.Unix(1_800_000_000, 0)
	if !from.IsZero() && at.Before(from) || !to.IsZero() && at.After(to) {
		return nil, nil
	}
	return []driver.Metric{{Time: at, CPUs: 2, CPUPercent: 50, MemUsed: 1, MemCache: 2, MemTotal: 3, DiskUsed: 4, DiskTotal: 5}}, nil
}

func (d *able) Build(_ context.Context, s driver.BuildSpec) (driver.Build, error) {
	if s.From == "nobody" {
		return driver.Build{}, driver.ErrNotFound
	}
	if strings.Contains(s.FromImage, " ") {
		return driver.Build{}, &driver.InvalidError{Field: "image", Reason: "is no name"}
	}
	d.builds[s.ID] = &s
	return driver.Build{ID: s.ID}, nil
}

func (d *able) GetBuild(_ context.Context, id driver.BuildID, from int) (driver.Build, []driver.LogEntry, error) {
	s := d.builds[id]
	if s == nil {
		return driver.Build{}, nil, driver.ErrNotFound
	}
	b := driver.Build{ID: id, TemplateID: s.TemplateID, Status: driver.BuildRunning}
	if d.done {
		b.Status = driver.BuildReady
	}
	if s.Name == "broken" {
		b.Status, b.Reason, b.FailedStep = driver.BuildFailed, "exit status 7", "2"
	}
	var logs []driver.LogEntry
	for i := range 250 {
		logs = append(logs, driver.LogEntry{Time: time.Unix(int64(i), 0), Level: "info", Message: fmt.Sprint("line ", i)})
	}
	return b, logs[min(from, len(logs)):], nil
}

func (d *able) Template(_ context.Context, key string) (driver.Template, error) {
	name, tag, _ := strings.Cut(key, ":")
	for _, b := range d.builds {
		tags := b.Tags
		if len(tags) == 0 {
			tags = []string{driver.DefaultTag}
		}
		if d.done && (b.Name == name || b.TemplateID == name) && slices.Contains(tags, cmp.Or(tag, driver.DefaultTag)) {
			return driver.Template{ID: b.TemplateID, Name: b.Name, Build: b.ID, Created: time.Unix(1, 0), Updated: time.Unix(2, 0)}, nil
		}
	}
	return driver.Template{}, driver.ErrNotFound
}

func (d *able) Templates(ctx context.Context) (all []driver.Template, err error) {
	for _, b := range d.builds {
		if t, err := d.Template(ctx, b.Name+":"+strings.Join(b.Tags[:min(1, len(b.Tags))], "")); err == nil {
			all = append(all, t)
		}
	}
	return all, nil
}

func (d *able) DeleteTemplate(_ context.Context, key string) error {
	for id, b := range d.builds {
		if b.Name == key || b.TemplateID == key {
			delete(d.builds, id)
			return nil
		}
	}
	return driver.ErrNotFound
}

func (d *able) Tag(_ context.Context, target string, tags []string) (driver.BuildID, error) {
	if target == "nobody" {
		return "", driver.ErrNotFound
	}
	d.tagged[target] = tags
	return driver.NewBuildID(), nil
}

func (d *able) Untag(_ context.Context, name string, _ []string) error {
	if d.tagged[name] == nil {
		return driver.ErrNotFound
	}
	delete(d.tagged, name)
	return nil
}

func (d *able) Tags(_ context.Context, key string) (all []driver.Tag, err error) {
	for _, t := range d.tagged[key] {
		all = append(all, driver.Tag{Tag: t, Build: "b", Created: time.Unix(1, 0)})
	}
	return all, nil
}

func TestSnapshotsAreTemplates(t *testing.T) {
	t.Parallel()
	s, d := serveAble(t)
	id := s.create(`{}`)
	snap := s.call(201, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"mine"}`)
	if fmt.Sprint(snap["names"]) != "[mine]" {
		t.Errorf("snapshot: %v", snap)
	}
	first := snap["snapshotID"].(string)
	snap = s.call(201, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"mine"}`) // the name moves
	s.call(409, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"base"}`)        // a creation would take the template
	unnamed := s.call(201, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
	if unnamed["names"] == nil {
		t.Errorf("without a name: %v", unnamed)
	}
	second := snap["snapshotID"].(string)
	for key, want := range map[string]string{first: first, second: second, "mine": second} {
		s.create(`{"templateID":"` + key + `"}`)
		if spec := d.specs[len(d.specs)-1]; spec.Snapshot != want || spec.Template != "" {
			t.Errorf("made from %s: %+v", key, spec)
		}
	}
	list := func(query string) (n int, next string) {
		res, text := s.do("GET", "/snapshots"+query, "")
		var all []struct{ SnapshotID string }
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%s: %s", query, text)
		}
		return len(all), res.Header.Get("x-next-token")
	}
	for query, want := range map[string]int{"": 3, "?name=mine": 2, "?sandboxID=" + id: 3, "?sandboxID=x": 0} {
		if n, next := list(query); n != want || next != "" {
			t.Errorf("%s: %d, %q; want %d", query, n, next, want)
		}
	}
	n, next := list("?limit=1")
	if n2, next2 := list("?limit=2&nextToken=" + next); n != 1 || next == "" || n2 != 2 || next2 != "" {
		t.Errorf("in pages: %d %q, %d %q", n, next, n2, next2)
	}
	s.call(201, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"used"}`)
	s.call(409, "DELETE", "/templates/used", "")
	s.call(204, "DELETE", "/templates/"+snap["snapshotID"].(string), "")
	s.call(404, "DELETE", "/templates/"+snap["snapshotID"].(string), "")
}

// base is the driver's template of that name, with its user, where it has one; so is an
// alias of Mastra's until it is built.
func TestBaseIsTheDriversTemplate(t *testing.T) {
	t.Parallel()
	s, d := serveAble(t)
	d.done, d.builds["b"] = true, &driver.BuildSpec{Name: "base", TemplateID: "base", Tags: []string{driver.DefaultTag}}
	for _, id := range []string{"", "base", "mastra-5e041282b68ff13a"} {
		s.create(`{"templateID":"` + id + `"}`)
		if spec := d.specs[len(d.specs)-1]; spec.Template != "base" {
			t.Errorf("%q: made from %q", id, spec.Template)
		}
	}
	d.builds["m"] = &driver.BuildSpec{Name: "mastra-5e041282b68ff13a", TemplateID: "m", Tags: []string{driver.DefaultTag}}
	s.create(`{"templateID":"mastra-5e041282b68ff13a"}`)
	if spec := d.specs[len(d.specs)-1]; spec.Template != "mastra-5e041282b68ff13a" {
		t.Errorf("built: made from %q", spec.Template)
	}
}

func TestPausesForksMetricsAndLogs(t *testing.T) {
	t.Parallel()
	s, d := serveAble(t)
	id := s.create(`{"network":{"allowOut":["a.example"],"denyOut":["10.0.0.0/8"]},"allow_internet_access":false}`)
	if n := d.specs[0].Network; fmt.Sprint(n.Allow, n.Deny, n.Public) != "[a.example] [0.0.0.0/0 10.0.0.0/8] true" {
		t.Errorf("the network is %+v", n)
	}
	for _, body := range []string{"", `{"memory":true}`, `{"memory":false}`} {
		s.call(204, "POST", "/sandboxes/"+id+"/pause", body)
		s.call(409, "POST", "/sandboxes/"+id+"/pause", body)
		s.call(201, "POST", "/v2/sandboxes/"+id+"/connect", `{}`)
	}
	if fmt.Sprint(d.pauses) != "[{true} {true} {false}]" {
		t.Errorf("pauses: %v", d.pauses)
	}
	res, text := s.do("POST", "/sandboxes/"+id+"/fork", `{"timeout":60,"count":3}`)
	var forks []struct {
		Sandbox *struct{ SandboxID, EnvdAccessToken string }
		Error   *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(text), &forks); err != nil || res.StatusCode != 201 || len(forks) != 3 || forks[0].Sandbox == nil || forks[1].Sandbox != nil || forks[1].Error.Code != 429 ||
		forks[2].Sandbox.EnvdAccessToken != string(s.secret.SandboxToken(forks[2].Sandbox.SandboxID)) {
		t.Errorf("forks: %s %s, %v", res.Status, text, err)
	}
	const sample = `{"timestamp":"2027-01-15T08:00:00Z","timestampUnix":1800000000,"cpuCount":2,"cpuUsedPct":25,"memUsed":1,"memTotal":3,"memCache":2,"diskUsed":4,"diskTotal":5}`
	for path, want := range map[string]string{
		"/sandboxes/" + id + "/metrics":                                 "[" + sample + "]",
		"/sandboxes/" + id + "/metrics?start=1800000000&end=1800000000": "[" + sample + "]",
		"/sandboxes/" + id + "/metrics?start=1800000001":                "[]",
		"/sandboxes/metrics?sandbox_ids=" + id + ",x":                   `{"sandboxes":{"` + id + `":` + sample + `}}`,
	} {
		if res, text := s.do("GET", path, ""); res.StatusCode != 200 || text != want {
			t.Errorf("%s: %s %s", path, res.Status, text)
		}
	}
}

func TestABuildAsTheSDKsMakeIt(t *testing.T) {
	t.Parallel()
	s, d := serveAble(t)
	const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	made := s.call(202, "POST", "/v3/templates", `{"name":"Mine:v1","tags":["v2"],"cpuCount":2,"memoryMB":1024}`)
	template, build := made["templateID"].(string), made["buildID"].(string)
	if !driver.LikeID(build) || fmt.Sprint(made["names"], made["tags"]) != "[mine] [v1 v2]" {
		t.Errorf("reserved: %v", made)
	}
	path := "/templates/" + template + "/builds/" + build
	if st := s.call(200, "GET", path+"/status?logsOffset=0", ""); st["status"] != "waiting" || st["logEntries"] == nil {
		t.Errorf("before the start: %v", st)
	}
	link := s.call(201, "GET", "/templates/"+template+"/files/"+hash, "")
	if link["present"] != false {
		t.Errorf("the link is %v", link)
	}
	put := func(url, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	url := link["url"].(string)
	s.token = "from now on a key is needed, and not for uploads"
	if code := put(url, "the tar"); code != 200 {
		t.Errorf("the upload: %d", code)
	}
	for _, wrong := range []string{url + "x", strings.Replace(url, hash[:8], "ffffffff", 1), s.url + "/-/e2b/uploads/" + hash + ".99999999999.x", s.url + "/-/e2b/uploads/..%2F..%2Fx.9.y", s.url + "/-/e2b/uploads/" + hash + ".1." + s.secret.Sign("upload", hash, "1")} {
		if code := put(wrong, "evil"); code != 403 {
			t.Errorf("%s: %d", wrong, code)
		}
	}
	s.token = ""
	if again := s.call(201, "GET", "/templates/"+template+"/files/"+hash, ""); again["present"] != true || again["url"] == nil {
		t.Errorf("the second link is %v", again)
	}
	for _, bad := range []string{"x", hash[1:], strings.ToUpper(hash), "..%2F..%2Fsecret"} {
		s.call(400, "GET", "/templates/"+template+"/files/"+bad, "")
	}
	start := "/v2/templates/" + template + "/builds/" + build
	if res, text := s.do("POST", start, `{"fromImage":"e2bdev/base","force":true,"startCmd":"run","readyCmd":"ready","steps":[{"type":"COPY","args":["a","/a","",""],"filesHash":"`+hash+`"},{"type":"RUN","args":["x","root"],"force":true}]}`); res.StatusCode != 202 {
		t.Fatalf("the start: %s %s", res.Status, text)
	}
	s.call(409, "POST", start, `{}`)
	got := d.builds[driver.BuildID(build)]
	if got == nil || got.Name != "mine" || got.From != "" || got.TemplateID != template || got.Size.Memory != 1<<30 || got.Size.CPUs != 2 || !got.Force || got.Start != "run" || got.Ready != "ready" || len(got.Steps) != 2 || got.Steps[0].Hash != hash || !got.Steps[1].Force {
		t.Fatalf("built: %+v", got)
	}
	blob, err := got.Blob(hash)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	if b, err := io.ReadAll(blob); err != nil || !bytes.Equal(b, []byte("the tar")) {
		t.Errorf("the files are %q, %v", b, err)
	}
	for _, bad := range []string{strings.Repeat("f", 64), "../builds/" + build + ".json", ""} {
		if _, err := got.Blob(bad); err == nil {
			t.Errorf("there are files %q", bad)
		}
	}
	// As the SDKs read on: each line once, until a page is empty.
	var lines []string
	for d.done = true; ; {
		st := s.call(200, "GET", path+"/status?logsOffset="+fmt.Sprint(len(lines)), "")
		entries := st["logEntries"].([]any)
		if st["status"] != "ready" || len(entries) > 100 {
			t.Fatalf("%v with %d entries", st["status"], len(entries))
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			lines = append(lines, e.(map[string]any)["message"].(string))
		}
	}
	if len(lines) != 250 || lines[249] != "line 249" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if l := s.call(200, "GET", path+"/logs?direction=backward&limit=1&search=7", "")["logs"].([]any); l[0].(map[string]any)["message"] != "line 247" {
		t.Errorf("the log: %v", l)
	}
	// It is there by its name and its ID.
	for _, name := range []string{"mine%3Av1", "mine", "Mine", template} { // without a tag: whatever its tags are
		if a := s.call(200, "GET", "/templates/aliases/"+name, ""); a["templateID"] != template {
			t.Errorf("the alias %s: %v", name, a)
		}
	}
	a := s.call(404, "GET", "/templates/aliases/mine%3Av3", "")
	if !strings.Contains(fmt.Sprint(a["message"]), `tag "v3" does not exist for template "mine"`) {
		t.Errorf("a tag that there is not: %v", a)
	}
	s.call(404, "POST", "/v2/sandboxes", `{"templateID":"mine"}`) // the tag "default" is meant
	s.create(`{"templateID":"mine:v1"}`)
	if spec := d.specs[len(d.specs)-1]; spec.Template != "mine:v1" || spec.Snapshot != "" {
		t.Errorf("made from it: %+v", spec)
	}
	if one := s.call(200, "GET", "/templates/"+template, ""); one["templateID"] != template || len(one["builds"].([]any)) != 1 {
		t.Errorf("the template: %v", one)
	}
	if res, text := s.do("GET", "/templates", ""); res.StatusCode != 200 || strings.Count(text, `"templateID"`) != 2 {
		t.Errorf("all: %s %s", res.Status, text)
	}
	s.call(200, "PATCH", "/v2/templates/mine", `{"public":true}`)
	tags := s.call(201, "POST", "/templates/tags", `{"target":"mine:v1","tags":["stable"]}`)
	if fmt.Sprint(tags["tags"]) != "[stable]" {
		t.Errorf("tags: %v", tags)
	}
	if res, text := s.do("GET", "/templates/mine%3Av1/tags", ""); res.StatusCode != 200 || !strings.Contains(text, `"tag":"stable"`) {
		t.Errorf("tags: %s %s", res.Status, text)
	}
	s.call(204, "DELETE", "/templates/tags", `{"name":"mine:v1","tags":["stable"]}`)
	s.call(404, "POST", "/templates/tags", `{"target":"nobody","tags":["x"]}`)
	s.call(204, "DELETE", "/templates/mine", "")
	s.call(404, "GET", "/templates/mine", "")
}

func TestBuildsThatFail(t *testing.T) {
	t.Parallel()
	s, d := serveAble(t)
	begin := func(name string) (start, status string) {
		made := s.call(202, "POST", "/v3/templates", `{"name":"`+name+`"}`)
		template, build := made["templateID"].(string), made["buildID"].(string)
		return "/v2/templates/" + template + "/builds/" + build, "/templates/" + template + "/builds/" + build + "/status"
	}
	start, status := begin("broken")
	s.do("POST", start, `{"fromTemplate":"base","steps":[]}`)
	if st := s.call(200, "GET", status, ""); st["status"] != "error" || st["reason"].(map[string]any)["step"] != "2" || st["reason"].(map[string]any)["message"] != "exit status 7" {
		t.Errorf("a step: %v", st)
	}
	start, status = begin("lost")
	s.do("POST", start, `{"fromTemplate":"base"}`)
	clear(d.builds) // as a server that ended
	if st := s.call(200, "GET", status, ""); st["status"] != "error" {
		t.Errorf("lost: %v", st)
	}
	start, status = begin("from")
	if res, text := s.do("POST", start, `{"fromTemplate":"nobody"}`); res.StatusCode != 202 {
		t.Errorf("a template that there is not: %s %s", res.Status, text)
	}
	if reason := s.call(200, "GET", status, "")["reason"].(map[string]any); reason["step"] != "base" || !strings.Contains(reason["message"].(string), `"nobody" not found`) {
		t.Errorf("a template that there is not: %v", reason)
	}
	for _, name := range []string{"", "a b", "../x", "a/b/c", strings.Repeat("a", 129), "a:..", "ž", "a\\u0000"} {
		s.call(400, "POST", "/v3/templates", `{"name":"`+name+`"}`)
	}
	for field, value := range map[string]string{"cpuCount": "0.001", "cpuCount ": "5000", "cpuCount  ": "-1", "memoryMB": "99999999999", "memoryMB ": "-1", "memoryMB  ": "9223372036854775807"} {
		field = strings.TrimSpace(field)
		if res, text := s.do("POST", "/v3/templates", `{"name":"a","`+field+`":`+value+`}`); res.StatusCode != 400 || !strings.Contains(text, field+" is ") || !strings.Contains(text, "allowed") {
			t.Errorf("%s %s: %s %s", field, value, res.Status, text)
		}
	}
	s.call(404, "GET", "/templates/x/builds/"+string(driver.NewID())+"/status", "")
	s.call(404, "GET", "/templates/x/builds/..%2F..%2Fx/status", "")
	s.call(404, "POST", strings.Replace(start, "/v2/templates/", "/v2/templates/other", 1), `{}`)
}
