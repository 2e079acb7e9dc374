package driver_test

import (
	"encoding/json"
	"errors"
	"math"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// FuzzSpec: a spec or change that passes is within the limits; of another one
// the field is named.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"Name":"box-1","Run":{"User":"u","Dir":"/x","Env":{"A":"b"}},"Env":{"C":"d"},"Metadata":{"k":"v"}}`), int64(time.Hour), 1.5, int64(1))
	f.Add([]byte(`{}`), int64(0), math.NaN(), int64(0))
	f.Add([]byte(`{"Name":"00000000-0000-4000-8000-00000000000A"}`), int64(0), 0.0, int64(0))
	f.Add([]byte(`{"Name":".x","Run":{"Dir":"x"}}`), int64(-1), -1.0, int64(-1))
	f.Add([]byte(`{"Run":{"Env":{"":""},"User":"\u0000","Dir":"/\u0000"},"Env":{"A=":"\u0000"},"Metadata":{"":""}}`), int64(math.MaxInt64), math.NaN(), int64(math.MinInt64))
	f.Add([]byte(`{"Snapshot":"a\u0000b"}`), int64(1), math.Inf(1), int64(0))
	f.Add([]byte(`{"Template":"a\u0001","Network":{"Mode":9,"Allow":[""]},"Shares":[{"Source":"/a/../b","Target":"x"}],"Notes":{"":""}}`), int64(1), 1.0, int64(0))
	f.Add([]byte(`{"Shares":[{"Source":"/a"}],"Isolation":7,"AtDeadline":7,"Deadline":"9999-01-01T00:00:00Z"}`), int64(1), 1.0, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, ttl int64, cpus float64, bytes int64) {
		var s driver.Spec
		if json.Unmarshal(b, &s) != nil {
			return
		}
		s.IdleTTL, s.Size = time.Duration(ttl), driver.Size{CPUs: cpus, Memory: bytes, Disk: bytes}
		err := s.Validate()
		named(t, err)
		if err == nil && !(cpus >= 0 && cpus <= 4096 && bytes >= 0 && bytes <= 1<<50 && ttl >= 0 && s.IdleTTL <= driver.MaxTTL) {
			t.Errorf("%+v passes", s)
		}
		if err == nil {
			whole(t, s.Name, s.Snapshot, s.Run, s.Env, s.Metadata)
			for _, share := range s.Shares {
				if share.Source == "/" || share.Source != path.Clean(share.Source) || share.Target != "" && (share.Target == "/" || share.Target != path.Clean(share.Target)) {
					t.Errorf("the share %+v passes", share)
				}
			}
		}
		c := driver.Change{Name: &s.Name, IdleTTL: &s.IdleTTL, Run: &s.Run, Metadata: s.Metadata}
		if err := c.Validate(); err != nil {
			named(t, err)
		} else if s.Name == "" || ttl < 0 || s.IdleTTL > driver.MaxTTL {
			t.Errorf("%+v passes as a change", s)
		} else {
			whole(t, s.Name, "", s.Run, nil, s.Metadata)
		}
	})
}

// named: the error says which field is wrong, in a line that can be shown.
func named(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	invalid, ok := errors.AsType[*driver.InvalidError](err)
	if !ok || invalid.Field == "" || invalid.Reason == "" || len(err.Error()) > 1<<10 || strings.ContainsAny(err.Error(), "\x00\x1b\n") {
		t.Errorf("%.2000q is told (%T)", err, err)
	}
}

func whole(t *testing.T, name, snapshot string, run driver.RunConfig, env, metadata map[string]string) {
	t.Helper()
	if len(name) > driver.MaxName || strings.ContainsAny(name, "/\x00\n ") || driver.LikeID(name) ||
		strings.IndexByte(snapshot, 0) >= 0 || len(snapshot) > 2*driver.MaxName {
		t.Errorf("the names %q and %q pass", name, snapshot)
	}
	if run.Dir != "" && run.Dir[0] != '/' || strings.IndexByte(run.Dir+run.User, 0) >= 0 {
		t.Errorf("%+v passes", run)
	}
	for _, m := range []map[string]string{env, run.Env} {
		for k, v := range m {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
				t.Errorf("the variable %q=%q passes", k, v)
			}
		}
	}
	for k := range metadata {
		if k == "" || len(k) > driver.MaxName {
			t.Errorf("the name %q passes", k)
		}
	}
}
