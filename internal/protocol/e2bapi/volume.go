package e2bapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// volumeJSON is a volume in answers. Token is that of its content, and not in lists.
type volumeJSON struct {
	VolumeID string  `json:"volumeID"`
	Name     string  `json:"name"`
	Token    string  `json:"token,omitempty"`
	Domain   *string `json:"domain,omitempty"`
}

// volumeMount is a volume in a creation, and in what is told of a sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

func mountsFor(asked []volumeMount) (mounts []driver.VolumeMount) {
	for _, m := range asked {
		mounts = append(mounts, driver.VolumeMount{Name: m.Name, Target: m.Path})
	}
	return mounts
}

func mountsOf(info *driver.Info) []volumeMount {
	mounts := make([]volumeMount, len(info.Volumes))
	for i, m := range info.Volumes {
		mounts[i] = volumeMount{m.Name, m.Target}
	}
	return mounts
}

func (f *Face) volumePaths() map[string]handler {
	return map[string]handler{
		"GET /volumes":         f.volumes,
		"POST /volumes":        f.createVolume,
		"GET /volumes/{id}":    f.volume,
		"DELETE /volumes/{id}": f.deleteVolume,
	}
}

func (f *Face) volumer() (driver.Volumer, error) {
	if v, ok := f.driver.(driver.Volumer); ok {
		return v, nil
	}
	return nil, f.lacks("volumes")
}

// volumeToken lets its holder read and write the files of one volume.
func (f *Face) volumeToken(id driver.VolumeID) protocol.Token {
	return protocol.Token("tsv_" + f.secret.Sign("volume", string(id)))
}

// withToken is what a caller gets who may use the volume. A client takes the domain as that of its files, so it has
// the port; without one it uses its own.
func (f *Face) withToken(r *http.Request, v *driver.Volume) volumeJSON {
	return volumeJSON{string(v.ID), v.Name, string(f.volumeToken(v.ID)), f.domain(r)}
}

func (f *Face) createVolume(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Name string `json:"name"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	vs, err := f.volumer()
	if err != nil {
		return err
	}
	v, err := vs.CreateVolume(context.WithoutCancel(r.Context()), req.Name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, f.withToken(r, &v))
	return nil
}

func (f *Face) volumes(w http.ResponseWriter, r *http.Request) error {
	vs, err := f.volumer()
	if err != nil {
		return err
	}
	all, err := vs.Volumes(r.Context())
	if err != nil {
		return err
	}
	list := make([]volumeJSON, len(all))
	for i, v := range all {
		list[i] = volumeJSON{VolumeID: string(v.ID), Name: v.Name}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (f *Face) volume(w http.ResponseWriter, r *http.Request) error {
	vs, err := f.volumer()
	if err != nil {
		return err
	}
	v, err := vs.GetVolume(r.Context(), driver.VolumeID(r.PathValue("id")))
	if err != nil {
		return noVolume(r.PathValue("id"), err)
	}
	writeJSON(w, http.StatusOK, f.withToken(r, &v))
	return nil
}

func (f *Face) deleteVolume(w http.ResponseWriter, r *http.Request) error {
	vs, err := f.volumer()
	if err != nil {
		return err
	}
	if err := vs.DeleteVolume(context.WithoutCancel(r.Context()), driver.VolumeID(r.PathValue("id"))); err != nil {
		return noVolume(r.PathValue("id"), err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// noVolume words the error of a volume that is not there.
func noVolume(id string, err error) error {
	if problemOf(err).status == http.StatusNotFound {
		return &problem{http.StatusNotFound, fmt.Sprintf("volume %.100q not found", id)}
	}
	return err
}
