package e2bapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/volume"
)

// storing is the host driver with volumes that no sandbox has.
type storing struct {
	open
	dir string
	all []driver.Volume
}

func (d *storing) CreateVolume(_ context.Context, name string) (driver.Volume, error) {
	for _, v := range d.all {
		if v.Name == name {
			return v, fmt.Errorf("%q: %w", name, driver.ErrVolumeExists)
		}
	}
	d.all = append(d.all, driver.Volume{ID: driver.NewVolumeID(), Name: name})
	v := d.all[len(d.all)-1]
	return v, os.MkdirAll(filepath.Join(d.dir, string(v.ID)), 0o700)
}

func (d *storing) Volumes(context.Context) ([]driver.Volume, error) { return d.all, nil }

func (d *storing) GetVolume(_ context.Context, id driver.VolumeID) (driver.Volume, error) {
	for _, v := range d.all {
		if v.ID == id {
			return v, nil
		}
	}
	return driver.Volume{}, driver.ErrNoVolume
}

func (d *storing) DeleteVolume(ctx context.Context, id driver.VolumeID) error {
	if _, err := d.GetVolume(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("the sandbox x has it: %w", driver.ErrInUse)
}

func (d *storing) VolumeFiles(ctx context.Context, id driver.VolumeID) (driver.VolumeFiles, error) {
	if _, err := d.GetVolume(ctx, id); err != nil {
		return nil, err
	}
	return volume.Open(filepath.Join(d.dir, string(id)), os.Geteuid() != 0)
}

func serveVolumes(t *testing.T) *server {
	return serve(t, func(c *e2bapi.Config) {
		c.Driver = &storing{open: c.Driver.(open), dir: t.TempDir()}
	})
}

func TestVolumesOnTheWire(t *testing.T) {
	t.Parallel()
	s := serveVolumes(t)
	s.token = "the token of the server"
	key := "X-Api-Key: " + string(s.token)
	made := s.call(201, "POST", "/volumes", `{"name":"a"}`, key)
	id, token := made["volumeID"].(string), "Authorization: Bearer "+made["token"].(string)
	other := s.call(201, "POST", "/volumes", `{"name":"b"}`, key)
	if _, text := s.do("GET", "/volumes", "", key); strings.Contains(text, "token") || !strings.Contains(text, id) {
		t.Errorf("the list is %s", text)
	}
	if again := s.call(200, "GET", "/volumes/"+id, "", key); again["token"] != made["token"] || again["name"] != "a" {
		t.Errorf("it is %v, and was %v", again, made)
	}
	s.call(400, "POST", "/volumes", `{"name":"a"}`, key)
	s.call(404, "GET", "/volumes/..%2F"+id, "", key)
	s.call(404, "DELETE", "/volumes/x", "", key)
	s.call(409, "DELETE", "/volumes/"+id, "", key)
	for _, path := range []string{"/volumes", "/volumes/" + id} {
		s.call(401, "GET", path, "")
		s.call(401, "GET", path, "", token) // it is for the files alone
	}

	at := "/volumecontent/" + id
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"a file", "PUT", at + "/file?path=/f", "text", 201, `"type":"file","path":"/f","size":4,"mode":438`},
		{"the same again", "PUT", at + "/file?path=/f", "text", 409, "Path /f already exists"},
		{"by force", "PUT", at + "/file?path=f&force=true&mode=384", "more", 201, `"mode":384`},
		{"its content", "GET", at + "/file?path=/f", "", 200, "more"},
		{"no path", "GET", at + "/file", "", 400, "path is missing"},
		{"a mode that is none", "PUT", at + "/file?path=/g&mode=rw", "", 400, "mode"},
		{"a negative id", "PUT", at + "/file?path=/g&uid=-1", "", 400, "uid"},
		{"a force that is none", "PUT", at + "/file?path=/g&force=yes", "", 400, "force"},
		{"a directory", "POST", at + "/dir?path=/d", "", 201, `"type":"directory"`},
		{"a list", "GET", at + "/dir?path=/", "", 200, `"path":"/d"`},
		{"a list too deep", "GET", at + "/dir?path=/&depth=11", "", 400, "depth"},
		{"a depth that is none", "GET", at + "/dir?path=/&depth=x", "", 400, "depth"},
		{"a directory as content", "GET", at + "/file?path=/d", "", 409, "is a directory"},
		{"an entry", "GET", at + "/path?path=/f", "", 200, `"name":"f"`},
		{"a change", "PATCH", at + "/path?path=/f", `{"mode":420}`, 200, `"mode":420`},
		{"a change by no JSON", "PATCH", at + "/path?path=/f", `{`, 400, "body"},
		{"what there is not", "GET", at + "/path?path=/none", "", 404, "Path /none not found"},
		{"a removal", "DELETE", at + "/path?path=/f", "", 204, ""},
		{"the volume itself", "DELETE", at + "/path?path=/", "", 400, "volume itself"},
		{"a path that there is not", "GET", at + "/x?path=/f", "", 404, "no path of this API"},
		{"a method that there is not", "POST", at + "/file?path=/f", "", 404, "no path of this API"},
		{"another volume's, with this token", "GET", "/volumecontent/" + other["volumeID"].(string) + "/dir?path=/", "", 401, "token"},
		{"a volume that there is not", "GET", "/volumecontent/x/dir?path=/", "", 401, "token"},
		{"another volume's, over ..", "GET", at + "/../" + other["volumeID"].(string) + "/dir?path=/", "", 307, ""},
	} {
		res, text := s.do(tt.method, tt.path, tt.body, token)
		if res.StatusCode != tt.status || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %s %s; want %d and %q", tt.name, res.Status, text, tt.status, tt.says)
		}
		var e struct{ Code, Message string } // the code is a string in this API
		if tt.status >= 400 && (json.Unmarshal([]byte(text), &e) != nil || e.Code != fmt.Sprint(tt.status) || e.Message == "") {
			t.Errorf("%s: the error is %s", tt.name, text)
		}
	}
	for _, header := range []string{"X-Api-Key: " + string(s.token), "Authorization: Bearer " + string(s.token), "Authorization: Bearer ", "A: b"} {
		if res, text := s.do("GET", at+"/dir?path=/", "", header); res.StatusCode != 401 {
			t.Errorf("with %q: %s %s", header, res.Status, text)
		}
	}
}
