package langsmith

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"path"
	"strings"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// imageRequest is the body of POST /snapshots.
type imageRequest struct {
	Name            string          `json:"name"`
	DockerImage     string          `json:"docker_image"`
	FSCapacityBytes int64           `json:"fs_capacity_bytes"`
	Tag             string          `json:"tag"`
	RunConfig       *runConfig      `json:"run_config"`
	RegistryID      json.RawMessage `json:"registry_id"`
}

// createSnapshot makes a snapshot of an image. The request is no owner's: the image is fetched
// without this machine's credentials, and from no address of this machine.
func (f *Face) createSnapshot(w http.ResponseWriter, r *http.Request) error {
	var req imageRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	sn, ok := f.driver.(driver.ImageSnapshotter)
	switch {
	case !ok:
		return unsupported("docker_image", "isolated sandboxes are needed for it")
	case asks(req.RegistryID):
		return unsupported("registry_id", "leave it out: "+
			"images come from where no account is needed, or are there because the operator shares them")
	case req.DockerImage == "" || len(req.DockerImage) > driver.MaxImageName:
		return requestErrorf("docker_image has %d bytes; 1 to %d are allowed", len(req.DockerImage), driver.MaxImageName)
	case req.FSCapacityBytes < 0:
		return requestErrorf("fs_capacity_bytes is %d; it is how many bytes the image may have", req.FSCapacityBytes)
	}
	s, err := sn.SnapshotImage(context.WithoutCancel(r.Context()), driver.Pull{Name: req.DockerImage}, driver.SnapshotSpec{
		Name: req.Name, Tag: cmp.Or(req.Tag, tagOfImage(req.DockerImage), driver.LatestTag), Run: req.RunConfig.driver(),
		MaxBytes: req.FSCapacityBytes})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, snapshotJSON(&s))
	return nil
}

// tagOfImage is the tag in the name of an image.
func tagOfImage(name string) string {
	name, _, _ = strings.Cut(name, "@")
	_, tag, _ := strings.Cut(path.Base(name), ":")
	return tag
}
